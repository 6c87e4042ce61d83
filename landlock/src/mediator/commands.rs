//! `execve(2)` of Slurm's own commands by their paths. They can authenticate to nobody inside; what is
//! executed in their place is the stand-in that is first in `PATH`. That is comfort and no verdict: whoever
//! evades it executes the real command, which reaches nothing. So whatever is not plain is left to
//! the kernel.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use super::context::{Answer, Context, Redirect};
use crate::access::StandIn;
use agent_sandbox_base::mediate::caller::Caller;
use agent_sandbox_base::mediate::resolve::{self, How, PathArgument};
use agent_sandbox_base::sys::instead::Traced;
use agent_sandbox_base::sys::notify::{self, Buffers};

/// Answers the call.
pub fn execute(context: &Context, caller: &Caller) -> Answer {
    let stand_in = context.config.stand_in.as_ref();
    match stand_in.and_then(|stand_in| redirect(stand_in, caller)) {
        Some(redirect) => Answer::Redirect(redirect),
        None => Answer::Kernel,
    }
}

fn redirect(stand_in: &StandIn, caller: &Caller) -> Option<Redirect> {
    let [at, arguments, ..] = caller.call.arguments;
    let path = caller.path(at).ok()?;
    if !stand_in.is_name(name(&path)) {
        return None;
    }
    let given = PathArgument {
        directory: libc::AT_FDCWD,
        path: &path,
    };
    let how = How {
        follow: true,
        empty: false,
    };
    let object = resolve::object(caller, given, how).ok()?;
    if !stand_in.stands_for(object.id) {
        return None;
    }
    // It is told by the first of its arguments whose place it takes.
    let first = caller.read(arguments, size_of::<u64>()).ok()?;
    let first = caller
        .path(u64::from_ne_bytes(first.try_into().ok()?))
        .ok()?;
    if name(&first) != name(&path) {
        return None;
    }
    let program = Path::new(OsStr::from_bytes(&stand_in.program));
    // An `O_PATH` descriptor cannot be put into another process. Nothing inside can change the session's own directory, where
    // it may be a link.
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    Some(Redirect {
        program: open(program, flags, Mode::empty()).ok()?,
        empty: at.checked_add(path.len().try_into().ok()?)?,
    })
}

/// The last part of a path.
fn name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

impl Redirect {
    /// Has the caller execute the program with the arguments and the environment that it gave. To be
    /// called by a thread of its own, which ends then: what it still traces is let go by that.
    ///
    /// # Errors
    /// The call was not answered, and waits.
    pub fn carry_out(
        self,
        buffers: &mut Buffers,
        listener: impl AsFd,
        caller: &Caller,
    ) -> io::Result<()> {
        let call = &caller.call;
        let traced = Traced::begin(call.thread)?;
        // Its number was not another's.
        if !caller.is_waiting() {
            return Ok(());
        }
        let number = notify::put(&listener, call.id, self.program.as_fd(), true)?;
        traced.stop()?;
        buffers.refuse(&listener, call.id, libc::EACCES)?;
        let [path, arguments, environment, ..] = call.arguments;
        let flags = libc::AT_EMPTY_PATH;
        // Whoever is killed, or comes from elsewhere, has its answer.
        let _ = traced.call(
            libc::SYS_execve,
            path,
            libc::SYS_execveat,
            [
                u64::from(number.unsigned_abs()),
                self.empty,
                arguments,
                environment,
                u64::from(flags.unsigned_abs()),
                0,
            ],
        );
        Ok(())
    }
}
