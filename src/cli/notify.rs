//! `agent-sandbox notify`: what the person in front of the terminal is told.

use std::ffi::OsString;

use clap::Parser;

use super::Call;

/// Ring the bell of the session's terminal, and ask it for a desktop notification: from inside a jail, such as
/// from an agent's hook, and outside
#[derive(Debug, Parser)]
#[command(
    name = "agent-sandbox notify",
    override_usage = "agent-sandbox notify [TITLE] TEXT",
    after_help = "Exit status: 1 if there is no terminal, or it takes nothing."
)]
pub(super) struct NotifyWords {
    /// What it says, with a title before it or without
    #[arg(value_name = "TEXT", required = true, num_args = 1..=2, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

pub(super) fn read(words: NotifyWords) -> Call {
    let mut words = words
        .words
        .iter()
        .map(|word| word.to_string_lossy().into_owned());
    let first = words.next().unwrap_or_default();
    match words.next() {
        Some(text) => Call::Notify { title: first, text },
        None => Call::Notify {
            title: String::new(),
            text: first,
        },
    }
}
