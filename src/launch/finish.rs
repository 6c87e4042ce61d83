//! What bubblewrap does not do, done in the jail by the launcher before anything runs there: small read-only mounts,
//! for which it is quicker, and with an older bubblewrap sizes and modes of what that mounted and made, and the limit on
//! user namespaces.
//!
//! bubblewrap makes two user namespaces, the second below the first, and puts its payload into the
//! second. The first owns the mounts. Nobody inside has a right over it, but who made it has (the
//! effective uid that called `clone(2)`, in the user namespace above: user_namespaces(7)), and that is
//! the user. So a child of the launcher enters it and the mount namespace, both by descriptors that
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
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, fstat};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nix::unistd::{fchdir, getuid, write};

use crate::backend::bubblewrap::{Bind, Left, Rest};
use crate::handoff::Request;
use crate::sys::namespaces::{self, Kind};
use crate::sys::{passing, paths, process};

/// How many user namespaces there may be below the jail's own, in the file of that name in
/// `/proc/sys/user` (namespaces(7)): the one that bubblewrap has made.
const MOST_NAMESPACES: (&str, &[u8]) = ("sys/user/max_user_namespaces", b"1");
/// The longest reason, in bytes; it holds one path.
const LONGEST_REASON: usize = 8 * 1024;
/// What the mounts of bubblewrap's are restricted to, and stay.
const RESTRICTED: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);

/// What is left to do, and what is needed for it.
#[derive(Debug)]
pub struct Finish {
    rest: Rest,
    /// The `/proc` in which the process that does it can be found.
    proc: OwnedFd,
}

/// Does what is left in the jail whose mount namespace was lent, and tells its init to go on.
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
}

impl Finish {
    /// # Errors
    /// What opening `/proc` answers.
    pub fn new(rest: Rest) -> Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let proc = open("/proc", flags, Mode::empty()).context("cannot open `/proc`")?;
        Ok(Self { rest, proc })
    }

    fn carry_out(&self, mounts: &OwnedFd) -> std::result::Result<(), String> {
        let own = owner_of_jail(mounts, Kind::Mount)
            .map_err(|error| format!("its namespaces: {error}"))?;
        let (ours, theirs) = passing::pair().map_err(|error| error.to_string())?;
        match process::fork().map_err(|error| format!("cannot fork: {error}"))? {
            process::Side::Child => {
                // An empty datagram would be the end of the conversation.
                let said = match self.inside(&own, mounts) {
                    Ok(()) => "0".to_owned(),
                    Err(why) => format!("1{why}"),
                };
                let said = &said.as_bytes()[..said.len().min(LONGEST_REASON)];
                process::exit_now(i32::from(passing::send(&theirs, said, None).is_err()))
            }
            process::Side::Parent(child) => {
                drop(theirs);
                let mut buffer = [0; LONGEST_REASON];
                let received = loop {
                    match passing::receive(&ours, &mut buffer, MsgFlags::empty()) {
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        received => break received,
                    }
                };
                // It may have been reaped with others; the answer tells all.
                let _ = process::wait(child);
                match received.map(|(length, _)| buffer[..length].split_first()) {
                    Ok(Some((b'0', _))) => Ok(()),
                    Ok(Some((_, why))) => Err(String::from_utf8_lossy(why).into_owned()),
                    Ok(None) => Err("the process that finishes the mounts was killed".to_owned()),
                    Err(error) => Err(error.to_string()),
                }
            }
        }
    }

    /// In the child.
    fn inside(&self, owner: &OwnedFd, mounts: &OwnedFd) -> std::result::Result<(), String> {
        let failed = |error: io::Error| format!("cannot enter the jail: {error}");
        namespaces::enter(owner, Kind::User).map_err(failed)?;
        if self.rest.no_namespaces {
            self.limit_namespaces()?;
        }
        namespaces::enter(mounts, Kind::Mount).map_err(failed)?;
        for left in &self.rest.places {
            self.finish(left).map_err(|error| {
                format!("cannot finish `{}` in the jail: {error}", left.at.display())
            })?;
        }
        for bind in &self.rest.binds {
            self.bind(bind).map_err(|error| {
                format!(
                    "cannot mount over `{}` in the jail: {error}",
                    bind.at.display()
                )
            })?;
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
    fn bind(&self, bind: &Bind) -> io::Result<()> {
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

    fn finish(&self, left: &Left) -> io::Result<()> {
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
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests")]

    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use nix::sys::statvfs::{FsFlags, statvfs};
    use nix::sys::wait::{WaitStatus, waitpid};

    use super::*;
    use crate::sys::mounts;

    type Done = std::result::Result<(), Box<dyn std::error::Error>>;

    /// Mounts as bubblewrap makes them below `place`, in namespaces of a process of their own; has them
    /// finished from outside, and lets that process look.
    fn finished(
        place: &Path,
        rest: Rest,
        look: impl FnOnce(&Path) -> Done,
    ) -> std::result::Result<(), String> {
        let (ours, theirs) = passing::pair().unwrap();
        match process::fork().unwrap() {
            process::Side::Child => {
                drop(ours);
                let done = as_bubblewrap(place, &theirs, look);
                let said = done.map_or_else(|error| format!("1{error}"), |()| "0".to_owned());
                let _ = passing::send(&theirs, said.as_bytes(), None);
                process::exit_now(0)
            }
            process::Side::Parent(child) => {
                drop(theirs);
                let mut buffer = [0; LONGEST_REASON];
                let received = passing::receive(&ours, &mut buffer, MsgFlags::empty()).unwrap();
                let (1, Some(lent)) = received else {
                    panic!("{}", String::from_utf8_lossy(&buffer[..received.0]))
                };
                let finish = Finish::new(rest).unwrap();
                let done = answer(Some(finish), Some(lent), &ours);
                if done.is_ok() {
                    let (length, _) =
                        passing::receive(&ours, &mut buffer, MsgFlags::empty()).unwrap();
                    let said = String::from_utf8_lossy(&buffer[..length]).into_owned();
                    assert_eq!(said, "0");
                }
                drop(ours);
                let ended = waitpid(child, None).unwrap();
                assert_eq!(ended, WaitStatus::Exited(child, 0));
                done
            }
        }
    }

    fn as_bubblewrap(place: &Path, control: &OwnedFd, look: impl FnOnce(&Path) -> Done) -> Done {
        let (uid, gid) = (getuid(), nix::unistd::getgid());
        let map = |inside: u32| -> io::Result<()> {
            let _ = fs::write("/proc/self/setgroups", "deny");
            let outside = if inside == 0 { uid.as_raw() } else { 0 };
            fs::write("/proc/self/uid_map", format!("{inside} {outside} 1"))?;
            let outside = if inside == 0 { gid.as_raw() } else { 0 };
            fs::write("/proc/self/gid_map", format!("{inside} {outside} 1"))
        };
        namespaces::leave(&[Kind::User, Kind::Mount])?;
        map(0)?;
        mounts::make_private()?;
        mounts::tmpfs_at(place, 1 << 20, 0o755)?;
        for name in ["sized", "made"] {
            fs::create_dir(place.join(name))?;
        }
        mounts::tmpfs_at(&place.join("sized"), 1 << 20, 0o755)?;
        fs::write(place.join("file"), "content")?;
        symlink("file", place.join("link"))?;
        let closed = place.join("closed");
        fs::create_dir(&closed)?;
        mounts::tmpfs_at(&closed, 1 << 20, 0o755)?;
        fs::write(closed.join("cover"), "cover")?;
        symlink("cover", closed.join("link"))?;
        remount(&closed, MsFlags::MS_BIND | MsFlags::MS_RDONLY, None)?;
        namespaces::leave(&[Kind::User])?;
        map(1)?;
        let own = namespaces::own(Kind::Mount)?;
        passing::send(control, b"x", Some(own.as_fd()))?;
        let mut buffer = [0; 64];
        match passing::receive(control, &mut buffer, MsgFlags::empty())? {
            (0, _) => Ok(()),
            _ => look(place),
        }
    }

    fn left(at: &Path, size: Option<u64>, mode: Option<u32>, read_only: bool) -> Left {
        Left {
            at: at.to_owned(),
            size,
            mode,
            read_only,
        }
    }

    fn expect(holds: bool, what: &str) -> Done {
        if holds { Ok(()) } else { Err(what.into()) }
    }

    #[test]
    fn sizes_modes_and_what_is_closed() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().canonicalize().unwrap();
        let rest = Rest {
            places: vec![
                left(&place.join("file"), None, Some(0o444), false),
                left(&place.join("made"), None, Some(0o700), false),
                left(&place.join("sized"), Some(8192), Some(0o1777), false),
                left(&place, None, None, true),
            ],
            no_namespaces: true,
            ..Rest::default()
        };
        finished(&place, rest, |place| {
            let mode = |name: &str| -> io::Result<u32> {
                Ok(fs::metadata(place.join(name))?.permissions().mode() & 0o7777)
            };
            let modes = [mode("file")?, mode("made")?, mode("sized")?];
            expect(
                modes == [0o444, 0o700, 0o1777],
                &format!("other modes: {modes:?}"),
            )?;
            let flags = |name: &str| statvfs(&place.join(name)).map(|found| found.flags());
            let restricted = FsFlags::ST_NOSUID | FsFlags::ST_NODEV;
            expect(flags("")?.contains(restricted | FsFlags::ST_RDONLY), "open")?;
            expect(flags("sized")?.contains(restricted), "unrestricted")?;
            expect(!flags("sized")?.contains(FsFlags::ST_RDONLY), "closed")?;
            fs::write(place.join("sized/fits"), [0; 4096])?;
            let full = fs::write(place.join("sized/full"), [0; 8192]);
            expect(full.is_err(), "no limit")?;
            let made = namespaces::leave(&[Kind::User]);
            let refused = made.err().and_then(|error| error.raw_os_error());
            expect(
                refused == Some(libc::ENOSPC),
                &format!("a user namespace: {refused:?}"),
            )
        })
        .unwrap();
    }

    #[test]
    fn what_bubblewrap_did_not_make_is_not_touched() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().canonicalize().unwrap();
        let refused = |left: Left| {
            let rest = Rest {
                places: vec![left],
                ..Rest::default()
            };
            finished(&place, rest, |_| Ok(())).unwrap_err()
        };
        for (what, why) in [
            (left(&place.join("link"), None, Some(0o777), false), "ELOOP"),
            (
                left(&place.join("absent"), None, Some(0o777), false),
                "No such",
            ),
            // No mount, and no file system of the jail's.
            (
                left(&place.join("made"), Some(4096), None, false),
                "Invalid",
            ),
            (left(Path::new("/usr"), None, Some(0o777), false), "ESTALE"),
            (left(Path::new("/proc"), Some(4096), None, false), ""),
        ] {
            let said = refused(what);
            let why = match why {
                "ELOOP" => io::Error::from_raw_os_error(libc::ELOOP).to_string(),
                "ESTALE" => io::Error::from_raw_os_error(libc::ESTALE).to_string(),
                other => other.to_owned(),
            };
            assert!(
                said.contains("cannot finish") && said.contains(&why),
                "{said}"
            );
        }
    }

    #[test]
    fn a_bind_is_as_read_only_as_what_it_shows() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().canonicalize().unwrap();
        let bind = |from: &str, at: &str| Rest {
            binds: vec![Bind {
                from: place.join(from),
                at: place.join(at),
            }],
            ..Rest::default()
        };
        finished(&place, bind("closed/cover", "file"), |place| {
            let covered = place.join("file");
            expect(fs::read(&covered)? == b"cover", "not covered")?;
            let flags = statvfs(&covered)?.flags();
            let closed = FsFlags::ST_RDONLY | FsFlags::ST_NOSUID | FsFlags::ST_NODEV;
            expect(flags.contains(closed), &format!("open: {flags:?}"))?;
            expect(fs::write(&covered, "x").is_err(), "written")
        })
        .unwrap();
        // What could be changed inside covers nothing, and neither end is reached over a link.
        for (from, at, why) in [
            ("sized", "made", libc::ESTALE),
            ("closed/cover", "link", libc::ELOOP),
            ("closed/link", "file", libc::ELOOP),
            ("closed/cover", "absent", libc::ENOENT),
        ] {
            let said = finished(&place, bind(from, at), |_| Ok(())).unwrap_err();
            let why = io::Error::from_raw_os_error(why).to_string();
            assert!(
                said.contains("cannot mount over") && said.contains(&why),
                "{from} {at}: {said}"
            );
        }
    }

    #[test]
    fn others_mounts_are_not_entered() {
        let finish = Finish::new(Rest::default()).unwrap();
        let own = namespaces::own(Kind::Mount).unwrap();
        assert!(finish.carry_out(&own).is_err());
        let network = namespaces::own(Kind::Network).unwrap();
        assert!(finish.carry_out(&network).is_err());
    }
}
