//! The first process inside the jail (pid 1): checks that the mounts are the planned ones, starts
//! the command, reaps, passes signals on, and tells the launcher how things go. When it ends, the
//! kernel ends everything else in the jail. In a job the jail outlives its commands: init then runs
//! none, and a process of ours that joined the jail stands by each.
//!
//! It is trusted, and stands among hostile processes of the same uid: it makes itself
//! non-dumpable first, so that none of them can trace it or read its descriptors.

#![allow(
    clippy::disallowed_methods,
    reason = "an effect module: it acts inside the jail"
)]

mod attend;
mod command;
mod confine;
mod control;
mod copies;
mod execute;
pub mod gone;
mod keep;
mod messages;
pub mod socket;
mod streams;
mod walk;
mod watched;

use std::ffi::{OsStr, OsString};
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::statvfs::{FsFlags, statvfs};

pub use self::confine::ConfinedBy;
use self::control::{Control, FAILED};
use crate::handoff::{Order, Report, Request, Run};
use crate::sys::namespaces::{self, Kind};
use crate::sys::{fds, process};

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
    serve(Some(stderr), control, order)
}

/// Goes on as the init of a step in a jail that is there already: in a pid namespace of its own,
/// without any right left. No program is executed, for those inside could have put another in its
/// place. Everything but the standard streams, `control` and `order` is closed. Never returns.
pub fn go_on(control: OwnedFd, order: OwnedFd) -> ! {
    let alone = nix::sys::prctl::set_dumpable(false)
        .map_err(drop)
        .and(fds::close_all_but(&[control.as_raw_fd(), order.as_raw_fd()]).map_err(drop));
    let code = match alone {
        Ok(()) if std::process::id() == 1 => serve(None, control, order).unwrap_or(FAILED),
        _ => FAILED,
    };
    process::exit_now(code)
}

/// Does what was ordered; the exit code. `stderr` is the user's standard error, if it is not this
/// process's already.
fn serve(stderr: Option<OwnedFd>, control: OwnedFd, order: OwnedFd) -> Result<i32, ()> {
    let control = Control(control);
    let outcome = prepare(&control, stderr, order).and_then(|order| start(&control, &order));
    match outcome {
        Ok(code) => Ok(code),
        Err(reason) => {
            control.send(&Report::Refused(reason));
            Err(())
        }
    }
}

fn prepare(control: &Control, stderr: Option<OwnedFd>, order: OwnedFd) -> Result<Order, String> {
    let mut text = Vec::new();
    std::fs::File::from(order)
        .read_to_end(&mut text)
        .map_err(|error| format!("cannot read the order: {error}"))?;
    let order: Order =
        postcard::from_bytes(&text).map_err(|error| format!("cannot read the order: {error}"))?;
    if let Some(stderr) = stderr {
        fds::become_standard(&stderr, 2)
            .map_err(|error| format!("cannot set standard error: {error}"))?;
    }
    if order.unfinished {
        finish(control)?;
    }
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
        // Of what is written nothing is asked: that would be a question to each server of a large file system.
        if expect.read_only {
            let flags = statvfs(path)
                .map_err(|error| format!("cannot check `{shown}`: {error}"))?
                .flags();
            if !flags.contains(FsFlags::ST_RDONLY) {
                return Err(format!("`{shown}` is writable in the jail and must not be"));
            }
            if !flags.contains(FsFlags::ST_NOSUID | FsFlags::ST_NODEV) {
                return Err(format!(
                    "`{shown}` has set-id bits or devices in the jail and must not have"
                ));
            }
        }
    }
    if let Some(path) = &order.input {
        let path = Path::new(OsStr::from_bytes(path));
        reopen_input(path).map_err(|error| format!("cannot reopen standard input: {error}"))?;
    }
    Ok(order)
}

/// Has the launcher finish the mounts, over which nobody inside has a right.
fn finish(control: &Control) -> Result<(), String> {
    let mount = namespaces::own(Kind::Mount)
        .map_err(|error| format!("cannot open the jail's mount namespace: {error}"))?;
    control.send_with(&Report::Unfinished, Some(mount.as_fd()));
    match control.receive() {
        Some(Request::Go) => Ok(()),
        _ => Err("the launcher did not finish the jail's mounts".to_owned()),
    }
}

/// Replaces standard input by the same file through a mount of the jail, at the same offset.
fn reopen_input(path: &Path) -> std::io::Result<()> {
    let mut file = std::fs::File::open(path)?;
    let offset = nix::unistd::lseek(std::io::stdin(), 0, nix::unistd::Whence::SeekCur)?;
    file.seek(SeekFrom::Start(offset.unsigned_abs()))?;
    fds::become_standard(&file, 0)
}

fn start(control: &Control, order: &Order) -> Result<i32, String> {
    // Of what Slurm sends to every process init gets a copy; to one that runs no command no signal
    // means anything.
    let all = order.run.as_ref().is_none_or(|run| run.by_slurm);
    let signals = hold_signals(all)?;
    for (service, path) in &order.sockets {
        let path = Path::new(OsStr::from_bytes(path));
        let socket = socket::listening(path)
            .map_err(|error| format!("cannot listen at `{}`: {error:#}", path.display()))?;
        control.send_with(&Report::Listening(*service), Some(socket.as_fd()));
    }
    match &order.run {
        Some(run) => command::attend(control, &signals, run, ConfinedBy::Jail),
        None => keep::keep(control, &signals),
    }
}

/// Takes this process for a task inside of a jail that it has joined: starts the command, stands by
/// it, and tells the launcher at the other end of `control`. Where the command's process confines itself there is no jail to
/// join and no pid namespace. Never returns.
pub fn attend(control: OwnedFd, run: &Run, by: ConfinedBy<'_>) -> ! {
    let control = Control(control);
    let done =
        hold_signals(run.by_slurm).and_then(|signals| command::attend(&control, &signals, run, by));
    process::exit_now(done.unwrap_or_else(|reason| {
        control.send(&Report::Refused(reason));
        FAILED
    }))
}

/// Holds back the signals that init attends to: every one, or those about children alone.
fn hold_signals(all: bool) -> Result<SignalFd, String> {
    let mut attended = if all { SigSet::all() } else { SigSet::empty() };
    attended.add(Signal::SIGCHLD);
    attended
        .thread_block()
        .map_err(|error| format!("cannot block signals: {error}"))?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    SignalFd::with_flags(&attended, flags)
        .map_err(|error| format!("cannot make a signalfd: {error}"))
}
