//! When a command is ended although it would go on: its time is over, or nothing has been done for too long. It gets
//! `SIGTERM`, and after a while everything in the jail `SIGKILL`.

use std::time::{Duration, Instant};

use super::activity::Signs;

/// The exit code of a command whose time was over, whatever it made of `SIGTERM` (`timeout(1)`).
pub const TIMED_OUT: u8 = 124;
/// How long a command may take to end after `SIGTERM`: what `docker stop` gives, and enough to write a state file.
const GRACE: Duration = Duration::from_secs(10);
/// How often is looked whether something is done. A node has many sessions, and each look wakes one.
const BETWEEN: Duration = Duration::from_secs(60);
/// Less processors' time between two looks is what an agent takes that waits for a person: timers, a cursor.
const LITTLE: Duration = Duration::from_secs(3);

/// Why a command was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// It ran for so long.
    Time(Duration),
    /// Nothing was done for so long.
    Idle(Duration),
}

/// What is to be done now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing.
    Nothing,
    /// Look whether something is done, and tell ([`Deadline::saw`]).
    Look,
    /// Say this.
    Warn(String),
    /// Ask the command to end, and say this.
    Terminate(String),
    /// End everything.
    Kill,
}

/// The time of a command.
#[derive(Debug, Default)]
pub struct Deadline {
    limit: Option<(Instant, Duration)>,
    idle: Option<Idle>,
    kill: Option<Instant>,
    over: Option<Over>,
}

/// Whether something is done.
#[derive(Debug)]
struct Idle {
    most: Duration,
    /// Who says so.
    rule: String,
    /// When something was done last, as far as looks tell.
    since: Instant,
    looked: Instant,
    look: Instant,
    seen: Signs,
    warned: bool,
}

impl Deadline {
    /// For a command that may run for so long from now on.
    pub fn after(time: Option<Duration>) -> Self {
        let limit = time.and_then(|time| Some((Instant::now().checked_add(time)?, time)));
        Self {
            limit,
            ..Self::default()
        }
    }

    /// And that may do nothing for so long. `rule` is the key and the place that says so.
    #[must_use]
    pub fn idle_for(mut self, most: Option<(Duration, String)>) -> Self {
        let now = Instant::now();
        self.idle = most.map(|(most, rule)| Idle {
            most,
            rule,
            since: now,
            looked: now,
            look: now + BETWEEN,
            seen: Signs::at_the_start(),
            warned: false,
        });
        self
    }

    /// Why the command was ended, if it was.
    pub fn over(&self) -> Option<Over> {
        self.over
    }

    /// When something is to be done next.
    pub(super) fn next(&self) -> Option<Instant> {
        match self.over {
            Some(_) => self.kill,
            None => {
                let limit = self.limit.map(|(at, _)| at);
                limit
                    .into_iter()
                    .chain(self.idle.as_ref().map(|idle| idle.look))
                    .min()
            }
        }
    }

    /// What is to be done at this time, told once.
    pub(super) fn due(&mut self, now: Instant) -> Due {
        if self.next().is_none_or(|at| now < at) {
            return Due::Nothing;
        }
        if self.over.is_some() {
            self.kill = None;
            return Due::Kill;
        }
        if let Some((_, time)) = self.limit.filter(|(at, _)| now >= *at) {
            let what = format!("the command's time of {} is over (--timeout)", words(time));
            return self.end(now, Over::Time(time), &what);
        }
        if let Some(idle) = &mut self.idle {
            idle.look = now + BETWEEN;
        }
        Due::Look
    }

    /// What follows of what was seen.
    pub(super) fn saw(&mut self, now: Instant, signs: Signs) -> Due {
        let Some(idle) = &mut self.idle else {
            return Due::Nothing;
        };
        let before = std::mem::replace(&mut idle.seen, signs.clone());
        let since = now.saturating_duration_since(idle.looked);
        idle.looked = now;
        let little = LITTLE.max(LITTLE.mul_f64(since.div_duration_f64(BETWEEN)));
        if signs.is_active_since(&before, little) {
            idle.since = now;
            idle.warned = false;
            return Due::Nothing;
        }
        let nothing = now.saturating_duration_since(idle.since);
        let (most, rule) = (idle.most, idle.rule.clone());
        if nothing >= most && idle.warned {
            let what = format!(
                "nothing was done in this session for {} ({rule})",
                words(most)
            );
            return self.end(now, Over::Idle(most), &what);
        }
        if nothing + BETWEEN >= most && !idle.warned {
            idle.warned = true;
            let done = words(Duration::from_secs(nothing.as_secs() / 60 * 60));
            return Due::Warn(format!(
                "agent-sandbox: nothing was done in this session for {done}: it ends in {} unless something is ({rule})\n",
                words(BETWEEN)
            ));
        }
        Due::Nothing
    }

    /// The command has stopped, and the launcher with it. There is no look before it matters, for each has the launcher go on,
    /// which its shell shows.
    pub(super) fn rests(&mut self) {
        if let Some(idle) = &mut self.idle {
            let matters = idle.since + idle.most.saturating_sub(BETWEEN);
            idle.look = idle.look.max(matters);
        }
    }

    /// The command goes on.
    pub(super) fn goes_on(&mut self, now: Instant) {
        if let Some(idle) = &mut self.idle {
            idle.look = idle.look.min(now + BETWEEN);
        }
    }

    /// Takes these signs, which are of what was said, for nothing.
    pub(super) fn forget(&mut self, signs: Signs) {
        if let Some(idle) = &mut self.idle {
            idle.seen = signs;
        }
    }

    fn end(&mut self, now: Instant, over: Over, what: &str) -> Due {
        self.over = Some(over);
        self.kill = Some(now + GRACE);
        let grace = words(GRACE);
        Due::Terminate(format!(
            "agent-sandbox: {what}: SIGTERM, and SIGKILL in {grace}\n"
        ))
    }
}

/// A time as the command line takes it.
fn words(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        _ if time.subsec_nanos() > 0 => format!("{}s", time.as_secs_f64()),
        0 => "0s".to_owned(),
        _ if seconds.is_multiple_of(3600) => format!("{}h", seconds / 3600),
        _ if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_asked_once_and_then_ended() {
        let time = Duration::from_secs(60);
        let mut deadline = Deadline::after(Some(time));
        let start = Instant::now();
        assert_eq!(deadline.due(start), Due::Nothing);
        let Due::Terminate(line) = deadline.due(start + time) else {
            panic!("nothing is due");
        };
        assert!(line.contains("time of 1m is over"), "{line}");
        assert_eq!(deadline.over(), Some(Over::Time(time)));
        assert_eq!(deadline.due(start + time), Due::Nothing);
        assert_eq!(deadline.due(start + time + GRACE), Due::Kill);
        assert_eq!(deadline.due(start + time + GRACE), Due::Nothing);
        assert_eq!(deadline.next(), None);
        assert_eq!(Deadline::after(None).next(), None);
    }

    fn signs(cpu: u64) -> Signs {
        Signs {
            cpu: Duration::from_secs(cpu),
            ..Signs::at_the_start()
        }
    }

    /// Looks each minute, with so much processors' time used until then; what follows of each look.
    fn looks(minutes: u64, used: &[u64]) -> Vec<Due> {
        let most = Duration::from_secs(60 * minutes);
        let mut deadline = Deadline::default().idle_for(Some((most, "rule".to_owned())));
        let start = Instant::now();
        let mut all = Vec::new();
        for (minute, used) in (1..).zip(used) {
            let now = start + BETWEEN * minute + Duration::from_secs(1);
            assert_eq!(deadline.due(now), Due::Look);
            assert_eq!(deadline.due(now), Due::Nothing, "looked at twice a minute");
            all.push(deadline.saw(now, signs(*used)));
            if deadline.over().is_some() {
                break;
            }
        }
        all
    }

    #[test]
    fn a_session_that_does_nothing_is_warned_and_ended() {
        let all = looks(3, &[1, 2, 3, 4]);
        assert_eq!(all[0], Due::Nothing);
        assert!(
            matches!(&all[1], Due::Warn(line) if line.contains("ends in 1m")),
            "{all:?}"
        );
        assert!(
            matches!(&all[2], Due::Terminate(line) if line.contains("for 3m (rule)")),
            "{all:?}"
        );
        // A minute passes between the two, however short the limit is.
        let all = looks(1, &[0, 0, 0]);
        assert!(
            matches!(&all[..2], [Due::Nothing | Due::Warn(_), _]),
            "{all:?}"
        );
        let warned = all.iter().position(|due| matches!(due, Due::Warn(_)));
        let ended = all.iter().position(|due| matches!(due, Due::Terminate(_)));
        assert_eq!(ended, warned.map(|at| at + 1), "{all:?}");
    }

    /// A command that has stopped is looked at when its limit is near, and ended as others are.
    #[test]
    fn a_session_that_is_stopped_is_warned_and_ended() {
        let most = BETWEEN * 60;
        let mut deadline = Deadline::default().idle_for(Some((most, "rule".to_owned())));
        let start = Instant::now() + Duration::from_secs(1);
        deadline.rests();
        assert_eq!(deadline.due(start + BETWEEN * 58), Due::Nothing);
        let near = start + BETWEEN * 59;
        assert_eq!(deadline.due(near), Due::Look);
        // What takes little for long takes more than that in all.
        assert!(matches!(deadline.saw(near, signs(100)), Due::Warn(_)));
        deadline.rests();
        assert_eq!(deadline.due(near + BETWEEN), Due::Look);
        let end = deadline.saw(near + BETWEEN, signs(100));
        assert!(matches!(end, Due::Terminate(_)), "{end:?}");
        // One that goes on is looked at as before.
        let mut deadline = Deadline::default().idle_for(Some((most, "rule".to_owned())));
        deadline.rests();
        deadline.goes_on(start);
        assert_eq!(deadline.due(start + BETWEEN), Due::Look);
    }

    #[test]
    fn a_session_that_works_goes_on() {
        let busy: Vec<u64> = (1..20).map(|minute| minute * 5).collect();
        assert!(looks(2, &busy).iter().all(|due| *due == Due::Nothing));
        // Warned, then busy, then idle again: warned again before it ends.
        let all = looks(3, &[0, 0, 30, 30, 30, 30]);
        let warned = all.iter().filter(|due| matches!(due, Due::Warn(_))).count();
        assert_eq!(warned, 2, "{all:?}");
        assert!(!matches!(all[2], Due::Terminate(_)), "{all:?}");
    }
}
