//! What a launch says, how a jail ends, and where it does not start.

use agent_sandbox_landlock::missing::{Holds, MISSING};

use crate::attacks::{allowed, refused, untouched};
use crate::machine::Transcript;
use crate::{Kernel, ended, on_each_kernel, silent, unless};

/// Whether the table says that the launches here lack it; `None`: it depends on the policy.
fn lacking(holds: Holds, abi: i32) -> Option<bool> {
    match holds {
        Holds::Always | Holds::FilteredUsers => Some(true),
        Holds::BelowAbi(below) => Some(abi < below),
        Holds::Isolated | Holds::FilteredNetwork | Holds::SlurmHere | Holds::SlurmWorks => {
            Some(false)
        }
        Holds::LimitedProcesses | Holds::HiddenInside => None,
    }
}

/// A launch that has fallen back, with the probe in it.
pub(crate) fn fallen_back(kernel: &Kernel, said: &Transcript, stage: &str) -> Vec<String> {
    let mut wrong = ended(said, stage, 0, &["Landlock", "in-create ok", "the end"]);
    let banners = said.stage(stage).text().matches("jailed in ").count();
    wrong.extend(unless(banners == 1, || {
        format!("{stage}: {banners} times `jailed in`")
    }));
    wrong.extend(refused(kernel, said, stage));
    wrong.extend(allowed(kernel, said, stage));
    wrong
}

#[test]
fn a_launch_says_what_it_lacks_of_a_jail_of_bubblewraps() {
    on_each_kernel("what a launch says", |kernel, said| {
        let mut wrong = ended(said, "dry-run", 0, &[]);
        let json = said.stage("dry-run").text();
        let json: serde_json::Value = match json.find('{').map(|at| &json[at..]) {
            Some(json) => serde_json::from_str(json).unwrap_or_default(),
            None => serde_json::Value::Null,
        };
        let ids: Vec<&str> = json["missing"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|lack| lack["id"].as_str())
            .collect();
        let banner = said.stage("jail").text();
        let explained = said.stage("explain").text();
        for lack in MISSING {
            let listed = ids.contains(&lack.id);
            let printed = explained.contains(lack.sentence);
            let wanted = lacking(lack.holds, kernel.abi).unwrap_or(listed);
            wrong.extend(unless(listed == wanted, || {
                format!("`{}` in the plan: {listed}, wanted: {wanted}", lack.id)
            }));
            wrong.extend(unless(printed == wanted, || {
                format!("`{}` said: {printed}, wanted: {wanted}", lack.id)
            }));
        }
        let line = format!("weaker jail: Landlock, {} differences: ", ids.len());
        wrong.extend(unless(banner.contains(&line), || {
            format!("no `{line}`: {banner}")
        }));
        wrong.extend(ended(said, "explain", 0, &["not installed"]));
        wrong
    });
}

#[test]
fn what_cannot_be_given_is_not_done_without_unasked() {
    on_each_kernel("demands", |_, said| {
        ended(
            said,
            "strict",
            125,
            &["jail.users", "landlock.users=degraded"],
        )
    });
}

#[test]
fn job_control_works() {
    on_each_kernel("job control", |_, said| {
        let mut wrong = Vec::new();
        for stage in ["jobs-outside", "jobs"] {
            wrong.extend(ended(said, stage, 0, &["stopped 1", "ended 7"]));
        }
        wrong
    });
}

#[test]
fn nothing_is_left_of_a_jail() {
    on_each_kernel("leftovers", |_, said| {
        let mut wrong = ended(said, "leave-outside-alive", 0, &["probe leave"]);
        wrong.extend(ended(said, "leave", 0, &["left"]));
        wrong.extend(silent(said, "leave-alive"));
        wrong.extend(silent(said, "jail-left"));
        wrong
    });
}

#[test]
fn whatever_holds_the_jail_together_is_killed_nothing_opens_and_nothing_stays() {
    on_each_kernel("the mediator's end", |_, said| {
        let through = ["connect", "chmod", "truncate", "git"].map(|way| format!("through {way}"));
        let through = through.each_ref().map(String::as_str);
        let mut wrong = ended(said, "storm-outside", 137, &through);
        for part in ["mediator", "attendant", "launcher"] {
            let output = said.stage(&format!("{part}-output")).text();
            wrong.extend(unless(output.contains("storm"), || {
                format!("{part}: the attacks did not begin: {output}")
            }));
            wrong.extend(unless(!output.contains("through"), || {
                format!("{part}: {output}")
            }));
            wrong.extend(silent(said, &format!("{part}-alive")));
            let launcher = said.stage(&format!("{part}-launcher")).status;
            wrong.extend(unless(launcher != 0, || {
                format!("{part}: the launcher stays")
            }));
            let target = said.stage(&format!("{part}-target"));
            let ours = |line: &String| line.starts_with("agent-sandbox ");
            wrong.extend(unless(target.lines.last().is_some_and(ours), || {
                format!("{part}: killed was {:?}", target.lines)
            }));
            wrong.extend(untouched(said, part));
        }
        wrong
    });
}

#[test]
fn a_bubblewrap_that_cannot_work_is_done_without() {
    on_each_kernel("bubblewrap that cannot work", |kernel, said| {
        let mut wrong = fallen_back(kernel, said, "bwrap-unusable");
        wrong.extend(fallen_back(kernel, said, "no-namespaces"));
        wrong.extend(ended(
            said,
            "no-namespaces-bwrap",
            125,
            &["max_user_namespaces"],
        ));
        wrong
    });
}
