//! Times of records as people read them. All are UTC and say so: the nodes of a job are compared.

const DAY: u64 = 86_400;
/// In seconds since 1970: the last second of the year 9999.
const LAST: f64 = 253_402_300_799.0;

/// The time of the day: `12:34:56`.
#[must_use]
pub fn of_day(time: f64) -> String {
    timestamp(time).strftime("%T").to_string()
}

/// Day and time: `2026-01-31 12:34:56 UTC`.
#[must_use]
pub fn date(time: f64) -> String {
    timestamp(time).strftime("%F %T UTC").to_string()
}

/// A span: `45 s`, `3 min 5 s`, `2 h 10 min`, `3 d 4 h`.
#[must_use]
pub fn span(seconds: f64) -> String {
    let all = whole(seconds);
    match all {
        0..=59 => format!("{all} s"),
        60..=3599 => format!("{} min {} s", all / 60, all % 60),
        3600..=86_399 => format!("{} h {} min", all / 3600, all / 60 % 60),
        _ => format!("{} d {} h", all / DAY, all / 3600 % 24),
    }
}

/// A time for which somebody was away: `2.5 s`, `3 min 5 s`.
#[must_use]
pub fn away(seconds: f64) -> String {
    match seconds < 60.0 {
        true => format!("{:.1} s", seconds.max(0.0)),
        false => span(seconds),
    }
}

/// A point in time from seconds since 1970; the first or the last that can be written where it is none.
fn timestamp(time: f64) -> jiff::Timestamp {
    jiff::Timestamp::from_second(whole(time).cast_signed()).unwrap_or(jiff::Timestamp::MAX)
}

/// Whole seconds; what cannot be a time is 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, and makes 0 of what is no number"
)]
fn whole(seconds: f64) -> u64 {
    seconds.clamp(0.0, LAST) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(date(0.0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(951_782_400.5), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(1_767_225_599.0), "2025-12-31 23:59:59 UTC");
        assert_eq!(date(f64::MAX), "9999-12-30 22:00:00 UTC");
        assert_eq!(date(f64::NAN), date(-5.0));
    }

    #[test]
    fn spans_have_two_parts_at_most() {
        assert_eq!(
            [5.9, 185.0, 7800.0, 273_600.0].map(span),
            ["5 s", "3 min 5 s", "2 h 10 min", "3 d 4 h"]
        );
        assert_eq!(
            [2.55, 61.0, -1.0].map(away),
            ["2.5 s", "1 min 1 s", "0.0 s"]
        );
        for odd in [f64::MAX, f64::INFINITY, f64::NAN, f64::MIN] {
            assert!(away(odd).len() < 20, "{}", away(odd));
        }
    }
}
