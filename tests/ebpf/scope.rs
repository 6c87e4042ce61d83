//! Whose tasks are recorded: of a tree, however they come to be, and of a cgroup, wherever they go.

use agent_sandbox_events::record::What;

use crate::trail::Trail;
use crate::{ended, on_each_with, reports, unless};

/// The real user id of another user, whose process is in the cgroup too.
const OTHER_USER: &str = "1001";

fn opened(trail: &Trail, path: &str) -> Option<String> {
    let found = trail.opens(path).any(|how| how.verdict == "allowed");
    unless(found, || format!("no open of {path}"))
}

#[test]
fn a_task_stays_in_the_tree_whatever_it_does() {
    on_each_with("scope", "a tree", |_, said| {
        let (results, mut wrong) = reports(said, "tree");
        let (trail, complaints) = Trail::of(said, "tree");
        wrong.extend(complaints);
        wrong.extend(unless(results.len() >= 9, || format!("{results:?}")));
        for (name, result) in results {
            wrong.extend(unless(result == "ok", || format!("{name}: {result}")));
            wrong.extend(opened(&trail, &format!("/srv/t/{name}")));
        }
        wrong.extend(unless(trail.ended(), || "the trail has no end".to_owned()));
        wrong
    });
}

#[test]
fn a_program_that_a_thread_starts_has_the_processs_number() {
    on_each_with("scope", "an executing thread", |_, said| {
        let (trail, mut wrong) = Trail::of(said, "tree");
        let good = trail.records.iter().any(|record| match &record.what {
            What::Exec(exec) => {
                exec.arguments.last().map(String::as_str) == Some("/srv/t/thread-exec")
                    && exec.actor.tid.is_none_or(|tid| tid == exec.actor.pid)
            }
            _ => false,
        });
        wrong.extend(unless(good, || "no such record".to_owned()));
        wrong
    });
}

#[test]
fn what_ran_before_is_in_the_trace_with_what_it_had_started() {
    on_each_with("scope", "descendants", |_, said| {
        let mut wrong = ended(said, "descendants", 0, &["trace: "]);
        let (trail, complaints) = Trail::of(said, "descendants");
        wrong.extend(complaints);
        wrong.extend(opened(&trail, "/srv/t/descendant"));
        wrong.extend(unless(trail.ended(), || "the trail has no end".to_owned()));
        wrong
    });
}

#[test]
fn a_cgroups_tasks_are_recorded_from_when_they_come_and_after_they_leave() {
    on_each_with("scope", "a cgroup", |_, said| {
        let mut wrong = ended(said, "cgroups", 0, &["trace: "]);
        let (trail, complaints) = Trail::of(said, "cgroups");
        wrong.extend(complaints);
        for name in ["before", "below", "in", "left", "made"] {
            wrong.extend(opened(&trail, &format!("/srv/t/cgroup-{name}")));
        }
        wrong
    });
}

#[test]
fn nothing_of_others_is_recorded() {
    on_each_with("scope", "other users and other cgroups", |_, said| {
        let text = said.stage("cgroups-trail").text();
        let (trail, mut wrong) = Trail::of(said, "cgroups");
        for name in ["other", "out"] {
            let found = text.contains(&format!("cgroup-{name}"));
            wrong.extend(unless(!found, || format!("cgroup-{name} is recorded")));
        }
        let other = trail
            .records
            .iter()
            .any(|record| record.trail.uid.to_string() == OTHER_USER);
        wrong.extend(unless(!other, || "a record of another user's".to_owned()));
        wrong
    });
}
