//! What the user reads: errors with causes and hints, the banner, and the answers of the
//! subcommands, for a person or as JSON.

mod across;
mod agents;
mod arguments;
pub mod audit;
mod backend;
mod connections;
pub mod doctor;
pub mod git_ssh;
pub mod inside;
mod lines;
mod metrics;
pub mod plan;
pub mod policy;
mod print;
mod profiles;
mod render;
mod sessions;
mod summary;

use std::ffi::{OsStr, OsString};
use std::path::Path;

use agent_sandbox_wire::errand::What;
use anyhow::Result;
use serde_json::Value;

use self::arguments::{expand_home, host_text, meant, slurm_line};
use self::print::{print, print_json};
pub use self::render::{parts, render};
use crate::cli::{self, Around, Call, Options, Question};
use crate::failure::{self, FAILED, Failure};
use crate::host;
use crate::host::slurm::CHAPERON;
use crate::launch::backend::with_reason;
use crate::launch::choice;
use crate::launch::ending::NOT_FOUND;
use crate::launch::result::Collector;
use crate::launch::{self, Course, Prepared};
use crate::logging;
use crate::notice::{self, Untold};
use crate::plan::explain::change::Ways;
use crate::plan::explain::hosts::{self, Peer};
use crate::plan::model::slurm::Use;
use crate::plan::{Why, explain};
use crate::policy::Clamped;
use crate::profile_init;
use crate::wait;

/// The exit code of `notify` where nobody was told.
const UNTOLD: u8 = 1;

/// Carries out a command line; the exit code.
pub fn call(arguments: &[OsString]) -> u8 {
    let done = match cli::parse(arguments) {
        Ok(call) => {
            logging::start(call.verbose());
            inside::call(&call).unwrap_or_else(|| carry_out(call))
        }
        Err(misuse) => {
            failure::say(&format!("{}\n", misuse.0));
            return FAILED;
        }
    };
    done.unwrap_or_else(|error| {
        failure::say(&render(&error));
        code_of(&error)
    })
}

fn carry_out(call: Call) -> Result<u8> {
    match call {
        Call::Print(text) => print(&text)?,
        Call::Run {
            options,
            command,
            around,
        } => {
            launch::refuse_unsafe_start()?;
            if !options.dry_run {
                return run(&options, &command, around);
            }
            show_plan(&options, &launch::prepare(&options, &command)?)?;
        }
        Call::Policy { options } => {
            let prepared = launch::prepare(&options, &[])?;
            let clamped = clamped(&prepared);
            if options.json {
                print_json(&policy::json(&prepared.policy, &clamped)?)?;
            } else {
                print(&policy::text(&prepared.policy, &clamped)?)?;
            }
        }
        Call::Explain { options, question } => return explain(&options, &question),
        Call::ExplainBackend { options } => return backend::outside(&options),
        Call::Log {
            options,
            session,
            job,
            wanted,
            network,
        } => match network {
            true => connections::show(&options, session.as_deref(), &wanted)?,
            false => audit::show(&options, session.as_deref(), job.as_deref(), &wanted)?,
        },
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
        } => {
            return profile_init::call(&options, &name, &command, force)
                .map_err(|error| not_found(error, &options, &command));
        }
        Call::Notify { title, text } => return notify(&title, &text),
        Call::Wait(call) => return wait::wait(call, print),
        Call::Budget { options } => {
            return errand(&options, What::Budget { json: options.json });
        }
        Call::Pending { options } => {
            return errand(&options, What::Pending { json: options.json });
        }
        Call::Decide {
            options,
            id,
            approve,
        } => return errand(&options, What::Decide { id, approve }),
        Call::Allow { session, hosts } => launch::allow::allow(&session, &hosts)?,
        Call::Metrics { user } => metrics::show(user.as_deref())?,
        Call::Sessions { options, wanted } => sessions::list(&options, &wanted)?,
        Call::Summary { options, wanted } => summary::show(&options, &wanted)?,
        Call::Doctor {
            options,
            policy: Some((file, user)),
            ..
        } => return doctor::draft(&options, &file, user.as_deref()),
        Call::Doctor { options, nodes, .. } => return doctor::call(&options, nodes.as_deref()),
        Call::Trail(call) => return launch::trail::show(*call),
    }
    Ok(0)
}

/// Has the chaperon's program do something, by the policy that holds here.
fn errand(options: &Options, what: What) -> Result<u8> {
    launch::chaperon::errand(&launch::prepare(options, &[])?, what)
}

/// Runs a command, and says how it went where a caller wants that.
fn run(options: &Options, command: &[OsString], around: Around) -> Result<u8> {
    let result = around.result.as_deref().map(Collector::new).transpose()?;
    let mut course = Course::new(around.timeout, result);
    let done = launch::prepare(options, command)
        .and_then(|prepared| launch::run(options, command, prepared, &mut course))
        .map_err(|error| not_found(error, options, command));
    match (course.result, done) {
        (Some(result), Ok(code)) => result.write(code, None).map(|()| code),
        (Some(result), Err(error)) => {
            let written = result.write(code_of(&error), Some(format!("{error:#}")));
            // The first error is the one that matters.
            written.unwrap_or_else(|unwritten| failure::say(&render(&unwritten)));
            Err(error)
        }
        (None, done) => done,
    }
}

/// The exit code of an error.
fn code_of(error: &anyhow::Error) -> u8 {
    let failure = error.downcast_ref::<Failure>();
    failure.map_or(FAILED, |failure| failure.code)
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

/// Says of a command that was not found where it is outside and what helps, and which subcommand may have been
/// meant.
fn not_found(error: anyhow::Error, options: &Options, command: &[OsString]) -> anyhow::Error {
    let failure = error.downcast_ref::<Failure>();
    if failure.is_none_or(|failure| failure.code != NOT_FOUND) {
        return error;
    }
    let mut failure = match error.downcast::<Failure>() {
        Ok(failure) => failure,
        Err(error) => return error,
    };
    let named = command.first().map_or(OsStr::new(""), OsString::as_os_str);
    failure
        .hints
        .extend(launch::not_found::hints(options, named));
    let meant = meant(command).map(|meant| format!("did you mean the subcommand `{meant}`?"));
    failure.hints.extend(meant);
    failure.into()
}

/// What the site narrows, as far as it can be told: paths are judged in the plan, and from a directory
/// that could be no project in one without.
fn clamped(prepared: &Prepared) -> Vec<Clamped> {
    let policy = &prepared.policy;
    if policy.bounds.is_empty() {
        return Vec::new();
    }
    let plan = prepared.plan().or_else(|_| prepared.plan_without_project());
    plan.map_or_else(|_| policy.clamped.clone(), |plan| plan.clamped)
}

/// The plan of the jail that a launch would make. Which it would be is found by trying, if the
/// options leave it open; the command is not run.
fn show_plan(options: &Options, prepared: &Prepared) -> Result<()> {
    let layers = &prepared.layers;
    let (backend, instead) = choice::chosen(options.backend.unwrap_or_default());
    let planned = backend.planned(prepared, instead.as_ref());
    let planned = planned.map_err(|error| with_reason(error, instead.as_ref()))?;
    if options.json {
        let mut all = plan::json(&planned.plan, layers, backend.word());
        if let Value::Object(keys) = &mut all {
            let parts = planned.parts.into_iter();
            keys.extend(parts.map(|(key, value)| (key.to_owned(), value)));
        }
        return print_json(&all);
    }
    let word = backend.word();
    let name = match instead {
        Some(reason) => format!("{word}  (bubblewrap cannot work here: {})", reason.what),
        None => word.to_owned(),
    };
    print(&(plan::text(&planned.plan, layers, &name) + &planned.text))
}

fn explain(options: &Options, question: &Question) -> Result<u8> {
    let peer = match question {
        Question::Host(host) => {
            let text = host_text(host)?;
            Some((text, hosts::parse(text).map_err(Failure::new)?))
        }
        _ => None,
    };
    let (options, profile) = with_profile(options, question);
    let options = &options;
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
        places: Some((&plan.site_bounds, &prepared.files)),
        ..ways
    };
    let cwd = &prepared.invocation.cwd;
    let path = |path: &Path| {
        let mut answer = explain::path(&plan, &prepared.files, path, &ways);
        // Below it everything would be the project's.
        let here = no_project.iter().filter(|_| path.starts_with(cwd));
        answer.notes.extend(here.cloned());
        answer.notes.extend(profile.iter().map(|name| {
            format!("so with the profile `{name}`, which its command takes by itself (-p {name})")
        }));
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

/// The options, with the profile of the agent whose file is asked about if none is named, and its name.
fn with_profile(options: &Options, question: &Question) -> (Options, Option<String>) {
    let own = options.clone();
    let (Question::Path(asked), true) = (question, options.profile.is_empty()) else {
        return (own, None);
    };
    let owner = || -> Result<Option<String>> {
        let (home, _) = host::directories(None)?;
        let named = launch::current_directory()?.join(expand_home(asked, &home));
        launch::agents::owner_of(&launch::normal(&named))
    };
    match owner().unwrap_or_default() {
        None => (own, None),
        Some(name) => {
            let profile = vec![name.clone()];
            (Options { profile, ..own }, Some(name))
        }
    }
}

fn explain_slurm(prepared: &Prepared, ways: &Ways<'_>, line: &OsStr, json: bool) -> Result<u8> {
    let line = slurm_line(line)?;
    let availability = crate::plan::build::slurm::availability(&prepared.policy, &prepared.host)?;
    let why = Why::key("slurm.mode", &availability).to_string();
    match inside::without_slurm(availability.value, &why, json) {
        // The table is the same on every host, and its answer what a host with Slurm would give.
        Some(_) if availability.value == Use::Absent => {}
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
        bounds: prepared.policy.job_bounds(),
        rules: explain::slurm::rules(ways),
    };
    let program = launch::chaperon::program(CHAPERON)?;
    launch::chaperon::explain(&program, &question)
}
