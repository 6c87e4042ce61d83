//! What is asked of the node's tracer: what it records of the jail, and what it denies besides. Pure; the
//! launcher asks it (`launch::traced`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use agent_sandbox_events::protocol::{Enforce, HiddenNames};

use crate::host::files::{Files, Kind};
use crate::plan::model::hides::Hides;
use crate::plan::model::trace::{RawPath, Trace, TraceRequest};
use crate::plan::model::{Invocation, Mount, Step};
use crate::policy::{Policy, TraceMode};

/// A hidden directory is taken apart this deep, so that what it holds and the jail shows is left out.
const MOST_LEVELS: usize = 16;
/// What is asked for a jail of these steps.
pub fn asked(
    policy: &Policy,
    (invocation, isolated): (&Invocation, bool),
    (hides, steps): (&Hides, &[Step]),
    files: &dyn Files,
    stands_by: bool,
) -> Trace {
    let trace = &policy.trace;
    let mut all = Trace {
        mode: trace.mode.clone(),
        request: None,
        stands_by,
        events: trace.events.value,
        spared: Vec::new(),
    };
    if trace.mode.value == TraceMode::Off {
        return all;
    }
    let enforce = match (trace.enforce.value, trace.audit.value) {
        (true, _) => Enforce::On,
        (false, true) => Enforce::Audit,
        (false, false) => Enforce::Off,
    };
    let enforce_rule = match enforce {
        Enforce::On => format!("trace.enforce ({})", trace.enforce.source),
        Enforce::Audit => format!("trace.audit ({})", trace.audit.source),
        Enforce::Off => String::new(),
    };
    let mode = match trace.mode.value {
        TraceMode::Required => "required",
        _ => "on",
    };
    let job = invocation.job.as_ref();
    all.request = Some(TraceRequest {
        required: trace.mode.value == TraceMode::Required,
        held: job.is_some_and(|job| job.traced),
        rule: format!("trace.mode `{mode}` ({})", trace.mode.source),
        enforce_rule,
        socket: trace.socket.value.as_path().into(),
        session: invocation.session.clone(),
        step: job.and_then(|job| job.step.clone()),
        events: trace.events.value.kinds().collect(),
        missing: trace.missing.value,
        every: trace.every.value,
        hidden: as_much_as_fits(hides.names()),
        redact: trace.redact.iter().map(|one| one.value.clone()).collect(),
        enforce,
        no_internet: isolated,
        no_user_namespace: !policy.jail.nested.value,
        forbidden: Vec::new(),
        shown: Vec::new(),
    });
    all.forbid(hides, shown(steps), files);
    all
}

/// What the steps show of the host.
fn shown(steps: &[Step]) -> Vec<PathBuf> {
    let from = |step: &Step| match &step.mount {
        Mount::Bind { from, .. } | Mount::Kept { from, .. } | Mount::Device { from } => {
            Some(from.clone())
        }
        _ => None,
    };
    steps.iter().filter_map(from).collect()
}

impl Trace {
    /// Forbids what is hidden and exists, but for what is shown. Costs nothing without a second layer.
    pub fn forbid(&mut self, hides: &Hides, mut shown: Vec<PathBuf>, files: &dyn Files) {
        let Some(request) = &mut self.request else {
            return;
        };
        if request.enforce == Enforce::Off {
            return;
        }
        shown.sort_unstable();
        shown.dedup();
        // What does not answer cannot be opened, and a link is not what it leads to, which has an entry of
        // its own.
        let hidden = hides
            .existing()
            .filter(|hidden| !matches!(hidden.kind, Kind::Hung | Kind::Link));
        let mut apart = Apart {
            shown: &shown,
            files,
            forbidden: BTreeSet::new(),
            spared: BTreeSet::new(),
        };
        for one in hidden {
            apart.take(&one.path, 0);
        }
        let Apart {
            forbidden, spared, ..
        } = apart;
        self.spared = spared.into_iter().collect();
        request.forbidden.clear();
        let mut last: Option<&Path> = None;
        for path in &forbidden {
            // In this order whatever lies below a path stands behind it.
            if last.is_none_or(|above| !path.starts_with(above)) {
                request.forbidden.push(path.as_path().into());
                last = Some(path);
            }
        }
        request.shown = shown.into_iter().map(RawPath::from).collect();
    }
}

/// Hidden things, taken apart where the jail shows something in them.
struct Apart<'a> {
    /// Sorted.
    shown: &'a [PathBuf],
    files: &'a dyn Files,
    forbidden: BTreeSet<PathBuf>,
    spared: BTreeSet<PathBuf>,
}

impl Apart<'_> {
    fn take(&mut self, path: &Path, level: usize) {
        // Paths are compared by their components, so that this begins at the path itself.
        let from = self.shown.partition_point(|shown| shown.as_path() < path);
        match self.shown.get(from) {
            Some(shown) if shown == path => drop(self.spared.insert(path.to_owned())),
            Some(shown) if shown.starts_with(path) => {
                let entries = (level < MOST_LEVELS).then(|| self.files.entries(path));
                match entries.flatten() {
                    None => drop(self.spared.insert(path.to_owned())),
                    Some(entries) => entries
                        .iter()
                        .for_each(|entry| self.take(&path.join(&entry.name), level + 1)),
                }
            }
            _ => drop(self.forbidden.insert(path.to_owned())),
        }
    }
}

/// So many bytes of hidden names are told: with them and a command a packet is not full.
const HIDDEN_BYTES: usize = 40 << 10;

/// The first of them, as many as there is room for.
fn as_much_as_fits(mut all: Vec<HiddenNames>) -> Vec<HiddenNames> {
    let mut room = HIDDEN_BYTES;
    all.retain(|one| {
        let names: usize = one.names.iter().map(|name| name.len() + 5).sum();
        let fits = names + one.directory.len() < room;
        if fits {
            room -= names + one.directory.len();
        }
        fits
    });
    all
}
