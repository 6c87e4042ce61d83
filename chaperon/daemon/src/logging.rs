//! What the chaperon logs, into the file that the launcher gave it as standard error, and the audit record, which is a
//! layer beside that: whatever is logged or not, each request is recorded.
//!
//! Names, numbers and verdicts, never arguments, scripts or values of variables.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: reads its variable, writes to standard error"
)]

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_sandbox_wire::logging::{self, Lines};
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::writer::MakeWriterExt;
use tracing_subscriber::layer::{Layer, SubscriberExt};

use crate::audit::AuditLayer;

/// Log lines of one session, in bytes. What is inside can ask again and again, and each request has lines.
const MOST_LOGGED: usize = 8 << 20;

/// Warnings and errors, in bytes. They have room of their own, which no flood of requests takes.
const MOST_WARNINGS: usize = 1 << 20;

/// Logs from now on what the launcher says, and writes the audit record as a part of it. Without a word of the launcher's
/// nothing is logged, and records are written by hand: a registry of spans takes 32 KiB, a tenth of an idle chaperon.
pub fn start(audit: AuditLayer) {
    let said = std::env::var(logging::VARIABLE).ok();
    let Some(filter) = said.and_then(|text| logging::filter(&text).ok()) else {
        return;
    };
    let up_to = |most| {
        let room = Arc::new(AtomicUsize::new(most));
        move || Lines(Stderr(Arc::clone(&room)))
    };
    let (requests, warnings) = (up_to(MOST_LOGGED), up_to(MOST_WARNINGS));
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(requests.with_min_level(Level::INFO).or_else(warnings))
        .with_filter(filter);
    let audit = audit.with_filter(Targets::new().with_target(logging::AUDIT, LevelFilter::INFO));
    let all = tracing_subscriber::registry().with(lines).with(audit);
    // A process serves one session. If another's layers stood there, records would be written all the same.
    let _ = tracing::subscriber::set_global_default(all);
}

/// Standard error, as long as there is room.
struct Stderr(Arc<AtomicUsize>);

impl Write for Stderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let room = self.0.load(Ordering::Relaxed);
        if let Some(rest) = room.checked_sub(line.len()) {
            self.0.store(rest, Ordering::Relaxed);
            io::stderr().lock().write_all(line)?;
        } else if self.0.swap(0, Ordering::Relaxed) > 0 {
            io::stderr()
                .lock()
                .write_all(b"no more lines of this kind are logged of this session\n")?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
