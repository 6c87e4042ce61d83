//! A tracer that is played: it listens on a socket and speaks the tracer's protocol, and what it tells is
//! what the test gave it. The real one is tested in its own crate, and on a cluster.

use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use agent_sandbox_events::client::{decode, encode};
use agent_sandbox_events::protocol::{Listed, PACKET_BYTES, Request, Response, Which};
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, Shutdown, SockFlag, SockType, UnixAddr, accept4, bind,
    listen, recv, sendmsg, shutdown, socket,
};
use tempfile::TempDir;

/// Nothing here takes longer, also on a machine with much to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Lines of one packet: well below [`PACKET_BYTES`].
const LINES: usize = 20;

#[derive(Default)]
struct State {
    lines: Vec<String>,
    /// Of the trace that was registered.
    traced: Vec<String>,
    listed: Vec<Listed>,
    refused: Option<String>,
    /// Connections that follow.
    followers: Vec<RawFd>,
    /// All connections.
    all: Vec<RawFd>,
    asked: Vec<Request>,
}

/// The tracer. Its directory goes with it.
pub(crate) struct Fake {
    pub(crate) place: TempDir,
    socket: PathBuf,
    listener: Option<OwnedFd>,
    state: Arc<Mutex<State>>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Fake {
    /// One that knows these trails and has these records.
    pub(crate) fn new(listed: Vec<Listed>, lines: Vec<String>) -> Self {
        let place = tempfile::tempdir().unwrap();
        let mut fake = Self {
            socket: place.path().join("tracer.sock"),
            place,
            listener: None,
            state: Arc::new(Mutex::new(State {
                lines,
                listed,
                ..State::default()
            })),
        };
        fake.start();
        fake
    }

    /// Of one session, whose id is `k3v9m2qp`.
    pub(crate) fn with_session() -> Self {
        let records = super::records::session("k3v9m2qp");
        let lines = records.iter().map(super::records::line).collect();
        Self::new(vec![listed(Some("k3v9m2qp"), None, 7)], lines)
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Begins to listen, again if it was stopped.
    pub(crate) fn start(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
        let listener = socket(
            AddressFamily::Unix,
            SockType::SeqPacket,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .unwrap();
        bind(listener.as_raw_fd(), &UnixAddr::new(&self.socket).unwrap()).unwrap();
        listen(&listener, Backlog::new(16).unwrap()).unwrap();
        let (number, state) = (listener.as_raw_fd(), Arc::clone(&self.state));
        thread::spawn(move || {
            while let Ok(connection) = accept4(number, SockFlag::SOCK_CLOEXEC) {
                lock(&state).all.push(connection);
                let state = Arc::clone(&state);
                thread::spawn(move || serve(connection, &state));
            }
        });
        self.listener = Some(listener);
    }

    /// Ends all conversations and is gone.
    pub(crate) fn stop(&mut self) {
        if let Some(listener) = self.listener.take() {
            let _ = shutdown(listener.as_raw_fd(), Shutdown::Both);
        }
        let _ = std::fs::remove_file(&self.socket);
        let mut state = lock(&self.state);
        state.followers.clear();
        for connection in std::mem::take(&mut state.all) {
            let _ = shutdown(connection, Shutdown::Both);
        }
    }

    /// Refuses whoever registers or reads.
    pub(crate) fn refuse(&self, why: &str) {
        lock(&self.state).refused = Some(why.to_owned());
    }

    /// Something happens: whoever follows is told.
    pub(crate) fn happen(&self, line: String) {
        let mut state = lock(&self.state);
        for follower in &state.followers {
            say(*follower, &Response::Lines(line.clone().into_bytes()));
        }
        state.traced.push(line.clone());
        state.lines.push(line);
    }

    /// Something happens for whose records there is no room in what waits for a reader.
    pub(crate) fn happen_unseen(&self, line: String) {
        lock(&self.state).traced.push(line);
        self.tell(&Response::Dropped { lines: 1 });
    }

    /// Tells whoever follows something else.
    pub(crate) fn tell(&self, response: &Response) {
        for follower in &lock(&self.state).followers {
            say(*follower, response);
        }
    }

    /// What was asked, up to now.
    pub(crate) fn asked(&self) -> Vec<Request> {
        lock(&self.state).asked.clone()
    }

    /// Waits until somebody follows.
    pub(crate) fn followed(&self) {
        until(|| !lock(&self.state).followers.is_empty());
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.stop();
    }
}

pub(crate) fn listed(session: Option<&str>, job: Option<u32>, trace: u32) -> Listed {
    Listed {
        // As its records have it (`records.rs`).
        uid: 1000,
        node: "n1".into(),
        session: session.map(str::to_owned),
        job,
        step: None,
        trace,
        began: f64::from(trace),
        live: true,
    }
}

#[track_caller]
pub(crate) fn until(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "it did not happen in time");
        thread::sleep(Duration::from_millis(5));
    }
}

fn say(connection: RawFd, response: &Response) {
    let packet = encode(response).unwrap();
    // Whoever asked may be gone.
    let _ = sendmsg::<UnixAddr>(
        connection,
        &[IoSlice::new(&packet)],
        &[],
        MsgFlags::MSG_NOSIGNAL,
        None,
    );
}

fn serve(connection: RawFd, state: &Mutex<State>) {
    let mut packet = vec![0; PACKET_BYTES];
    while let Ok(length @ 1..) = recv(connection, &mut packet, MsgFlags::empty()) {
        let Some(request) = decode::<Request>(&packet[..length]) else {
            break;
        };
        let mut state = lock(state);
        state.asked.push(request.clone());
        let refused = state.refused.clone().map(|why| Response::Refused {
            why,
            hint: Some("ask an administrator".into()),
        });
        match (request, refused) {
            (Request::List { .. }, _) => say(connection, &Response::Trails(state.listed.clone())),
            (Request::Read { .. } | Request::Register(_), Some(refused)) => {
                say(connection, &refused);
            }
            (Request::Read { which, follow, .. }, None) => {
                let lines = match which {
                    Which::Trace(99) => &state.traced,
                    _ => &state.lines,
                };
                for lines in lines.chunks(LINES) {
                    say(connection, &Response::Lines(lines.concat().into_bytes()));
                }
                match follow {
                    true => state.followers.push(connection),
                    false => say(connection, &Response::Done),
                }
            }
            (Request::Register(_), None) => {
                state.traced.clear();
                let blind = vec!["opens by io_uring cannot be seen".into()];
                say(connection, &Response::Registered { trace: 99, blind });
            }
            (Request::End, _) => {
                let mut writer = super::records::Writer::command(99);
                writer.skip(1000);
                let line = super::records::line(&writer.write(super::records::end()));
                for follower in &state.followers {
                    say(*follower, &Response::Lines(line.clone().into_bytes()));
                }
                state.traced.push(line);
                say(connection, &Response::Done);
            }
            _ => say(connection, &Response::Done),
        }
    }
    lock(state)
        .followers
        .retain(|follower| *follower != connection);
    // Its number is not closed: another thread may still write to it, and by then it could be another's.
}
