//! How much happened in the last seconds.

use agent_sandbox_events::record::Verdict;

use super::counts::Counts;

/// Seconds over which a rate is taken: short enough to follow, long enough to be read.
const WINDOW: u64 = 5;
/// Seconds that are kept: records come late, and of several nodes.
const KEPT: usize = 16;

/// Counts of the last seconds.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    /// The second, and what was in it; at the index of the second modulo [`KEPT`].
    seconds: [(u64, Counts); KEPT],
}

impl Rates {
    /// Counts a verdict at its time, in seconds since 1970.
    pub fn add(&mut self, time: f64, verdict: &Verdict) {
        let second = second(time);
        let slot = &mut self.seconds[index(second)];
        if slot.0 < second {
            *slot = (second, Counts::default());
        }
        if slot.0 == second {
            slot.1.add(verdict);
        }
    }

    /// Events a second up to now, rounded up: what happens is never 0.
    #[must_use]
    pub fn now(&self, time: f64) -> Counts {
        // The second that goes on is not whole.
        let end = second(time);
        let begin = end.saturating_sub(WINDOW);
        let mut sum = Counts::default();
        for (second, counts) in &self.seconds {
            if (begin..end).contains(second) {
                sum.allowed = sum.allowed.saturating_add(counts.allowed);
                sum.denied = sum.denied.saturating_add(counts.denied);
                sum.failed = sum.failed.saturating_add(counts.failed);
                sum.would_deny = sum.would_deny.saturating_add(counts.would_deny);
                sum.not_run = sum.not_run.saturating_add(counts.not_run);
            }
        }
        Counts {
            allowed: sum.allowed.div_ceil(WINDOW),
            denied: sum.denied.div_ceil(WINDOW),
            failed: sum.failed.div_ceil(WINDOW),
            would_deny: sum.would_deny.div_ceil(WINDOW),
            not_run: sum.not_run.div_ceil(WINDOW),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it saturates, and a time that is none has no rate"
)]
fn second(time: f64) -> u64 {
    time.max(0.0) as u64
}

fn index(second: u64) -> usize {
    usize::try_from(second % KEPT as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_last_seconds() {
        let denied = |count| Verdict {
            verdict: "denied".into(),
            count,
            ..Verdict::default()
        };
        let mut rates = Rates::default();
        rates.add(100.5, &denied(10));
        rates.add(101.5, &denied(5));
        assert_eq!(rates.now(102.0).denied, 3);
        assert_eq!(rates.now(106.0).denied, 1);
        assert_eq!(rates.now(107.0).denied, 0);
        // What is older than all that is kept takes nothing's place.
        rates.add(10.0, &denied(1000));
        rates.add(f64::NAN, &denied(1000));
        assert_eq!(rates.now(102.0).denied, 3);
    }
}
