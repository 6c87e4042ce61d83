//! `scontrol(1)`: verbs are known by name; what changes anything but jobs of the scope is refused.

use agent_sandbox_wire::message::End;

use crate::refusal::Refusal;
use crate::slurm::answers::{about, plain};
use crate::slurm::ask::{Stop, settle};
use crate::slurm::control::{jobs, update};
use crate::slurm::keywords::{KeywordRequest, means};
use crate::slurm::parse;
use crate::slurm::query::{script, show};
use crate::slurm::request::Context;

/// What a verb does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Show,
    Ping,
    Version,
    /// Acts on a list of jobs, under this name.
    Jobs(&'static str),
    Wait,
    Update,
    Write,
    ListPids,
    Notify,
    Refused(&'static str),
}

const CLUSTER: &str =
    "it changes the cluster for everybody; that is the administrators' part, outside the jail";
const SESSION: &str = "it means something at scontrol's own prompt, and there is none; give the whole command, with options such as --oneliner";

/// The verbs, the fewest letters that mean each, in the order in which Slurm compares
/// (`scontrol.c`).
const VERBS: [(&str, usize, Verb); 48] = [
    ("abort", 5, Verb::Refused(CLUSTER)),
    ("all", 2, Verb::Refused(SESSION)),
    ("cancel_reboot", 3, Verb::Refused(CLUSTER)),
    (
        "completing",
        2,
        Verb::Refused("it shows jobs of everybody; use squeue --states=CG"),
    ),
    (
        "cluster",
        2,
        Verb::Refused("jobs and queries stay on this cluster; leave it out"),
    ),
    ("create", 2, Verb::Refused(CLUSTER)),
    ("details", 1, Verb::Refused(SESSION)),
    (
        "errnumstr",
        2,
        Verb::Refused(
            "it is not needed to work with jobs; the messages of a command name its error",
        ),
    ),
    ("exit", 2, Verb::Refused(SESSION)),
    (
        "gethost",
        7,
        Verb::Refused("it asks name services outside the jail; use getent"),
    ),
    (
        "hash_file",
        15,
        Verb::Refused("it would read a file outside the jail; use sha256sum"),
    ),
    (
        "help",
        2,
        Verb::Refused("it would print the whole of scontrol's; use scontrol --help"),
    ),
    ("hide", 2, Verb::Refused(SESSION)),
    ("oneliner", 1, Verb::Refused(SESSION)),
    (
        "pidinfo",
        3,
        Verb::Refused("it knows processes outside the jail; use squeue"),
    ),
    ("ping", 3, Verb::Ping),
    ("quiet", 4, Verb::Refused(SESSION)),
    ("quit", 4, Verb::Refused(SESSION)),
    ("reboot_nodes", 3, Verb::Refused(CLUSTER)),
    ("reconfigure", 3, Verb::Refused(CLUSTER)),
    ("requeue", 3, Verb::Jobs("requeue")),
    ("requeuehold", 11, Verb::Jobs("requeuehold")),
    ("hold", 4, Verb::Jobs("hold")),
    ("holdu", 5, Verb::Jobs("uhold")),
    ("uhold", 5, Verb::Jobs("uhold")),
    ("release", 3, Verb::Jobs("release")),
    ("suspend", 2, Verb::Jobs("suspend")),
    ("resume", 3, Verb::Jobs("resume")),
    ("top", 3, Verb::Jobs("top")),
    (
        "token",
        3,
        Verb::Refused(
            "it would hand out a key to Slurm that works from anywhere, past this jail; Slurm's commands need none here",
        ),
    ),
    ("wait_job", 2, Verb::Wait),
    ("setdebugflags", 9, Verb::Refused(CLUSTER)),
    ("fsdampeningfactor", 3, Verb::Refused(CLUSTER)),
    ("fairsharedampeningfactor", 3, Verb::Refused(CLUSTER)),
    ("setdebug", 2, Verb::Refused(CLUSTER)),
    ("schedloglevel", 3, Verb::Refused(CLUSTER)),
    ("show", 3, Verb::Show),
    ("write", 5, Verb::Write),
    ("takeover", 8, Verb::Refused(CLUSTER)),
    ("shutdown", 8, Verb::Refused(CLUSTER)),
    ("update", 1, Verb::Update),
    ("delete", 1, Verb::Refused(CLUSTER)),
    ("verbose", 4, Verb::Refused(SESSION)),
    ("version", 4, Verb::Version),
    ("listpids", 1, Verb::ListPids),
    (
        "getent",
        6,
        Verb::Refused("it shows the users of a job's node; use getent"),
    ),
    ("notify", 1, Verb::Notify),
    ("power", 2, Verb::Refused(CLUSTER)),
];

/// Carries the request out.
///
/// # Errors
/// It is refused, or Slurm cannot be asked.
pub(super) async fn run(context: &mut Context<'_>) -> Result<End, Refusal> {
    settle(carry_out(context).await)
}

async fn carry_out(context: &mut Context<'_>) -> Result<End, Stop> {
    let parsed = context.parsed().await?;
    if let Some(arguments) = about(&parsed) {
        return plain(context, arguments, Vec::new()).await;
    }
    let mut words = Vec::new();
    for operand in &parsed.operands {
        let word = operand.to_str().filter(|word| !word.contains('\0'));
        let word = word.ok_or_else(|| Refusal::mistake("an argument is not UTF-8 text"))?;
        words.push(word.to_owned());
    }
    if words.is_empty() {
        return Err(Refusal::mistake("give a command; there is no prompt here")
            .hint("for instance: scontrol show job 12")
            .into());
    }
    let verb = words.remove(0);
    let mut options = parse::canonical(&parsed.given);
    if parsed.all("details").count() > 1 {
        options.push("--details".into());
    }
    let asked = KeywordRequest {
        parsed,
        options,
        words,
    };
    let known = VERBS
        .iter()
        .find(|(name, least, _)| means(&verb, name, *least));
    let Some((name, _, verb)) = known else {
        let text = format!("invalid keyword: {}", verb.escape_debug());
        return Err(Refusal::mistake(text).into());
    };
    match verb {
        Verb::Show => show::run(context, asked).await,
        Verb::Ping | Verb::Version if !asked.words.is_empty() => {
            Err(Refusal::mistake(format!("too many arguments for keyword:{name}")).into())
        }
        Verb::Ping | Verb::Version => {
            let mut arguments = asked.options;
            arguments.push((*name).into());
            plain(context, arguments, asked.parsed.kept).await
        }
        Verb::Jobs(name) => jobs::jobs(context, asked, name).await,
        Verb::Wait => jobs::wait(context, asked).await,
        Verb::ListPids => jobs::list_pids(context, asked).await,
        Verb::Notify => jobs::notify(context, asked).await,
        Verb::Update => update::run(context, asked).await,
        Verb::Write => script::write(context, asked).await,
        Verb::Refused(reason) => {
            Err(Refusal::listed(format_args!("scontrol {name}"), reason).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_names_the_way_out() {
        for (name, _, verb) in VERBS {
            if let Verb::Refused(reason) = verb {
                assert!(crate::refusal::has_both(reason), "{name}: {reason}");
            }
        }
    }

    fn verb(word: &str) -> Option<Verb> {
        let known = VERBS
            .iter()
            .find(|(name, least, _)| means(word, name, *least));
        known.map(|(_, _, verb)| *verb)
    }

    #[test]
    fn abbreviations_are_slurms() {
        assert_eq!(verb("sho"), Some(Verb::Show));
        assert_eq!(verb("SHOW"), Some(Verb::Show));
        assert_eq!(verb("sh"), None);
        assert_eq!(verb("u"), Some(Verb::Update));
        assert_eq!(verb("req"), Some(Verb::Jobs("requeue")));
        assert_eq!(verb("requeuehold"), Some(Verb::Jobs("requeuehold")));
        assert_eq!(verb("hold"), Some(Verb::Jobs("hold")));
        assert!(matches!(verb("tok"), Some(Verb::Refused(_))));
        assert!(matches!(verb("d"), Some(Verb::Refused(_))));
        assert_eq!(verb("showx"), None);
        assert_eq!(verb(""), None);
        assert_eq!(verb("é"), None);
    }
}
