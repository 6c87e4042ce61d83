//! `[profile]`: what a profile file says of an agent, beside the sections that every layer may hold.
//! Data alone: what is done with it is decided in the policy and the plan.

use toml::Spanned;

use super::{Pairs, Strings, Text};
use crate::config::index::indexed;

/// `[profile]`: an agent, or another program that needs more than the built-in policy gives.
#[derive(Debug, Default)]
pub struct ProfileSection {
    /// One line for `agent-sandbox profile list`.
    pub description: Option<Text>,
    /// Command names that choose this profile by themselves.
    pub commands: Strings,
    /// The version with which the profile was tried; none: it is written from the agent's
    /// documentation alone.
    pub seen: Option<Text>,
    /// What a user does to log in.
    pub login: Option<Text>,
    /// Files (`~/…`) and variables (`$NAME`); one of them is there where the user is logged in.
    pub authentication: Strings,
    /// Hosts that the agent has to reach.
    pub hosts: Strings,
    /// What its own sandbox needs in the jail.
    pub nested: Option<Text>,
    /// What it cannot do in the jail.
    pub cannot: Strings,
    /// `[[profile.quirks]]`
    pub quirks: Vec<QuirkSection>,
    /// `[profile.state]`
    pub state: Option<StateSection>,
    /// `[profile.instructions]`
    pub instructions: Option<Spanned<InstructionsSection>>,
    /// `[[profile.given]]`
    pub given: Vec<Spanned<GivenSection>>,
}

indexed! { ProfileSection { description, commands, seen, login, authentication, hosts, nested, cannot, quirks, state, instructions, given, } }

/// `[[profile.quirks]]`: something to know of one version.
#[derive(Debug)]
pub struct QuirkSection {
    /// The version on which it was seen.
    pub version: Text,
    /// What it does, and what follows.
    pub text: Text,
}

indexed! { QuirkSection { version, text, } }

/// `[profile.state]`: where an agent keeps what it remembers. Paths below home.
#[derive(Debug, Default)]
pub struct StateSection {
    /// Directories that it writes.
    pub directories: Strings,
    /// Single files that it writes, with shared state alone.
    pub files: Strings,
    /// Login files, which stay the user's own with every kind of state.
    pub login: Strings,
    /// Settings of the user's, which are read-only with every kind of state.
    pub settings: Strings,
    /// What a state file that is missing is made with.
    pub initial: Pairs,
    /// `[[profile.state.seed]]`
    pub seed: Vec<SeedSection>,
    /// Variables that are set where the state is the project's.
    pub variables: Pairs,
}

indexed! { StateSection { directories, files, login, settings, initial, seed, variables, } }

/// `[[profile.state.seed]]`: keys of a JSON file that the project's copy gets.
#[derive(Debug)]
pub struct SeedSection {
    /// The user's file.
    pub from: Text,
    /// The project's copy, below one of the directories.
    pub to: Text,
    /// Keys of the object that the file holds.
    pub keys: Strings,
    /// Values that come back from the copy: `key`, or `key.key` for one in an object.
    pub back: Strings,
}

indexed! { SeedSection { from, to, keys, back, } }

/// `[profile.instructions]`: how the agent gets the text about its jail. One of `at`, `variables` and
/// `arguments`.
#[derive(Debug)]
pub struct InstructionsSection {
    /// The name of the file that holds it.
    pub name: Text,
    /// Where the agent looks for the user's own instructions: the merged text is shown there.
    pub at: Option<Text>,
    /// The user's own files that the text is merged with.
    pub user: Option<Strings>,
    /// Variables that lead to it. `{file}`, `{directory}` and `{text}` in a value stand for these.
    pub variables: Pairs,
    /// Arguments right behind the command's name that lead to it, with the same words.
    pub arguments: Strings,
}

indexed! { InstructionsSection { name, at, user, variables, arguments, } }

/// `[[profile.given]]`: another read-only file that the program gets.
#[derive(Debug)]
pub struct GivenSection {
    /// The name of the file.
    pub name: Text,
    /// Its text.
    pub text: Text,
    /// As in `[profile.instructions]`.
    pub variables: Pairs,
    /// As in `[profile.instructions]`.
    pub arguments: Strings,
}

indexed! { GivenSection { name, text, variables, arguments, } }
