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
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use nix::sys::resource::Resource;
use nix::unistd::{Pid, getpid};

use super::context::{Context, locked};
use super::family::{self, Held};
use crate::access::Permission;
use agent_sandbox_base::sys::{process, remote};

/// How often new processes are looked for before the known ones are killed anyway.
const MOST_ROUNDS: usize = 64;
/// Between two looks at what has not ended yet.
const PAUSE: Duration = Duration::from_millis(1);
/// How long to wait once nothing ends any more. A process that was killed and does not end waits in the
/// kernel for a device or a file server, and never runs again.
const PATIENCE: Duration = Duration::from_secs(5);

/// Kills every process below this one and waits for their end.
pub fn end_all() {
    end_below(&|_| false);
}

/// When a process began, in the kernel's clock ticks since the machine did.
///
/// # Errors
/// `ESRCH` if there is none with this number.
pub fn start_of(process: Pid) -> io::Result<u64> {
    Ok(family::entry(process.as_raw())?.start)
}

/// Kills what is left of a jail whose mediator began at `since`, and waits for its end. For a launcher
/// that is a subreaper and has lost its mediator.
///
/// A launcher may have other children, from before: a shell that had some became it. What they leave
/// comes to it as well. Neither bears what every process of the jail does.
pub fn end_leftovers(since: u64) {
    end_below(&|number| {
        let is_younger = family::entry(number).is_ok_and(|entry| entry.start >= since);
        !(is_younger && family::is_of_a_jail(number))
    });
}

/// Removes the files that the jail made in shared directories, where a mount would go with the jail.
/// When nobody of the jail is left: what has the name and the inode of such a file is one.
pub fn remove_made(context: &Context) {
    let made = locked(&context.made);
    let entries = context.config.access_map.entries().iter();
    for mapped in entries.filter(|mapped| mapped.permission == Permission::Own && !made.is_empty())
    {
        for entry in fs::read_dir(mapped.path()).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else {
                continue;
            };
            if found.is_file() && made.contains(&(found.dev(), found.ino())) {
                // It is gone already, or somebody else's business.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

fn end_below(spared: &dyn Fn(i32) -> bool) {
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
fn hold_still(spared: &dyn Fn(i32) -> bool) -> HashMap<i32, (Held, u64)> {
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
            let _ = remote::limit(number, Resource::RLIMIT_NPROC as u32, Some((0, 0)));
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
