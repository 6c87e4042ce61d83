//! What the user reads: errors with causes and hints, the banner, and the answers of the
//! subcommands, for a person or as JSON.

pub mod audit;
pub mod doctor;
pub mod git_ssh;
pub mod inside;
pub mod plan;
pub mod policy;
mod profiles;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cli::{self, Backend, Call, Options, Question};
use crate::config::diagnostic::{ConfigError, nearest};
use crate::failure::{self, FAILED, Failure, one_line};
use crate::host;
use crate::launch::fallback::Reason;
use crate::launch::{self, Prepared};
use crate::notice::{self, Untold};
use crate::plan::explain::change::Ways;
use crate::plan::explain::hosts::{self, Peer};
use crate::plan::slurm::Use;
use crate::plan::{PlanError, Why, explain};
use crate::policy::Narrowed;
use crate::profile_init;
use crate::session;
use audit::Record;

/// The exit code of a command that was not found inside.
const NOT_FOUND: u8 = 127;
/// The exit code of `notify` where nobody was told.
const UNTOLD: u8 = 1;

/// Carries out a command line; the exit code.
pub fn call(arguments: &[OsString]) -> u8 {
    let done = match cli::parse(arguments) {
        Ok(call) => inside::call(&call).unwrap_or_else(|| carry_out(call)),
        Err(misuse) => {
            failure::say(&format!("{}\n", misuse.0));
            return FAILED;
        }
    };
    done.unwrap_or_else(|error| {
        failure::say(&render(&error));
        error
            .downcast_ref::<Failure>()
            .map_or(FAILED, |failure| failure.code)
    })
}

/// `error:` with the chain of causes on one line, then a `hint:` line each.
pub fn render(error: &anyhow::Error) -> String {
    let (message, hints) = parts(error);
    let mut text = format!("error: {message}\n");
    for hint in hints {
        text.push_str(&format!("hint: {hint}\n"));
    }
    text
}

/// An error as its message and the ways out. Lines of its own has only what shows a place in a policy:
/// names in everything else may hold a newline, and come from the project.
pub fn parts(error: &anyhow::Error) -> (String, Vec<String>) {
    let mut message = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if !message.is_empty() {
            message.push_str(": ");
        }
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        match cause.is::<ConfigError>() {
            true => message.push_str(text),
            false => message.push_str(&one_line(text.trim_end())),
        }
    }
    let mut hints: Vec<&str> = Vec::new();
    for cause in error.chain() {
        if let Some(failure) = cause.downcast_ref::<Failure>() {
            hints.extend(failure.hints.iter().map(String::as_str));
        }
        hints.extend(
            cause
                .downcast_ref::<ConfigError>()
                .and_then(ConfigError::hint),
        );
        hints.extend(
            cause
                .downcast_ref::<PlanError>()
                .and_then(PlanError::hint_text),
        );
    }
    let hints = hints.into_iter().map(one_line).collect();
    (message.trim_end().to_owned(), hints)
}

/// Prints to standard output, for a person.
fn print(text: &str) -> Result<()> {
    write(&failure::visible(text))
}

/// Prints to standard output, for a program.
fn print_json(value: &serde_json::Value) -> Result<()> {
    write(&agent_sandbox_wire::text::json(&format!("{value:#}\n")))
}

/// Writes to standard output. A reader that closed the pipe has seen enough.
fn write(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

fn carry_out(call: Call) -> Result<u8> {
    match call {
        Call::Print(text) => print(&text)?,
        Call::Run { options, command } => {
            launch::refuse_unsafe_start()?;
            let prepared = launch::prepare(&options, &command)?;
            if !options.dry_run {
                return launch::run(&options, &command, prepared)
                    .map_err(|error| not_found(error, &command));
            }
            show_plan(&options, &prepared)?;
        }
        Call::Policy { options } => {
            let prepared = launch::prepare(&options, &[])?;
            let narrowed = narrowed(&prepared);
            if options.json {
                print_json(&policy::json(&prepared.policy, &narrowed)?)?;
            } else {
                print(&policy::text(&prepared.policy, &narrowed)?)?;
            }
        }
        Call::Explain { options, question } => return explain(&options, &question),
        Call::Log {
            options,
            session,
            job,
        } => show_log(&options, session.as_deref(), job.as_deref())?,
        Call::ProfileList { options } => profiles::list(&options)?,
        Call::ProfileShow {
            options,
            name,
            text,
        } => profiles::show(&name, text, &options)?,
        Call::ProfileInit {
            options,
            name,
            command,
            force,
        } => return profile_init::call(&options, &name, &command, force),
        Call::Notify { title, text } => return notify(&title, &text),
        Call::Sessions { options } => list_sessions(&options)?,
        Call::Doctor { options, nodes } => return doctor::call(&options, nodes.as_deref()),
        Call::Trail(call) => return launch::trail::show(*call),
    }
    Ok(0)
}

/// Tells the person in front of the terminal, inside as outside.
fn notify(title: &str, text: &str) -> Result<u8> {
    notice::tell(title, text).map_err(|untold| {
        let failure = match untold {
            Untold::NoTerminal => Failure::new(
                "nobody can be notified: neither this process nor one above it has a terminal",
            )
            .hint("in a job, or with its output redirected, a session has none; write to a file or to the user instead"),
            Untold::Refused(error) => Failure::new(format!("the terminal takes no notification now: {error}"))
                .hint("is its output stopped (^S)? ^Q lets it go on"),
        };
        failure.code(UNTOLD)
    })?;
    Ok(0)
}

/// Names the subcommand that may have been meant by a command which was not found.
fn not_found(error: anyhow::Error, command: &[OsString]) -> anyhow::Error {
    let failure = error.downcast_ref::<Failure>();
    let found = failure.is_none_or(|failure| failure.code != NOT_FOUND);
    match meant(command) {
        Some(meant) if !found => match error.downcast::<Failure>() {
            Ok(failure) => failure
                .hint(format!("did you mean the subcommand `{meant}`?"))
                .into(),
            Err(error) => error,
        },
        _ => error,
    }
}

/// The subcommand that a command's name is nearly, if it is no path.
fn meant(command: &[OsString]) -> Option<&'static str> {
    let name = command.first()?.to_str()?;
    nearest(name, cli::SUBCOMMAND_NAMES.iter().copied())
}

/// What the site narrows, as far as it can be told: paths are judged in the plan, and from a directory
/// that could be no project in one without.
fn narrowed(prepared: &Prepared) -> Vec<Narrowed> {
    let policy = &prepared.policy;
    if policy.bounds.is_empty() {
        return Vec::new();
    }
    let plan = prepared.plan().or_else(|_| prepared.plan_without_project());
    plan.map_or_else(|_| policy.narrowed.clone(), |plan| plan.narrowed)
}

/// The plan of the jail that a launch would make. Which it would be is found by trying, if the
/// options leave it open; the command is not run.
fn show_plan(options: &Options, prepared: &Prepared) -> Result<()> {
    let layers = &prepared.layers;
    let instead = match options.backend.unwrap_or_default() {
        Backend::Auto => Reason::tried(),
        Backend::Bwrap | Backend::Landlock => None,
    };
    if instead.is_none() && options.backend != Some(Backend::Landlock) {
        let plan = prepared.plan()?;
        return match options.json {
            true => print_json(&plan::json(&plan, layers, "bwrap")),
            false => print(&plan::text(&plan, layers, "bwrap")),
        };
    }
    let planned = launch::fenced::planned(prepared).map_err(|error| match &instead {
        Some(reason) => reason.and(&error),
        None => error,
    })?;
    let instead = instead.map(|reason| reason.what);
    match options.json {
        true => print_json(&plan::fenced_json(&planned, layers, instead)),
        false => print(&plan::fenced_text(&planned, layers, instead)),
    }
}

fn explain(options: &Options, question: &Question) -> Result<u8> {
    let peer = match question {
        Question::Host(host) => {
            let text = host_text(host)?;
            Some((text, hosts::parse(text).map_err(Failure::new)?))
        }
        _ => None,
    };
    let prepared = launch::prepare(options, &[])?;
    let ways = Ways {
        policy: &prepared.policy,
        config: &prepared.config,
        places: None,
    };
    if let Question::Slurm(line) = question {
        return explain_slurm(&prepared, &ways, line, options.json);
    }
    // The question is about the rules, also from a directory that could be no project.
    let mut no_project = None;
    let plan = prepared.plan().or_else(|error| match &options.project {
        None => {
            let plan = prepared.plan_without_project();
            let (message, _) = parts(&error);
            no_project = Some(format!("no session starts here: {message}"));
            plan.map_err(|_| error)
        }
        Some(_) => Err(error),
    })?;
    let ways = Ways {
        places: Some((&plan.ground, &prepared.files)),
        ..ways
    };
    let cwd = &prepared.invocation.cwd;
    let path = |path: &Path| {
        let mut answer = explain::path(&plan, &prepared.files, path, &ways);
        // Below it everything would be the project's.
        let here = no_project.iter().filter(|_| path.starts_with(cwd));
        answer.notes.extend(here.cloned());
        answer
    };
    let answer = match (question, peer) {
        (Question::Variable(name), _) => explain::variable(&plan, name, &ways),
        (_, Some((_, Peer::Path(socket)))) => path(&launch::normal(&socket)),
        (_, Some((text, peer))) => hosts::explain(&plan, text, &peer, &ways),
        (Question::Path(asked) | Question::Host(asked) | Question::Slurm(asked), None) => {
            let named = expand_home(asked, &prepared.host.home);
            let mut answer = path(&launch::normal(&cwd.join(named)));
            if !answer.exists {
                answer.notes.extend(explain::asked::taken_for_a_path(asked));
            }
            answer
        }
    };
    if options.json {
        print_json(&serde_json::to_value(&answer)?)?;
    } else {
        print(&plan::explanation(&answer))?;
    }
    Ok(0)
}

fn explain_slurm(prepared: &Prepared, ways: &Ways<'_>, line: &OsStr, json: bool) -> Result<u8> {
    let line = slurm_line(line)?;
    let standing = crate::plan::slurm::standing(&prepared.policy, &prepared.host)?;
    let why = Why::key("slurm.mode", &standing).to_string();
    match inside::without_slurm(standing.value, &why, json) {
        // The table is the same on every host, and its answer what a host with Slurm would give.
        Some(_) if standing.value == Use::Absent => {}
        Some(said) => {
            said.print()?;
            return Ok(0);
        }
        None => {}
    }
    let question = agent_sandbox_wire::explain::Question {
        line,
        json,
        limits: prepared.policy.slurm.limits.values(),
        rules: explain::slurm::rules(ways),
    };
    launch::chaperon::explain(&launch::chaperon::program()?, &question)
}

/// A line of Slurm's as text.
fn slurm_line(line: &OsStr) -> Result<String> {
    let text = line.to_str();
    Ok(text
        .ok_or_else(|| Failure::new(format!("--slurm `{}` is not UTF-8", line.display())))?
        .to_owned())
}

/// The name of a host as text.
fn host_text(host: &OsStr) -> Result<&str> {
    let text = host.to_str();
    Ok(text.ok_or_else(|| Failure::new(format!("--host `{}` is not UTF-8", host.display())))?)
}

/// A `~` that the shell left alone (it was quoted).
fn expand_home(subject: &OsStr, home: &Path) -> PathBuf {
    match Path::new(subject).strip_prefix("~") {
        Ok(below) => home.join(below),
        Err(_) => PathBuf::from(subject),
    }
}

fn show_log(options: &Options, session: Option<&str>, job: Option<&str>) -> Result<()> {
    let (_, directories) = host::directories(None)?;
    if let Some(job) = job {
        return print(&Record::of_job(&directories.state, job)?);
    }
    let record = Record::read(&directories.state, session)?;
    if options.json {
        return print_json(&record.json()?);
    }
    print(&record.text())
}

fn list_sessions(options: &Options) -> Result<()> {
    let (_, directories) = host::directories(None)?;
    let directory = session::directory(nix::unistd::Uid::current().as_raw(), &directories.state);
    let all = session::running(&directory)?;
    if options.json {
        return print_json(&serde_json::to_value(&all)?);
    }
    if all.is_empty() {
        return print("no session runs on this node\n");
    }
    let mut text = format!(
        "{:<10} {:>8} {:>9}  {:<16} PROJECT\n",
        "SESSION", "PID", "RUNNING", "COMMAND"
    );
    let now = session::now();
    for record in &all {
        let running = duration(now.saturating_sub(record.started));
        let (id, pid, command) = (&record.id, record.pid, &record.command);
        let line = format!(
            "{id:<10} {pid:>8} {running:>9}  {command:<16} {}",
            record.project.display()
        );
        text.push_str(&one_line(&line));
        text.push('\n');
    }
    print(&text)
}

/// Seconds in the form of `squeue`: `[D-]HH:MM:SS`, leading zeros left away.
fn duration(seconds: u64) -> String {
    let (days, hours, minutes, rest) = (
        seconds / 86400,
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60,
    );
    match (days, hours) {
        (0, 0) => format!("{minutes}:{rest:02}"),
        (0, _) => format!("{hours}:{minutes:02}:{rest:02}"),
        _ => format!("{days}-{hours:02}:{minutes:02}:{rest:02}"),
    }
}
