//! The process that waits for its call to be answered: its memory, descriptors and directories.

use std::io;
use std::os::fd::OwnedFd;

use crate::sys::notify::Call;

/// A call and who makes it. What is read of the caller may have changed since it called, and may
/// change again: each thing is read once, and decided on as it was read.
#[derive(Debug)]
pub struct Caller {
    /// The call.
    pub call: Call,
}

impl Caller {
    /// An argument that the kernel takes as `int`: the low half.
    #[must_use]
    pub fn int(&self, index: usize) -> i32 {
        (self.call.arguments[index] as u32).cast_signed()
    }

    /// `length` bytes of the caller's memory.
    ///
    /// # Errors
    /// `EFAULT` if any of them cannot be read.
    pub fn read(&self, _address: u64, _length: usize) -> io::Result<Vec<u8>> {
        Err(io::Error::from_raw_os_error(libc::EFAULT))
    }

    /// A path: the bytes up to the first 0.
    ///
    /// # Errors
    /// `EFAULT`; `ENAMETOOLONG` if there is no 0 in the first 4096 bytes (`PATH_MAX`).
    pub fn path(&self, address: u64) -> io::Result<Vec<u8>> {
        self.read(address, 1)
    }

    /// A copy of one of the caller's descriptors: the same open file.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn descriptor(&self, _number: i32) -> io::Result<OwnedFd> {
        Err(io::Error::from_raw_os_error(libc::EBADF))
    }

    /// The caller's current directory, opened with `O_PATH`.
    ///
    /// # Errors
    /// `ESRCH` if it is gone.
    pub fn directory(&self) -> io::Result<OwnedFd> {
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }

    /// The caller's umask (`proc_pid_status(5)`).
    ///
    /// # Errors
    /// `ESRCH` if it is gone.
    pub fn umask(&self) -> io::Result<u32> {
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }
}
