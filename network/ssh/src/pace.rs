//! How fast logins are signed: each stands in the audit record, of which what is inside must not make a flood.

use std::time::{Duration, Instant};

/// Signatures that are made at once.
const AT_ONCE: u32 = 60;
/// One more is made after this.
const EVERY: Duration = Duration::from_secs(1);

/// Counts signatures.
#[derive(Debug)]
pub(crate) struct Pace {
    left: u32,
    /// Since when another one is earned.
    since: Instant,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            left: AT_ONCE,
            since: now,
        }
    }

    /// How long the next signature waits.
    pub(crate) fn step(&mut self, now: Instant) -> Duration {
        while self.left < AT_ONCE && now.duration_since(self.since) >= EVERY {
            self.left += 1;
            self.since += EVERY;
        }
        if self.left == AT_ONCE {
            self.since = now;
        }
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            return Duration::ZERO;
        }
        // The time for it is spent before it comes.
        self.since += EVERY;
        self.since.duration_since(now)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // a test: the clock
mod tests {
    use super::*;

    #[test]
    fn the_first_wait_for_nothing_and_then_each_for_its_second() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        for _ in 0..AT_ONCE {
            assert_eq!(pace.step(start), Duration::ZERO);
        }
        assert_eq!(pace.step(start), EVERY);
        assert_eq!(pace.step(start), 2 * EVERY);
        // Both have been made, and two are earned.
        let later = start + 4 * EVERY;
        assert_eq!(pace.step(later), Duration::ZERO);
        assert_eq!(pace.step(later), Duration::ZERO);
        assert_eq!(pace.step(later), EVERY);
    }
}
