//! `agent-sandbox run`: a command with what a caller that is a program wants around it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use super::{Call, End, Options, misuse};

/// The longest time limit: longer than any session, and far from where a clock overflows. 10 years.
const LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// What a caller wants around a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// After which time the command is ended; `None`: never.
    pub timeout: Option<Duration>,
    /// The file into which goes how it went.
    pub result: Option<PathBuf>,
}

/// Run a command, for a caller that is a program: with a time limit, and a file that says how it went. Also a command
/// that is named like a subcommand
#[derive(Debug, Parser)]
#[command(
    name = "agent-sandbox run",
    override_usage = "agent-sandbox [OPTIONS] run [--timeout DURATION] [--result FILE] [--] COMMAND [ARGS]…",
    after_help = "Exit status: the command's own; 128+N if signal N ended it; 124 if its time was over; 125 if\n\
                  agent-sandbox failed; 126 if the command cannot be executed; 127 if it was not found."
)]
pub(super) struct RunWords {
    /// End the command after this time, as timeout(1) does: SIGTERM, 10 s later SIGKILL to all in the jail, exit status
    /// 124. Seconds, or with a unit: 90s, 10m, 1.5h, 2d
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Duration>,
    /// When it is over, write into FILE as JSON: exit status, times, memory, jobs, refusals. FILE stands outside of what is
    /// writable inside, and one that exists is removed before the command starts
    #[arg(long, value_name = "FILE")]
    result: Option<PathBuf>,
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    words: Vec<OsString>,
    #[command(flatten)]
    options: Options,
}

pub(super) fn read(options: Options, words: RunWords) -> Result<Call, End> {
    if words.words.is_empty() {
        return misuse("`agent-sandbox run` needs a command");
    }
    let options = options.and(words.options);
    if options.dry_run && (words.result.is_some() || words.timeout.is_some()) {
        return misuse("--dry-run runs nothing: it takes neither --timeout nor --result");
    }
    Ok(Call::Run {
        options,
        command: words.words,
        around: Around {
            timeout: words.timeout,
            result: words.result,
        },
    })
}

/// A time as `timeout(1)` takes it.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let units = [("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];
    let unit = units
        .iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, *seconds)));
    let (number, unit) = unit.unwrap_or((text, 1.0));
    let plain = number
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let time = (plain.then(|| number.parse::<f64>().ok()).flatten())
        .and_then(|number| Duration::try_from_secs_f64(number * unit).ok());
    match time {
        Some(time) if time.is_zero() => Err("is no time: leave --timeout out for no limit".into()),
        Some(time) if time <= LONGEST => Ok(time),
        Some(_) => Err("is longer than 10 years".into()),
        None => Err("is no time: write 90s, 10m, 1.5h or 2d".into()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_for_timeout() {
        for (text, milliseconds) in [
            ("90", 90_000),
            ("0.2", 200),
            ("90s", 90_000),
            ("10m", 600_000),
            ("1.5h", 5_400_000),
            ("2d", 172_800_000),
        ] {
            assert_eq!(duration(text).unwrap().as_millis(), milliseconds, "{text}");
        }
        for text in [
            "", "0", "-1", "1e3", "inf", "nan", "m", "10 m", "10x", "9999999d", "+1",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
