//! The first process inside the jail (pid 1): checks that the mounts are the planned ones, starts
//! the command, reaps, passes signals on, and tells the launcher how things go. When it ends, the
//! kernel ends everything else in the jail.
//!
//! It is trusted, and stands among hostile processes of the same uid: it makes itself
//! non-dumpable first, so that none of them can trace it or read its descriptors.

#![allow(
    clippy::disallowed_methods,
    reason = "an effect module: it acts inside the jail"
)]

mod attend;
mod confine;
mod copies;
mod execute;
mod said;
mod socket;
mod streams;

use std::ffi::{OsStr, OsString};
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, socketpair};
use nix::sys::statvfs::{FsFlags, statvfs};

use crate::handoff::{ErrorStream, LONGEST_DATAGRAM, Order, Report, Request};
use crate::sys::{fds, passing, process};
use attend::Attendance;

/// Exit code for a jail that could not be finished; the launcher has the reason.
const FAILED: i32 = 125;

/// Runs as init. `arguments` are the numbers of three descriptors: the user's standard error, the
/// socket to the launcher, the order. Never returns.
pub fn main(arguments: &[OsString]) -> ! {
    // The launcher shows the reason; without a socket to it there is nobody to tell.
    let code = match run(arguments) {
        Ok(code) => code,
        Err(()) => FAILED,
    };
    process::exit_now(code)
}

fn run(arguments: &[OsString]) -> Result<i32, ()> {
    nix::sys::prctl::set_dumpable(false).map_err(drop)?;
    if std::process::id() != 1 {
        return Err(());
    }
    let numbers: Vec<i32> = arguments
        .iter()
        .filter_map(|text| text.to_str()?.parse().ok())
        .filter(|&number| number > 2)
        .collect();
    let [stderr, control, order] = numbers[..] else {
        return Err(());
    };
    let stderr = fds::inherited(stderr).map_err(drop)?;
    let control = fds::inherited(control).map_err(drop)?;
    let order = fds::inherited(order).map_err(drop)?;
    // Nothing but the standard streams reaches the command, whatever bubblewrap left open.
    fds::close_on_exec_from(3).map_err(drop)?;
    let control = Control(control);
    let outcome = prepare(stderr, order).and_then(|order| start(&control, &order));
    match outcome {
        Ok(code) => Ok(code),
        Err(reason) => {
            control.send(&Report::Refused(reason));
            Err(())
        }
    }
}

struct Control(OwnedFd);

impl Control {
    fn send(&self, report: &Report) {
        self.send_with(report, None);
    }

    fn send_with(&self, report: &Report, fd: Option<BorrowedFd<'_>>) {
        // A launcher that is gone takes the jail with it; there is nothing to do about it here.
        if let Ok(text) = postcard::to_allocvec(report) {
            let _ = passing::send(&self.0, &text, fd);
        }
    }

    /// The next request; `None` when the launcher is gone.
    fn receive(&self) -> Option<Request> {
        let mut buffer = [0; LONGEST_DATAGRAM];
        match passing::receive(&self.0, &mut buffer, MsgFlags::empty()) {
            Ok((0, _)) | Err(_) => None,
            Ok((length, _)) => postcard::from_bytes(&buffer[..length]).ok(),
        }
    }
}

fn prepare(stderr: OwnedFd, order: OwnedFd) -> Result<Order, String> {
    let mut text = Vec::new();
    std::fs::File::from(order)
        .read_to_end(&mut text)
        .map_err(|error| format!("cannot read the order: {error}"))?;
    let order: Order =
        postcard::from_bytes(&text).map_err(|error| format!("cannot read the order: {error}"))?;
    fds::become_standard(&stderr, 2)
        .map_err(|error| format!("cannot set standard error: {error}"))?;
    drop(stderr);
    for expect in &order.expect {
        let path = Path::new(OsStr::from_bytes(&expect.path));
        let shown = path.display();
        let meta = std::fs::symlink_metadata(path)
            .map_err(|error| format!("`{shown}` is not in the jail: {error}"))?;
        if (meta.dev(), meta.ino()) != expect.id {
            return Err(format!(
                "`{shown}` was replaced while the jail was built; somebody is changing it"
            ));
        }
        if expect.read_only {
            let flags = statvfs(path)
                .map_err(|error| format!("cannot check `{shown}`: {error}"))?
                .flags();
            if !flags.contains(FsFlags::ST_RDONLY) {
                return Err(format!("`{shown}` is writable in the jail and must not be"));
            }
        }
    }
    if let Some(path) = &order.input {
        let path = Path::new(OsStr::from_bytes(path));
        reopen_input(path).map_err(|error| format!("cannot reopen standard input: {error}"))?;
    }
    Ok(order)
}

/// Replaces standard input by the same file through a mount of the jail, at the same offset.
fn reopen_input(path: &Path) -> std::io::Result<()> {
    let mut file = std::fs::File::open(path)?;
    let offset = nix::unistd::lseek(std::io::stdin(), 0, nix::unistd::Whence::SeekCur)?;
    file.seek(SeekFrom::Start(offset.unsigned_abs()))?;
    fds::become_standard(&file, 0)
}

/// The longest path that is told of, in bytes (`PATH_MAX`); the agent may have written any.
const LONGEST_PATH: usize = 4096;

fn start(control: &Control, order: &Order) -> Result<i32, String> {
    // Of what Slurm sends to every process init gets a copy.
    let mut attended = SigSet::empty();
    if order.by_slurm {
        attended = SigSet::all();
    }
    attended.add(Signal::SIGCHLD);
    attended
        .thread_block()
        .map_err(|error| format!("cannot block signals: {error}"))?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let signals = SignalFd::with_flags(&attended, flags)
        .map_err(|error| format!("cannot make a signalfd: {error}"))?;
    if let Some(path) = &order.socket {
        let path = Path::new(OsStr::from_bytes(path));
        let socket = socket::listening(path)
            .map_err(|error| format!("cannot listen at `{}`: {error}", path.display()))?;
        control.send_with(&Report::Listening, Some(socket.as_fd()));
    }
    // On this pair the child passes the standard error that it opened.
    let (ours, theirs) = socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )
    .map_err(|error| format!("cannot make a pair of sockets: {error}"))?;
    control.send(&Report::Ready);
    match process::fork().map_err(|error| format!("cannot fork: {error}"))? {
        process::Side::Child => {
            drop(ours);
            become_command(control, order, theirs)
        }
        process::Side::Parent(command) => {
            drop(theirs);
            let opens = order.streams.error != ErrorStream::AsItComes;
            Ok(Attendance::new(control, &signals, command, order.by_slurm)
                .with_errors(opens.then_some(ours))
                .run())
        }
    }
}

/// The child: becomes the command.
fn become_command(control: &Control, order: &Order, init: OwnedFd) -> ! {
    let cwd = match confine::confine(order) {
        Ok(cwd) => cwd,
        Err(reason) => {
            control.send(&Report::Refused(reason));
            process::exit_now(FAILED);
        }
    };
    if let Err(unopened) = streams::open(&order.streams) {
        let shown = unopened.path.len().min(LONGEST_PATH);
        control.send(&Report::NoStream {
            stream: unopened.stream,
            path: unopened.path[..shown].to_vec(),
            errno: unopened.error.raw_os_error().unwrap_or(libc::EIO),
        });
        process::exit_now(FAILED);
    }
    if order.streams.error != ErrorStream::AsItComes {
        // Without it Slurm's messages are not shown; the command can run all the same.
        let _ = passing::send(&init, b"2", Some(std::io::stderr().as_fd()));
    }
    drop(init);
    if cwd != order.cwd {
        execute::tell_directory(order, cwd);
    }
    let error = execute::execute(order, cwd);
    if order.by_slurm {
        process::exit_now(execute::complain(order, &error));
    }
    control.send(&Report::NotExecuted {
        errno: error.raw_os_error().unwrap_or(libc::EIO),
    });
    process::exit_now(FAILED)
}
