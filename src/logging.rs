//! What the launcher logs, for who looks into a launch: `-v`, `-vv`, `-vvv` and `AGENT_SANDBOX_LOG`. Names and
//! numbers, never values of variables, arguments or contents of files. Without either nothing is logged, and a
//! log statement costs one comparison.
//!
//! Lines go to standard error. While a command runs, a terminal is the command's: lines for it are held back until the
//! command is over.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: reads its variable, writes to standard error"
)]

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use agent_sandbox_wire::logging::{self, Lines};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::{Layer, SubscriberExt};

use crate::env_vars::LOG;
use crate::failure;

/// Lines that are held back, in bytes. Of what comes behind it is said how many lines they were.
const MOST_HELD: usize = 64 << 10;

/// What is logged, once that is known.
static FILTER: OnceLock<Targets> = OnceLock::new();
/// Lines for a terminal that a command has.
static HELD: Mutex<Option<HeldLines>> = Mutex::new(None);

/// Logs from now on what `-v`, given so many times, and the variable ask for.
pub fn start(verbose: u8) {
    let named = std::env::var_os(LOG).filter(|value| !value.is_empty());
    if verbose == 0 && named.is_none() {
        return;
    }
    let mut filter = Targets::new();
    if let Some(named) = named {
        match logging::filter(&named.to_string_lossy()) {
            Ok(read) => filter = read,
            Err(why) => {
                let shown = failure::one_line(&named.to_string_lossy());
                failure::say(&format!(
                    "agent-sandbox: warning: {LOG} is `{shown}`, which says nothing: {why}\n"
                ));
                if verbose == 0 {
                    return;
                }
            }
        }
    }
    let level = match verbose {
        0 => LevelFilter::OFF,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let level = filter
        .default_level()
        .unwrap_or(LevelFilter::OFF)
        .max(level);
    let filter = filter.with_default(level);
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_timer(SinceStart(Instant::now()))
        .with_writer(|| Lines(Stderr));
    let all = tracing_subscriber::registry().with(lines.with_filter(filter.clone()));
    // A second call in one process, as tests have them, changes nothing.
    if tracing::subscriber::set_global_default(all).is_ok() {
        let _ = FILTER.set(filter);
    }
}

/// The filter, for programs that log as well; `None`: nothing is logged.
pub fn filter() -> Option<String> {
    FILTER.get().map(Targets::to_string)
}

/// How long each of the stages of something takes.
#[derive(Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// The first stage begins.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// A stage is over, and the next one begins: how long it took.
    pub fn lap(&mut self) -> Duration {
        let now = Instant::now();
        now.duration_since(std::mem::replace(&mut self.0, now))
    }
}

/// Holds lines for a terminal back for as long as this lives.
#[derive(Debug)]
pub struct Held(());

/// See [`Held`]. Where standard error is no terminal, lines go on at once.
pub fn hold() -> Option<Held> {
    if FILTER.get().is_none() || !io::stderr().is_terminal() {
        return None;
    }
    let mut held = HELD.lock().ok()?;
    held.is_none().then(|| {
        *held = Some(HeldLines::default());
        Held(())
    })
}

impl Drop for Held {
    fn drop(&mut self) {
        let kept = HELD.lock().ok().and_then(|mut held| held.take());
        let Some(HeldLines { mut text, left_out }) = kept else {
            return;
        };
        if left_out > 0 {
            text.extend_from_slice(format!("agent-sandbox: {left_out} more lines\n").as_bytes());
        }
        let _ = io::stderr().lock().write_all(&text);
    }
}

#[derive(Debug, Default)]
struct HeldLines {
    text: Vec<u8>,
    left_out: usize,
}

/// Standard error, or what is held back of it.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match HELD.lock().as_deref_mut() {
            Ok(Some(kept)) if kept.text.len() + line.len() > MOST_HELD => kept.left_out += 1,
            Ok(Some(kept)) => kept.text.extend_from_slice(line),
            // There is nowhere left to report a closed standard error to.
            _ => drop(io::stderr().lock().write_all(line)),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Seconds since this was made.
struct SinceStart(Instant);

impl FormatTime for SinceStart {
    fn format_time(&self, to: &mut Writer<'_>) -> fmt::Result {
        write!(to, "agent-sandbox: {:.6}", self.0.elapsed().as_secs_f64())
    }
}
