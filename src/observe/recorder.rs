//! Takes the calls that are handed over, looks at them, and lets the kernel go on; or hears of them from a
//! mediator, which looks at them as well.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::MsgFlags;

use super::seen::Seen;
use super::trail::Traced;
use crate::mediate::caller::Caller;
use crate::mediate::sight::{self, Sighting};
use crate::sys::notify::{self, Buffers};
use crate::sys::passing;

/// As many calls are answered before the supervisor looks at its other duties.
const MOST_AT_A_TIME: usize = 64;
/// No sighting is longer: two paths of `PATH_MAX`, one behind the other, and a few bytes.
const LONGEST_SIGHTING: usize = 16 * 1024;

/// What watches a run. The launcher's supervisor calls it, and what asked for the run has it as well.
pub type Shared = Rc<RefCell<Recorder>>;

/// Watches a run.
#[derive(Default)]
pub struct Recorder {
    /// What it saw.
    pub seen: Seen,
    /// The trace of the run, if the node's tracer has begun one.
    pub traced: Option<Traced>,
    source: Option<Source>,
}

/// From where it knows.
enum Source {
    /// The listener of the filter that hands calls over.
    Listener(Arc<OwnedFd>, Buffers),
    /// A socket whose other end the mediator has ([`sight::tell`]).
    Mediator(Arc<OwnedFd>),
}

impl Recorder {
    /// One that several have.
    #[must_use]
    pub fn shared() -> Shared {
        Rc::default()
    }

    /// Begins to listen.
    ///
    /// # Errors
    /// The kernel has no notifications. Calls fail with `ENOSYS` then, for the listener is closed.
    pub fn listen(&mut self, listener: OwnedFd) -> io::Result<()> {
        let buffers = Buffers::new()?;
        // An older kernel takes a little longer.
        let _ = notify::wake_on_the_same_processor(&listener);
        self.seen.calls = true;
        self.source = Some(Source::Listener(Arc::new(listener), buffers));
        Ok(())
    }

    /// Begins to hear what a mediator tells on a socket.
    pub fn hear(&mut self, socket: OwnedFd) {
        self.seen.calls = true;
        self.source = Some(Source::Mediator(Arc::new(socket)));
    }

    /// What becomes readable when there is something to do.
    #[must_use]
    pub fn waiting(&self) -> Option<Arc<OwnedFd>> {
        let source = self.source.as_ref()?;
        let (Source::Listener(fd, _) | Source::Mediator(fd)) = source;
        Some(Arc::clone(fd))
    }

    /// Answers the calls that wait, and takes what was told; so many that not much time goes by. Whether
    /// there may be more.
    pub fn answer(&mut self) -> bool {
        for _ in 0..MOST_AT_A_TIME {
            let Some(source) = &mut self.source else {
                return false;
            };
            let (Source::Listener(fd, _) | Source::Mediator(fd)) = &*source;
            let mut asked = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
            let ready = poll(&mut asked, PollTimeout::ZERO).unwrap_or(0);
            let [asked] = asked;
            if ready == 0 {
                return false;
            }
            let readable = asked
                .revents()
                .is_some_and(|is| is.contains(PollFlags::POLLIN));
            let goes_on = readable
                && match source {
                    Source::Listener(listener, buffers) => {
                        answer_one(&mut self.seen, listener, buffers);
                        true
                    }
                    Source::Mediator(socket) => hear_one(&mut self.seen, socket),
                };
            if !goes_on {
                // No process is left under the filter, or the mediator is gone.
                self.source = None;
            }
        }
        true
    }

    /// Takes the rest, when the jail is over.
    pub fn finish(&mut self) {
        while self.answer() {}
        self.source = None;
    }
}

fn answer_one(seen: &mut Seen, listener: &Arc<OwnedFd>, buffers: &mut Buffers) {
    // One that is gone meanwhile needs no answer.
    let Ok(call) = buffers.receive(&**listener) else {
        return;
    };
    for sighting in sight::look(&Caller::new(call, Arc::clone(listener))) {
        note(seen, sighting);
    }
    if buffers.let_go_on(&**listener, call.id).is_err() {
        let _ = buffers.refuse(&**listener, call.id, libc::ENOSYS);
    }
}

/// Whether somebody is there who may tell more.
fn hear_one(seen: &mut Seen, socket: &OwnedFd) -> bool {
    let mut buffer = [0; LONGEST_SIGHTING];
    match passing::receive(socket, &mut buffer, MsgFlags::MSG_DONTWAIT) {
        Ok((0, _)) => false,
        Ok((length, _)) => {
            let told = buffer.get(..length).unwrap_or_default();
            note(seen, postcard::from_bytes(told).unwrap_or(Sighting::Unread));
            true
        }
        Err(error) => matches!(
            error.kind(),
            io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
        ),
    }
}

fn note(seen: &mut Seen, sighting: Sighting) {
    match sighting {
        Sighting::Place(path, act) => seen.note(Path::new(OsStr::from_bytes(&path)), act),
        Sighting::Host(host, port) => seen.note_peer(host, port),
        Sighting::Name(name) => seen.note_name(name),
        Sighting::Unread => seen.unread = seen.unread.saturating_add(1),
    }
}

/// Whether the kernel lets a call go on that was handed over (Linux 5.5, `SECCOMP_USER_NOTIF_FLAG_CONTINUE`
/// in `seccomp_unotify(2)`), by its release (`uname(2)`). One that has it by a vendor's patch alone is
/// taken for one without.
#[must_use]
pub fn can_watch(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().and_then(|text| text.parse::<u32>().ok());
    (next(), next()) >= (Some(5), Some(5))
}

#[cfg(test)]
mod tests {
    use super::can_watch;

    #[test]
    fn old_kernels_are_known_by_their_release() {
        for (release, can) in [
            ("4.18.0-553.el8_10.x86_64", false),
            ("5.4.0-150-generic", false),
            ("5.5.0", true),
            ("5.14.0-427.el9.x86_64", true),
            ("6.1.0-18-amd64", true),
            ("10.0", true),
            ("", false),
            ("linux", false),
        ] {
            assert_eq!(can_watch(release), can, "{release}");
        }
    }
}
