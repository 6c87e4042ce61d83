//! The end of a jail: whatever is left of it is killed.
//!
//! What is left may fork as fast as it can. To kill one after the other makes room for more, so
//! every one is first kept from forking (`RLIMIT_NPROC`, which nobody inside can raise again) and
//! stopped; only when no new ones turn up are they killed.

#![allow(
    clippy::disallowed_methods,
    reason = "an effect module: it ends processes and reads the clock"
)]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use nix::unistd::{Pid, getpid};

use super::family::{self, Held};
use crate::sys::{process, remote};

/// How often is looked for new ones before those that are known are killed all the same.
const MOST_ROUNDS: usize = 64;
/// Between two looks at what has not ended yet.
const PAUSE: Duration = Duration::from_millis(1);
/// How long is waited when nothing ends any more. What has been killed and does not end waits in the
/// kernel for a device or a file server, and never runs again.
const PATIENCE: Duration = Duration::from_secs(5);

/// Kills every process below this one and waits for their end.
pub fn end_all() {
    end_below(&[]);
}

/// Kills every process below this one but for its children `own`, what stands below those, and waits
/// for their end. For a launcher that is a subreaper and has lost its mediator.
pub fn end_leftovers(own: &[Pid]) {
    let own: Vec<i32> = own.iter().map(|pid| pid.as_raw()).collect();
    end_below(&own);
}

fn end_below(spared: &[i32]) {
    let mut last_change = Instant::now();
    let mut before = 0;
    loop {
        let left = hold_still(spared);
        for (held, _) in left.values() {
            // One that is over meanwhile needs no signal.
            let _ = remote::signal(&held.descriptor, libc::SIGKILL, None);
        }
        let reaped = left.keys().filter(|&&number| reap(number)).count();
        let now = Instant::now();
        if left.is_empty() && family::below(getpid().as_raw(), spared).is_empty() {
            return;
        }
        if reaped > 0 || left.len() != before {
            last_change = now;
        }
        if now.duration_since(last_change) > PATIENCE {
            return;
        }
        before = left.len();
        drop(left);
        std::thread::sleep(PAUSE);
    }
}

/// Every process that is left, by its number, unable to fork and stopped; with its start.
fn hold_still(spared: &[i32]) -> HashMap<i32, (Held, u64)> {
    let own = getpid().as_raw();
    let mut still: HashMap<i32, (Held, u64)> = HashMap::new();
    for _ in 0..MOST_ROUNDS {
        let mut news = false;
        for number in family::below(own, spared) {
            let Ok(entry) = family::entry(number) else {
                continue;
            };
            if still
                .get(&number)
                .is_some_and(|(_, start)| *start == entry.start)
            {
                continue;
            }
            // Held first and looked at again then: the number is not another's by now.
            let Ok(held) = Held::new(number) else {
                continue;
            };
            if !family::is_below(number, own) {
                continue;
            }
            let _ = remote::limit(number, libc::RLIMIT_NPROC, Some((0, 0)));
            let _ = remote::signal(&held.descriptor, libc::SIGSTOP, None);
            still.insert(number, (held, entry.start));
            news = true;
        }
        if !news {
            break;
        }
    }
    still
}

/// Reaps a process if it is a child of this one and has ended.
fn reap(number: i32) -> bool {
    matches!(process::end_of(Pid::from_raw(number)), Ok(Some(_)))
}
