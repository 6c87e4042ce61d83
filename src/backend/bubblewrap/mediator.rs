//! The mediator beside a jail of bubblewrap's: it carries out the calls with which people work in
//! directories of a group.
//!
//! An unprivileged user namespace maps one user and one group. So the kernel refuses the jail the user's
//! other groups, and access control lists that name them; and a filter that sees numbers cannot tell the
//! set-group-ID bit of a directory, which hands its group down, from that of a program. These calls are
//! rare, and handed over ([`super::mediated`]) to this process: it is outside of the namespace, with
//! the user's rights and no more.
//!
//! It acts on an object that it has resolved in the caller's own root and holds open. The mounts are
//! the jail's, so what is read-only stays so, and what is hidden cannot be found.
//!
//! A mode with the set-group-ID bit is never left to the kernel: the filter stands in for the table
//! of refused calls there, and between a look and the call the path may lead elsewhere. All other calls here the
//! kernel would judge by itself without a mediator, by the caller's own rights. So where there is nothing
//! to add it goes on ([`Answer::Kernel`]), and a race wins what the caller has anyway.

mod acl;
mod rename;
mod subject;

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::MsgFlags;
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, fstat};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Gid, Pid, Uid, fchownat, getgid, getpid, getuid};

use crate::mediate::attributes::{self, Change, Subject};
use crate::mediate::caller::Caller;
use crate::mediate::detach::{away_from_streams, detach};
use crate::mediate::resolve;
use crate::plan::model::git::GitConfig;
use crate::sys::notify::{self, Buffers, Call, NATIVE_ARCH};
use crate::sys::process::{Side, exit_now, fork, ignore_all};
use crate::sys::{passing, paths, privileges};

/// What a mode may have here: all but the set-user-ID bit.
const GIVEN: u32 = 0o3777;
/// `S_ISUID` (inode(7)).
const SET_USER_ID: u32 = 0o4000;
/// The group that programs inside see in the place of one that the jail's user namespace lacks, unless
/// somebody set `kernel.overflowgid` (`proc_sys_kernel(5)`).
const OVERFLOW: u32 = 65534;

/// What the mediator keeps to, besides the jail's mounts and the user's rights.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// The only places below which anything may be changed, as paths inside; `None`: mounts alone
    /// decide.
    pub writable: Option<Vec<PathBuf>>,
    /// The configuration of git that is written here, if there is one.
    pub git_config: Option<GitConfig>,
}

/// A mediator that begins with the first call, for most sessions make none.
#[derive(Debug)]
pub struct Standby {
    state: State,
    starter: Pid,
}

#[derive(Debug)]
enum State {
    Waiting(Source, Terms),
    Begun(Pid),
    Over,
}

/// From where calls come.
#[derive(Debug)]
enum Source {
    /// A filter's listener.
    Listener(OwnedFd),
    /// A socket on which another process of ours passes them on, each with its listener.
    Relay(OwnedFd),
}

impl Source {
    fn fd(&self) -> &OwnedFd {
        match self {
            Self::Listener(fd) | Self::Relay(fd) => fd,
        }
    }
}

impl Standby {
    /// For the calls that come on this socket, as [`Call::bytes`] with their listeners.
    #[must_use]
    pub fn relayed(relay: OwnedFd, terms: Terms) -> Self {
        Self {
            state: State::Waiting(Source::Relay(relay), terms),
            starter: getpid(),
        }
    }

    /// Whether nobody is left whom it could answer; a mediator that has ended is reaped.
    pub fn is_over(&mut self) -> bool {
        if let State::Begun(pid) = self.state
            && !matches!(
                waitpid(pid, Some(WaitPidFlag::WNOHANG)),
                Ok(WaitStatus::StillAlive)
            )
        {
            self.state = State::Over;
        }
        matches!(self.state, State::Over)
    }

    /// For the calls of this listener.
    #[must_use]
    pub fn new(listener: OwnedFd, terms: Terms) -> Self {
        Self {
            state: State::Waiting(Source::Listener(listener), terms),
            starter: getpid(),
        }
    }

    /// What becomes readable when it is time to [`Self::begin`].
    #[must_use]
    pub fn waiting(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Waiting(source, _) => Some(source.fd().as_fd()),
            State::Begun(_) | State::Over => None,
        }
    }

    /// Starts the mediator, if a call waits. Where that fails the calls do (`ENOSYS`), for nobody has the
    /// listener any more. The caller has one thread.
    pub fn begin(&mut self) {
        let State::Waiting(source, terms) = std::mem::replace(&mut self.state, State::Over) else {
            return;
        };
        if !calls(source.fd()) {
            // No process is left under the filter, or nobody passes calls on.
            return;
        }
        let parent = getpid();
        match fork() {
            Ok(Side::Child) => live(source, terms, parent),
            Ok(Side::Parent(pid)) => self.state = State::Begun(pid),
            Err(_) => {}
        }
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        if let (State::Begun(pid), true) = (&self.state, getpid() == self.starter) {
            let _ = kill(*pid, Signal::SIGKILL);
            // It may wait for a file server, and then ends later, and is somebody else's to reap.
            let _ = waitpid(*pid, Some(WaitPidFlag::WNOHANG));
        }
    }
}

fn calls(listener: &OwnedFd) -> bool {
    let mut asked = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    let answered = poll(&mut asked, PollTimeout::ZERO);
    let [asked] = asked;
    let events = asked.revents().unwrap_or(PollFlags::empty());
    answered.is_ok() && events.contains(PollFlags::POLLIN)
}

/// The mediator's life, from the fork on.
fn live(source: Source, terms: Terms, parent: Pid) -> ! {
    let relayed = matches!(source, Source::Relay(_));
    let (Source::Listener(fd) | Source::Relay(fd)) = source;
    let prepared = away_from_streams(fd).and_then(|fd| {
        prepare(&fd, parent).ok()?;
        Some((fd, Buffers::new().ok()?))
    });
    match prepared {
        Some((relay, buffers)) if relayed => Mediator::new(terms).serve_relay(&relay, buffers),
        Some((listener, buffers)) => Mediator::new(terms).serve(listener, buffers),
        None => {}
    }
    exit_now(0)
}

fn prepare(source: &OwnedFd, parent: Pid) -> io::Result<()> {
    // Nobody of the same user may look into it or steer it.
    prctl::set_dumpable(false)?;
    // The keys of the terminal are for the command, and so is what Slurm sends.
    ignore_all();
    let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
    detach(&null, &[source.as_raw_fd(), null.as_raw_fd()])?;
    drop(null);
    privileges::no_new_privileges()?;
    privileges::drop_held()?;
    privileges::end_with_parent(Some(parent))?;
    Ok(())
}

/// What a call is answered with.
#[must_use]
enum Answer {
    /// It is done, and this is its result.
    Done(i64),
    /// It fails with this `errno`, which is positive.
    Fail(i32),
    /// The kernel judges it, with the caller's own rights. No verdict, see the module.
    Kernel,
}

impl From<Errno> for Answer {
    fn from(errno: Errno) -> Self {
        Self::Fail(errno as i32)
    }
}

struct Mediator {
    terms: Terms,
    uid: Uid,
    gid: Gid,
    /// Whether the user is in the group that stands for all that are not shown.
    in_overflow: bool,
}

impl Mediator {
    fn new(terms: Terms) -> Self {
        let overflow = Gid::from_raw(OVERFLOW);
        let groups = nix::unistd::getgroups().unwrap_or_default();
        Self {
            terms,
            uid: getuid(),
            gid: getgid(),
            in_overflow: getgid() == overflow || groups.contains(&overflow),
        }
    }

    /// Answers calls until no process is left under the filter, or this one is killed.
    fn serve(&self, listener: OwnedFd, mut buffers: Buffers) {
        // An older kernel takes a little longer.
        let _ = notify::wake_on_the_same_processor(&listener);
        let listener = Arc::new(listener);
        loop {
            match buffers.receive(&*listener) {
                Ok(call) => self.answer(&listener, &mut buffers, call),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::ENOENT) if !notify::is_deserted(&*listener) => {}
                    _ => return,
                },
            }
        }
    }

    /// The same for calls that are passed on, until nobody does.
    fn serve_relay(&self, relay: &OwnedFd, mut buffers: Buffers) {
        let mut bytes = [0; Call::BYTES];
        loop {
            match passing::receive(relay, &mut bytes, MsgFlags::empty()) {
                Ok((Call::BYTES, Some(listener))) => {
                    self.answer(&Arc::new(listener), &mut buffers, Call::from_bytes(&bytes));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => return,
            }
        }
    }

    /// Answers one. Who is gone meanwhile needs no answer.
    fn answer(&self, listener: &Arc<OwnedFd>, buffers: &mut Buffers, call: Call) {
        let caller = Caller::new(call, Arc::clone(listener));
        let answered = match self.decide(&caller) {
            Answer::Done(value) => buffers.complete(listener, call.id, value),
            Answer::Fail(errno) => buffers.refuse(listener, call.id, errno),
            Answer::Kernel => buffers.let_go_on(listener, call.id),
        };
        if answered.is_err() {
            let _ = buffers.refuse(listener, call.id, libc::ENOSYS);
        }
    }

    fn decide(&self, caller: &Caller) -> Answer {
        if caller.call.arch != NATIVE_ARCH || caller.call.thread <= 0 {
            return Answer::Fail(libc::ENOSYS);
        }
        if attributes::gives_mode(caller.call.number) {
            return match self.give_mode(caller) {
                Ok(()) => Answer::Done(0),
                Err(errno) => errno.into(),
            };
        }
        if rename::is(caller.call.number) {
            return self
                .rename(caller)
                .map_or(Answer::Kernel, |done| match done {
                    Ok(()) => Answer::Done(0),
                    Err(errno) => errno.into(),
                });
        }
        let done = match attributes::gets_attribute(caller) {
            Some(asked) => asked.ok().and_then(|asked| self.get_list(caller, &asked)),
            None => match attributes::read_call(caller) {
                Ok((whose, path, Change::Owner(user, group))) => {
                    self.give(caller, whose.subject(path.as_deref()), user, group)
                }
                Ok((whose, path, Change::SetAttribute(name, value, flags))) => {
                    let subject = whose.subject(path.as_deref());
                    self.set_list(caller, subject, (&name, &value, flags))
                }
                _ => None,
            },
        };
        match done {
            Some(Ok(value)) => Answer::Done(value),
            Some(Err(errno)) => errno.into(),
            // Nothing to add to what the caller may do by itself.
            None => Answer::Kernel,
        }
    }

    /// A mode with the set-group-ID bit: for directories alone.
    fn give_mode(&self, caller: &Caller) -> Result<(), Errno> {
        let (whose, path, change) = attributes::read_call(caller)?;
        let Change::Mode(mode) = change else {
            return Err(Errno::EPERM);
        };
        let object = subject::hold(caller, whose.subject(path.as_deref()))?;
        let is_directory = resolve::kind(&fstat(&object)?) == SFlag::S_IFDIR;
        if !is_directory || mode & SET_USER_ID != 0 {
            return Err(Errno::EPERM);
        }
        self.may_change(&object)?;
        fchmodat(
            AT_FDCWD,
            paths::by_descriptor(&object).as_str(),
            Mode::from_bits_truncate(mode & GIVEN),
            FchmodatFlags::FollowSymlink,
        )
    }

    /// An owner that the jail's user namespace has no number for; `None`: the kernel's.
    fn give(
        &self,
        caller: &Caller,
        subject: Subject<'_>,
        user: Option<Uid>,
        group: Option<Gid>,
    ) -> Option<Result<i64, Errno>> {
        let object = self.object(caller, subject)?;
        // A program has read the group from a file whose group is not shown, and it may be any. `rsync
        // -a` does so. Which is not known, so the file keeps its own.
        let unknown = group == Some(Gid::from_raw(OVERFLOW)) && !self.in_overflow;
        let (user, group) = match unknown {
            // Not nobody, for then anybody's file would do.
            true => (user.or(Some(self.uid)), None),
            false => (user, group),
        };
        let give = || {
            self.may_change(&object)?;
            fchownat(&object, "", user, group, AtFlags::AT_EMPTY_PATH).map_err(
                |errno| match errno {
                    // A file system of the jail's own (`/tmp`, a private home) has no number for the group: the kernel's
                    // answer to the jail itself, with which programs reckon.
                    Errno::EOVERFLOW => Errno::EINVAL,
                    errno => errno,
                },
            )
        };
        Some(give().map(|()| 0))
    }

    /// An access control list that names others than the jail's own; `None`: the kernel's.
    fn set_list(
        &self,
        caller: &Caller,
        subject: Subject<'_>,
        (name, value, flags): (&CStr, &[u8], i32),
    ) -> Option<Result<i64, Errno>> {
        if !acl::is_name(name) {
            return None;
        }
        let list = acl::List::parse(value)?;
        if !list.names_others(self.uid.as_raw(), self.gid.as_raw()) {
            return None;
        }
        let object = self.object(caller, subject)?;
        let set = || {
            self.may_change(&object)?;
            paths::set_attribute(&object, name, &list.bytes(), flags)
        };
        Some(set().map(|()| 0))
    }

    /// An access control list with the numbers that it has outside; `None`: the kernel's.
    fn get_list(&self, caller: &Caller, asked: &attributes::Get) -> Option<Result<i64, Errno>> {
        if !acl::is_name(&asked.name) {
            return None;
        }
        let subject = asked.whose.subject(asked.path.as_deref());
        let object = self.object(caller, subject)?;
        let get = || {
            let list = paths::attribute(&object, &asked.name)?;
            if asked.room != 0 && asked.room < list.len() as u64 {
                return Err(Errno::ERANGE);
            }
            if asked.room != 0 {
                let written = caller.write(asked.address, &list);
                written.map_err(|error| resolve::errno(&error))?;
            }
            i64::try_from(list.len()).map_err(|_| Errno::E2BIG)
        };
        Some(get())
    }

    /// What a call is about, of a caller that means by numbers what this process means by them.
    fn object(&self, caller: &Caller, subject: Subject<'_>) -> Option<OwnedFd> {
        let own = caller.has_mapped(self.uid.as_raw(), self.gid.as_raw());
        if !own.unwrap_or(false) {
            return None;
        }
        subject::hold(caller, subject).ok()
    }

    /// Whether the jail may write there at all. What the host mounted there since it began has the
    /// host's flags, and Landlock, which keeps the jail from writing there, does not judge these calls.
    fn may_change(&self, object: &OwnedFd) -> Result<(), Errno> {
        let Some(writable) = &self.terms.writable else {
            return Ok(());
        };
        let path = PathBuf::from(paths::path_of(object)?);
        match writable.iter().any(|above| path.starts_with(above)) {
            true => Ok(()),
            false => Err(Errno::EACCES),
        }
    }
}
