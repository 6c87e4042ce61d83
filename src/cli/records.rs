//! The words of `sessions`, `metrics` and `log`: what is recorded of sessions, of whom, of which time, and from where.

use std::path::PathBuf;

use clap::{Args, Parser};
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

use super::{Options, misuse};

/// Which records an answer is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Those of all users, or nothing.
    pub all: bool,
    /// Only those of this user, by name or number.
    pub user: Option<String>,
    /// Only sessions of this agent.
    pub agent: Option<String>,
    /// Only sessions in this project.
    pub project: Option<PathBuf>,
    /// Only what happened since then.
    pub since: Option<Since>,
    /// Directories of records that are read in place of this node's.
    pub from: Vec<PathBuf>,
}

impl Wanted {
    /// Whether it is about the past, and not about what runs now.
    pub fn is_of_the_past(&self) -> bool {
        self.since.is_some() || !self.from.is_empty() || self.agent.is_some()
    }
}

/// A time that somebody names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// So many seconds before the call.
    Ago(u64),
    /// Seconds since 1970-01-01 00:00 UTC.
    At(i64),
}

impl Since {
    /// Reads `30m`, `12h`, `7d`, `2w`, a date or a date with a time, in UTC as the answers have it.
    ///
    /// # Errors
    /// It is neither; what there is.
    fn read(text: &str) -> Result<Self, String> {
        let units = [('m', 60), ('h', 3600), ('d', 86_400), ('w', 604_800)];
        for (unit, seconds) in units {
            let number = text.strip_suffix(unit).filter(|number| {
                !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
            });
            if let Some(number) = number {
                let number: u64 = number
                    .parse()
                    .map_err(|_| "it is too long ago".to_owned())?;
                let ago = number.checked_mul(seconds).filter(|ago| *ago < 1 << 40);
                return ago.map(Self::Ago).ok_or("it is too long ago".to_owned());
            }
        }
        let plain = text.strip_suffix('Z').unwrap_or(text);
        let at = match plain.parse::<Date>() {
            Ok(date) if !plain.contains(['T', ' ', ':']) => Some(date.at(0, 0, 0, 0)),
            _ => plain.parse::<DateTime>().ok(),
        };
        let at = at.and_then(|at| at.to_zoned(TimeZone::UTC).ok());
        at.map(|at| Self::At(at.timestamp().as_second())).ok_or(
            "it is no time: 30m, 12h, 7d, 2w, 2026-11-01 or 2026-11-01T09:30, in UTC".to_owned(),
        )
    }
}

/// What `sessions`, `log` and `report` share.
#[derive(Args, Debug)]
pub(super) struct WantedWords {
    /// For root: of all users; for anybody else an error. Without it root's call is about all users as well
    #[arg(long)]
    all: bool,
    /// For root: only those of this user, by name or number
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Only sessions of this agent: the name of its profile, or of the command
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Only what happened since then: 30m, 12h, 7d, 2w, a date, or a date with a time (2026-11-01T09:30), in UTC
    #[arg(long, value_name = "WHEN", value_parser = Since::read)]
    since: Option<Since>,
    /// Read the records in DIR, and in directories below it, in place of this node's: those of /var/log/agent-sandbox of
    /// many nodes, or what was exported from journald (may be repeated)
    #[arg(long, value_name = "DIR")]
    from: Vec<PathBuf>,
}

impl WantedWords {
    pub(super) fn of(self, project: Option<PathBuf>) -> Wanted {
        Wanted {
            all: self.all,
            user: self.user,
            agent: self.agent,
            project,
            since: self.since,
            from: self.from,
        }
    }
}

/// Figures of this node in Prometheus's text format: sessions, requests to Slurm, hosts; for root those of all users
#[derive(Debug, Parser)]
#[command(name = "agent-sandbox metrics")]
pub(super) struct MetricsWords {
    /// For root: only those of this user, by name or number
    #[arg(long, value_name = "NAME")]
    pub(super) user: Option<String>,
}

/// The sessions that run on this node: yours, for root those of all users. With --since, --agent or --from those that the records
/// tell of, running or over, with what they did; with --project DIR only those in DIR
#[derive(Debug, Parser)]
#[command(name = "agent-sandbox sessions")]
pub(super) struct SessionsWords {
    #[command(flatten)]
    pub(super) wanted: WantedWords,
    #[command(flatten)]
    pub(super) options: Options,
}

/// What was asked of Slurm from inside jails, what Slurm said about jobs, and whom filtered networks led to; for root of all
/// users known on this node. With --project DIR only of sessions in DIR
#[derive(Debug, Parser)]
#[command(name = "agent-sandbox log")]
pub(super) struct LogWords {
    /// The job: what Slurm said about it, such as why its jail did not start
    #[arg(value_name = "JOBID", conflicts_with_all = ["all", "agent", "since", "from"])]
    pub(super) job: Option<String>,
    /// Which hosts sessions with a filtered network reached and by which rule, and which not, why, and what would open
    /// them; and logins by ssh with the user's ssh-agent
    #[arg(long, conflicts_with = "job")]
    pub(super) network: bool,
    /// Only what this session asked
    #[arg(long, value_name = "ID")]
    pub(super) session: Option<String>,
    #[command(flatten)]
    pub(super) wanted: WantedWords,
    #[command(flatten)]
    pub(super) options: Options,
}

/// What `report` is about: the whole, if records are asked for; a trail otherwise, of which `user` may be asked for.
pub(super) fn summary(wanted: &Wanted, which: bool, markdown: bool) -> Result<bool, super::End> {
    let whole = wanted.all || wanted.since.is_some() || !wanted.from.is_empty();
    if whole && (which || markdown) {
        return misuse(
            "`agent-sandbox report` with --all, --since or --from is about many sessions: it takes no session and no --markdown",
        );
    }
    if !whole && (wanted.agent.is_some() || wanted.project.is_some()) {
        return misuse(
            "`agent-sandbox report` takes --agent and --project with --all, --since or --from",
        );
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, since) in [
            ("30m", Since::Ago(1800)),
            ("7d", Since::Ago(604_800)),
            ("2w", Since::Ago(1_209_600)),
            ("1970-01-02", Since::At(86_400)),
            ("2026-11-01", Since::At(1_793_491_200)),
            ("2026-11-01T09:30", Since::At(1_793_525_400)),
            ("2026-11-01T09:30:05Z", Since::At(1_793_525_405)),
        ] {
            assert_eq!(Since::read(text), Ok(since), "{text}");
        }
        for text in [
            "",
            "d",
            "-1d",
            "7",
            "7x",
            "1.5h",
            "2026-13-01",
            "yesterday",
            "99999999999999999999d",
            "99999999999999w",
        ] {
            assert!(Since::read(text).is_err(), "{text}");
        }
    }
}
