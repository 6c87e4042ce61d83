//! Closing what users have sent. `close(2)` can take as long as somebody else likes: that of an opened file asks the
//! server of its file system (FLUSH, of FUSE), and the last one lets go of its locks (FUSE, NFS); that of a
//! connection closes the descriptors that nobody has taken from it. So each user has a thread that closes theirs,
//! as long as there is something: one that hangs is that user's own.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// A user of whom so many wait to be closed is not heard any more. More than all connections of one launch and what
/// they bring.
const MOST: usize = 2048;

/// What a thread does needs little.
const STACK: usize = 64 << 10;

/// What is to be closed, by its user.
#[derive(Debug, Default)]
pub struct Closing {
    hands: BTreeMap<u32, Hand>,
    /// There was no thread to be had for these.
    left: Vec<(u32, Vec<OwnedFd>)>,
}

#[derive(Debug)]
struct Hand {
    send: Sender<Vec<OwnedFd>>,
    pending: Arc<AtomicUsize>,
}

impl Hand {
    fn new() -> Option<Self> {
        let (send, receive) = channel();
        let pending = Arc::new(AtomicUsize::new(0));
        let left = pending.clone();
        let thread = thread::Builder::new()
            .name("closing".to_owned())
            .stack_size(STACK)
            .spawn(move || close_all(&receive, &left));
        thread.ok().map(|_| Self { send, pending })
    }
}

fn close_all(receive: &Receiver<Vec<OwnedFd>>, left: &AtomicUsize) {
    while let Ok(some) = receive.recv() {
        for one in some {
            drop(one);
            left.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Closing {
    /// Closes these, some time.
    pub fn close(&mut self, uid: u32, some: Vec<OwnedFd>) {
        if some.is_empty() {
            return;
        }
        let hand = match self.hands.entry(uid) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => match Hand::new() {
                Some(hand) => entry.insert(hand),
                None => return self.left.push((uid, some)),
            },
        };
        hand.pending.fetch_add(some.len(), Ordering::SeqCst);
        // Its thread ends when the other end of this is gone, and not before.
        let _ = hand.send.send(some);
    }

    /// Whether so many of a user's wait that no more are taken.
    #[must_use]
    pub fn is_full(&self, uid: u32) -> bool {
        let hand = self.hands.get(&uid);
        let pending = hand.map_or(0, |hand| hand.pending.load(Ordering::SeqCst));
        let own = self.left.iter().filter(|(user, _)| *user == uid);
        pending + own.map(|(_, some)| some.len()).sum::<usize>() > MOST
    }

    /// Threads that have nothing to do end, and what is left is tried again.
    pub fn tidy(&mut self) {
        self.hands
            .retain(|_, hand| hand.pending.load(Ordering::SeqCst) > 0);
        for (uid, some) in std::mem::take(&mut self.left) {
            self.close(uid, some);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::disallowed_methods,
        reason = "opens files, and waits for a thread"
    )]

    use std::fs::File;
    use std::time::{Duration, Instant};

    use nix::sys::resource::{Resource, getrlimit, setrlimit};

    use super::*;

    #[test]
    fn what_is_given_to_it_is_closed_and_no_thread_stays() {
        let mut closing = Closing::default();
        let (reading, writing) = nix::unistd::pipe().unwrap();
        closing.close(7, vec![writing]);
        // The end of what was written comes when the other end is closed.
        let mut byte = [0];
        assert_eq!(nix::unistd::read(&reading, &mut byte), Ok(0));
        closing.close(8, Vec::new());
        assert!(!closing.hands.contains_key(&8) && !closing.is_full(7));
        let begin = Instant::now();
        while !closing.hands.is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(10));
            closing.tidy();
        }
    }

    #[test]
    fn a_user_of_whom_too_many_wait_is_full_and_nobody_else() {
        // More files than a process may have open at first, mostly.
        let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
        let mut closing = Closing::default();
        let file = || OwnedFd::from(File::open("/").unwrap());
        closing.left.push((7, vec![file()]));
        closing.left.push((8, (0..=MOST).map(|_| file()).collect()));
        assert!(closing.is_full(8) && !closing.is_full(7) && !closing.is_full(9));
        closing.tidy();
        assert!(closing.left.is_empty());
        let begin = Instant::now();
        while closing.is_full(8) {
            assert!(begin.elapsed() < Duration::from_secs(10));
        }
    }
}
