//! What sessions did, counted: one [`Tally`] for each session and node, from whichever record tells of it.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::files::{self, Unread};
use super::line::Line;

/// Commands that submit jobs.
pub const SUBMITTING: [&str; 3] = ["sbatch", "salloc", "srun"];
/// Sessions of one record that are counted: whoever writes a record can make up as many as they like.
const MOST_SESSIONS: usize = 20_000;
/// Names of hosts that are kept of one session.
const MOST_HOSTS: usize = 64;
/// Longer names of anything are cut off, in characters.
const LONGEST: usize = 256;

/// What one session did on one node, as a record tells it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Whose, where the record says so.
    pub uid: Option<u32>,
    /// The session's id.
    pub session: String,
    /// The node.
    pub host: String,
    /// The command's name, if the record tells of the begin.
    pub agent: String,
    /// The project, if the record tells of the begin.
    pub project: String,
    /// When it began, or the first that is told of it, in seconds since 1970.
    pub began: f64,
    /// The last that is told of it.
    pub last: f64,
    /// Jobs that were submitted.
    pub jobs: u64,
    /// Requests to Slurm that were refused.
    pub refusals: u64,
    /// Hosts that were refused.
    pub refused_hosts: u64,
    /// What the tracer saw denied.
    pub denials: u64,
    /// Hosts that were reached.
    pub hosts: BTreeSet<String>,
    /// And so many more.
    pub more_hosts: u64,
}

impl Tally {
    /// Takes what another record tells of the same session on the same node: of each figure the larger one, since either
    /// may lack something.
    pub fn join(&mut self, other: &Self) {
        for (own, other) in [
            (&mut self.agent, &other.agent),
            (&mut self.project, &other.project),
        ] {
            if own.is_empty() {
                own.clone_from(other);
            }
        }
        self.began = self.began.min(other.began);
        self.last = self.last.max(other.last);
        for (own, other) in [
            (&mut self.jobs, other.jobs),
            (&mut self.refusals, other.refusals),
            (&mut self.refused_hosts, other.refused_hosts),
            (&mut self.denials, other.denials),
            (&mut self.more_hosts, other.more_hosts),
        ] {
            *own = (*own).max(other);
        }
        self.hosts.extend(other.hosts.iter().cloned());
    }

    fn count(&mut self, line: &Line<'_>) {
        self.last = self.last.max(line.time);
        match (&*line.kind, &*line.verdict) {
            ("", verdict) => {
                let refused = u64::from(verdict == "refused" && !line.command.is_empty());
                // What is not recorded by itself was refused or failed.
                let refused = refused.saturating_add(line.suppressed);
                self.refusals = self.refusals.saturating_add(refused);
                if verdict == "allowed" && SUBMITTING.contains(&&*line.command) {
                    let jobs = line.jobs.saturating_add(line.more_jobs);
                    self.jobs = self.jobs.saturating_add(jobs);
                }
            }
            (super::NETWORK | super::SSH, "allowed") => {
                if self.hosts.len() < MOST_HOSTS {
                    self.hosts.insert(short(&line.name));
                } else if !self.hosts.contains(&*line.name) {
                    self.more_hosts += 1;
                }
            }
            (super::NETWORK | super::SSH, "refused") => self.refused_hosts += 1,
            ("end", _) => self.denials = self.denials.saturating_add(line.denials),
            _ => {}
        }
    }
}

/// What is told of sessions in a directory of records since a time, if one is given, the earliest session first.
///
/// # Errors
/// The directory cannot be read.
pub fn of(directory: &Path, since: Option<f64>) -> Result<(Vec<Tally>, Unread)> {
    let mut all: Vec<Tally> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut key = String::new();
    let since = since.unwrap_or(f64::MIN);
    let unread = files::lines(directory, |text| {
        let Ok(line) = serde_json::from_slice::<Line<'_>>(text) else {
            return false;
        };
        // What a session is stands in its first line, however long ago.
        let begins = line.kind == super::SESSION;
        if line.time < since && !begins {
            return true;
        }
        key.clear();
        for part in [&*line.session, line.node()] {
            key.push_str(part);
            key.push('\0');
        }
        key.push_str(&line.uid.map(|uid| uid.to_string()).unwrap_or_default());
        let at = match known.get(&key) {
            Some(at) => *at,
            None if all.len() >= MOST_SESSIONS => return false,
            None => {
                all.push(Tally {
                    uid: line.uid,
                    session: short(&line.session),
                    host: short(line.node()),
                    began: line.time,
                    last: f64::MIN,
                    ..Tally::default()
                });
                known.insert(key.clone(), all.len() - 1);
                all.len() - 1
            }
        };
        let tally = &mut all[at];
        tally.began = tally.began.min(line.time);
        if begins {
            tally.agent = short(&line.agent);
            tally.project = line.project.clone().into_owned();
        }
        if line.time >= since {
            tally.count(&line);
        }
        true
    })?;
    all.retain(|tally| tally.last >= since);
    all.sort_by(|a, b| a.last.total_cmp(&b.last));
    Ok((all, unread))
}

fn short(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_counted_since_a_time() {
        let place = tempfile::tempdir().unwrap();
        let lines = [
            r#"{"session":"s1","host":"n1.a","time":10,"kind":"session","agent":"claude","project":"/p"}"#,
            r#"{"session":"s1","host":"n1","time":11,"pid":1,"command":"sbatch","verdict":"allowed","reason":null,"jobs":[1]}"#,
            r#"{"session":"s1","host":"n1","time":20,"pid":1,"command":"sbatch","verdict":"allowed","jobs":[2,3],"more_jobs":4}"#,
            r#"{"session":"s1","host":"n1","time":20,"pid":1,"command":"squeue","verdict":"allowed","jobs":[2,3]}"#,
            r#"{"session":"s1","host":"n1","time":21,"pid":1,"command":"scancel","verdict":"refused","reason":"rule","jobs":[],"suppressed":2}"#,
            r#"{"session":"s1","host":"n1","time":22,"kind":"network","name":"a.org","port":443,"verdict":"allowed","reason":"r"}"#,
            r#"{"session":"s1","host":"n1","time":22,"kind":"network","name":"b.org","port":443,"verdict":"refused","reason":"r"}"#,
            r#"{"session":"s1","host":"n1","time":23,"kind":"end","denials":7}"#,
            r#"{"session":"s2","host":"n1","time":5,"kind":"session","agent":"codex","project":"/q"}"#,
            "{\"session\":",
        ];
        std::fs::write(place.path().join("n1.jsonl"), lines.join("\n") + "\n").unwrap();
        let (all, unread) = of(place.path(), Some(15.0)).unwrap();
        assert_eq!(unread.odd, 1);
        let expected = Tally {
            uid: None,
            session: "s1".into(),
            host: "n1".into(),
            agent: "claude".into(),
            project: "/p".into(),
            began: 10.0,
            last: 23.0,
            jobs: 6,
            refusals: 3,
            refused_hosts: 1,
            denials: 7,
            hosts: ["a.org".to_owned()].into(),
            more_hosts: 0,
        };
        assert_eq!(all, [expected]);
        let (all, _) = of(place.path(), None).unwrap();
        assert_eq!((all.len(), all[1].jobs), (2, 7));
    }

    #[test]
    fn two_records_of_one_session_are_not_added() {
        let mut own = Tally {
            began: 5.0,
            jobs: 3,
            refusals: 1,
            ..Tally::default()
        };
        let other = Tally {
            agent: "claude".into(),
            began: 4.0,
            jobs: 2,
            refusals: 9,
            hosts: ["a".to_owned()].into(),
            ..Tally::default()
        };
        own.join(&other);
        assert_eq!((own.jobs, own.refusals, own.began), (3, 9, 4.0));
        assert_eq!((own.agent.as_str(), own.hosts.len()), ("claude", 1));
    }
}
