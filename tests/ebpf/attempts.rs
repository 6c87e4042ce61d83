//! Attempts to get at what is forbidden: each succeeds where nobody denies it. With `audit` it still does, and
//! is recorded; with `enforce` it fails, or is one of those that are known to be open (`docs/threats.md`).

use std::collections::BTreeMap;

use agent_sandbox_events::record::What;

use crate::machine::Transcript;
use crate::trail::{Trail, actor, verdict};
use crate::{on_each_with, reports, unless};

/// How denials look.
const DENIED: &str = "EPERM";
/// Actions that have to work all the same begin with this.
const INSIDE: &str = "in-";
/// What a kernel here refuses by itself.
const REFUSED_OUTSIDE: &[(&str, &str, &str)] = &[
    // tmpfs has attributes of users since Linux 6.6.
    ("setxattr", "6.1", "EOPNOTSUPP"),
];

/// What the second layer does not deny, and why.
const OPEN: &[(&str, &str)] = &[
    (
        "path-read",
        "fails by itself: nothing is read through an O_PATH descriptor",
    ),
    ("stat", "names, sizes and times are no content"),
    ("readlink", "a link's text is no file's content"),
    (
        "by-another",
        "another process of the user's that is not traced is not kept from anything",
    ),
];
/// How those look that do not fail as a call: the descriptor does not come along with its message.
const ELSEWHERE: &[(&str, &str)] = &[("passed", "EACCES"), ("passed-reopen", "EACCES")];
/// These fail without a denial, in their own way.
const FAILS_ANYWAY: &[(&str, &str)] = &[("path-read", "EBADF")];

/// Sockets and namespaces are denied where the trace says so.
const GROUPS: &[(&str, &str)] = &[("net-", "no internet"), ("ns-", "no user namespaces")];

/// What creation that was denied must not have left, and what removal must have.
const LEFT: &[&str] = &["created", "made", "fifo", "symlink", "socket"];

fn in_group(name: &str) -> bool {
    GROUPS.iter().any(|(prefix, _)| name.starts_with(prefix))
}

fn reason(name: &str) -> Option<&'static str> {
    let listed = OPEN.iter().find(|(listed, _)| *listed == name);
    listed.map(|(_, why)| *why)
}

/// What an attempt comes to on a kernel where nobody denies it.
fn outside(kernel: &str, name: &str) -> &'static str {
    let refused = REFUSED_OUTSIDE
        .iter()
        .filter(|(_, on, _)| *on == kernel)
        .map(|(listed, _, error)| (listed, error));
    let anyway = FAILS_ANYWAY.iter().map(|(listed, error)| (listed, error));
    let mut listed = refused.chain(anyway);
    let listed = listed.find(|(listed, _)| **listed == name);
    listed.map_or("ok", |(_, error)| *error)
}

fn compare(results: &BTreeMap<&str, &str>, wanted: impl Fn(&str) -> &'static str) -> Vec<String> {
    let good = |name: &str, result: &str| result == wanted(name);
    results
        .iter()
        .filter(|(name, result)| !good(name, result))
        .map(|(name, result)| format!("{name}: {result}, wanted {}", wanted(name)))
        .collect()
}

/// Whether the trail has a record with this verdict of the attempt's process, or of a worker of the kernel's.
pub(crate) fn recorded(trail: &Trail, name: &str, wanted: &str) -> bool {
    trail.records.iter().any(|record| {
        let by = verdict(&record.what).is_some_and(|how| {
            how.verdict == wanted && (wanted != "denied" || how.by.as_deref() == Some("tracer"))
        });
        let of = actor(&record.what)
            .is_some_and(|actor| actor.comm == name || (name.starts_with("ring") && actor.worker));
        by && of
    })
}

fn unrecorded(
    said: &Transcript,
    stage: &str,
    wanted: &str,
    denied: impl Fn(&str) -> bool,
) -> Vec<String> {
    let (results, mut wrong) = reports(said, stage);
    let (trail, complaints) = Trail::of(said, stage);
    wrong.extend(complaints);
    let missing = results
        .keys()
        .filter(|name| denied(name) && !recorded(&trail, name, wanted));
    wrong.extend(missing.map(|name| trail.lacks(name, wanted)));
    wrong
}

fn deniable(name: &str) -> bool {
    reason(name).is_none() && !name.starts_with(INSIDE)
}

#[test]
fn every_attempt_succeeds_where_nobody_denies_it() {
    on_each_with("attempts", "attempts without a tracer", |machine, said| {
        let (results, mut wrong) = reports(said, "outside");
        wrong.extend(unless(results.len() > 60, || {
            format!("{} attempts only", results.len())
        }));
        wrong.extend(compare(&results, |name| outside(machine.kernel, name)));
        let (root, complaints) = reports(said, "outside-root");
        wrong.extend(complaints);
        wrong.extend(compare(&root, |_| "ok"));
        wrong
    });
}

#[test]
fn an_audit_denies_nothing_and_records_what_would_be_denied() {
    on_each_with("attempts", "an audit", |machine, said| {
        let (results, mut wrong) = reports(said, "audit");
        wrong.extend(compare(&results, |name| outside(machine.kernel, name)));
        wrong.extend(unrecorded(said, "audit", "would_deny", deniable));
        wrong
    });
}

#[test]
fn every_attempt_is_denied_or_known_to_be_open() {
    on_each_with("attempts", "denials", |machine, said| {
        let (results, mut wrong) = reports(said, "enforce");
        wrong.extend(compare(&results, |name| {
            if deniable(name) && !in_group(name) {
                let listed = ELSEWHERE.iter().find(|(listed, _)| *listed == name);
                listed.map_or(DENIED, |(_, error)| *error)
            } else {
                outside(machine.kernel, name)
            }
        }));
        wrong.extend(unrecorded(said, "enforce", "denied", |name| {
            deniable(name) && !in_group(name)
        }));
        wrong
    });
}

#[test]
fn denials_leave_files_as_they_were() {
    on_each_with("attempts", "what denials leave", |_, said| {
        let before = said.stage("before-left").text();
        let after = said.stage("enforce-left").text();
        let mut wrong = Vec::new();
        wrong.extend(unless(before == after, || {
            format!("before:\n{before}\nafter:\n{after}")
        }));
        for name in LEFT {
            let left = after.lines().any(|line| {
                line.strip_prefix("./secret/")
                    .is_some_and(|line| line.split(' ').next() == Some(name))
            });
            wrong.extend(unless(!left, || format!("{name} is there")));
        }
        wrong
    });
}

#[test]
fn the_internet_and_user_namespaces_are_closed_where_the_trace_says_so() {
    on_each_with("attempts", "internet and namespaces", |_, said| {
        let (results, mut wrong) = reports(said, "closed");
        wrong.extend(compare(&results, |name| {
            if in_group(name) { DENIED } else { "ok" }
        }));
        wrong.extend(unrecorded(said, "closed", "denied", in_group));
        wrong
    });
}

#[test]
fn root_is_denied_what_is_forbidden_too() {
    on_each_with("attempts", "denials of root's", |_, said| {
        let (results, mut wrong) = reports(said, "enforce-root");
        wrong.extend(compare(&results, |_| DENIED));
        wrong.extend(unrecorded(said, "enforce-root", "denied", |_| true));
        wrong
    });
}

/// A user could make a set-user-id program fail at an open of the user's choice.
#[test]
fn who_can_gain_privileges_is_denied_nothing() {
    on_each_with("attempts", "privileged programs", |_, said| {
        let (trail, mut wrong) = Trail::of(said, "privileged");
        let status = said.stage("privileged").status;
        wrong.extend(unless(status == 0, || {
            format!("exit code {status}: {}", said.stage("privileged").text())
        }));
        let flagged = trail
            .opens("/srv/user/secret/key")
            .any(|how| how.verdict == "would_deny");
        wrong.extend(unless(flagged, || {
            let found = trail.records.iter().map(|record| &record.what);
            let opens: Vec<_> = found.filter(|what| matches!(what, What::Open(_))).collect();
            format!("it is not said that it would be denied: {opens:?}")
        }));
        wrong
    });
}

/// The same of one that has them already: by a set-user-id program that sets `no_new_privs` itself. Nor is it recorded
/// what such a program opens.
#[test]
fn who_has_privileges_is_denied_nothing_and_not_looked_over_the_shoulder() {
    on_each_with("attempts", "programs that set ids", |_, said| {
        let (trail, mut wrong) = Trail::of(said, "gains");
        let status = said.stage("gains").status;
        wrong.extend(unless(status == 0, || {
            format!("exit code {status}: {}", said.stage("gains").text())
        }));
        let looked = trail.opens("/srv/user/secret/key").count();
        wrong.extend(unless(looked == 0, || format!("{looked} opens of the key")));
        let after = trail.opens("/srv/t/open").count();
        wrong.extend(unless(after == 1, || format!("{after} opens afterwards")));
        let started = trail
            .records
            .iter()
            .any(|record| matches!(&record.what, What::Exec(exec) if exec.path == "/srv/gains" && exec.set_id));
        wrong.extend(unless(started, || "it was not started".to_owned()));
        let other = trail.records.iter().any(|record| {
            matches!(&record.what, What::Operation(operation)
                if operation.operation == "other_user" && operation.detail == "user 0")
        });
        wrong.extend(unless(other, || "it is not said whose it is".to_owned()));
        wrong
    });
}
