//! A report for a terminal. The sentences that [`super::markdown`] needs as well stand here, too.

use std::fmt::Write;

use agent_sandbox_events::ask::Untraced;

use super::directories::{Entry, grouped};
use super::{Denied, Endpoint, OneTrail, Program, Summary, Unseen, Ways};
use crate::clock;
use crate::model::place;
use crate::text::{command, counted, cut, shown};

/// Rows of one section; `--json` has all.
pub const ROWS: usize = 100;
/// Characters of one row.
const WIDE: usize = 300;

/// The whole report.
#[must_use]
pub fn text(summary: &Summary) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", heading(summary));
    for line in about(summary) {
        let _ = writeln!(out, "  {line}");
    }
    section(&mut out, "Summary", &how_it_went(summary));
    section(&mut out, "What could not be seen", &unseen(&summary.unseen));
    denied_section(&mut out, "Denied", &summary.denied);
    denied_section(&mut out, "Would be denied", &summary.would_be_denied);
    rows(&mut out, "Programs", &summary.programs, |program| {
        format!("{:>7}  {}", all(&program.ways), program_text(program))
    });
    files(&mut out, "Files written", &summary.written);
    files(&mut out, "Files read", &summary.read);
    files(&mut out, "Directories listed", &summary.listed);
    for (title, endpoints) in [
        ("Connections", &summary.connections),
        ("Listens", &summary.listens),
    ] {
        rows(&mut out, title, endpoints, |endpoint| {
            format!("{:>7}  {}", all(&endpoint.ways), endpoint_text(endpoint))
        });
    }
    rows(&mut out, "Operations", &summary.operations, |operation| {
        let mut text = format!(
            "{:>7}  {} {}",
            all(&operation.ways),
            operation.operation,
            operation.about
        );
        text.push_str(&not_allowed(&operation.ways));
        text
    });
    if summary.trails.len() > 1 {
        rows(&mut out, "Jobs and nodes", &summary.trails, |one| {
            format!("  {}", trail_text(one))
        });
    }
    out
}

/// What it is about, on one line.
#[must_use]
pub fn heading(summary: &Summary) -> String {
    heading_of(&summary.trails)
}

/// What trails are about, on one line.
#[must_use]
pub fn heading_of(trails: &[OneTrail]) -> String {
    let Some(first) = trails.first() else {
        return "no records".into();
    };
    let same = |of: fn(&OneTrail) -> Option<String>| {
        let value = of(first);
        trails
            .iter()
            .all(|one| of(one) == value)
            .then_some(value)
            .flatten()
    };
    let mut nodes: Vec<&str> = trails.iter().map(|one| one.node.as_str()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let what = match (
        same(|one| one.session.clone()),
        same(|one| one.job.map(|job| job.to_string())),
    ) {
        (Some(session), None) => format!("session {session}"),
        (Some(session), Some(job)) => format!("job {job} of session {session}"),
        (None, Some(job)) => format!("job {job}"),
        (None, None) => match trails.len() {
            1 => format!("trace {}", first.trace),
            more => format!("{more} trails"),
        },
    };
    let place = match nodes[..] {
        [node] => node.to_owned(),
        _ => counted(nodes.len() as u64, "node", "nodes"),
    };
    let mut users: Vec<u32> = trails.iter().map(|one| one.uid).collect();
    users.sort_unstable();
    users.dedup();
    let users: Vec<String> = users.iter().map(u32::to_string).collect();
    let user = if users.len() > 1 { "users" } else { "user" };
    shown(&format!("{what} on {place}, {user} {}", users.join(", ")))
}

/// Lines about time, command and how it was seen.
#[must_use]
pub fn about(summary: &Summary) -> Vec<String> {
    let mut lines = Vec::new();
    if let (Some(began), Some(last)) = (summary.began, summary.last) {
        let mut line = format!(
            "{} to {} ({})",
            clock::date(began),
            clock::date(last),
            clock::span(last - began)
        );
        let ends: Vec<&String> = summary
            .trails
            .iter()
            .filter_map(|one| one.ended.as_ref())
            .collect();
        match (summary.live, ends.as_slice()) {
            (true, _) => line.push_str(", goes on"),
            (false, [why]) => line.push_str(&format!(", ended: {why}")),
            (false, _) => line.push_str(", ended"),
        }
        lines.push(line);
    }
    if let Some(first) = summary.trails.iter().find(|one| !one.command.is_empty()) {
        lines.push(format!("command: {}", command(&first.command)));
    }
    let mut seen: Vec<String> = summary
        .trails
        .iter()
        .filter_map(|one| {
            let enforce = match one.enforce.as_deref()? {
                "on" => "; what is forbidden is denied",
                "audit" => "; what is forbidden is let through and recorded",
                _ => "; nothing is denied by the tracer",
            };
            Some(format!(
                "seen by {} on Linux {}{enforce}",
                one.object.as_deref()?,
                one.kernel.as_deref()?
            ))
        })
        .collect();
    seen.sort();
    seen.dedup();
    lines.extend(seen);
    lines.iter().map(|line| cut(&shown(line), WIDE)).collect()
}

/// How everything went, a sentence each.
#[must_use]
pub fn how_it_went(summary: &Summary) -> Vec<String> {
    let mut lines = vec![verdicts(&summary.verdicts), events(summary)];
    if summary.verdicts.not_run > 0 {
        let calls = counted(summary.verdicts.not_run, "call", "calls");
        lines.push(format!(
            "{calls} did not run as the process called them: a filter (with Landlock that of the jail, whose mediator then does it itself, recorded apart), or whoever debugs it, answered in the kernel's place"
        ));
    }
    lines
}

/// How everything went.
#[must_use]
pub fn verdicts(ways: &Ways) -> String {
    let text = |number, word| format!("{} {word}", crate::text::grouped(number));
    let mut parts = vec![
        text(ways.allowed, "allowed"),
        text(ways.denied, "denied"),
        text(ways.failed, "failed"),
        text(ways.would_deny, "would be denied"),
    ];
    if ways.not_run > 0 {
        parts.push(text(ways.not_run, "not run"));
    }
    parts.join(", ")
}

/// How many there were of each kind.
#[must_use]
pub fn events(summary: &Summary) -> String {
    let text =
        |number: &super::Number| format!("{} {}", crate::text::grouped(number.count), number.name);
    let all: Vec<String> = summary
        .events
        .iter()
        .filter(|number| number.count > 0)
        .map(text)
        .collect();
    match all.is_empty() {
        true => "no events".into(),
        false => format!("events: {}", all.join(", ")),
    }
}

/// What could not be seen, a sentence each, the losses first. It is never empty.
#[must_use]
pub fn unseen(unseen: &Unseen) -> Vec<String> {
    let mut lines = Vec::new();
    if unseen.lost > 0 {
        let mut line = format!("{} lost", counted(unseen.lost, "event was", "events were"));
        let why: Vec<String> = unseen
            .reasons
            .iter()
            .map(|reason| format!("{} ({})", reason.name, reason.count))
            .collect();
        if !why.is_empty() {
            line.push_str(&format!(": {}", why.join(", ")));
        }
        lines.push(line);
    }
    if unseen.removed > 0 {
        let records = counted(unseen.removed, "record was", "records were");
        lines.push(format!("{records} removed before this, for lack of room"));
    }
    if unseen.missed > 0 {
        let records = counted(unseen.missed, "record", "records");
        lines.push(format!("{records} of more trails than are kept apart here"));
    }
    if unseen.unreadable > 0 {
        let records = counted(unseen.unreadable, "line was", "lines were");
        lines.push(format!(
            "{records} not understood: is the tracer of another version?"
        ));
    }
    if lines.is_empty() {
        lines.push("no event was lost".into());
    }
    for step in &unseen.untraced {
        let Untraced {
            job, step, node, ..
        } = step;
        lines.push(format!(
            "step {step} of job {job} ran untraced on {node}: no tracer took it"
        ));
    }
    if unseen.away > 0.0 {
        lines.push(format!(
            "the tracer was away for {}; what happened then is here as far as the kernel's buffer held it",
            clock::away(unseen.away)
        ));
    }
    if let Some(every) = unseen.every {
        let left = counted(unseen.skipped, "open was", "opens were");
        lines.push(format!(
            "of the opens that were allowed one in {every} is recorded; {left} left out"
        ));
    }
    if !unseen.not_recorded.is_empty() {
        lines.push(format!(
            "not recorded, as the policy or the call says: {}",
            unseen.not_recorded.join(", ")
        ));
    }
    if unseen.missing_left_out {
        lines.push("opens of what does not exist are not recorded".into());
    }
    for weak in &unseen.weak {
        let events = counted(weak.count, "event", "events");
        let why = match weak.name.as_str() {
            "unresolved" => "the path is as it was written, links in it not followed",
            "from_user" => "read from memory that the process could change meanwhile",
            "truncated" => "text is cut off",
            "tail" => "outer directories of the path are missing",
            "begun_before" => "the call began before it was traced",
            other => other,
        };
        lines.push(format!("{events} seen less surely: {why}"));
    }
    if unseen.unnamed > 0 {
        let rows = counted(unseen.unnamed, "name", "names");
        lines.push(format!(
            "{rows} left out of the lists below, where there are too many"
        ));
    }
    for blind in &unseen.blind {
        match blind.nodes.is_empty() {
            true => lines.push(blind.sentence.clone()),
            false => lines.push(format!(
                "{} (on {})",
                blind.sentence,
                blind.nodes.join(", ")
            )),
        }
    }
    lines.iter().map(|line| shown(line)).collect()
}

/// A program with its arguments, and what did not go well.
#[must_use]
pub fn program_text(program: &Program) -> String {
    let mut text = program.path.clone();
    if !program.arguments.is_empty() {
        text.push_str(": ");
        text.push_str(&command(&program.arguments));
    }
    text.push_str(&not_allowed(&program.ways));
    text
}

/// An address, and what did not go well.
#[must_use]
pub fn endpoint_text(endpoint: &Endpoint) -> String {
    format!(
        "{} ({}, {}){}",
        place(&endpoint.address, endpoint.host.as_deref()),
        endpoint.family,
        endpoint.socket,
        not_allowed(&endpoint.ways)
    )
}

/// All together.
#[must_use]
pub fn all(ways: &Ways) -> u64 {
    let not_denied = [ways.allowed, ways.would_deny];
    let others = [ways.denied, ways.failed, ways.not_run];
    let all = not_denied.into_iter().chain(others);
    all.fold(0, u64::saturating_add)
}

/// What did not go well: ` = 2 denied, 1 failed`.
#[must_use]
pub fn not_allowed(ways: &Ways) -> String {
    let parts: Vec<String> = [
        (ways.denied, "denied"),
        (ways.failed, "failed"),
        (ways.would_deny, "would be denied"),
        (ways.not_run, "not run"),
    ]
    .into_iter()
    .filter(|(number, _)| *number > 0)
    .map(|(number, word)| format!("{number} {word}"))
    .collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!(" = {}", parts.join(", ")),
    }
}

/// Who denied, and with which error, as far as it is known.
#[must_use]
pub fn by(denied: &Denied) -> String {
    let by = denied.by.as_deref().map(|by| by.replace('_', " "));
    match (by, &denied.error) {
        (_, Some(error)) if denied.hidden => format!("hidden by the policy ({error})"),
        (Some(by), Some(error)) => format!("by {by} ({error})"),
        (Some(by), None) => format!("by {by}"),
        (None, Some(error)) => format!("({error})"),
        (None, None) => String::new(),
    }
}

/// A file or a directory.
#[must_use]
pub fn entry_text(entry: &Entry) -> String {
    let mut text = entry.path.clone();
    if let Some(files) = entry.files {
        if text.is_empty() {
            text.push_str("without a directory");
        }
        text.push_str(&format!(" ({})", counted(files as u64, "file", "files")));
    }
    if let Some(sensitive) = entry.sensitive {
        text.push_str(&format!(" [{sensitive}]"));
    }
    text
}

/// One of several trails.
#[must_use]
pub fn trail_text(one: &OneTrail) -> String {
    let what = match (&one.session, one.job, &one.step) {
        (_, Some(job), Some(step)) => format!("job {job} step {step}"),
        (_, Some(job), None) => format!("job {job}"),
        (Some(session), None, _) => format!("session {session}"),
        (None, None, _) => format!("trace {}", one.trace),
    };
    let mut text = format!(
        "{what} on {}, user {}: {}, {}",
        one.node,
        one.uid,
        clock::date(one.began),
        counted(one.records, "record", "records")
    );
    if one.lost > 0 {
        text.push_str(&format!(", {} lost", one.lost));
    }
    match &one.ended {
        Some(why) => text.push_str(&format!(", ended: {why}")),
        None => text.push_str(", goes on"),
    }
    text
}

fn section(out: &mut String, title: &str, lines: &[String]) {
    let _ = writeln!(out, "\n{title}");
    for line in lines {
        let _ = writeln!(out, "  {line}");
    }
}

fn rows<T>(out: &mut String, title: &str, all: &[T], line: impl Fn(&T) -> String) {
    if all.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{title} ({})", all.len());
    for row in all.iter().take(ROWS) {
        let _ = writeln!(out, "{}", cut(&shown(&line(row)), WIDE));
    }
    if all.len() > ROWS {
        let _ = writeln!(
            out,
            "         … and {} more; --json has all",
            all.len() - ROWS
        );
    }
}

fn denied_section(out: &mut String, title: &str, all: &[Denied]) {
    rows(out, title, all, |denied| {
        let mark = denied
            .sensitive
            .map_or_else(String::new, |word| format!(" [{word}]"));
        format!(
            "{:>7}  {} {}{mark} {}",
            denied.count,
            denied.what,
            denied.on,
            by(denied)
        )
    });
}

fn files(out: &mut String, title: &str, all: &[super::Named]) {
    if all.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{title} ({})", all.len());
    for entry in grouped(all) {
        let _ = writeln!(
            out,
            "{}",
            cut(
                &shown(&format!("{:>7}  {}", entry.count, entry_text(&entry))),
                WIDE
            )
        );
    }
}
