//! What a value must look like.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use super::Kind;

/// The longest number that Slurm can mean, in digits.
const DIGITS: usize = 18;

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
        Kind::Path => (!bytes.is_empty() && !bytes.contains(&0), "a path"),
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
