//! The trails that records come from: each is one node's of one session, job or step. Here stands what
//! could not be seen: what the kernel's side lost, what did not reach the reader, what is not recorded.

use std::collections::BTreeMap;

use agent_sandbox_events::record::{Header, Record, Trail, What};

/// One trail.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What it is about.
    pub trail: Trail,
    /// What it says of itself.
    pub header: Option<Header>,
    /// The time of its first record, in seconds since 1970.
    pub first: f64,
    /// The time of its last record.
    pub last: f64,
    /// Records.
    pub records: u64,
    /// Events that were lost on the kernel's side, as the last record says.
    pub lost: u64,
    /// Why they were lost, and so many for it.
    pub reasons: BTreeMap<String, u64>,
    /// For so many seconds the tracer was away, altogether.
    pub away: f64,
    /// Records that were removed before they were read, as trails may take only so much room: their numbers are missing.
    pub gone: u64,
    /// Opens that sampling left out.
    pub skipped: u64,
    /// Why it ended, if it has.
    pub ended: Option<String>,
    /// The number of the next record.
    next: u64,
}

/// Reasons are the tracer's, and few.
const REASONS: usize = 16;

/// All of them.
#[derive(Clone, Debug)]
pub struct Trails {
    seen: BTreeMap<Name, Seen>,
    most: usize,
    /// Records of trails that there was no room for.
    pub beyond: u64,
}

/// What names a trail; the order in which they are listed.
type Name = (
    Option<String>,
    Option<u32>,
    Option<String>,
    String,
    u32,
    u32,
);

fn name(trail: &Trail) -> Name {
    (
        trail.session.clone(),
        trail.job,
        trail.step.clone(),
        trail.node.clone(),
        trail.uid,
        trail.trace,
    )
}

impl Trails {
    /// None yet, and at most so many.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            seen: BTreeMap::new(),
            most,
            beyond: 0,
        }
    }

    /// Whether one goes on whose first or last record is at most so many seconds old. One of another node, whose clock
    /// may differ, is as well.
    #[must_use]
    pub fn any_is_fresh(&self, now: f64, seconds: f64) -> bool {
        let fresh = |time: f64| (now - time).abs() < seconds;
        let mut all = self.seen.values();
        all.any(|one| one.ended.is_none() && (fresh(one.first) || fresh(one.last)))
    }

    /// Takes a record.
    pub fn take(&mut self, record: &Record) {
        let name = name(&record.trail);
        if !self.seen.contains_key(&name) && self.seen.len() >= self.most {
            self.beyond = self.beyond.saturating_add(1);
            return;
        }
        let seen = self.seen.entry(name).or_insert_with(|| Seen {
            trail: record.trail.clone(),
            header: None,
            first: record.time,
            last: record.time,
            records: 0,
            lost: 0,
            reasons: BTreeMap::new(),
            away: 0.0,
            gone: record.seq.saturating_sub(1),
            skipped: 0,
            ended: None,
            next: record.seq,
        });
        // A smaller number than expected is a trail that was begun anew.
        let gap = record.seq.saturating_sub(seen.next);
        seen.gone = seen.gone.saturating_add(gap);
        seen.next = record.seq.saturating_add(1);
        seen.records = seen.records.saturating_add(1);
        // A record may stand for an event that began before the one in front of it.
        seen.first = seen.first.min(record.time);
        seen.last = seen.last.max(record.time);
        seen.lost = seen.lost.max(record.lost);
        match &record.what {
            What::Header(header) => {
                seen.header = Some(header.clone());
                seen.ended = None;
            }
            What::End(end) => {
                seen.ended = Some(end.why.clone());
                seen.skipped = seen.skipped.max(end.skipped);
            }
            What::Lost(lost)
                if seen.reasons.len() < REASONS || seen.reasons.contains_key(&lost.why) =>
            {
                let sum = seen.reasons.entry(lost.why.clone()).or_default();
                *sum = sum.saturating_add(lost.more);
            }
            What::Away(away) => seen.away += away.seconds.max(0.0),
            _ => {}
        }
    }

    /// All trails, a session's first, then jobs, steps, nodes.
    pub fn iter(&self) -> impl Iterator<Item = &Seen> {
        self.seen.values()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// Whether all have ended.
    #[must_use]
    pub fn ended(&self) -> bool {
        !self.is_empty() && self.iter().all(|seen| seen.ended.is_some())
    }

    fn sum(&self, field: impl Fn(&Seen) -> u64) -> u64 {
        self.iter().map(field).fold(0, u64::saturating_add)
    }

    /// Events that were lost on the kernel's side.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.sum(|seen| seen.lost)
    }

    /// Records that are older than what is kept.
    #[must_use]
    pub fn gone(&self) -> u64 {
        self.sum(|seen| seen.gone)
    }

    /// For so many seconds tracers were away, altogether.
    #[must_use]
    pub fn away(&self) -> f64 {
        self.iter().map(|seen| seen.away).sum()
    }

    /// Why events were lost, and how many for it.
    #[must_use]
    pub fn reasons(&self) -> BTreeMap<&str, u64> {
        let mut all: BTreeMap<&str, u64> = BTreeMap::new();
        for (why, number) in self.iter().flat_map(|seen| &seen.reasons) {
            let sum = all.entry(why).or_default();
            *sum = sum.saturating_add(*number);
        }
        all
    }

    /// Opens that sampling left out.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.sum(|seen| seen.skipped)
    }

    /// From the first record to the last, in seconds since 1970.
    #[must_use]
    pub fn span(&self) -> Option<(f64, f64)> {
        let first = self.iter().map(|seen| seen.first).reduce(f64::min)?;
        let last = self.iter().map(|seen| seen.last).reduce(f64::max)?;
        Some((first, last))
    }

    /// What cannot be seen, a sentence each, with the nodes where that is so, if it is not so on all.
    #[must_use]
    pub fn blind(&self) -> Vec<(String, Vec<String>)> {
        let mut sentences: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut nodes: Vec<&str> = Vec::new();
        for seen in self.iter() {
            let node = seen.trail.node.as_str();
            if !nodes.contains(&node) {
                nodes.push(node);
            }
            for sentence in seen.header.iter().flat_map(|header| &header.blind) {
                let of = sentences.entry(sentence).or_default();
                if !of.contains(&node) {
                    of.push(node);
                }
            }
        }
        let all = nodes.len();
        sentences
            .into_iter()
            .map(|(sentence, of)| {
                let of = match of.len() == all {
                    true => Vec::new(),
                    false => of.into_iter().map(str::to_owned).collect(),
                };
                (sentence.to_owned(), of)
            })
            .collect()
    }
}
