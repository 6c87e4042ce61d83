//! A node as its users find it: which jails there are, what doctor says, and what settings of administrators change. The
//! tables of `docs/reference/kernels.md` are held to it.

use std::collections::BTreeSet;

use agent_sandbox::doctor::line::{Examination, Group, Line, Status};

use crate::attacks::untouched;
use crate::launches::fallen_back;
use crate::machine::{self, Transcript};
use crate::{Kernel, NODE, ended, on_each, on_each_node, unless};

/// The lines that a kernel has a part in.
const GROUPS: [Group; 3] = [Group::Node, Group::Jail, Group::Trace];
/// Tried with bash, which is not in these machines.
const NO_BASH: &str = "filtered-network";
/// What doctor says where none can.
const NO_TRACER: &str = "none can run on this node (the tracer needs Linux 5.13)";
/// What `chmod g+s` leaves, which in bubblewrap's jail a mediator carries out.
const GIVEN: &str = "drwxr-sr-x";
/// Calls that Landlock's jail refuses, and that may succeed in bubblewrap's below a Landlock ABI: why they do no harm.
const HARMLESS: [(&str, i32, &str); 6] = [
    (
        "home-",
        i32::MAX,
        "a private home stands at the place of the home",
    ),
    ("tmp-create", i32::MAX, "/tmp is private"),
    ("shm-rename-over", i32::MAX, "/dev/shm is private"),
    ("connect-abstract", 6, "the launch says so"),
    ("datagram-abstract", 6, "the launch says so"),
    // Sockets in a directory that the policy gives; what is sent to them is theirs to judge.
    ("connect-", i32::MAX, "its directory is given"),
];
/// The same of both jails' calls, of which the victim's log says what came of them.
const OF_BOTH: [&str; 4] = [
    "datagram-path",
    "datagram-connect",
    "setpriority-user",
    "ioprio-set-user",
];

fn doctor(said: &Transcript, stage: &str) -> Result<Examination, String> {
    let text = said.stage(stage).text();
    serde_json::from_str(&text).map_err(|error| format!("{stage}: {error}: {text}"))
}

fn line<'a>(all: &'a Examination, name: &str) -> Option<&'a Line> {
    all.checks.iter().find(|line| line.name == name)
}

/// The complaint that doctor does not say something of a check, or not how it stands, or not the fix.
fn says(
    said: &Transcript,
    stage: &str,
    name: &str,
    status: Status,
    found: &str,
    fix: &str,
) -> Option<String> {
    let all = match doctor(said, stage) {
        Ok(all) => all,
        Err(why) => return Some(why),
    };
    let good = line(&all, name).is_some_and(|line| {
        line.status == status && line.found.contains(found) && line.fix.contains(fix)
    });
    unless(good, || {
        format!(
            "{stage}: {name}: wanted {status:?} `{found}` fix `{fix}`: {:?}",
            line(&all, name)
        )
    })
}

/// A session of bubblewrap's with a mediator beside it.
fn given(said: &Transcript, stage: &str) -> Vec<String> {
    let mut wrong = ended(said, stage, 0, &[GIVEN]);
    let text = said.stage(stage).text();
    wrong.extend(unless(!text.contains("Landlock makes"), || {
        format!("{stage}: {text}")
    }));
    wrong
}

/// A launch that does without namespaces, or where there is no Landlock does not happen and says why. Where a session starts,
/// doctor says it.
fn without_namespaces(kernel: &Kernel, said: &Transcript, stage: &str, why: &str) -> Vec<String> {
    if kernel.abi == 0 {
        let mut wrong = ended(said, stage, 125, &[why, "Landlock", "hint: "]);
        let ran = said.stage(stage).reports().next();
        wrong.extend(unless(ran.is_none(), || format!("{stage}: it ran")));
        return wrong;
    }
    let mut wrong = ended(said, stage, 0, &["weaker jail: Landlock"]);
    wrong.extend(fallen_back(kernel, said, stage));
    wrong
}

/// The cells of the first table below a heading of the page.
fn table(heading: &str) -> Vec<Vec<String>> {
    let page = format!("{}/docs/reference/kernels.md", machine::root());
    let page = std::fs::read_to_string(page).expect("the page");
    let (_, part) = page
        .split_once(&format!("\n## {heading}\n"))
        .expect("the heading");
    let rows = part.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| {
        let cells = row.trim_matches('|').split(" | ");
        cells.map(|cell| cell.trim().to_owned()).collect()
    })
    .collect()
}

/// Whether a row is of a kernel, by its first cell: releases with commas between, and what has them in brackets.
fn is_of(row: &[String], kernel: &str) -> bool {
    row[0]
        .split(", ")
        .any(|release| release.split(' ').next() == Some(kernel))
}

#[test]
fn doctor_says_what_the_documentation_does() {
    let words = table("What doctor says");
    let names: BTreeSet<&str> = words.iter().map(|row| row[1].trim_matches('`')).collect();
    on_each_node("doctor's words", |kernel, said| {
        let all = match doctor(said, "node-doctor") {
            Ok(all) => all,
            Err(why) => return vec![why],
        };
        let written: BTreeSet<String> = words
            .iter()
            .filter(|row| is_of(row, kernel.name))
            .map(|row| format!("{} | {} | {}", row[1].trim_matches('`'), row[2], row[3]))
            .collect();
        let found: BTreeSet<String> = all
            .checks
            .iter()
            .filter(|line| GROUPS.contains(&line.group) && line.name != NO_BASH)
            .filter(|line| line.status != Status::Ok || names.contains(&*line.name))
            .map(|line| format!("{} | {} | {}", line.name, line.status.word(), line.found))
            .collect();
        let only = |here: &BTreeSet<String>, there: &BTreeSet<String>| {
            here.difference(there)
                .cloned()
                .collect::<Vec<_>>()
                .join("\n  ")
        };
        unless(written == found, || {
            format!(
                "only doctor says\n  {}\nonly the page says\n  {}",
                only(&found, &written),
                only(&written, &found)
            )
        })
        .into_iter()
        .collect()
    });
}

#[test]
fn the_table_of_kernels_says_what_is_there() {
    let rows = table("By kernel");
    on_each_node("the table of kernels", |kernel, said| {
        let all = match doctor(said, "node-doctor") {
            Ok(all) => all,
            Err(why) => return vec![why],
        };
        let Some(row) = rows.iter().find(|row| is_of(row, kernel.name)) else {
            return vec!["no row".to_owned()];
        };
        let works = |name: &str| line(&all, name).is_some_and(|line| line.status == Status::Ok);
        let abi = all.parts.landlock;
        let with_abi = |holds: bool| match holds {
            true => format!("yes: ABI {abi}"),
            false => "no".to_owned(),
        };
        let word = |holds: bool| if holds { "yes" } else { "no" }.to_owned();
        let mediator = said.stage("node-given").text().contains(GIVEN);
        // That one runs where doctor says nothing against it is what the suite `ebpf` tries.
        let tracer = line(&all, "tracer").is_some_and(|line| !line.found.contains(NO_TRACER));
        let found = [
            word(works("jail-bwrap")),
            with_abi(abi >= 6),
            word(mediator),
            with_abi(works("jail-landlock")),
            word(tracer),
        ];
        let mut wrong: Vec<String> =
            unless(abi == kernel.abi, || format!("Landlock's ABI is {abi}"))
                .into_iter()
                .collect();
        for (cell, found) in row[1..].iter().zip(found) {
            // What was never seen on such a kernel is not said to be tested.
            let said = cell.strip_suffix(", **tested**");
            wrong.extend(unless(said == Some(&found), || {
                format!("the table says `{cell}`, and it is `{found}, **tested**`")
            }));
        }
        if !tracer {
            wrong.extend(ended(said, "tracer", 1, &["too old", "Linux 5.13"]));
        }
        wrong
    });
}

#[test]
fn bubblewraps_jail_holds_on_each_kernel() {
    on_each_node("bubblewrap's jail", |kernel, said| {
        let stage = said.stage("node-jail");
        let mut wrong = untouched(said, "node");
        wrong.extend(unless(stage.status == 0 && stage.complete(), || {
            format!("the probe ended early: {}", stage.text())
        }));
        wrong.extend(unless(!stage.text().contains("weaker jail"), || {
            format!("Landlock made it: {}", stage.text())
        }));
        let harmless = |name: &str| {
            let listed = HARMLESS
                .iter()
                .find(|(listed, ..)| name.starts_with(listed));
            OF_BOTH.contains(&name) || listed.is_some_and(|(_, below, _)| kernel.abi < *below)
        };
        for (name, result) in stage.reports() {
            let good = match name.starts_with("in-") {
                true => result == "ok",
                false => result != "ok" || harmless(name),
            };
            wrong.extend(unless(good, || format!("{name}: {result}")));
        }
        wrong.extend(given(said, "node-given"));
        wrong
    });
}

#[test]
fn without_user_namespaces_landlock_makes_the_jail_or_it_is_said() {
    let cause = "user.max_user_namespaces = 0";
    on_each_node("no user namespaces", |kernel, said| {
        let mut wrong = without_namespaces(kernel, said, "none-auto", cause);
        wrong.extend(ended(
            said,
            "none-bwrap",
            125,
            &[cause, "sysctl -w user.max_user_namespaces"],
        ));
        let status = match kernel.abi {
            0 => Status::Broken,
            _ => Status::Degraded,
        };
        let fix = "sysctl -w user.max_user_namespaces=15000";
        wrong.extend(says(
            said,
            "none-doctor",
            "user-namespaces",
            status,
            cause,
            fix,
        ));
        wrong
    });
}

#[test]
fn where_yama_keeps_the_mediator_out_it_is_said_and_nothing_of_landlocks_starts() {
    on_each_node("Yama", |kernel, said| {
        let mut wrong = Vec::new();
        for scope in 1..=3 {
            let [bwrap, landlock, doctor] =
                ["-bwrap", "", "-doctor"].map(|kind| format!("yama-{scope}{kind}"));
            let name = format!("ptrace_scope is {scope}");
            // The owner of bubblewrap's namespaces has access to what is in them, but where nobody has.
            match scope {
                3 => {
                    let stage = said.stage(&bwrap);
                    let text = stage.text();
                    let good = stage.status != 0 && text.contains(&name) && !text.contains(GIVEN);
                    wrong.extend(unless(good, || format!("{bwrap}: {text}")));
                    let found = format!(
                        "`chgrp` and `setfacl` do not: Yama forbids what the mediator needs (kernel.yama.{name})"
                    );
                    wrong.extend(says(
                        said,
                        &doctor,
                        "seccomp",
                        Status::Degraded,
                        &found,
                        "below 3",
                    ));
                }
                _ => wrong.extend(given(said, &bwrap)),
            }
            if scope == 1 || kernel.abi == 0 {
                let cause = "user.max_user_namespaces = 0";
                wrong.extend(without_namespaces(kernel, said, &landlock, cause));
                continue;
            }
            wrong.extend(ended(said, &landlock, 125, &[&name, "hint: "]));
            let stage = said.stage(&landlock);
            let ran = stage.reports().next().is_some() || stage.text().contains("jailed in ");
            wrong.extend(unless(!ran, || format!("{landlock}: {}", stage.text())));
            let fix = "sysctl -w kernel.yama.ptrace_scope=1";
            wrong.extend(says(said, &doctor, "yama", Status::Degraded, &name, fix));
        }
        wrong
    });
}

#[test]
fn where_apparmor_keeps_namespaces_from_users_it_is_said_and_the_fix_is_one() {
    println!(
        "not checked: kernel.apparmor_restrict_unprivileged_userns: only Ubuntu's kernels have it; profiles that do the same are"
    );
    on_each("AppArmor", &[NODE], |kernel, said| {
        if kernel.abi == 0 {
            return Vec::new();
        }
        let mut wrong = Vec::new();
        // Linux has had these since 6.7, and never Ubuntu's.
        let settings = ["unprivileged_userns_apparmor_policy", "Y"];
        wrong.extend(ended(said, "apparmor-settings", 0, &settings));
        let theirs = said.stage("apparmor-settings").text();
        wrong.extend(unless(
            !theirs.contains("apparmor_restrict_unprivileged_userns"),
            || theirs.clone(),
        ));
        for stage in [
            "load",
            "rule",
            "alone-load",
            "alone-jailer",
            "closed-load",
            "own-load",
            "unload",
        ] {
            wrong.extend(ended(said, &format!("apparmor-{stage}"), 0, &[]));
        }
        let cause = "AppArmor's profile `login`";
        wrong.extend(ended(
            said,
            "apparmor-auto",
            0,
            &["Landlock", cause, "in-create ok", "the end"],
        ));
        wrong.extend(ended(
            said,
            "apparmor-bwrap",
            125,
            &[cause, "add `userns,` to the profile `login`"],
        ));
        let fix = "add `userns,` to the profile `login`";
        for name in ["user-namespaces", "bubblewrap"] {
            wrong.extend(says(
                said,
                "apparmor-doctor",
                name,
                Status::Degraded,
                cause,
                fix,
            ));
        }
        wrong.extend(given(said, "apparmor-rule-jail"));
        wrong.extend(given(said, "apparmor-alone"));
        let found = "bubblewrap can make them";
        wrong.extend(says(
            said,
            "apparmor-alone-doctor",
            "user-namespaces",
            Status::Ok,
            found,
            "",
        ));
        let closed = [
            "not by bubblewrap",
            "add `userns,` to the profile of bubblewrap",
        ];
        wrong.extend(ended(said, "apparmor-closed", 125, &closed));
        wrong.extend(given(said, "apparmor-own"));
        wrong.extend(ended(said, "apparmor-own", 0, &["unpriv_bwrap", "the end"]));
        wrong.extend(untouched(said, "apparmor-own"));
        wrong.extend(says(
            said,
            "apparmor-own-doctor",
            "jail-bwrap",
            Status::Ok,
            "started",
            "",
        ));
        wrong
    });
}
