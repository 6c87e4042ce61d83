//! What the service logs of itself: lines on standard error. Where that is journald's, each begins with its priority
//! (`sd-daemon(3)`).
#![allow(clippy::disallowed_methods, reason = "effects: reads the environment")]

use std::fmt;
use std::io;

use anyhow::{Result, anyhow};
use nix::sys::stat::fstat;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Read: what is logged, such as `debug`, or `tracer=debug`. Launcher and chaperon read the same.
pub const VARIABLE: &str = "AGENT_SANDBOX_LOG";

/// What all lines of the service are about.
pub const TARGET: &str = "tracer";

/// Begins to log; `verbose`: so many `-v`, which win over the variable.
///
/// # Errors
/// The variable makes no sense.
pub fn begin(verbose: u8) -> Result<()> {
    let filter = filter(verbose, std::env::var(VARIABLE).ok().as_deref())?;
    let lines = tracing_subscriber::fmt::layer()
        .event_format(Line {
            journal: is_journal(std::env::var("JOURNAL_STREAM").ok().as_deref()),
        })
        .with_writer(io::stderr);
    tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .init();
    Ok(())
}

fn filter(verbose: u8, said: Option<&str>) -> Result<Targets> {
    let level = match verbose {
        0 => Level::INFO,
        1 => Level::DEBUG,
        _ => Level::TRACE,
    };
    match said.filter(|said| verbose == 0 && !said.is_empty()) {
        None => Ok(Targets::new().with_default(level)),
        Some(said) => said
            .trim()
            .parse()
            .map_err(|error| anyhow!("{VARIABLE} is `{said}`: {error}")),
    }
}

/// Whether standard error is the socket of journald's that the variable names: device and inode.
fn is_journal(stream: Option<&str>) -> bool {
    let named = stream.and_then(|stream| stream.split_once(':'));
    let named = named.and_then(|(device, inode)| Some((device.parse().ok()?, inode.parse().ok()?)));
    let own = fstat(io::stderr()).map(|own| (own.st_dev, own.st_ino));
    named.is_some() && named == own.ok()
}

/// How a line looks.
struct Line {
    journal: bool,
}

/// Severities of RFC 5424, section 6.2.1.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        match self.journal {
            true => write!(writer, "<{}>", priority(*event.metadata().level()))?,
            false => writer.write_str("agent-sandbox-tracer: ")?,
        }
        let mut text = String::new();
        context.format_fields(Writer::new(&mut text), event)?;
        // A line of ours is one line: behind a newline a name that users choose could begin one of its own, with a priority.
        for letter in text.chars() {
            match letter.is_control() {
                true => write!(writer, "{}", letter.escape_default())?,
                false => writer.write_char(letter)?,
            }
        }
        writeln!(writer)
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::filter::LevelFilter;

    use super::*;

    #[test]
    fn what_is_said_wins_and_nonsense_is_refused() {
        let logs = |verbose, said, level| {
            let filter = filter(verbose, said).unwrap();
            filter.would_enable(TARGET, &level)
        };
        assert!(logs(0, None, Level::INFO) && !logs(0, None, Level::DEBUG));
        assert!(logs(1, None, Level::DEBUG) && logs(2, Some("off"), Level::TRACE));
        assert!(logs(0, Some("tracer=debug"), Level::DEBUG));
        assert!(!logs(0, Some("chaperon=debug"), Level::INFO));
        assert!(filter(0, Some("tracer=loud")).is_err());
        let most = filter(3, None).unwrap().default_level();
        assert_eq!(most, Some(LevelFilter::TRACE));
    }

    #[test]
    fn a_text_with_newlines_is_one_line() {
        let (read, write) = nix::unistd::pipe().unwrap();
        let lines = tracing_subscriber::fmt::layer()
            .event_format(Line { journal: true })
            .with_writer(std::fs::File::from(write));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            tracing::info!(target: TARGET, "user \n<3>root: {}", "\u{1b}[2J");
        });
        let text = io::read_to_string(std::fs::File::from(read)).unwrap();
        assert_eq!(text, "<6>user \\n<3>root: \\x1b[2J\n");
    }

    #[test]
    fn journald_is_known_by_its_socket() {
        assert!(!is_journal(None) && !is_journal(Some("")) && !is_journal(Some("1:2")));
        let own = fstat(io::stderr()).unwrap();
        assert!(is_journal(Some(&format!("{}:{}", own.st_dev, own.st_ino))));
    }
}
