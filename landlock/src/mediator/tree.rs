//! `mkdir(2), rename(2), link(2), unlink(2), truncate(2)` and their kin.
//!
//! Calls that change the entries of directories are decided and carried out under [`Context::changing`],
//! so that a path stays what it was at the decision: where the mediator carries calls out, nobody else
//! inside can rename anything. A call links or shortens the object that was decided on, by its
//! descriptor. It makes, renames or removes a name in a directory that is held. No closed object ever has
//! that name, for neither a closed path nor anything above it can be renamed.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::stat::{FileStat, SFlag, fstatat, mkdirat, mknodat};
use nix::unistd::{UnlinkatFlags, linkat, symlinkat, truncate, unlinkat};

use super::context::{Answer, Context, locked};
use super::decide::{self, Who};
use super::open::{PLAIN_MODE, SET_ID, new_mode};
use crate::access::Permission;
use agent_sandbox_base::mediate::arguments::{Argument, paths_of};
use agent_sandbox_base::mediate::caller::Caller;
use agent_sandbox_base::mediate::git_config::replace::replace;
use agent_sandbox_base::mediate::resolve::{
    self, Entry, FOLLOW, How, Object, PathArgument, Process, Special, Stop, deciding, id, kind,
};
use agent_sandbox_base::sys::paths;

/// What a call asks for.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// A new directory with this mode, before the umask.
    Directory(PathArgument<'a>, u32),
    /// A new file, fifo or socket: the mode, with the kind, before the umask.
    Node(PathArgument<'a>, u32),
    /// A new symbolic link with this text.
    Symlink(&'a [u8], PathArgument<'a>),
    /// Another name for what is there.
    Link(PathArgument<'a>, How, PathArgument<'a>),
    /// Another name in place of the first, or both exchanged (`RENAME_*`).
    Rename(PathArgument<'a>, PathArgument<'a>, u32),
    /// The end of a directory.
    RemoveDirectory(PathArgument<'a>),
    /// The end of a name of anything else.
    Remove(PathArgument<'a>),
    /// Another length, in bytes.
    Truncate(PathArgument<'a>, i64),
}

/// Answers the call.
pub fn change(context: &Context, caller: &Caller) -> Answer {
    // What the call has for paths is read once, before anything is decided.
    let mut texts = [Vec::new(), Vec::new()];
    let (first, second) = paths_of(caller);
    for (text, at) in texts.iter_mut().zip([first, second]) {
        let Some((_, argument)) = at else { continue };
        match caller.path(caller.call.arguments[argument]) {
            Ok(path) => *text = path,
            Err(error) => return Answer::failed(&error),
        }
    }
    let given = |at: Argument, text| PathArgument {
        directory: at.map_or(libc::AT_FDCWD, |(directory, _)| directory),
        path: text,
    };
    let [one, other] = &texts;
    match asked(caller, given(first, one), given(second, other)) {
        Ok(change) => carry_out(context, caller, change),
        Err(errno) => errno.into(),
    }
}

/// What the call is, by its number.
fn asked<'a>(
    caller: &Caller,
    one: PathArgument<'a>,
    other: PathArgument<'a>,
) -> Result<Change<'a>, Errno> {
    let mode = |argument| caller.int(argument).cast_unsigned();
    Ok(match i64::from(caller.call.number) {
        libc::SYS_mkdirat => Change::Directory(one, mode(2)),
        libc::SYS_mknodat => Change::Node(one, mode(2)),
        libc::SYS_symlinkat => Change::Symlink(one.path, other),
        libc::SYS_linkat => Change::Link(one, link_how(caller.int(4))?, other),
        libc::SYS_renameat => Change::Rename(one, other, 0),
        libc::SYS_renameat2 => Change::Rename(one, other, rename_flags(mode(4))?),
        libc::SYS_unlinkat => match caller.int(2) {
            0 => Change::Remove(one),
            libc::AT_REMOVEDIR => Change::RemoveDirectory(one),
            _ => return Err(Errno::EINVAL),
        },
        libc::SYS_truncate => Change::Truncate(one, caller.call.arguments[1].cast_signed()),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mkdir => Change::Directory(one, mode(1)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mknod => Change::Node(one, mode(1)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_symlink => Change::Symlink(one.path, other),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_link => Change::Link(one, How::default(), other),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename => Change::Rename(one, other, 0),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rmdir => Change::RemoveDirectory(one),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_unlink => Change::Remove(one),
        _ => return Err(Errno::ENOSYS),
    })
}

/// The flags of `linkat(2)`.
fn link_how(flags: i32) -> Result<How, Errno> {
    let known = libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH;
    if flags & !known != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(How {
        follow: flags & libc::AT_SYMLINK_FOLLOW != 0,
        empty: flags & libc::AT_EMPTY_PATH != 0,
    })
}

/// The flags of `renameat2(2)`. A whiteout is a device node.
fn rename_flags(flags: u32) -> Result<u32, Errno> {
    let known = libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE;
    if flags & !known == 0 {
        Ok(flags)
    } else {
        Err(Errno::EINVAL)
    }
}

/// Why a change is not carried out.
enum Not {
    /// The kernel judges it.
    Kernel,
    /// It fails.
    Errno(Errno),
}

impl From<Errno> for Not {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// Changes what a process asks for, or leaves it to the kernel.
pub fn carry_out(context: &Context, process: &dyn Process, change: Change<'_>) -> Answer {
    let done = if let Change::Truncate(given, length) = change {
        shorten(context, process, given, length)
    } else {
        let _changing = locked(&context.changing);
        match change {
            Change::Directory(given, mode) => make_directory(context, process, given, mode),
            Change::Node(given, mode) => make_node(context, process, given, mode),
            Change::Symlink(text, given) => make_symlink(context, process, text, given),
            Change::Link(from, how, to) => link(context, process, from, how, to),
            Change::Rename(from, to, flags) => rename(context, process, from, to, flags),
            Change::RemoveDirectory(given) => remove(context, process, given, true),
            Change::Remove(given) => remove(context, process, given, false),
            Change::Truncate(..) => Err(Errno::ENOSYS.into()),
        }
    };
    match done {
        Ok(()) => Answer::Done(0),
        Err(Not::Kernel) => Answer::Kernel,
        Err(Not::Errno(errno)) => errno.into(),
    }
}

/// Finds an entry. What a link of a `/proc` leads to has no path by which it could be decided.
fn entry(
    process: &dyn Process,
    given: PathArgument<'_>,
    special: impl Fn(Special) -> Errno,
) -> Result<Entry, Not> {
    resolve::entry(process, given).map_err(|stop| match stop {
        Stop::Proc => Not::Errno(Errno::EACCES),
        Stop::Special(what) => Not::Errno(special(what)),
        Stop::Errno(errno) => Not::Errno(errno),
    })
}

/// What stands under a name now.
fn status(entry: &Entry) -> Result<FileStat, Errno> {
    fstatat(
        &entry.parent,
        entry.name.as_os_str(),
        AtFlags::AT_SYMLINK_NOFOLLOW,
    )
}

/// A place for something new, and whether it is a shared directory.
fn new_entry(
    context: &Context,
    process: &dyn Process,
    given: PathArgument<'_>,
) -> Result<(Entry, Who), Not> {
    let entry = entry(process, given, |_| Errno::EEXIST)?;
    let who = decide::who_changes(context, &entry)?;
    let permission = context.config.access_map.permission(&entry.path());
    match who {
        Who::Mediator if permission == Permission::Write => Ok((entry, who)),
        Who::Maker if permission == Permission::Own => Ok((entry, who)),
        Who::Kernel if permission == Permission::Write => Err(Not::Kernel),
        _ => Err(closed_to_changes(&entry).into()),
    }
}

/// The answer where nothing may be changed. Landlock's rules are about objects: it would let be changed
/// what somebody outside has moved there from where it may be. What exists or is missing is said
/// first.
fn closed_to_changes(entry: &Entry) -> Errno {
    match status(entry) {
        Ok(_) => Errno::EEXIST,
        Err(_) => Errno::EACCES,
    }
}

/// Refuses what would take the place of something closed, or of a directory that something closed
/// is, or will be, in.
fn unpinned(context: &Context, entry: &Entry) -> Result<(), Errno> {
    if context.config.access_map.is_pinned(&entry.path()) {
        return Err(Errno::EBUSY);
    }
    Ok(())
}

/// The same for what is new. What exists is said first.
fn unpinned_new(context: &Context, entry: &Entry) -> Result<(), Errno> {
    unpinned(context, entry).map_err(|errno| match status(entry) {
        Ok(_) => Errno::EEXIST,
        Err(_) => errno,
    })
}

/// In a shared directory the jail makes files, by `open(2)`, and nothing else: of what other calls
/// make one learns by its name alone which it is, and by then somebody outside may have put another
/// there.
fn files_alone(who: Who) -> Result<(), Errno> {
    if who == Who::Maker {
        return Err(Errno::EACCES);
    }
    Ok(())
}

/// Forgets what has lost its last name: the file system may use its inode again.
fn forget(context: &Context, was: &FileStat) {
    if was.st_nlink <= 1 || kind(was) == SFlag::S_IFDIR {
        locked(&context.made).remove(&id(was));
    }
}

fn make_directory(
    context: &Context,
    process: &dyn Process,
    given: PathArgument<'_>,
    mode: u32,
) -> Result<(), Not> {
    // A directory may be made where one is to be that something closed will be in.
    let (entry, who) = new_entry(context, process, given)?;
    files_alone(who)?;
    let mode = new_mode(process, &entry.parent, mode)?;
    Ok(mkdirat(&entry.parent, entry.slashed().as_os_str(), mode)?)
}

fn make_node(
    context: &Context,
    process: &dyn Process,
    given: PathArgument<'_>,
    mode: u32,
) -> Result<(), Not> {
    let wanted = match mode & SFlag::S_IFMT.bits() {
        0 => SFlag::S_IFREG,
        bits => SFlag::from_bits_truncate(bits),
    };
    if !matches!(wanted, SFlag::S_IFREG | SFlag::S_IFIFO | SFlag::S_IFSOCK) || mode & SET_ID != 0 {
        return Err(Errno::EPERM.into());
    }
    let (entry, who) = new_entry(context, process, given)?;
    files_alone(who)?;
    unpinned_new(context, &entry)?;
    let mode = new_mode(process, &entry.parent, mode & PLAIN_MODE)?;
    Ok(mknodat(
        &entry.parent,
        entry.slashed().as_os_str(),
        wanted,
        mode,
        0,
    )?)
}

fn make_symlink(
    context: &Context,
    process: &dyn Process,
    text: &[u8],
    given: PathArgument<'_>,
) -> Result<(), Not> {
    let (entry, who) = new_entry(context, process, given)?;
    files_alone(who)?;
    unpinned_new(context, &entry)?;
    let text = OsString::from_vec(text.to_vec());
    Ok(symlinkat(
        text.as_os_str(),
        &entry.parent,
        entry.slashed().as_os_str(),
    )?)
}

fn link(
    context: &Context,
    process: &dyn Process,
    from: PathArgument<'_>,
    how: How,
    to: PathArgument<'_>,
) -> Result<(), Not> {
    let object = resolve::object(process, from, how).map_err(|stop| match stop {
        Stop::Errno(errno) => Not::Errno(errno),
        Stop::Proc | Stop::Special(_) => Not::Errno(Errno::EACCES),
    })?;
    let entry = entry(process, to, |_| Errno::EEXIST)?;
    let permission = context.config.access_map.permission(&entry.path());
    match (
        from_where(context, &object)?,
        decide::who_changes(context, &entry)?,
    ) {
        (Source::Own, Who::Maker) if permission == Permission::Own => {
            unpinned_new(context, &entry)?
        }
        (Source::Own, _) | (_, Who::Maker) => return Err(Errno::EXDEV.into()),
        (Source::Closed, _) => return Err(Errno::EXDEV.into()),
        (Source::Kernels, Who::Kernel) if permission == Permission::Write => {
            return Err(Not::Kernel);
        }
        (Source::Kernels | Source::Mediators, Who::Mediator) if permission == Permission::Write => {
            unpinned_new(context, &entry)?;
        }
        // From a directory in which the mediator makes names to one where Landlock lets them be made.
        (Source::Mediators, Who::Kernel) if permission == Permission::Write => {}
        _ => return Err(closed_to_changes(&entry).into()),
    }
    let by = paths::by_descriptor(&object.fd);
    let to = entry.slashed();
    let flags = AtFlags::AT_SYMLINK_FOLLOW;
    Ok(linkat(
        AT_FDCWD,
        by.as_str(),
        &entry.parent,
        to.as_os_str(),
        flags,
    )?)
}

/// Whose a file is that gets another name.
enum Source {
    /// Landlock judges it, and gives all rights to it.
    Kernels,
    /// The mediator's.
    Mediators,
    /// The jail made it in a shared directory.
    Own,
    /// It may not be changed, so it gets no name by which it could be.
    Closed,
}

fn from_where(context: &Context, object: &Object) -> Result<Source, Errno> {
    let Some(path) = deciding(&object.at) else {
        return Ok(Source::Closed);
    };
    let config = &context.config;
    Ok(
        match (
            config.access_map.permission(path),
            decide::who(config, path),
        ) {
            (Permission::None | Permission::Read, _) => Source::Closed,
            (Permission::Own, _) if context.has_made(object.id) => Source::Own,
            (Permission::Own, _) => return Err(Errno::EACCES),
            (Permission::Write, Who::Kernel) => Source::Kernels,
            (Permission::Write, _) => Source::Mediators,
        },
    )
}

fn rename(
    context: &Context,
    process: &dyn Process,
    from: PathArgument<'_>,
    to: PathArgument<'_>,
    flags: u32,
) -> Result<(), Not> {
    let from = entry(process, from, |_| Errno::EBUSY)?;
    let to = entry(process, to, |_| Errno::EBUSY)?;
    let whose = [&from, &to].map(|entry| decide::who_changes(context, entry));
    let [whose_from, whose_to] = whose;
    let (whose_from, whose_to) = (whose_from?, whose_to?);
    let is_writable = |entry: &Entry| {
        let permission = context.config.access_map.permission(&entry.parent_path);
        matches!(permission, Permission::Write | Permission::Own)
    };
    let there = status(&from)?;
    if !is_writable(&from) || !is_writable(&to) {
        return Err(Errno::EACCES.into());
    }
    if let (Some(config), 0, false) = (&context.config.git_config, flags, from.slash || to.slash)
        && let (lock, name) = ((&from.parent, &*from.name), (&to.parent, &*to.name))
        && let Some(done) = replace(process, lock, name, config)
    {
        return Ok(done?);
    }
    if whose_from == Who::Kernel && whose_to == Who::Kernel {
        return Err(Not::Kernel);
    }
    let replaced = status(&to).ok();
    let is_own = [whose_from, whose_to].map(|who| who == Who::Maker);
    match is_own {
        [true, true] => {
            let foreign = |status: &FileStat| !context.has_made(id(status));
            // A name in the shared directory may be none of it: the place where tasks meet.
            let is_closed = |entry: &Entry| {
                context.config.access_map.permission(&entry.path()) != Permission::Own
            };
            if foreign(&there)
                || replaced.as_ref().is_some_and(foreign)
                || is_closed(&from)
                || is_closed(&to)
            {
                return Err(Errno::EACCES.into());
            }
        }
        [false, false] => {}
        _ => return Err(Errno::EXDEV.into()),
    }
    // Both, for they may be exchanged; also where Landlock would let it be.
    unpinned(context, &from)?;
    unpinned(context, &to)?;
    // In a shared directory others make files as well: one that came meanwhile stays.
    let flags = match is_own[1] && replaced.is_none() && flags == 0 {
        true => libc::RENAME_NOREPLACE,
        false => flags,
    };
    let (old, new) = (from.slashed(), to.slashed());
    paths::rename(
        &from.parent,
        old.as_os_str(),
        &to.parent,
        new.as_os_str(),
        flags,
    )?;
    if is_own[0] && flags & libc::RENAME_EXCHANGE == 0 {
        // Two names of one file are left as they are.
        if let Some(replaced) = replaced.filter(|replaced| id(replaced) != id(&there)) {
            forget(context, &replaced);
        }
    }
    Ok(())
}

fn remove(
    context: &Context,
    process: &dyn Process,
    given: PathArgument<'_>,
    directory: bool,
) -> Result<(), Not> {
    let entry = entry(process, given, |special| match (directory, special) {
        (false, _) => Errno::EISDIR,
        (true, Special::Root) => Errno::EBUSY,
        (true, Special::Dot) => Errno::EINVAL,
        (true, Special::DotDot) => Errno::ENOTEMPTY,
    })?;
    let who = decide::who_changes(context, &entry)?;
    let there = status(&entry)?;
    if who == Who::Kernel {
        let permission = context.config.access_map.permission(&entry.parent_path);
        return Err(match permission {
            Permission::Write => Not::Kernel,
            _ => Errno::EACCES.into(),
        });
    }
    if who == Who::Maker && !context.has_made(id(&there)) {
        return Err(Errno::EACCES.into());
    }
    unpinned(context, &entry)?;
    let flag = if directory {
        UnlinkatFlags::RemoveDir
    } else {
        UnlinkatFlags::NoRemoveDir
    };
    unlinkat(&entry.parent, entry.slashed().as_os_str(), flag)?;
    if who == Who::Maker {
        forget(context, &there);
    }
    Ok(())
}

fn shorten(
    context: &Context,
    process: &dyn Process,
    given: PathArgument<'_>,
    length: i64,
) -> Result<(), Not> {
    let judged = decide::judges_truncation(&context.config);
    let object = resolve::object(process, given, FOLLOW).map_err(|stop| match stop {
        Stop::Errno(errno) => Not::Errno(errno),
        Stop::Proc | Stop::Special(_) => Not::Errno(Errno::EACCES),
    })?;
    let is_kernels =
        deciding(&object.at).is_none_or(|path| decide::who(&context.config, path) == Who::Kernel);
    if deciding(&object.at).is_some() {
        decide::may_change(context, &object)?;
    }
    if judged && is_kernels {
        return Err(Not::Kernel);
    }
    decide::may_change(context, &object)?;
    Ok(truncate(paths::by_descriptor(&object.fd).as_str(), length)?)
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::Mode;

    use super::*;

    #[test]
    fn flags_that_are_not_known_are_refused() {
        assert_eq!(rename_flags(0).ok(), Some(0));
        assert_eq!(rename_flags(1).ok(), Some(libc::RENAME_NOREPLACE));
        assert_eq!(rename_flags(2).ok(), Some(libc::RENAME_EXCHANGE));
        for flags in [4, 5, 8, u32::MAX] {
            assert_eq!(rename_flags(flags).err(), Some(Errno::EINVAL), "{flags}");
        }
        assert_eq!(link_how(0).ok(), Some(How::default()));
        assert_eq!(link_how(0x400).ok(), Some(FOLLOW));
        for flags in [0x100, 0x200, i32::MIN] {
            assert_eq!(link_how(flags).err(), Some(Errno::EINVAL), "{flags}");
        }
    }

    #[test]
    fn modes_are_those_of_the_kernel() {
        assert_eq!(Mode::from_bits_truncate(PLAIN_MODE).bits(), 0o1777);
        assert_eq!(SET_ID & PLAIN_MODE, 0);
    }
}
