//! How much of the tracer's time each user's commands may take: looking for secrets costs what their authors like.

use std::collections::HashMap;

use super::clock::SECOND;

/// Nanoseconds of the processor that one user's commands may take in a second of the clock. A command of a hundred bytes
/// takes up to ten microseconds: that is five thousand programs started each second.
const RATE: u64 = SECOND / 20;

/// So much may be taken at once.
const BURST: u64 = SECOND / 4;

/// What users have taken and not been given back yet, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Allowance(HashMap<u32, u64>);

impl Allowance {
    /// Whether the user has time left.
    pub(super) fn has(&self, uid: u32) -> bool {
        self.0.get(&uid).is_none_or(|taken| *taken < BURST)
    }

    /// The user has taken so many nanoseconds.
    pub(super) fn take(&mut self, uid: u32, nanoseconds: u64) {
        let taken = self.0.entry(uid).or_default();
        *taken = taken.saturating_add(nanoseconds);
    }

    /// So many nanoseconds have passed. Who owes nothing is forgotten.
    pub(super) fn pass(&mut self, nanoseconds: u64) {
        let back = nanoseconds / (SECOND / RATE);
        self.0.retain(|_, taken| {
            *taken = taken.saturating_sub(back);
            *taken > 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_too_much_waits_and_nobody_else_does() {
        let mut allowance = Allowance::default();
        allowance.take(1, BURST - 1);
        assert!(allowance.has(1));
        allowance.take(1, BURST);
        assert!(!allowance.has(1));
        assert!(allowance.has(2));
        allowance.pass(SECOND);
        assert!(!allowance.has(1), "a second gives a twentieth of one back");
        allowance.pass(5 * SECOND);
        assert!(allowance.has(1));
        allowance.pass(10 * SECOND);
        assert!(allowance.0.is_empty());
    }
}
