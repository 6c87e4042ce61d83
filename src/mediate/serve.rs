//! Takes calls from the listener and answers them, on as many threads as wait for something.

use super::caller::Caller;
use super::{Answer, Context, connect, modes, open, processes, tree};

/// Who answers a call; `None` for one that the filter does not hand over.
type Handler = fn(&Context, &Caller) -> Answer;

/// The handler of a call by its number.
pub fn handler(number: i32) -> Option<Handler> {
    let handler: Handler = match i64::from(number) {
        libc::SYS_connect => connect::connect,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open | libc::SYS_creat => open::open,
        libc::SYS_openat => open::open,
        libc::SYS_fchmodat | libc::SYS_fchmod => modes::change,
        libc::SYS_renameat2 => tree::change,
        libc::SYS_kill => processes::signal,
        _ => return None,
    };
    Some(handler)
}
