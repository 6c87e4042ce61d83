//! What is read of a caller.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use agent_sandbox::mediate::caller::Caller;
use agent_sandbox::sys::notify::{Buffers, Call};
use agent_sandbox::sys::process::{Side, fork, wait};
use agent_sandbox::sys::{passing, privileges};
use nix::sys::prctl;
use nix::sys::socket::MsgFlags;
use nix::sys::stat::{Mode, fstat, umask};

use crate::jail::{act_and_end, call, child, handing_over, in_launcher};

/// The call that stands for every other: the kernel knows it everywhere and it takes any numbers.
const ASKS: i64 = libc::SYS_setpriority;

/// Takes the calls that `act` makes in a child, for `answer` to look at; each gets what `answer` says.
fn with_caller(act: impl FnOnce(), mut answer: impl FnMut(&Caller) -> i64) {
    with_listener(act, |caller, _| answer(caller));
}

fn with_listener(act: impl FnOnce(), mut answer: impl FnMut(&Caller, &Arc<OwnedFd>) -> i64) {
    in_launcher(|words| {
        let (ours, theirs) = passing::pair().expect("a pair");
        let caller = match fork().expect("fork") {
            Side::Child => act_and_end(words, || {
                privileges::no_new_privileges().expect("no_new_privs");
                let listener =
                    privileges::filter_with_listener(&handing_over(&[ASKS])).expect("a filter");
                passing::send(&theirs, b"l", Some(listener.as_fd())).expect("send");
                drop((listener, theirs));
                act();
            }),
            Side::Parent(pid) => pid,
        };
        let (_, listener) =
            passing::receive(&ours, &mut [0; 8], MsgFlags::empty()).expect("a message");
        let listener = Arc::new(listener.expect("a listener"));
        let mut buffers = Buffers::new().expect("buffers");
        while let Some(call) = next(&mut buffers, &listener) {
            let caller = Caller::new(call, Arc::clone(&listener));
            let value = answer(&caller, &listener);
            // Who is killed on purpose gets none.
            let _ = buffers.complete(&*listener, call.id, value);
        }
        wait(caller).expect("wait");
    });
}

fn next(buffers: &mut Buffers, listener: &Arc<OwnedFd>) -> Option<Call> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    loop {
        let mut asked = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        poll(&mut asked, PollTimeout::NONE).expect("poll");
        let events = asked[0].revents().expect("events");
        if !events.contains(PollFlags::POLLIN) {
            return None;
        }
        if let Ok(call) = buffers.receive(&**listener) {
            return Some(call);
        }
    }
}

fn ask(first: u64, second: u64) -> i64 {
    call(ASKS, [first, second, 0, 0]).expect("an answer")
}

fn errno<T>(done: std::io::Result<T>) -> i32 {
    done.err()
        .and_then(|error| error.raw_os_error())
        .unwrap_or(0)
}

/// Two pages, the second of which cannot be read; the place of the border.
fn border() -> *mut u8 {
    const PAGE: usize = 64 * 1024;
    // SAFETY: new memory, of which the second half is taken away again.
    unsafe {
        let both = libc::mmap(
            std::ptr::null_mut(),
            2 * PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(both, libc::MAP_FAILED);
        let border = both.cast::<u8>().add(PAGE);
        assert_eq!(libc::munmap(border.cast(), PAGE), 0);
        border
    }
}

#[test]
fn memory_is_read_as_far_as_it_is_there() {
    with_caller(
        || {
            let border = border();
            // SAFETY: within the page before the border.
            let last = unsafe {
                border.sub(4).copy_from(c"abc".as_ptr().cast(), 4);
                border.sub(4)
            };
            assert_eq!(ask(last as u64, 0), 1);
            // Without a 0 before the border.
            // SAFETY: as above.
            unsafe { border.sub(1).write(b'x') };
            assert_eq!(ask(last as u64, 1), 2);
            // Nothing ends a path here but its length.
            let long = vec![b'y'; 8192];
            assert_eq!(ask(long.as_ptr() as u64, 2), 3);
            let longest: Vec<u8> = long[..4095].iter().copied().chain([0]).collect();
            assert_eq!(ask(longest.as_ptr() as u64, 3), 4095);
            for nowhere in [0, 8, u64::MAX, u64::MAX - 4096, 1 << 47] {
                assert_eq!(ask(nowhere, 4), 5);
            }
            let mut word = *b"here";
            assert_eq!(ask(word.as_mut_ptr() as u64, 5), 6);
            assert_eq!(std::hint::black_box(&mut word), b"THEN");
            assert_eq!(ask(c"const".as_ptr() as u64, 6), 7);
        },
        |caller| {
            let [address, case, ..] = caller.call.arguments;
            match case {
                0 => {
                    assert_eq!(caller.path(address).expect("a path"), b"abc");
                    assert_eq!(caller.read(address, 4).expect("bytes"), b"abc\0");
                    assert_eq!(errno(caller.read(address, 5)), libc::EFAULT);
                    assert_eq!(errno(caller.text(address, 3)), libc::E2BIG);
                    assert_eq!(caller.text(address, 4).expect("text"), b"abc");
                    1
                }
                1 => {
                    assert_eq!(errno(caller.path(address)), libc::EFAULT);
                    2
                }
                2 => {
                    assert_eq!(errno(caller.path(address)), libc::ENAMETOOLONG);
                    assert_eq!(errno(caller.read(address, 65537)), libc::E2BIG);
                    3
                }
                3 => caller.path(address).expect("a path").len() as i64,
                4 => {
                    assert_eq!(errno(caller.path(address)), libc::EFAULT);
                    assert_eq!(errno(caller.read(address, 8)), libc::EFAULT);
                    assert_eq!(errno(caller.write(address, b"x")), libc::EFAULT);
                    assert_eq!(caller.read(address, 0).expect("nothing"), b"");
                    5
                }
                5 => {
                    caller.write(address, b"THEN").expect("written");
                    6
                }
                _ => {
                    // What the caller may not write is not written for it.
                    assert_eq!(errno(caller.write(address, b"x")), libc::EFAULT);
                    7
                }
            }
        },
    );
}

#[test]
fn masks_directories_descriptors_and_numbers_are_those_of_the_thread() {
    let directory = tempfile::tempdir().expect("a directory");
    let id = std::fs::metadata(directory.path()).expect("metadata");
    let null = std::fs::File::open("/dev/null").expect("null");
    let null_stat = fstat(&null).expect("fstat");
    let number = null.as_raw_fd();
    with_caller(
        || {
            umask(Mode::from_bits_truncate(0o027));
            assert_eq!(ask(0, 0), 0o027);
            assert_eq!(ask(0, 1), i64::from(std::process::id()));
            assert_eq!(ask(number as u64, 2), 1);
            assert_eq!(ask(u64::from(u32::MAX), 3), i64::from(libc::EBADF));
            // A thread may have a directory, and descriptors, of its own.
            let path = directory.path().to_owned();
            std::thread::spawn(move || {
                let flags = libc::CLONE_FS | libc::CLONE_FILES;
                // SAFETY: the call touches no memory.
                assert_eq!(unsafe { libc::unshare(flags) }, 0);
                std::env::set_current_dir(path).expect("chdir");
                umask(Mode::from_bits_truncate(0o77));
                assert_eq!(ask(0, 4), 0o77);
                assert_eq!(ask(0, 1), i64::from(std::process::id()));
                // SAFETY: the number is this thread's own table's.
                unsafe { libc::close(number) };
                assert_eq!(ask(number as u64, 5), i64::from(libc::EBADF));
            })
            .join()
            .expect("a thread");
            assert_eq!(ask(number as u64, 2), 1);
        },
        |caller| match caller.call.arguments[1] {
            0 => i64::from(caller.umask().expect("a mask")),
            1 => i64::from(caller.group().expect("a process")),
            2 => {
                let copy = caller.descriptor(caller.int(0)).expect("a descriptor");
                let stat = fstat(&copy).expect("fstat");
                assert_eq!(stat.st_rdev, null_stat.st_rdev);
                let flags = nix::fcntl::fcntl(&copy, nix::fcntl::FcntlArg::F_GETFD).expect("flags");
                assert_eq!(flags, libc::FD_CLOEXEC);
                1
            }
            4 => {
                use std::os::unix::fs::MetadataExt;
                let stat = fstat(caller.directory().expect("a directory")).expect("fstat");
                assert_eq!((stat.st_dev, stat.st_ino), (id.dev(), id.ino()));
                i64::from(caller.umask().expect("a mask"))
            }
            case => {
                let error = caller.descriptor(caller.int(0));
                if case == 5 && error.is_ok() {
                    eprintln!(
                        "not checked: a thread's own descriptors: this kernel is older than 6.9"
                    );
                    return i64::from(libc::EBADF);
                }
                i64::from(errno(error))
            }
        },
    );
}

#[test]
fn of_a_process_that_cannot_be_traced_nothing_is_read() {
    if nix::unistd::geteuid().is_root() {
        println!("not checked: untraceable callers: root traces them");
        return;
    }
    with_caller(
        || {
            let path = c"/etc/passwd";
            assert_eq!(ask(path.as_ptr() as u64, 0), 1);
            prctl::set_dumpable(false).expect("prctl");
            assert_eq!(ask(path.as_ptr() as u64, 1), 2);
        },
        |caller| {
            let [address, case, ..] = caller.call.arguments;
            if case == 0 {
                assert_eq!(caller.path(address).expect("a path"), b"/etc/passwd");
                return 1;
            }
            assert_eq!(errno(caller.path(address)), libc::EFAULT);
            assert_eq!(errno(caller.write(address, b"x")), libc::EFAULT);
            assert_eq!(errno(caller.descriptor(0)), libc::EACCES);
            assert_eq!(errno(caller.directory()), libc::EACCES);
            2
        },
    );
}

#[test]
fn of_a_caller_that_is_gone_nothing_is_taken() {
    with_caller(
        || {
            let killed = child(|| {
                let _ = ask(c"path".as_ptr() as u64, 0);
            });
            let _ = wait(killed);
        },
        |caller| {
            assert!(caller.is_waiting());
            let address = caller.call.arguments[0];
            assert_eq!(caller.path(address).expect("a path"), b"path");
            let process = nix::unistd::Pid::from_raw(caller.call.thread);
            nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL).expect("kill");
            crate::jail::until("the caller's end", || !caller.is_waiting());
            for done in [
                errno(caller.path(address)),
                errno(caller.write(address, b"x")),
                errno(caller.descriptor(0)),
                errno(caller.directory()),
                errno(caller.umask()),
                errno(caller.group()),
            ] {
                assert_eq!(done, libc::ESRCH);
            }
            let interrupted = || Err::<(), _>(std::io::ErrorKind::Interrupted.into());
            assert!(caller.patiently(interrupted).is_err());
            0
        },
    );
}

/// The number of a caller that is gone may be another's: nothing of that one is taken for the caller's.
#[test]
fn a_number_that_has_become_anothers_is_noticed() {
    with_listener(
        || {
            let killed = child(|| {
                let _ = ask(0, 0);
            });
            let _ = wait(killed);
        },
        |caller, listener| {
            let process = nix::unistd::Pid::from_raw(caller.call.thread);
            nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL).expect("kill");
            crate::jail::until("the caller's end", || !caller.is_waiting());
            // As if this process had got the number by now.
            let mut call = caller.call;
            call.thread = std::process::id().cast_signed();
            let other = Caller::new(call, Arc::clone(listener));
            let secret = c"secret";
            assert_eq!(errno(other.path(secret.as_ptr() as u64)), libc::ESRCH);
            assert_eq!(errno(other.descriptor(0)), libc::ESRCH);
            assert_eq!(errno(other.directory()), libc::ESRCH);
            assert_eq!(errno(other.umask()), libc::ESRCH);
            0
        },
    );
}
