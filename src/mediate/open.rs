//! `open(2)` and its kin.
//!
//! What exists is opened again through the descriptor that holds it, so that what is opened is what was
//! decided on. What does not is made with `O_EXCL`: if something has come there meanwhile, it is
//! looked at again. A fifo opens when its other end does, on the thread that waits for it.
//!
//! `protected_regular` and `protected_fifos` (`proc_sys_fs(5)`) do not count for what is opened
//! here: they are about directories that everybody may write to, where the mediator opens nothing
//! but what this jail made.

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat};

use super::caller::Caller;
use super::context::{Answer, Context};
use super::place::ground::{self, Who};
use super::place::{
    self, At, Entry, Found, Given, How, Object, Process, Stop, deciding, id, locked,
};
use crate::backend::landlock::access::Permission;
use crate::sys::paths;

/// So often a file is looked for again that was there, was not, and was there.
const MOST_TRIES: usize = 64;

/// Flags of the file that is opened, which go on to the kernel as they are. Of the others each is
/// dealt with here, or is none that `open(2)` looks at.
const PASSED_ON: OFlag = OFlag::O_TRUNC
    .union(OFlag::O_APPEND)
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_SYNC)
    .union(OFlag::O_DSYNC)
    .union(OFlag::O_DIRECT)
    .union(OFlag::O_NOATIME)
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_TMPFILE);

/// What the mediator adds: its terminal shall not change, nor its children get the file.
const ADDED: OFlag = OFlag::O_NOCTTY.union(OFlag::O_CLOEXEC);

/// What a call asks for.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// Which file.
    pub given: Given<'a>,
    /// How.
    pub flags: OFlag,
    /// The mode of a new file, before the umask.
    pub mode: u32,
}

impl Wish<'_> {
    fn has(&self, flags: OFlag) -> bool {
        self.flags.contains(flags)
    }

    /// `O_TMPFILE` is two bits, one of which is `O_DIRECTORY`.
    fn is_unnamed(&self) -> bool {
        self.has(OFlag::O_TMPFILE)
    }

    fn access(&self) -> OFlag {
        self.flags & paths::ACCESS_MODE
    }

    /// Whether it changes what exists, or makes a file without a name.
    fn writes(&self) -> bool {
        self.access() != OFlag::O_RDONLY || self.flags.contains(OFlag::O_TRUNC)
    }

    /// The flags with which the mediator opens.
    fn passed_on(&self) -> OFlag {
        self.access() | (self.flags & PASSED_ON) | ADDED
    }

    fn give(&self, file: std::os::fd::OwnedFd) -> Answer {
        Answer::Give {
            file,
            close_on_exec: self.has(OFlag::O_CLOEXEC),
        }
    }
}

/// Answers the call.
pub fn open(context: &Context, caller: &Caller) -> Answer {
    let (directory, path, flags, mode) = match i64::from(caller.call.number) {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => (libc::AT_FDCWD, 0, caller.int(1), caller.int(2)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_creat => {
            let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_TRUNC;
            (libc::AT_FDCWD, 0, flags.bits(), caller.int(1))
        }
        libc::SYS_openat => (caller.int(0), 1, caller.int(2), caller.int(3)),
        _ => return Errno::ENOSYS.into(),
    };
    match caller.path(caller.call.arguments[path]) {
        Ok(path) => {
            let wish = Wish {
                given: Given {
                    directory,
                    path: &path,
                },
                // open(2) ignores what it does not know.
                flags: OFlag::from_bits_truncate(flags),
                mode: mode.cast_unsigned(),
            };
            carry_out(context, caller, &wish)
        }
        Err(error) => Answer::failed(&error),
    }
}

/// Opens what a process asks for, or leaves it to the kernel.
pub fn carry_out(context: &Context, process: &dyn Process, wish: &Wish<'_>) -> Answer {
    if wish.has(OFlag::O_PATH) {
        // Such a descriptor gives nothing; what is done with it is judged then.
        return Answer::Kernel;
    }
    let creates = wish.has(OFlag::O_CREAT);
    let makes = creates || wish.is_unnamed();
    if wish.access() == paths::ACCESS_MODE
        || creates && wish.has(OFlag::O_DIRECTORY)
        || wish.is_unnamed() && wish.access() == OFlag::O_RDONLY
    {
        return Errno::EINVAL.into();
    }
    if makes && wish.mode & SET_ID != 0 {
        return Errno::EPERM.into();
    }
    let how = How {
        follow: !(wish.has(OFlag::O_NOFOLLOW) || creates && wish.has(OFlag::O_EXCL)),
        empty: false,
    };
    for _ in 0..MOST_TRIES {
        let changing = makes.then(|| locked(&context.changing));
        let found = match place::find(process, wish.given, how) {
            Ok(found) => found,
            Err(Stop::Errno(errno)) => return errno.into(),
            // Through a link of a `/proc` leads no path by which it could be decided.
            Err(Stop::Proc | Stop::Special(_)) if makes || wish.writes() => {
                return Errno::EACCES.into();
            }
            Err(Stop::Proc | Stop::Special(_)) => return left(context, wish, Permission::None),
        };
        match found {
            Found::Object(object) => {
                if !wish.is_unnamed() {
                    // It may wait for the other end of a fifo.
                    drop(changing);
                }
                return existing(context, process, wish, &object);
            }
            Found::Missing(_) if !creates => return Errno::ENOENT.into(),
            Found::Missing(entry) => match create(context, process, wish, &entry) {
                Err(Errno::EEXIST) if !wish.has(OFlag::O_EXCL) => {}
                Err(errno) => return errno.into(),
                Ok(answer) => return answer,
            },
        }
    }
    Errno::EAGAIN.into()
}

/// Set-user-ID and set-group-ID.
pub(super) const SET_ID: u32 = 0o6000;
/// What else a new file's mode may have.
pub(super) const PLAIN_MODE: u32 = 0o1777;

/// Leaves it to the kernel, unless Landlock would let it shorten a file that it opens for reading.
fn left(context: &Context, wish: &Wish<'_>, reach: Permission) -> Answer {
    let shortens = wish.has(OFlag::O_TRUNC) && wish.access() == OFlag::O_RDONLY;
    if shortens && !ground::judges_truncation(&context.charge) {
        return ground::refusal(reach).into();
    }
    Answer::Kernel
}

/// Opens what is there.
fn existing(context: &Context, process: &dyn Process, wish: &Wish<'_>, object: &Object) -> Answer {
    let Some(path) = deciding(&object.at) else {
        return left(context, wish, Permission::None);
    };
    let region = context.charge.territory.region(path);
    let reach = region.map_or(Permission::None, |region| region.reach);
    let kernels = left(context, wish, reach);
    let is_kernels = matches!(kernels, Answer::Kernel);
    let changes = wish.writes() || wish.is_unnamed();
    if matches!(reach, Permission::None | Permission::Read) && changes {
        // Landlock's rules are about objects: it would let be changed what somebody outside has moved
        // there from where it may be. A stream leads where it leads.
        return match object.by_descriptor {
            true => kernels,
            false => Errno::EACCES.into(),
        };
    }
    match (region, reach) {
        (None, _) => return kernels,
        (Some(region), Permission::None | Permission::Read) => {
            // A rule that lists it would list what is hidden in it.
            let is_root = object.is_directory() && region.path() == path;
            let is_open = match reach {
                Permission::None => is_root && region.listed,
                _ => !is_root || region.listed,
            };
            if region.direct || !is_open {
                return kernels;
            }
        }
        (Some(region), Permission::Own) => {
            if wish.has(OFlag::O_CREAT | OFlag::O_EXCL) {
                return Errno::EEXIST.into();
            }
            let is_root = region.path() == path;
            if is_root && !wish.is_unnamed() {
                return kernels;
            }
            if !is_root && !context.has_made(object.id) {
                return Errno::EACCES.into();
            }
        }
        (Some(_), Permission::Write) => {
            if is_kernels && ground::who(&context.charge, path) == Who::Kernel {
                return kernels;
            }
        }
    }
    match reopened(context, process, wish, object, reach) {
        Ok(file) => wish.give(file),
        Err(errno) => errno.into(),
    }
}

fn reopened(
    context: &Context,
    process: &dyn Process,
    wish: &Wish<'_>,
    object: &Object,
    reach: Permission,
) -> Result<std::os::fd::OwnedFd, Errno> {
    if wish.has(OFlag::O_CREAT | OFlag::O_EXCL) {
        return Err(Errno::EEXIST);
    }
    match object.kind {
        SFlag::S_IFLNK if wish.has(OFlag::O_DIRECTORY) => return Err(Errno::ENOTDIR),
        SFlag::S_IFLNK => return Err(Errno::ELOOP),
        SFlag::S_IFDIR if wish.has(OFlag::O_CREAT) => return Err(Errno::EISDIR),
        // The host's, wherever they are.
        SFlag::S_IFCHR | SFlag::S_IFBLK => return Err(Errno::EACCES),
        _ => {}
    }
    if !wish.is_unnamed() {
        // A signal is how a thread learns that nobody waits for the other end of a fifo any more.
        loop {
            match paths::open_again(&object.fd, wish.passed_on(), Mode::empty()) {
                Err(Errno::EINTR) if process.waits() => {}
                done => return done,
            }
        }
    }
    if object.is_directory() && matches!(object.at, At::Path(_)) {
        let mode = new_mode(process, &object.fd, wish.mode)?;
        // Without a name it could be given one, unless the caller rules that out.
        let flags = wish.passed_on() | (wish.flags & OFlag::O_EXCL);
        let file = paths::open_again(&object.fd, flags, mode)?;
        remember(context, reach, &file)?;
        return Ok(file);
    }
    Err(if object.is_directory() {
        Errno::ENOENT
    } else {
        Errno::ENOTDIR
    })
}

/// Makes a file where none is. The caller holds [`Context::changing`].
fn create(
    context: &Context,
    process: &dyn Process,
    wish: &Wish<'_>,
    entry: &Entry,
) -> Result<Answer, Errno> {
    let charge = &context.charge;
    let path = entry.path();
    let reach = charge.territory.reach(&path);
    let kernels = left(context, wish, reach);
    let who = ground::who_changes(context, entry)?;
    let kernel_must_not = !matches!(kernels, Answer::Kernel);
    if !matches!(reach, Permission::Own | Permission::Write) {
        return Err(Errno::EACCES);
    }
    if who == Who::Kernel && !kernel_must_not {
        return Ok(kernels);
    }
    if entry.slash {
        return Err(Errno::EISDIR);
    }
    if charge.territory.reach(&entry.parent_path) != reach {
        // A region of its own whose directory is another.
        return Err(ground::refusal(Permission::None));
    }
    if charge.territory.is_pinned(&path) {
        return Err(Errno::EBUSY);
    }
    let flags = wish.passed_on() | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
    let mode = new_mode(process, &entry.parent, wish.mode)?;
    let file = openat(&entry.parent, entry.name.as_os_str(), flags, mode)?;
    remember(context, reach, &file)?;
    Ok(wish.give(file))
}

/// The mode of something new in a directory: without what the umask takes off, unless the directory
/// says itself what rights new files have.
pub(super) fn new_mode(
    process: &dyn Process,
    directory: impl std::os::fd::AsFd,
    mode: u32,
) -> Result<Mode, Errno> {
    let umask = if paths::has_default_acl(directory) {
        0
    } else {
        process.umask().map_err(|error| place::errno(&error))?
    };
    Ok(Mode::from_bits_truncate(mode & PLAIN_MODE & !umask))
}

/// Remembers what the jail made in a region of its own.
fn remember(
    context: &Context,
    reach: Permission,
    file: impl std::os::fd::AsFd,
) -> Result<(), Errno> {
    if reach == Permission::Own {
        locked(&context.made).insert(id(&fstat(file)?));
    }
    Ok(())
}
