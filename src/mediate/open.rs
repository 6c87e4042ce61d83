//! `open(2) and its kin`.

use super::caller::Caller;
use super::{Answer, Context};

/// Answers the call.
pub fn open(_context: &Context, _caller: &Caller) -> Answer {
    Answer::Fail(libc::ENOSYS)
}
