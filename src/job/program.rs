//! What runs, for one task.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use agent_sandbox_wire::capsule::TaskCommand;

/// The command of a task among those of a `--multi-prog` file; the first line that names the task
/// has it, as in `srun(1)`. `None` if no line does.
pub fn of_task(all: &[TaskCommand], task: u32) -> Option<Vec<OsString>> {
    let (line, place) = all
        .iter()
        .find_map(|line| Some((line, place(&line.tasks, task)?)))?;
    let word = |word: &Vec<u8>| OsString::from_vec(fill(word, task, place));
    Some(line.argv.iter().map(word).collect())
}

/// The place of a task within ranges, counted through all of them.
fn place(ranges: &[(u32, u32)], task: u32) -> Option<u64> {
    if ranges.is_empty() {
        return Some(task.into());
    }
    let mut passed = 0;
    for &(low, high) in ranges {
        if (low..=high).contains(&task) {
            return Some(passed + u64::from(task - low));
        }
        passed += u64::from(high.saturating_sub(low)) + 1;
    }
    None
}

/// `%t` is the task, `%o` its place.
fn fill(word: &[u8], task: u32, place: u64) -> Vec<u8> {
    let mut filled = Vec::with_capacity(word.len());
    let mut rest = word;
    loop {
        match rest {
            [b'%', b't', after @ ..] => {
                filled.extend(task.to_string().into_bytes());
                rest = after;
            }
            [b'%', b'o', after @ ..] => {
                filled.extend(place.to_string().into_bytes());
                rest = after;
            }
            [byte, after @ ..] => {
                filled.push(*byte);
                rest = after;
            }
            [] => return filled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_task_has_its_line_and_its_place() {
        let line = |tasks: &[(u32, u32)], words: &[&str]| TaskCommand {
            tasks: tasks.to_vec(),
            argv: words.iter().map(|word| word.as_bytes().to_vec()).collect(),
        };
        let file = [
            line(&[(4, 6), (1, 1)], &["echo", "task:%t", "%o%"]),
            line(&[(0, 2)], &["hostname"]),
        ];
        let of = |task| of_task(&file, task).map(|words| words.join(std::ffi::OsStr::new(" ")));
        assert_eq!(of(5).as_deref(), Some("echo task:5 1%".as_ref()));
        assert_eq!(of(1).as_deref(), Some("echo task:1 3%".as_ref()));
        assert_eq!(of(2).as_deref(), Some("hostname".as_ref()));
        assert_eq!(of(3), None);
        let rest = [line(&[], &["x", "%o"])];
        assert_eq!(of_task(&rest, 9), Some(vec!["x".into(), "9".into()]));
    }
}
