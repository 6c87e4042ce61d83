//! `kill(2), prlimit(2), sched_setaffinity(2) and their kin`.

use super::caller::Caller;
use super::{Answer, Context};

/// Answers the call.
pub fn signal(_context: &Context, _caller: &Caller) -> Answer {
    Answer::Fail(libc::ENOSYS)
}
