//! What bubblewrap does not do, done in the jail by the launcher before anything runs there: mounts,
//! for which it is quicker (those of the host's files are [`taken`] before), and with an older bubblewrap sizes and modes of what that mounted and made, and the limit on
//! user namespaces.
//!
//! bubblewrap makes two user namespaces, the second below the first, and puts its payload into the
//! second. The first owns the mounts. Nobody inside has a right over it, but who made it has (the
//! effective uid that called `clone(2)`, in the user namespace above: user_namespaces(7)), and that is
//! the user. So a child of the launcher enters it and the mount namespace, by what
//! init lends, does what is left, and ends; init waits. Outside of the jail it has no right that
//! the user has not, and inside only what is mounted by bubblewrap can be changed: nothing else is a
//! file system of this user namespace.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::mount::{MsFlags, mount};
use nix::sys::socket::MsgFlags;
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, fstat, mkdirat};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nix::unistd::{Pid, fchdir, getuid, write};

use super::taken;
use crate::backend::bubblewrap::{Act, Bind, Left, Rest, Taken};
use crate::handoff::Request;
use crate::sys::namespaces::{self, Kind};
use crate::sys::{mounts, passing, paths, process};

/// How many user namespaces there may be below the jail's own, in the file of that name in
/// `/proc/sys/user` (namespaces(7)): the one that bubblewrap has made.
const MOST_NAMESPACES: (&str, &[u8]) = ("sys/user/max_user_namespaces", b"1");
/// The longest reason, in bytes; it holds one path.
const LONGEST_REASON: usize = 8 * 1024;
/// What the mounts of bubblewrap's are restricted to, and stay.
const RESTRICTED: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);

/// A process that does what is left in a jail, and what it is told by. It waits from before the jail is there.
#[derive(Debug)]
pub struct Finish {
    child: Pid,
    talk: Option<OwnedFd>,
}

impl Drop for Finish {
    fn drop(&mut self) {
        // It ends when nobody speaks to it any more.
        self.talk = None;
        let _ = process::wait(self.child);
    }
}

/// Why mounts cannot be taken from the host: bubblewrap makes them then.
#[derive(Debug, thiserror::Error)]
#[error("no mounts can be taken from the host: {0}")]
pub struct NotTaken(String);

/// Has what is left in the jail done, whose mount namespace was lent, and tells its init to go on.
///
/// # Errors
/// A sentence: what cannot be done, or what is not as bubblewrap must have made it. Nothing may run in
/// the jail then.
pub fn answer(
    finish: Option<Finish>,
    lent: Option<OwnedFd>,
    control: &OwnedFd,
) -> std::result::Result<(), String> {
    let (Some(finish), Some(lent)) = (finish, lent) else {
        return Err("the jail's init speaks out of turn".to_owned());
    };
    finish.carry_out(&lent)?;
    let go = postcard::to_allocvec(&Request::Go).map_err(|error| error.to_string())?;
    passing::send(control, &go, None).map_err(|error| format!("init is gone: {error}"))
    // The process ends while init goes on.
}

impl Finish {
    /// Starts the process, and waits until it has taken what the host's mounts are to give.
    ///
    /// # Errors
    /// [`NotTaken`]; what opening `/proc`, `socketpair(2)` and `fork(2)` answer.
    pub fn begin(rest: Rest) -> Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let proc = open("/proc", flags, Mode::empty()).context("cannot open `/proc`")?;
        let (ours, theirs) = passing::pair()?;
        let count = taken::sources(&rest).len();
        match process::fork().context("cannot fork")? {
            process::Side::Child => {
                drop(ours);
                let finisher = Finisher {
                    rest,
                    proc,
                    talk: theirs,
                };
                process::exit_now(i32::from(finisher.serve().is_err()))
            }
            process::Side::Parent(child) => {
                drop(theirs);
                let finish = Self {
                    child,
                    talk: Some(ours),
                };
                finish.hear().map_err(NotTaken)?;
                tracing::debug!(target: "launch", count, "mounts are taken from the host");
                Ok(finish)
            }
        }
    }

    fn hear(&self) -> std::result::Result<(), String> {
        let mut buffer = [0; LONGEST_REASON];
        let Some(talk) = &self.talk else {
            return Err("it was told all".to_owned());
        };
        let received = loop {
            match passing::receive(talk, &mut buffer, MsgFlags::empty()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                received => break received,
            }
        };
        match received.map(|(length, _)| buffer[..length].split_first()) {
            Ok(Some((b'0', _))) => Ok(()),
            Ok(Some((_, why))) => Err(String::from_utf8_lossy(why).into_owned()),
            Ok(None) => Err("the process that finishes the mounts was killed".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn carry_out(&self, mounts: &OwnedFd) -> std::result::Result<(), String> {
        let own = owner_of_jail(mounts, Kind::Mount)
            .map_err(|error| format!("its namespaces: {error}"))?;
        let lent = [own.as_fd(), mounts.as_fd()];
        // What it says, if it has ended, is heard below.
        let _ = self
            .talk
            .as_ref()
            .map(|talk| passing::send_many(talk, b"x", &lent));
        self.hear()
    }
}

/// In the process that finishes a jail.
struct Finisher {
    rest: Rest,
    /// The `/proc` in which this process can be found.
    proc: OwnedFd,
    talk: OwnedFd,
}

impl Finisher {
    fn serve(&self) -> io::Result<()> {
        let sources = taken::sources(&self.rest);
        let taken = match taken::take(&sources) {
            Ok(taken) => taken,
            Err(error) => return self.say(Err(error.to_string())),
        };
        self.say(Ok(()))?;
        let (_, lent) = passing::receive_many(&self.talk, &mut [0; 1], MsgFlags::empty())?;
        let [owner, mounts] = &lent[..] else {
            // The jail is not wanted any more.
            return Ok(());
        };
        self.say(self.inside(owner, mounts, taken))
    }

    fn say(&self, done: std::result::Result<(), String>) -> io::Result<()> {
        // An empty datagram would be the end of the conversation.
        let said = match done {
            Ok(()) => "0".to_owned(),
            Err(why) => format!("1{why}"),
        };
        let said = &said.as_bytes()[..said.len().min(LONGEST_REASON)];
        passing::send(&self.talk, said, None)
    }

    fn inside(
        &self,
        owner: &OwnedFd,
        mounts: &OwnedFd,
        taken: Vec<OwnedFd>,
    ) -> std::result::Result<(), String> {
        let failed = |error: io::Error| format!("cannot enter the jail: {error}");
        namespaces::enter(owner, Kind::User).map_err(failed)?;
        if self.rest.no_namespaces {
            self.limit_namespaces()?;
        }
        namespaces::enter(mounts, Kind::Mount).map_err(failed)?;
        let mut taken = taken.into_iter();
        for act in &self.rest.acts {
            let (done, what, at) = match act {
                Act::Change(left) => (self.change(left), "finish", &left.at),
                Act::Cover(bind) => (self.cover(bind), "mount over", &bind.at),
                Act::Show(show) => {
                    let clone = taken.next().ok_or_else(|| io::Error::from(Errno::ENOENT));
                    let shown = clone.and_then(|clone| show_at(&clone, show));
                    (shown, "mount over", &show.at)
                }
            };
            done.map_err(|error| format!("cannot {what} `{}` in the jail: {error}", at.display()))?;
        }
        Ok(())
    }

    fn limit_namespaces(&self) -> std::result::Result<(), String> {
        let (file, most) = MOST_NAMESPACES;
        let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        let done = openat(&self.proc, file, flags, Mode::empty())
            .and_then(|file| write(&file, most).map(drop));
        match done {
            // Containers have it read-only. The filter of system calls refuses every namespace; this is
            // a second wall behind it.
            Ok(()) | Err(Errno::EROFS | Errno::EACCES | Errno::ENOENT) => Ok(()),
            Err(errno) => Err(format!("cannot limit user namespaces: {errno}")),
        }
    }

    /// A bind has the flags of the mount that it is taken from.
    fn cover(&self, bind: &Bind) -> io::Result<()> {
        let (from, at) = (pin(&bind.from)?, pin(&bind.at)?);
        let flags = fstatvfs(&from)?.flags();
        if !flags.contains(FsFlags::ST_RDONLY | FsFlags::ST_NOSUID | FsFlags::ST_NODEV) {
            return Err(Errno::ESTALE.into());
        }
        let (from, at) = (self.named(&from)?, self.named(&at)?);
        mount(
            Some(&from),
            &at,
            None::<&Path>,
            MsFlags::MS_BIND,
            None::<&Path>,
        )?;
        Ok(())
    }

    /// The name of what is pinned, through the /proc of the host: in that of the jail this process is nobody.
    fn named(&self, place: &OwnedFd) -> io::Result<PathBuf> {
        fchdir(&self.proc)?;
        Ok(format!("self/fd/{}", place.as_raw_fd()).into())
    }

    fn change(&self, left: &Left) -> io::Result<()> {
        let place = pin(&left.at)?;
        let name = self.named(&place)?;
        let name = name.as_path();
        if let Some(mode) = left.mode {
            is_of_the_jail(&place)?;
            let mode = Mode::from_bits_truncate(mode);
            fchmodat(
                nix::fcntl::AT_FDCWD,
                name,
                mode,
                FchmodatFlags::FollowSymlink,
            )?;
        }
        if let Some(size) = left.size {
            let size = format!("size={size}");
            remount(name, MsFlags::empty(), Some(&size))?;
        }
        if left.read_only {
            remount(name, MsFlags::MS_BIND | MsFlags::MS_RDONLY, None)?;
        }
        Ok(())
    }
}

/// The user namespace that owns a namespace of the jail's, if it is one that this user made below the caller's own.
///
/// # Errors
/// It is none, or not of that kind.
pub(super) fn owner_of_jail(namespace: impl AsFd, kind: Kind) -> io::Result<OwnedFd> {
    let other = || io::Error::other("they are not those of this jail");
    if namespaces::kind_of(&namespace)? != kind {
        return Err(other());
    }
    let owner = namespaces::owner(&namespace)?;
    let above = namespaces::parent(&owner).map_err(|_| other())?;
    let own = namespaces::own(Kind::User)?;
    if namespaces::owner_uid(&owner)? != getuid().as_raw() || !namespaces::same(above, own)? {
        return Err(other());
    }
    Ok(owner)
}

/// What stands at an absolute path, without following a link anywhere in it.
fn pin(path: &Path) -> io::Result<OwnedFd> {
    let place = match paths::pin_plain(path) {
        // Before Linux 5.6.
        Err(Errno::ENOSYS) => return pin_by_parts(path),
        place => place?,
    };
    no_link(&place)?;
    Ok(place)
}

fn no_link(place: &OwnedFd) -> io::Result<()> {
    match fstat(place)?.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFLNK.bits() {
        true => Err(Errno::ELOOP.into()),
        false => Ok(()),
    }
}

fn pin_by_parts(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut at = open("/", flags, Mode::empty())?;
    for part in path.components() {
        match part {
            Component::RootDir => {}
            Component::Normal(name) => at = openat(&at, name, flags, Mode::empty())?,
            _ => return Err(Errno::EINVAL.into()),
        }
        no_link(&at)?;
    }
    Ok(at)
}

/// Puts a mount in its place.
fn show_at(clone: &OwnedFd, Taken { at, is_made, .. }: &Taken) -> io::Result<()> {
    let place = match pin(at) {
        Err(error) if *is_made && error.raw_os_error() == Some(libc::ENOENT) => {
            let kind = fstat(clone)?.st_mode & SFlag::S_IFMT.bits();
            make_place(at, kind == SFlag::S_IFDIR.bits())?;
            pin(at)?
        }
        place => place?,
    };
    mounts::attach_to(clone, &place)
}

/// Makes a directory or an empty file, and directories above it, in a tmpfs of the jail's.
fn make_place(at: &Path, is_directory: bool) -> io::Result<()> {
    let (Some(above), Some(name)) = (at.parent(), at.file_name()) else {
        return Err(Errno::EINVAL.into());
    };
    let above = match pin(above) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
            make_place(above, true)?;
            pin(above)?
        }
        above => above?,
    };
    is_of_the_jail(&above)?;
    if is_directory {
        return Ok(mkdirat(&above, name, Mode::from_bits_truncate(0o755))?);
    }
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    openat(&above, name, flags, Mode::from_bits_truncate(0o444))?;
    Ok(())
}

/// Fails unless it was made by bubblewrap: a directory or file of the user's in a tmpfs, and a file that
/// nothing else has a name for.
fn is_of_the_jail(place: &OwnedFd) -> io::Result<()> {
    let meta = fstat(place)?;
    let kind = meta.st_mode & SFlag::S_IFMT.bits();
    let one_name =
        kind == SFlag::S_IFDIR.bits() || (kind == SFlag::S_IFREG.bits() && meta.st_nlink <= 1);
    if fstatfs(place.as_fd())?.filesystem_type() != TMPFS_MAGIC || !one_name {
        return Err(Errno::ESTALE.into());
    }
    Ok(())
}

fn remount(at: &Path, how: MsFlags, options: Option<&str>) -> io::Result<()> {
    let flags = MsFlags::MS_REMOUNT | RESTRICTED | how;
    mount(None::<&Path>, at, None::<&Path>, flags, options)?;
    Ok(())
}

#[cfg(test)]
mod tests;
