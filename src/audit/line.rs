//! One line of a record, whoever wrote it: what it is about can be told without reading all of it, and there may be a hundred
//! thousand.

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

use bstr::{ByteSlice, Finder};
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// JSON escapes quotes in texts, so these stand nowhere but where the fields begin.
static TIME: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"time\":"));
static KIND: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"kind\":\""));
static UID: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"uid\":"));

/// Whose lines a record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// One user's, whatever they say.
    One(u32),
    /// Those of whom they say; if one is named, only that user's are wanted.
    Each(Option<u32>),
}

impl Whose {
    /// Whose a line is that says so; `None` if it is nobody's, or not wanted.
    pub fn of(self, says: Option<u32>) -> Option<u32> {
        match self {
            Self::One(uid) => Some(uid),
            Self::Each(only) => says.filter(|uid| only.is_none_or(|only| only == *uid)),
        }
    }

    /// The same of a line that is not read whole.
    pub fn user(self, line: &[u8]) -> Option<u32> {
        match self {
            Self::One(uid) => Some(uid),
            Self::Each(_) => {
                let rest = line.get(UID.find(line)? + 6..)?;
                let end = rest.find_byteset(b",}")?;
                self.of(std::str::from_utf8(&rest[..end]).ok()?.trim().parse().ok())
            }
        }
    }
}

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// A request of Slurm's commands.
    Slurm,
    /// A host.
    Host,
    /// The begin of a session.
    Session,
    /// Something else.
    Other,
}

/// What a line is about, and its time in seconds since 1970; `None` if it is no record.
pub fn glance(line: &[u8]) -> Option<(About, f64)> {
    let at = TIME.find(line)?;
    let rest = line.get(at + 7..)?;
    let end = rest.find_byteset(b",}")?;
    let time: f64 = std::str::from_utf8(&rest[..end])
        .ok()?
        .trim()
        .parse()
        .ok()?;
    let about = match KIND.find(line).and_then(|at| line.get(at + 8..)) {
        None => About::Slurm,
        Some(kind) if kind.starts_with(b"network\"") || kind.starts_with(b"ssh\"") => About::Host,
        Some(kind) if kind.starts_with(b"session\"") => About::Session,
        Some(_) => About::Other,
    };
    time.is_finite().then_some((about, time))
}

/// What is counted of a line.
#[derive(Debug, Deserialize)]
pub struct Line<'a> {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub time: f64,
    /// Whose it is, where root keeps it.
    #[serde(default)]
    pub uid: Option<u32>,
    /// The number of the session's trace, where root keeps it and the tracer knows the session.
    #[serde(default)]
    pub trace: Option<u32>,
    /// The session's id.
    #[serde(borrow)]
    pub session: Cow<'a, str>,
    /// The node.
    #[serde(borrow)]
    pub host: Cow<'a, str>,
    /// What it is about; empty: a request of Slurm's commands.
    #[serde(borrow, default)]
    pub kind: Cow<'a, str>,
    /// The command's name, of a session.
    #[serde(borrow, default)]
    pub agent: Cow<'a, str>,
    /// The project, of a session.
    #[serde(borrow, default)]
    pub project: Cow<'a, str>,
    /// The process that asked, of a request.
    #[serde(default)]
    pub pid: i64,
    /// The port, of a host.
    #[serde(default)]
    pub port: Option<u16>,
    /// The command's name, of a request.
    #[serde(borrow, default)]
    pub command: Cow<'a, str>,
    /// What became of it.
    #[serde(borrow, default)]
    pub verdict: Cow<'a, str>,
    /// The host's name.
    #[serde(borrow, default)]
    pub name: Cow<'a, str>,
    /// How many jobs it names.
    #[serde(default, deserialize_with = "how_many")]
    pub jobs: u64,
    /// Jobs beyond those.
    #[serde(default)]
    pub more_jobs: u64,
    /// Requests of which there is no record.
    #[serde(default)]
    pub suppressed: u64,
    /// What the tracer saw denied, at the end.
    #[serde(default)]
    pub denials: u64,
}

impl Line<'_> {
    /// The node's name up to its first dot, as Slurm and the tracer name it.
    pub fn node(&self) -> &str {
        self.host.split('.').next().unwrap_or_default()
    }
}

/// The length of a list, of which nothing is kept.
fn how_many<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    struct Counting;
    impl<'de> Visitor<'de> for Counting {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<u64, A::Error> {
            let mut count = 0;
            while list.next_element::<IgnoredAny>()?.is_some() {
                count += 1;
            }
            Ok(count)
        }
    }
    from.deserialize_seq(Counting)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_a_line_is_about_is_told_from_its_fields_alone() {
        let begins = r#"{"session":"s1","host":"n1","time":2.5,"#;
        for (rest, about) in [
            (
                r#""pid":7,"command":"sbatch","verdict":"allowed"}"#,
                About::Slurm,
            ),
            (r#""kind":"network","name":"a"}"#, About::Host),
            (r#""kind":"ssh","name":"a"}"#, About::Host),
            (r#""kind":"session","agent":"a"}"#, About::Session),
            (r#""kind":"end"}"#, About::Other),
            // Text that looks like a field is escaped.
            (
                r#""command":"\"kind\":\"network\"","verdict":"failed"}"#,
                About::Slurm,
            ),
        ] {
            let line = format!("{begins}{rest}");
            assert_eq!(glance(line.as_bytes()), Some((about, 2.5)), "{line}");
        }
        for odd in [
            "",
            "{}",
            r#"{"time":"#,
            r#"{"time":x}"#,
            r#"{"time":1e999}"#,
        ] {
            assert_eq!(glance(odd.as_bytes()), None, "{odd}");
        }
    }

    #[test]
    fn whose_a_line_is_stands_in_its_own_field() {
        for (line, uid) in [
            (r#"{"uid":7,"time":1}"#, Some(7)),
            (r#"{"time":1,"uid": 7}"#, Some(7)),
            (r#"{"name":"\"uid\":8","uid":7,"time":1}"#, Some(7)),
            (r#"{"time":1}"#, None),
            (r#"{"uid":-7,"time":1}"#, None),
            (r#"{"uid":"#, None),
        ] {
            assert_eq!(Whose::Each(None).user(line.as_bytes()), uid, "{line}");
            let only = uid.filter(|uid| *uid == 8);
            assert_eq!(Whose::Each(Some(8)).user(line.as_bytes()), only, "{line}");
            assert_eq!(Whose::One(9).user(line.as_bytes()), Some(9), "{line}");
        }
    }

    #[test]
    fn jobs_are_counted_and_not_kept() {
        let line = r#"{"session":"s1","host":"n1.example.org","time":2.5,"command":"sb\natch","jobs":[1,2,3],"reason":null}"#;
        let line: Line<'_> = serde_json::from_str(line).unwrap();
        assert_eq!((line.jobs, line.node()), (3, "n1"));
        assert!(matches!(line.session, Cow::Borrowed("s1")));
        assert_eq!(line.command, "sb\natch");
    }
}
