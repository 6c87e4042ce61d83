//! Closing what came from inside. `close(2)` can take as long as somebody inside likes: that of a TCP socket
//! with `SO_LINGER` waits for the other end (`socket(7)`), that of a file asks the server of its file
//! system. So the descriptors that shims send are closed by a thread of their own, and nothing waits for
//! it: neither requests nor the end of the session. `SO_LINGER` is taken away as well: a command that is being
//! started has copies, which it closes when it becomes the command, and until then its start is waited for.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::process::Stdio;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use nix::sys::socket::{setsockopt, sockopt};

/// While so many wait to be closed no more calls are taken: what inside holds up is its own.
const MOST: usize = 1024;

/// What the thread does needs little, in bytes.
const STACK: usize = 64 << 10;

/// What waits to be closed, and what is being closed.
static PENDING: AtomicUsize = AtomicUsize::new(0);

/// To the thread; `None`: there is none to be had.
static CLOSER: LazyLock<Option<Sender<Box<dyn Closed>>>> = LazyLock::new(|| {
    let (send, receive) = channel::<Box<dyn Closed>>();
    let close = move || {
        while let Ok(one) = receive.recv() {
            // Whoever inside has the same socket may have asked for it again.
            one.calm();
            drop(one);
            PENDING.fetch_sub(1, Ordering::SeqCst);
        }
    };
    let thread = thread::Builder::new()
        .name("closing".to_owned())
        .stack_size(STACK)
        .spawn(close);
    thread.ok().map(|_| send)
});

/// What is closed elsewhere.
pub(crate) trait Closed: Send + 'static {
    /// Has the kernel wait for nobody when it is closed.
    fn calm(&self) {}
}

impl Closed for tokio::process::Command {}

impl Closed for OwnedFd {
    fn calm(&self) {
        let linger = libc::linger {
            l_onoff: 0,
            l_linger: 0,
        };
        // Most are no sockets.
        let _ = setsockopt(self, sockopt::Linger, &linger);
    }
}

/// Drops something that holds descriptors from inside, elsewhere.
pub(crate) fn later(one: impl Closed) {
    PENDING.fetch_add(1, Ordering::SeqCst);
    match &*CLOSER {
        Some(closer) => drop(closer.send(Box::new(one))),
        // It stays open: that is better than to wait, and counts.
        None => std::mem::forget(one),
    }
}

/// Whether so much waits to be closed that no more is taken.
pub(crate) fn is_full() -> bool {
    PENDING.load(Ordering::SeqCst) > MOST
}

/// A descriptor that came from inside. It is closed where that holds nothing up.
#[derive(Debug)]
pub struct Received(Option<OwnedFd>);

impl Received {
    /// As a file, for a thread that may take its time.
    pub(crate) fn into_file(mut self) -> File {
        let Some(fd) = self.0.take() else {
            unreachable!("it is there until it is dropped")
        };
        fd.into()
    }

    /// As a stream of a command, which is to be dropped by [`later`].
    pub(crate) fn into_stdio(mut self) -> Stdio {
        let Some(fd) = self.0.take() else {
            unreachable!("it is there until it is dropped")
        };
        fd.calm();
        fd.into()
    }
}

impl From<OwnedFd> for Received {
    fn from(fd: OwnedFd) -> Self {
        fd.calm();
        Self(Some(fd))
    }
}

impl AsFd for Received {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let Some(fd) = &self.0 else {
            unreachable!("it is there until it is dropped")
        };
        fd.as_fd()
    }
}

impl AsRawFd for Received {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if let Some(fd) = self.0.take() {
            later(fd);
        }
    }
}
