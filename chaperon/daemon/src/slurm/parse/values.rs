//! What a value must look like.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use super::Kind;

/// The longest number that Slurm can mean, in digits.
const DIGITS: usize = 18;

/// A path has less bytes than this (`PATH_MAX`, `limits.h`).
const LONGEST_PATH: usize = 4096;

/// What a dependency may wait for, beside `after` and `singleton`.
const CONDITIONS: [&str; 5] = [
    "afterany",
    "afterburstbuffer",
    "aftercorr",
    "afternotok",
    "afterok",
];

/// Checks a value; a wrong one gives what would be right, as a noun.
pub(super) fn check(kind: Kind, value: &OsStr) -> Result<(), String> {
    let bytes = value.as_bytes();
    let text = std::str::from_utf8(bytes).ok();
    let (fits, expected) = match kind {
        Kind::Flag => (false, "no value"),
        Kind::Text => (
            text.is_some_and(|text| !text.chars().any(char::is_control)),
            "text without control characters",
        ),
        Kind::Word => (
            bytes.iter().all(|&byte| is_of_word(byte)),
            "one word without blanks or quotes",
        ),
        Kind::Name => (
            bytes.iter().all(|&byte| is_of_word(byte) && byte != b'/'),
            "one word without blanks, quotes or slashes",
        ),
        Kind::Nodes => (
            bytes
                .iter()
                .all(|&byte| byte.is_ascii_alphanumeric() || b"_-.,[]".contains(&byte)),
            "names of nodes (a file of names would be read outside the jail)",
        ),
        Kind::Number => (text.is_some_and(is_number), "a whole number"),
        Kind::OneOf(words) => {
            let fits =
                text.is_some_and(|text| words.iter().any(|word| word.eq_ignore_ascii_case(text)));
            return if fits {
                Ok(())
            } else {
                Err(format!("one of {}", words.join(", ")))
            };
        }
        Kind::Path => (
            !bytes.is_empty() && bytes.len() < LONGEST_PATH && !bytes.contains(&0),
            "a path of less than 4096 bytes",
        ),
        Kind::Mail => (
            is_mail(bytes),
            "addresses of letters, digits and ._+@- (it reaches the site's mail program)",
        ),
        Kind::Dependency => (
            text.is_some_and(is_dependency),
            "TYPE:JOB[:JOB...] with after, afterany, afterburstbuffer, aftercorr, afternotok or \
             afterok, or singleton, with `,` or `?` between (expand would take over another job)",
        ),
        Kind::Raw => (!bytes.contains(&0), "text without NUL"),
        Kind::Jobs => (
            bytes
                .iter()
                .all(|&byte| byte.is_ascii_alphanumeric() || b"_-.,+[]%:*".contains(&byte)),
            "ids of jobs",
        ),
        Kind::Time => (
            text.is_some_and(|text| duration(text).is_some()),
            "a time: minutes, minutes:seconds, hours:minutes:seconds, days-hours, \
             days-hours:minutes, days-hours:minutes:seconds or UNLIMITED",
        ),
        Kind::TimeFormat => (
            text.is_some_and(is_time_format),
            "a format of times in one line: text and the conversions of strftime but %n and %t",
        ),
        Kind::Format => (
            text.is_some_and(|text| {
                !text
                    .chars()
                    .any(|c| c.is_control() && c != '\t' && c != '\n')
            }),
            "text without control characters",
        ),
    };
    if fits {
        Ok(())
    } else {
        Err(expected.to_owned())
    }
}

/// Whether these are addresses, or names of users, that no mail program takes for an option.
pub(in crate::slurm) fn is_mail(bytes: &[u8]) -> bool {
    bytes.split(|&byte| byte == b',').all(|one| {
        one.first().is_some_and(u8::is_ascii_alphanumeric)
            && one
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._+@-".contains(byte))
    })
}

/// Whether this is a dependency in Slurm's syntax (`sbatch(1)`, `--dependency`), without `expand`.
pub(in crate::slurm) fn is_dependency(text: &str) -> bool {
    text.split([',', '?']).all(is_condition)
}

fn is_condition(text: &str) -> bool {
    let jobs = |jobs: &str, later: bool| jobs.split(':').all(|job| is_job(job, later));
    match text.split_once(':') {
        // A number alone means `after` it (until 21.08).
        None => text.eq_ignore_ascii_case("singleton") || is_digits(text),
        Some((kind, list)) if kind.eq_ignore_ascii_case("after") => jobs(list, true),
        Some((kind, list)) => {
            let known = CONDITIONS
                .iter()
                .any(|name| name.eq_ignore_ascii_case(kind));
            known && jobs(list, false)
        }
    }
}

/// A job, or tasks of an array, and with `after` how many minutes later.
fn is_job(text: &str, later: bool) -> bool {
    let (job, minutes) = match text.split_once('+') {
        Some((job, minutes)) => (job, Some(minutes)),
        None => (text, None),
    };
    let (job, task) = match job.split_once('_') {
        Some((job, task)) => (job, Some(task)),
        None => (job, None),
    };
    is_digits(job)
        && task.is_none_or(|task| task == "*" || is_digits(task))
        && minutes.is_none_or(|minutes| later && is_digits(minutes))
}

/// Whether a format of times prints one line, whatever the time: an answer is taken apart by lines,
/// and what begins one must be Slurm's own.
fn is_time_format(text: &str) -> bool {
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character.is_control() {
            return false;
        }
        // Flags, widths and the modifiers E and O are not needed, and could hide the letter.
        let odd =
            |letter: char| !letter.is_ascii_alphabetic() || matches!(letter, 'n' | 't' | 'E' | 'O');
        if character == '%'
            && characters
                .next()
                .is_none_or(|next| next != '%' && odd(next))
        {
            return false;
        }
    }
    true
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-.,:;+@%/*=[]()|&^#!~?".contains(&byte)
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    is_digits(digits)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.len() <= DIGITS && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Duration {
    /// So many seconds. None at all (`--time=0`) asks for no limit, as `sbatch(1)` has it.
    Seconds(u64),
    /// No limit.
    Unlimited,
}

/// A duration in Slurm's syntax (`sbatch(1)`, `--time`): `minutes`, `minutes:seconds`,
/// `hours:minutes:seconds`, `days-hours`, `days-hours:minutes`, `days-hours:minutes:seconds`,
/// `UNLIMITED`, `INFINITE` or `-1`.
pub fn duration(text: &str) -> Option<Duration> {
    if text == "-1"
        || text.eq_ignore_ascii_case("UNLIMITED")
        || text.eq_ignore_ascii_case("INFINITE")
    {
        return Some(Duration::Unlimited);
    }
    let number = |text: &str| is_digits(text).then(|| text.parse::<u64>().ok()).flatten();
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(number(days)?), rest),
        None => (None, text),
    };
    let parts = rest.split(':').map(number).collect::<Option<Vec<_>>>()?;
    let (hours, minutes, seconds) = match (days, &parts[..]) {
        (None, &[minutes]) => (0, minutes, 0),
        (None, &[minutes, seconds]) => (0, minutes, seconds),
        (None | Some(_), &[hours, minutes, seconds]) => (hours, minutes, seconds),
        (Some(_), &[hours]) => (hours, 0, 0),
        (Some(_), &[hours, minutes]) => (hours, minutes, 0),
        _ => return None,
    };
    let seconds = days
        .unwrap_or(0)
        .checked_mul(24 * 3600)?
        .checked_add(hours.checked_mul(3600)?)?
        .checked_add(minutes.checked_mul(60)?)?
        .checked_add(seconds)?;
    Some(Duration::Seconds(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_is_an_option() {
        for good in ["alice", "a.b+c@example.org", "alice,bob@x-y.z"] {
            assert!(is_mail(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            "-X",
            "-X!/home/alice/evil",
            "a,-X",
            "a,",
            ",a",
            "a b",
            "a/b",
            "@x",
            "a;b",
            "a!b",
        ] {
            assert!(!is_mail(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn a_format_of_times_stays_on_its_line() {
        for good in [
            "",
            "relative",
            "standard",
            "%s",
            "%Y-%m-%dT%H:%M:%S",
            "100%% %c",
        ] {
            assert!(is_time_format(good), "{good}");
        }
        for bad in [
            "%nJobId=1",
            "%t",
            "%",
            "x%",
            "%%%n",
            "%En",
            "%_n",
            "%5n",
            "%-d",
            "a\nb",
            "\u{85}",
        ] {
            assert!(!is_time_format(bad), "{bad}");
        }
    }

    #[test]
    fn dependencies_name_jobs_and_expand_none() {
        for good in [
            "singleton",
            "12",
            "afterok:12",
            "AfterAny:1:2,singleton",
            "after:12+5:13",
            "afterok:1:2?afternotok:3",
            "aftercorr:20_4",
            "afterok:20_*",
        ] {
            assert!(is_dependency(good), "{good}");
        }
        for bad in [
            "",
            "expand:12",
            "EXPAND:12",
            "afterok:1,expand:12",
            "afterok",
            "afterok:",
            "afterok:1+5",
            "after:x",
            "afterok:1:",
            "afterok:1,",
            "afterok:1 ",
            "x:1",
        ] {
            assert!(!is_dependency(bad), "{bad}");
        }
    }
}
