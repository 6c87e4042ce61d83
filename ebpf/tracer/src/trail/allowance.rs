//! How much of the tracer's time each user's commands may take: looking for secrets costs what their authors like.

use std::collections::HashMap;

use super::clock::SECOND;

/// What so many seconds give may be taken at once.
const BURST: u64 = 5;

/// What users have taken and not been given back yet.
#[derive(Debug)]
pub(super) struct Allowance {
    /// Milliseconds of the processor that one user's commands may take in a second of the clock.
    rate: u32,
    /// In nanoseconds, by user.
    taken: HashMap<u32, u64>,
}

impl Allowance {
    pub(super) fn new(rate: u32) -> Self {
        Self {
            rate,
            taken: HashMap::new(),
        }
    }

    /// Commands may take so many milliseconds a second from now on.
    pub(super) fn set(&mut self, rate: u32) {
        self.rate = rate;
    }

    /// Whether the user has time left.
    pub(super) fn has(&self, uid: u32) -> bool {
        let most = BURST * self.in_a_second();
        self.taken.get(&uid).is_none_or(|taken| *taken < most)
    }

    /// In nanoseconds.
    fn in_a_second(&self) -> u64 {
        SECOND / 1000 * u64::from(self.rate)
    }

    /// The user has taken so many nanoseconds.
    pub(super) fn take(&mut self, uid: u32, nanoseconds: u64) {
        let taken = self.taken.entry(uid).or_default();
        *taken = taken.saturating_add(nanoseconds);
    }

    /// So many nanoseconds have passed. Who owes nothing is forgotten.
    pub(super) fn pass(&mut self, nanoseconds: u64) {
        let back = nanoseconds / 1000 * u64::from(self.rate);
        self.taken.retain(|_, taken| {
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
        let mut allowance = Allowance::new(50);
        allowance.take(1, SECOND / 4 - 1);
        assert!(allowance.has(1));
        allowance.take(1, SECOND / 4);
        assert!(!allowance.has(1));
        assert!(allowance.has(2));
        allowance.pass(SECOND);
        assert!(!allowance.has(1), "a second gives a twentieth of one back");
        allowance.pass(5 * SECOND);
        assert!(allowance.has(1));
        allowance.pass(10 * SECOND);
        assert!(allowance.taken.is_empty());
        allowance.take(1, SECOND);
        assert!(!allowance.has(1));
        allowance.set(1000);
        assert!(allowance.has(1), "a site may give more");
    }
}
