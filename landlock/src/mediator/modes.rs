//! Carries out `chmod(2), chown(2), utimensat(2), setxattr(2)` and their kin: Landlock does not judge them. So none
//! of them is ever left to the kernel.
//!
//! What may be written may be changed so, and what has no name: a pipe, a socket, a memory file, a
//! file that was removed. Anything else is refused as [`decide::refusal`] says.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};
use nix::unistd::fchownat;

use super::context::{Answer, Context};
use super::decide;
use super::open::{PLAIN_MODE, SET_ID};
use agent_sandbox_base::mediate::attributes::{Change, Subject, read_call, usable};
use agent_sandbox_base::mediate::caller::Caller;
use agent_sandbox_base::mediate::resolve::{self, Object, Process, Stop};
use agent_sandbox_base::sys::paths;

/// `S_ISGID` (inode(7)).
const SET_GROUP_ID: u32 = 0o2000;

/// Answers the call.
pub fn change(context: &Context, caller: &Caller) -> Answer {
    match read_call(caller) {
        Ok((whose, path, change)) => {
            carry_out(context, caller, whose.subject(path.as_deref()), &change)
        }
        Err(errno) => errno.into(),
    }
}

/// Changes what a process asks for.
pub fn carry_out(
    context: &Context,
    process: &dyn Process,
    subject: Subject<'_>,
    change: &Change,
) -> Answer {
    match changed(context, process, subject, change) {
        Ok(()) => Answer::Done(0),
        Err(errno) => errno.into(),
    }
}

fn changed(
    context: &Context,
    process: &dyn Process,
    subject: Subject<'_>,
    change: &Change,
) -> Result<(), Errno> {
    let object = match subject {
        Subject::Descriptor(number) => Object::new(usable(process, number)?),
        Subject::Path(given, how) => resolve::object(process, given, how),
    };
    let object = object.map_err(refused)?;
    let is_directory = object.is_directory();
    if let Change::Mode(mode) = change
        && mode & SET_ID != 0
        // On a directory it hands the group down, and runs nothing.
        && !(is_directory && mode & SET_ID == SET_GROUP_ID)
    {
        return Err(Errno::EPERM);
    }
    if is_directory || !decide::is_nameless(&object) {
        decide::may_change(context, &object)?;
    }
    apply(&object, change)
}

/// Why nothing is changed. What is reached through a `/proc` is nobody's here.
pub(super) fn refused(stop: Stop) -> Errno {
    match stop {
        Stop::Errno(errno) => errno,
        Stop::Proc | Stop::Special(_) => Errno::EACCES,
    }
}

fn apply(object: &Object, change: &Change) -> Result<(), Errno> {
    let fd = object.fd.as_fd();
    match change {
        Change::Mode(mode) => fchmodat(
            AT_FDCWD,
            paths::by_descriptor(fd).as_str(),
            // Of the other bits there is none that may not be, see above.
            Mode::from_bits_truncate(mode & (PLAIN_MODE | SET_GROUP_ID)),
            FchmodatFlags::FollowSymlink,
        ),
        Change::Owner(user, group) => fchownat(fd, "", *user, *group, AtFlags::AT_EMPTY_PATH),
        Change::Times(times) => paths::set_times(fd, *times),
        Change::SetAttribute(name, value, flags) => paths::set_attribute(fd, name, value, *flags),
        Change::RemoveAttribute(name) => paths::remove_attribute(fd, name),
    }
}
