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

use super::context::{Answer, Context, locked};
use super::decide::{self, Who};
use crate::access::Permission;
use agent_sandbox_base::mediate::caller::Caller;
use agent_sandbox_base::mediate::resolve::{
    self, At, Entry, How, Object, PathArgument, Process, Resolved, Stop, deciding, id,
};
use agent_sandbox_base::sys::paths;

/// How often the lookup of a file is repeated that comes and goes meanwhile.
const MOST_TRIES: usize = 64;

/// Flags that the mediator passes on to the kernel as they are. It handles the others itself, or `open(2)`
/// ignores them.
const PASSED_ON: OFlag = OFlag::O_TRUNC
    .union(OFlag::O_APPEND)
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_SYNC)
    .union(OFlag::O_DSYNC)
    .union(OFlag::O_DIRECT)
    .union(OFlag::O_NOATIME)
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_TMPFILE);

/// What the mediator adds, so that its terminal does not change and its children do not get the file.
const ADDED: OFlag = OFlag::O_NOCTTY.union(OFlag::O_CLOEXEC);

/// What a call asks for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Which file.
    pub given: PathArgument<'a>,
    /// How.
    pub flags: OFlag,
    /// The mode of a new file, before the umask.
    pub mode: u32,
}

impl Request<'_> {
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
            let request = Request {
                given: PathArgument {
                    directory,
                    path: &path,
                },
                // open(2) ignores what it does not know.
                flags: OFlag::from_bits_truncate(flags),
                mode: mode.cast_unsigned(),
            };
            carry_out(context, caller, &request)
        }
        Err(error) => Answer::failed(&error),
    }
}

/// Opens what a process asks for, or leaves it to the kernel.
pub fn carry_out(context: &Context, process: &dyn Process, request: &Request<'_>) -> Answer {
    if request.has(OFlag::O_PATH) {
        // Such a descriptor gives nothing; what is done with it is judged then.
        return Answer::Kernel;
    }
    let creates = request.has(OFlag::O_CREAT);
    let makes = creates || request.is_unnamed();
    if request.access() == paths::ACCESS_MODE
        || creates && request.has(OFlag::O_DIRECTORY)
        || request.is_unnamed() && request.access() == OFlag::O_RDONLY
    {
        return Errno::EINVAL.into();
    }
    if makes && request.mode & SET_ID != 0 {
        return Errno::EPERM.into();
    }
    let how = How {
        follow: !(request.has(OFlag::O_NOFOLLOW) || creates && request.has(OFlag::O_EXCL)),
        empty: false,
    };
    for _ in 0..MOST_TRIES {
        let changing = makes.then(|| locked(&context.changing));
        let found = match resolve::find(process, request.given, how) {
            Ok(found) => found,
            Err(Stop::Errno(errno)) => return errno.into(),
            // Through a link of a `/proc` leads no path by which it could be decided.
            Err(Stop::Proc | Stop::Special(_)) if makes || request.writes() => {
                return Errno::EACCES.into();
            }
            Err(Stop::Proc | Stop::Special(_)) => return left(context, request, Permission::None),
        };
        match found {
            Resolved::Object(object) => {
                if !request.is_unnamed() {
                    // It may wait for the other end of a fifo.
                    drop(changing);
                }
                return existing(context, process, request, &object);
            }
            Resolved::Missing(_) if !creates => return Errno::ENOENT.into(),
            Resolved::Missing(entry) => match create(context, process, request, &entry) {
                Err(Errno::EEXIST) if !request.has(OFlag::O_EXCL) => {}
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
fn left(context: &Context, request: &Request<'_>, permission: Permission) -> Answer {
    let shortens = request.has(OFlag::O_TRUNC) && request.access() == OFlag::O_RDONLY;
    if shortens && !decide::judges_truncation(&context.config) {
        return decide::refusal(permission).into();
    }
    Answer::Kernel
}

/// Opens what is there.
fn existing(
    context: &Context,
    process: &dyn Process,
    request: &Request<'_>,
    object: &Object,
) -> Answer {
    let Some(path) = deciding(&object.at) else {
        return left(context, request, Permission::None);
    };
    let mapped = context.config.access_map.entry(path);
    let permission = mapped.map_or(Permission::None, |mapped| mapped.permission);
    let kernels = left(context, request, permission);
    let is_kernels = matches!(kernels, Answer::Kernel);
    let changes = request.writes() || request.is_unnamed();
    if matches!(permission, Permission::None | Permission::Read) && changes {
        // Landlock's rules are about objects: it would let be changed what somebody outside has moved
        // there from where it may be. A stream leads where it leads.
        return match object.by_descriptor {
            true => kernels,
            false => Errno::EACCES.into(),
        };
    }
    match (mapped, permission) {
        (None, _) => return kernels,
        (Some(mapped), Permission::None | Permission::Read) => {
            // A rule that lists it would list what is hidden in it.
            let is_root = object.is_directory() && mapped.path() == path;
            let is_open = match permission {
                Permission::None => is_root && mapped.listed,
                _ => !is_root || mapped.listed,
            };
            if mapped.direct || !is_open {
                return kernels;
            }
        }
        (Some(mapped), Permission::Own) => {
            if request.has(OFlag::O_CREAT | OFlag::O_EXCL) {
                return Errno::EEXIST.into();
            }
            let is_root = mapped.path() == path;
            if is_root && !request.is_unnamed() {
                return kernels;
            }
            if !is_root && !context.has_made(object.id) {
                return Errno::EACCES.into();
            }
        }
        (Some(_), Permission::Write) => {
            if is_kernels && decide::who(&context.config, path) == Who::Kernel {
                return kernels;
            }
        }
    }
    // Landlock asks when a directory is opened, and the mediator's are opened outside of the command's domain.
    let lists = object.is_directory() && !request.is_unnamed();
    let listed = context.config.listed.as_deref();
    if lists && listed.is_some_and(|all| all.iter().all(|place| !path.starts_with(place))) {
        return Errno::EACCES.into();
    }
    match reopened(context, process, request, object, permission) {
        Ok(file) => request.give(file),
        Err(errno) => errno.into(),
    }
}

fn reopened(
    context: &Context,
    process: &dyn Process,
    request: &Request<'_>,
    object: &Object,
    permission: Permission,
) -> Result<std::os::fd::OwnedFd, Errno> {
    if request.has(OFlag::O_CREAT | OFlag::O_EXCL) {
        return Err(Errno::EEXIST);
    }
    match object.kind {
        SFlag::S_IFLNK if request.has(OFlag::O_DIRECTORY) => return Err(Errno::ENOTDIR),
        SFlag::S_IFLNK => return Err(Errno::ELOOP),
        SFlag::S_IFDIR if request.has(OFlag::O_CREAT) => return Err(Errno::EISDIR),
        // The host's, wherever they are.
        SFlag::S_IFCHR | SFlag::S_IFBLK => return Err(Errno::EACCES),
        _ => {}
    }
    if !request.is_unnamed() {
        // A signal is how a thread learns that nobody waits for the other end of a fifo any more.
        loop {
            match paths::open_again(&object.fd, request.passed_on(), Mode::empty()) {
                Err(Errno::EINTR) if process.waits() => {}
                done => return done,
            }
        }
    }
    if object.is_directory() && matches!(object.at, At::Path(_)) {
        let mode = new_mode(process, &object.fd, request.mode)?;
        // Without a name it could be given one, unless the caller rules that out.
        let flags = request.passed_on() | (request.flags & OFlag::O_EXCL);
        let file = paths::open_again(&object.fd, flags, mode)?;
        remember(context, permission, &file)?;
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
    request: &Request<'_>,
    entry: &Entry,
) -> Result<Answer, Errno> {
    let config = &context.config;
    let path = entry.path();
    let permission = config.access_map.permission(&path);
    let kernels = left(context, request, permission);
    let who = decide::who_changes(context, entry)?;
    let kernel_must_not = !matches!(kernels, Answer::Kernel);
    if !matches!(permission, Permission::Own | Permission::Write) {
        return Err(Errno::EACCES);
    }
    if who == Who::Kernel && !kernel_must_not {
        return Ok(kernels);
    }
    if entry.slash {
        return Err(Errno::EISDIR);
    }
    if config.access_map.permission(&entry.parent_path) != permission {
        // A shared directory whose parent is another.
        return Err(decide::refusal(Permission::None));
    }
    if config.access_map.is_pinned(&path) {
        return Err(Errno::EBUSY);
    }
    let flags = request.passed_on() | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
    let mode = new_mode(process, &entry.parent, request.mode)?;
    let file = openat(&entry.parent, entry.name.as_os_str(), flags, mode)?;
    remember(context, permission, &file)?;
    Ok(request.give(file))
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
        process.umask().map_err(|error| resolve::errno(&error))?
    };
    Ok(Mode::from_bits_truncate(mode & PLAIN_MODE & !umask))
}

/// Remembers what the jail made in a shared directory.
fn remember(
    context: &Context,
    permission: Permission,
    file: impl std::os::fd::AsFd,
) -> Result<(), Errno> {
    if permission == Permission::Own {
        locked(&context.made).insert(id(&fstat(file)?));
    }
    Ok(())
}
