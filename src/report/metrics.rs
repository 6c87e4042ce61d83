//! The answer of `agent-sandbox metrics`: figures of one node for Prometheus, in its text format
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>), as the textfile collector of node_exporter reads it.
//!
//! Records are the users' own files, so figures are as true as they are. No name in a record becomes a label, but that of an
//! agent with a profile: whoever is inside could make up as many as they like.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::unistd::Uid;
use serde::{Deserialize, Serialize};

use super::agents;
use super::print::print;
use crate::audit::{self, tally::SUBMITTING};
use crate::host;
use crate::session::{self, Record};
use crate::users::{self, Known, User};

/// What a record can say of a request or of a host.
const VERDICTS: [&str; 3] = ["allowed", "refused", "failed"];
/// Of one user's sessions no more are counted, so that what is read of all users has room.
const MOST_SESSIONS: usize = 40;
/// No command of a profile has a longer name, in characters.
const LONGEST_COMMAND: usize = 64;
/// The label of a session whose command has no profile.
const OTHER: &str = "other";

/// What one user's files say.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Figures {
    sessions: Vec<Record>,
    /// Requests of Slurm's commands, in the order of [`VERDICTS`].
    requests: [u64; 3],
    /// Jobs that were submitted.
    jobs: u64,
    /// Hosts that filtered sessions and logins by ssh asked for, in the same order.
    hosts: [u64; 3],
}

/// Prints them: of the caller, for root of all users or of one.
pub(super) fn show(user: Option<&str>) -> Result<()> {
    let node = nix::unistd::gethostname().context("the node's name is not known")?;
    let node = node.to_string_lossy();
    let (found, unread) = match users::meant(user, Known::Ever)? {
        None => {
            let own = users::by_name(&Uid::current().to_string())?;
            let state = host::directories(None)?.1.state;
            let figures = Figures::read(own.uid, &state, &node)?;
            (vec![(own, vec![figures])], 0)
        }
        Some(users) => {
            let asked = users.len();
            let read = |user: &User| Figures::read(user.uid, &user.state(), &node);
            let mut found = users::read(users, |user| Ok(vec![read(user)?]))?;
            found.retain(|(_, figures)| !figures.is_empty());
            let unread = asked - found.len();
            (found, unread)
        }
    };
    let known = agents::by_command()?;
    let known = known.iter();
    let agents = known.map(|(command, name)| (command.as_str(), name.as_str()));
    print(&text(&found, unread, &agents.collect()))
}

impl Figures {
    fn read(uid: u32, state: &Path, node: &str) -> Result<Self> {
        let mut all = Self {
            sessions: session::running(&session::directory(uid, state))?,
            ..Self::default()
        };
        all.sessions.truncate(MOST_SESSIONS);
        for one in &mut all.sessions {
            // What whose process it is follows from, and its command.
            *one = Record {
                id: String::new(),
                boot: String::new(),
                host: String::new(),
                project: PathBuf::new(),
                command: one.command.chars().take(LONGEST_COMMAND).collect(),
                forward: BTreeMap::new(),
                ..*one
            };
        }
        let place = |verdict: &str| VERDICTS.iter().position(|one| *one == verdict);
        // A home is shared by nodes, and each of them has figures of its own.
        for request in audit::requests(state)?
            .iter()
            .filter(|one| one.host == node)
        {
            let Some(at) = place(&request.verdict) else {
                continue;
            };
            all.requests[at] =
                all.requests[at].saturating_add(u64::from(!request.command.is_empty()));
            // What is not recorded by itself was refused or failed.
            all.requests[1] = all.requests[1].saturating_add(request.suppressed);
            if at == 0 && SUBMITTING.contains(&request.command.as_str()) {
                let jobs = request.jobs.len() as u64;
                all.jobs = all
                    .jobs
                    .saturating_add(jobs.saturating_add(request.more_jobs));
            }
        }
        for one in audit::connections(state)?
            .iter()
            .filter(|one| one.host == node)
        {
            if let Some(at) = place(&one.verdict) {
                all.hosts[at] += 1;
            }
        }
        Ok(all)
    }
}

/// The text. `agents`: the names of profiles by their commands.
fn text(found: &[(User, Vec<Figures>)], unread: usize, agents: &BTreeMap<&str, &str>) -> String {
    let mut sessions: Vec<(String, u64)> = Vec::new();
    let (mut requests, mut jobs, mut hosts) = (Vec::new(), Vec::new(), Vec::new());
    let each = found
        .iter()
        .filter_map(|(user, figures)| Some((user, figures.first()?)));
    for (user, figures) in each {
        let mut by_agent: BTreeMap<&str, u64> = BTreeMap::new();
        let mut records: Vec<&Record> = figures
            .sessions
            .iter()
            .filter(|one| one.is_of(user.uid))
            .collect();
        // A process has one record; of more the others are made up.
        records.sort_unstable_by_key(|record| record.pid);
        records.dedup_by_key(|record| record.pid);
        for record in records {
            let agent = agents.get(record.command.as_str()).copied();
            *by_agent.entry(agent.unwrap_or(OTHER)).or_default() += 1;
        }
        let name = escaped(&user.name);
        let each = by_agent.into_iter();
        sessions.extend(each.map(|(agent, number)| {
            (
                format!("user=\"{name}\",agent=\"{}\"", escaped(agent)),
                number,
            )
        }));
        let by_verdict = |numbers: &[u64; 3]| {
            let each = VERDICTS
                .iter()
                .zip(*numbers)
                .filter(|(_, number)| *number > 0);
            each.map(|(verdict, number)| (format!("user=\"{name}\",verdict=\"{verdict}\""), number))
                .collect::<Vec<_>>()
        };
        requests.extend(by_verdict(&figures.requests));
        hosts.extend(by_verdict(&figures.hosts));
        if figures.jobs > 0 {
            jobs.push((format!("user=\"{name}\""), figures.jobs));
        }
    }
    let families = [
        (
            "sessions",
            "gauge",
            "Sessions that run on this node, by agent.",
            sessions,
        ),
        (
            "slurm_requests_total",
            "counter",
            "Requests of Slurm's commands from inside, in this node's records.",
            requests,
        ),
        (
            "slurm_jobs_submitted_total",
            "counter",
            "Jobs submitted from inside, in this node's records.",
            jobs,
        ),
        (
            "hosts_total",
            "counter",
            "Hosts that filtered sessions and logins by ssh asked for, each once a session, in this node's records.",
            hosts,
        ),
        (
            "users_unread",
            "gauge",
            "Users whose records could not be read.",
            vec![(String::new(), unread as u64)],
        ),
    ];
    let mut text = String::new();
    for (name, kind, help, samples) in families {
        let _ = writeln!(
            text,
            "# HELP agent_sandbox_{name} {help}\n# TYPE agent_sandbox_{name} {kind}"
        );
        for (labels, number) in samples {
            let labels = match labels.is_empty() {
                true => labels,
                false => format!("{{{labels}}}"),
            };
            let _ = writeln!(text, "agent_sandbox_{name}{labels} {number}");
        }
    }
    text
}

/// A label's value between quotes.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
