//! `agent-sandbox profile init`: a profile for an agent that nobody wrote one for, from a run that is
//! watched (`launch::observed`). The user reads it before it is used; so what the run did beyond what a
//! profile may sensibly give stands in it as comments.

mod place;
pub mod sort;
pub mod text;

#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cli::Options;
use crate::config::load::{Owner, ProfileEntry, parse, place_of_new, profiles};
use crate::config::source::Layer;
use crate::failure::{self, Failure, one_line};
use crate::host::files::{Files, Kind, Look, real_as_far_as_it_exists};
use crate::launch::{self, Course, Prepared, prepare, replay};
use crate::observe::recorder::Recorder;
use crate::observe::seen::TrailSummary;
use crate::plan::Plan;
use crate::plan::model::protect;
use sort::{Judgement, Sorted, Stands};

/// Commands that run whatever they are given: a profile for one of them would be chosen for everything.
const RUNS_ANYTHING: &[&str] = &[
    "ash",
    "bash",
    "bun",
    "bunx",
    "cargo",
    "conda",
    "csh",
    "dash",
    "deno",
    "env",
    "fish",
    "go",
    "java",
    "ksh",
    "make",
    "mamba",
    "micromamba",
    "nice",
    "nix",
    "node",
    "npm",
    "npx",
    "perl",
    "pipx",
    "pnpm",
    "ruby",
    "sh",
    "stdbuf",
    "tcsh",
    "time",
    "timeout",
    "tmux",
    "uv",
    "uvx",
    "xargs",
    "yarn",
    "zsh",
];

/// Runs the command, watches it, and writes the profile; the exit code.
///
/// # Errors
/// The name cannot be a new profile's; the command could not be started; the file cannot be written.
pub fn call(options: &Options, name: &str, command: &[OsString], force: bool) -> Result<u8> {
    launch::refuse_unsafe_start()?;
    let locations = launch::locations()?;
    let (path, shown) = place_of_new(&locations, name)?;
    refuse_to_replace(&path, &shown, name)?;
    let known = profiles(&locations)?;
    if let (Some(entry), false) = (known.iter().find(|entry| entry.name == name), force) {
        return Err(replaces(entry, name).into());
    }
    let recorder = Recorder::shared();
    let prepared = prepare::prepare_watched(options, command, recorder.clone())?;
    if !options.quiet {
        failure::say(
            "agent-sandbox: watched for a new profile: the home is private and empty, nothing written there stays\n",
        );
    }
    let code = launch::run(options, command, prepared, &mut Course::default())?;
    let (mut seen, traced) = {
        let mut recorder = recorder.borrow_mut();
        (std::mem::take(&mut recorder.seen), recorder.traced.take())
    };
    // As the host is now; what the launcher knew before did not stay with the run.
    let prepared = prepare::prepare_watched(options, command, Recorder::shared())?;
    let plan = prepared.plan()?;
    if let Some(traced) = &traced {
        let hidden = |path: &Path| Some(plan.hidden.rule_for(path)?.value.to_string());
        let told = replay::read(&prepared.tracer, traced, seen.other_recorder(), &hidden);
        seen.add(told);
    }
    let protected = protected(&prepared);
    let sorted = Sorted::new(&seen, &|below| judge(&prepared, &plan, &protected, below));
    let run = text::Run {
        name,
        command,
        code,
        commands: chosen_by(command, &known),
        seen: &seen,
    };
    let written = text::compose(&run, &sorted);
    check(&shown, &written)?;
    match place::write_new(&path, written.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(exists(&shown, name).into());
        }
        written => written.with_context(|| format!("cannot write {shown}"))?,
    }
    if !options.quiet {
        failure::say(&summary(&run, &sorted, &shown));
    }
    Ok(0)
}

fn refuse_to_replace(path: &Path, shown: &str, name: &str) -> Result<()> {
    match place::is_taken(path) {
        Ok(true) => Err(exists(shown, name).into()),
        Ok(false) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot look at {shown}")),
    }
}

fn exists(shown: &str, name: &str) -> Failure {
    Failure::new(format!(
        "{shown} exists, and `profile init` replaces no profile"
    ))
    .hint(format!(
        "take another name than `{name}`, or move the file away: mv {shown} {shown}.old"
    ))
}

/// A profile of that name takes the place of another, of which more is known than one run shows.
fn replaces(entry: &ProfileEntry, name: &str) -> Failure {
    let whose = match entry.owner {
        Owner::BuiltIn => "is built in",
        Owner::Site => "is the site's",
        Owner::User => "is yours",
    };
    Failure::new(format!(
        "the profile `{name}` {whose} ({}), and yours of that name would take its place entirely",
        entry.file
    ))
    .hint(format!("take another name, such as `my-{name}`"))
    .hint("to replace it all the same: --force; what one run shows is less than what it holds")
}

/// The command's name, if it can choose the profile by itself; else why it cannot.
fn chosen_by(command: &[OsString], known: &[ProfileEntry]) -> Result<String, String> {
    let name = command
        .first()
        .and_then(|command| Path::new(command).file_name())
        .and_then(OsStr::to_str)
        .ok_or("the command's name is no text")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
    if !name.chars().all(plain) {
        return Err("the command's name has unusual characters".to_owned());
    }
    let python = name.strip_prefix("python");
    let is_python = python.is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'));
    if is_python || RUNS_ANYTHING.contains(&name) {
        return Err(format!("`{name}` runs whatever it is given"));
    }
    let claims = |entry: &&ProfileEntry| {
        let mut commands = entry.agent.commands.iter();
        commands.any(|command| command.value == name)
    };
    match known.iter().find(claims) {
        Some(entry) => Err(format!(
            "`{name}` chooses the profile `{}` ({})",
            entry.name, entry.file
        )),
        None => Ok(name.to_owned()),
    }
}

/// The places that `home.protect` names, each with its entry.
fn protected(prepared: &Prepared) -> Vec<(PathBuf, String)> {
    let (host, files) = (&prepared.host, &prepared.files);
    let rules = prepared.policy.home.protect.iter();
    let places = rules.flat_map(|rule| {
        let places = protect::protected(rule, host, files).into_iter();
        places.map(|place| (place, rule.value.to_string()))
    });
    places.collect()
}

/// What the host and the policy say of a path below the home.
fn judge(
    prepared: &Prepared,
    plan: &Plan,
    protected: &[(PathBuf, String)],
    below: &Path,
) -> Judgement {
    let files = &prepared.files;
    let path = prepared.host.home.join(below);
    let look = files.look(&path);
    let real = match &look {
        Look::Found(found) => found.real.clone(),
        _ => real_as_far_as_it_exists(files, &path),
    };
    let names = [&real, &path];
    let hidden = names
        .into_iter()
        .find_map(|path| plan.hidden.rule_for(path));
    let protected = protected
        .iter()
        .find(|(place, _)| names.iter().any(|path| path.starts_with(place)));
    Judgement {
        hidden: hidden.map(|rule| rule.value.to_string()),
        protected: protected.map(|(_, rule)| rule.clone()),
        stands: match look {
            Look::Found(found) if found.kind == Kind::Directory => Stands::Directory,
            Look::Found(found) if found.kind == Kind::File => Stands::File,
            Look::Missing => Stands::Nothing,
            _ => Stands::Other,
        },
    }
}

/// Whether the text is a profile: by the same parser, and as a layer of a policy, as when it is used.
fn check(shown: &str, text: &str) -> Result<()> {
    let whole = || -> Result<()> {
        let layers = [
            parse(
                Layer::BuiltIn,
                "built-in default.toml",
                crate::config::parse::DEFAULT,
            )?
            .raw,
            parse(Layer::Profile, shown, text)?.raw,
        ];
        crate::policy::merge::merge(&layers, &crate::policy::merge::Additions::default())?;
        Ok(())
    };
    whole().with_context(|| format!("{shown} is not written: what was seen makes no profile"))
}

fn summary(run: &text::Run<'_>, sorted: &Sorted, shown: &str) -> String {
    let line = |text: &str| format!("agent-sandbox: {}\n", one_line(text));
    let mut all = line(&format!("wrote {shown} ({})", text::ended(run.code)));
    let given = [
        ("state", sorted.directories.len() + sorted.files.len()),
        ("read", sorted.read.len()),
        ("hidden", sorted.hidden.len()),
        ("host", run.seen.names.len() as u64),
    ];
    let parts = given.map(|(what, count)| format!("{count} {what}"));
    all.push_str(&line(&format!(
        "seen: {} entries; {} left out of the file",
        parts.join(", "),
        sorted.left_out()
    )));
    let told = run.seen.told.as_ref();
    match (run.seen.calls, told.filter(|told| !told.object.is_empty())) {
        (true, _) => {}
        (false, None) => all.push_str(&line(
            "calls could not be watched here: the file has only what was left in the home",
        )),
        (false, Some(_)) => all.push_str(&line(
            "calls could not be watched here: the file has what the tracer recorded, and what was left in the home",
        )),
    }
    if let Some(gaps) = told.map(TrailSummary::gaps).filter(|gaps| !gaps.is_empty()) {
        all.push_str(&line(&format!(
            "the tracer's trail is not complete: {}",
            gaps.join("; ")
        )));
    }
    let start = match &run.commands {
        Ok(command) => format!("agent-sandbox {command}"),
        Err(_) => format!("agent-sandbox -p {} COMMAND", run.name),
    };
    all.push_str(&line(&format!("read it, change it, then: {start}")));
    all
}
