//! The completions. clap's own scripts know options and subcommands. What they do not know stands in
//! front of them, in a file for each shell: that the first word which is no option is a command of
//! the user's, with arguments of its own; and that profiles are asked for.

use agent_sandbox::policy::stated::{KEYS, Key};
use anyhow::{Result, ensure};
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, ValueHint};
use clap_complete::{Shell, generate};

use crate::PROGRAM;

/// Stands for the profiles' names in clap's scripts, until the shell's own way to ask for them does.
const PROFILES: &str = "PROFILE-NAMES";
/// The same for the sessions that run.
const SESSIONS: &str = "SESSION-IDS";
/// The same for the keys of the policy, and the values of those that have few.
const SET: &str = "KEYS-OF-THE-POLICY";

/// What stands for something that is asked for.
const PLACES: [&str; 3] = [PROFILES, SET, SESSIONS];

/// Each script: the shell's name, the file's name, the text.
///
/// # Errors
/// A script of clap's does not have the places that are to be filled.
pub(crate) fn scripts(command: &Command) -> Result<Vec<(&'static str, String, String)>> {
    let command = options_and_subcommands(command);
    let valued = |arg: &&Arg| arg.get_num_args().is_some_and(|n| n.takes_values());
    let mut built = command.clone();
    built.build();
    let values: Vec<String> = built
        .get_arguments()
        .filter(valued)
        .flat_map(|arg| {
            let short = arg.get_short().map(|c| format!("-{c}"));
            let long = arg.get_long().map(|name| format!("--{name}"));
            short.into_iter().chain(long)
        })
        .collect();
    // The words behind `run` are a command of the user's as well.
    let subcommands: Vec<&str> = built
        .get_subcommands()
        .map(Command::get_name)
        .filter(|name| *name != "run")
        .collect();
    let fill = |front: &str| {
        front
            .replace("@VALUE_OPTIONS@", &values.join("|"))
            .replace("@SUBCOMMANDS@", &subcommands.join("|"))
            .replace("@SUBCOMMAND_WORDS@", &subcommands.join(" "))
            .replace("@KEYS@", &keys())
    };
    let bash = asked(&script(Shell::Bash, &command))?;
    // clap registers its own function; ours calls it.
    let (bash, _) = bash
        .split_once("\nif [[ \"${BASH_VERSINFO[0]}\"")
        .unwrap_or((&bash, ""));
    // A name with a dash is spelt in two ways in clap's script: where it is set, and where it is asked.
    let bash = bash.replace("agent__subcmd__sandbox__", "agent__sandbox__");
    for name in &subcommands {
        let branch = format!("        agent__sandbox__subcmd__{name})\n            opts=");
        ensure!(
            bash.contains(&branch),
            "clap's script for bash has no branch for `{name}`"
        );
    }
    ensure!(
        bash.trim_end().ends_with('}'),
        "clap's script for bash has changed its end"
    );
    let zsh = script(Shell::Zsh, &command);
    let zsh = zsh.replace(&format!("({PROFILES})"), "_agent_sandbox_profiles");
    let zsh = zsh.replace(&format!("({SET})"), "_agent_sandbox_keys");
    let zsh = zsh.replace(&format!("({SESSIONS})"), "_agent_sandbox_sessions");
    let filled = ["_agent_sandbox_keys", "_agent_sandbox_sessions"];
    ensure!(
        PLACES.iter().all(|place| !zsh.contains(place))
            && filled.iter().all(|name| zsh.contains(name)),
        "a place in clap's script for zsh is not filled"
    );
    let (zsh, _) = zsh
        .split_once("\nif [ \"$funcstack[1]\"")
        .unwrap_or((&zsh, ""));
    let zsh = zsh.strip_prefix("#compdef agent-sandbox\n").unwrap_or(zsh);
    ensure!(
        !zsh.contains("compdef"),
        "clap's script for zsh has changed its frame"
    );
    let fish = script(Shell::Fish, &command);
    let fish = fish.replace(
        &format!("{PROFILES}\\t''"),
        "(__fish_agent_sandbox_profiles)",
    );
    let fish = fish.replace(&format!("{SET}\\t''"), "(__fish_agent_sandbox_keys)");
    // An option whose value is just being typed is no command yet.
    let unfinished = "2>/dev/null\n    or return\n";
    ensure!(
        fish.contains(unfinished),
        "clap's script for fish has changed its way to find the command"
    );
    let fish = fish.replace(unfinished, "2>/dev/null\n    or return 0\n");
    // Behind `--` no word is a subcommand.
    let subcommand = "-n \"__fish_agent_sandbox_needs_command\" -f -a ";
    ensure!(
        fish.contains(subcommand),
        "clap's script for fish has changed its way to offer subcommands"
    );
    let fish = fish.replace(
        subcommand,
        "-n \"__fish_agent_sandbox_needs_command; and not contains -- -- (commandline -opc)\" -f -a ",
    );
    ensure!(
        PLACES.iter().all(|place| !fish.contains(place)),
        "a place in clap's script for fish is not filled"
    );
    Ok(vec![
        (
            "bash",
            PROGRAM.to_owned(),
            format!("{}\n{}", bash.trim(), fill(include_str!("front.bash"))),
        ),
        (
            "zsh",
            format!("_{PROGRAM}"),
            format!(
                "#compdef {PROGRAM}\n\n{}\n\n{}",
                zsh.trim(),
                fill(include_str!("front.zsh"))
            ),
        ),
        (
            "fish",
            format!("{PROGRAM}.fish"),
            format!(
                "{fish}{}\n{}",
                fish_words(&built),
                fill(include_str!("front.fish"))
            ),
        ),
    ])
}

/// The words that stand behind subcommands, which clap's script for fish leaves out.
fn fish_words(built: &Command) -> String {
    let mut lines = String::new();
    for sub in built.get_subcommands() {
        let mut before: Vec<String> = Vec::new();
        for arg in sub.get_positionals() {
            let values = arg.get_possible_values();
            let words: Vec<&str> = values.iter().map(|value| value.get_name()).collect();
            let words = words
                .join(" ")
                .replace(PROFILES, "(__fish_agent_sandbox_profiles)")
                .replace(SESSIONS, "(__fish_agent_sandbox_sessions)");
            let seen = |words: &str| format!("__fish_seen_subcommand_from {words}");
            let condition = match before.last() {
                None => format!("not {}", seen(&words)),
                Some(before) => seen(before),
            };
            if !words.is_empty() {
                lines.push_str(&format!(
                    "complete -c {PROGRAM} -n \"__fish_agent_sandbox_using_subcommand {}; and {condition}\" \
                     -f -a \"{words}\"\n",
                    sub.get_name()
                ));
            }
            before.push(words);
        }
    }
    lines
}

/// clap's script for bash with the shell's own way to ask in each place.
fn asked(script: &str) -> Result<String> {
    let asking = ["profiles", "keys", "sessions"].map(|what| format!("$(_agent_sandbox_{what})"));
    let mut text = script.to_owned();
    for (place, asks) in PLACES.iter().zip(asking) {
        ensure!(
            text.contains(place),
            "clap's script for bash has no place for {place}"
        );
        text = text.replace(place, &asks);
    }
    Ok(text)
}

/// What may stand behind `--set`: each key with its `=`, and each value of one that has few.
fn keys() -> String {
    let words = |key: &Key| match (key.words(), key.form) {
        (words, _) if words.is_empty() && key.form.contains("`false`") => vec!["true", "false"],
        (_, form) if form.starts_with("list") => Vec::new(),
        (words, _) => words,
    };
    let all = KEYS.iter().flat_map(|key| {
        let key_alone = format!("{}=", key.name);
        let values = words(key)
            .into_iter()
            .map(move |word| format!("{}={word}", key.name));
        std::iter::once(key_alone).chain(values)
    });
    all.collect::<Vec<_>>().join(" ")
}

fn script(shell: Shell, command: &Command) -> String {
    let mut text = Vec::new();
    generate(shell, &mut command.clone(), PROGRAM, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// The tree without the user's own words, and with the kinds of values that shells can complete.
fn options_and_subcommands(command: &Command) -> Command {
    let mut all = Command::new(PROGRAM)
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .args(
            command
                .get_arguments()
                .filter(|a| !a.is_positional())
                .cloned()
                .map(kind),
        );
    for sub in command.get_subcommands() {
        all = all.subcommand(sub.clone().mut_args(kind));
    }
    all
}

/// What completes the value, by the name that help gives it.
fn kind(arg: Arg) -> Arg {
    if !arg.get_action().takes_values() {
        return arg;
    }
    let name = arg
        .get_value_names()
        .and_then(|names| names.first())
        .map(|name| name.to_string());
    match name.as_deref() {
        Some("DIR") => arg.value_hint(ValueHint::DirPath),
        Some("PATH") => arg.value_hint(ValueHint::AnyPath),
        Some("MODE") => {
            let words = listed(&arg);
            arg.value_parser(PossibleValuesParser::new(words))
        }
        Some("SESSION") => arg.value_parser(PossibleValuesParser::new([SESSIONS])),
        Some("SECTION.KEY=VALUE") => arg.value_parser(PossibleValuesParser::new([SET])),
        Some("NAME") if arg.get_long() != Some("env") => {
            arg.value_parser(PossibleValuesParser::new([PROFILES]))
        }
        Some(_) if arg.get_possible_values().is_empty() => arg.value_hint(ValueHint::Other),
        _ => arg,
    }
}

/// The words that an option's help lists behind its last colon: `How much …: tmpfs, read`.
fn listed(arg: &Arg) -> Vec<&'static str> {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    // clap keeps words for as long as the program runs, which is not long.
    let help: &'static str = help.leak();
    let (_, words) = help.rsplit_once(": ").unwrap_or_default();
    words.split(", ").collect()
}
