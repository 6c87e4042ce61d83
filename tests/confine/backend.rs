//! What is expected of a jail, whichever backend makes it.
//!
//! What Landlock lacks is never listed here: a test asks the launch itself ([`World::lacks`]), which
//! declares it in its plan.

use std::collections::BTreeSet;
use std::sync::OnceLock;

pub(crate) use crate::chosen::{declared, is_landlock, options};
use crate::world::{World, launcher, not_checked};

/// That numbers, names and command lines of the host's processes are seen.
pub(crate) const PROCESSES: &str = "processes";

/// The launcher as words of a command line, with the backend and more options.
pub(crate) fn launcher_words(more: &[&str]) -> Vec<String> {
    let mut words = vec![crate::operations::text(&launcher())];
    words.extend(options().iter().chain(more).map(|&word| word.to_owned()));
    words
}

/// Whether an answer is as good as the one that bubblewrap's jail gives. There it must be that one.
///
/// In a mount namespace, what is not shown is not there, and what is read-only says so. Landlock
/// refuses both with `EACCES`, and what would change the tree of directories with `EXDEV`; the
/// mediator may answer as a mount would. None of them may answer `ok` in the place of an error.
pub(crate) fn is_as_good(answer: &str, expected: &str) -> bool {
    if answer == expected || !is_landlock() {
        return answer == expected;
    }
    let also: &[&str] = match expected {
        "ENOENT" => &["EACCES", "EXDEV"],
        "EROFS" | "EBUSY" | "EXDEV" => &["EROFS", "EBUSY", "EXDEV", "EACCES", "EPERM"],
        "EACCES" => &["EPERM"],
        _ => &[],
    };
    also.contains(&answer)
}

/// As [`is_as_good`], of several answers that will do.
pub(crate) fn is_as_good_as_one(answer: &str, expected: &[&str]) -> bool {
    expected.iter().any(|expected| is_as_good(answer, expected))
}

/// Each answer is as good as the one expected.
#[track_caller]
pub(crate) fn assert_answers<S: AsRef<str>>(answers: &[S], expected: &[&str], what: &str) {
    let answers: Vec<&str> = answers.iter().map(AsRef::as_ref).collect();
    let good = answers.len() == expected.len()
        && answers
            .iter()
            .zip(expected)
            .all(|(answer, expected)| is_as_good(answer, expected));
    assert!(good, "{what}\n     got {answers:?}\nexpected {expected:?}");
}

fn said(declared: &BTreeSet<String>, row: &str, what: &str) -> bool {
    let lacks = declared.contains(row);
    if lacks {
        not_checked(what, &format!("this kernel cannot: {row}"));
    }
    lacks
}

impl World {
    /// Whether the launch says that its jail lacks this, by its own table. Where it does, the test
    /// says what it does not check.
    pub(crate) fn lacks(&self, row: &str, what: &str) -> bool {
        static DECLARED: OnceLock<BTreeSet<String>> = OnceLock::new();
        if !is_landlock() {
            return false;
        }
        let declared = DECLARED.get_or_init(|| self.declared(&[]));
        said(declared, row, what)
    }

    /// The same of a launch with these options.
    pub(crate) fn lacks_with(&self, options: &[&str], row: &str, what: &str) -> bool {
        is_landlock() && said(&self.declared(options), row, what)
    }

    /// The ids of what a launch declares to lack.
    fn declared(&self, options: &[&str]) -> BTreeSet<String> {
        let mut run = self.jail(["--dry-run", "--json"]);
        run.command.args(options);
        let output = run.run(&["true"]);
        assert_eq!(output.code(), 0, "{output:?}");
        declared(&output.stdout)
    }
}
