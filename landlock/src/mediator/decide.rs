//! Who carries out a call at a real path: the access map applied to what is there now.

use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::{SFlag, fstat};

use super::context::Context;
use crate::access::{MapEntry, MediatorConfig, Permission};
use agent_sandbox_base::mediate::resolve::{At, Entry, Object, deciding, id};
use agent_sandbox_base::sys::paths;

/// From this ABI on Landlock judges who may shorten a file (`LANDLOCK_ACCESS_FS_TRUNCATE`,
/// `landlock(7)`).
const TRUNCATE_ABI: i32 = 3;

/// Who carries out a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The kernel, since Landlock refuses whatever must not be: a rule gives what may be done, or
    /// nothing may be changed and no rule gives it.
    Kernel,
    /// The mediator.
    Mediator,
    /// The mediator, if the jail made it.
    Maker,
}

/// Who carries out a change at a real path.
#[must_use]
pub fn who(config: &MediatorConfig, path: &Path) -> Who {
    let Some(mapped) = config.access_map.entry(path) else {
        return Who::Kernel;
    };
    match mapped.permission {
        Permission::None | Permission::Read => Who::Kernel,
        Permission::Own => Who::Maker,
        Permission::Write if mapped.direct && still_ruled(config, mapped) => Who::Kernel,
        Permission::Write => Who::Mediator,
    }
}

/// Who carries out a change of a directory's entry: Landlock asks what rules give in the directory.
///
/// # Errors
/// `EACCES` if the directory is a shared one that the jail did not make.
pub fn who_changes(context: &Context, entry: &Entry) -> Result<Who, Errno> {
    let who = who(&context.config, &entry.parent_path);
    if who == Who::Maker {
        let mapped = context.config.access_map.entry(&entry.parent_path);
        let is_root = mapped.is_some_and(|mapped| mapped.path() == entry.parent_path);
        if !is_root && !context.has_made(entry.parent_id) {
            return Err(Errno::EACCES);
        }
    }
    Ok(who)
}

/// Whether the object at an entry's path is the one that the rule is about. Rules hold for objects:
/// what was put there since, from inside by the mediator or by anybody outside, has none.
fn still_ruled(config: &MediatorConfig, mapped: &MapEntry) -> bool {
    let Some(planned) = config.planned(mapped.path()) else {
        return true;
    };
    let there = paths::pin_plain(mapped.path()).and_then(fstat);
    there.is_ok_and(|there| id(&there) == planned)
}

/// Whether Landlock judges calls that shorten files.
#[must_use]
pub fn judges_truncation(config: &MediatorConfig) -> bool {
    config.abi >= TRUNCATE_ABI
}

/// How a change is refused that Landlock would not refuse: `EROFS` where the file can be read, as
/// on a file system that is read-only, for that is what programs expect of a chmod or a utime that
/// cannot be; else `EACCES`.
#[must_use]
pub fn refusal(permission: Permission) -> Errno {
    if permission == Permission::Read {
        Errno::EROFS
    } else {
        Errno::EACCES
    }
}

/// Lets pass what the jail may change about an object, whatever Landlock thinks of it.
///
/// # Errors
/// See [`refusal`]; `EACCES` also for device nodes, which belong to the host wherever they are.
pub fn may_change(context: &Context, object: &Object) -> Result<(), Errno> {
    if matches!(object.kind, SFlag::S_IFCHR | SFlag::S_IFBLK) {
        return Err(Errno::EACCES);
    }
    let permission = deciding(&object.at).map_or(Permission::None, |path| {
        context.config.access_map.permission(path)
    });
    match permission {
        Permission::Write => Ok(()),
        Permission::Own if context.has_made(object.id) => Ok(()),
        permission => Err(refusal(permission)),
    }
}

/// Whether an object has no name, or no directory that it could be in.
#[must_use]
pub fn is_nameless(object: &Object) -> bool {
    match &object.at {
        At::Path(_) => false,
        At::Unlinked(_) => true,
        At::Outside(text) => {
            let text = text.to_string_lossy();
            text.starts_with("pipe:[") || text.starts_with("socket:[")
        }
    }
}
