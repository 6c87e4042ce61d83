//! Read-only files that programs with a profile are given, as data.

use std::path::{Path, PathBuf};

use super::step::Why;
use crate::policy::{Git, HomeMode, InjectedFile, Instructions, Policy};

/// Where the texts about the jail stand.
pub const INSTRUCTIONS: &str = "/run/agent-sandbox/instructions";

/// Where other files of profiles stand.
pub const GIVEN: &str = "/run/agent-sandbox/given";

/// All files of a session.
#[derive(Clone, Debug)]
pub struct InjectedFiles {
    /// Each, in the order of the profiles.
    pub files: Vec<Placed>,
    /// What the site tells each agent; empty: nothing.
    pub preamble: String,
    /// Whether agents are told of their jail.
    pub told: bool,
    /// What the text says of the policy.
    pub terms: Terms,
    /// The variables that lead to them: whose, and the value as the profile writes it.
    pub variables: Vec<(usize, String, String)>,
    /// The same for arguments; they stand right behind the command.
    pub arguments: Vec<(usize, String)>,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its place.
    pub inside: PathBuf,
    /// Where it is shown besides.
    pub at: Option<PathBuf>,
    /// What it holds.
    pub holds: Holds,
    /// What the profile says.
    pub injected: InjectedFile,
}

/// What a file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holds {
    /// The text about the jail, and then these.
    Instructions(Vec<UsersOwn>),
    /// This.
    Text(String),
}

/// A file of the user's that follows the text about the jail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsersOwn {
    /// Its path, as the profile has it.
    pub path: String,
    /// What it holds.
    pub text: String,
}

/// Why something is there that a profile gives.
pub fn why(injected: &InjectedFile) -> Why {
    Why::Rule {
        key: format!("{} `{}`", injected.key(), injected.name),
        source: injected.source.clone(),
    }
}

/// Whether a rule is a profile's, about a file that it gives.
pub fn is_why(why: &Why) -> bool {
    let ours =
        |key: &str| key.starts_with("profile.instructions ") || key.starts_with("profile.given ");
    matches!(why, Why::Rule { key, .. } if ours(key))
}

/// What of the policy the text tells and the steps of a plan do not say by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How much of the home directory appears.
    pub home: HomeMode,
    /// Whether git's hooks and configuration can be changed.
    pub git: Git,
}

impl Terms {
    /// Those of a policy.
    pub fn of(policy: &Policy) -> Self {
        Self {
            home: policy.home.mode.value,
            git: policy.project.git.value,
        }
    }
}

impl InjectedFiles {
    /// None yet.
    pub fn new(policy: &Policy) -> Self {
        Self {
            files: Vec::new(),
            preamble: policy.agents.preamble.value.clone(),
            told: policy.agents.instructions.value == Instructions::Given,
            terms: Terms::of(policy),
            variables: Vec::new(),
            arguments: Vec::new(),
        }
    }

    /// The place for one more file: two profiles may name theirs alike.
    pub fn place_for(&self, injected: &InjectedFile, holds: &Holds) -> PathBuf {
        let directory = Path::new(match injected.text {
            None => INSTRUCTIONS,
            Some(_) => GIVEN,
        });
        let taken = |place: &Path| {
            let mut files = self.files.iter();
            files.any(|file| file.inside == place && file.holds != *holds)
        };
        let first = directory.join(&injected.name);
        let others =
            (2..).map(|number: u32| directory.join(number.to_string()).join(&injected.name));
        let mut places = std::iter::once(first.clone()).chain(others);
        places.find(|place| !taken(place)).unwrap_or(first)
    }
}
