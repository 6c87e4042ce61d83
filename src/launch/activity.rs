//! Signs that something is done in a session.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::stat::fstat;
use nix::unistd::isatty;

/// Processes that are looked at, at most: what a login node lets a user have.
const MOST_PROCESSES: usize = 10_000;
/// The unit of times in `/proc/PID/stat`, in parts of a second (`proc(5)`; the kernel's `USER_HZ`).
const TICKS: u64 = 100;

/// What can be seen of a session from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Signs {
    /// Processors' time of what is in the jail.
    pub(super) cpu: Duration,
    /// When its terminals were last read and written.
    pub(super) terminals: Vec<(i64, i64)>,
    /// Processors' time of the chaperon with what it has started: it works when somebody asks.
    pub(super) asked: Duration,
    /// Whether a command of Slurm's runs for the session.
    pub(super) asks: bool,
}

impl Signs {
    /// Those before anything was done.
    pub(super) fn at_the_start() -> Self {
        Self {
            terminals: terminals(),
            ..Self::default()
        }
    }

    /// Whether something was done since then. Less processors' time than `little` is nothing.
    pub(super) fn is_active_since(&self, before: &Self, little: Duration) -> bool {
        self.cpu.saturating_sub(before.cpu) >= little
            || self.terminals != before.terminals
            || self.asked != before.asked
            || self.asks
    }
}

/// When the terminals among the standard streams were last read (somebody typed) and written. The kernel notes it to 8
/// seconds (`tty_update_time`).
pub(super) fn terminals() -> Vec<(i64, i64)> {
    let (input, output, error) = (io::stdin(), io::stdout(), io::stderr());
    let streams: [BorrowedFd<'_>; 3] = [input.as_fd(), output.as_fd(), error.as_fd()];
    let terminals = streams.into_iter().filter(|fd| isatty(fd).unwrap_or(false));
    let times = terminals.filter_map(|fd| fstat(fd).ok());
    times
        .map(|found| (found.st_atime, found.st_mtime))
        .collect()
}

/// Processors' time of a process, of what it has started, and of those that each of them has waited for.
pub(super) fn cpu_of(process: u32) -> Duration {
    let mut all = Duration::ZERO;
    let mut waiting = vec![process];
    let mut seen = 0;
    while let Some(pid) = waiting.pop() {
        seen += 1;
        if seen > MOST_PROCESSES {
            break;
        }
        all += own_cpu(pid);
        waiting.extend(children(pid));
    }
    all
}

/// What a process has started and runs.
pub(super) fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    let lists = tasks.flatten().map(|task| {
        let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        list.split_ascii_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect::<Vec<u32>>()
    });
    lists.flatten().collect()
}

/// Fields 14 to 17 of `/proc/PID/stat` (`proc_pid_stat(5)`); nothing of one that is gone.
fn own_cpu(pid: u32) -> Duration {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The program's name stands in parentheses and may hold anything.
    let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let times = rest.split_ascii_whitespace().skip(11).take(4);
    let ticks: u64 = times.filter_map(|time| time.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks.saturating_mul(1000 / TICKS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sign_counts_and_a_little_time_does_not() {
        let little = Duration::from_secs(3);
        let still = Signs {
            cpu: Duration::from_secs(7),
            terminals: vec![(1, 1)],
            ..Signs::default()
        };
        let later = |change: fn(&mut Signs)| {
            let mut signs = still.clone();
            change(&mut signs);
            signs.is_active_since(&still, little)
        };
        assert!(!later(|_| {}));
        assert!(!later(|signs| signs.cpu += Duration::from_secs(2)));
        // Of processes for which nobody waited the time is gone with them.
        assert!(!later(|signs| signs.cpu = Duration::ZERO));
        assert!(later(|signs| signs.cpu += Duration::from_secs(3)));
        assert!(later(|signs| signs.terminals = vec![(1, 9)]));
        assert!(later(|signs| signs.asked = Duration::from_millis(10)));
        assert!(later(|signs| signs.asks = true));
    }

    #[test]
    fn the_time_of_a_process_is_counted() {
        let own = std::process::id();
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while own_cpu(own) < Duration::from_millis(20) {
            assert!(std::time::Instant::now() < until, "it never grows");
        }
        // It runs on between the two readings.
        let first = own_cpu(own);
        assert!(cpu_of(own) >= first);
    }
}
