//! Invariants of the whole table, what these rules mean, and the page that shows them.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use agent_sandbox_base::plan::build::syscalls::{Switches, rules};
use agent_sandbox_base::plan::model::syscalls::Arguments;

/// The tables of such jails, each with its network.
fn tables() -> impl Iterator<Item = (Vec<SyscallRule>, NetworkMode)> {
    let all = [
        NetworkMode::Open,
        NetworkMode::Filtered,
        NetworkMode::Isolated,
    ];
    let all = all
        .into_iter()
        .flat_map(|network| [(false, network), (true, network)]);
    all.map(|(keyctl, network)| {
        let switches = Switches {
            nested: false,
            keyctl,
            mediated: true,
            besides: besides(network),
        };
        (rules(switches), network)
    })
}

#[test]
fn no_rule_stands_twice_and_each_says_why() {
    for (table, _) in tables() {
        let mut seen = Vec::new();
        for rule in &table {
            assert!(!seen.contains(&(rule.name, rule.when)), "{}", rule.name);
            seen.push((rule.name, rule.when));
            let conditions = table.iter().filter(|other| other.name == rule.name).count();
            assert!(
                rule.when != When::Always || conditions == 1,
                "{}: a condition that never counts",
                rule.name
            );
            assert!(rule.reason.len() > 15, "{} says too little", rule.name);
            let reason = rule.reason;
            assert!(!reason.ends_with('.') && !reason.contains('\n') && !reason.contains("  "));
        }
    }
}

#[test]
fn no_call_has_two_answers() {
    for (table, _) in tables() {
        let mut answers: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for rule in &table {
            answers.entry(rule.name).or_default().insert(rule.answer);
        }
        for (name, _) in answers.iter().filter(|(_, answers)| answers.len() > 1) {
            assert!(["socket", "socketpair"].contains(name), "{name}");
            let of_name = || table.iter().filter(|rule| rule.name == *name);
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
fn these_rules_refuse_what_they_are_about() {
    for (table, network) in tables() {
        let isolated = network == NetworkMode::Isolated;
        let names: BTreeSet<_> = table.iter().map(|rule| rule.name).collect();
        for name in ["setns", "mount", "chroot", "shmget", "mq_open"] {
            assert!(names.contains(name), "{name}");
        }
        let holds = |name: &str, arguments: Arguments| {
            let rule = table
                .iter()
                .find(|rule| rule.name == name && rule.when.holds(&arguments));
            rule.map(|rule| rule.answer)
        };
        let socket = |family, kind| holds("socket", [family, kind, 0, 0, 0, 0]);
        let (cloexec, stream, datagram, raw, packets) = (0o2_000_000, 1, 2, 3, 5);
        for kind in [datagram, raw, datagram | cloexec, raw | 1 << 32] {
            assert_eq!(socket(1, kind), Some(Answer::NoProtocol), "{kind:#x}");
        }
        for kind in [stream, packets, stream | cloexec] {
            assert_eq!(socket(1, kind), None, "{kind:#x}");
        }
        for family in [2, 10, 16] {
            let expected = isolated.then_some(Answer::NoFamily);
            for kind in [stream, stream | cloexec, stream | 0o4000] {
                assert_eq!(socket(family, kind), expected, "{family}");
            }
        }
        let filtered = network == NetworkMode::Filtered;
        let other = match network {
            NetworkMode::Open => None,
            NetworkMode::Filtered => Some(Answer::NoProtocol),
            NetworkMode::Isolated => Some(Answer::NoFamily),
        };
        for family in [2, 10] {
            for kind in 2..=7 {
                for flags in [0, cloexec, 0o4000, 1 << 32] {
                    assert_eq!(socket(family, kind | flags), other, "{family} {kind:#x}");
                }
            }
            for protocol in [1, 17, 132, 255, 256, 262, 1 << 31] {
                let answer = holds("socket", [family, stream, protocol, 0, 0, 0]);
                assert_eq!(answer, other, "{family} {protocol}");
            }
            let answer = holds("socket", [family, stream, 6 | 1 << 32, 0, 0, 0]);
            assert_eq!(answer, isolated.then_some(Answer::NoFamily));
        }
        let own = holds("socket", [16, datagram, 2, 0, 0, 0]);
        assert_eq!(own, (filtered || isolated).then_some(Answer::NoFamily));
        for (level, name) in [
            (0, 4),
            (41, 5),
            (41, 6),
            (41, 57),
            (1, 25),
            (1, 62),
            (6, 30),
        ] {
            let answer = holds("setsockopt", [9, level, name, 0, 0, 0]);
            assert_eq!(
                answer,
                filtered.then_some(Answer::NoSupport),
                "{level} {name}"
            );
        }
        // The traffic class, keepalive, TCP_NODELAY, IPV6_V6ONLY.
        for (level, name) in [(0, 1), (1, 9), (6, 1), (41, 26)] {
            assert_eq!(holds("setsockopt", [9, level, name, 0, 0, 0]), None);
        }
        for owner in [8, 10, 15] {
            let answer = holds("fcntl", [0, owner, 1, 0, 0, 0]);
            assert_eq!(answer, Some(Answer::Perm), "{owner}");
        }
        // Duplicates, flags, record locks, sizes of pipes, seals.
        for harmless in [0, 1, 2, 3, 4, 5, 6, 7, 1030, 1031, 1033] {
            assert_eq!(holds("fcntl", [0, harmless, 0, 0, 0, 0]), None);
        }
        assert_eq!(holds("sendmsg", [0, 0, 0x4000, 0, 0, 0]), None, "no signal");
    }
}

#[test]
fn the_reference_page_shows_these_rules() {
    let page = include_str!("../../../docs/reference/syscalls.md");
    let (_, part) = page
        .split_once("\n## Refused besides where Landlock makes the jail\n")
        .expect("the part of these rules");
    let (part, _) = part.split_once("\n## ").unwrap_or((part, ""));
    for rules in [RULES, ISOLATED, FILTERED] {
        let rows: String = rules
            .iter()
            .map(|rule| {
                format!(
                    "| `{}` | {} | {} | {} |\n",
                    rule.name, rule.when, rule.answer, rule.reason
                )
            })
            .collect();
        assert!(
            part.contains(&rows),
            "docs/reference/syscalls.md should contain:\n{rows}"
        );
    }
    let rows = part.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(
        rows,
        RULES.len() + ISOLATED.len() + FILTERED.len(),
        "it has rows of its own"
    );
}
