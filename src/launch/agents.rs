//! What of an agent is there on this machine: its program, and its user's login.
#![allow(
    clippy::disallowed_methods,
    reason = "effects: asks the environment and the home directory"
)]

use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use super::prepared::Login;
use super::prepared::Prepared;
use crate::config::agent::{Agent, HomePath, Marker};
use crate::config::profiles::{ProfileEntry, profiles};
use crate::env_vars;
use crate::failure;
use crate::host::files::{Files, HostFiles, Kind, Look};
use crate::plan::Plan;

/// Somebody waits for a list: a path on a file system that does not answer counts as missing.
const PATIENCE: Duration = Duration::from_secs(2);

/// What looks for agents.
pub struct AgentProbe {
    files: HostFiles,
    home: PathBuf,
}

impl AgentProbe {
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

/// The profile whose agent keeps a path, by its name; the first, if several do. Of the home by the name that the
/// user knows.
///
/// # Errors
/// There is no home directory; a profile is broken.
pub fn owner_of(path: &Path) -> Result<Option<String>> {
    let locations = super::options::locations()?;
    let Ok(below) = path.strip_prefix(&locations.home) else {
        return Ok(None);
    };
    let keeps = |entry: &ProfileEntry| {
        let state = &entry.agent.state;
        let all = [
            &state.directories,
            &state.files,
            &state.login,
            &state.settings,
        ];
        all.into_iter()
            .flatten()
            .any(|kept| below.starts_with(kept.value.below()))
    };
    let owner = profiles(&locations)?.into_iter().find(keeps);
    Ok(owner.map(|entry| entry.name))
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

/// Shells in which somebody may start an agent by hand.
const SHELLS: [&str; 9] = [
    "bash", "csh", "dash", "fish", "ksh", "nu", "sh", "tcsh", "zsh",
];

impl Prepared {
    /// A line for whoever starts a shell at a terminal without a profile: an agent that is started in it is
    /// not known to anybody. Not all profiles are given: each opens a login.
    pub(super) fn shell_hint(&self) -> String {
        let mut words = self.invocation.command.iter();
        let name = words.next().map(Path::new).and_then(Path::file_name);
        let Some(name) = name
            .and_then(OsStr::to_str)
            .filter(|name| SHELLS.contains(name))
        else {
            return String::new();
        };
        let interactive = words.all(|word| word == "-l" || word == "-i" || word == "--login");
        if !interactive || self.has_profile || !std::io::stderr().is_terminal() {
            return String::new();
        }
        let profiles = super::options::locations()
            .ok()
            .and_then(|at| profiles(&at).ok());
        let probe = AgentProbe::new(&self.host.home);
        let all = profiles.unwrap_or_default();
        let installed = all
            .iter()
            .filter(|entry| entry.agent.login.is_some() && probe.program(&entry.agent).is_some());
        let names: Vec<&str> = installed.map(|entry| entry.name.as_str()).collect();
        if names.is_empty() {
            return String::new();
        }
        let options: String = names.iter().map(|name| format!("-p {name} ")).collect();
        format!(
            "agent-sandbox: an agent that you start in this shell has no login and no memory ({}): agent-sandbox \
             {options}{name}\n",
            names.join(", ")
        )
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
