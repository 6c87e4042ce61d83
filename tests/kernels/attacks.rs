//! What the attacks came to: every one without a jail, none in it; and what has to work in both.

use std::collections::{BTreeMap, BTreeSet};

use agent_sandbox_landlock::missing::MISSING;

use crate::machine::Transcript;
use crate::{Kernel, on_each_kernel, silent, unless};

/// Calls that have to work begin with this.
const INSIDE: &str = "in-";
/// A probe that was cut off has fewer.
const CALLS: usize = 180;

/// Attacks that a kernel refuses by itself: nothing shows there that the jail does. Below the
/// Landlock ABI, and why.
const REFUSED_OUTSIDE: &[(&str, i32, &str)] = &[
    ("shown-fchmodat2", 6, "Linux 6.6 has fchmodat2(2)"),
    ("shown-fchmodat2-fd", 6, "Linux 6.6 has fchmodat2(2)"),
    ("vsock", i32::MAX, "no module for it in this machine"),
    ("x32", i32::MAX, "Debian's kernels are built without it"),
];

/// Calls that may succeed in the jail, and why they do no harm.
const HARMLESS: &[(&str, &str)] = &[
    (
        "pidfd-open",
        "a descriptor of a process gives nothing by itself",
    ),
    // The victim's priorities are among what is compared before and after.
    (
        "setpriority-user",
        "of the user's processes those of the jail are meant",
    ),
    (
        "ioprio-set-user",
        "of the user's processes those of the jail are meant",
    ),
    // Whether a signal arrives is what counts; the victim's log says it.
    (
        "signal-setown",
        "the kernel may refuse as late as at the signal",
    ),
    (
        "signal-setown-group",
        "the kernel may refuse as late as at the signal",
    ),
    (
        "signal-setown-ex",
        "the kernel may refuse as late as at the signal",
    ),
    (
        "signal-fiosetown",
        "the kernel may refuse as late as at the signal",
    ),
    (
        "signal-siocspgrp",
        "the kernel may refuse as late as at the signal",
    ),
];

/// What does not work in the jail below an ABI, and the row of the table that says so.
const NARROWER: &[(&str, i32, &str)] = &[
    ("in-abstract", 6, "abstract-sockets"),
    ("in-setown", i32::MAX, "signal-driven"),
];

/// How some attacks have to fail, as programs rely on it.
const ANSWERS: &[(&str, &str)] = &[
    ("io-uring", "ENOSYS"),
    ("i386", "ENOSYS"),
    ("x32", "ENOSYS"),
    ("vsock", "EAFNOSUPPORT"),
    ("datagram-path", "EPROTONOSUPPORT"),
    ("datagram-connect", "EPROTONOSUPPORT"),
    ("datagram-abstract", "EPROTONOSUPPORT"),
    ("sysv-memory", "ENOSYS"),
    ("posix-messages", "ENOSYS"),
];

/// Signals of attacks that arrive without a jail, by the number in the victim's log.
const SIGNALS: std::ops::RangeInclusive<u32> = 0..=12;

fn reports<'a>(said: &'a Transcript, stage: &str) -> BTreeMap<&'a str, &'a str> {
    said.stage(stage).reports().collect()
}

fn is_errno(result: &str) -> bool {
    result.len() > 2
        && result.starts_with('E')
        && result
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
}

/// The complaint that the probe did not come to its end.
fn complete(said: &Transcript, stage: &str) -> Option<String> {
    let calls = reports(said, stage).len();
    let whole = said.stage(stage).complete();
    unless(whole && calls >= CALLS, || {
        format!(
            "{stage}: {calls} calls only; said:\n{}",
            said.stage(stage).text()
        )
    })
}

fn signals(said: &Transcript, stage: &str) -> BTreeSet<u32> {
    let stage = said.stage(stage);
    let numbers = stage
        .lines
        .iter()
        .filter_map(|line| line.strip_prefix("signal "));
    numbers.filter_map(|number| number.parse().ok()).collect()
}

/// The complaints of a stage in which the probe makes attacks in a jail.
pub(crate) fn refused(kernel: &Kernel, said: &Transcript, stage: &str) -> Vec<String> {
    let harmless = |name: &str| HARMLESS.iter().any(|(listed, _)| *listed == name);
    let answer = |name: &str| ANSWERS.iter().find(|(listed, _)| *listed == name);
    let mut wrong = Vec::new();
    for (name, result) in reports(said, stage) {
        let good = if name.starts_with(INSIDE) {
            continue;
        } else if let Some((_, answer)) = answer(name) {
            result == *answer
        } else {
            is_errno(result) || (harmless(name) && result == "ok")
        };
        wrong.extend(unless(good, || {
            format!("{stage}: {name}: {result} (ABI {})", kernel.abi)
        }));
    }
    wrong
}

/// The complaints about what has to work in a jail.
pub(crate) fn allowed(kernel: &Kernel, said: &Transcript, stage: &str) -> Vec<String> {
    let row = |name: &str| {
        let listed = NARROWER.iter().find(|(listed, ..)| *listed == name);
        listed.filter(|(_, below, _)| kernel.abi < *below)
    };
    let mut wrong = Vec::new();
    for (name, result) in reports(said, stage) {
        let good = match row(name) {
            Some((.., row)) => is_errno(result) && MISSING.iter().any(|lack| lack.id == *row),
            None => !name.starts_with(INSIDE) || result == "ok",
        };
        wrong.extend(unless(good, || format!("{stage}: {name}: {result}")));
    }
    wrong
}

/// The complaints about what attacks have changed outside.
pub(crate) fn untouched(said: &Transcript, part: &str) -> Vec<String> {
    let victim = said.stage(&format!("{part}-victim")).status;
    [
        silent(said, &format!("{part}-signals")),
        silent(said, &format!("{part}-changes")),
        unless(victim == 0, || format!("{part}: the victim is gone")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[test]
fn every_attack_works_without_a_jail() {
    on_each_kernel("attacks without a jail", |kernel, said| {
        let refused = |name: &str| {
            let listed = REFUSED_OUTSIDE.iter().find(|(listed, ..)| *listed == name);
            listed.is_some_and(|(_, below, _)| kernel.abi < *below)
        };
        let mut wrong: Vec<String> = complete(said, "outside").into_iter().collect();
        for (name, result) in reports(said, "outside") {
            wrong.extend(unless(result == "ok" || refused(name), || {
                format!("{name}: {result}")
            }));
        }
        let missing: Vec<u32> = SIGNALS
            .filter(|number| !signals(said, "outside-signals").contains(number))
            .collect();
        wrong.extend(unless(missing.is_empty(), || {
            format!("no signals {missing:?}")
        }));
        let changes = said.stage("outside-changes").lines.len();
        wrong.extend(unless(changes > 50, || {
            format!("{changes} lines of changes")
        }));
        wrong
    });
}

#[test]
fn no_attack_works_in_the_jail() {
    on_each_kernel("attacks", |kernel, said| {
        let mut wrong: Vec<String> = complete(said, "jail").into_iter().collect();
        let (inside, outside) = (reports(said, "jail"), reports(said, "outside"));
        wrong.extend(unless(inside.keys().eq(outside.keys()), || {
            "the calls in the jail are others than those outside".to_owned()
        }));
        wrong.extend(refused(kernel, said, "jail"));
        wrong
    });
}

#[test]
fn what_is_allowed_works_in_the_jail() {
    on_each_kernel("what is allowed", |kernel, said| {
        let mut wrong: Vec<String> = complete(said, "jail").into_iter().collect();
        wrong.extend(allowed(kernel, said, "jail"));
        wrong
    });
}

#[test]
fn attacks_leave_no_trace_outside() {
    on_each_kernel("traces of attacks", |_, said| untouched(said, "jail"));
}

#[test]
fn signals_to_everybody_and_to_the_own_group_stay_inside() {
    on_each_kernel("signals to many", |_, said| {
        let mut wrong = crate::ended(said, "group", 0, &["all ", "group ", "the end"]);
        wrong.extend(untouched(said, "group"));
        wrong
    });
}
