//! Time: of the kernel's events, and of people.

use nix::time::{ClockId, clock_gettime};

/// A moment, by two clocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Now {
    /// Nanoseconds since the boot (`CLOCK_BOOTTIME`), as the probes count.
    pub boot: u64,
    /// Seconds since 1970-01-01 00:00 UTC (`CLOCK_REALTIME`).
    pub wall: f64,
}

/// Nanoseconds in a second.
pub(super) const SECOND: u64 = 1_000_000_000;

impl Now {
    /// The present. A clock that cannot be read, which does not happen on Linux, says 0.
    #[must_use]
    pub fn read() -> Self {
        let read = |clock| {
            let time = clock_gettime(clock).ok()?;
            let seconds = u64::try_from(time.tv_sec()).ok()?;
            Some((seconds, u64::try_from(time.tv_nsec()).ok()?))
        };
        let (boot, boot_rest) = read(ClockId::CLOCK_BOOTTIME).unwrap_or_default();
        let (wall, wall_rest) = read(ClockId::CLOCK_REALTIME).unwrap_or_default();
        Self {
            boot: boot.saturating_mul(SECOND).saturating_add(boot_rest),
            wall: seconds(wall.saturating_mul(SECOND).saturating_add(wall_rest)),
        }
    }

    /// Whole seconds since 1970.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a clock that was read from an unsigned number"
    )]
    pub fn seconds(&self) -> u64 {
        self.wall as u64
    }

    /// Nanoseconds of a processor that this thread has taken (`CLOCK_THREAD_CPUTIME_ID`): what others take does not count.
    #[must_use]
    pub fn of_this_thread() -> u64 {
        let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
        let time = time.map(|time| (u64::try_from(time.tv_sec()), u64::try_from(time.tv_nsec())));
        match time {
            Ok((Ok(seconds), Ok(rest))) => seconds.saturating_mul(SECOND).saturating_add(rest),
            _ => 0,
        }
    }

    /// What people's clock said, or will say, at that time since the boot. The clock can be set meanwhile:
    /// times of one trail then jump as it did.
    #[must_use]
    pub fn at(&self, boot: u64) -> f64 {
        if boot >= self.boot {
            round(self.wall + seconds(boot - self.boot))
        } else {
            round(self.wall - seconds(self.boot - boot))
        }
    }
}

/// To a microsecond: what a record says.
pub(super) fn round(time: f64) -> f64 {
    (time * 1e6).round() / 1e6
}

/// Nanoseconds as seconds: to a quarter of a microsecond, which is what 53 bits hold of the time since 1970.
#[expect(clippy::cast_precision_loss, reason = "said above")]
pub(super) fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / SECOND as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_since_the_boot_becomes_that_of_people() {
        let now = Now {
            boot: 5 * SECOND,
            wall: 1000.0,
        };
        assert!((now.at(4 * SECOND) - 999.0).abs() < 1e-9);
        assert!((now.at(5 * SECOND + SECOND / 2) - 1000.5).abs() < 1e-9);
    }

    #[test]
    fn the_present_is_after_2024() {
        let now = Now::read();
        assert!(now.wall > 1_704_067_200.0 && now.boot > 0);
        let later = Now::read();
        assert!(later.boot >= now.boot);
        assert!((now.at(later.boot) - later.wall).abs() < 1.0);
    }
}
