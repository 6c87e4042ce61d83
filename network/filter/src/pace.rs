//! How fast names may be asked for.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Queries in a [`PERIOD`]: what comes faster waits in the kernel, and what it cannot keep is dropped.
const MOST_IN_PERIOD: u32 = 500;
pub(crate) const PERIOD: Duration = Duration::from_millis(100);

/// Counts queries of a session, and waits where they are too many.
pub(crate) struct Pace {
    since: Instant,
    queries: u32,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self {
            since: Instant::now(),
            queries: 0,
        }
    }

    /// Counts one more, and waits for the next period where there were too many.
    pub(crate) async fn step(&mut self) {
        let end = self.since + PERIOD;
        if Instant::now() >= end {
            *self = Self::new();
        }
        self.queries += 1;
        if self.queries >= MOST_IN_PERIOD {
            sleep_until(end).await;
        }
    }
}
