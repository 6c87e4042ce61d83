//! One record as one line, for `trace` and for the live events of `watch`.

use agent_sandbox_events::record::{Record, Verdict, What};

use crate::clock;
use crate::model::{self, Way, place};
use crate::text::{command, shown};

/// A record in parts, all of them safe to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The process; none for what is said of the trail itself.
    pub pid: Option<u32>,
    /// The thread's name.
    pub comm: String,
    /// The event: `open`, `exec`, an operation's name.
    pub event: String,
    /// What it was about.
    pub about: String,
    /// How it went; nothing where it was allowed.
    pub outcome: String,
    /// Which way it went; none for what goes no way.
    pub way: Option<Way>,
}

impl Line {
    /// Of a record.
    #[must_use]
    pub fn of(record: &Record) -> Line {
        let (actor, event, about) = match &record.what {
            What::Header(header) => (None, "header", header_text(header)),
            What::Fork(actor) => (
                Some(actor),
                "fork",
                format!("process {} of {}", actor.pid, actor.ppid),
            ),
            What::Exec(exec) => {
                let mut text = exec.path.clone();
                if !exec.arguments.is_empty() {
                    text.push_str(": ");
                    text.push_str(&command(&exec.arguments));
                }
                if exec.set_id {
                    text.push_str(" (sets an id)");
                }
                (Some(&exec.actor), "exec", text)
            }
            What::Exit(exit) => {
                let text = match (exit.code, &exit.signal) {
                    (_, Some(signal)) => format!("killed by {signal}"),
                    (Some(code), None) => format!("{code}"),
                    (None, None) => "?".into(),
                };
                (Some(&exit.actor), "exit", text)
            }
            What::Open(open) => {
                let text = format!("{} ({})", open.path, open.access.join(", "));
                (Some(&open.actor), "open", text)
            }
            What::Connect(peer) => (Some(&peer.actor), "connect", address(peer)),
            What::Listen(peer) => (Some(&peer.actor), "listen", address(peer)),
            What::Operation(operation) => (
                Some(&operation.actor),
                operation.operation.as_str(),
                model::about(operation),
            ),
            What::Lost(lost) => (None, "lost", format!("{} events: {}", lost.more, lost.why)),
            What::Away(away) => (
                None,
                "away",
                format!("the tracer was away for {}", clock::away(away.seconds)),
            ),
            What::End(end) => (None, "end", end.why.clone()),
        };
        let verdict = model::verdict(&record.what);
        let mut about = shown(&about);
        if actor.is_some_and(|actor| actor.worker) {
            about.push_str(" (io_uring)");
        }
        Line {
            pid: actor.map(|actor| actor.pid),
            comm: actor.map_or_else(String::new, |actor| shown(&actor.comm)),
            event: shown(event),
            about,
            outcome: verdict.map_or_else(String::new, outcome),
            way: verdict.map(Way::of),
        }
    }

    /// As `trace` prints it, without the end of a line. What is said of the trail itself begins with `#`.
    #[must_use]
    pub fn text(&self) -> String {
        let Some(pid) = self.pid else {
            return format!("# {}: {}", self.event, self.about);
        };
        let mut text = format!(
            "{pid:>7} {:<15} {:<9} {}",
            self.comm, self.event, self.about
        );
        if !self.outcome.is_empty() {
            text.push_str(" = ");
            text.push_str(&self.outcome);
        }
        text
    }
}

fn address(peer: &agent_sandbox_events::record::Peer) -> String {
    let place = place(&peer.address, peer.host.as_deref());
    format!("{place} ({}, {})", peer.family, peer.kind)
}

fn header_text(header: &agent_sandbox_events::record::Header) -> String {
    let mut text = format!("{} on Linux {}", header.object, header.kernel);
    match header.blind.len() {
        0 => {}
        1 => text.push_str(", 1 thing cannot be seen here"),
        more => text.push_str(&format!(", {more} things cannot be seen here")),
    }
    if !header.command.is_empty() {
        text.push_str(": ");
        text.push_str(&command(&header.command));
    }
    text
}

/// How it went, where that is not simply that it was allowed: `denied by seccomp (EPERM)`, `×12`.
fn outcome(verdict: &Verdict) -> String {
    let mut parts: Vec<String> = Vec::new();
    match Way::of(verdict) {
        Way::Allowed => {}
        way => {
            let mut text = match way {
                Way::WouldDeny => "would be denied".to_owned(),
                Way::Denied => "denied".to_owned(),
                Way::NotRun => "not run, answered".to_owned(),
                Way::Allowed | Way::Failed => "failed".to_owned(),
            };
            if let Some(by) = &verdict.by {
                text.push_str(" by ");
                text.push_str(&by.replace('_', " "));
            }
            if let Some(error) = &verdict.error {
                text.push_str(&format!(" ({error})"));
            }
            parts.push(text);
        }
    }
    if verdict.count > 1 {
        parts.push(format!("×{}", verdict.count));
    }
    if !verdict.weak.is_empty() {
        parts.push(format!("[{}]", verdict.weak.join(", ").replace('_', " ")));
    }
    shown(&parts.join(" "))
}

#[cfg(test)]
mod tests {
    use agent_sandbox_events::record::{Actor, Open, Trail};

    use super::*;

    #[test]
    fn what_has_not_run_is_not_said_to_be_allowed() {
        let verdict = Verdict {
            verdict: "not_run".into(),
            by: Some("seccomp".into()),
            count: 1,
            ..Verdict::default()
        };
        assert_eq!(outcome(&verdict), "not run, answered by seccomp");
        assert_eq!(Way::of(&verdict), Way::NotRun);
    }

    #[test]
    fn a_line_names_the_verdict_and_obeys_nothing() {
        let record = Record {
            seq: 1,
            time: 0.0,
            trail: Trail::default(),
            lost: 0,
            what: What::Open(Open {
                actor: Actor {
                    pid: 17,
                    comm: "c\u{1b}]at".into(),
                    worker: true,
                    ..Actor::default()
                },
                path: "/a\nb".into(),
                access: vec!["read".into()],
                hidden: false,
                verdict: Verdict {
                    verdict: "denied".into(),
                    by: Some("security_module".into()),
                    error: Some("EACCES".into()),
                    count: 3,
                    weak: vec!["from_user".into()],
                },
                ..Open::default()
            }),
        };
        assert_eq!(
            Line::of(&record).text(),
            "     17 c\\u{1b}]at      open      /a\\nb (read) (io_uring) = denied by security module (EACCES) ×3 [from user]"
        );
    }
}
