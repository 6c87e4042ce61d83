//! How many queries a minute reach Slurm. More wait; none is refused.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Queries that may come at once before the pace holds.
const BURST: u32 = 20;

/// The pace of queries.
#[derive(Debug)]
pub struct Limiter {
    pace: Option<Duration>,
    /// When the next query would be due if all had kept the pace.
    due: Cell<Option<Instant>>,
}

impl Limiter {
    /// A pace; 0: none.
    pub fn new(per_minute: u32) -> Self {
        Self {
            pace: (per_minute > 0).then(|| Duration::from_secs(60) / per_minute),
            due: Cell::new(None),
        }
    }

    /// Waits until the next query may go.
    pub async fn turn(&self) {
        let Some(pace) = self.pace else { return };
        let now = Instant::now();
        let due = self.due.get().map_or(now, |due| due.max(now));
        self.due.set(Some(due + pace));
        if let Some(start) = due.checked_sub(pace * BURST)
            && start > now
        {
            sleep_until(start).await;
        }
    }
}
