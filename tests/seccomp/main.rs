//! The compiled seccomp program against the running kernel, as any user and without bubblewrap: a
//! child installs it, makes the call, and reports what the kernel answered. Most tests also make the
//! call without the program, so that an answer of the kernel's own is not taken for the filter's.

#![allow(unsafe_code)] // a test: raw system calls with arguments that no safe wrapper would pass
#![allow(clippy::disallowed_methods)] // a test: starts processes and threads

mod bypass;
mod handed_over;
mod harness;
mod landlock;
mod maker;
mod program;
mod programs;
mod set_id;
mod sockets;
mod tasks;
mod terminal;

use std::ffi::c_int;

use agent_sandbox::plan::build::syscalls::rules;
use agent_sandbox::plan::model::syscalls::{Arguments, When};
use agent_sandbox::seccomp::number;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use harness::{
    FILTERED, HIGH_BIT, ISOLATED, KEYCTL, LANDLOCK, NESTED, Outcome, STRICT, after, answer, call,
    declare, errno, pointer, raw, under, unsigned,
};

/// Arguments under which `when` holds, and of which the kernel itself could make nothing.
fn example(when: When, arguments: &mut Arguments) {
    match when {
        When::Always => {}
        When::ArgMasked {
            index,
            mask,
            equals,
            ..
        } => {
            arguments[usize::from(index)] = equals | !mask;
        }
        When::ArgAnyBit { index, bits, .. } => arguments[usize::from(index)] = bits,
        When::ArgNotIn { index, values, .. } => {
            let other = values.iter().fold(0, |most, value| (*value).max(most)) ^ 0x40;
            arguments[usize::from(index)] = other | HIGH_BIT;
        }
        When::All(conditions) => conditions.iter().for_each(|one| example(*one, arguments)),
    }
}

/// Every rule of the table is answered by the kernel as the table says, with high bits set.
#[test]
fn every_rule_is_enforced() {
    for switches in [STRICT, NESTED, KEYCTL, LANDLOCK, ISOLATED, FILTERED] {
        for rule in rules(switches) {
            let Some(number) = number(rule.name).expect("a known name") else {
                continue;
            };
            let mut arguments = [u64::MAX; 6];
            example(rule.when, &mut arguments);
            assert!(rule.when.holds(&arguments), "{}: {arguments:x?}", rule.name);
            // Without a terminal of its own the child could harm none if a rule did not hold.
            let result = after(Some(switches), nix::unistd::setsid, |_| {
                raw(number, &arguments)
            });
            assert_eq!(result, answer(rule.answer), "{} ({})", rule.name, rule.when);
        }
    }
}

/// What the table does not name answers as without the filter.
#[test]
fn other_calls_are_left_alone() {
    let calls: &[(i64, &[u64])] = &[
        (libc::SYS_perf_event_open, &[0, 0, 0, 0, 0]),
        (libc::SYS_set_mempolicy, &[0, 0, 0]),
        (libc::SYS_mbind, &[1, 1, 0, 0, 0, 0]),
        (libc::SYS_landlock_create_ruleset, &[0, 0, 1]),
        (libc::SYS_seccomp, &[99, 0, 0]),
        (libc::SYS_name_to_handle_at, &[u64::MAX, 0, 0, 0, 0]),
        (libc::SYS_io_setup, &[0, 0]),
        (libc::SYS_vmsplice, &[u64::MAX, 0, 0, 0]),
        (libc::SYS_pidfd_getfd, &[u64::MAX, 0, 0]),
        (libc::SYS_process_madvise, &[u64::MAX, 0, 0, 0, 0]),
        (libc::SYS_adjtimex, &[0]),
        (
            libc::SYS_unshare,
            &[(libc::CLONE_FS | libc::CLONE_FILES) as u64],
        ),
        (451, &[u64::MAX, 0, 0, 0]), // cachestat
        (457, &[0, 0, 0, 0]),        // statmount
        (458, &[0, 0, 0, 0]),        // listmount
        (4000, &[]),                 // a call that no kernel has yet
    ];
    for (number, arguments) in calls {
        let plain = under(None, || call(*number, arguments));
        assert_eq!(
            under(STRICT, || call(*number, arguments)),
            plain,
            "call {number}"
        );
    }
}

/// clone(2) with `flags`; the new process ends at once and is waited for.
fn clone(flags: c_int) -> i64 {
    let result = call(
        libc::SYS_clone,
        &[unsigned(flags | libc::SIGCHLD), 0, 0, 0, 0],
    );
    match result {
        // SAFETY: the new process, ended at once.
        0 => unsafe { libc::_exit(0) },
        1.. => {
            let _ = waitpid(Pid::from_raw(result as i32), None);
            0
        }
        refused => refused,
    }
}

#[test]
fn namespaces_follow_the_switch() {
    let new_user = || clone(libc::CLONE_NEWUSER);
    let unshare = || call(libc::SYS_unshare, &[unsigned(libc::CLONE_NEWUSER)]);
    let unshare_time = || call(libc::SYS_unshare, &[unsigned(libc::CLONE_NEWTIME)]);
    assert_eq!(under(STRICT, new_user), errno(libc::EPERM));
    assert_eq!(under(STRICT, unshare), errno(libc::EPERM));
    assert_eq!(under(STRICT, unshare_time), errno(libc::EPERM));
    assert_eq!(
        under(STRICT, || clone(0)),
        Outcome::Returned(0),
        "a plain child"
    );

    for (name, call) in [
        ("clone", &new_user as &dyn Fn() -> i64),
        ("unshare", &unshare),
    ] {
        let plain = under(None, call);
        assert_eq!(under(NESTED, call), plain, "{name}");
        if plain != Outcome::Returned(0) {
            declare("this host refuses user namespaces by itself");
        }
    }
    // A file that is no namespace: EINVAL from the kernel.
    let setns = || call(libc::SYS_setns, &[0, 0]);
    assert_eq!(under(STRICT, setns), errno(libc::EPERM));
    assert_eq!(under(NESTED, setns), under(None, setns));
}

#[test]
fn clone3_is_not_there() {
    // A size of 0: EINVAL from the kernel.
    let clone3 = || call(libc::SYS_clone3, &[0, 0]);
    assert_eq!(under(None, clone3), errno(libc::EINVAL));
    assert_eq!(under(STRICT, clone3), errno(libc::ENOSYS));
    assert_eq!(under(NESTED, clone3), errno(libc::ENOSYS));
}

#[test]
fn mounts_follow_the_switch() {
    /// A child that may mount, in namespaces of its own; whether this host lets it.
    fn may_mount() -> bool {
        call(
            libc::SYS_unshare,
            &[unsigned(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)],
        ) == 0
    }
    const NOT_PERMITTED_BY_HOST: i64 = i64::MIN;
    let mount = || {
        let (kind, place) = (c"tmpfs", c"/tmp");
        call(
            libc::SYS_mount,
            &[pointer(kind), pointer(place), pointer(kind), 0, 0],
        )
    };
    let fsopen = || call(libc::SYS_fsopen, &[pointer(c"tmpfs"), 0]).min(0);
    let open_tree = || {
        const OPEN_TREE_CLONE: u64 = 1;
        let at = libc::AT_FDCWD as u64;
        call(
            libc::SYS_open_tree,
            &[at, pointer(c"/tmp"), OPEN_TREE_CLONE],
        )
        .min(0)
    };
    let chroot = || call(libc::SYS_chroot, &[pointer(c"/tmp")]);
    let calls: [(&str, &dyn Fn() -> i64); 4] = [
        ("mount", &mount),
        ("fsopen", &fsopen),
        ("open_tree", &open_tree),
        ("chroot", &chroot),
    ];
    for (name, call) in calls {
        let privileged = |switches| {
            after(switches, may_mount, |may| {
                if may { call() } else { NOT_PERMITTED_BY_HOST }
            })
        };
        match privileged(None) {
            Outcome::Returned(0) => {
                assert_eq!(privileged(Some(NESTED)), Outcome::Returned(0), "{name}");
                assert_eq!(privileged(Some(STRICT)), errno(libc::EPERM), "{name}");
            }
            refused => {
                declare("this host permits no mounts in user namespaces");
                assert_eq!(privileged(Some(NESTED)), refused, "{name}");
            }
        }
    }
}

#[test]
fn keyrings_follow_the_switch() {
    // An operation that does not exist: EOPNOTSUPP from the kernel.
    let keyctl = || call(libc::SYS_keyctl, &[9999]);
    let add_key = || call(libc::SYS_add_key, &[0, 0, 0, 0, 0]);
    let request_key = || call(libc::SYS_request_key, &[0, 0, 0, 0]);
    let calls: [(&str, &dyn Fn() -> i64); 3] = [
        ("keyctl", &keyctl),
        ("add_key", &add_key),
        ("request_key", &request_key),
    ];
    for (name, call) in calls {
        assert_eq!(under(STRICT, call), errno(libc::ENOSYS), "{name}");
        assert_eq!(under(NESTED, call), errno(libc::ENOSYS), "{name}");
        let plain = under(None, call);
        assert_eq!(under(KEYCTL, call), plain, "{name}");
        if plain == errno(libc::ENOSYS) {
            declare("this kernel has no keyrings");
        }
    }
}
