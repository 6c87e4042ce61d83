//! `squeue(1)`: the queue, with the names of jobs in the scope.

mod preface;

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;
use agent_sandbox_wire::order::Queries;

use self::preface::Preface;
use crate::refusal::Refusal;
use crate::slurm::answers::{about, plain, reply};
use crate::slurm::ask::{AnswerPart, Stop, attended, look_up, settle, subscribe};
use crate::slurm::ids;
use crate::slurm::options::Release;
use crate::slurm::parse::{self, GivenOption, Origin, Parsed};
use crate::slurm::query::format::Layout;
use crate::slurm::query::format_lines::{Rewriter, Shown};
use crate::slurm::query::json;
use crate::slurm::query::shown::{self, FileNames, Named, Who};
use crate::slurm::records;
use crate::slurm::request::Context;
use crate::slurm::scope::{self, View};
use crate::variables::Variables;

// Slurm's own layouts, the same in 20.11 to 26.05 (`squeue.c`, `opts.c`).
const USUAL: &str = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R";
const LONG: &str = "jobarrayid:.18 ,partition:.9 ,name:.8 ,username:.8 ,state:.8 ,timeused:.10 ,\
                    timelimit:.9 ,numnodes:.6 ,reasonlist:0";
const START: &str = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R";
const STEPS: &str = "stepid:.15 ,stepname:.8 ,partition:.9 ,username:.8 ,timeused:.9 ,nodes:0";

/// Letters of `--sort` that order by what is not shown of jobs outside the scope. Anything else
/// than a letter is a sign or a comma.
const SORTS_SHOWN: &str = "ABcCdDeFhHiIJKlLmMNOpPQrRStTVXyz,+-";

/// Carries the request out.
///
/// # Errors
/// It is refused, or Slurm cannot be asked.
pub(in crate::slurm) async fn run(context: &mut Context<'_>) -> Result<End, Refusal> {
    settle(carry_out(context).await)
}

async fn carry_out(context: &mut Context<'_>) -> Result<End, Stop> {
    let parsed = context.parsed().await?;
    if let Some(arguments) = about(&parsed) {
        return plain(context, arguments, Vec::new()).await;
    }
    let session = context.session.clone();
    let json = parsed.has("json");
    let mut arguments = parse::canonical(&parsed.given);
    // What it says of itself would stand in the JSON.
    arguments.retain(|word| !(json && word == "--verbose"));
    arguments.extend(filters(&parsed, &session.order.user, session.order.uid)?);
    let others = match session.order.queries {
        // Whoever picks by a name and sees a line has learnt the name.
        Queries::Counts if picks_by_name(&parsed, &session.order.user, session.order.uid) => {
            Queries::None
        }
        other => other,
    };
    let picked = ["jobs", "steps", "user", "notme", "me", "verbose"];
    if others == Queries::None && !picked.iter().any(|name| parsed.has(name)) {
        // Nobody else's are shown, and slurmctld has less to send.
        arguments.push(format!("--user={}", session.order.uid).into());
    }
    if json {
        arguments.push("--json".into());
        let work = async {
            let view = scope::view(&session).await?;
            let reader = records::reader(&session).await?;
            let said = look_up(&session, Command::Squeue, arguments, parsed.kept.clone()).await?;
            let output = json::filter(&said.output, &view, others, &reader)?;
            Ok((output, said))
        };
        let (output, said) = attended(context.conn, work).await?;
        return reply(context.conn, &output, &said.error, said.end).await;
    }
    let layout = layout(&parsed)?;
    let every = pause(&parsed)?;
    let told = parsed.has("verbose");
    let headed = !parsed.has("noheader");
    if headed
        && (every.is_some() || parsed.has("long") && matches!(layout, RequestedLayout::Long(_)))
    {
        // Slurm takes --long with the other syntax alone; it prints the date.
        arguments.push("--long".into());
    }
    if !headed {
        arguments.push("--noheader".into());
    }
    let (RequestedLayout::Short(columns) | RequestedLayout::Long(columns)) = &layout;
    let option = match &layout {
        // With -v Slurm would print the layout before the first line.
        RequestedLayout::Short(layout) if !told && every.is_none() => {
            layout.short_option(&session.queries.mark)
        }
        _ => None,
    };
    let option = option.unwrap_or_else(|| columns.long_option(&session.queries.mark));
    arguments.push(option.into());
    let release = context.table().await?.release;
    let names = match release.unwrap_or(Release::NEWEST) {
        // `--expand-patterns` is no option of theirs.
        release if release < Release::new(24, 5) => FileNames::Given,
        _ if parsed.has("expand-patterns") => FileNames::Filled,
        release if release < Release::new(25, 11) => FileNames::Patterns,
        _ => FileNames::Stored,
    };
    let mut asked = Listing {
        arguments,
        names,
        kept: parsed.kept.clone(),
        columns,
        others,
        preface: told.then(|| Preface::new(&parsed, session.order.queries, &session.queries.mark)),
    };
    loop {
        let end = asked.list(context).await?;
        asked.preface = asked.preface.map(Preface::again);
        let Some(every) = every else { return Ok(end) };
        reply(context.conn, b"\n", b"", End::SUCCESS).await?;
        let pause = async {
            tokio::time::sleep(every).await;
            Ok(())
        };
        attended(context.conn, pause).await?;
    }
}

/// A listing that is asked for, once or again and again.
struct Listing<'a> {
    arguments: Vec<OsString>,
    kept: Variables,
    columns: &'a Layout,
    names: FileNames,
    others: Queries,
    /// What stands before it with `-v`.
    preface: Option<Preface>,
}

impl Listing<'_> {
    async fn list(&self, context: &mut Context<'_>) -> Result<End, Stop> {
        let session = context.session.clone();
        let mark = session.queries.mark.clone();
        let work = async {
            let view = scope::view(&session).await?;
            Ok((view, records::reader(&session).await?))
        };
        let (view, reader) = attended(context.conn, work).await?;
        let mut rewriter = Rewriter::new(
            self.columns,
            &mark,
            |job, uid| shows(&view, self.others, job, uid),
            |job, place, named: &Named<'_>| {
                let record = reader.find(job)?;
                shown::column(&record, place, named, Who::of(&session), self.names)
            },
        );
        let mut preface = self.preface.clone();
        let (arguments, kept) = (self.arguments.clone(), self.kept.clone());
        let mut answer = subscribe(&session, Command::Squeue, arguments, kept);
        loop {
            match attended(context.conn, answer.next()).await? {
                AnswerPart::Part(part) => {
                    let lines = match &mut preface {
                        None => rewriter.part(&part)?,
                        Some(before) => {
                            let (mut text, rest) = before.part(&part);
                            if before.is_over() {
                                preface = None;
                                text.extend(rewriter.part(&rest)?);
                            }
                            text
                        }
                    };
                    reply(context.conn, &lines, b"", End::SUCCESS).await?;
                }
                AnswerPart::Done(end, error) => {
                    return reply(context.conn, &rewriter.end()?, &error, end).await;
                }
            }
        }
    }
}

/// How long to wait between two listings.
fn pause(parsed: &Parsed) -> Result<Option<Duration>, Refusal> {
    let Some(value) = parsed.value("iterate") else {
        return Ok(None);
    };
    let text = value.to_string_lossy().into_owned();
    let seconds = text.parse().ok().filter(|&seconds: &u32| seconds > 0);
    let seconds = seconds.ok_or_else(|| Refusal::mistake(format!("--iterate={text}")))?;
    Ok(Some(Duration::from_secs(seconds.into())))
}

fn shows(view: &View, others: Queries, job: u32, uid: u32) -> Shown {
    match others {
        _ if view.shows(job, uid) => Shown::InScope,
        Queries::Names => Shown::InFull,
        Queries::Counts => Shown::Masked,
        Queries::None => Shown::Not,
    }
}

enum RequestedLayout {
    Short(Layout),
    Long(Layout),
}

/// The layout that was asked for, by Slurm's rules of which option wins.
fn layout(parsed: &Parsed) -> Result<RequestedLayout, Refusal> {
    let argument = |given: &&GivenOption| given.origin == Origin::Argument;
    let last = |long: &str| parsed.all(long).filter(argument).last();
    let steps = parsed.has("steps");
    let short =
        |given: &GivenOption| Layout::short(&text(given)?, steps).map(RequestedLayout::Short);
    let long = |given: &GivenOption| Layout::long(&text(given)?, steps).map(RequestedLayout::Long);
    match (last("format"), last("Format")) {
        (Some(_), Some(_)) => {
            return Err(Refusal::mistake(
                "-O (--Format) is incompatible with -o (--format)",
            ));
        }
        (Some(_), None) if parsed.has("long") => {
            return Err(Refusal::mistake(
                "Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry.",
            ));
        }
        (Some(given), None) => return short(given),
        // It has a layout of its own, which wins over the other syntax, too.
        _ if parsed.has("start") && !steps => {
            return Layout::short(START, steps).map(RequestedLayout::Short);
        }
        (None, Some(given)) => return long(given),
        (None, None) => {}
    }
    let chosen = ["long", "steps", "start"]
        .iter()
        .any(|name| parsed.has(name));
    if !chosen {
        // Variables are what is left; the older one wins.
        if let Some(given) = parsed.last("format") {
            return short(given);
        }
        if let Some(given) = parsed.last("Format") {
            return long(given);
        }
    }
    match (steps, parsed.has("long")) {
        (true, _) => Layout::long(STEPS, steps).map(RequestedLayout::Long),
        (_, true) => Layout::long(LONG, steps).map(RequestedLayout::Long),
        _ => Layout::short(USUAL, steps).map(RequestedLayout::Short),
    }
}

fn text(given: &GivenOption) -> Result<String, Refusal> {
    let value = given.value.as_deref().unwrap_or_default();
    let text = value.to_str();
    let text = text.ok_or_else(|| Refusal::mistake("a format is UTF-8 text"))?;
    Ok(text.to_owned())
}

/// The options that pick jobs and are checked here.
fn filters(parsed: &Parsed, user: &str, uid: u32) -> Result<Vec<OsString>, Refusal> {
    let mut all = Vec::new();
    let (jobs, steps) = (parsed.last("jobs"), parsed.last("steps"));
    let mut operands = parsed.operands.iter();
    for (name, given) in [("jobs", jobs), ("steps", steps)] {
        let Some(given) = given else { continue };
        // `squeue -j 12`: the word behind an option that takes none is an operand.
        let value = given.value.as_ref().or_else(|| operands.next());
        match value.filter(|value| !value.is_empty()) {
            None => all.push(format!("--{name}").into()),
            Some(list) => {
                let list = ids::parse_list(list)?;
                let list: Vec<String> = list.iter().map(ToString::to_string).collect();
                all.push(format!("--{name}={}", list.join(",")).into());
            }
        }
    }
    if let Some(word) = operands.next() {
        return Err(Refusal::mistake(format!(
            "Unrecognized option: {}",
            word.to_string_lossy().escape_debug()
        )));
    }
    match parsed.last_of(&["user", "me", "notme"]) {
        Some(given) if given.option.long == "me" => all.push(format!("--user={uid}").into()),
        Some(given) if given.option.long == "notme" => all.push("--notme".into()),
        Some(given) => {
            let mut word = OsString::from("--user=");
            match given.value.as_deref() {
                Some(value) if value == user => word.push(uid.to_string()),
                value => word.push(value.unwrap_or_default()),
            }
            all.push(word);
        }
        None => {}
    }
    Ok(all)
}

/// Whether jobs are picked or ordered by what is not shown of others.
fn picks_by_name(parsed: &Parsed, user: &str, uid: u32) -> bool {
    let named = [
        "accounts",
        "name",
        "qos",
        "reservation",
        "licenses",
        "notme",
    ];
    let own = |value: &OsStr| value == user || value == uid.to_string().as_str();
    named.iter().any(|name| parsed.has(name))
        || parsed.value("user").is_some_and(|value| !own(value))
        || parsed.value("sort").is_some_and(|value| {
            let text = value.to_string_lossy();
            !text.chars().all(|c| SORTS_SHOWN.contains(c))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &[&str]) -> Parsed {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        parse::parse(Command::Squeue, None, &words, &[]).unwrap()
    }

    fn option(words: &[&str]) -> String {
        match layout(&asked(words)).unwrap() {
            RequestedLayout::Short(layout) => layout.short_option("|").unwrap(),
            RequestedLayout::Long(layout) => layout.long_option("|"),
        }
    }

    #[test]
    fn the_layout_is_slurms_choice() {
        assert!(option(&[]).contains("%.2t"));
        assert!(option(&["-l"]).contains("timelimit"));
        assert!(option(&["-s"]).contains("stepname"));
        assert!(option(&["--start"]).contains("%20Y"));
        assert_eq!(option(&["-o", "%i"]), "--format=%F %U|%i|");
        assert!(layout(&asked(&["-o", "%i", "-O", "jobid"])).is_err());
        assert!(layout(&asked(&["-o", "%i", "-l"])).is_err());
    }

    #[test]
    fn variables_are_weaker() {
        let environment = [("SQUEUE_FORMAT".into(), "%T".into())];
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let asked = |arguments: &[&str]| {
            let parsed =
                parse::parse(Command::Squeue, None, &words(arguments), &environment).unwrap();
            match layout(&parsed).unwrap() {
                RequestedLayout::Short(layout) => layout.short_option("|").unwrap(),
                RequestedLayout::Long(layout) => layout.long_option("|"),
            }
        };
        assert_eq!(asked(&[]), "--format=%F %U|%T|");
        assert!(asked(&["-l"]).contains("timelimit"));
        assert_eq!(asked(&["-o", "%i"]), "--format=%F %U|%i|");
    }

    #[test]
    fn filters_are_written_anew() {
        let of = |words: &[&str]| {
            let all = filters(&asked(words), "alice", 2001).unwrap();
            all.iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&["-j", "1,2_3"]), ["--jobs=1,2_3"]);
        assert_eq!(of(&["-j1,02"]), ["--jobs=1,2"]);
        assert_eq!(of(&["-s", "1.0"]), ["--steps=1.0"]);
        assert_eq!(of(&["-u", "alice"]), ["--user=2001"]);
        assert_eq!(of(&["--me"]), ["--user=2001"]);
        assert!(filters(&asked(&["-j", "1;2"]), "alice", 2001).is_err());
        assert!(filters(&asked(&["1"]), "alice", 2001).is_err());
    }

    #[test]
    fn picking_by_a_name_tells_the_name() {
        let picks = |words: &[&str]| picks_by_name(&asked(words), "alice", 2001);
        assert!(picks(&["-n", "x"]));
        assert!(picks(&["-u", "bob"]));
        assert!(picks(&["-A", "x"]));
        assert!(picks(&["-S", "u"]));
        assert!(!picks(&["-u", "alice"]));
        assert!(!picks(&["-u", "2001"]));
        assert!(!picks(&["--me", "-S", "-t,i", "-p", "debug", "-t", "R"]));
    }
}
