//! Namespaces by their descriptors: finding them, asking about them, entering and leaving
//! (`namespaces(7)`, `ioctl_ns(2)`).

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::fcntl::{OFlag, open};
use nix::sched::CloneFlags;
use nix::sys::stat::{Mode, fstat};
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};

/// What a namespace keeps apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// User ids, and the rights of those who have one there (`user_namespaces(7)`).
    User,
    /// System V objects and POSIX message queues (`ipc_namespaces(7)`).
    Ipc,
    /// The names of host and domain (`uts_namespaces(7)`).
    Uts,
    /// Process ids (`pid_namespaces(7)`).
    Pid,
    /// Mounts (`mount_namespaces(7)`).
    Mount,
    /// Network devices, ports and the names of abstract sockets (`network_namespaces(7)`).
    Network,
    /// The view of cgroups (`cgroup_namespaces(7)`).
    Cgroup,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::User,
        Self::Ipc,
        Self::Uts,
        Self::Pid,
        Self::Mount,
        Self::Network,
        Self::Cgroup,
    ];

    /// Its `CLONE_NEW*` flag, by which `setns(2)` and `unshare(2)` know it.
    pub fn flag(self) -> CloneFlags {
        match self {
            Self::User => CloneFlags::CLONE_NEWUSER,
            Self::Ipc => CloneFlags::CLONE_NEWIPC,
            Self::Uts => CloneFlags::CLONE_NEWUTS,
            Self::Pid => CloneFlags::CLONE_NEWPID,
            Self::Mount => CloneFlags::CLONE_NEWNS,
            Self::Network => CloneFlags::CLONE_NEWNET,
            Self::Cgroup => CloneFlags::CLONE_NEWCGROUP,
        }
    }

    /// Its name below `/proc/PID/ns`.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Ipc => "ipc",
            Self::Uts => "uts",
            Self::Pid => "pid",
            Self::Mount => "mnt",
            Self::Network => "net",
            Self::Cgroup => "cgroup",
        }
    }
}

/// The namespace of a kind that this process is in, close-on-exec. Needs a `/proc` that shows this
/// process; one that made itself non-dumpable may still open its own.
///
/// # Errors
/// What `open(2)` answers.
pub fn own(kind: Kind) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/ns/{}", kind.name());
    let fd = open(
        path.as_str(),
        OFlag::O_RDONLY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    Ok(fd)
}

/// The user namespace that owns a namespace, or the parent of a user namespace; close-on-exec.
///
/// # Errors
/// `EPERM` if it lies outside the caller's own user namespace, `ENOTTY` for a descriptor that is no
/// namespace's.
pub fn owner(namespace: impl AsFd) -> io::Result<OwnedFd> {
    // SAFETY: the request takes no argument.
    let number = unsafe { ask(namespace, libc::NS_GET_USERNS) }?;
    // SAFETY: the kernel has just made this descriptor for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// The parent of a user or pid namespace, close-on-exec.
///
/// # Errors
/// `EPERM` if it lies outside the caller's own, or if there is none; `EINVAL` for a kind without
/// parents; `ENOTTY` for a descriptor that is no namespace's.
pub fn parent(namespace: impl AsFd) -> io::Result<OwnedFd> {
    // SAFETY: the request takes no argument.
    let number = unsafe { ask(namespace, libc::NS_GET_PARENT) }?;
    // SAFETY: the kernel has just made this descriptor for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Of which kind a namespace is.
///
/// # Errors
/// `ENOTTY` for a descriptor that is no namespace's, `EINVAL` for a kind that is not in [`Kind`].
pub fn kind_of(namespace: impl AsFd) -> io::Result<Kind> {
    // SAFETY: the request takes no argument.
    let flag = unsafe { ask(namespace, libc::NS_GET_NSTYPE) }?;
    Kind::ALL
        .into_iter()
        .find(|kind| kind.flag().bits() == flag)
        .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Who made a user namespace: the uid as the caller's user namespace shows it.
///
/// # Errors
/// `EINVAL` if it is no user namespace, `ENOTTY` for a descriptor that is no namespace's.
pub fn owner_uid(namespace: impl AsFd) -> io::Result<u32> {
    let namespace = namespace.as_fd();
    of_nsfs(namespace)?;
    let mut uid: libc::uid_t = 0;
    // SAFETY: the request writes one uid_t, to which it gets a pointer.
    let done = unsafe { libc::ioctl(namespace.as_raw_fd(), libc::NS_GET_OWNER_UID, &mut uid) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(uid)
}

/// Whether two descriptors show the same namespace (`namespaces(7)`: device and inode number).
///
/// # Errors
/// What `fstat(2)` answers.
pub fn same(one: impl AsFd, other: impl AsFd) -> io::Result<bool> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// Enters a namespace of this kind. A user namespace gives all capabilities in it and in those that
/// it owns; a pid namespace is that of children from now on; a mount namespace moves root and
/// working directory to its root. The process must have one thread.
///
/// # Errors
/// What `setns(2)` answers: `EPERM` without `CAP_SYS_ADMIN` in the user namespace that owns it, and
/// `EINVAL` for a namespace of another kind, for the user namespace that the caller is in already,
/// and for a pid namespace that is not below the caller's.
pub fn enter(namespace: impl AsFd, kind: Kind) -> io::Result<()> {
    nix::sched::setns(namespace, kind.flag())?;
    Ok(())
}

/// Leaves the namespaces of these kinds for new ones. A new pid namespace is that of children from
/// now on, the first of which is its init. The process must have one thread.
///
/// # Errors
/// What `unshare(2)` answers: `EPERM` without `CAP_SYS_ADMIN` (but for a user namespace), `ENOSPC`
/// at a limit of `/proc/sys/user`.
pub fn leave(kinds: &[Kind]) -> io::Result<()> {
    let flags = kinds
        .iter()
        .fold(CloneFlags::empty(), |all, kind| all | kind.flag());
    nix::sched::unshare(flags)?;
    Ok(())
}

/// Fails with `ENOTTY` for what is no namespace: with a device, the numbers of the requests could
/// mean anything.
fn of_nsfs(fd: impl AsFd) -> io::Result<()> {
    if fstatfs(fd)?.filesystem_type() == NSFS_MAGIC {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ENOTTY))
    }
}

/// Makes a request that answers with a number.
///
/// # Safety
/// The request must take no argument.
unsafe fn ask(namespace: impl AsFd, request: libc::Ioctl) -> io::Result<RawFd> {
    let namespace = namespace.as_fd();
    of_nsfs(namespace)?;
    // SAFETY: by the caller's promise the call touches no memory.
    let answer = unsafe { libc::ioctl(namespace.as_raw_fd(), request) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(answer)
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests")]

    use std::io::{Read, Write, pipe};

    use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, socketpair};
    use nix::sys::wait::{WaitStatus, waitpid};

    use super::*;
    use crate::sys::{passing, process};

    /// Runs something in a child, which has one thread and leaves this process as it is.
    pub(in crate::sys) fn in_child(act: impl FnOnce() -> Result<(), Box<dyn std::error::Error>>) {
        let (mut reader, mut writer) = pipe().unwrap();
        match process::fork().unwrap() {
            process::Side::Child => {
                let told = match act() {
                    Ok(()) => process::exit_now(0),
                    Err(reason) => writer.write_all(reason.to_string().as_bytes()),
                };
                process::exit_now(if told.is_ok() { 1 } else { 2 })
            }
            process::Side::Parent(child) => {
                drop(writer);
                let mut reason = String::new();
                reader.read_to_string(&mut reason).unwrap();
                let ended = waitpid(child, None).unwrap();
                assert_eq!(ended, WaitStatus::Exited(child, 0), "{reason}");
            }
        }
    }

    /// In a new user namespace: maps the own ids to themselves. Without them nothing can be owned
    /// there, neither a file nor a further user namespace.
    pub(in crate::sys) fn map_own_ids(uid: u32, gid: u32) -> io::Result<()> {
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
        std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
    }

    /// Says what does not hold, in a child of [`in_child`].
    pub(in crate::sys) fn expect(
        holds: bool,
        what: &str,
    ) -> Result<(), Box<dyn std::error::Error>> {
        if holds { Ok(()) } else { Err(what.into()) }
    }

    /// The error number of what should have failed.
    pub(in crate::sys) fn refused<T>(done: io::Result<T>) -> Option<i32> {
        done.err().and_then(|error| error.raw_os_error())
    }

    #[test]
    fn own_namespaces_are_of_their_kind() {
        for kind in Kind::ALL {
            let (one, other) = (own(kind).unwrap(), own(kind).unwrap());
            assert_eq!(kind_of(&one).unwrap(), kind);
            assert!(same(&one, &other).unwrap());
            let flags = nix::fcntl::fcntl(&one, nix::fcntl::FcntlArg::F_GETFD).unwrap();
            assert_eq!(flags, libc::FD_CLOEXEC);
        }
        assert!(!same(own(Kind::Ipc).unwrap(), own(Kind::Uts).unwrap()).unwrap());
    }

    #[test]
    fn an_untraceable_process_opens_its_own() {
        in_child(|| {
            nix::sys::prctl::set_dumpable(false)?;
            Kind::ALL
                .into_iter()
                .try_for_each(|kind| own(kind).map(drop))?;
            Ok(())
        });
    }

    #[test]
    fn what_is_no_namespace_is_not_asked() {
        let null = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(refused(kind_of(&null)), Some(libc::ENOTTY));
        assert_eq!(refused(owner(&null)), Some(libc::ENOTTY));
        assert_eq!(refused(parent(&null)), Some(libc::ENOTTY));
        assert_eq!(refused(owner_uid(&null)), Some(libc::ENOTTY));
        assert_eq!(
            refused(owner_uid(own(Kind::Ipc).unwrap())),
            Some(libc::EINVAL)
        );
    }

    #[test]
    fn the_user_namespace_that_owns_others_is_the_way_into_them() {
        let (ours, theirs) = socketpair(
            AddressFamily::Unix,
            SockType::SeqPacket,
            None,
            SockFlag::SOCK_CLOEXEC,
        )
        .unwrap();
        in_child(|| {
            let ids = (
                nix::unistd::geteuid().as_raw(),
                nix::unistd::getegid().as_raw(),
            );
            leave(&[Kind::User, Kind::Ipc, Kind::Uts])?;
            map_own_ids(ids.0, ids.1)?;
            let (ipc, uts) = (own(Kind::Ipc)?, own(Kind::Uts)?);
            expect(same(owner(&ipc)?, own(Kind::User)?)?, "another owner")?;
            // The user namespace above is none of its business.
            expect(
                refused(parent(own(Kind::User)?)) == Some(libc::EPERM),
                "sees above",
            )?;
            // As bubblewrap does: the payload's user namespace owns nothing.
            leave(&[Kind::User])?;
            let lent = [own(Kind::User)?, ipc, uts];
            let lent: Vec<_> = lent.iter().map(AsFd::as_fd).collect();
            passing::send_many(&theirs, b"x", &lent)?;
            Ok(())
        });
        let (_, lent) = passing::receive_many(&ours, &mut [0; 1], MsgFlags::empty()).unwrap();
        in_child(|| {
            let [user, ipc, uts] = &lent[..] else {
                return Err("not three".into());
            };
            let above = owner(ipc)?;
            expect(kind_of(&above)? == Kind::User, "no user namespace")?;
            expect(same(parent(user)?, &above)?, "not the parent")?;
            let uid = nix::unistd::geteuid().as_raw();
            expect(owner_uid(&above)? == uid, "another user's")?;
            enter(&above, Kind::User)?;
            expect(
                refused(enter(ipc, Kind::Uts)) == Some(libc::EINVAL),
                "entered as another kind",
            )?;
            enter(ipc, Kind::Ipc)?;
            enter(uts, Kind::Uts)?;
            leave(&[Kind::Cgroup])?;
            enter(user, Kind::User)?;
            expect(same(own(Kind::User)?, user)?, "not inside")?;
            expect(same(own(Kind::Ipc)?, ipc)?, "not in its ipc namespace")?;
            // And there is no way back.
            expect(
                refused(enter(&above, Kind::User)) == Some(libc::EPERM),
                "back above",
            )?;
            expect(
                refused(leave(&[Kind::Ipc])).is_none(),
                "has no rights in its own",
            )?;
            expect(
                refused(enter(uts, Kind::Uts)) == Some(libc::EPERM),
                "rights above",
            )
        });
    }
}
