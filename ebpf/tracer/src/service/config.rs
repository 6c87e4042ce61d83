//! The service's configuration, `/etc/agent-sandbox/tracer.toml`: what may stand in it, and nothing else.
//! Everything has a value without it.

use std::path::PathBuf;

use agent_sandbox_events::raw::Kind;
use serde::Deserialize;
use thiserror::Error;

/// What the service is told.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The directory of the trails.
    pub records: PathBuf,
    /// The directory of the audit record.
    pub audit: PathBuf,
    /// The socket. Its directory is root's, so that nobody else can listen in its place.
    pub socket: PathBuf,
    /// The directory of what must outlive the service until the next boot.
    pub state: PathBuf,
    /// The BPF file system in which everything is pinned.
    pub bpffs: PathBuf,
    /// The key by which jobs are marked; there are no marks where there is none.
    pub mark_key: PathBuf,
    /// Which probes.
    pub object: Object,
    /// Size of the ring buffer, in bytes: a power of two (`BPF_MAP_TYPE_RINGBUF`).
    pub ring_bytes: u32,
    /// What every trace records, whatever its request says.
    pub demand: Required,
    /// Secrets.
    pub redact: Redact,
    /// Where records go beside their files.
    pub sinks: Sinks,
    /// What is kept.
    pub keep: Keep,
    /// What users may use up.
    pub limits: UserLimits,
}

/// Which probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Object {
    /// The best that work.
    #[default]
    Auto,
    /// fentry, fexit and LSM programs.
    Trampolines,
    /// Tracepoints alone.
    Tracepoints,
}

/// What the site requires every trace to record, whatever the request says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Required {
    /// Kinds of events, as [`Kind::name`] names them.
    pub events: Vec<EventName>,
    /// Opens of what does not exist.
    pub missing: bool,
    /// Every trace records at least every Nth of the allowed opens.
    /// 0 requires nothing.
    pub every: u32,
}

/// A kind of events by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct EventName(pub Kind);

impl TryFrom<String> for EventName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let known = || {
            let names: Vec<&str> = Kind::ALL.into_iter().map(Kind::name).collect();
            format!("there is no event `{name}`, only {}", names.join(", "))
        };
        Kind::named(&name).map(Self).ok_or_else(known)
    }
}

/// Secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Redact {
    /// Patterns of arguments, beside those that are built in.
    pub patterns: Vec<String>,
}

/// Where records go beside their files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sinks {
    /// To systemd's journal.
    pub journald: bool,
}

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Keep {
    /// A file of records gets no longer, in bytes; then the trail goes on in the next one.
    pub file_bytes: u64,
    /// All of one user's, in bytes: the oldest are removed.
    pub user_bytes: u64,
    /// All of them, in bytes: the oldest are removed.
    pub total_bytes: u64,
    /// Older ones are removed; 0: none.
    pub days: u32,
}

/// What users may use up of a service that all of a node share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UserLimits {
    /// Connections altogether, of which root has [`ROOTS_CONNECTIONS`] of its own.
    pub connections: u32,
    /// Connections of one user: each task of a step has one for a moment.
    pub connections_per_user: u32,
    /// Traces altogether.
    pub traces: u32,
    /// Traces of one user.
    pub traces_per_user: u32,
    /// Processes of one user that are held by a descriptor for their traces. More are traced as well, and found by
    /// going over all tasks.
    pub processes_per_user: u32,
    /// Forbidden things of all traces of one user. Those of a trace count again for each trace in it.
    pub forbidden_per_user: u32,
    /// Requests of one user in a second; a [`crate::service::limits::COSTLY`] one counts as several. Who asks more
    /// often waits.
    pub requests_per_second: u32,
    /// Milliseconds of the processor in a second that the tracer searches one user's commands for secrets. A command of a
    /// hundred bytes takes up to ten microseconds: 50 are five thousand programs started each second. Commands that come
    /// faster are recorded without their arguments.
    pub command_milliseconds: u32,
}

/// Connections that are kept free for root, who has to find out what the others do.
pub const ROOTS_CONNECTIONS: u32 = 8;

/// The map `traces` has room for so many, of which some are being ended and one is the self-test's.
const MOST_TRACES: u32 = 4000;
/// The map `forbidden` has room for so many.
pub const MOST_FORBIDDEN: u32 = 65536;
/// Patterns of the site: each is tried on every argument.
const MOST_PATTERNS: usize = 64;
/// The smallest ring buffer: less loses events in every burst (measured: 64 KiB lost 5 %).
const LEAST_RING: u32 = 262_144;
/// The largest: it is memory that the kernel keeps.
const MOST_RING: u32 = 1 << 28;

impl Default for Config {
    fn default() -> Self {
        Self {
            records: "/var/lib/agent-sandbox/trails".into(),
            audit: agent_sandbox_events::audit::DIRECTORY.into(),
            socket: agent_sandbox_events::protocol::SOCKET.into(),
            state: "/run/agent-sandbox".into(),
            bpffs: "/sys/fs/bpf".into(),
            mark_key: "/var/lib/agent-sandbox/mark.key".into(),
            object: Object::default(),
            ring_bytes: 4 << 20,
            demand: Required::default(),
            redact: Redact::default(),
            sinks: Sinks::default(),
            keep: Keep::default(),
            limits: UserLimits::default(),
        }
    }
}

impl Default for Keep {
    fn default() -> Self {
        Self {
            file_bytes: 64 << 20,
            user_bytes: 2 << 30,
            total_bytes: 32 << 30,
            days: 90,
        }
    }
}

impl Default for UserLimits {
    fn default() -> Self {
        Self {
            connections: 4096,
            connections_per_user: 1024,
            traces: 2048,
            traces_per_user: 128,
            processes_per_user: 2048,
            forbidden_per_user: 16384,
            requests_per_second: 300,
            command_milliseconds: 50,
        }
    }
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{file}:{line}: {message}")]
pub struct Refused {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// It is no TOML, has a key that does not exist, or a value that makes no sense.
    pub fn parse(file: &str, text: &str) -> Result<Self, Refused> {
        let refused = |line: usize, message: String| Refused {
            file: file.to_owned(),
            line,
            message,
        };
        let config: Self = toml::from_str(text).map_err(|error| {
            let begin = error.span().map_or(0, |span| span.start.min(text.len()));
            let before = text.as_bytes()[..begin].iter();
            let line = before.filter(|byte| **byte == b'\n').count() + 1;
            refused(line, error.message().trim().to_owned())
        })?;
        match config.nonsense() {
            None => Ok(config),
            Some((key, message)) => Err(refused(line_of(text, key), message)),
        }
    }

    /// A key whose value makes no sense, and why.
    fn nonsense(&self) -> Option<(&'static str, String)> {
        let paths = [
            ("records", &self.records),
            ("audit", &self.audit),
            ("socket", &self.socket),
            ("state", &self.state),
            ("bpffs", &self.bpffs),
            ("mark_key", &self.mark_key),
        ];
        for (key, path) in paths {
            if !path.is_absolute() {
                return Some((key, format!("`{key}` must begin with a slash")));
            }
        }
        if !self.ring_bytes.is_power_of_two()
            || !(LEAST_RING..=MOST_RING).contains(&self.ring_bytes)
        {
            let message = format!(
                "`ring_bytes` must be a power of two from {LEAST_RING} to {MOST_RING} bytes"
            );
            return Some(("ring_bytes", message));
        }
        if self.redact.patterns.len() > MOST_PATTERNS {
            let message = format!("`patterns` has more than {MOST_PATTERNS} entries");
            return Some(("patterns", message));
        }
        let limits = &self.limits;
        let bounds = [
            (
                "connections",
                limits.connections,
                ROOTS_CONNECTIONS + 1,
                65536,
            ),
            (
                "connections_per_user",
                limits.connections_per_user,
                1,
                65536,
            ),
            ("traces", limits.traces, 1, MOST_TRACES),
            ("traces_per_user", limits.traces_per_user, 1, MOST_TRACES),
            ("processes_per_user", limits.processes_per_user, 1, 1 << 16),
            (
                "forbidden_per_user",
                limits.forbidden_per_user,
                0,
                MOST_FORBIDDEN,
            ),
            (
                "requests_per_second",
                limits.requests_per_second,
                10,
                1_000_000,
            ),
            ("command_milliseconds", limits.command_milliseconds, 1, 1000),
        ];
        bounds.into_iter().find_map(|(key, value, least, most)| {
            let sound = (least..=most).contains(&value);
            (!sound).then(|| (key, format!("`{key}` must be from {least} to {most}")))
        })
    }
}

/// The line on which the key is set, from 1. The text has been parsed, so it is there once.
fn line_of(text: &str, key: &str) -> usize {
    let sets = |line: &str| {
        let rest = line.trim_start().strip_prefix(key);
        rest.is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    text.lines().position(sets).unwrap_or_default() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        Config::parse("tracer.toml", text).unwrap_err().to_string()
    }

    #[test]
    fn nothing_is_the_default() {
        assert_eq!(Config::parse("t", "").unwrap(), Config::default());
        assert_eq!(Config::default().nonsense(), None);
    }

    #[test]
    fn everything_can_be_set() {
        let text = r#"
            records = "/srv/trails"
            object = "tracepoints"
            ring_bytes = 1048576
            [demand]
            events = ["exec", "connect"]
            missing = true
            every = 10
            [redact]
            patterns = ["--pin=*"]
            [sinks]
            journald = true
            [keep]
            days = 30
            [limits]
            traces_per_user = 7
            command_milliseconds = 200
        "#;
        let config = Config::parse("t", text).unwrap();
        assert_eq!(config.records, PathBuf::from("/srv/trails"));
        assert_eq!(config.object, Object::Tracepoints);
        let kinds = [EventName(Kind::Exec), EventName(Kind::Connect)];
        assert_eq!(config.demand.events, kinds);
        assert!(config.demand.missing && config.sinks.journald);
        assert_eq!((config.keep.days, config.limits.traces_per_user), (30, 7));
        assert_eq!(config.limits.command_milliseconds, 200);
    }

    #[test]
    fn unknown_keys_are_refused_with_their_line() {
        let message = refusal("\n[limits]\ntrace_per_user = 3\n");
        assert!(
            message.starts_with("tracer.toml:3: unknown field `trace_per_user`"),
            "{message}"
        );
        let message = refusal("demands = 3\n");
        assert!(
            message.starts_with("tracer.toml:1: unknown field"),
            "{message}"
        );
    }

    #[test]
    fn values_without_sense_are_refused_with_their_line() {
        let message = refusal("[demand]\nevents = [\"exec\", \"opens\"]");
        assert!(
            message.starts_with("tracer.toml:2: there is no event `opens`"),
            "{message}"
        );
        assert_eq!(
            refusal("\nrecords = \"here\""),
            "tracer.toml:2: `records` must begin with a slash"
        );
        assert!(refusal("ring_bytes = 1000000").starts_with("tracer.toml:1: `ring_bytes` must be"));
        assert!(
            refusal("[limits]\n\nconnections=2").starts_with("tracer.toml:3: `connections` must")
        );
        assert!(refusal("[limits]\nconnections = -2").starts_with("tracer.toml:2: "));
        assert!(refusal("[limits\n").starts_with("tracer.toml:1: "));
    }
}
