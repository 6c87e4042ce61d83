//! What a process may do: capabilities, `no_new_privs`, seccomp filters, the bond to its parent.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use nix::sys::signal::Signal;
use nix::unistd::{Gid, Pid, Uid, getppid};
use rustix::io::Errno;
use rustix::thread::{self, CapabilitySet, CapabilitySets};

/// Gives every capability up for good: the bounding, ambient, inheritable, permitted and effective
/// sets are empty afterwards (`capabilities(7)`). What is empty already needs no right.
///
/// # Errors
/// `EPERM` without `CAP_SETPCAP` while the bounding set is not empty.
pub fn drop_all() -> io::Result<()> {
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match thread::capability_is_in_bounding_set(capability) {
            Ok(false) => {}
            Ok(true) => thread::remove_capability_from_bounding_set(capability)?,
            // The last capability that this kernel knows was the one before.
            Err(Errno::INVAL) if number > 0 => break,
            Err(error) => return Err(error.into()),
        }
    }
    drop_held()
}

/// Gives up every capability that this process holds or could inherit: as [`drop_all`], but for the
/// bounding set, which without [`no_new_privileges`] a program could still gain some from. Needs no
/// right.
///
/// # Errors
/// What `prctl(2)` or `capset(2)` answer.
pub fn drop_held() -> io::Result<()> {
    thread::clear_ambient_capability_set()?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    Ok(thread::set_capabilities(None, none)?)
}

/// Goes on as another user, for good, without any capability. The memory and the descriptors, which are
/// still those of whom forked this process, are out of the user's reach: until nobody may trace it, it holds capabilities that
/// the user's processes lack (`ptrace(2)`, access mode checking).
///
/// # Errors
/// `EPERM` without the right to, `EINVAL` where the user namespace has no such user.
pub fn become_user(uid: Uid, gid: Gid, groups: &[Gid]) -> io::Result<()> {
    nix::sys::prctl::set_keepcaps(true)?;
    nix::unistd::setgroups(groups)?;
    nix::unistd::setresgid(gid, gid, gid)?;
    nix::unistd::setresuid(uid, uid, uid)?;
    nix::sys::prctl::set_dumpable(false)?;
    drop_held()?;
    no_new_privileges()
}

/// No program that this process becomes, nor any of its children, gains rights by being executed
/// (`PR_SET_NO_NEW_PRIVS`).
///
/// # Errors
/// What `prctl(2)` answers.
pub fn no_new_privileges() -> io::Result<()> {
    nix::sys::prctl::set_no_new_privs()?;
    Ok(())
}

/// Installs a seccomp filter: the bytes of an array of `struct sock_filter`, in the byte order of
/// the machine. The process must have one thread.
///
/// # Errors
/// What `seccomp(2)` answers: `EACCES` without [`no_new_privileges`], `EINVAL` for no program.
pub fn filter(program: &[u8]) -> io::Result<()> {
    install(program, 0)?;
    Ok(())
}

/// Installs a seccomp filter that hands calls over to whoever holds the descriptor returned, which
/// is close-on-exec. Where the kernel can (Linux 5.19), a call that was taken up is interrupted by
/// fatal signals only. The process must have one thread.
///
/// # Errors
/// As [`filter`]; `EBUSY` if a filter with a listener is installed already.
pub fn filter_with_listener(program: &[u8]) -> io::Result<OwnedFd> {
    let flag = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let number = match install(program, flag | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV) {
        // An older kernel answers so to a flag that it does not know; to a bad program it will
        // again.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => install(program, flag)?,
        installed => installed?,
    };
    // SAFETY: with this flag a success is a descriptor that the kernel has just made.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn install(program: &[u8], flags: libc::c_ulong) -> io::Result<RawFd> {
    let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
    let (instructions, rest) = program.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(invalid());
    }
    let mut instructions: Vec<libc::sock_filter> = instructions
        .iter()
        .map(
            |&[code0, code1, jt, jf, k0, k1, k2, k3]| libc::sock_filter {
                code: u16::from_ne_bytes([code0, code1]),
                jt,
                jf,
                k: u32::from_ne_bytes([k0, k1, k2, k3]),
            },
        )
        .collect();
    let program = libc::sock_fprog {
        len: u16::try_from(instructions.len()).map_err(|_| invalid())?,
        filter: instructions.as_mut_ptr(),
    };
    // SAFETY: the kernel reads the program, as many instructions as it says it has.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    RawFd::try_from(answer).map_err(|_| invalid())
}

/// Has this process killed when the thread that forked it ends (`PR_SET_PDEATHSIG`). `parent` is the
/// parent as this process sees it, `None` if it is in a pid namespace above. The kernel forgets the
/// wish when ids or capabilities grow, as in [`super::namespaces::enter`] of a user namespace: to
/// be called after that.
///
/// # Errors
/// `ESRCH` if the parent is gone already.
pub fn end_with_parent(parent: Option<Pid>) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    // An orphan has another parent by now, in its own pid namespace.
    if getppid() != parent.unwrap_or(Pid::from_raw(0)) {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests")]

    use std::io::{Read, Write, pipe};

    use super::super::namespaces::tests::{expect, in_child, refused};
    use super::super::namespaces::{self, Kind};
    use super::super::process;
    use super::*;

    /// A filter that does this (`SECCOMP_RET_*`) to `sethostname` and lets everything else pass.
    fn program(what: u32) -> Vec<u8> {
        const LOAD: u16 = 0x20;
        const EQUAL: u16 = 0x15;
        const RETURN: u16 = 0x06;
        let number = u32::try_from(libc::SYS_sethostname).unwrap();
        [
            (LOAD, 0, 0),
            (EQUAL, 1, number),
            (RETURN, 0, what),
            (RETURN, 0, libc::SECCOMP_RET_ALLOW),
        ]
        .into_iter()
        .flat_map(|(code, jf, k): (u16, u8, u32)| {
            let mut bytes = code.to_ne_bytes().to_vec();
            bytes.extend([0, jf]);
            bytes.extend(k.to_ne_bytes());
            bytes
        })
        .collect()
    }

    fn probe() -> Option<i32> {
        refused(nix::unistd::sethostname("").map_err(io::Error::from))
    }

    #[test]
    fn no_capability_is_left_in_any_set() {
        in_child(|| {
            namespaces::leave(&[Kind::User])?;
            let sets = || {
                let status = std::fs::read_to_string("/proc/self/status")?;
                let sets = status.lines().filter(|line| line.starts_with("Cap"));
                io::Result::Ok(sets.map(str::to_owned).collect::<Vec<_>>())
            };
            let full = sets()?;
            expect(full.len() == 5, "not five sets")?;
            expect(
                !full.iter().all(|set| set.ends_with("\t0000000000000000")),
                "none before",
            )?;
            drop_all()?;
            let left = sets()?;
            expect(
                left.iter().all(|set| set.ends_with("\t0000000000000000")),
                &left.join(" "),
            )?;
            // What is gone needs no right to go again.
            drop_all()?;
            Ok(())
        });
    }

    #[test]
    fn without_the_right_to_empty_the_bounding_set_it_fails() {
        in_child(|| {
            if !nix::unistd::geteuid().is_root() {
                return expect(refused(drop_all()) == Some(libc::EPERM), "dropped");
            }
            Ok(())
        });
    }

    #[test]
    fn a_filter_needs_no_new_privileges_and_then_holds() {
        in_child(|| {
            let filtered = program(libc::SECCOMP_RET_ERRNO | 77);
            if !nix::unistd::geteuid().is_root() {
                expect(refused(filter(&filtered)) == Some(libc::EACCES), "filtered")?;
            }
            no_new_privileges()?;
            for bad in [&[][..], &filtered[..7], &filtered[..8]] {
                expect(refused(filter(bad)) == Some(libc::EINVAL), "no program")?;
                let listener = filter_with_listener(bad);
                expect(refused(listener) == Some(libc::EINVAL), "no program")?;
            }
            filter(&filtered)?;
            expect(probe() == Some(77), "not filtered")
        });
    }

    #[test]
    fn a_listener_gets_the_calls_of_its_filter() {
        in_child(|| {
            no_new_privileges()?;
            let handed_over = program(libc::SECCOMP_RET_USER_NOTIF);
            let listener = filter_with_listener(&handed_over)?;
            let flags = nix::fcntl::fcntl(&listener, nix::fcntl::FcntlArg::F_GETFD)?;
            expect(flags == libc::FD_CLOEXEC, "inherited by programs")?;
            let second = filter_with_listener(&handed_over);
            expect(refused(second) == Some(libc::EBUSY), "a second listener")?;
            // Without anybody who listens the kernel refuses.
            drop(listener);
            expect(probe() == Some(libc::ENOSYS), "not handed over")
        });
    }

    #[test]
    fn a_process_ends_with_its_parent() {
        let (mut reader, mut writer) = pipe().unwrap();
        in_child(|| {
            let parent = nix::unistd::getpid();
            let (mut ready, set) = pipe()?;
            match process::fork()? {
                process::Side::Child => {
                    drop(ready);
                    let tied = end_with_parent(Some(parent)).is_ok();
                    let _ = writer.write_all(if tied { b"tied" } else { b"free" });
                    drop(set);
                    std::thread::sleep(std::time::Duration::from_secs(600));
                    process::exit_now(0)
                }
                process::Side::Parent(_) => {
                    drop(set);
                    ready.read_to_end(&mut Vec::new())?;
                    Ok(())
                }
            }
        });
        drop(writer);
        // It holds the pipe open for as long as it lives.
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        assert_eq!(said, "tied");
    }

    #[test]
    fn another_parent_than_the_one_expected_is_refused() {
        in_child(|| {
            let other = end_with_parent(Some(nix::unistd::getpid()));
            expect(refused(other) == Some(libc::ESRCH), "tied to another")?;
            let above = end_with_parent(None);
            expect(refused(above) == Some(libc::ESRCH), "tied to one above")
        });
    }

    #[test]
    fn a_parent_in_a_pid_namespace_above_is_none() {
        in_child(|| {
            let parent = nix::unistd::getpid();
            namespaces::leave(&[Kind::User, Kind::Pid])?;
            in_child(|| {
                end_with_parent(None)?;
                let seen = end_with_parent(Some(parent));
                expect(refused(seen) == Some(libc::ESRCH), "sees its parent")
            });
            Ok(())
        });
    }
}
