//! What makes the jail, as it was tried.

use super::super::facts::{Facts, FilteredTrial, Trial};
use super::super::line::{Finding, Status};
use super::{unfit, ways_out, without};
use crate::cli::Backend;

pub(super) fn bubblewrap(facts: &Facts) -> Option<Finding> {
    let found = &facts.jail.bubblewrap;
    let Some(path) = &found.path else {
        let reason = found.reason.clone().unwrap_or_default();
        return Some(Finding::new(
            without(facts),
            &reason.message,
            ways_out(&reason),
        ));
    };
    let version = found.version.as_deref().unwrap_or("of unknown version");
    let set_id = if found.set_id { ", set-user-ID" } else { "" };
    let what = format!("{} ({version}{set_id})", path.display());
    Some(match &found.reason {
        None if found.lacks.is_empty() => Finding::ok(format!("{what} builds a jail")),
        None => Finding::ok(format!(
            "{what} builds a jail, and agent-sandbox does in it what {} would",
            found.lacks.join(", ")
        )),
        Some(reason) => Finding::new(
            without(facts),
            format!("{what}: {}", reason.message),
            ways_out(reason),
        ),
    })
}

pub(super) fn bwrap(facts: &Facts) -> Option<Finding> {
    trial(facts, &facts.jail.bwrap, "bubblewrap")
}

pub(super) fn landlock(facts: &Facts) -> Option<Finding> {
    let jail = &facts.jail;
    said_before(
        facts,
        &jail.landlock,
        &[(&jail.bwrap, "jail-bwrap")],
        "Landlock",
    )
}

/// The session as it was asked for.
pub(super) fn session(facts: &Facts) -> Option<Finding> {
    let asked = match facts.jail.asked {
        Backend::Auto => "auto",
        Backend::Bwrap => "bwrap",
        Backend::Landlock => "landlock",
    };
    let jail = &facts.jail;
    let before = [
        (&jail.bwrap, "jail-bwrap"),
        (&jail.landlock, "jail-landlock"),
    ];
    said_before(facts, &jail.session, &before, &format!("--backend {asked}"))
}

/// Sessions with a filtered network. The usual network is another one, so this is in nobody's way.
pub(super) fn filtered_network(facts: &Facts) -> Option<Finding> {
    let FilteredTrial { trial, reached } = facts.jail.filtered.as_ref()?;
    let by = "network.mode=filtered";
    Some(match (trial, reached) {
        (Trial::NotTried, _) => return None,
        (Trial::Failed(trouble), _) => Finding::degraded(
            format!("{by}: {}", trouble.message),
            ways_out(trouble),
        ),
        (Trial::Late { seconds }, _) => late(Status::Degraded, by, *seconds),
        (Trial::Started { .. }, Some(Err(why))) => Finding::degraded(
            format!("{by}: a session started, and did not reach a server that it may reach: {why}"),
            "try a host that you allow, and read `agent-sandbox log --network`; something on this node may close connections of its own to loopback",
        ),
        (Trial::Started { milliseconds }, None) => Finding::ok(format!(
            "{by}: a session started and ended; connections were not tried, since the policy does not let it reach localhost"
        ))
        .took(*milliseconds),
        (Trial::Started { milliseconds }, Some(Ok(()))) => {
            Finding::ok(format!("{by}: a session reached what it may reach")).took(*milliseconds)
        }
    })
}

/// A trial that failed like one before it refers to that.
fn said_before(facts: &Facts, one: &Trial, before: &[(&Trial, &str)], by: &str) -> Option<Finding> {
    let same = before
        .iter()
        .find(|(other, _)| matches!(one, Trial::Failed(_)) && *other == one);
    match same {
        None => trial(facts, one, by),
        Some((_, name)) => Some(Finding::new(
            without(facts),
            format!("{by}: the same as {name}"),
            format!("see {name}"),
        )),
    }
}

fn trial(facts: &Facts, trial: &Trial, by: &str) -> Option<Finding> {
    Some(match trial {
        Trial::Started { milliseconds } => {
            Finding::ok(format!("{by}: a session started and ended")).took(*milliseconds)
        }
        Trial::Failed(trouble) => Finding::new(
            without(facts),
            format!("{by}: {}", trouble.message),
            ways_out(trouble),
        ),
        Trial::Late { seconds } => late(without(facts), by, *seconds),
        Trial::NotTried => return not_tried(facts, by),
    })
}

fn late(status: Status, by: &str, seconds: u64) -> Finding {
    Finding::new(
        status,
        format!("{by}: a session did not end within {seconds} s, and was ended"),
        "try again; if it stays, a file system may not answer: see `df`",
    )
}

/// What was not tried is no `ok`. Why not is said once, by the check that is the reason.
fn not_tried(facts: &Facts, by: &str) -> Option<Finding> {
    if facts.user.root || facts.policy.trouble.is_some() || unfit(facts).is_some() {
        return None;
    }
    let why = "not tried: there is no project directory to try it in";
    Some(Finding::new(
        without(facts),
        format!("{by}: {why}"),
        "run `agent-sandbox doctor` in a project directory, or give one with -C DIR",
    ))
}
