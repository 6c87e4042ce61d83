//! SLUIDs: since Slurm 25.11 a job has a name besides its number, `s` and thirteen digits of base 32, and commands take
//! it where they take a number (`sluid.h`, `scancel(1)`). Here a job is known by its number alone, so a SLUID of the
//! scope's jobs is replaced before a request is read. All others stay what they are, and are no id to anybody.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::rc::Rc;

use agent_sandbox_events::sluid::is_sluid;
use agent_sandbox_wire::command::Command;

use super::ask::{Stop, ask, attended};
use super::ids;
use super::request::Context;
use super::scope;
use crate::refusal::Refusal;
use crate::session::Session;

/// The most in one request.
const MOST: usize = 1000;

/// The parts of a word between what stands around ids in lists, assignments and names of steps.
fn parts(word: &[u8]) -> impl Iterator<Item = &[u8]> {
    word.split_inclusive(|byte| b",=. ".contains(byte))
}

/// A part without what ends it, and that.
fn taken_apart(part: &[u8]) -> (&[u8], &[u8]) {
    match part.split_last() {
        Some((last, text)) if b",=. ".contains(last) => (text, &part[text.len()..]),
        _ => (part, b""),
    }
}

/// The SLUIDs in words, each once.
fn found(words: &[OsString]) -> BTreeSet<String> {
    let parts = words.iter().flat_map(|word| parts(word.as_bytes()));
    let texts = parts.map(|part| taken_apart(part).0);
    texts
        .filter(|text| is_sluid(text))
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .collect()
}

/// A word with numbers for the SLUIDs that are known.
fn replaced(word: &OsString, known: &BTreeMap<String, String>) -> OsString {
    let mut new = Vec::with_capacity(word.len());
    for part in parts(word.as_bytes()) {
        let (text, end) = taken_apart(part);
        let number = std::str::from_utf8(text)
            .ok()
            .and_then(|text| known.get(text));
        new.extend_from_slice(number.map_or(text, |number| number.as_bytes()));
        new.extend_from_slice(end);
    }
    OsString::from_vec(new)
}

/// Puts numbers for SLUIDs into the words of a request.
///
/// # Errors
/// There are too many, Slurm cannot be asked, or the shim ends.
pub(super) async fn replace(context: &mut Context<'_>) -> Result<(), Stop> {
    let with_ids = matches!(
        context.request.command,
        Command::Scancel
            | Command::Scontrol
            | Command::Sacct
            | Command::Sprio
            | Command::Squeue
            | Command::Sstat
    );
    let wanted = found(&context.request.arguments);
    if !with_ids || wanted.is_empty() {
        return Ok(());
    }
    if wanted.len() > MOST {
        return Err(Refusal::mistake(format!("more than {MOST} SLUIDs in one request")).into());
    }
    let finished = context.request.command == Command::Sacct;
    let session = Rc::clone(&context.session);
    let known = attended(context.conn, numbers(&session, wanted, finished)).await?;
    for word in &mut context.request.arguments {
        *word = replaced(word, &known);
    }
    Ok(())
}

/// The numbers of the scope's jobs with these SLUIDs, by what Slurm's queue says, or its accounting, which keeps jobs that
/// have ended.
async fn numbers(
    session: &Rc<Session>,
    wanted: BTreeSet<String>,
    finished: bool,
) -> Result<BTreeMap<String, String>, Refusal> {
    let list = wanted
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(",");
    let (jobs, user) = (
        format!("--jobs={list}"),
        format!("--user={}", session.order.uid),
    );
    let (command, options): (_, &[&str]) = if finished {
        let columns = "--format=SLUID,OriginalSLUID,JobID";
        (
            Command::Sacct,
            &["--noheader", "--parsable2", "--allocations", columns],
        )
    } else {
        // Wider than any of the two: Slurm cuts columns off.
        (
            Command::Squeue,
            &["--noheader", "--Format=SLUID:.30,JobArrayID:.200"],
        )
    };
    let mut arguments = options.iter().map(OsString::from).collect::<Vec<_>>();
    arguments.extend([user.into(), jobs.into()]);
    let said = ask(session, command, arguments, Vec::new()).await?;
    let mut known = read(&said.output, &wanted);
    // A word of any kind may be one, and be shown: of jobs outside the scope nobody learns whether they are there.
    let view = scope::known(session).await?;
    known.retain(|_, number| ids::parse(number).is_some_and(|selector| view.has(selector.job)));
    Ok(known)
}

/// Reads lines of SLUIDs with a number at the end.
fn read(output: &[u8], wanted: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut known = BTreeMap::new();
    for line in String::from_utf8_lossy(output).lines() {
        let mut fields = line.split(['|', ' ']).filter(|field| !field.is_empty());
        let Some(job) = fields.next_back().and_then(ids::parse) else {
            continue;
        };
        for field in fields.filter(|field| wanted.contains(*field)) {
            known.insert(field.to_owned(), job.to_string());
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "s4SNKN57XZTE00";
    const OTHER: &str = "s4SNKN57XZTE01";

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn sluids_are_found_where_ids_stand() {
        let all = |list: &[&str]| found(&words(list)).into_iter().collect::<Vec<_>>();
        assert_eq!(all(&["--jobs=12,s4SNKN57XZTE00"]), [ONE]);
        assert_eq!(
            all(&["-j", "s4SNKN57XZTE01.0,s4SNKN57XZTE00.batch"]),
            [ONE, OTHER]
        );
        assert_eq!(all(&["jobid=s4SNKN57XZTE00"]), [ONE]);
        // An L, a digit too many or too few, letters before it.
        for no in [
            "s4SNLN57XZTE00",
            "s4SNKN57XZTE000",
            "s4SNKN57XZTE0",
            "as4SNKN57XZTE00",
            "S4SNKN57XZTE00",
        ] {
            assert!(all(&[no]).is_empty(), "{no}");
        }
    }

    #[test]
    fn known_ones_become_numbers_and_all_else_stays() {
        let known = BTreeMap::from([(ONE.to_owned(), "12_3".to_owned())]);
        let new = |word: &str| replaced(&word.into(), &known).into_string().unwrap();
        assert_eq!(new("--jobs=7,s4SNKN57XZTE00.batch"), "--jobs=7,12_3.batch");
        assert_eq!(new("s4SNKN57XZTE01"), OTHER);
        assert_eq!(new("--name=a, b.c"), "--name=a, b.c");
    }

    #[test]
    fn slurm_says_which_job_it_is() {
        let wanted = BTreeSet::from([ONE.to_owned(), OTHER.to_owned()]);
        let printed = "                s4SNKN57XZTE00                                  12_[1-3]\ns4SNKN57XZTE02 9\n";
        let all = read(printed.as_bytes(), &wanted);
        assert_eq!(
            all,
            BTreeMap::from([(ONE.to_owned(), "12_[1-3]".to_owned())])
        );
        let all = read(
            b"s4SNKN57XZTE02|s4SNKN57XZTE01|12\nInvalid job id\n",
            &wanted,
        );
        assert_eq!(all, BTreeMap::from([(OTHER.to_owned(), "12".to_owned())]));
    }
}
