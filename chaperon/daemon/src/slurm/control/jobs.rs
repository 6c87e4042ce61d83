//! Verbs that act on jobs: each job is in the scope, or the verb does not reach it.

use std::ffi::OsStr;
use std::rc::Rc;

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;

use crate::audit::Verdict;
use crate::refusal::Refusal;
use crate::session::Session;
use crate::slurm::answers::{acted, reply};
use crate::slurm::ask::{Stop, act_now, attended};
use crate::slurm::bounds::{self, StandingJob};
use crate::slurm::ids::{self, Selector};
use crate::slurm::keywords::KeywordRequest;
use crate::slurm::rates::{self, Reservation};
use crate::slurm::request::Context;
use crate::slurm::{hours, queue, scope, submitted};
use crate::spawn::{self, Start};

/// Words that name jobs, as Slurm takes them: `12,13_4`, `jobid=12`.
fn selectors(word: &str) -> Result<Vec<Selector>, Refusal> {
    let list = match word.split_once('=') {
        None => word,
        Some((key, list))
            if key.eq_ignore_ascii_case("jobid") || key.eq_ignore_ascii_case("job") =>
        {
            list
        }
        Some(_) => {
            return Err(Refusal::rule(
                "jobs are named by their numbers here",
                "squeue --me --format='%i %j' shows number and name",
            ));
        }
    };
    let invalid = |_| {
        let word = word.escape_debug();
        Refusal::mistake(format!("Invalid job id specified for job {word}"))
    };
    ids::parse_list(OsStr::new(list)).map_err(invalid)
}

fn too_few(verb: &str) -> Stop {
    Refusal::mistake(format!("too few arguments for keyword:{verb}")).into()
}

/// Verbs after which nothing runs that did not before. Others are for jobs within the bounds alone: a job of the
/// scope may have been submitted when others held, or outside.
const HARMLESS: [&str; 3] = ["hold", "uhold", "suspend"];

/// Holds jobs that are there against the bounds.
async fn within_bounds(session: &Rc<Session>, jobs: &[Selector]) -> Result<(), Refusal> {
    let bounds = &session.order.bounds;
    if bounds.are_none() {
        return Ok(());
    }
    for job in jobs {
        for mut one in StandingJob::all(session, &job.to_string()).await? {
            one.count(session).await?;
            bounds::first(one.breaches(bounds))
                .map_err(|refusal| refusal.hint(format!("job {job} is outside of the bounds")))?;
        }
    }
    Ok(())
}

/// `hold`, `release`, `requeue` and the like.
pub(in crate::slurm) async fn jobs(
    context: &mut Context<'_>,
    asked: KeywordRequest,
    verb: &'static str,
) -> Result<End, Stop> {
    let mut arguments = asked.options;
    arguments.push(verb.into());
    let mut wanted = Vec::new();
    for word in &asked.words {
        match (verb, word.to_ascii_lowercase().as_str()) {
            ("requeue", "incomplete") => arguments.push("incomplete".into()),
            ("requeuehold", "state=specialexit") => arguments.push("State=SpecialExit".into()),
            _ => wanted.extend(selectors(word)?),
        }
    }
    if wanted.is_empty() {
        return Err(too_few(verb));
    }
    let wanted = ids::distinct(wanted);
    let session = context.session.clone();
    if !HARMLESS.contains(&verb) {
        queue::check_few(&session, wanted.len())?;
    }
    let (inside, outside) = attended(context.conn, scope::divide_change(&session, &wanted)).await?;
    let mut error = String::new();
    for (_, refusal) in &outside {
        error.push_str(&format!("scontrol: error: {refusal}\n"));
        context.entry.verdict = Verdict::Refused;
        context.entry.reason = Some(refusal.reason);
    }
    if inside.is_empty() {
        return reply(context.conn, b"", error.as_bytes(), End::FAILURE).await;
    }
    context.entry.jobs.extend(inside.iter().map(|one| one.job));
    let list: Vec<String> = inside.iter().map(ToString::to_string).collect();
    arguments.push(list.join(",").into());
    let said = if verb.starts_with("requeue") {
        // What is refused is not counted. It is looked at again when nobody else changes it.
        attended(context.conn, within_bounds(&session, &inside)).await?;
        // Each runs once more, as if it were submitted.
        let mut reservations = Vec::new();
        for _ in &inside {
            reservations.extend(rates::wait(context).await?);
        }
        reservations.into_iter().for_each(Reservation::started);
        let mut start = Start::change(Command::Scontrol, arguments);
        start.environment = asked.parsed.kept;
        let (own, jobs) = (session.clone(), inside.clone());
        let judged = async move {
            within_bounds(&own, &jobs).await?;
            if own.order.budgets.are_counted() {
                for one in &jobs {
                    let part = one.rest.strip_prefix('_');
                    let task = part.is_some_and(|part| part.parse::<u32>().is_ok());
                    hours::again(&own, one.job, !task).await?;
                }
            }
            submitted::resolve(&own).await
        };
        let own = session.clone();
        let work = async move { queue::requeue(&own, inside, start).await };
        attended(context.conn, queue::one_at_a_time(&session, judged, work)).await?
    } else {
        let own = session.clone();
        let judged = async move {
            match HARMLESS.contains(&verb) {
                true => Ok(()),
                false => within_bounds(&own, &inside).await,
            }
        };
        let own = session.clone();
        let work =
            async move { act_now(&own, Command::Scontrol, arguments, asked.parsed.kept).await };
        attended(context.conn, queue::one_at_a_time(&session, judged, work)).await?
    };
    let mut error = error.into_bytes();
    error.extend_from_slice(&said.error);
    let end = if outside.is_empty() {
        said.end
    } else {
        End::FAILURE
    };
    reply(context.conn, &said.output, &error, end).await
}

/// The one job that a verb is about, checked.
async fn one(
    context: &mut Context<'_>,
    word: Option<&String>,
    verb: &str,
    changes: bool,
) -> Result<Selector, Stop> {
    let word = word.ok_or_else(|| too_few(verb))?;
    let [selector] = &selectors(word)?[..] else {
        return Err(Refusal::mistake(format!("one job at a time for keyword:{verb}")).into());
    };
    let session = context.session.clone();
    let list = std::slice::from_ref(selector);
    match changes {
        true => attended(context.conn, scope::check_change(&session, list)).await?,
        false => attended(context.conn, scope::check(&session, list)).await?,
    }
    context.entry.jobs.push(selector.job);
    Ok(selector.clone())
}

/// `wait_job`: returns when the job's nodes are ready, which may take as long as the queue is.
pub(in crate::slurm) async fn wait(
    context: &mut Context<'_>,
    asked: KeywordRequest,
) -> Result<End, Stop> {
    let selector = one(context, asked.words.first(), "wait_job", false).await?;
    let mut arguments = asked.options;
    arguments.extend(["wait_job".into(), selector.to_string().into()]);
    let session = context.session.clone();
    // What it waited for has changed.
    let start = Start::change(Command::Scontrol, arguments);
    // It is not one of the few questions at a time: it would keep the others waiting.
    let said = attended(context.conn, spawn::capture(&session, start, &[])).await?;
    reply(context.conn, &said.output, &said.error, said.end).await
}

/// `listpids JOB[.STEP] [NODE]`
pub(in crate::slurm) async fn list_pids(
    context: &mut Context<'_>,
    asked: KeywordRequest,
) -> Result<End, Stop> {
    let selector = one(context, asked.words.first(), "listpids", false).await?;
    let mut arguments = asked.options;
    arguments.extend(["listpids".into(), selector.to_string().into()]);
    match &asked.words[1..] {
        [] => {}
        [node]
            if node
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) =>
        {
            arguments.push(node.into());
        }
        _ => return Err(Refusal::mistake("too many arguments for keyword:listpids").into()),
    }
    acted(context, arguments).await
}

/// `notify JOB MESSAGE`
pub(in crate::slurm) async fn notify(
    context: &mut Context<'_>,
    asked: KeywordRequest,
) -> Result<End, Stop> {
    let selector = one(context, asked.words.first(), "notify", true).await?;
    let message = asked.words[1..].join(" ");
    if message.is_empty() {
        return Err(too_few("notify"));
    }
    if message.chars().any(char::is_control) {
        return Err(Refusal::mistake("a message is text without control characters").into());
    }
    let mut arguments = asked.options;
    // A message may begin with a dash.
    arguments.extend(["--".into(), "notify".into(), selector.to_string().into()]);
    arguments.push(message.into());
    acted(context, arguments).await
}
