//! `agent-sandbox profile`: what is done with which profile.

use std::ffi::OsString;

use clap::{Parser, ValueEnum};

use super::{Call, End, Options, misuse};

/// The profiles
#[derive(Debug, Parser)]
#[command(name = "agent-sandbox profile")]
pub(super) struct ProfileWords {
    /// What to do: list, show, init
    #[arg(value_name = "list|show|init")]
    verb: ProfileVerb,
    /// The profile to show, or the new one
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// show: only the text of the file, to copy it
    #[arg(long)]
    text: bool,
    /// init: let NAME be that of a profile that is built in or the site's, whose place it then takes entirely. One run
    /// shows less than such a profile holds, so it is not done by mistake. A file that exists is never replaced
    #[arg(long)]
    force: bool,
    /// init: run this in a jail with a private, empty home, and write what it did there into a new profile NAME, for
    /// you to read before you use it
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    #[command(flatten)]
    options: Options,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum ProfileVerb {
    List,
    Show,
    Init,
}

/// What is asked of profiles.
///
/// # Errors
/// Words that do not belong together.
pub(super) fn profile(options: Options, words: ProfileWords) -> Result<Call, End> {
    if !matches!(words.verb, ProfileVerb::Show) && words.text {
        return misuse("--text belongs to `agent-sandbox profile show`");
    }
    if !matches!(words.verb, ProfileVerb::Init) && (words.force || !words.command.is_empty()) {
        return misuse("--force and a COMMAND belong to `agent-sandbox profile init`");
    }
    match (words.verb, words.name) {
        (ProfileVerb::List, None) => Ok(Call::ProfileList {
            options: options.and(words.options),
        }),
        (ProfileVerb::List, Some(_)) => misuse("`agent-sandbox profile list` takes no name"),
        (ProfileVerb::Show, Some(name)) => Ok(Call::ProfileShow {
            options: options.and(words.options),
            name,
            text: words.text,
        }),
        (ProfileVerb::Show, None) => misuse("`agent-sandbox profile show` needs a NAME"),
        (ProfileVerb::Init, name) => {
            profile_init(options.and(words.options), name, words.command, words.force)
        }
    }
}

fn profile_init(
    options: Options,
    name: Option<String>,
    command: Vec<OsString>,
    force: bool,
) -> Result<Call, End> {
    let Some(name) = name.filter(|_| !command.is_empty()) else {
        return misuse(
            "`agent-sandbox profile init` needs a NAME and a COMMAND: agent-sandbox profile init NAME -- COMMAND",
        );
    };
    if !options.profile.is_empty() || options.home.is_some() || options.dry_run {
        return misuse(
            "`agent-sandbox profile init` takes none of --profile, --home and --dry-run: the run that is watched has no profile and an empty home",
        );
    }
    Ok(Call::ProfileInit {
        options,
        name,
        command,
        force,
    })
}
