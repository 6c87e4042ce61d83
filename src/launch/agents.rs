//! What of an agent is there on this machine: its program, and its user's login.
#![allow(
    clippy::disallowed_methods,
    reason = "effects: asks the environment and the home directory"
)]

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Prepared;
use crate::config::agent::{Agent, HomePath, Marker};
use crate::config::load::RawLayer;
use crate::env_vars;
use crate::failure;
use crate::host::files::{Files, HostFiles, Kind, Look};
use crate::plan::Plan;

/// Somebody waits for a list: a path on a file system that does not answer counts as missing.
const PATIENCE: Duration = Duration::from_secs(2);

/// What looks for agents.
pub struct Looker {
    files: HostFiles,
    home: PathBuf,
}

impl Looker {
    /// For the agents of the user whose home this is.
    pub fn new(home: &Path) -> Self {
        Self {
            files: HostFiles::new(PATIENCE),
            home: home.to_owned(),
        }
    }

    /// The first of the agent's commands in the search path, as a launch would find it; it is not
    /// started.
    pub fn program(&self, agent: &Agent) -> Option<PathBuf> {
        let search = std::env::var_os(env_vars::PATH);
        let search = search.unwrap_or_else(|| env_vars::DEFAULT_PATH.into());
        let places = || std::env::split_paths(&search).filter(|place| place.is_absolute());
        let mut commands = agent.commands.iter();
        commands.find_map(|command| {
            let mut programs = places().map(|place| place.join(&command.value));
            programs.find(|program| self.is_program(program))
        })
    }

    fn is_program(&self, path: &Path) -> bool {
        match self.files.look(path) {
            Look::Found(found) => found.kind == Kind::File && found.mode & 0o111 != 0,
            _ => false,
        }
    }

    /// The marker by which one sees that the user is logged in.
    pub fn login<'a>(&self, agent: &'a Agent) -> Option<&'a Marker> {
        let variable = |name: &str| std::env::var_os(name);
        let is_file = |path: &HomePath| is_file(&self.files, &self.home.join(path.below()));
        agent
            .authentication
            .iter()
            .find(|marker| holds(marker, variable, is_file))
    }
}

/// An agent of a launch, and by what one sees that its user is logged in.
#[derive(Clone, Debug)]
pub struct Login {
    agent: String,
    commands: Vec<String>,
    how: String,
    markers: Vec<Marker>,
}

/// The agents among the layers that say how one logs in.
pub(super) fn logins(layers: &[RawLayer]) -> Vec<Login> {
    let agents = layers.iter().filter_map(|layer| layer.profile.as_deref());
    let logins = agents.filter_map(|agent| {
        Some(Login {
            agent: agent.name.clone(),
            commands: agent
                .commands
                .iter()
                .map(|name| name.value.clone())
                .collect(),
            how: agent.login.clone()?,
            markers: agent.authentication.clone(),
        })
    });
    logins.filter(|login| !login.markers.is_empty()).collect()
}

impl Prepared {
    /// A line for whoever starts an agent at a terminal, if it seems to know nobody.
    pub(super) fn login_hint(&self, plan: &Plan) -> String {
        // Whoever asks for the version or for help wants nothing of a model.
        const QUESTIONS: [&str; 4] = ["--version", "-V", "--help", "-h"];
        let mut words = self.invocation.command.iter();
        let name = words.next().map(Path::new).and_then(Path::file_name);
        let asks = |word: &OsString| QUESTIONS.iter().any(|question| word == question);
        if words.any(asks) || !std::io::stderr().is_terminal() {
            return String::new();
        }
        let variable = |name: &str| self.host.variable(name).map(OsStr::to_owned);
        let is_file = |path: &HomePath| {
            let place = self.host.home.join(path.below());
            let mut kept = plan.kept().filter_map(|(at, from)| {
                let below = place.strip_prefix(at).ok()?;
                Some(from.join(below))
            });
            is_file(&self.files, &place) || kept.any(|place| is_file(&self.files, &place))
        };
        let is_started =
            |login: &&Login| login.commands.iter().any(|own| name == Some(own.as_ref()));
        let started = self.logins.iter().filter(is_started);
        let unknown = started.filter(|login| {
            let mut markers = login.markers.iter();
            !markers.any(|marker| holds(marker, variable, is_file))
        });
        let lines = unknown.map(|Login { agent, how, .. }| {
            let how = failure::one_line(how);
            format!("agent-sandbox: no login for {agent} was found: {how}\n")
        });
        lines.collect()
    }
}

fn holds(
    marker: &Marker,
    variable: impl Fn(&str) -> Option<OsString>,
    is_file: impl Fn(&HomePath) -> bool,
) -> bool {
    match marker {
        Marker::Variable(name) => variable(name).is_some_and(|value| !value.is_empty()),
        Marker::File(path) => is_file(path),
    }
}

fn is_file(files: &dyn Files, path: &Path) -> bool {
    matches!(files.look(path), Look::Found(found) if found.kind == Kind::File)
}
