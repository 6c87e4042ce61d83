//! Invariants of the table, the meaning of its conditions, and the page that shows it.

use super::*;
use crate::plan::model::syscalls::{Arguments, FOREIGN_ABI_REASON};
use std::collections::{BTreeMap, BTreeSet};

const STRICT: Switches = Switches {
    nested: false,
    keyctl: false,
    mediated: false,
    besides: &[],
};

/// What the policy can switch.
fn every_switch() -> impl Iterator<Item = Switches> {
    let all = [(false, false), (false, true), (true, false), (true, true)];
    all.into_iter().map(|(nested, keyctl)| Switches {
        nested,
        keyctl,
        // Each with and without one.
        mediated: keyctl,
        besides: &[],
    })
}

fn names(switches: Switches) -> BTreeSet<&'static str> {
    rules(switches).iter().map(|rule| rule.name).collect()
}

/// The condition and everything in it.
fn parts(when: When) -> Vec<When> {
    match when {
        When::All(conditions) => conditions.iter().copied().flat_map(parts).collect(),
        single => vec![single],
    }
}

#[test]
fn no_rule_stands_twice() {
    for switches in every_switch() {
        let rules = rules(switches);
        let mut seen = Vec::new();
        for rule in &rules {
            assert!(
                !seen.contains(&(rule.name, rule.when)),
                "{} stands twice",
                rule.name
            );
            seen.push((rule.name, rule.when));
            let conditions = rules.iter().filter(|other| other.name == rule.name).count();
            assert!(
                rule.when != When::Always || conditions == 1,
                "{}: a condition that never counts",
                rule.name
            );
        }
    }
}

#[test]
fn no_call_has_two_answers() {
    for switches in every_switch() {
        let rules = rules(switches);
        let mut answers: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for rule in &rules {
            answers.entry(rule.name).or_default().insert(rule.answer);
        }
        for (name, _) in answers.iter().filter(|(_, answers)| answers.len() > 1) {
            assert!(["socket", "socketpair"].contains(name), "{name}");
            let of_name = || rules.iter().filter(|rule| rule.name == *name);
            // Family, type and protocol.
            for (family, kind, protocol) in (0..64)
                .flat_map(|family| (0..16).map(move |kind| (family, kind)))
                .flat_map(|(family, kind)| (0..20).map(move |protocol| (family, kind, protocol)))
            {
                let arguments = [family, kind, protocol, 0, 0, 0];
                let held = of_name().filter(|rule| rule.when.holds(&arguments));
                let answers: BTreeSet<_> = held.map(|rule| rule.answer).collect();
                assert!(answers.len() < 2, "{name} {arguments:?}: {answers:?}");
            }
        }
    }
}

#[test]
fn every_rule_says_why() {
    for rule in every_switch().flat_map(rules) {
        assert!(rule.reason.len() > 15, "{} says too little", rule.name);
        assert!(
            !rule.reason.ends_with('.')
                && !rule.reason.contains('\n')
                && !rule.reason.contains("  ")
        );
    }
    assert!(!FOREIGN_ABI_REASON.is_empty());
}

#[test]
fn conditions_are_well_formed() {
    for rule in every_switch().flat_map(rules) {
        for part in parts(rule.when) {
            let (index, bits, width32) = match part {
                When::Always => continue,
                When::ArgMasked {
                    index,
                    mask,
                    equals,
                    width32,
                } => {
                    assert_eq!(equals & !mask, 0, "{}: can never hold", rule.name);
                    (index, mask, width32)
                }
                When::ArgAnyBit {
                    index,
                    bits,
                    width32,
                } => (index, bits, width32),
                When::ArgNotIn {
                    index,
                    values,
                    width32,
                } => {
                    assert!(!values.is_empty());
                    (
                        index,
                        values.iter().fold(0, |all, value| all | value),
                        width32,
                    )
                }
                When::All(_) => unreachable!("taken apart by parts()"),
            };
            assert!(index < 6 && bits != 0, "{}", rule.name);
            assert!(
                !width32 || bits <= LOW_HALF,
                "{}: compares bits that it does not look at",
                rule.name
            );
        }
        if let When::All(conditions) = rule.when {
            assert!(conditions.len() > 1, "{}", rule.name);
        }
    }
}

#[test]
fn what_nested_and_keyctl_change_is_in_their_tables() {
    let strict = rules(STRICT);
    for switches in every_switch() {
        assert!(
            rules(switches)
                .iter()
                .all(|rule| strict.contains(rule) || REFUSED_IF_NESTED.contains(rule))
        );
    }
    let nested = names(Switches {
        nested: true,
        keyctl: false,
        mediated: false,
        besides: &[],
    });
    // Of clone and unshare one namespace stays refused.
    for name in [
        "setns",
        "mount",
        "umount2",
        "pivot_root",
        "chroot",
        "fsopen",
    ] {
        assert!(
            names(STRICT).contains(name) && !nested.contains(name),
            "{name}"
        );
    }
    for name in ["keyctl", "add_key", "request_key"] {
        assert!(nested.contains(name), "{name}");
        assert!(
            !names(Switches {
                nested: false,
                keyctl: true,
                mediated: false,
                besides: &[],
            })
            .contains(name),
            "{name}"
        );
    }
}

#[test]
fn what_programs_need_is_in_no_rule() {
    let refused = names(STRICT);
    for name in [
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
        "process_madvise",
        "pidfd_getfd",
        "memfd_create",
        "memfd_secret",
        "mbind",
        "set_mempolicy",
        "move_pages",
        "seccomp",
        "landlock_create_ruleset",
        "name_to_handle_at",
        "statmount",
        "listmount",
        "vmsplice",
        "fork",
        "vfork",
        "execve",
        "shmget",
        "io_setup",
    ] {
        // A tracer could change an argument behind the filter there (docs/decisions/0057).
        let allowed = name != "ptrace" || !cfg!(target_arch = "aarch64");
        assert_eq!(refused.contains(name), !allowed, "{name}");
    }
}

#[test]
fn conditions_mean_what_they_say() {
    let holds = |name: &str, arguments: Arguments| {
        rules(STRICT)
            .iter()
            .any(|rule| rule.name == name && rule.when.holds(&arguments))
    };
    let high = 0x1_0000_0000;
    assert!(holds("ioctl", [0, TIOCSTI, 0, 0, 0, 0]));
    assert!(holds("ioctl", [0, TIOCSTI | high, 0, 0, 0, 0]));
    assert!(!holds("ioctl", [0, 0x5413, 0, 0, 0, 0]));
    assert!(holds("clone", [0x1000_0011, 0, 0, 0, 0, 0]));
    assert!(
        !holds("clone", [0x3d0f00, 0, 0, 0, 0, 0]),
        "a thread of glibc"
    );
    assert!(
        !holds("clone", [17 | CLONE_NEWTIME, 0, 0, 0, 0, 0]),
        "an exit signal"
    );
    assert!(
        !holds("unshare", [0x600, 0, 0, 0, 0, 0]),
        "files and working directory"
    );
    assert!(
        !holds("personality", [u64::MAX, 0, 0, 0, 0, 0]),
        "the query"
    );
    assert!(
        holds("personality", [0x0040_0000, 0, 0, 0, 0, 0]),
        "READ_IMPLIES_EXEC"
    );
    assert!(holds("socket", [40, 1, 0, 0, 0, 0]), "AF_VSOCK");
    assert!(holds("socket", [2, SOCK_PACKET | 0o2_000_000, 0, 0, 0, 0]));
    assert!(holds("socket", [AF_NETLINK, 3, NETLINK_NETFILTER, 0, 0, 0]));
    assert!(!holds("socket", [AF_NETLINK, 3, 0, 0, 0, 0]), "routes");
    // attributes, process, processor, group, flags
    assert!(holds("perf_event_open", [1, u64::MAX, 0, u64::MAX, 0, 0]));
    assert!(holds("perf_event_open", [1, LOW_HALF, 0, u64::MAX, 8, 0]));
    assert!(holds("perf_event_open", [1, 5, 0, u64::MAX, 4 | high, 0]));
    assert!(
        !holds("perf_event_open", [1, 0, u64::MAX, u64::MAX, 8, 0]),
        "oneself"
    );
    assert!(!holds("perf_event_open", [1, 4711, 3, 7, 0, 0]), "a task");
    assert!(
        !holds("socket", [2, 3, NETLINK_NETFILTER, 0, 0, 0]),
        "a protocol of IPv4"
    );
}

#[test]
fn with_namespaces_inside_no_packet_filter_is_configured_by_options() {
    let holds = |nested, level, option| {
        let rules = rules(Switches { nested, ..STRICT });
        let mut its = rules.iter().filter(|rule| rule.name == "setsockopt");
        its.any(|rule| rule.when.holds(&[9, level, option, 0, 0, 0]))
    };
    let high = 0x1_0000_0000;
    for (level, option) in [
        (0, 64),
        (0, 65),
        (0, 96),
        (0, 97),
        (0, 128),
        (0, 129),
        (41, 64),
        (41, 65),
    ] {
        assert!(holds(true, level, option), "{level} {option}");
        assert!(holds(true, level | high, option | high), "{level} {option}");
        assert!(!holds(false, level, option), "{level} {option}");
    }
    for (level, option) in [
        (1, 64),
        (6, 64),
        (0, 24),
        (0, 63),
        (0, 66),
        (0, 130),
        (41, 66),
        (41, 96),
    ] {
        assert!(!holds(true, level, option), "{level} {option}");
    }
}

#[test]
fn set_id_bits_are_refused_wherever_a_mode_is_an_argument() {
    const MODES: [(&str, usize); 7] = [
        ("chmod", 1),
        ("fchmod", 1),
        ("fchmodat", 2),
        ("fchmodat2", 2),
        ("creat", 1),
        ("mknod", 1),
        ("mknodat", 2),
    ];
    const OPENS: [(&str, usize); 2] = [("open", 1), ("openat", 2)];
    for switches in every_switch() {
        let rules = rules(switches);
        let holds = |name: &str, given: &[(usize, u64)]| {
            let mut arguments = [0; 6];
            given.iter().for_each(|(at, value)| arguments[*at] = *value);
            rules
                .iter()
                .any(|rule| rule.name == name && rule.when.holds(&arguments))
        };
        for (name, mode) in MODES {
            for set in [0o4755, 0o6755, 0o104_755, 0o4000, 0o7777, 0o4755 | 1 << 32] {
                assert!(holds(name, &[(mode, set)]), "{name} {set:o}");
            }
            // A change of a mode may be one of a directory's.
            let mediated = switches.mediated && name.contains("chmod");
            for set in [0o2755, 0o2000, 0o102_755, 0o2755 | 1 << 32] {
                assert_eq!(holds(name, &[(mode, set)]), !mediated, "{name} {set:o}");
            }
            for plain in [0o755, 0o1777, 0o100_644, 0, 0o6000 << 32] {
                assert!(!holds(name, &[(mode, plain)]), "{name} {plain:o}");
            }
        }
        for (name, flags) in OPENS {
            let opens = |flag, mode| holds(name, &[(flags, flag), (flags + 1, mode)]);
            for creating in [0o100, 0o1101, 0o20_000_000, 0o20_200_002, 0o100 | 1 << 32] {
                assert!(opens(creating, 0o4755), "{name} {creating:o}");
                assert!(opens(creating, 0o2755), "{name} {creating:o}");
                assert!(!opens(creating, 0o1755), "{name} {creating:o}");
            }
            for without in [0, 2, !(0o100 | 0o20_000_000), 0o100 << 32] {
                assert!(!opens(without, u64::MAX), "{name} {without:o}: no mode");
            }
        }
        assert!(holds("openat2", &[]));
    }
}

#[test]
fn conditions_read_well() {
    const BOTH: When = When::All(&[
        int_is(0, 16),
        When::ArgMasked {
            index: 1,
            mask: 0xf,
            equals: 10,
            width32: true,
        },
    ]);
    assert_eq!(int_is(1, TIOCSTI).to_string(), "argument 1 is 0x5412");
    assert_eq!(
        BOTH.to_string(),
        "argument 0 is 0x10 and argument 1 & 0xf is 0xa"
    );
    assert_eq!(
        When::ArgNotIn {
            index: 0,
            values: &[1, 2],
            width32: true
        }
        .to_string(),
        "argument 0 is not one of 0x1, 0x2"
    );
    assert_eq!(Answer::NoFamily.to_string(), "EAFNOSUPPORT");
}

/// The rows of the documentation for one part of the table.
fn documented(rules: &[SyscallRule]) -> String {
    rules
        .iter()
        .map(|rule| {
            format!(
                "| `{}` | {} | {} | {} |\n",
                rule.name, rule.when, rule.answer, rule.reason
            )
        })
        .collect()
}

#[test]
#[cfg_attr(
    not(target_arch = "x86_64"),
    ignore = "the page has the table of x86-64"
)]
fn the_reference_page_shows_this_table() {
    let page = include_str!("../../../../../docs/reference/syscalls.md");
    let (before, after) = page
        .split_once("\n## Refused besides where Landlock makes the jail\n")
        .expect("the part that its backend's test compares");
    let (_, after) = after.split_once("\n## ").unwrap_or_default();
    let page = [before, after].concat();
    let shown = [
        ALWAYS_REFUSED,
        set_id::RULES,
        set_id::WITHOUT_MEDIATOR,
        REFUSED_UNLESS_NESTED,
        REFUSED_IF_NESTED,
        REFUSED_UNLESS_KEYCTL,
    ];
    for part in shown {
        let rows = documented(part);
        assert!(
            page.contains(&rows),
            "docs/reference/syscalls.md should contain:\n{rows}"
        );
    }
    let rows = page.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(
        rows,
        shown.map(<[_]>::len).iter().sum::<usize>(),
        "docs/reference/syscalls.md has rows of its own"
    );
    assert!(page.contains(FOREIGN_ABI_REASON));
}
