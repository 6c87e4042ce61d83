//! Arriving, asking, and leaving.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::time::Duration;

use agent_sandbox::share::join_socket::{StepId, accept, same_user};
use agent_sandbox::sys::process::{self, Side};
use agent_sandbox_support::not_checked;
use agent_sandbox_support::waiting::until;
use nix::fcntl::{FcntlArg, FdFlag, Flock, FlockArg, OFlag, fcntl};
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket,
};

use crate::world::{Child, World, hear, place, readable, uid};

const SHORT: Duration = Duration::from_millis(50);

#[test]
fn the_first_is_its_own_first_member() {
    let world = World::new();
    let first = world.first(StepId::Batch);
    assert!(readable(&first.listener, 0));
    let own = accept(&first.listener).unwrap().unwrap();
    assert!(accept(&first.listener).unwrap().is_none());
    let member = world.member(StepId::Batch);
    let accepted = accept(&first.listener).unwrap().unwrap();
    assert_eq!(same_user(&accepted, uid()).unwrap().uid, uid());
    assert_eq!(
        same_user(&member, uid()).unwrap().pid.unsigned_abs(),
        std::process::id()
    );
    assert!(same_user(&member, uid() + 1).is_err());
    drop((member, own));
    assert!(first.claim.retire(&first.listener).unwrap().is_none());
    assert_eq!(world.names(&world.base(0)), [""; 0]);
}

#[test]
fn nobody_who_waits_is_left_behind() {
    let world = World::new();
    let first = world.first(StepId::Batch);
    drop(accept(&first.listener).unwrap().unwrap());
    let _member = world.member(StepId::Batch);
    assert!(first.claim.retire(&first.listener).unwrap().is_some());
    assert!(first.claim.retire(&first.listener).unwrap().is_none());
    // While the old listener is open, as at any other time.
    let next = world.first(StepId::Batch);
    assert!(readable(&next.listener, 0));
    assert!(!readable(&first.listener, 0));
}

#[test]
fn rooms_list_those_before_them() {
    let world = World::new();
    let interactive = StepId::Step(4_294_967_290);
    let batch = world.first(StepId::Batch);
    let step = world.first(StepId::Step(0));
    let last = world.first(interactive);
    assert_eq!(batch.earlier, []);
    assert_eq!(step.earlier, [StepId::Batch]);
    assert_eq!(last.earlier, [StepId::Batch, StepId::Step(0)]);
    drop(accept(&batch.listener).unwrap());
    assert!(batch.claim.retire(&batch.listener).unwrap().is_none());
    // One that was killed is not listed.
    drop(step);
    let again = world.first(StepId::Batch);
    assert_eq!(again.earlier, [interactive]);
    let names = world.names(&world.job());
    assert_eq!(
        names,
        ["0000000003.step-4294967290", "0000000004.batch", "lock"]
    );
}

#[test]
fn other_rooms_can_be_asked() {
    let world = World::new();
    let ask = |job, step| world.join_directories().ask(&place(job), step).unwrap();
    assert!(ask(7, StepId::Batch).is_none());
    let first = world.first(StepId::Batch);
    assert!(ask(7, StepId::Batch).is_some());
    assert!(ask(7, StepId::Step(0)).is_none());
    assert!(ask(8, StepId::Batch).is_none());
    drop(first);
    assert!(ask(7, StepId::Batch).is_none());
}

#[test]
fn what_a_killed_server_left_is_replaced() {
    let world = World::new();
    drop(world.first(StepId::Batch));
    assert_eq!(world.names(&world.job()), ["0000000001.batch", "lock"]);
    // Neither does a file that is no socket stand in the way.
    std::fs::write(world.job().join("0000000009.batch"), "").unwrap();
    let _first = world.first(StepId::Batch);
    assert_eq!(world.names(&world.job()), ["0000000001.batch", "lock"]);
    world.member(StepId::Batch);
}

#[test]
fn what_was_left_long_ago_is_removed() {
    let world = World::new();
    drop(world.first(StepId::Batch));
    let living = world
        .join_directories()
        .arrive(&place(9), StepId::Batch)
        .unwrap();
    let old = std::time::SystemTime::now() - Duration::from_secs(4 * 24 * 3600);
    let age = |job: &str| {
        let directory = std::fs::File::open(world.base(0).join(job)).unwrap();
        directory.set_modified(old).unwrap();
    };
    age("n1.9");
    let _recent = world
        .join_directories()
        .arrive(&place(8), StepId::Batch)
        .unwrap();
    assert_eq!(world.names(&world.base(0)), ["n1.7", "n1.8", "n1.9"]);
    age("n1.7");
    let _third = world
        .join_directories()
        .arrive(&place(6), StepId::Batch)
        .unwrap();
    assert_eq!(world.names(&world.base(0)), ["n1.6", "n1.8", "n1.9"]);
    drop(living);
}

/// A cleaner of `/tmp` at work.
#[test]
fn a_directory_that_is_removed_is_made_again() {
    let world = World::new();
    let first = world.first(StepId::Batch);
    std::fs::remove_dir_all(world.base(0)).unwrap();
    let next = world.first(StepId::Batch);
    drop(accept(&first.listener).unwrap());
    assert!(first.claim.retire(&first.listener).unwrap().is_none());
    assert!(readable(&next.listener, 0));
    world.member(StepId::Batch);
    // The lock alone.
    std::fs::remove_file(world.job().join("lock")).unwrap();
    world.member(StepId::Batch);
    assert!(next.claim.retire(&next.listener).unwrap().is_some());
}

#[test]
fn who_was_stopped_is_named() {
    let world = World::new();
    let first = world.first(StepId::Batch);
    let arrive = || world.patient(SHORT).arrive(&place(7), StepId::Batch);
    let file = std::fs::File::open(world.job().join("lock")).unwrap();
    let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).unwrap();
    let message = format!("{:#}", arrive().unwrap_err());
    let named = format!("process {} holds the lock", std::process::id());
    assert!(message.contains(&named), "{message}");
    drop(lock);
    // The queue of a server that accepts nobody.
    listen(&first.listener, Backlog::new(0).unwrap()).unwrap();
    let message = format!("{:#}", arrive().unwrap_err());
    assert!(
        message.contains("the step batch accepts nobody"),
        "{message}"
    );
    assert!(world.patient(SHORT).ask(&place(7), StepId::Batch).is_err());
    let _other = world.first(StepId::Step(1));
    accept(&first.listener).unwrap();
    world
        .join_directories()
        .arrive(&place(7), StepId::Batch)
        .unwrap();
}

#[test]
fn no_program_inherits_a_descriptor() {
    let world = World::new();
    let first = world.first(StepId::Batch);
    let member = world.member(StepId::Batch);
    let accepted = accept(&first.listener).unwrap().unwrap();
    let mut all = first.claim.descriptors().to_vec();
    all.extend([&first.listener, &first.connection, &member, &accepted].map(AsRawFd::as_raw_fd));
    let count = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let ours = world.path().to_string_lossy().into_owned();
    for entry in count {
        // No other descriptor leads to the directory of join sockets.
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        let number: i32 = entry.file_name().to_str().unwrap().parse().unwrap();
        assert!(
            !target.starts_with(&ours) || all.contains(&number),
            "{target:?}"
        );
    }
    for line in std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten() {
        let number: i32 = line.file_name().to_str().unwrap().parse().unwrap();
        if all.contains(&number) {
            let text = std::fs::read_to_string(line.path()).unwrap();
            let flags = text
                .lines()
                .find_map(|l| l.strip_prefix("flags:\t"))
                .unwrap();
            let flags = i32::from_str_radix(flags, 8).unwrap();
            assert!(flags & OFlag::O_CLOEXEC.bits() != 0, "{number}: {text}");
        }
    }
    for connection in [&first.connection, &member, &accepted] {
        let flags = fcntl(connection, FcntlArg::F_GETFL).unwrap();
        assert_eq!(flags & OFlag::O_NONBLOCK.bits(), 0);
        let flags = fcntl(connection, FcntlArg::F_GETFD).unwrap();
        assert_eq!(flags, FdFlag::FD_CLOEXEC.bits());
    }
}

/// Whoever connects sees the server, not the process that forked it.
#[test]
fn a_forked_server_says_so() {
    let world = World::new();
    let first = world.first(StepId::Batch);
    let mut server = Child::new(|line| {
        first.claim.keep(&first.listener).unwrap();
        line.write_all(b"!").unwrap();
        let _ = hear(line);
    });
    server.hear();
    let member = world.member(StepId::Batch);
    assert_eq!(same_user(&member, uid()).unwrap().pid, server.pid.as_raw());
}

/// A process in a pid namespace as every jail has one, on either side.
#[test]
fn a_jail_is_recognised_on_both_sides() {
    let world = World::new();
    let first = world.first(StepId::Batch);
    let own = accept(&first.listener).unwrap().unwrap();
    let known = UnixAddr::new(&world.job().join("0000000001.batch")).unwrap();
    let forged = world.job().join("0000000002.step-3");
    let making = world.job().join("making");
    let made_at = UnixAddr::new(&making).unwrap();
    let inside = || {
        let flags = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID;
        unshare(flags).ok()?;
        match process::fork().ok()? {
            Side::Parent(_) => std::thread::sleep(Duration::from_secs(60)),
            Side::Child => {
                let made = || {
                    socket(
                        AddressFamily::Unix,
                        SockType::SeqPacket,
                        SockFlag::SOCK_CLOEXEC,
                        None,
                    )
                };
                let (one, two) = (made().ok()?, made().ok()?);
                connect(one.as_raw_fd(), &known).ok()?;
                bind(two.as_raw_fd(), &made_at).ok()?;
                listen(&two, Backlog::new(8).ok()?).ok()?;
                // Who sees its name finds somebody who listens.
                std::fs::rename(&making, &forged).ok()?;
                std::thread::sleep(Duration::from_secs(60));
                drop((one, two));
            }
        }
        Some(())
    };
    let _jail = Child::new(|_| {
        inside();
    });
    let arrived = readable(&first.listener, 5000);
    if !arrived {
        not_checked(
            "processes of a jail at the join socket",
            "no user namespaces",
        );
        return;
    }
    let connection = accept(&first.listener).unwrap().unwrap();
    let error = same_user(&connection, uid()).unwrap_err();
    assert!(error.to_string().contains("inside a jail"), "{error}");
    let bound = || {
        world
            .names(&world.job())
            .contains(&"0000000002.step-3".to_owned())
    };
    until("the second socket", bound);
    let error = world
        .join_directories()
        .arrive(&place(7), StepId::Step(3))
        .unwrap_err();
    assert!(format!("{error:#}").contains("inside a jail"), "{error:#}");
    drop(own);
}
