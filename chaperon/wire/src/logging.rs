//! What launcher and chaperon log: which lines are written, said in one way for both, and how a line gets to a
//! terminal or a file. What a line tells of others is their text.

use std::io::{self, Write};

use tracing_subscriber::filter::{LevelFilter, Targets};

use crate::text::one_line;

/// Read: what is logged, such as `debug`, or `chaperon=debug,plan=trace`.
pub const VARIABLE: &str = "AGENT_SANDBOX_LOG";

/// What log lines are about. A filter that names anything else has a typing error.
pub const TARGETS: [&str; 5] = ["launch", "plan", "chaperon", "slurm", "tracer"];

/// The target of the audit record, which is not for filters: it is written whatever is logged.
pub const AUDIT: &str = "audit";

/// Reads a filter: a level, or targets with levels, with commas between them.
///
/// # Errors
/// A sentence about what is wrong with it.
pub fn filter(text: &str) -> Result<Targets, String> {
    const EXPECTED: &str = "expected a level (error, warn, info, debug, trace, off), or TARGET=LEVEL,… with \
                            targets among";
    let wrong = || format!("{EXPECTED} {}", TARGETS.join(", "));
    let parsed: Targets = text.trim().parse().map_err(|_| wrong())?;
    let known = |(target, _): (&str, LevelFilter)| TARGETS.contains(&target);
    match parsed.iter().all(known) {
        true => Ok(parsed),
        false => Err(wrong()),
    }
}

/// A writer of log lines, each of which comes in one call. What could speak to a terminal, or begin a line of its own,
/// stands as an escape.
#[derive(Debug)]
pub struct Lines<W>(pub W);

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let text = one_line(text.strip_suffix('\n').unwrap_or(&text)) + "\n";
        self.0.write_all(text.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_levels_or_known_targets() {
        for text in [
            "debug",
            "chaperon=debug",
            "info,plan=trace",
            " off ",
            "slurm",
        ] {
            assert!(filter(text).is_ok(), "{text}");
        }
        for text in [
            "loud",
            "chaperon=loud",
            "agent=debug",
            "=",
            "a=b=c",
            "\u{1b}[31m",
        ] {
            assert!(filter(text).is_err(), "{text:?}");
        }
        let again = filter("plan=trace,info").map(|filter| filter.to_string());
        assert!(again.is_ok_and(|text| filter(&text).is_ok()));
    }

    #[test]
    fn a_line_stays_one_line_and_says_nothing_to_a_terminal() {
        let mut all = Lines(Vec::new());
        let wrote = all.write_all(b"name=\x1b]0;x\x07\nERROR ours \xff\n");
        assert!(wrote.is_ok());
        let text = String::from_utf8_lossy(&all.0);
        assert_eq!(text, "name=\\u{1b}]0;x\\u{7}\\nERROR ours \u{fffd}\n");
    }
}
