//! The file of `srun --multi-prog`: which task runs what (`srun(1)`, "MULTIPLE PROGRAM
//! CONFIGURATION"). Slurm reads it on this side and again on the nodes; here it is read once, in
//! the jail.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use agent_sandbox_wire::capsule::TaskCommand;

use crate::refusal::Refusal;

/// The largest file, in bytes.
pub(super) const LARGEST: usize = 1 << 20;

/// What the arguments behind the file's name may take, in bytes: they are in each command.
const MOST_BEHIND: usize = 4 << 20;

/// What an argument takes beside its bytes.
const ARGUMENT: usize = size_of::<Vec<u8>>();

/// Numbers of tasks beyond this one are none (`MAX_TASKS_PER_NODE` times some nodes).
const MOST_TASKS: u32 = 1 << 20;

/// Reads a file. `tasks` is the number of tasks, if it is given; otherwise the file says it. The
/// arguments `behind` the file's name go to every program.
///
/// # Errors
/// In srun's own words: a line that is none, a task twice or not at all.
pub(super) fn parse(
    file: &OsStr,
    content: &[u8],
    tasks: Option<u32>,
    behind: &[Vec<u8>],
) -> Result<(Vec<TaskCommand>, u32), Refusal> {
    let name = file.to_string_lossy();
    let name = name.escape_debug();
    let mut all: Vec<TaskCommand> = Vec::new();
    let mut taken: BTreeMap<u32, u32> = BTreeMap::new();
    let mut rest = false;
    let each: usize = behind.iter().map(|one| one.len() + ARGUMENT).sum();
    for (number, line) in lines(content) {
        let wrong = |why: String| {
            let why = if why.is_empty() {
                why
            } else {
                format!("{why}\nsrun: error: ")
            };
            Refusal::mistake(format!(
                "{why}Line {number} of configuration file {name} invalid"
            ))
        };
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let end = line.iter().position(u8::is_ascii_whitespace);
        let (ranks, program) = line.split_at(end.ok_or_else(|| wrong(String::new()))?);
        if rest {
            return Err(wrong(
                "Task range specification with asterisk must be last".to_owned(),
            ));
        }
        let ranges = if ranks == b"*" {
            rest = true;
            Vec::new()
        } else {
            let ranges = ranges(ranks).map_err(wrong)?;
            for &(low, high) in &ranges {
                if let Some(tasks) = tasks.filter(|&tasks| high >= tasks) {
                    return Err(wrong(format!(
                        "Invalid task id, {high} >= ntasks ({tasks})"
                    )));
                }
                // Those that are there do not overlap: none but the last before the end can.
                let last = taken.range(..=high).next_back();
                if let Some((from, _)) = last.filter(|&(_, &to)| low <= to) {
                    let task = low.max(*from);
                    return Err(wrong(format!("Duplicate record for task {task}")));
                }
                taken.insert(low, high);
            }
            ranges
        };
        let mut argv = words(program)
            .ok_or_else(|| wrong("Program arguments specification format invalid".to_owned()))?;
        if argv.is_empty() {
            return Err(wrong(String::new()));
        }
        if (all.len() + 1).saturating_mul(each) > MOST_BEHIND {
            return Err(wrong(format!(
                "the arguments behind the file go to each of its commands, and take more than {MOST_BEHIND} bytes with this one"
            )));
        }
        argv.extend_from_slice(behind);
        all.push(TaskCommand {
            tasks: ranges,
            argv,
        });
    }
    let highest = taken.values().map(|high| high + 1).max();
    let tasks = tasks.or(highest).unwrap_or(1);
    let mut next = 0;
    for (low, high) in taken {
        if low > next {
            break;
        }
        next = high + 1;
    }
    if next < tasks && !rest {
        return Err(Refusal::mistake(format!(
            "Configuration file {name} invalid, no record for task id {next}"
        )));
    }
    Ok((all, tasks))
}

/// The lines with their numbers; those that end in a backslash go on in the next one.
fn lines(content: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let mut all: Vec<(usize, Vec<u8>)> = Vec::new();
    let mut goes_on = false;
    for (number, line) in (1..).zip(content.split(|&byte| byte == b'\n')) {
        let ends = line.strip_suffix(b"\\");
        let text = ends.unwrap_or(line);
        match all.last_mut() {
            Some((_, begun)) if goes_on => begun.extend_from_slice(text),
            _ => all.push((number, text.to_vec())),
        }
        goes_on = ends.is_some();
    }
    all
}

fn ranges(text: &[u8]) -> Result<Vec<(u32, u32)>, String> {
    let shown = String::from_utf8_lossy(text).into_owned();
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text
            .parse()
            .ok()
            .filter(|&number: &u32| number < MOST_TASKS);
        number.filter(|_| digits)
    };
    let invalid = |range: &str| {
        format!(
            "Invalid task range specification ({})",
            range.escape_debug()
        )
    };
    let mut all = Vec::new();
    for range in shown.split(',').filter(|range| !range.is_empty()) {
        let (low, high) = match range.split_once('-') {
            None => (number(range), number(range)),
            Some((low, high)) => (number(low), number(high)),
        };
        let (Some(low), Some(high)) = (low, high) else {
            return Err(invalid(range));
        };
        if low > high {
            return Err(format!("Invalid task range, {low}-{high}"));
        }
        all.push((low, high));
    }
    if all.is_empty() {
        return Err(invalid(&shown));
    }
    Ok(all)
}

/// The words of a program's line, as slurmstepd 22.05 reads them: single quotes hold together, a
/// backslash takes the next character as it is, `%` with a letter that means nothing goes. `None`
/// if a quote does not end.
fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut bytes = line.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte.is_ascii_whitespace() {
            all.extend(word.take());
            continue;
        }
        let word = word.get_or_insert_default();
        match byte {
            b'\\' => word.extend(bytes.next()),
            b'\'' => loop {
                match bytes.next()? {
                    b'\'' => break,
                    inside => word.push(inside),
                }
            },
            b'%' => {
                if let Some(letter @ (b't' | b'o')) = bytes.next() {
                    word.extend([b'%', letter]);
                }
            }
            other => word.push(other),
        }
    }
    all.extend(word);
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &str, tasks: Option<u32>) -> Result<(String, u32), String> {
        let (all, tasks) = parse(OsStr::new("mp"), content.as_bytes(), tasks, &[])
            .map_err(|refusal| refusal.message)?;
        let shown = all.iter().map(|line| {
            let words: Vec<_> = line
                .argv
                .iter()
                .map(|word| String::from_utf8_lossy(word))
                .collect();
            format!("{:?} {}", line.tasks, words.join("|"))
        });
        Ok((shown.collect::<Vec<_>>().join("\n"), tasks))
    }

    /// Seen with srun 22.05.
    #[test]
    fn words_are_read_as_slurm_reads_them() {
        let file = "0 ./x \"a b\"  c%tq \\\n  next 's q'x tail\\\\ %z\n\n   # comment\n\
                    1   ./x # not comment \n2 ./x a\\\nb \"\" '' end\n";
        let (shown, tasks) = read(file, None).unwrap();
        assert_eq!(
            shown,
            "[(0, 0)] ./x|\"a|b\"|c%tq|next|s qx|tail\\|\n\
             [(1, 1)] ./x|#|not|comment\n\
             [(2, 2)] ./x|ab|\"\"||end"
        );
        assert_eq!(tasks, 3);
    }

    #[test]
    fn ranges_and_the_rest() {
        assert_eq!(
            read("0,4-6 a\n1-3 b %o\n* c\n", Some(9)),
            Ok(("[(0, 0), (4, 6)] a\n[(1, 3)] b|%o\n[] c".into(), 9))
        );
    }

    #[test]
    fn files_that_srun_does_not_take() {
        for (file, tasks, message) in [
            (
                "0 a\n",
                Some(2),
                "Configuration file mp invalid, no record for task id 1",
            ),
            (
                "0 a\n0-1 b\n",
                Some(2),
                "Duplicate record for task 0\nsrun: error: Line 2 of configuration file mp invalid",
            ),
            (
                "x a\n",
                Some(2),
                "Invalid task range specification (x)\nsrun: error: Line 1 of configuration file mp invalid",
            ),
            (
                "0\n1 b\n",
                Some(2),
                "Line 1 of configuration file mp invalid",
            ),
            (
                "2-1 a\n",
                None,
                "Invalid task range, 2-1\nsrun: error: Line 1 of configuration file mp invalid",
            ),
            (
                "",
                Some(1),
                "Configuration file mp invalid, no record for task id 0",
            ),
        ] {
            assert_eq!(read(file, tasks), Err(message.to_owned()), "{file:?}");
        }
        assert!(read("0-1:2 a\n", Some(2)).is_err());
        assert!(read("0-4294967295 a\n", None).is_err());
        assert!(read("0 'a\n", None).is_err());
        assert!(read("5 a\n* b\n", Some(2)).is_err());
        assert!(read("* b\n0 a\n", Some(2)).is_err());
    }

    #[test]
    fn many_ranges_are_compared_quickly() {
        let ranks: Vec<String> = (0..140_000).rev().map(|rank| rank.to_string()).collect();
        let file = ranks.join(",") + " x\n";
        assert!(file.len() < LARGEST);
        let (_, tasks) = read(&file, None).unwrap();
        assert_eq!(tasks, 140_000);
        assert!(read(&(file + "7-9 y\n"), None).is_err());
    }

    #[test]
    fn arguments_behind_the_file_multiply_up_to_a_bound() {
        let file: String = (0..5000).map(|task| format!("{task} a\n")).collect();
        let behind = [vec![b'x'; 100_000], vec![b'x'; 100_000]];
        let refused = parse("mp".as_ref(), file.as_bytes(), Some(5000), &behind).unwrap_err();
        assert!(
            refused.message.contains("more than 4194304 bytes"),
            "{}",
            refused.message
        );
        let many = vec![Vec::new(); 65_536];
        assert!(parse("mp".as_ref(), file.as_bytes(), Some(5000), &many).is_err());
        assert!(parse("mp".as_ref(), file.as_bytes(), Some(5000), &[b"b".to_vec()]).is_ok());
    }

    #[test]
    fn arguments_behind_the_file_go_to_all() {
        let behind = [b"z".to_vec()];
        let (all, _) = parse(OsStr::new("mp"), b"0 a b\n1 c", None, &behind).unwrap();
        assert_eq!(all[0].argv, [b"a", b"b", b"z"]);
        assert_eq!(all[1].argv, [b"c", b"z"]);
    }
}
