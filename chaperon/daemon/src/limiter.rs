//! How many queries a minute reach Slurm. More wait; none is refused.
//!
//! The pace is the session's, whose jobs and steps have chaperons of their own: when the next query is due
//! stands in a file of the state directory. Where that cannot be locked, each chaperon keeps the pace for
//! itself.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: a file that chaperons share, and the time"
)]

use std::cell::Cell;
use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::locks;

/// Queries that may come at once before the pace holds.
const BURST: u32 = 20;

/// How long another chaperon may hold the lock. It reads and writes a number.
const PATIENCE: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(2);

/// The clock of another node may be wrong by less than this.
const FURTHEST: Duration = Duration::from_secs(600);

/// Digits of a time in microseconds: enough for 300000 years.
const DIGITS: usize = 19;

/// The pace of queries.
#[derive(Debug)]
pub struct Limiter {
    pace: Option<Duration>,
    /// Where it is kept for all chaperons of the session.
    file: PathBuf,
    /// When the next query would be due if all of this chaperon's had kept the pace, since 1970-01-01
    /// 00:00 UTC.
    due: Cell<Duration>,
}

impl Limiter {
    /// A pace, which is kept in `file`; 0: none.
    pub fn new(per_minute: u32, file: PathBuf) -> Self {
        Self {
            pace: (per_minute > 0).then(|| Duration::from_secs(60) / per_minute),
            file,
            due: Cell::default(),
        }
    }

    /// Waits until the next query may go.
    pub async fn turn(&self) {
        let Some(pace) = self.pace else { return };
        let due = match self.of_session(pace).await {
            Ok(due) => due,
            Err(_) => {
                let due = self.due.get().max(now());
                self.due.set(due + pace);
                due
            }
        };
        let wait = due.saturating_sub(pace * BURST).saturating_sub(now());
        if !wait.is_zero() {
            tracing::debug!(target: "slurm", ?wait, "more queries than the limit: waits");
            tokio::time::sleep(wait).await;
        }
    }

    /// When this query is due; the next one is due a pace later.
    async fn of_session(&self, pace: Duration) -> io::Result<Duration> {
        let open = || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                .open(&self.file)
        };
        let file = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let directory = self.file.parent().ok_or(error)?;
                DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(directory)?;
                open()?
            }
            other => other?,
        };
        let begun = now();
        while !locks::try_lock(&file)? {
            if now().saturating_sub(begun) > PATIENCE {
                return Err(io::ErrorKind::TimedOut.into());
            }
            tokio::time::sleep(AGAIN).await;
        }
        let mut text = [0; DIGITS];
        let length = file.read_at(&mut text, 0)?;
        let kept: u64 = str::from_utf8(&text[..length])
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        let now = now();
        let due = Duration::from_micros(kept).clamp(now, now + FURTHEST);
        let next = format!("{:0DIGITS$}", (due + pace).as_micros());
        file.write_all_at(next.as_bytes(), 0)?;
        Ok(due)
    }
}

/// Since 1970-01-01 00:00 UTC.
fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
