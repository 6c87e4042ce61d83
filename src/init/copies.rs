//! Signals that come twice. Slurm sends a signal to the launcher alone (`scancel --batch`,
//! `proctrack/cgroup`), or to every process of the job (`proctrack/linuxproc`, a process group):
//! then the command has its own copy, and init, which stands beside it, has one, too. The launcher
//! cannot tell and hands each of its own on; the command must get one.

use std::time::{Duration, Instant};

/// Copies of one signal are sent in a loop over the processes, within far less than this; a person
/// does not notice it.
const WINDOW: Duration = Duration::from_millis(30);

/// What came lately, and what waits for its copy.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// Signals that init got from outside of the jail and the launcher has not handed on.
    seen: Vec<(i32, Instant)>,
    /// Signals that the launcher handed on, and until when a copy may come.
    waiting: Vec<(i32, Instant)>,
}

impl Copies {
    /// Init got a signal from outside: so did the command.
    pub(super) fn seen(&mut self, number: i32, now: Instant) {
        if !take(&mut self.waiting, number) {
            self.forget(now);
            self.seen.push((number, now));
        }
    }

    /// The launcher hands a signal on.
    pub(super) fn handed_on(&mut self, number: i32, now: Instant) {
        self.forget(now);
        if !take(&mut self.seen, number) {
            self.waiting.push((number, now + WINDOW));
        }
    }

    /// Signals of which no copy came: the command gets them now.
    pub(super) fn due(&mut self, now: Instant) -> Vec<i32> {
        let due = self.waiting.iter().filter(|(_, until)| *until <= now);
        let numbers = due.map(|(number, _)| *number).collect();
        self.waiting.retain(|(_, until)| *until > now);
        numbers
    }

    /// When there is something to do.
    pub(super) fn next(&self) -> Option<Instant> {
        self.waiting.iter().map(|(_, until)| *until).min()
    }

    fn forget(&mut self, now: Instant) {
        self.seen.retain(|(_, at)| *at + WINDOW > now);
    }
}

fn take(list: &mut Vec<(i32, Instant)>, number: i32) -> bool {
    let at = list.iter().position(|(other, _)| *other == number);
    at.map(|at| list.remove(at)).is_some()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;

    const TERM: i32 = libc::SIGTERM;
    const USR1: i32 = libc::SIGUSR1;

    #[test]
    fn a_signal_for_the_launcher_alone_is_handed_on_after_a_while() {
        let (mut copies, start) = (Copies::default(), Instant::now());
        copies.handed_on(TERM, start);
        assert!(copies.due(start).is_empty());
        assert_eq!(copies.next(), Some(start + WINDOW));
        assert_eq!(copies.due(start + WINDOW), [TERM]);
        assert!(copies.due(start + 2 * WINDOW).is_empty());
        assert_eq!(copies.next(), None);
    }

    #[test]
    fn a_signal_for_every_process_is_not_handed_on_whichever_copy_comes_first() {
        let (mut copies, start) = (Copies::default(), Instant::now());
        copies.handed_on(TERM, start);
        copies.seen(TERM, start + WINDOW / 2);
        assert!(copies.due(start + 2 * WINDOW).is_empty());
        let later = start + 3 * WINDOW;
        copies.seen(TERM, later);
        copies.handed_on(TERM, later + WINDOW / 2);
        assert!(copies.due(later + 2 * WINDOW).is_empty());
    }

    #[test]
    fn another_signal_and_an_old_copy_keep_nothing_back() {
        let (mut copies, start) = (Copies::default(), Instant::now());
        copies.seen(USR1, start);
        copies.handed_on(TERM, start);
        assert_eq!(copies.due(start + WINDOW), [TERM]);
        copies.handed_on(USR1, start + 2 * WINDOW);
        assert_eq!(copies.due(start + 3 * WINDOW), [USR1]);
    }

    #[test]
    fn two_signals_of_a_kind_have_a_copy_each() {
        let (mut copies, start) = (Copies::default(), Instant::now());
        copies.handed_on(USR1, start);
        copies.handed_on(USR1, start);
        copies.seen(USR1, start);
        assert_eq!(copies.due(start + WINDOW), [USR1]);
    }
}
