//! `inotify_add_watch(2)`, which Landlock does not judge: a watch tells what is done with a file, and
//! the names in a directory.

use nix::errno::Errno;

use super::context::{Answer, Context};
use super::modes::refused;
use crate::access::Permission;
use agent_sandbox_base::mediate::caller::Caller;
use agent_sandbox_base::mediate::resolve::{self, At, How, Object, PathArgument, Process};
use agent_sandbox_base::sys::paths;

/// What a mask may have (`inotify(7)`). Whether a link in the last part is followed is dealt with
/// here.
const KNOWN: u32 = libc::IN_ALL_EVENTS
    | libc::IN_ONLYDIR
    | libc::IN_DONT_FOLLOW
    | libc::IN_EXCL_UNLINK
    | libc::IN_MASK_ADD
    | libc::IN_MASK_CREATE
    | libc::IN_ONESHOT;

/// Answers the call.
pub fn watch(context: &Context, caller: &Caller) -> Answer {
    match caller.path(caller.call.arguments[1]) {
        Ok(path) => carry_out(
            context,
            caller,
            caller.int(0),
            &path,
            caller.int(2).cast_unsigned(),
        ),
        Err(error) => Answer::failed(&error),
    }
}

/// Watches for a process, on its `inotify(7)` descriptor `instance`.
pub fn carry_out(
    context: &Context,
    process: &dyn Process,
    instance: i32,
    path: &[u8],
    mask: u32,
) -> Answer {
    match watched(context, process, instance, path, mask) {
        Ok(number) => Answer::Done(number.into()),
        Err(errno) => errno.into(),
    }
}

fn watched(
    context: &Context,
    process: &dyn Process,
    instance: i32,
    path: &[u8],
    mask: u32,
) -> Result<i32, Errno> {
    let given = PathArgument {
        directory: libc::AT_FDCWD,
        path,
    };
    let how = How {
        follow: mask & libc::IN_DONT_FOLLOW == 0,
        empty: false,
    };
    let object = resolve::object(process, given, how).map_err(refused)?;
    if !may_watch(context, &object) {
        return Err(Errno::EACCES);
    }
    let instance = process
        .descriptor(instance)
        .map_err(|error| resolve::errno(&error))?;
    // A link that is watched itself is what the descriptor is for.
    paths::watch(instance, &object.fd, mask & KNOWN & !libc::IN_DONT_FOLLOW)
}

/// What may be read may be watched; a directory, if it may be listed.
fn may_watch(context: &Context, object: &Object) -> bool {
    let At::Path(path) = &object.at else {
        return false;
    };
    let Some(mapped) = context.config.access_map.entry(path) else {
        return false;
    };
    match mapped.permission {
        Permission::None => false,
        Permission::Own => context.has_made(object.id),
        Permission::Read if object.is_directory() && mapped.path() == path => {
            mapped.direct || mapped.listed
        }
        Permission::Read | Permission::Write => true,
    }
}
