//! What a trace records and denies: what its caller asks for, what the site requires, and what a trace already does
//! whose tasks it takes.

use agent_sandbox_events::protocol::{Enforce, Register};
use agent_sandbox_events::raw::{Kind, OPERATIONS, trace_flags};
use agent_sandbox_events::record::Header;
use serde::{Deserialize, Serialize};

use super::config::Required;
use crate::kernel::{About, TraceEntry};

/// The longest session id; it becomes part of a file's name.
const SESSION_BYTES: usize = 64;
/// The longest step: Slurm counts steps in 32 bits.
const STEP_DIGITS: usize = 10;
/// Of a command's line so much is taken, in bytes: as much as of the arguments of a program that is started. Looking for
/// secrets in a longer one would keep everybody waiting.
const COMMAND_BYTES: usize = 2048;

/// What one trace records and denies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Bits of [`Kind::bit`].
    pub events: u32,
    /// Every Nth of the allowed opens is recorded; 1: all.
    pub every: u32,
    /// Opens of what does not exist, too.
    pub missing: bool,
    /// Opens of what is hidden, which does not exist either.
    #[serde(default)]
    pub hidden: bool,
    /// The second layer.
    pub enforce: Enforce,
    /// No connection to the internet.
    pub no_internet: bool,
    /// No new user namespace.
    pub no_user_namespace: bool,
}

impl Coverage {
    /// What the caller asks for, and what the site requires.
    #[must_use]
    pub fn new(register: &Register, required: &Required) -> Self {
        let asked = register.events.iter().map(|kind| Kind::from(*kind));
        let required_kinds = required.events.iter().map(|name| name.0);
        let events = asked
            .chain(required_kinds)
            .fold(0, |all, kind| all | kind.bit());
        let every = register.every.max(1);
        Self {
            events,
            every: if required.every > 0 {
                every.min(required.every)
            } else {
                every
            },
            missing: register.missing || required.missing,
            hidden: !register.hidden.is_empty(),
            enforce: register.enforce,
            no_internet: register.no_internet,
            no_user_namespace: register.no_user_namespace,
        }
    }

    /// A trace that takes the tasks of another one shows at least what that one shows, and denies at least what that
    /// one denies.
    #[must_use]
    pub fn and(&self, outer: &Coverage) -> Coverage {
        Coverage {
            events: self.events | outer.events,
            every: self.every.min(outer.every),
            missing: self.missing || outer.missing,
            hidden: self.hidden || outer.hidden,
            enforce: stricter(self.enforce, outer.enforce),
            no_internet: self.no_internet || outer.no_internet,
            no_user_namespace: self.no_user_namespace || outer.no_user_namespace,
        }
    }

    /// What the probes are told.
    #[must_use]
    pub fn entry(&self, uid: u32) -> TraceEntry {
        let layer = match self.enforce {
            Enforce::Off => 0,
            Enforce::Audit => trace_flags::AUDIT,
            Enforce::On => trace_flags::ENFORCE,
        };
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        TraceEntry {
            events: self.events,
            flags: trace_flags::RECORD
                | layer
                | flag(self.missing || self.hidden, trace_flags::MISSING)
                | flag(self.no_internet, trace_flags::NO_INTERNET)
                | flag(self.no_user_namespace, trace_flags::NO_USER_NAMESPACE),
            uid,
            every: self.every,
            operations: (1 << OPERATIONS.len()) - 1,
            // Nobody's tasks but those without a mark come to it by its cgroup.
            parent: 0,
            rules: 0,
        }
    }

    /// What its trail says of itself.
    #[must_use]
    pub fn header(&self, about: &About, command: &[String]) -> Header {
        let recorded = |kind: &Kind| self.events & kind.bit() != 0;
        let names = Kind::ALL.into_iter().filter(recorded).map(Kind::name);
        Header {
            object: about.object.clone(),
            kernel: about.kernel.clone(),
            blind: about.blind.clone(),
            events: names.map(str::to_owned).collect(),
            enforce: match self.enforce {
                Enforce::Off => "off",
                Enforce::Audit => "audit",
                Enforce::On => "on",
            }
            .to_owned(),
            every: self.every,
            missing: self.missing,
            command: command.to_vec(),
            ..Header::default()
        }
    }

    /// Whether it denies anything.
    #[must_use]
    pub fn denies(&self) -> bool {
        self.enforce == Enforce::On
    }
}

fn stricter(one: Enforce, other: Enforce) -> Enforce {
    match (one, other) {
        (Enforce::On, _) | (_, Enforce::On) => Enforce::On,
        (Enforce::Audit, _) | (_, Enforce::Audit) => Enforce::Audit,
        (Enforce::Off, Enforce::Off) => Enforce::Off,
    }
}

/// What is wrong with the names in a request; they become parts of files' names.
#[must_use]
pub fn misnamed(register: &Register) -> Option<String> {
    if let Some(session) = &register.session {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let sound = (1..=SESSION_BYTES).contains(&session.len())
            && !session.starts_with('.')
            && session.bytes().all(plain);
        if !sound {
            return Some(format!(
                "a session's id has at most {SESSION_BYTES} letters, digits, `.`, `_` and `-`"
            ));
        }
    }
    if let Some(step) = &register.step {
        let number = (1..=STEP_DIGITS).contains(&step.len())
            && step.bytes().all(|byte| byte.is_ascii_digit());
        if !number && !["batch", "extern", "interactive"].contains(&step.as_str()) {
            return Some("a step is a number, `batch`, `extern` or `interactive`".to_owned());
        }
        if register.job.is_none() {
            return Some("a step without a job".to_owned());
        }
    }
    None
}

/// The command's first arguments, as many as are taken.
#[must_use]
pub fn shortened(command: &[String]) -> Vec<String> {
    let mut room = COMMAND_BYTES;
    let mut taken = Vec::new();
    for argument in command {
        let Some(left) = room.checked_sub(argument.len() + 1) else {
            taken.push("…".to_owned());
            break;
        };
        room = left;
        taken.push(argument.clone());
    }
    taken
}

#[cfg(test)]
mod tests {
    use agent_sandbox_events::protocol::{EventKind, Lifetime, Scope, VERSION};

    use super::super::config::EventName;
    use super::*;

    fn register(events: Vec<EventKind>) -> Register {
        Register {
            version: VERSION,
            session: None,
            job: None,
            step: None,
            command: Vec::new(),
            scope: Scope {
                process: None,
                descendants: false,
                cgroup: None,
            },
            events,
            every: 0,
            missing: false,
            hidden: Vec::new(),
            redact: Vec::new(),
            enforce: Enforce::Off,
            no_internet: false,
            no_user_namespace: false,
            lifetime: Lifetime::Tasks,
        }
    }

    #[test]
    fn the_sites_demand_comes_on_top() {
        let required = Required {
            events: vec![EventName(Kind::Exec)],
            missing: true,
            every: 10,
        };
        let mut asked = register(vec![EventKind::Open]);
        asked.every = 1000;
        let coverage = Coverage::new(&asked, &required);
        assert_eq!(coverage.events, Kind::Exec.bit() | Kind::Open.bit());
        assert!(coverage.missing);
        assert_eq!(coverage.every, 10);
        let coverage = Coverage::new(&asked, &Required::default());
        assert_eq!((coverage.events, coverage.every), (Kind::Open.bit(), 1000));
    }

    #[test]
    fn a_trace_that_takes_anothers_tasks_shows_and_denies_no_less() {
        let mut outer = Coverage::new(&register(vec![EventKind::Exec]), &Required::default());
        outer.enforce = Enforce::On;
        outer.no_internet = true;
        let mut inner = Coverage::new(&register(vec![EventKind::Open]), &Required::default());
        inner.enforce = Enforce::Audit;
        inner.every = 50;
        let entry = inner.and(&outer).entry(7);
        assert_eq!(entry.events, Kind::Exec.bit() | Kind::Open.bit());
        assert_eq!(entry.every, 1);
        assert_eq!((entry.uid, entry.parent), (7, 0));
        assert_eq!(
            entry.flags,
            trace_flags::RECORD | trace_flags::ENFORCE | trace_flags::NO_INTERNET
        );
        assert_eq!(entry.operations.trailing_ones() as usize, OPERATIONS.len());
    }

    #[test]
    fn names_that_are_no_parts_of_file_names_are_refused() {
        let named = |session: &str, job: Option<u32>, step: Option<&str>| {
            let mut asked = register(Vec::new());
            asked.session = Some(session.to_owned());
            asked.job = job;
            asked.step = step.map(str::to_owned);
            misnamed(&asked)
        };
        assert_eq!(named("k3v9x2m1", Some(4), Some("batch")), None);
        assert_eq!(named("a", Some(4), Some("0")), None);
        for session in ["", ".", "..", "../x", "a/b", "a\0", "ä", &"x".repeat(65)] {
            assert!(named(session, None, None).is_some(), "{session}");
        }
        for step in ["", "-1", "1/2", "12345678901", "Batch"] {
            assert!(named("a", Some(1), Some(step)).is_some(), "{step}");
        }
        assert!(named("a", None, Some("1")).is_some());
    }

    #[test]
    fn a_long_command_is_cut_off() {
        let long = vec!["x".repeat(100); 100];
        let short = shortened(&long);
        assert_eq!(short.len(), COMMAND_BYTES / 101 + 1);
        assert_eq!(short.last().unwrap(), "…");
        assert_eq!(shortened(&long[..3]), long[..3]);
    }
}
