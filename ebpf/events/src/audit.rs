//! What is handed to the tracer to be kept in root's own audit record, beside the user's: requests to Slurm, hosts,
//! the begin of a session.
//!
//! Whoever hands it over is a program of the user's. So a record says whose it is by `SO_PEERCRED` and nothing else, and
//! what it says beside that is that user's word.

use serde::{Deserialize, Serialize};

/// Where the record is, if the tracer's configuration does not say otherwise.
pub const DIRECTORY: &str = "/var/log/agent-sandbox";

/// The longest id of a session, in bytes; that of [`crate::protocol::Register::session`].
pub const LONGEST_SESSION: usize = 64;
/// The longest name of a command or an agent, in bytes.
pub const LONGEST_NAME: usize = 64;
/// The longest path of a project, in bytes (`PATH_MAX`).
pub const LONGEST_PATH: usize = 4096;
/// The longest name of a host, in bytes (RFC 1035, section 2.3.4).
pub const LONGEST_HOST: usize = 255;
/// The longest reason, in bytes.
pub const LONGEST_REASON: usize = 512;
/// Jobs that a request names at most.
pub const MOST_JOBS: usize = 64;

/// One thing that happened in a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handed {
    /// [`crate::protocol::VERSION`].
    pub version: u32,
    /// The session's id.
    pub session: String,
    /// When, in microseconds since 1970-01-01 00:00 UTC.
    pub time: u64,
    /// So many before it could not be handed over.
    pub missed: u64,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// It began.
    Session {
        /// The command's name.
        agent: String,
        /// The project directory.
        project: String,
    },
    /// A request of one of Slurm's commands.
    Slurm {
        /// The process that asked, as the host numbers it.
        pid: i32,
        /// The command's name.
        command: String,
        /// What became of it.
        verdict: Verdict,
        /// Why it was refused or failed, as a code.
        reason: Option<String>,
        /// The jobs that it made or touched.
        jobs: Vec<u32>,
        /// Jobs beyond those.
        more_jobs: u64,
        /// Refused and failed requests before it of which nothing is handed over.
        suppressed: u64,
    },
    /// A host that was asked for.
    Host {
        /// By what.
        kind: HostKind,
        /// Its name or address.
        name: String,
        /// Where; none: its name was looked up.
        port: Option<u16>,
        /// What became of it.
        verdict: Verdict,
        /// The rule that allows it, or why it was not reached.
        reason: String,
    },
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It was carried out.
    Allowed,
    /// A rule forbids it.
    Refused,
    /// It could not be carried out.
    Failed,
}

/// What asked for a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostKind {
    /// A connection out of a filtered network.
    Network,
    /// A login with the user's ssh agent.
    Ssh,
}

impl Handed {
    /// What about it is longer than it may be, or no id of a session.
    #[must_use]
    pub fn wrong(&self) -> Option<&'static str> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let named = !self.session.is_empty()
            && self.session.len() <= LONGEST_SESSION
            && !self.session.starts_with('.')
            && self.session.bytes().all(plain);
        if !named {
            return Some("the session's id is none");
        }
        let fits = match &self.what {
            What::Session { agent, project } => {
                agent.len() <= LONGEST_NAME && project.len() <= LONGEST_PATH
            }
            What::Slurm {
                command,
                reason,
                jobs,
                ..
            } => {
                command.len() <= LONGEST_NAME
                    && reason.as_ref().map_or(0, String::len) <= LONGEST_REASON
                    && jobs.len() <= MOST_JOBS
            }
            What::Host { name, reason, .. } => {
                name.len() <= LONGEST_HOST && reason.len() <= LONGEST_REASON
            }
        };
        (!fits).then_some("it is longer than a record may be")
    }
}

/// A time as it is handed over, from seconds since 1970.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, and makes 0 of what is no number"
)]
pub fn microseconds(seconds: f64) -> u64 {
    (seconds * 1e6).round() as u64
}

/// The beginning of a text, so many bytes of it at most.
#[must_use]
pub fn cut(text: &str, most: usize) -> String {
    let whole = (0..=most.min(text.len())).rev();
    let mut ends = whole.filter(|at| text.is_char_boundary(*at));
    text[..ends.next().unwrap_or_default()].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_told() {
        let of = |what| Handed {
            version: 3,
            session: "k3v9m2qp".to_owned(),
            time: 1,
            missed: 0,
            what,
        };
        let slurm = |command: &str, jobs| {
            of(What::Slurm {
                pid: 1,
                command: command.to_owned(),
                verdict: Verdict::Allowed,
                reason: None,
                jobs,
                more_jobs: 0,
                suppressed: 0,
            })
        };
        assert_eq!(slurm("sbatch", vec![7]).wrong(), None);
        assert!(slurm(&"x".repeat(65), Vec::new()).wrong().is_some());
        assert!(slurm("sbatch", vec![7; 65]).wrong().is_some());
        for id in ["", ".x", "a/b", "a b", "a\u{1b}[2J", &"x".repeat(65)] {
            let mut odd = slurm("sbatch", Vec::new());
            odd.session = id.to_owned();
            assert!(odd.wrong().is_some(), "{id}");
        }
        let long = cut(&"é".repeat(4000), LONGEST_REASON + 1);
        assert_eq!(long.len(), LONGEST_REASON);
        let host = of(What::Host {
            kind: HostKind::Ssh,
            name: "a".repeat(256),
            port: None,
            verdict: Verdict::Refused,
            reason: long,
        });
        assert!(host.wrong().is_some());
    }

    #[test]
    fn a_time_survives_the_way_to_text_and_back() {
        for time in [0.0, 1_763_803_558.123_456_7, 1_763_803_558.999_999_9] {
            let there = microseconds(time);
            #[expect(clippy::cast_precision_loss, reason = "exact for 285 years")]
            let back = microseconds(there as f64 / 1e6);
            assert_eq!(there, back);
        }
        assert_eq!((microseconds(-1.0), microseconds(f64::NAN)), (0, 0));
    }
}
