//! What is asked of the node's tracer: what it records of the jail, and what it denies besides. Pure; the
//! launcher asks it (`launch::traced`).

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use agent_sandbox_events::protocol::{Enforce, EventKind};
use serde::{Deserialize, Serialize};

use super::hides::Hides;
use super::{Invocation, Mount, Step};
use crate::config::source::Sourced;
use crate::host::files::{Files, Kind};
use crate::policy::trace::Events;
use crate::policy::{NetworkMode, Policy, TraceMode};

/// A hidden directory is taken apart this deep, so that what it holds and the jail shows is left out.
const MOST_LEVELS: usize = 16;
/// Of the command so much is told, in bytes: a packet has room for 64 KiB, and patterns need some of it.
const LONGEST_COMMAND: usize = 8 << 10;

/// What the plan says of the tracer.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Whether the jail is traced, and the place that says so.
    pub mode: Sourced<TraceMode>,
    /// What is asked; none with `trace.mode = "off"`.
    pub wish: Option<Wish>,
    /// Whether a tracer stood by when the plan was made.
    pub stands_by: bool,
    /// The kinds of events, for people.
    pub events: Events,
    /// Hidden things that the second layer leaves alone, as the jail shows something in them that cannot be told
    /// from the rest.
    pub spared: Vec<PathBuf>,
}

impl Trace {
    /// Whether what happens in the jail is recorded, as far as can be told before it begins.
    pub fn records(&self) -> bool {
        self.wish.is_some() && self.stands_by
    }
}

/// What is asked, without what is known only when the jail is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// Whether nothing may start without it.
    pub required: bool,
    /// Whether it is for a job of a session that was to be traced: where somebody listens it does not start without.
    pub held: bool,
    /// The key and the place that ask for it.
    pub rule: String,
    /// The key and the place that ask for the second layer, if any does.
    pub enforce_rule: String,
    /// Where the tracer listens.
    pub socket: RawPath,
    /// The session.
    pub session: String,
    /// The job and the step, on a compute node.
    pub step: Option<(u32, String)>,
    /// The kinds of events.
    pub events: Vec<EventKind>,
    /// Opens of what does not exist.
    pub missing: bool,
    /// Of the opens that were allowed each so manieth.
    pub every: u32,
    /// Patterns of arguments that are secrets.
    pub redact: Vec<String>,
    /// The second layer.
    pub enforce: Enforce,
    /// It forbids connections to the internet.
    pub no_internet: bool,
    /// It forbids new user namespaces.
    pub no_user_namespace: bool,
    /// It forbids to open these, and what is below them. None lies below another.
    pub forbidden: Vec<RawPath>,
    /// What the jail shows of the host: none of it may be forbidden, by whatever name.
    pub shown: Vec<RawPath>,
}

/// A path that travels, whatever bytes it has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RawPath(Vec<u8>);

impl RawPath {
    /// As a path.
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }
}

impl From<&Path> for RawPath {
    fn from(path: &Path) -> Self {
        Self(path.as_os_str().as_bytes().to_vec())
    }
}

impl From<PathBuf> for RawPath {
    fn from(path: PathBuf) -> Self {
        Self(OsString::from(path).into_vec())
    }
}

/// What is asked for a jail of these steps.
pub fn asked(
    policy: &Policy,
    invocation: &Invocation,
    (hides, steps): (&Hides, &[Step]),
    files: &dyn Files,
    stands_by: bool,
) -> Trace {
    let trace = &policy.trace;
    let mut all = Trace {
        mode: trace.mode.clone(),
        wish: None,
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
    all.wish = Some(Wish {
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
        redact: trace.redact.iter().map(|one| one.value.clone()).collect(),
        enforce,
        no_internet: policy.network.mode.value == NetworkMode::Isolated,
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
        let Some(wish) = &mut self.wish else { return };
        if wish.enforce == Enforce::Off {
            return;
        }
        shown.sort();
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
        wish.forbidden.clear();
        let mut last: Option<&Path> = None;
        for path in &forbidden {
            // In this order whatever lies below a path stands behind it.
            if last.is_none_or(|above| !path.starts_with(above)) {
                wish.forbidden.push(path.as_path().into());
                last = Some(path);
            }
        }
        wish.shown = shown.into_iter().map(RawPath::from).collect();
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

/// A command as it is told: words, as far as there is room.
pub fn told(command: &[Vec<u8>]) -> Vec<String> {
    let mut room = LONGEST_COMMAND;
    let mut all = Vec::new();
    for word in command {
        let word = String::from_utf8_lossy(word);
        if word.len() >= room {
            all.push("…".to_owned());
            break;
        }
        room -= word.len();
        all.push(word.into_owned());
    }
    all
}

/// The name of a step by Slurm's number of it, which has names for three (`slurm.h`, `SLURM_BATCH_SCRIPT`
/// and its kin: the largest numbers but a few).
pub fn step_name(number: u32) -> String {
    match number {
        0xffff_fffb => "batch".to_owned(),
        0xffff_fffc => "extern".to_owned(),
        0xffff_fffa => "interactive".to_owned(),
        number => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_is_cut_between_words() {
        let words = |count| vec![vec![b'x'; 100]; count];
        assert_eq!(told(&words(3)).len(), 3);
        let long = told(&words(1000));
        assert_eq!(long.last().map(String::as_str), Some("…"));
        let bytes: usize = long.iter().map(String::len).sum();
        assert!(bytes <= LONGEST_COMMAND, "{bytes}");
    }

    #[test]
    fn steps_have_names() {
        assert_eq!(step_name(0), "0");
        assert_eq!(step_name(4_294_967_291), "batch");
        assert_eq!(step_name(4_294_967_290), "interactive");
    }
}
