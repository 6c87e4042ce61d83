//! The compiled program, evaluated by an interpreter over (architecture, number, arguments).

mod mediated;
mod rules;
mod set_id;

use std::collections::BTreeSet;

use agent_sandbox::plan::build::syscalls::{Switches, rules};
use agent_sandbox::plan::model::syscalls::{Answer, Arguments, SyscallRule, When};
use agent_sandbox::policy::NetworkMode;
use agent_sandbox::seccomp::numbers::names;
use agent_sandbox::seccomp::{INSTRUCTION_BYTES, SeccompError, compile, lacking, number};
use agent_sandbox_landlock::refused::besides;

use crate::harness::{NESTED, STRICT};

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
/// AUDIT_ARCH_X86_64 or AUDIT_ARCH_AARCH64, include/uapi/linux/audit.h.
const ARCH: u32 = if cfg!(target_arch = "x86_64") {
    0xc000_003e
} else {
    0xc000_00b7
};
/// BPF_LD | BPF_W | BPF_ABS, include/uapi/linux/bpf_common.h.
const LOAD: u16 = 0x20;
/// BPF_RET | BPF_K.
const RETURN: u16 = 0x06;

/// What the policy can switch, with and without the rules that Landlock's jail has besides.
fn every_switch() -> impl Iterator<Item = Switches> {
    let switches = |besides| {
        move |(nested, keyctl)| Switches {
            nested,
            keyctl,
            // Each with and without one.
            mediated: keyctl,
            besides,
        }
    };
    [(false, false), (false, true), (true, false), (true, true)]
        .into_iter()
        .map(switches(&[]))
        .chain([(false, false), (false, true)].map(switches(besides(NetworkMode::Isolated))))
        .chain([(false, false), (false, true)].map(switches(besides(NetworkMode::Filtered))))
        .chain([(false, true), (false, false)].map(switches(besides(NetworkMode::Open))))
}

fn refused_with(answer: Answer) -> u32 {
    let errno = match answer {
        Answer::Perm => libc::EPERM,
        Answer::NoSys => libc::ENOSYS,
        Answer::NoFamily => libc::EAFNOSUPPORT,
        Answer::NoProtocol => libc::EPROTONOSUPPORT,
        Answer::NoSupport => libc::EOPNOTSUPP,
    };
    libc::SECCOMP_RET_ERRNO | errno.unsigned_abs()
}

/// A compiled program and an interpreter for it, written from the kernel's description of classic
/// BPF (Documentation/networking/filter.rst) and not from the generator.
#[derive(Clone)]
struct Program(Vec<libc::sock_filter>);

impl Program {
    fn of(switches: Switches) -> Self {
        Self::from_rules(&rules(switches))
    }

    fn from_rules(rules: &[SyscallRule]) -> Self {
        Self::from_bytes(&compile(rules).expect("rules compile"))
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let instruction = |raw: &[u8]| libc::sock_filter {
            code: u16::from_ne_bytes(raw[..2].try_into().expect("two bytes")),
            jt: raw[2],
            jf: raw[3],
            k: u32::from_ne_bytes(raw[4..].try_into().expect("four bytes")),
        };
        Self(bytes.chunks(INSTRUCTION_BYTES).map(instruction).collect())
    }

    /// What the program says to a call on this architecture.
    fn says(&self, number: u32, arguments: &Arguments) -> u32 {
        self.run(ARCH, number, arguments)
    }

    fn run(&self, arch: u32, number: u32, arguments: &Arguments) -> u32 {
        let mut data = Vec::new();
        data.extend(number.to_ne_bytes());
        data.extend(arch.to_ne_bytes());
        data.extend(0x7fff_1234_5678_u64.to_ne_bytes());
        data.extend(arguments.iter().flat_map(|argument| argument.to_ne_bytes()));
        let (mut at, mut accumulator) = (0, 0_u32);
        loop {
            let libc::sock_filter { code, jt, jf, k } = self.0[at];
            at += 1;
            let jump = |taken: bool| usize::from(if taken { jt } else { jf });
            match code {
                0x20 => {
                    let from = k as usize;
                    assert_eq!(from % 4, 0, "the kernel takes aligned words only");
                    accumulator =
                        u32::from_ne_bytes(data[from..from + 4].try_into().expect("a word"));
                }
                0x05 => at += k as usize,
                0x15 => at += jump(accumulator == k),
                0x25 => at += jump(accumulator > k),
                0x35 => at += jump(accumulator >= k),
                0x45 => at += jump(accumulator & k != 0),
                0x54 => accumulator &= k,
                0x06 => return k,
                unknown => panic!("instruction {unknown:#x} at {}", at - 1),
            }
        }
    }
}

/// Arguments near everything that the conditions on `name` compare, with and without high bits.
fn arguments_around(rules: &[SyscallRule], name: &str) -> Vec<Arguments> {
    fn near(value: u64) -> [u64; 3] {
        [value, value.wrapping_add(1), value.wrapping_sub(1)]
    }
    fn values(when: When, into: &mut [Vec<u64>; 6]) {
        match when {
            When::Always => {}
            When::ArgMasked {
                index,
                mask,
                equals,
                ..
            } => {
                into[usize::from(index)].extend(near(equals));
                into[usize::from(index)].extend(near(equals | !mask));
                into[usize::from(index)].extend(near(equals ^ (mask & mask.wrapping_neg())));
            }
            // Each bit alone, and with the other bits that the caller of clone sets (17, SIGCHLD).
            When::ArgAnyBit { index, bits, .. } => {
                into[usize::from(index)].extend([bits, !bits, bits | 17, !bits & 17]);
                into[usize::from(index)].extend((0..64).map(|bit| 1 << bit));
                into[usize::from(index)].extend((0..64).map(|bit| (bits & (1 << bit)) | 17));
            }
            When::ArgNotIn { index, values, .. } => {
                into[usize::from(index)].extend(values.iter().flat_map(|value| near(*value)));
            }
            When::All(conditions) => conditions
                .iter()
                .for_each(|condition| values(*condition, into)),
        }
    }
    let mut interesting: [Vec<u64>; 6] = Default::default();
    for rule in rules.iter().filter(|rule| rule.name == name) {
        values(rule.when, &mut interesting);
    }
    let mut all = vec![[0; 6], [u64::MAX; 6], [2; 6]];
    for (index, values) in interesting.iter().enumerate() {
        let values: BTreeSet<u64> = values.iter().copied().collect();
        let before = all.clone();
        all.extend(values.iter().flat_map(|value| {
            before.iter().map(|arguments| {
                let mut arguments = *arguments;
                arguments[index] = *value;
                arguments
            })
        }));
    }
    [0, 1 << 32, 1 << 63, 0xffff_ffff_0000_0000]
        .iter()
        .flat_map(|high| {
            all.iter()
                .map(move |arguments| arguments.map(|value| value | high))
        })
        .collect()
}

#[test]
fn every_rule_gives_its_answer_and_nothing_else_is_refused() {
    for switches in every_switch() {
        let (rules, program) = (rules(switches), Program::of(switches));
        let names: BTreeSet<_> = rules.iter().map(|rule| rule.name).collect();
        for name in names {
            let Some(number) = number(name).expect("a known name") else {
                continue;
            };
            let number = u32::try_from(number).expect("a small number");
            let of_name: Vec<_> = rules.iter().filter(|rule| rule.name == name).collect();
            let mut held = vec![false; of_name.len()];
            let mut passed = of_name[0].when == When::Always;
            for arguments in arguments_around(&rules, name) {
                let holds: Vec<_> = of_name
                    .iter()
                    .map(|rule| rule.when.holds(&arguments))
                    .collect();
                let refused = holds.contains(&true);
                let answers = of_name.iter().zip(&holds).filter(|(_, holds)| **holds);
                let first = answers.map(|(rule, _)| rule.answer).min();
                let expected = first.map_or(ALLOW, refused_with);
                assert_eq!(
                    program.says(number, &arguments),
                    expected,
                    "{name} {arguments:x?}"
                );
                held.iter_mut()
                    .zip(holds)
                    .for_each(|(held, holds)| *held |= holds);
                passed |= !refused;
            }
            assert!(passed, "{name}: its opposite never tried");
            assert!(
                !held.contains(&false),
                "{name}: a rule never tried: {held:?}"
            );
        }
    }
}

#[test]
fn every_other_number_is_allowed() {
    for switches in every_switch() {
        let (rules, program) = (rules(switches), Program::of(switches));
        let known: Vec<i64> = rules
            .iter()
            .filter_map(|rule| number(rule.name).expect("a known name"))
            .collect();
        for call in (0..4096).filter(|call| !known.contains(&i64::from(*call))) {
            for arguments in [[0; 6], [u64::MAX; 6], [0x5412; 6], [0x1000_0000; 6]] {
                assert_eq!(program.says(call, &arguments), ALLOW, "{call}");
            }
        }
    }
}

#[test]
fn foreign_architectures_get_enosys_for_every_number() {
    // AUDIT_ARCH_I386, ARM, X86_64 or AARCH64 (the other one), RISCV64, and no architecture.
    let program = Program::of(STRICT);
    let other = if cfg!(target_arch = "x86_64") {
        0xc000_00b7
    } else {
        0xc000_003e
    };
    for arch in [0x4000_0003, 0x4000_0028, other, 0xc000_00f3, 0, u32::MAX] {
        for call in (0..4096).chain([u32::MAX, 0x4000_0000]) {
            assert_eq!(
                program.run(arch, call, &[0; 6]),
                refused_with(Answer::NoSys),
                "{arch:#x} {call}"
            );
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn x32_gets_enosys_for_every_number() {
    let program = Program::of(STRICT);
    for call in
        (0..4096).flat_map(|call| [call | 0x4000_0000, call | 0xc000_0000, call | 0x7fff_0000])
    {
        assert_eq!(
            program.says(call, &[0; 6]),
            refused_with(Answer::NoSys),
            "{call:#x}"
        );
    }
    assert_eq!(
        program.says(u32::MAX, &[0; 6]),
        ALLOW,
        "a tracer's way to skip a call"
    );
}

/// libc's constant as an argument; its type differs between C libraries.
fn command_number(command: libc::Ioctl) -> u64 {
    u64::from(command as u32)
}

#[test]
fn high_bits_do_not_hide_a_terminal_ioctl() {
    let program = Program::of(STRICT);
    let ioctl = u32::try_from(libc::SYS_ioctl).expect("a small number");
    for command in [
        libc::TIOCSTI,
        libc::TIOCLINUX,
        libc::TIOCCONS,
        libc::TIOCSETD,
    ] {
        for high in (32..64)
            .map(|bit| 1_u64 << bit)
            .chain([0, 0xffff_ffff_0000_0000])
        {
            let arguments = [0, command_number(command) | high, 0, 0, 0, 0];
            assert_eq!(
                program.says(ioctl, &arguments),
                refused_with(Answer::Perm),
                "{arguments:x?}"
            );
        }
    }
    for command in [
        libc::TIOCGWINSZ,
        libc::TCGETS,
        libc::TIOCSCTTY,
        libc::FIONREAD,
        libc::TIOCGETD,
    ] {
        assert_eq!(
            program.says(ioctl, &[0, command_number(command), 0, 0, 0, 0]),
            ALLOW
        );
    }
}

#[test]
fn the_tables_constants_are_libcs() {
    let program = Program::of(STRICT);
    let says = |call: i64, arguments| {
        program.says(u32::try_from(call).expect("a small number"), &arguments)
    };
    let namespaces = [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
    ];
    for flag in namespaces.map(|flag| u64::from(flag.unsigned_abs())) {
        assert_eq!(
            says(libc::SYS_clone, [flag | 17, 0, 0, 0, 0, 0]),
            refused_with(Answer::Perm),
            "{flag:#x}"
        );
        assert_eq!(
            says(libc::SYS_unshare, [flag, 0, 0, 0, 0, 0]),
            refused_with(Answer::Perm),
            "{flag:#x}"
        );
    }
    // Nested namespaces of every kind but one.
    let nested = Program::of(NESTED);
    let nested = |call: i64, arguments| {
        nested.says(u32::try_from(call).expect("a small number"), &arguments)
    };
    for flag in namespaces.map(|flag| u64::from(flag.unsigned_abs())) {
        let answer = match flag == u64::from(libc::CLONE_NEWCGROUP.unsigned_abs()) {
            true => refused_with(Answer::Perm),
            false => ALLOW,
        };
        let cloned = nested(libc::SYS_clone, [flag | 17, 0, 0, 0, 0, 0]);
        let unshared = nested(libc::SYS_unshare, [flag, 0, 0, 0, 0, 0]);
        assert_eq!([cloned, unshared], [answer; 2], "{flag:#x}");
    }
    assert_eq!(
        nested(libc::SYS_clone3, [0; 6]),
        refused_with(Answer::NoSys)
    );
    let time = u64::from(libc::CLONE_NEWTIME.unsigned_abs());
    assert_eq!(
        says(libc::SYS_unshare, [time, 0, 0, 0, 0, 0]),
        refused_with(Answer::Perm)
    );
    for family in [
        libc::AF_UNIX,
        libc::AF_INET,
        libc::AF_INET6,
        libc::AF_NETLINK,
    ] {
        let arguments = [u64::from(family.unsigned_abs()), 1, 0, 0, 0, 0];
        assert_eq!(says(libc::SYS_socket, arguments), ALLOW, "{family}");
    }
    for family in [
        libc::AF_VSOCK,
        libc::AF_ALG,
        libc::AF_RDS,
        libc::AF_TIPC,
        libc::AF_PACKET,
        libc::AF_BLUETOOTH,
    ] {
        let arguments = [u64::from(family.unsigned_abs()), 1, 0, 0, 0, 0];
        assert_eq!(
            says(libc::SYS_socket, arguments),
            refused_with(Answer::NoFamily),
            "{family}"
        );
        assert_eq!(
            says(libc::SYS_socketpair, arguments),
            refused_with(Answer::NoFamily),
            "{family}"
        );
    }
    let netlink = u64::from(libc::AF_NETLINK.unsigned_abs());
    for protocol in [libc::NETLINK_NETFILTER, libc::NETLINK_XFRM] {
        let arguments = [netlink, 3, u64::from(protocol.unsigned_abs()), 0, 0, 0];
        assert_eq!(
            says(libc::SYS_socket, arguments),
            refused_with(Answer::NoFamily),
            "{protocol}"
        );
    }
    for protocol in [
        libc::NETLINK_ROUTE,
        libc::NETLINK_SOCK_DIAG,
        libc::NETLINK_RDMA,
        libc::NETLINK_KOBJECT_UEVENT,
    ] {
        let arguments = [netlink, 3, u64::from(protocol.unsigned_abs()), 0, 0, 0];
        assert_eq!(says(libc::SYS_socket, arguments), ALLOW, "{protocol}");
    }
    let fixed = u64::from(libc::ADDR_NO_RANDOMIZE.unsigned_abs());
    assert_eq!(says(libc::SYS_personality, [fixed, 0, 0, 0, 0, 0]), ALLOW);
    let executable = u64::from(libc::READ_IMPLIES_EXEC.unsigned_abs());
    assert_eq!(
        says(libc::SYS_personality, [executable, 0, 0, 0, 0, 0]),
        refused_with(Answer::Perm)
    );
}

/// No jump leads out of the program.
fn well_formed(Program(program): &Program) {
    for (at, instruction) in program.iter().enumerate() {
        let jumps = match instruction.code & 0x07 {
            0x05 if instruction.code == 0x05 => vec![instruction.k as usize],
            0x05 => vec![usize::from(instruction.jt), usize::from(instruction.jf)],
            _ => continue,
        };
        assert!(
            jumps.iter().all(|jump| at + 1 + jump < program.len()),
            "instruction {at} jumps out"
        );
    }
}

#[test]
fn programs_are_well_formed_and_small() {
    for switches in every_switch() {
        let Program(program) = Program::of(switches);
        println!(
            "{} tables besides, nested {}, keyctl {}: {} instructions",
            switches.besides.len(),
            switches.nested,
            switches.keyctl,
            program.len()
        );
        // Every instruction costs the launch, and those ahead of a call's rules cost each such call.
        let most = match switches.besides.is_empty() {
            true => 350,
            false => 525,
        };
        assert!(program.len() < most, "{switches:?}");
        assert!(
            program
                .last()
                .is_some_and(|last| last.code == RETURN && last.k == ALLOW)
        );
        well_formed(&Program(program));
    }
}

#[test]
fn names_are_known_once_and_lacking_ones_are_listed_with_a_reason() {
    let mut names: Vec<&str> = names().collect();
    names.extend(lacking().iter().map(|(name, _)| *name));
    names.sort_unstable();
    let mut in_table: Vec<&str> = every_switch()
        .flat_map(rules)
        .map(|rule| rule.name)
        .collect();
    in_table.sort_unstable();
    in_table.dedup();
    assert_eq!(names, in_table);
    assert!(lacking().iter().all(|(_, reason)| !reason.is_empty()));
    assert!(matches!(
        number("no_such_call"),
        Err(SeccompError::UnknownSyscall("no_such_call"))
    ));
}

/// What is built for aarch64 alone is compiled nowhere else, and a name without a number starts no jail there.
#[test]
fn rules_of_aarch64_have_numbers_there() {
    const MARK: &str = r#"#[cfg(target_arch = "aarch64")]"#;
    let rules = include_str!("../../base/src/plan/build/syscalls.rs");
    let (_, numbers) = include_str!("../../base/src/seccomp/numbers.rs")
        .split_once(MARK)
        .expect("the numbers of aarch64");
    let quoted = |rule: &'static str| rule.split('"').nth(1).expect("a name");
    let names: Vec<_> = rules.split(MARK).skip(1).map(quoted).collect();
    assert_eq!(names, ["ptrace"]);
    for name in names {
        assert!(numbers.contains(&format!("\"SYS_{name}\"")), "{name}");
    }
}
