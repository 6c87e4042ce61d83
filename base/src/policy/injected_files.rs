//! Read-only files that programs with a profile are given: the text about the jail, and others. What the
//! profile files say, in their order; what becomes of it is decided in the plan.

pub use crate::config::agent::{DIRECTORY, FILE, TEXT};

use super::paths::PathSpec;
use crate::config::agent::{Agent, Given, HomePath};
use crate::config::load::RawLayer;
use crate::config::source::{Source, Sourced};

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectedFile {
    /// Names of the commands that its profile is for.
    pub commands: Vec<String>,
    /// The file's name, one plain word.
    pub name: String,
    /// What it holds; `None`: the text about the jail.
    pub text: Option<String>,
    /// Where below the home directory it is shown besides.
    pub at: Option<PathSpec>,
    /// The user's own files, below the home directory, that follow the text.
    pub user: Vec<PathSpec>,
    /// Variables that lead to it; [`FILE`], [`DIRECTORY`] and [`TEXT`] in their values stand for it.
    pub variables: Vec<Sourced<(String, String)>>,
    /// Arguments that lead to it, in the same way.
    pub arguments: Vec<String>,
    /// Where the profile says so.
    pub source: Source,
}

impl InjectedFile {
    /// The key by which users know it.
    pub fn key(&self) -> &'static str {
        match self.text {
            None => "profile.instructions",
            Some(_) => "profile.given",
        }
    }

    fn new(agent: &Agent, given: &Given) -> Self {
        let Given {
            name,
            text,
            at,
            user,
            variables,
            arguments,
            source,
        } = given;
        let path = |path: &HomePath| PathSpec::parse(path.written()).ok();
        let variables = variables.iter().map(|(name, value)| {
            let pair = |name| (name, value.clone());
            name.clone().map(pair)
        });
        Self {
            commands: agent
                .commands
                .iter()
                .map(|name| name.value.clone())
                .collect(),
            name: name.clone(),
            text: text.clone(),
            at: at.as_ref().and_then(path),
            user: user.iter().filter_map(path).collect(),
            variables: variables.collect(),
            arguments: arguments.clone(),
            source: source.clone(),
        }
    }
}

/// All files that the profiles among the layers give.
pub(super) fn of_layers(layers: &[RawLayer]) -> Vec<InjectedFile> {
    let agents = layers.iter().filter_map(|layer| layer.profile.as_deref());
    let given = |agent: &Agent| {
        let all = agent.instructions.iter().chain(&agent.given);
        all.map(|one| InjectedFile::new(agent, one))
            .collect::<Vec<_>>()
    };
    agents.flat_map(given).collect()
}
