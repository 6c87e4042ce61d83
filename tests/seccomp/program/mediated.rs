//! The program that hands calls over to the mediator, against its meaning written down once more.

use std::collections::BTreeMap;

use agent_sandbox::seccomp::program::{Filter, Verdict, refused};
use agent_sandbox::seccomp::watched;
use agent_sandbox_landlock::access::HandedOver;
use agent_sandbox_landlock::handed_over;

use super::*;

const NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;

/// When a call is handed over.
#[derive(Clone, Copy, Debug)]
enum Handed {
    Always,
    Never,
    /// With one of these flags in this argument.
    Flags(usize, u64),
    /// With this argument of this value.
    Int(usize, u64),
    /// Unless the first argument is 0.
    NotZero(usize),
    /// Unless the first argument is this and the second is 0.
    NotSelf(u64),
}

impl Handed {
    fn holds(self, arguments: &Arguments) -> bool {
        let int = |index: usize| arguments[index] & 0xffff_ffff;
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Flags(index, bits) => int(index) & bits != 0,
            Self::Int(index, value) => int(index) == value,
            Self::NotZero(index) => int(index) != 0,
            Self::NotSelf(process) => int(0) != process || int(1) != 0,
        }
    }
}

fn when(condition: bool) -> Handed {
    if condition {
        Handed::Always
    } else {
        Handed::Never
    }
}

/// The meaning. Flags in octal, as include/uapi/asm-generic/fcntl.h has them.
fn meaning(which: HandedOver) -> BTreeMap<i64, Handed> {
    let opening = |index| {
        let mut bits = 0;
        if which.changes {
            // O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, __O_TMPFILE
            bits |= 0o1 | 0o2 | 0o100 | 0o1000 | 0o20_000_000;
        }
        if which.truncations {
            bits |= 0o1000;
        }
        if which.listings {
            bits |= u64::from(libc::O_DIRECTORY.unsigned_abs());
        }
        match which.opens {
            true => Handed::Always,
            false => Handed::Flags(index, bits),
        }
    };
    let mut all = BTreeMap::from([
        (libc::SYS_connect, Handed::Always),
        (libc::SYS_listen, when(which.listens)),
        // TIOCGPTPEER
        (libc::SYS_ioctl, Handed::Int(1, 0x5441)),
        (libc::SYS_inotify_add_watch, Handed::Always),
        (libc::SYS_prlimit64, Handed::NotZero(0)),
        (libc::SYS_sched_setaffinity, Handed::NotZero(0)),
        (libc::SYS_sched_setscheduler, Handed::NotZero(0)),
        (libc::SYS_sched_setparam, Handed::NotZero(0)),
        (libc::SYS_sched_setattr, Handed::NotZero(0)),
        (libc::SYS_setpgid, Handed::NotZero(1)),
        (libc::SYS_setpriority, Handed::NotSelf(0)),
        (libc::SYS_ioprio_set, Handed::NotSelf(1)),
        (libc::SYS_openat, opening(2)),
        (libc::SYS_truncate, when(which.changes || which.truncations)),
    ]);
    let modes = [
        libc::SYS_fchmod,
        libc::SYS_fchmodat,
        452, // fchmodat2
        libc::SYS_fchown,
        libc::SYS_fchownat,
        libc::SYS_utimensat,
        libc::SYS_setxattr,
        libc::SYS_lsetxattr,
        libc::SYS_fsetxattr,
        463, // setxattrat
        libc::SYS_removexattr,
        libc::SYS_lremovexattr,
        libc::SYS_fremovexattr,
        466, // removexattrat
    ];
    all.extend(modes.map(|number| (number, Handed::Always)));
    let changes = [
        libc::SYS_bind,
        libc::SYS_mkdirat,
        libc::SYS_mknodat,
        libc::SYS_symlinkat,
        libc::SYS_linkat,
        libc::SYS_renameat,
        libc::SYS_renameat2,
        libc::SYS_unlinkat,
    ];
    all.extend(changes.map(|number| (number, when(which.changes))));
    let signals = [
        libc::SYS_kill,
        libc::SYS_tkill,
        libc::SYS_tgkill,
        libc::SYS_rt_sigqueueinfo,
        libc::SYS_rt_tgsigqueueinfo,
        libc::SYS_pidfd_send_signal,
    ];
    all.extend(signals.map(|number| (number, when(which.signals))));
    all.insert(libc::SYS_execve, when(which.executions));
    #[cfg(target_arch = "x86_64")]
    {
        let modes = [
            libc::SYS_chmod,
            libc::SYS_chown,
            libc::SYS_lchown,
            libc::SYS_utime,
            libc::SYS_utimes,
            libc::SYS_futimesat,
        ];
        all.extend(modes.map(|number| (number, Handed::Always)));
        let changes = [
            libc::SYS_mkdir,
            libc::SYS_mknod,
            libc::SYS_symlink,
            libc::SYS_link,
            libc::SYS_rename,
            libc::SYS_unlink,
            libc::SYS_rmdir,
        ];
        all.extend(changes.map(|number| (number, when(which.changes))));
        all.insert(libc::SYS_open, opening(1));
        all.insert(libc::SYS_creat, when(which.changes || which.opens));
    }
    all
}

/// Every combination of the switches.
fn every_combination() -> impl Iterator<Item = HandedOver> {
    (0..1 << 7).map(|bits: u32| HandedOver {
        changes: bits & 1 != 0,
        listings: bits & 2 != 0,
        opens: bits & 4 != 0,
        signals: bits & 8 != 0,
        truncations: bits & 16 != 0,
        executions: bits & 32 != 0,
        listens: bits & 64 != 0,
    })
}

fn compiled(which: HandedOver) -> Program {
    Program::from_bytes(&handed_over::program(which))
}

/// Arguments that decide something, with and without high halves, which the kernel drops.
fn arguments() -> Vec<Arguments> {
    let mut all = vec![[0; 6], [u64::MAX; 6], [2; 6], [0xffff_ffff; 6]];
    for index in 0..3 {
        for bit in 0..32 {
            let mut one = [0; 6];
            one[index] = 1 << bit;
            all.push(one);
            one[index] = !(1 << bit);
            all.push(one);
        }
    }
    all.extend([0x5440, 0x5441, 0x5442].map(|command| [3, command, 2, 0, 0, 0]));
    // setpriority(2) and ioprio_set(2): who is meant by what.
    for which in 0..4 {
        all.extend([0, 1, 77].map(|who| [which, who, 5, 0, 0, 0]));
    }
    let high = [0, 1 << 32, 1 << 63, 0xffff_ffff_0000_0000];
    high.iter()
        .flat_map(|high| all.iter().map(move |one| one.map(|value| value | high)))
        .collect()
}

#[test]
fn exactly_what_is_meant_is_handed_over() {
    let (arguments, few) = (arguments(), [[0; 6], [1; 6], [u64::MAX; 6]]);
    for which in every_combination() {
        let (program, meaning) = (compiled(which), meaning(which));
        for number in (0..600).chain([0xffff, u32::MAX]) {
            let known = meaning.get(&i64::from(number));
            let handed = *known.unwrap_or(&Handed::Never);
            for arguments in known.map_or(&few[..], |_| &arguments) {
                let expected = if handed.holds(arguments) {
                    NOTIFY
                } else {
                    ALLOW
                };
                assert_eq!(
                    program.says(number, arguments),
                    expected,
                    "{which:?} {number} {handed:?} {arguments:x?}"
                );
            }
        }
    }
}

/// A run that is watched hands over all that another does, and what is watched, whatever its arguments.
#[test]
fn who_watches_is_handed_no_less() {
    let list = [libc::SYS_openat, libc::SYS_statx, libc::SYS_chdir];
    let arguments = arguments();
    for which in every_combination() {
        let with = Program::from_bytes(&handed_over::watching(which, &list));
        let alone = compiled(which);
        well_formed(&with);
        for number in 0..600u32 {
            let is_watched = list.contains(&i64::from(number));
            for arguments in arguments.iter().step_by(61) {
                let expected = match is_watched {
                    true => NOTIFY,
                    false => alone.says(number, arguments),
                };
                assert_eq!(with.says(number, arguments), expected, "{which:?} {number}");
            }
        }
    }
    let nothing_else = Program::from_bytes(&watched::program(&list));
    well_formed(&nothing_else);
    for number in 0..600u32 {
        let expected = match list.contains(&i64::from(number)) {
            true => NOTIFY,
            false => ALLOW,
        };
        assert_eq!(nothing_else.says(number, &[0; 6]), expected, "{number}");
        let foreign = nothing_else.run(0x4000_0003, number, &[1; 6]);
        assert_eq!(foreign, refused_with(Answer::NoSys));
    }
}

/// The flags of an unnamed file include `O_DIRECTORY`, and opening a directory is none of the changes.
#[test]
fn a_directory_is_handed_over_for_listings_alone() {
    let openat = u32::try_from(libc::SYS_openat).expect("a small number");
    let says = |which, flags: i32| {
        compiled(which).says(openat, &[0, 0, u64::from(flags.unsigned_abs()), 0, 0, 0])
    };
    let (changes, listings) = (
        HandedOver {
            changes: true,
            ..HandedOver::default()
        },
        HandedOver {
            listings: true,
            ..HandedOver::default()
        },
    );
    let directory = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    assert_eq!(says(changes, directory), ALLOW);
    assert_eq!(says(listings, directory), NOTIFY);
    assert_eq!(says(changes, libc::O_TMPFILE), NOTIFY);
    assert_eq!(says(listings, libc::O_WRONLY | libc::O_CREAT), ALLOW);
}

#[test]
fn foreign_calls_are_handed_to_nobody() {
    for which in every_combination() {
        let program = compiled(which);
        let no_such_call = refused_with(Answer::NoSys);
        for call in 0..600 {
            // AUDIT_ARCH_I386
            assert_eq!(program.run(0x4000_0003, call, &[1; 6]), no_such_call);
            #[cfg(target_arch = "x86_64")]
            assert_eq!(program.says(call | 0x4000_0000, &[1; 6]), no_such_call);
        }
    }
}

/// What programs call most is decided by the number alone, so that the kernel runs no filter for it.
#[test]
fn the_ordinary_calls_look_at_no_argument() {
    let all = HandedOver {
        changes: true,
        listings: true,
        opens: true,
        signals: true,
        truncations: true,
        executions: true,
        listens: true,
    };
    let Program(program) = compiled(all);
    let ordinary = [
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_close,
        libc::SYS_fstat,
        libc::SYS_newfstatat,
        libc::SYS_statx,
        libc::SYS_lseek,
        libc::SYS_mmap,
        libc::SYS_getppid,
        libc::SYS_getdents64,
        libc::SYS_readlinkat,
        libc::SYS_faccessat2,
        libc::SYS_futex,
        libc::SYS_epoll_pwait,
        libc::SYS_sendmsg,
        libc::SYS_recvmsg,
        libc::SYS_fcntl,
        libc::SYS_clone,
    ];
    // Without its loads of arguments the program would be the same to them.
    let mut blind = program.clone();
    for instruction in &mut blind {
        if instruction.code == LOAD && instruction.k >= 16 {
            *instruction = libc::sock_filter {
                code: RETURN,
                jt: 0,
                jf: 0,
                k: 0,
            };
        }
    }
    for number in ordinary {
        let number = u32::try_from(number).expect("a small number");
        assert_eq!(Program(blind.clone()).says(number, &[0; 6]), ALLOW);
    }
}

#[test]
fn the_programs_are_well_formed_and_small() {
    for which in every_combination() {
        let program = compiled(which);
        well_formed(&program);
        assert!(program.0.len() < 200, "{which:?}: {}", program.0.len());
    }
    let largest = every_combination().map(|which| compiled(which).0.len());
    println!("{:?} instructions at most", largest.max());
}

/// A tree that is too large for the short form of a jump finds every number too.
#[test]
fn a_large_tree_finds_every_number() {
    let mut filter = Filter::default();
    for number in 0..1500 {
        filter.set(number * 2, Verdict::always(refused(number as i32 + 1)));
    }
    let program = Program::from_bytes(&filter.compile());
    well_formed(&program);
    for number in 0..3100 {
        let expected = match number % 2 == 0 && number < 3000 {
            true => libc::SECCOMP_RET_ERRNO | (number / 2 + 1),
            false => ALLOW,
        };
        assert_eq!(program.says(number, &[0; 6]), expected, "{number}");
    }
}
