//! Records of a trail that `ask read` printed.

use agent_sandbox_events::record::{Actor, Record, Verdict, What};

use crate::machine::Transcript;
use crate::unless;

/// The records of a stage, in their order.
#[derive(Debug)]
pub(crate) struct Trail {
    pub(crate) records: Vec<Record>,
    stage: String,
}

impl Trail {
    /// What a stage printed; complains about lines that are none, and about gaps.
    pub(crate) fn of(said: &Transcript, session: &str) -> (Self, Vec<String>) {
        let (trail, mut wrong) = Self::whole(said, &format!("{session}-trail"));
        let other = trail
            .records
            .iter()
            .any(|record| record.trail.session.as_deref() != Some(session));
        wrong.extend(unless(!other, || {
            format!("{session}-trail: records of another session")
        }));
        (trail, wrong)
    }

    /// The same, of whatever session.
    pub(crate) fn whole(said: &Transcript, stage: &str) -> (Self, Vec<String>) {
        let stage = stage.to_owned();
        let mut wrong = Vec::new();
        let mut records: Vec<Record> = Vec::new();
        for line in &said.stage(&stage).lines {
            match serde_json::from_str(line) {
                Ok(record) => records.push(record),
                Err(error) => wrong.push(format!("{stage}: {error}: {line}")),
            }
        }
        let good = records.iter().zip(1..).all(|(record, n)| record.seq == n);
        wrong.extend(unless(good, || format!("{stage}: numbers have a gap")));
        let header = matches!(
            records.first().map(|first| &first.what),
            Some(What::Header(_))
        );
        wrong.extend(unless(header, || format!("{stage}: no header")));
        let lost = records.last().map_or(0, |last| last.lost);
        wrong.extend(unless(lost == 0, || {
            format!("{stage}: {lost} events are lost")
        }));
        (Self { records, stage }, wrong)
    }

    /// Whether it came to its end.
    pub(crate) fn ended(&self) -> bool {
        matches!(
            self.records.last().map(|last| &last.what),
            Some(What::End(_))
        )
    }

    /// What of the header's the tracer cannot see or deny, as one text.
    pub(crate) fn blind(&self) -> String {
        match self.records.first().map(|first| &first.what) {
            Some(What::Header(header)) => header.blind.join("\n"),
            _ => String::new(),
        }
    }

    /// The records of an action: by the name of the process that did it, or of a worker that did it.
    pub(crate) fn of_action(&self, name: &str) -> impl Iterator<Item = &What> {
        self.records
            .iter()
            .map(|record| &record.what)
            .filter(move |what| actor(what).is_some_and(|actor| actor.comm == name))
    }

    /// Opens of a path.
    pub(crate) fn opens<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Verdict> {
        self.records
            .iter()
            .filter_map(move |record| match &record.what {
                What::Open(open) if open.path == path => Some(&open.verdict),
                _ => None,
            })
    }

    /// The complaint that something is not there, with what is.
    pub(crate) fn lacks(&self, name: &str, wanted: &str) -> String {
        let found: Vec<String> = self.of_action(name).map(brief).collect();
        format!(
            "{}: {name}: no {wanted}; there is: {}",
            self.stage,
            found.join("; ")
        )
    }
}

/// Who did it.
pub(crate) fn actor(what: &What) -> Option<&Actor> {
    Some(match what {
        What::Fork(actor) => actor,
        What::Exec(exec) => &exec.actor,
        What::Exit(exit) => &exit.actor,
        What::Open(open) => &open.actor,
        What::Connect(peer) | What::Listen(peer) => &peer.actor,
        What::Operation(operation) => &operation.actor,
        _ => return None,
    })
}

/// How it went.
pub(crate) fn verdict(what: &What) -> Option<&Verdict> {
    Some(match what {
        What::Exec(exec) => &exec.verdict,
        What::Open(open) => &open.verdict,
        What::Connect(peer) | What::Listen(peer) => &peer.verdict,
        What::Operation(operation) => &operation.verdict,
        _ => return None,
    })
}

/// A record in few words, as the tables write it: `open allowed /srv/t/a`.
pub(crate) fn brief(what: &What) -> String {
    let how = verdict(what).map_or_else(String::new, |verdict| {
        let by = verdict.by.as_deref().map(|by| format!(" by {by}"));
        let error = verdict.error.as_deref().map(|error| format!(" {error}"));
        format!(
            "{}{}{}",
            verdict.verdict,
            by.unwrap_or_default(),
            error.unwrap_or_default()
        )
    });
    match what {
        What::Open(open) => format!("open {how}: {} ({})", open.path, open.access.join(",")),
        What::Exec(exec) => format!("exec {how}: {} {}", exec.path, exec.arguments.join(" ")),
        What::Connect(peer) => format!(
            "connect {how}: {} {} {}",
            peer.family, peer.kind, peer.address
        ),
        What::Listen(peer) => {
            format!(
                "listen {how}: {} {} {}",
                peer.family, peer.kind, peer.address
            )
        }
        What::Operation(of) => format!(
            "{} {how}: {} {} {}",
            of.operation,
            of.detail,
            of.path.as_deref().unwrap_or_default(),
            of.other.as_deref().unwrap_or_default()
        ),
        What::Fork(_) => "fork".to_owned(),
        What::Exit(_) => "exit".to_owned(),
        other => format!("{other:?}"),
    }
}
