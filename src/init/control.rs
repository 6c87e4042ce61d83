//! What init tells the launcher, and is told by it.

use crate::handoff::{LONGEST_DATAGRAM, Report, Request};
use crate::sys::passing;
use nix::sys::socket::MsgFlags;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Exit code for a jail that could not be finished; the launcher has the reason.
pub(super) const FAILED: i32 = 125;

/// The socket to the launcher.
pub(super) struct Control(pub(super) OwnedFd);

impl Control {
    pub(super) fn send(&self, report: &Report) {
        self.send_with(report, None);
    }

    pub(super) fn send_with(&self, report: &Report, fd: Option<BorrowedFd<'_>>) {
        // A launcher that is gone takes the jail with it; there is nothing to do about it here.
        if let Ok(text) = postcard::to_allocvec(report) {
            let _ = passing::send(&self.0, &text, fd);
        }
    }

    pub(super) fn send_many(&self, report: &Report, fds: &[BorrowedFd<'_>]) -> std::io::Result<()> {
        let text = postcard::to_allocvec(report).map_err(std::io::Error::other)?;
        passing::send_many(&self.0, &text, fds)
    }

    /// The next request; `None` when the launcher is gone.
    pub(super) fn receive(&self) -> Option<Request> {
        let mut buffer = [0; LONGEST_DATAGRAM];
        match passing::receive(&self.0, &mut buffer, MsgFlags::empty()) {
            Ok((0, _)) | Err(_) => None,
            Ok((length, _)) => postcard::from_bytes(&buffer[..length]).ok(),
        }
    }
}
