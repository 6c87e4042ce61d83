//! The process that waits for its call to be answered: its memory, descriptors and directories.

use std::cell::OnceCell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bstr::ByteSlice;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use crate::sys::notify::{Call, still_waits};
use crate::sys::remote;

/// The longest path with its 0 (`PATH_MAX`, include/uapi/linux/limits.h).
const LONGEST_PATH: usize = 4096;
/// No argument of a call is longer: the value of an extended attribute (`XATTR_SIZE_MAX`,
/// include/uapi/linux/limits.h).
pub const LONGEST_READ: usize = 64 * 1024;
/// No page is smaller; memory that can be read ends at the border of one.
const PAGE: u64 = 4096;
/// As much of `/proc/PID/status` as is read: its first lines, which are short.
const HEAD_OF_STATUS: usize = 512;

/// A call and who makes it. What is read of the caller may have changed since it called, and may
/// change again: each thing is read once, and decided on as it was read.
///
/// Whatever a method gives is the caller's: the thread was still waiting after it was taken, so that
/// its number was not another's.
#[derive(Debug)]
pub struct Caller {
    /// The call.
    pub call: Call,
    listener: Arc<OwnedFd>,
    process: OnceCell<OwnedFd>,
}

impl Caller {
    /// The caller of a call that came from this listener.
    #[must_use]
    pub fn new(call: Call, listener: Arc<OwnedFd>) -> Self {
        Self {
            call,
            listener,
            process: OnceCell::new(),
        }
    }

    /// An argument that the kernel takes as `int`: the low half.
    #[must_use]
    pub fn int(&self, index: usize) -> i32 {
        (self.argument(index) as u32).cast_signed()
    }

    /// An argument in full; 0 for one that no call has.
    #[must_use]
    pub fn argument(&self, index: usize) -> u64 {
        self.call.arguments.get(index).copied().unwrap_or(0)
    }

    /// `length` bytes of the caller's memory.
    ///
    /// # Errors
    /// `EFAULT` if any of them cannot be read; `E2BIG` for more than [`LONGEST_READ`]; `ESRCH` if the
    /// caller is gone.
    pub fn read(&self, address: u64, length: usize) -> io::Result<Vec<u8>> {
        if length > LONGEST_READ {
            return Err(io::Error::from_raw_os_error(libc::E2BIG));
        }
        let mut bytes = vec![0; length];
        self.read_into(address, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills `buffer` from the caller's memory.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_into(&self, address: u64, buffer: &mut [u8]) -> io::Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        let read = self.certain(remote::read(self.call.thread, address, buffer));
        match read {
            Ok(length) if length == buffer.len() => Ok(()),
            Ok(_) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
            Err(error) => Err(unreadable(error)),
        }
    }

    /// Writes to the caller's memory.
    ///
    /// # Errors
    /// `EFAULT` if it cannot be written; `ESRCH` if the caller is gone.
    pub fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        // Asked before, too: not a byte for a stranger.
        self.check()?;
        remote::write(self.call.thread, address, bytes).map_err(unreadable)
    }

    /// A path: the bytes up to the first 0.
    ///
    /// # Errors
    /// `EFAULT`; `ENAMETOOLONG` if there is no 0 in the first 4096 bytes (`PATH_MAX`); `ESRCH` if the
    /// caller is gone.
    pub fn path(&self, address: u64) -> io::Result<Vec<u8>> {
        self.text(address, LONGEST_PATH)
            .map_err(|error| match error.raw_os_error() {
                Some(libc::E2BIG) => io::Error::from_raw_os_error(libc::ENAMETOOLONG),
                _ => error,
            })
    }

    /// A text: the bytes up to the first 0, which is one of the first `most`.
    ///
    /// # Errors
    /// `EFAULT`; `E2BIG` without a 0; `ESRCH` if the caller is gone.
    pub fn text(&self, address: u64, most: usize) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        // Up to the end of a page: the next may not be there, and a text that ends before is whole.
        while text.len() < most {
            let from = address
                .checked_add(text.len() as u64)
                .ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
            let in_page = usize::try_from(PAGE - from % PAGE).unwrap_or(1);
            let had = text.len();
            text.resize(had + in_page.min(most - had), 0);
            let fresh = text.get_mut(had..).unwrap_or_default();
            self.read_into(from, fresh)?;
            if let Some(end) = fresh.iter().position(|&byte| byte == 0) {
                text.truncate(had + end);
                return Ok(text);
            }
        }
        Err(io::Error::from_raw_os_error(libc::E2BIG))
    }

    /// A copy of one of the caller's descriptors: the same open file, close-on-exec.
    ///
    /// Before Linux 6.9 a thread that has a table of descriptors for itself (`unshare(2)`,
    /// `CLONE_FILES`) gets a file from the table of its process's first thread.
    ///
    /// # Errors
    /// `EBADF`; `EACCES` for a process that made itself untraceable (`PR_SET_DUMPABLE`); `ESRCH` if the
    /// caller is gone.
    pub fn descriptor(&self, number: i32) -> io::Result<OwnedFd> {
        let process = self.process()?;
        let copy = self.certain(remote::descriptor_from(process, number));
        copy.map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM) => io::Error::from_raw_os_error(libc::EACCES),
            _ => error,
        })
    }

    /// The caller's current directory, opened with `O_PATH`.
    ///
    /// # Errors
    /// `EACCES` for a process that made itself untraceable; `ESRCH` if it is gone.
    pub fn directory(&self) -> io::Result<OwnedFd> {
        let path = format!("/proc/{}/cwd", self.call.thread);
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        self.certain(open(path.as_str(), flags, Mode::empty()).map_err(io::Error::from))
    }

    /// The caller's root directory, opened with `O_PATH`.
    ///
    /// # Errors
    /// As [`Self::directory`].
    pub fn root(&self) -> io::Result<OwnedFd> {
        let path = format!("/proc/{}/root", self.call.thread);
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        self.certain(open(path.as_str(), flags, Mode::empty()).map_err(io::Error::from))
    }

    /// Whether the caller's user namespace has this user and this group by the numbers that they have
    /// here, and no others (user_namespaces(7)).
    ///
    /// # Errors
    /// `ESRCH` if it is gone.
    pub fn has_mapped(&self, uid: u32, gid: u32) -> io::Result<bool> {
        let is = |file: &str, id: u32| {
            let text = self.head_of(file)?;
            let words = text.split(|byte| byte.is_ascii_whitespace());
            let words: Vec<&[u8]> = words.filter(|word| !word.is_empty()).collect();
            let id = id.to_string();
            io::Result::Ok(words == [id.as_bytes(), id.as_bytes(), b"1"])
        };
        Ok(is("uid_map", uid)? && is("gid_map", gid)?)
    }

    /// The caller's umask (`proc_pid_status(5)`).
    ///
    /// # Errors
    /// `ESRCH` if it is gone.
    pub fn umask(&self) -> io::Result<u32> {
        let text = self.status()?;
        let mask = field(&text, b"\nUmask:\t").unwrap_or_default();
        u32::from_str_radix(mask, 8).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))
    }

    /// The number of the caller's process, which is that of its first thread.
    ///
    /// # Errors
    /// `ESRCH` if it is gone.
    pub fn group(&self) -> io::Result<i32> {
        let text = self.status()?;
        let group = field(&text, b"\nTgid:\t").unwrap_or_default();
        group
            .parse()
            .map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))
    }

    /// Whether the caller still waits for its answer. It may be gone: killed, or interrupted by a
    /// signal before Linux 5.19.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.check().is_ok()
    }

    /// Does something that may wait, and does it again when a signal interrupts it. Signals are how
    /// a thread learns that its caller is gone: then it is given up.
    ///
    /// # Errors
    /// Those of what is done; `EINTR` if the caller is gone.
    pub fn patiently<T>(&self, mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            match act() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted && self.is_waiting() => {}
                done => return done,
            }
        }
    }

    fn check(&self) -> io::Result<()> {
        still_waits(&*self.listener, self.call.id)
            .map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))
    }

    /// What was taken from the thread with the caller's number, if that was the caller all the time.
    fn certain<T>(&self, taken: io::Result<T>) -> io::Result<T> {
        self.check()?;
        taken
    }

    /// The caller's thread; on kernels that have no descriptors of threads, its process.
    fn process(&self) -> io::Result<&OwnedFd> {
        if let Some(process) = self.process.get() {
            return Ok(process);
        }
        let opened = match self.certain(remote::descriptor_of_thread(self.call.thread)) {
            // A thread that is not the first, on an older kernel.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOENT)) => {
                let group = self.group()?;
                self.certain(remote::descriptor_of_thread(group))?
            }
            opened => opened?,
        };
        Ok(self.process.get_or_init(|| opened))
    }

    /// The beginning of the caller's status.
    fn status(&self) -> io::Result<Vec<u8>> {
        self.head_of("status")
    }

    /// The beginning of a file in the caller's directory of `/proc`.
    fn head_of(&self, name: &str) -> io::Result<Vec<u8>> {
        let path = format!("/proc/{}/{name}", self.call.thread);
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let head = open(path.as_str(), flags, Mode::empty()).and_then(|file| {
            let mut head = vec![0; HEAD_OF_STATUS];
            let length = nix::unistd::read(&file, &mut head)?;
            head.truncate(length);
            Ok(head)
        });
        self.certain(head.map_err(|_| io::Error::from_raw_os_error(libc::ESRCH)))
    }
}

/// A caller's memory that cannot be had is, for the call, a bad address.
fn unreadable(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EPERM) => io::Error::from_raw_os_error(libc::EFAULT),
        _ => error,
    }
}

/// The value of a line of a status. The name of the program, the first line, has no line break in
/// it: the kernel shows one as two characters.
fn field<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a str> {
    let at = text.find(name)?;
    let rest = text.get(at + name.len()..)?;
    let value = rest.split(|&byte| byte == b'\n').next()?;
    std::str::from_utf8(value).ok()
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn a_line_of_a_status_is_found_by_its_name() {
        let text = b"Name:\tx\\nUmask:\t7\nUmask:\t0022\nState:\tS\nTgid:\t12";
        assert_eq!(field(text, b"\nUmask:\t"), Some("0022"));
        assert_eq!(field(text, b"\nTgid:\t"), Some("12"));
        assert_eq!(field(text, b"\nPid:\t"), None);
    }
}
