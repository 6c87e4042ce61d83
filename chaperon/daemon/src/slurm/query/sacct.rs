//! `sacct(1)`: what the accounts know of the jobs in the scope.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::rc::Rc;

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;
use agent_sandbox_wire::order::Queries;
use serde_json::Value;

use crate::refusal::Refusal;
use crate::session::Session;
use crate::slurm::answers::{about, fields, plain, reply};
use crate::slurm::ask::{Stop, ask, attended, look_up, settle};
use crate::slurm::ids::{self, Selector};
use crate::slurm::parse::{self, Parsed};
use crate::slurm::query::format::find;
use crate::slurm::query::shown::{number, unwrapped};
use crate::slurm::records::{self, Reader};
use crate::slurm::request::Context;
use crate::slurm::scope::{self, View};

// Slurm's own columns, the same in 22.05 to 26.05 (`sacct.h`).
const USUAL: &str = "jobid,jobname,partition,account,alloccpus,state,exitcode";
const LONG: &str = "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,\
    avevmsize,maxrss,maxrssnode,maxrsstask,averss,maxpages,maxpagesnode,maxpagestask,avepages,\
    mincpu,mincpunode,mincputask,avecpu,ntasks,alloccpus,elapsed,state,exitcode,avecpufreq,\
    reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,reqmem,consumedenergy,maxdiskread,maxdiskreadnode,\
    maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite,\
    reqtres,alloctres,tresusageinave,tresusageinmax,tresusageinmaxn,tresusageinmaxt,\
    tresusageinmin,tresusageinminn,tresusageinmint,tresusageintot,tresusageoutmax,\
    tresusageoutmaxn,tresusageoutmaxt,tresusageoutave,tresusageouttot";

/// Columns that hold what the chaperon wrote, not the user. `sacct` takes abbreviations.
const CAPSULES: [&str; 4] = ["submitl", "stdo", "stde", "stdi"];

/// The column of the directory in which Slurm starts the job, as short as sacct takes it. Slurm has
/// the project's; what is shown stands in the record.
const DIRECTORY: &str = "wo";

/// Width of the column in front of each line, by which lines are judged: JobIDRaw, as wide as it is
/// by itself. A width of ours would be that of the user's column of the same name, too.
const ID: usize = 12;

/// Jobs whose arrays are asked for at once.
const MOST_AT_ONCE: usize = 2000;

/// Carries the request out.
///
/// # Errors
/// It is refused, or Slurm cannot be asked.
pub(in crate::slurm) async fn run(context: &mut Context<'_>) -> Result<End, Refusal> {
    settle(carry_out(context).await)
}

/// How lines are laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Lines {
    /// Columns of fixed widths; that of the first.
    Columns(usize),
    /// This between the fields.
    Between(String),
}

async fn carry_out(context: &mut Context<'_>) -> Result<End, Stop> {
    let parsed = context.parsed().await?;
    if let Some(arguments) = about(&parsed) {
        return plain(context, arguments, Vec::new()).await;
    }
    if let Some(word) = parsed.operands.first() {
        let word = word.to_string_lossy();
        let text = format!("unexpected argument `{}`", word.escape_debug());
        return Err(Refusal::mistake(text).into());
    }
    let session = context.session.clone();
    let others = session.order.queries == Queries::Names;
    let mut arguments = parse::canonical(&parsed.given);
    let mut jobs = Vec::new();
    for given in parsed.all("jobs") {
        jobs.extend(ids::parse_list(given.value.as_deref().unwrap_or_default())?);
    }
    if parsed.has("batch-script") {
        return scripts(context, &parsed, jobs).await;
    }
    if !jobs.is_empty() {
        let list: Vec<String> = jobs.iter().map(ToString::to_string).collect();
        arguments.push(format!("--jobs={}", list.join(",")).into());
    }
    arguments.extend(whose(&parsed, others, session.order.uid));
    let kept = parsed.kept.clone();
    if parsed.has("json") {
        arguments.push("--json".into());
        let work = async {
            let view = scope::view(&session).await?;
            let reader = records::reader(&session).await?;
            let said = look_up(&session, Command::Sacct, arguments, kept).await?;
            let output = filter_json(&said.output, &view, others, &reader)?;
            Ok((output, said))
        };
        let (output, said) = attended(context.conn, work).await?;
        return reply(context.conn, &output, &said.error, said.end).await;
    }
    let mark = session.queries.mark.clone();
    let (words, lines) = columns(&parsed)?;
    arguments.extend(words);
    if let Some(given) = parsed.last_of(&["parsable", "parsable2"]) {
        arguments.push(format!("--{}", given.option.long).into());
        arguments.push(format!("--delimiter={mark}").into());
    }
    let at = directory_at(&parsed)?;
    let work = async {
        let view = scope::view(&session).await?;
        let reader = records::reader(&session).await?;
        let said = look_up(&session, Command::Sacct, arguments, kept).await?;
        let arrays = match lines {
            Lines::Columns(id) if !others => arrays(&session, &said.output, id, &view).await?,
            _ => BTreeMap::new(),
        };
        let shown = |job: u32| {
            others || view.has(job) || arrays.get(&job).is_some_and(|&first| view.has(first))
        };
        let directory = |job: u32| {
            let record = reader.find(job).filter(|record| !record.cwd.0.is_empty())?;
            Some((at?, record.cwd.0))
        };
        let header = !parsed.has("noheader");
        Ok((
            filter(&said.output, &lines, &mark, header, shown, directory),
            said,
        ))
    };
    let (output, said) = attended(context.conn, work).await?;
    reply(context.conn, &output, &said.error, said.end).await
}

/// Whose jobs are asked for. Unless all names may be shown, never anybody else's: what is not in
/// the answer need not be taken out.
fn whose(parsed: &Parsed, others: bool, uid: u32) -> Vec<OsString> {
    let mut all = Vec::new();
    if !others {
        all.push(format!("--user={uid}").into());
    } else {
        if parsed.has("allusers") {
            all.push("--allusers".into());
        }
        for given in parsed.all("user") {
            let mut word = OsString::from("--user=");
            word.push(given.value.as_deref().unwrap_or_default());
            all.push(word);
        }
    }
    all
}

/// The columns, with one more in front.
fn columns(parsed: &Parsed) -> Result<(Vec<OsString>, Lines), Refusal> {
    let parsable = parsed.last_of(&["parsable", "parsable2"]).is_some();
    // Between marks nothing is cut, and the number of the array stands in front.
    let mut asked = vec![if parsable { "JobID" } else { "JobIDRaw" }.to_owned()];
    let mut id = ID;
    for given in parsed.all("format") {
        let list = fields(given.value.as_deref().unwrap_or_default())?;
        for field in list {
            let name = field.to_ascii_lowercase();
            if CAPSULES.iter().any(|column| name.starts_with(column)) {
                return Err(Refusal::rule(
                    format!(
                        "the column {field} is refused: it holds what was handed to Slurm, not what you asked for"
                    ),
                    "scontrol show job shows the files that were asked for",
                ));
            }
            if let Some((name, width)) = name.split_once('%')
                && name.starts_with("jobidr")
            {
                id = width.trim_start_matches('-').parse().unwrap_or(0);
                if id < ID {
                    return Err(Refusal::mistake(format!(
                        "the column {field} is too narrow: {ID} characters at least"
                    )));
                }
            }
            asked.push(field);
        }
    }
    let named = asked.len() > 1;
    let mut words = Vec::new();
    match (parsed.has("brief"), parsed.has("long")) {
        (_, true) if named => {
            return Err(Refusal::mistake(
                "Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry.",
            ));
        }
        (true, false) => words.push("--brief".into()),
        (false, true) => asked.push(LONG.to_owned()),
        (true, true) => {
            words.push("--brief".into());
            asked.push(LONG.to_owned());
        }
        (false, false) if !named => asked.push(USUAL.to_owned()),
        (false, false) => {}
    }
    words.push(format!("--format={}", asked.join(",")).into());
    let between = || match parsed.value("delimiter") {
        Some(text) => text.to_string_lossy().into_owned(),
        None => "|".to_owned(),
    };
    let lines = if parsable {
        Lines::Between(between())
    } else {
        Lines::Columns(id)
    };
    Ok((words, lines))
}

/// Where the column of the directory stands.
///
/// # Errors
/// It is asked for where columns have widths: what is put in might not fit.
fn directory_at(parsed: &Parsed) -> Result<Option<usize>, Refusal> {
    let mut all = Vec::new();
    for given in parsed.all("format") {
        all.extend(fields(given.value.as_deref().unwrap_or_default())?);
    }
    let found = all
        .iter()
        .position(|field| field.to_ascii_lowercase().starts_with(DIRECTORY));
    if found.is_some() && parsed.last_of(&["parsable", "parsable2"]).is_none() {
        return Err(Refusal::rule(
            "the column WorkDir is refused without --parsable2: Slurm knows another directory, and \
             the job's may not fit",
            "add --parsable2, or ask scontrol show job",
        ));
    }
    Ok(found)
}

/// The arrays of tasks, by the numbers that tasks have of their own, of jobs that are not known by
/// these. A number's array never changes, so each is asked for once.
async fn arrays(
    session: &Rc<Session>,
    answer: &[u8],
    id: usize,
    view: &View,
) -> Result<BTreeMap<u32, u32>, Refusal> {
    let lines = answer.split(|&byte| byte == b'\n');
    let jobs = lines.filter_map(|line| ids::parse_printed(line.get(..id)?));
    let unknown: BTreeSet<u32> = {
        let known = session.queries.arrays.borrow();
        jobs.filter(|job| !view.has(*job) && !known.contains_key(job))
            .collect()
    };
    let unknown: Vec<u32> = unknown.into_iter().collect();
    for part in unknown.chunks(MOST_AT_ONCE) {
        let list: Vec<String> = part.iter().map(ToString::to_string).collect();
        let arguments = [
            "--noheader".to_owned(),
            "--allocations".to_owned(),
            "--parsable2".to_owned(),
            "--format=JobIDRaw,JobID".to_owned(),
            format!("--user={}", session.order.uid),
            format!("--jobs={}", list.join(",")),
        ];
        let arguments = arguments.map(OsString::from).to_vec();
        let said = ask(session, Command::Sacct, arguments, Vec::new()).await?;
        let text = String::from_utf8_lossy(&said.output);
        let pairs = text.lines().filter_map(|line| {
            let (own, first) = line.split_once('|')?;
            Some((
                own.trim().parse().ok()?,
                ids::parse_printed(first.as_bytes())?,
            ))
        });
        session.queries.arrays.borrow_mut().extend(pairs);
    }
    Ok(session.queries.arrays.borrow().clone())
}

/// Leaves out lines of jobs that are not shown, and the column in front of all.
fn filter(
    answer: &[u8],
    lines: &Lines,
    mark: &str,
    header: bool,
    shown: impl Fn(u32) -> bool,
    directory: impl Fn(u32) -> Option<(usize, Vec<u8>)>,
) -> Vec<u8> {
    let mark = mark.as_bytes();
    let mut output = Vec::with_capacity(answer.len());
    let mut headers = match (header, lines) {
        (false, _) => 0,
        (true, Lines::Columns(_)) => 2,
        (true, Lines::Between(_)) => 1,
    };
    // A line that begins with no job goes on with the one before: names may have lines.
    let mut last = false;
    for line in answer.split_inclusive(|&byte| byte == b'\n') {
        let front = match lines {
            Lines::Columns(id) => (line.get(*id) == Some(&b' ')).then_some((*id, id + 1)),
            Lines::Between(_) => find(line, mark).map(|at| (at, at + mark.len())),
        };
        let begins = front.map(|(end, next)| (ids::parse_printed(&line[..end]), next));
        let place = match begins {
            Some((Some(job), _)) if headers == 0 => directory(job),
            // Names may have lines: of what follows the number of the field is not known.
            _ => None,
        };
        let rest = match begins {
            Some((_, next)) if headers > 0 => {
                headers -= 1;
                last = true;
                &line[next..]
            }
            Some((Some(job), next)) => {
                last = shown(job);
                &line[next..]
            }
            _ => line,
        };
        if !last {
            continue;
        }
        match lines {
            Lines::Columns(_) => output.extend_from_slice(rest),
            Lines::Between(between) => {
                let mut rest = rest;
                let mut field = 0;
                let put = |output: &mut Vec<u8>, number: usize, value: &[u8]| match &place {
                    // A step has none.
                    Some((at, own)) if *at == number && !value.is_empty() => {
                        output.extend_from_slice(own);
                    }
                    _ => output.extend_from_slice(value),
                };
                while let Some(at) = find(rest, mark) {
                    put(&mut output, field, &rest[..at]);
                    field += 1;
                    output.extend_from_slice(between.as_bytes());
                    rest = &rest[at + mark.len()..];
                }
                let value = rest.strip_suffix(b"\n").unwrap_or(rest);
                put(&mut output, field, value);
                output.extend_from_slice(&rest[value.len()..]);
            }
        }
    }
    output
}

/// `--batch-script`: the scripts as they were submitted.
async fn scripts(
    context: &mut Context<'_>,
    parsed: &Parsed,
    jobs: Vec<Selector>,
) -> Result<End, Stop> {
    if jobs.is_empty() {
        return Err(Refusal::mistake("--batch-script: name the jobs with --jobs").into());
    }
    let session = context.session.clone();
    let list: Vec<String> = jobs.iter().map(ToString::to_string).collect();
    let arguments = [
        "--batch-script".to_owned(),
        format!("--user={}", session.order.uid),
        format!("--jobs={}", list.join(",")),
    ];
    let arguments = arguments.map(OsString::from).to_vec();
    let work = async {
        // The script around a session was written outside of every jail.
        scope::check_change(&session, &jobs).await?;
        ask(&session, Command::Sacct, arguments, parsed.kept.clone()).await
    };
    let said = attended(context.conn, work).await?;
    let output = unwrap_all(&said.output);
    reply(context.conn, &output, &said.error, said.end).await
}

/// Replaces capsules by the scripts in them. A heading is a line that names the job, and a line of
/// dashes; a capsule has no such line.
fn unwrap_all(answer: &[u8]) -> Vec<u8> {
    let lines: Vec<&[u8]> = answer.split_inclusive(|&byte| byte == b'\n').collect();
    let mut output = Vec::new();
    let mut body: Vec<u8> = Vec::new();
    let flush = |body: &mut Vec<u8>, output: &mut Vec<u8>| {
        match unwrapped(body) {
            Some(script) => {
                output.extend(script);
                // sacct adds a line's end, until 24.11.
                if body.ends_with(b"\n\n") {
                    output.push(b'\n');
                }
            }
            None => output.extend_from_slice(body),
        }
        body.clear();
    };
    let mut at = 0;
    while at < lines.len() {
        let dashes = |line: &&[u8]| line.len() > 40 && line.trim_ascii().iter().all(|&b| b == b'-');
        if lines[at].starts_with(b"Batch Script for ") && lines.get(at + 1).is_some_and(dashes) {
            flush(&mut body, &mut output);
            output.extend_from_slice(lines[at]);
            output.extend_from_slice(lines[at + 1]);
            at += 2;
            continue;
        }
        body.extend_from_slice(lines[at]);
        at += 1;
    }
    flush(&mut body, &mut output);
    output
}

fn filter_json(
    text: &[u8],
    view: &View,
    others: bool,
    reader: &Reader,
) -> Result<Vec<u8>, Refusal> {
    let odd = |_| Refusal::mistake("sacct answers in a way that is not understood");
    if text.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    // Names of jobs need not be text.
    let text = String::from_utf8_lossy(text);
    let mut all: Value = serde_json::from_str(&text).map_err(odd)?;
    if let Some(fields) = all.as_object_mut() {
        fields.retain(|name, _| matches!(name.as_str(), "meta" | "errors" | "warnings" | "jobs"));
        if let Some(meta) = fields.get_mut("meta").and_then(Value::as_object_mut) {
            meta.remove("command");
        }
    }
    if let Some(jobs) = all.get_mut("jobs").and_then(Value::as_array_mut) {
        jobs.retain_mut(|job| {
            let array = job.get("array").and_then(|array| array.get("job_id"));
            let first = array.and_then(number).filter(|&id| id != 0);
            let Some(id) = first.or_else(|| job.get("job_id").and_then(number)) else {
                return false;
            };
            if view.has(id)
                && let Some(record) = reader.find(id)
            {
                let text =
                    |bytes: &[u8]| Value::String(String::from_utf8_lossy(bytes).into_owned());
                let put = |job: &mut Value, name: &str, value| {
                    if let Some(old) = job.get_mut(name) {
                        *old = value;
                    }
                };
                put(job, "working_directory", text(&record.cwd.0));
                for name in ["submit_line", "script", "stdout", "stderr", "stdin"] {
                    put(job, name, text(b""));
                }
                for name in ["stdout_expanded", "stderr_expanded", "stdin_expanded"] {
                    put(job, name, text(b""));
                }
            }
            others || view.has(id)
        });
    }
    let mut text = serde_json::to_vec_pretty(&all)
        .map_err(|_| Refusal::mistake("the answer cannot be written"))?;
    text.push(b'\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filtered(answer: &str, lines: &Lines, header: bool) -> String {
        let shown = |job| job == 49;
        let directory = |_| None;
        let output = filter(answer.as_bytes(), lines, "\x1e12", header, shown, directory);
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn lines_of_other_jobs_are_left_out() {
        let row = |id: &str, rest: &str| format!("{id:<ID$} {rest}\n");
        let answer = [
            row("JobID", "JobID   State"),
            row(&"-".repeat(ID), "------- -----"),
            row("49", "49      DONE"),
            row("49.batch", "49.bat+ DONE"),
            row("50.extern", "50_[1-+ DONE"),
            row("50.batch", "secret"),
            "more of the secret\n".to_owned(),
            row("49.0", "x"),
        ];
        assert_eq!(
            filtered(&answer.concat(), &Lines::Columns(ID), true),
            "JobID   State\n------- -----\n49      DONE\n49.bat+ DONE\nx\n"
        );
    }

    #[test]
    fn lines_for_programs() {
        let answer = "JobID\x1e12JobName\n49\x1e12a|b\x1e12\n50\x1e12c\nd\n49.0\x1e12e\nf\n";
        let bar = Lines::Between(";".into());
        assert_eq!(filtered(answer, &bar, true), "JobName\na|b;\ne\nf\n");
        assert_eq!(filtered("50\x1e12c\n", &bar, false), "");
    }

    #[test]
    fn the_directory_is_the_one_that_was_asked_for() {
        let mark = "\x1e12";
        let answer = "JobID|State|WorkDir\n49|DONE|/p\n49.batch|DONE|\n49|DONE|/p|\n";
        let answer = answer.replace('|', mark);
        let bar = Lines::Between("|".into());
        let directory = |job| (job == 49).then(|| (1, b"/p/sub".to_vec()));
        let output = filter(answer.as_bytes(), &bar, mark, true, |_| true, directory);
        assert_eq!(
            String::from_utf8(output).unwrap(),
            "State|WorkDir\nDONE|/p/sub\nDONE|\nDONE|/p/sub|\n"
        );
        let at = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            directory_at(&parse::parse(Command::Sacct, None, &words, &[]).unwrap())
        };
        assert_eq!(at(&["-P", "-o", "jobid,wckey,WorkDir%9"]), Ok(Some(2)));
        assert_eq!(at(&["-o", "jobid,wckey"]), Ok(None));
        assert!(at(&["-o", "workd"]).is_err());
    }

    #[test]
    fn columns_are_written_anew() {
        let columns = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let parsed = parse::parse(Command::Sacct, None, &words, &[]).unwrap();
            columns(&parsed).map(|(all, _)| {
                all.iter()
                    .map(|w| w.to_string_lossy().into_owned())
                    .collect::<Vec<_>>()
            })
        };
        assert_eq!(
            columns(&["-o", "jobid,jobname%-20"]).unwrap(),
            ["--format=JobIDRaw,jobid,jobname%-20"]
        );
        assert_eq!(columns(&["-b"]).unwrap(), ["--brief", "--format=JobIDRaw"]);
        assert!(columns(&["-o", "SubmitLine"]).is_err());
        assert!(columns(&["-o", "a;b"]).is_err());
        assert!(columns(&["-l", "-o", "jobid"]).is_err());
        assert!(columns(&["-o", "jobidraw%5"]).is_err());
        assert_eq!(
            columns(&["-P", "-o", "user"]).unwrap(),
            ["--format=JobID,user"]
        );
    }

    #[test]
    fn scripts_without_capsules_stay() {
        let dashes = "-".repeat(80);
        let answer = format!("Batch Script for 49\n{dashes}\n#!/bin/sh\nsleep 1\n\n");
        assert_eq!(unwrap_all(answer.as_bytes()), answer.as_bytes());
    }
}
