//! The only unsafe code of the tests.

#![allow(unsafe_code)]

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Takes a descriptor that has just been received.
pub(crate) fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: the kernel made the descriptor for the message that was received, and each one is
    // taken once.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
