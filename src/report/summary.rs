//! The answer of `agent-sandbox report` with `--all`, `--since` or `--from`, and of `agent-sandbox sessions` about the past: what
//! sessions did, counted by user, agent and project, or one by one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use serde_json::json;

use super::across::{self, Found, Names, Place, Tail};
use super::agents;
use super::print::{print, print_json};
use crate::audit::tally::{self, Tally};
use crate::audit::{self};
use crate::cli::{Options, Wanted};
use crate::failure::one_line;

/// What stands where a record does not tell what ran.
const UNKNOWN: &str = "-";

/// What is counted of several sessions, or of one.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Figures {
    /// Jobs that were submitted.
    jobs: u64,
    /// Requests to Slurm that were refused.
    refusals: u64,
    /// What the tracer saw denied: files, programs, connections.
    denials: u64,
    /// Hosts that were refused.
    refused_hosts: u64,
    /// Hosts that were reached.
    hosts: u64,
    #[serde(skip)]
    names: BTreeSet<String>,
}

/// A row of the report.
#[derive(Debug, Serialize)]
struct Row {
    user: String,
    agent: String,
    project: String,
    sessions: u64,
    #[serde(flatten)]
    figures: Figures,
}

/// A session of the past.
#[derive(Debug, Serialize)]
struct Session {
    user: String,
    session: String,
    started: String,
    nodes: BTreeSet<String>,
    agent: String,
    project: String,
    #[serde(flatten)]
    figures: Figures,
}

/// Sessions, by their users' numbers and their ids, with what they did on each node.
type Sessions = BTreeMap<(u32, String), Vec<Tally>>;

/// The report.
pub(super) fn show(options: &Options, wanted: &Wanted) -> Result<()> {
    let mut names = Names::new(wanted)?;
    let agents = agents::by_command()?;
    let (sessions, _) = sessions(wanted, &names, &agents)?;
    let mut rows: BTreeMap<(String, String, String), Row> = BTreeMap::new();
    for ((uid, _), tallies) in &sessions {
        let (agent, project) = what(tallies, &agents);
        let user = names.name(*uid);
        let key = (user.clone(), agent.clone(), project.clone());
        let row = rows.entry(key).or_insert_with(|| Row {
            user,
            agent,
            project,
            sessions: 0,
            figures: Figures::default(),
        });
        row.sessions += 1;
        tallies.iter().for_each(|tally| row.figures.add(tally));
    }
    let rows: Vec<Row> = rows.into_values().collect();
    let since = wanted
        .since
        .map(|since| audit::rfc3339(across::seconds(since)));
    if options.json {
        return print_json(&json!({ "since": since, "rows": rows }));
    }
    if rows.is_empty() {
        return print(&none(since.as_deref()));
    }
    let mut text = format!(
        "{:<16} {:<12} {:>8} {} PROJECT\n",
        "USER", "AGENT", "SESSIONS", HEAD
    );
    for row in &rows {
        let line = format!(
            "{:<16} {:<12} {:>8} {} {}",
            row.user,
            row.agent,
            row.sessions,
            row.figures.columns(),
            row.project
        );
        text.push_str(&one_line(&line));
        text.push('\n');
    }
    print(&text)
}

/// Sessions of the past, the earliest first.
pub(super) fn list(options: &Options, wanted: &Wanted) -> Result<()> {
    let mut names = Names::new(wanted)?;
    let agents = agents::by_command()?;
    let (sessions, several) = sessions(wanted, &names, &agents)?;
    let mut all: Vec<(f64, Session)> = Vec::new();
    for ((uid, session), tallies) in sessions {
        let (agent, project) = what(&tallies, &agents);
        let began = tallies.iter().map(|tally| tally.began);
        let began = began.min_by(f64::total_cmp).unwrap_or_default();
        let mut figures = Figures::default();
        tallies.iter().for_each(|tally| figures.add(tally));
        let session = Session {
            user: names.name(uid),
            session,
            started: audit::rfc3339(began),
            nodes: tallies.iter().map(|tally| tally.host.clone()).collect(),
            agent,
            project,
            figures,
        };
        all.push((began, session));
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    if options.json {
        let all: Vec<Session> = all.into_iter().map(|(_, session)| session).collect();
        return print_json(&serde_json::to_value(&all)?);
    }
    if all.is_empty() {
        let since = wanted
            .since
            .map(|since| audit::rfc3339(across::seconds(since)));
        return print(&none(since.as_deref()));
    }
    let whose = |user: &str| match several {
        true => format!("{user:<16} "),
        false => String::new(),
    };
    let mut text = format!(
        "{}{:<10} {:<20} {:<12} {:<12} {HEAD} PROJECT\n",
        whose("USER"),
        "SESSION",
        "STARTED",
        "NODE",
        "AGENT"
    );
    for (_, one) in &all {
        let nodes: Vec<&str> = one.nodes.iter().map(String::as_str).collect();
        let line = format!(
            "{}{:<10} {:<20} {:<12} {:<12} {} {}",
            whose(&one.user),
            one.session,
            one.started,
            nodes.join(","),
            one.agent,
            one.figures.columns(),
            one.project
        );
        text.push_str(&one_line(&line));
        text.push('\n');
    }
    print(&text)
}

const HEAD: &str = "  JOBS REFUSED DENIED HOSTS";

fn none(since: Option<&str>) -> String {
    match since {
        Some(since) => format!("no session is recorded since {since}\n"),
        None => "no session is recorded\n".to_owned(),
    }
}

/// In the process that reads a place: what each session did, a line each.
fn tallies(place: &Place<'_>) -> Result<Vec<u8>> {
    let (mut all, unread, left_out) =
        tally::of(&place.records, place.since, place.whose, place.room)?;
    for (begun, host) in across::running(place)? {
        all.push(Tally {
            session: begun.session,
            host: host.split('.').next().unwrap_or_default().to_owned(),
            agent: begun.agent,
            project: begun.project,
            began: begun.time,
            last: audit::now(),
            ..Tally::default()
        });
    }
    let mut lines = Vec::new();
    for tally in &all {
        serde_json::to_writer(&mut lines, tally)?;
        lines.push(b'\n');
    }
    let tail = Tail {
        unread,
        others: 0,
        left_out,
    };
    tail.behind(lines)
}

/// The sessions that are wanted, and whether they may be several users'.
fn sessions(
    wanted: &Wanted,
    names: &Names,
    agents: &HashMap<String, String>,
) -> Result<(Sessions, bool)> {
    let (found, several) = across::read(wanted, tallies)?;
    let mut sessions = joined(&found, names);
    let wanted_project = across::Project::new(wanted);
    sessions.retain(|_, tallies| {
        let (command, project) = told(tallies);
        across::is_agent(wanted, agents, command) && wanted_project.is(Path::new(project))
    });
    Ok((sessions, several))
}

/// What several records tell of the same session on the same node becomes one.
fn joined(found: &[Found], names: &Names) -> Sessions {
    let mut sessions = Sessions::new();
    for one in found {
        for line in one.text.split(|&byte| byte == b'\n') {
            let Ok(tally) = serde_json::from_slice::<Tally>(line) else {
                continue;
            };
            let Some(uid) = names.whose(one, tally.uid) else {
                continue;
            };
            let nodes = sessions.entry((uid, tally.session.clone())).or_default();
            match nodes.iter_mut().find(|other| other.host == tally.host) {
                Some(other) => other.join(&tally),
                None => nodes.push(tally),
            }
        }
    }
    sessions
}

/// The command and the project, from the node on which the session began.
fn told(tallies: &[Tally]) -> (&str, &str) {
    let begun = tallies.iter().find(|tally| !tally.agent.is_empty());
    begun.map_or(("", ""), |tally| (&tally.agent, &tally.project))
}

/// The agent and the project as they are shown.
fn what(tallies: &[Tally], agents: &HashMap<String, String>) -> (String, String) {
    let (command, project) = told(tallies);
    let shown = |text: &str| match text {
        "" => UNKNOWN.to_owned(),
        text => text.to_owned(),
    };
    let agent = agents.get(command).map_or(command, String::as_str);
    (shown(agent), shown(project))
}

impl Figures {
    fn add(&mut self, tally: &Tally) {
        for (own, more) in [
            (&mut self.jobs, tally.jobs),
            (&mut self.refusals, tally.refusals),
            (&mut self.denials, tally.denials),
            (&mut self.refused_hosts, tally.refused_hosts),
            (&mut self.hosts, tally.more_hosts),
        ] {
            *own = own.saturating_add(more);
        }
        for name in &tally.hosts {
            if !self.names.contains(name) {
                self.names.insert(name.clone());
                self.hosts = self.hosts.saturating_add(1);
            }
        }
    }

    fn columns(&self) -> String {
        format!(
            "{:>6} {:>7} {:>6} {:>5}",
            self.jobs,
            self.refusals,
            self.denials.saturating_add(self.refused_hosts),
            self.hosts
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn found(user: Option<u32>, tallies: &[Tally]) -> Found {
        let lines: Vec<Vec<u8>> = tallies
            .iter()
            .map(|one| serde_json::to_vec(one).unwrap())
            .collect();
        Found {
            user: user.map(|uid| (uid, format!("u{uid}"))),
            text: lines.join(&b'\n'),
            tail: Tail::default(),
        }
    }

    #[test]
    fn a_user_cannot_speak_for_another_or_lower_what_root_has() {
        let tally = |uid, jobs| Tally {
            uid,
            session: "s1".into(),
            host: "n1".into(),
            jobs,
            ..Tally::default()
        };
        let roots = found(None, &[tally(Some(1000), 5), tally(None, 9)]);
        let of_1000 = found(Some(1000), &[tally(None, 0)]);
        // What another user's own record says is that user's, whatever number stands in it.
        let of_1001 = found(Some(1001), &[tally(Some(1000), 70)]);
        let names = Names::new(&Wanted::default()).unwrap();
        let sessions = joined(&[roots, of_1000, of_1001], &names);
        let jobs: Vec<(u32, u64)> = sessions
            .iter()
            .map(|((uid, _), tallies)| (*uid, tallies.iter().map(|tally| tally.jobs).sum()))
            .collect();
        assert_eq!(jobs, [(1000, 5), (1001, 70)]);
    }

    #[test]
    fn hosts_are_counted_once() {
        let mut figures = Figures::default();
        for names in [["a", "b"], ["b", "c"]] {
            figures.add(&Tally {
                hosts: names.map(str::to_owned).into(),
                more_hosts: 2,
                ..Tally::default()
            });
        }
        assert_eq!(figures.hosts, 3 + 4);
    }
}
