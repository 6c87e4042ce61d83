//! `connect(2)`.

use super::caller::Caller;
use super::{Answer, Context};

/// Answers the call.
pub fn connect(_context: &Context, _caller: &Caller) -> Answer {
    Answer::Fail(libc::ENOSYS)
}
