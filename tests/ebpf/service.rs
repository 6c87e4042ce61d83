//! The tracer itself: what it says of a kernel, its end by force, a second one, and kernels that lack
//! something.

use agent_sandbox_events::protocol::Status;
use agent_sandbox_events::record::What;

use crate::machine::Transcript;
use crate::trail::Trail;
use crate::{TRACEPOINTS, TRAMPOLINES, ended, number, on_each_with, unless};

const SECRET: &str = "/srv/user/secret/key";

fn status(said: &Transcript, stage: &str) -> (Status, Vec<String>) {
    let text = said.stage(stage).text();
    match serde_json::from_str(&text) {
        Ok(status) => (status, Vec::new()),
        Err(error) => (Status::default(), vec![format!("{stage}: {error}: {text}")]),
    }
}

#[test]
fn the_tracer_says_what_it_has_proved() {
    for stage in ["actions", "many", "no-denial"] {
        on_each_with(stage, "what the tracer says", |machine, said| {
            println!("{}: {:.1} s", machine.name, said.took.as_secs_f64());
            let version = format!("{}.", machine.kernel);
            let facts = said.stage("facts").text();
            let mut wrong = Vec::new();
            wrong.extend(unless(facts.starts_with(&version), || facts.clone()));
            wrong.extend(ended(said, "start", 0, &[]));
            let (status, complaints) = status(said, "status");
            wrong.extend(complaints);
            let object = if machine.object == TRACEPOINTS {
                TRACEPOINTS
            } else {
                TRAMPOLINES
            };
            wrong.extend(unless(status.object == object, || format!("{status:?}")));
            let denies = machine.object == TRAMPOLINES;
            wrong.extend(unless(status.enforces == denies, || format!("{status:?}")));
            let good = !status.proved.is_empty() && (denies || !status.blind.is_empty());
            wrong.extend(unless(good, || format!("{status:?}")));
            wrong
        });
    }
}

/// Marks, programs and what is forbidden are pinned, and the buffer holds what nobody reads.
#[test]
fn a_killed_tracer_leaves_denials_in_force_and_the_next_goes_on() {
    on_each_with("killed", "a killed tracer", |_, said| {
        let mut wrong = ended(said, "killed", 0, &["before 1", "while 1", "after 1"]);
        let (trail, complaints) = Trail::of(said, "killed");
        wrong.extend(complaints);
        let away = trail
            .records
            .iter()
            .any(|record| matches!(&record.what, What::Away(_)));
        wrong.extend(unless(away, || {
            "the trail does not say that the tracer was away".to_owned()
        }));
        let denials: u64 = trail
            .opens(SECRET)
            .filter(|how| how.by.as_deref() == Some("tracer"))
            .map(|how| how.count)
            .sum();
        wrong.extend(unless(denials == 3, || format!("{denials} denials, not 3")));
        for name in ["while-killed", "after-kill"] {
            let found = trail.opens(&format!("/srv/t/{name}")).next().is_some();
            wrong.extend(unless(found, || format!("no open of {name}")));
        }
        wrong
    });
}

#[test]
fn a_second_tracer_is_refused() {
    on_each_with("killed", "a second tracer", |_, said| {
        let mut wrong = Vec::new();
        for stage in ["second", "second-elsewhere"] {
            let said = said.stage(stage);
            let good = said.status != 0 && said.text().contains("run");
            wrong.extend(unless(good, || {
                format!("{stage}: exit code {}: {}", said.status, said.text())
            }));
        }
        wrong.extend(status(said, "second-status").1);
        wrong
    });
}

#[test]
fn nothing_is_left_of_a_tracer_that_is_removed() {
    on_each_with("killed", "removal", |_, said| {
        let mut wrong = ended(said, "terminated", 0, &["exit code 0"]);
        wrong.extend(ended(said, "terminated-pins", 0, &["marks"]));
        wrong.extend(ended(said, "unpinned", 0, &[]));
        let left = said.stage("unpinned-pins").text();
        wrong.extend(unless(left.is_empty(), || left.clone()));
        wrong
    });
}

/// Programs at security hooks attach there, and are never called: that is noticed by trying.
#[test]
fn where_nothing_can_be_denied_it_is_said_and_what_demands_it_does_not_start() {
    on_each_with("no-denial", "a kernel without bpf in lsm=", |_, said| {
        let mut wrong = Vec::new();
        let listed = said.stage("facts").text().contains("bpf");
        wrong.extend(unless(!listed, || said.stage("facts").text()));
        let (status, complaints) = status(said, "status");
        wrong.extend(complaints);
        let says = status.blind.iter().any(|sentence| sentence.contains("bpf"));
        wrong.extend(unless(says, || format!("{status:?}")));
        let refused = said.stage("no-denial");
        let good = refused.status != 0 || refused.text().contains("blind: ");
        wrong.extend(unless(good, || format!("enforce: {}", refused.text())));
        let required = said.stage("required");
        let good = required.status == 125 && !required.text().contains("started");
        wrong.extend(unless(good, || {
            format!("exit code {}: {}", required.status, required.text())
        }));
        wrong
    });
}

#[test]
fn without_type_information_the_tracer_says_what_it_needs() {
    on_each_with("no-btf", "a kernel without type information", |_, said| {
        let stage = said.stage("no-btf");
        let good = stage.status != 0 && stage.text().contains("BTF");
        unless(good, || {
            format!("exit code {}: {}", stage.status, stage.text())
        })
        .into_iter()
        .collect()
    });
}

#[test]
fn without_a_tracer_a_register_says_so() {
    on_each_with("nowhere", "no tracer", |_, said| {
        ended(said, "nowhere", 1, &["cannot reach the tracer"])
    });
}

#[test]
fn nothing_is_lost_while_a_tracer_takes_over() {
    on_each_with("killed", "what is counted", |_, said| {
        let (status, mut wrong) = status(said, "again-status");
        wrong.extend(unless(status.lost == 0, || format!("{status:?}")));
        wrong.extend(unless(number(said, "killed", "while") == 1, || {
            said.stage("killed").text()
        }));
        wrong
    });
}

#[test]
fn a_session_of_the_launchers_has_a_trail_that_others_do_not_read() {
    on_each_with("session", "a session", |_, said| {
        let mut wrong = ended(said, "session", 1, &["text"]);
        let (trail, complaints) = Trail::whole(said, "session-trail");
        wrong.extend(complaints);
        let found = trail
            .opens("/srv/t/open")
            .any(|how| how.verdict == "allowed");
        wrong.extend(unless(found, || {
            format!("no open: {}", said.stage("session-trail").text())
        }));
        let named = trail
            .records
            .iter()
            .all(|record| record.trail.session.is_some());
        wrong.extend(unless(named, || "records without a session".to_owned()));
        wrong.extend(unless(trail.ended(), || "the trail has no end".to_owned()));
        let others = said.stage("session-others").text();
        let read = others.contains("seq") || others.contains("/srv/t/open");
        wrong.extend(unless(!read, || format!("another user reads: {others}")));
        wrong
    });
}

/// Where the second layer works, a watched run asks it what it would deny, and goes on as any other.
#[test]
fn a_watched_run_becomes_a_profile_by_its_trail() {
    on_each_with("profile", "a run that is watched", |machine, said| {
        let mut wrong = ended(said, "profile", 0, &["secret", "text"]);
        let text = said.stage("profile-text").text();
        let object = format!("the node's tracer ({}, ", machine.object);
        for line in [
            object.as_str(),
            "leak\"  # asked for: let through, and the tracer would deny it",
            "\"~/.watched\",  # written once",
        ] {
            wrong.extend(unless(text.contains(line), || {
                format!("no {line:?}: {text}")
            }));
        }
        wrong.extend(unless(!text.contains("NOT COMPLETE"), || text.clone()));
        wrong
    });
}
