//! What sessions did, counted: one [`Tally`] for each session and node, from whichever record tells of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::files::{self, Unread};
use super::line::{Line, Whose};
use super::shares::{self, LeftOut};

/// Commands that submit jobs.
pub const SUBMITTING: [&str; 3] = ["sbatch", "salloc", "srun"];
/// What a session needs besides its texts, in bytes: more than it has in memory, and than its numbers have in JSON.
const BARE: usize = 400;
/// The same of the name of a host.
const BARE_HOST: usize = 64;
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

/// A session while records are read.
struct Held {
    tally: Tally,
    /// Whether the tracer knows it: who hands over ids can make up as many as they like.
    traced: bool,
    /// The room that it takes, in bytes.
    size: usize,
}

/// A user's sessions, by their ids and nodes.
#[derive(Default)]
struct Sessions {
    all: HashMap<String, Held>,
    /// The room that they take, in bytes.
    size: usize,
}

impl Sessions {
    /// Leaves out what has no room: those first that the tracer does not know, and then those that ended first. The answer is how many.
    fn shrink(&mut self, share: usize) -> u64 {
        let before = self.all.len();
        let mut all: Vec<(String, Held)> = self.all.drain().collect();
        all.sort_unstable_by(|(_, a), (_, b)| {
            (b.traced.cmp(&a.traced)).then_with(|| b.tally.last.total_cmp(&a.tally.last))
        });
        self.size = 0;
        self.all = all
            .into_iter()
            .take_while(|(_, held)| {
                let size = self.size + held.size;
                let has_room = size <= share;
                if has_room {
                    self.size = size;
                }
                has_room
            })
            .collect();
        (before - self.all.len()) as u64
    }
}

/// Cuts the sessions of those who have most down to equal shares.
fn shrink(users: &mut BTreeMap<u32, Sessions>, room: usize, left_out: &mut LeftOut) {
    let share = shares::share(users.values().map(|one| one.size), room);
    for (uid, sessions) in users.iter_mut().filter(|(_, one)| one.size > share) {
        *left_out.entry(*uid).or_default() += sessions.shrink(share);
    }
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

    /// The room that it takes, in bytes, in memory as in JSON.
    fn measured(&self) -> usize {
        let texts = [&self.session, &self.host, &self.agent, &self.project];
        let texts: usize = texts.iter().map(|text| length(text)).sum();
        let hosts = self.hosts.iter().map(|name| BARE_HOST + length(name));
        BARE + texts + hosts.sum::<usize>()
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

/// What is told of sessions in a directory of records since a time, if one is given, the earliest session first, and how many had no
/// room, which is so many bytes.
///
/// # Errors
/// The directory cannot be read.
pub fn of(
    directory: &Path,
    since: Option<f64>,
    whose: Whose,
    room: usize,
) -> Result<(Vec<Tally>, Unread, LeftOut)> {
    let mut users: BTreeMap<u32, Sessions> = BTreeMap::new();
    let mut left_out = LeftOut::new();
    let mut held = 0;
    let mut key = String::new();
    let since = since.unwrap_or(f64::MIN);
    let unread = files::lines(directory, |text| {
        let Ok(line) = serde_json::from_str::<Line<'_>>(text) else {
            return false;
        };
        let Some(uid) = whose.of(line.uid) else {
            return true;
        };
        // What a session is stands in its first line, however long ago.
        let begins = line.kind == super::SESSION;
        if line.time < since && !begins {
            return true;
        }
        key.clear();
        for part in [&*line.session, "\0", line.node()] {
            key.push_str(part);
        }
        let sessions = users.entry(uid).or_default();
        let one = match sessions.all.get_mut(&key) {
            Some(one) => one,
            None => sessions.all.entry(key.clone()).or_insert(Held {
                tally: Tally {
                    uid: Some(uid),
                    session: short(&line.session),
                    host: short(line.node()),
                    began: line.time,
                    last: f64::MIN,
                    ..Tally::default()
                },
                traced: false,
                size: 0,
            }),
        };
        let tally = &mut one.tally;
        tally.began = tally.began.min(line.time);
        one.traced |= line.trace.is_some();
        if begins {
            tally.agent = short(&line.agent);
            tally.project = line.project.clone().into_owned();
        }
        let hosts = tally.hosts.len();
        if line.time >= since {
            tally.count(&line);
        }
        if begins || one.size == 0 || tally.hosts.len() != hosts {
            let size = tally.measured();
            let before = std::mem::replace(&mut one.size, size);
            sessions.size = sessions.size - before + size;
            held = held - before + size;
            if held > shares::most(room) {
                shrink(&mut users, room, &mut left_out);
                held = users.values().map(|one| one.size).sum();
            }
        }
        true
    })?;
    for sessions in users.values_mut() {
        sessions.all.retain(|_, one| one.tally.last >= since);
        sessions.size = sessions.all.values().map(|one| one.size).sum();
    }
    shrink(&mut users, room, &mut left_out);
    let all = users.into_values().flat_map(|one| one.all.into_values());
    let mut all: Vec<Tally> = all.map(|one| one.tally).collect();
    all.sort_by(|a, b| a.last.total_cmp(&b.last));
    Ok((all, unread, left_out))
}

/// The most that a text takes in JSON, in bytes.
fn length(text: &str) -> usize {
    let escaped = |byte: &u8| *byte < b' ' || [b'"', b'\\'].contains(byte);
    text.len() + 5 * text.bytes().filter(|byte| escaped(byte)).count()
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
        let own = Whose::One(7);
        let (all, unread, _) = of(place.path(), Some(15.0), own, 1 << 20).unwrap();
        assert!(all[0].measured() >= serde_json::to_vec(&all[0]).unwrap().len());
        assert_eq!(unread.odd, 1);
        let expected = Tally {
            uid: Some(7),
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
        let (all, _, _) = of(place.path(), None, own, 1 << 20).unwrap();
        assert_eq!((all.len(), all[1].jobs), (2, 7));
    }

    /// A user hands over invented ids, before sessions of that user and of others are read.
    #[test]
    fn invented_sessions_push_out_none_that_are_real_and_none_of_others() {
        let place = tempfile::tempdir().unwrap();
        let begun = |uid: u32, trace: &str, id: &str, time: u32| {
            format!(
                "{{\"uid\":{uid},\"host\":\"n1\",{trace}\"time\":{time},\"session\":\"{id}\",\"kind\":\"session\",\
                 \"agent\":\"a\",\"project\":\"/p\"}}\n"
            )
        };
        let real = |uid: u32| -> String {
            let one = |one: u32| begun(uid, "\"trace\":3,", &format!("real{one}"), 10 + one);
            (0..50).map(one).collect()
        };
        let invented = (0..25_000).map(|one| begun(1000, "", &format!("made{one}"), 1000));
        let text = real(1000) + &invented.collect::<String>() + &real(1000).replace("real", "more");
        std::fs::write(place.path().join("1000.jsonl"), text).unwrap();
        std::fs::write(place.path().join("1001.jsonl"), real(1001)).unwrap();
        for (whose, others) in [(Whose::Each(None), 50), (Whose::Each(Some(1000)), 0)] {
            let (all, unread, left_out) = of(place.path(), None, whose, 1 << 20).unwrap();
            let count = |uid, name: &str| {
                let fits = |one: &&Tally| one.uid == Some(uid) && one.session.starts_with(name);
                all.iter().filter(fits).count()
            };
            assert_eq!(unread, Unread::default());
            assert_eq!((count(1000, "real"), count(1000, "more")), (50, 50));
            assert_eq!(count(1001, "real"), others);
            assert!(all.iter().map(Tally::measured).sum::<usize>() <= 1 << 20);
            let made = count(1000, "made") as u64;
            assert_eq!(left_out, [(1000, 25_000 - made)].into());
        }
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
