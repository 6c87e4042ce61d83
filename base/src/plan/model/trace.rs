//! What the plan says of the node's tracer: what is asked of it, as data.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use agent_sandbox_events::protocol::{Enforce, EventKind, HiddenNames};
use serde::{Deserialize, Serialize};

use crate::config::source::Sourced;
use crate::policy::TraceMode;
use crate::policy::trace::Events;

/// Of the command so much is told, in bytes: a packet has room for 64 KiB, and patterns need some of it.
const LONGEST_COMMAND: usize = 8 << 10;

/// What the plan says of the tracer.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Whether the jail is traced, and the place that says so.
    pub mode: Sourced<TraceMode>,
    /// What is asked; none with `trace.mode = "off"`.
    pub request: Option<TraceRequest>,
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
        self.request.is_some() && self.stands_by
    }

    /// The socket at which the tracer is handed what is recorded, if one stands by.
    pub fn keeps_audit(&self) -> Option<Vec<u8>> {
        let request = self.request.as_ref().filter(|_| self.stands_by)?;
        Some(request.socket.path().as_os_str().as_bytes().to_vec())
    }
}

/// What is asked, without what is known only when the jail is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRequest {
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
    /// Of the opens that were allowed every Nth.
    pub every: u32,
    /// What is hidden: attempts on it are recorded.
    pub hidden: Vec<HiddenNames>,
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
