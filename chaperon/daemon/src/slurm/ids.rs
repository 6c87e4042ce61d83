//! Names of jobs, array tasks, components and steps, as Slurm writes them: `123`, `123_4`,
//! `123_[1-5,7]`, `123+1`, `123.0`, `123.batch`, `123_4.0` (`sbatch(1)`, `scancel(1)`, `sacct(1)`).

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use crate::refusal::Refusal;

/// The most names in one list. A command line holds more than anybody types.
const MOST: usize = 20_000;

/// The most characters of array tasks in one name: `123_[…]`.
const LONGEST_TASKS: usize = 8192;

/// Steps that have names (`sacct(1)`).
const NAMED_STEPS: [&str; 4] = ["batch", "extern", "interactive", "TBD"];

/// What a name names within its job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Whole,
    /// `_4`
    Task(u32),
    /// `_[1-5,7]`: the ranges, both ends and the stride.
    Tasks(Vec<(u32, u32, u32)>),
    /// `_*`, as `scontrol` and `squeue` have it.
    EveryTask,
    /// `+1`
    Component(u32),
}

/// A job, or parts of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selector {
    /// The job's number; of an array or a heterogeneous job the first one.
    pub job: u32,
    /// What follows the number, written canonically: `_4`, `.0`, `+1`, or nothing.
    pub rest: String,
}

impl Selector {
    /// A whole job.
    pub fn job(job: u32) -> Self {
        Self {
            job,
            rest: String::new(),
        }
    }

    /// Whether it names a step.
    pub fn is_step(&self) -> bool {
        self.rest.contains('.')
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.job, self.rest)
    }
}

/// Parses a list: names with commas between them. Empty elements are left out, as `strtok(3)` does
/// for Slurm; a name that is there several times is there once.
///
/// # Errors
/// The first thing that is no name, in Slurm's words; or there is none at all.
pub fn parse_list(text: &OsStr) -> Result<Vec<Selector>, Refusal> {
    let wrong = |part: &str| Refusal::mistake(format!("Invalid job id: {}", part.escape_debug()));
    let text = std::str::from_utf8(text.as_bytes())
        .map_err(|_| wrong(&String::from_utf8_lossy(text.as_bytes())))?;
    let mut all = Vec::new();
    for part in split(text) {
        if part.is_empty() {
            continue;
        }
        if all.len() == MOST {
            return Err(Refusal::mistake(format!(
                "more than {MOST} jobs in one list"
            )));
        }
        all.push(parse(part).ok_or_else(|| wrong(part))?);
    }
    if all.is_empty() {
        return Err(wrong(text));
    }
    Ok(distinct(all))
}

/// Each once, in the order of the first ones.
pub fn distinct(mut all: Vec<Selector>) -> Vec<Selector> {
    let mut seen = HashSet::new();
    all.retain(|one| seen.insert(one.clone()));
    all
}

/// Splits at the commas outside brackets.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.split(move |c| {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            _ => {}
        }
        c == ',' && !inside
    })
}

/// Parses one name. `None` if it is none.
pub fn parse(text: &str) -> Option<Selector> {
    let (job, rest) = number(text)?;
    // Slurm has no job 0.
    if job == 0 {
        return None;
    }
    let (part, rest) = match rest.as_bytes().first() {
        Some(b'_') => part_of_array(&rest[1..])?,
        Some(b'+') => {
            let (component, rest) = number(&rest[1..])?;
            (Part::Component(component), rest)
        }
        _ => (Part::Whole, rest),
    };
    let step = match rest.strip_prefix('.') {
        None if rest.is_empty() => None,
        None => return None,
        // A step of many tasks at once is nothing that Slurm knows.
        Some(_) if matches!(part, Part::Tasks(_) | Part::EveryTask) => return None,
        Some(step) => Some(step_name(step)?),
    };
    let mut canonical = match part {
        Part::Whole => String::new(),
        Part::Task(task) => format!("_{task}"),
        Part::Component(component) => format!("+{component}"),
        Part::EveryTask => "_*".to_owned(),
        Part::Tasks(ranges) => {
            let ranges: Vec<String> = ranges.iter().map(|&range| written(range)).collect();
            format!("_[{}]", ranges.join(","))
        }
    };
    if let Some(step) = step {
        canonical.push('.');
        canonical.push_str(&step);
    }
    Some(Selector {
        job,
        rest: canonical,
    })
}

fn written((first, last, stride): (u32, u32, u32)) -> String {
    match (first == last, stride) {
        (true, _) => first.to_string(),
        (false, 1) => format!("{first}-{last}"),
        (false, _) => format!("{first}-{last}:{stride}"),
    }
}

fn part_of_array(text: &str) -> Option<(Part, &str)> {
    if let Some(rest) = text.strip_prefix('*') {
        return Some((Part::EveryTask, rest));
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (inside, rest) = rest.split_once(']')?;
        return Some((Part::Tasks(ranges(inside)?), rest));
    }
    // `123_1-5` without brackets is what scancel and scontrol take, too.
    let (first, rest) = number(text)?;
    match rest.strip_prefix('-') {
        None => Some((Part::Task(first), rest)),
        Some(rest) => {
            let (last, rest) = number(rest)?;
            let range = (first <= last).then(|| vec![(first, last, 1)])?;
            Some((Part::Tasks(range), rest))
        }
    }
}

fn ranges(text: &str) -> Option<Vec<(u32, u32, u32)>> {
    if text.len() > LONGEST_TASKS {
        return None;
    }
    // `%4`, how many run at a time, stands behind what squeue prints; it selects nothing.
    let text = match text.split_once('%') {
        Some((ranges, limit)) => number(limit)
            .filter(|(_, rest)| rest.is_empty())
            .map(|_| ranges)?,
        None => text,
    };
    text.split(',')
        .map(|range| {
            let (first, rest) = number(range)?;
            let Some(rest) = rest.strip_prefix('-') else {
                return rest.is_empty().then_some((first, first, 1));
            };
            let (last, rest) = number(rest)?;
            let stride = match rest.strip_prefix(':') {
                None => rest.is_empty().then_some(1)?,
                Some(rest) => number(rest).filter(|(_, rest)| rest.is_empty())?.0,
            };
            (first <= last && stride > 0).then_some((first, last, stride))
        })
        .collect()
}

fn step_name(text: &str) -> Option<String> {
    if let Some(name) = NAMED_STEPS.iter().find(|name| **name == text) {
        return Some((*name).to_owned());
    }
    let (step, rest) = number(text)?;
    match rest.strip_prefix('+') {
        // A step of a heterogeneous job has parts.
        Some(rest) => {
            let (part, rest) = number(rest)?;
            rest.is_empty().then(|| format!("{step}+{part}"))
        }
        None => rest.is_empty().then(|| step.to_string()),
    }
}

/// The number at the beginning, and what follows it.
fn number(text: &str) -> Option<(u32, &str)> {
    let end = text
        .bytes()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(text.len());
    // Slurm's numbers above this one mean "none" and "all" (`slurm.h`: NO_VAL, INFINITE).
    const LARGEST: u32 = 0xffff_fff0;
    let number: u32 = text[..end].parse().ok()?;
    (number <= LARGEST).then_some((number, &text[end..]))
}

/// The job's number at the beginning of what Slurm prints as a job: `123_[1-5%2]`, `123+0`, `123.0`.
pub fn leading(text: &[u8]) -> Option<u32> {
    let end = text
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(text.len());
    std::str::from_utf8(&text[..end]).ok()?.parse().ok()
}

/// The job's number if this is what Slurm prints as a job or step, with blanks around it, and
/// nothing else: `123`, `123_[1-5%2]`, `123_4.batch`.
pub fn parse_printed(text: &[u8]) -> Option<u32> {
    let text = text.trim_ascii();
    let job = leading(text)?;
    let known = |&byte: &u8| byte.is_ascii_alphanumeric() || b"_+.[]-,:%".contains(&byte);
    text.iter().all(known).then_some(job)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(text: &str) -> Vec<String> {
        let all = parse_list(OsStr::new(text)).unwrap();
        all.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_are_written_anew() {
        assert_eq!(list("123"), ["123"]);
        assert_eq!(list("123,0124"), ["123", "124"]);
        assert_eq!(list("123_4,5"), ["123_4", "5"]);
        assert_eq!(list("123_[1-5,7],8"), ["123_[1-5,7]", "8"]);
        assert_eq!(list("123_[1-5:2%4]"), ["123_[1-5:2]"]);
        assert_eq!(list("123_1-5"), ["123_[1-5]"]);
        assert_eq!(
            list("123+1,123.0,123.batch"),
            ["123+1", "123.0", "123.batch"]
        );
        assert_eq!(list("123_4.0,"), ["123_4.0"]);
        assert_eq!(list("123_*"), ["123_*"]);
        assert_eq!(list("5,7,05,5_1,5,5_01"), ["5", "7", "5_1"]);
        assert_eq!(list(&"5,".repeat(MOST)), ["5"]);
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for text in [
            "",
            ",",
            "abc",
            "-1",
            "0",
            "123 4",
            "123;4",
            "123_",
            "123_[",
            "123_[]",
            "123_[5-1]",
            "123.",
            "123.x",
            "123.0.0",
            "123_[1-2].0",
            "99999999999",
            "4294967295",
            "1\n2",
            "+1",
            "123_[1-2:0]",
            "123_[1%]",
            "1=2",
            "é",
        ] {
            assert!(parse_list(OsStr::new(text)).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_number_that_slurm_prints() {
        assert_eq!(leading(b"123_[1-5%2]"), Some(123));
        assert_eq!(leading(b"123+0.batch"), Some(123));
        assert_eq!(leading(b""), None);
        assert_eq!(leading(b"x1"), None);
    }

    proptest! {
        #[test]
        fn nothing_panics(text in ".{0,40}") {
            let _ = parse_list(OsStr::new(&text));
            let _ = leading(text.as_bytes());
        }

        #[test]
        fn written_and_read_again(text in "[1-9][0-9]{0,6}(_[0-9]{1,4}|_\\[[0-9]{1,3}(,[0-9]{1,3}){0,3}\\]|\\+[0-9])?") {
            let one = parse(&text).unwrap();
            prop_assert_eq!(parse(&one.to_string()), Some(one.clone()));
            prop_assert_eq!(one.to_string(), list(&text).join(","));
        }
    }
}
