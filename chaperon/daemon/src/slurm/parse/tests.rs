//! What people write, and what becomes of it.

use std::ffi::OsString;

use agent_sandbox_wire::command::Command;

use super::*;
use crate::slurm::options::Release;

mod any_input;
mod by_directive;
mod by_release;
mod by_variable;
mod command_line;

fn os(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn environment(all: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    all.iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

fn read(command: Command, words: &[&str]) -> Result<Parsed, Refusal> {
    parse(command, None, &os(words), &[])
}

/// What passes of a command line, and its operands.
fn passed(command: Command, words: &[&str]) -> (Vec<String>, Vec<String>) {
    let parsed = read(command, words).unwrap();
    let text = |words: Vec<OsString>| {
        words
            .into_iter()
            .map(|w| w.into_string().unwrap())
            .collect()
    };
    (text(canonical(&parsed.given)), text(parsed.operands))
}

fn refusal(command: Command, words: &[&str]) -> String {
    read(command, words).unwrap_err().message
}

#[test]
fn durations_are_slurms() {
    let seconds = |text| match duration(text) {
        Some(Duration::Seconds(seconds)) => seconds,
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(seconds("90"), 90 * 60);
    assert_eq!(seconds("1:30"), 90);
    assert_eq!(seconds("2:00:01"), 7201);
    assert_eq!(seconds("1-2"), 26 * 3600);
    assert_eq!(seconds("1-2:3"), 26 * 3600 + 180);
    assert_eq!(seconds("1-2:3:4"), 26 * 3600 + 184);
    assert_eq!(duration("unlimited"), Some(Duration::Unlimited));
    for text in [
        "",
        ":",
        "1:",
        "-",
        "1-",
        "1h",
        "1:2:3:4",
        "1-2-3",
        "-5",
        "999999999999999999",
    ] {
        assert_eq!(
            duration(text).filter(|d| *d != Duration::Unlimited && text != "999999999999999999"),
            None,
            "{text}"
        );
    }
}
