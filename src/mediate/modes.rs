//! `chmod(2), chown(2), utimensat(2), setxattr(2) and their kin`.

use super::caller::Caller;
use super::{Answer, Context};

/// Answers the call.
pub fn change(_context: &Context, _caller: &Caller) -> Answer {
    Answer::Fail(libc::ENOSYS)
}
