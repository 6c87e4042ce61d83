//! When a command is ended although it would go on: its time is over. It gets `SIGTERM`, and after a while everything
//! in the jail `SIGKILL`.

use std::time::{Duration, Instant};

/// The exit code of a command whose time was over, whatever it made of `SIGTERM` (`timeout(1)`).
pub const TIMED_OUT: u8 = 124;
/// How long a command may take to end after `SIGTERM`: what `docker stop` gives, and enough to write a state file.
const GRACE: Duration = Duration::from_secs(10);

/// Why a command was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// It ran for so long.
    Time(Duration),
}

/// What is to be done now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing.
    Nothing,
    /// Ask the command to end, and say this.
    Terminate(String),
    /// End everything.
    Kill,
}

/// The time of a command.
#[derive(Debug, Default)]
pub struct Deadline {
    limit: Option<(Instant, Duration)>,
    kill: Option<Instant>,
    over: Option<Over>,
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

    /// Why the command was ended, if it was.
    pub fn over(&self) -> Option<Over> {
        self.over
    }

    /// When something is to be done next.
    pub(super) fn next(&self) -> Option<Instant> {
        match self.over {
            Some(_) => self.kill,
            None => self.limit.map(|(at, _)| at),
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
        let Some((_, time)) = self.limit else {
            return Due::Nothing;
        };
        self.over = Some(Over::Time(time));
        self.kill = Some(now + GRACE);
        let (time, grace) = (words(time), GRACE.as_secs());
        Due::Terminate(format!(
            "agent-sandbox: the command's time of {time} is over (--timeout): SIGTERM, and SIGKILL in {grace} s\n"
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
}
