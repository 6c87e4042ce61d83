//! What agent-sandbox says when it is called inside the jail: `explain` answers there, `notify` and `wait` work as
//! outside, and nothing else does.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use agent_sandbox_wire::budget::CALL;
use agent_sandbox_wire::explain::Question as SlurmQuestion;
use anyhow::{Context, Result, bail};
use serde_json::json;

use super::print::{print, print_json};
use super::{backend, plan};
use crate::cli::{Backend, Call, Options, Question};
use crate::failure::{Failure, one_line};
use crate::host::slurm::{CHAPERON, SHIM};
use crate::inside::{self, Around};
use crate::launch;
use crate::plan::explain::hosts::{self, Peer};
use crate::plan::explain::inside::{Answer, Document};
use crate::plan::model::slurm::{CHAPERON_INSIDE, PROGRAM, Use};

/// What is said where a tracer stands by.
const RECORDED: &str = "what happens in this jail is recorded by the node's tracer; the user reads it outside, with `agent-sandbox \
                        report`";

/// What works.
const WORKS: &str = "inside, `agent-sandbox explain PATH`, `--env NAME`, `--host NAME`, `--slurm LINE` and `--backend` work, \
                     `agent-sandbox notify TEXT`, `agent-sandbox wait JOBID` and `agent-sandbox budget`";

/// Carries a call out if this is the inside of a jail; `None` outside.
///
/// # Errors
/// The call is one that does not work inside, or the question makes no sense.
pub fn call(call: &Call) -> Option<Result<u8>> {
    if matches!(call, Call::Print(_) | Call::Notify { .. } | Call::Wait(_)) {
        return None;
    }
    match inside::around() {
        Around::Outside => None,
        Around::Jail(document) => Some(answer(&document, call)),
        Around::Unknown => Some(Err(Failure::new(
            "this is the inside of a jail that another version of agent-sandbox made, and this one cannot read what it \
             says",
        )
        .hint("call /run/agent-sandbox/bin/agent-sandbox, or ask outside")
        .into())),
    }
}

/// Carries a call out in a jail with this document.
fn answer(document: &Document, call: &Call) -> Result<u8> {
    let recorded = |failure: Failure| match document.recorded {
        true => failure.hint(RECORDED),
        false => failure,
    };
    let (options, question) = match call {
        Call::Explain { options, question } => (options, question),
        Call::ExplainBackend { options } => {
            // Without a word it is the question alone.
            let asked = options.backend.filter(|asked| *asked != Backend::Auto);
            refuse_launch_options(&Options {
                backend: asked,
                ..options.clone()
            })?;
            return backend::inside(document, options.json);
        }
        Call::Run { command, .. } => {
            let failure = Failure::new(
                "this is already the inside of a jail, and a jail cannot hold another",
            );
            // A program that there is was meant.
            let known = command
                .first()
                .is_some_and(|name| inside::has_program(name));
            return Err(match super::arguments::meant(command).filter(|_| !known) {
                Some(meant) => failure.hint(format!("did you mean the subcommand `{meant}`?")),
                None => failure.hint(
                    "start the command as it is: it has this jail's rights; another agent in a jail of its own is \
                     the user's to start, outside",
                ),
            }
            .hint(WORKS)
            .into());
        }
        Call::Budget { options } => {
            refuse_launch_options(options)?;
            return budget(document, options.json);
        }
        Call::Decide { .. } | Call::Pending { .. } => {
            let failure =
                Failure::new("this is the inside of a jail, and who is inside approves of no job")
                    .hint("ask the user to run it outside")
                    .hint(WORKS);
            return Err(failure.into());
        }
        Call::Allow { .. } => {
            let failure = Failure::new(
                "this is the inside of a jail, and who is inside gives itself no hosts",
            )
            .hint("ask the user to run it outside")
            .hint(WORKS);
            return Err(failure.into());
        }
        Call::Trail(_) => {
            let failure = Failure::new(
                "this is the inside of a jail, and no tracer can be reached from here: what records a jail is not in \
                 its hands",
            )
            .hint("ask the user to run it outside")
            .hint(WORKS);
            return Err(failure.into());
        }
        _ => {
            let failure = Failure::new(
                "this is the inside of a jail, and the policy, its profiles and the records of sessions are outside",
            )
            .hint("ask the user to run it outside")
            .hint(WORKS);
            return Err(recorded(failure).into());
        }
    };
    refuse_launch_options(options)?;
    let answer = match question {
        Question::Path(path) => about_path(document, path)?,
        Question::Variable(name) => document.variable(name, inside::has_variable(name)),
        Question::Host(host) => about_host(document, host)?,
        Question::Slurm(line) => return slurm(document, line, options.json),
    };
    if options.json {
        print_json(&serde_json::to_value(&answer)?)?;
    } else {
        print(&plan::answer(&answer))?;
    }
    Ok(0)
}

/// Which launch this is cannot be asked any more.
fn refuse_launch_options(options: &Options) -> Result<()> {
    let of_answers = Options {
        json: options.json,
        quiet: options.quiet,
        verbose: options.verbose,
        ..Options::default()
    };
    if *options != of_answers {
        return Err(Failure::new(
            "inside a jail `explain` answers for this jail: of the options, --json alone has a meaning",
        )
        .into());
    }
    Ok(())
}

fn about_path(document: &Document, path: &OsStr) -> Result<Answer> {
    let cwd = launch::current_directory()?;
    let path = match inside::home() {
        Some(home) => super::arguments::expand_home(path, &home),
        None => path.into(),
    };
    Ok(seen(document, &launch::normal(&cwd.join(path))))
}

fn seen(document: &Document, path: &Path) -> Answer {
    // The private home may stand at another path than the real one.
    let home = inside::home().filter(|_| document.landlock);
    let below = home.and_then(|home| Some(Path::new("~").join(path.strip_prefix(home).ok()?)));
    let outside = below.as_deref().unwrap_or(path);
    document.path(path, outside, &inside::look(document, path))
}

fn about_host(document: &Document, host: &OsStr) -> Result<Answer> {
    let text = super::arguments::host_text(host)?;
    Ok(match hosts::parse(text).map_err(Failure::new)? {
        Peer::Path(path) => seen(document, &launch::normal(&path)),
        peer => document.host(text, &peer),
    })
}

fn slurm(document: &Document, line: &OsStr, json: bool) -> Result<u8> {
    let slurm = document.slurm();
    if let Some(said) = without_slurm(slurm.availability, &slurm.why, json) {
        said.print()?;
        return Ok(0);
    }
    if !slurm.has_program {
        bail!("the table of Slurm's options is not inside; ask outside");
    }
    // Never a path out of the document: whoever is misled by a forged one starts nothing of its choice.
    let program = match document.landlock {
        true => launch::chaperon::program(CHAPERON)?,
        false => PathBuf::from(CHAPERON_INSIDE),
    };
    let question = SlurmQuestion {
        line: super::arguments::slurm_line(line)?,
        json,
        limits: slurm.limits.clone(),
        bounds: slurm.bounds.clone(),
        rules: slurm.rules.clone(),
    };
    launch::chaperon::explain(&program, &question)
}

/// The shim asks the chaperon, under a name that is none of Slurm's commands.
fn budget(document: &Document, json: bool) -> Result<u8> {
    let slurm = document.slurm();
    if slurm.availability == Use::Absent || slurm.availability == Use::Off {
        return Err(Failure::new(
            "Slurm cannot be used in this jail, and hours are those of its jobs",
        )
        .hint(slurm.why.clone())
        .into());
    }
    // Never a path out of the document: whoever is misled by a forged one starts nothing of its choice.
    let program = match document.landlock {
        true => launch::chaperon::program(SHIM)?,
        false => PathBuf::from(PROGRAM),
    };
    let words = json.then_some("--json");
    let failed = || format!("cannot ask `{}`", program.display());
    launch::chaperon::call(&program, CALL, words).with_context(failed)
}

/// What is said of a line, for a person or for a program.
pub(super) enum LineAnswer {
    Text(String),
    Json(serde_json::Value),
}

impl LineAnswer {
    /// Prints it.
    pub(super) fn print(&self) -> Result<()> {
        match self {
            Self::Text(text) => print(text),
            Self::Json(value) => print_json(value),
        }
    }
}

/// What is said of every line where Slurm's commands do nothing; `None` where they work.
pub(super) fn without_slurm(availability: Use, why: &str, json: bool) -> Option<LineAnswer> {
    let (verdict, sentence) = match availability {
        Use::On => return None,
        Use::Off => (
            "off",
            "Slurm is switched off inside: none of its commands work",
        ),
        Use::Absent => ("absent", "this host has no Slurm"),
    };
    Some(match json {
        true => LineAnswer::Json(json!({ "verdict": verdict, "reason": sentence, "why": why })),
        false if availability == Use::Absent => LineAnswer::Text(format!("{sentence}\n")),
        false => LineAnswer::Text(format!("{sentence}\n  rule: {}\n", one_line(why))),
    })
}
