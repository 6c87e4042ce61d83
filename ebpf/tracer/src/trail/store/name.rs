//! Names of the files: for people, and to find them sooner. What a file is about, its header says; so two
//! trails whose names would be alike differ in the number behind them, and no name leads anywhere else.
//!
//! `SESSION[-JOB[.STEP]]@NODE-N.jsonl`, or `traceID` for what has no session.

use std::fmt::Write as _;

use agent_sandbox_events::protocol::Which;
use agent_sandbox_events::record::Trail;

/// The longest part, in bytes. With four of them, numbers and signs a name is within NAME_MAX (255).
const PART: usize = 56;

/// What a file's name ends with.
const END: &str = ".jsonl";

/// A part of a name: letters, digits, `_`, `-` and `.` as they are, all else as `%hh`.
fn part(text: &str) -> String {
    let mut name = String::new();
    for (at, byte) in text.bytes().enumerate() {
        if name.len() >= PART {
            break;
        }
        let plain =
            byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') || (byte == b'.' && at > 0);
        if plain {
            name.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(name, "%{byte:02x}");
        }
    }
    // Cut off: the header has it whole.
    name.truncate(PART);
    name
}

/// The name without the number: of all files of the trail.
pub(super) fn stem(trail: &Trail) -> String {
    let mut name = match &trail.session {
        Some(session) => part(session),
        None => format!("trace{}", trail.trace),
    };
    if let Some(job) = trail.job {
        let _ = write!(name, "-{job}");
    }
    if let Some(step) = &trail.step {
        name.push('.');
        name.push_str(&part(step));
    }
    name.push('@');
    name.push_str(&part(&trail.node));
    name
}

/// The name of a file.
pub(super) fn file(stem: &str, number: u32) -> String {
    format!("{stem}-{number}{END}")
}

/// Whether it is the name of a trail's file, of whatever node.
pub(super) fn ours(name: &str) -> bool {
    let stem = name
        .strip_suffix(END)
        .and_then(|name| name.rsplit_once('-'));
    stem.is_some_and(|(stem, number)| {
        let digits = number.bytes().all(|digit| digit.is_ascii_digit());
        stem.contains('@') && digits && !name.contains('/')
    })
}

/// The number of a file among those of its name: 1 is the first.
pub(super) fn number(name: &str) -> u32 {
    let number = name
        .strip_suffix(END)
        .and_then(|name| name.rsplit_once('-'));
    number.map_or(0, |(_, number)| number.parse().unwrap_or(u32::MAX))
}

/// Whether it is the name of a file of that node.
pub(super) fn of_node(name: &str, node: &str) -> bool {
    let behind = name.rsplit_once('@').map(|(_, behind)| behind);
    behind
        .and_then(|behind| behind.rsplit_once('-'))
        .is_some_and(|(of, _)| of == part(node))
        && ours(name)
}

/// Whether the file of that name can be one of those that are asked for.
pub(super) fn may_be(name: &str, which: &Which, node: &str) -> bool {
    let before = name.split_once('@').map_or("", |(before, _)| before);
    match which {
        Which::All => true,
        Which::Session(session) => {
            let rest = before.strip_prefix(part(session).as_str());
            rest.is_some_and(|rest| {
                rest.is_empty() || rest.starts_with('-') || rest.starts_with('.')
            })
        }
        Which::Job(job) => {
            before.ends_with(&format!("-{job}")) || before.contains(&format!("-{job}."))
        }
        Which::Trace(_) => of_node(name, node),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn trail(session: &str, job: Option<u32>, step: Option<&str>, node: &str) -> Trail {
        Trail {
            node: node.to_string(),
            uid: 1,
            session: Some(session.to_string()).filter(|text| !text.is_empty()),
            job,
            step: step.map(str::to_string),
            trace: 7,
        }
    }

    #[test]
    fn names_are_readable() {
        assert_eq!(
            file(&stem(&trail("abc12", None, None, "n-1")), 1),
            "abc12@n-1-1.jsonl"
        );
        assert_eq!(
            stem(&trail("abc12", Some(42), Some("batch"), "n1")),
            "abc12-42.batch@n1"
        );
        assert_eq!(stem(&trail("", None, None, "n1")), "trace7@n1");
    }

    /// Whoever asks for records chooses the name.
    #[test]
    fn no_more_is_read_of_a_long_name_than_stands_in_it() {
        let long = "\u{1}".repeat(1 << 20);
        assert_eq!(part(&long), part(&long[..PART]));
        assert!(part(&long).capacity() < 4 * PART);
    }

    #[test]
    fn a_hostile_name_stays_in_its_directory() {
        for hostile in [
            "../../etc/x",
            "..",
            ".",
            "/",
            "a/b",
            "a\0b",
            "%2e",
            "a@b",
            "\u{202e}",
        ] {
            let name = file(&stem(&trail(hostile, Some(1), Some(hostile), hostile)), 3);
            assert!(
                !name.contains('/') && !name.contains('\0') && !name.starts_with('.'),
                "{name}"
            );
            assert!(
                name.bytes().filter(|byte| *byte == b'@').count() == 1,
                "{name}"
            );
        }
    }

    #[test]
    fn files_of_another_node_are_told_apart() {
        assert!(of_node("s@b-1.jsonl", "b"));
        assert!(!of_node("s@a-b-1.jsonl", "b"));
        assert!(of_node("s@a-b-1.jsonl", "a-b"));
        assert!(!of_node("s@b-1.json", "b"));
        assert!(
            !ours("x.jsonl")
                && !ours("../1001/s@b-1.jsonl")
                && !ours("a@b-x.jsonl")
                && !ours(".x.swp")
        );
    }

    #[test]
    fn a_name_says_whether_it_is_worth_looking() {
        let which = |which: Which, name: &str| may_be(name, &which, "n1");
        assert!(which(Which::Job(42), "s-42.0@n1-1.jsonl"));
        assert!(which(Which::Job(42), "s-42@n1-1.jsonl"));
        assert!(!which(Which::Job(42), "s-421@n1-1.jsonl"));
        assert!(!which(Which::Job(42), "s-142@n1-42.jsonl"));
        assert!(which(Which::Session("s".into()), "s-42@n1-1.jsonl"));
        assert!(!which(Which::Session("s".into()), "s2@n1-1.jsonl"));
        assert!(which(Which::Trace(7), "s@n1-1.jsonl") && !which(Which::Trace(7), "s@n2-1.jsonl"));
    }

    proptest! {
        #[test]
        fn any_name_is_one(
            session in ".{0,80}",
            job in any::<Option<u32>>(),
            step in prop::option::of(".{0,80}"),
            node in ".{0,80}",
            number in any::<u32>(),
        ) {
            let trail = trail(&session, job, step.as_deref(), &node);
            let name = file(&stem(&trail), number);
            prop_assert!(name.len() <= 255);
            prop_assert!(name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/'));
            prop_assert!(ours(&name) && of_node(&name, &node));
            if !session.is_empty() {
                prop_assert!(may_be(&name, &Which::Session(session), &node));
            }
            if let Some(job) = job {
                prop_assert!(may_be(&name, &Which::Job(job), &node));
            }
        }
    }
}
