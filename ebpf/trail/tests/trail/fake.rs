//! A tracer that is played: it listens on a socket and speaks the tracer's protocol, and the files that it lends hold
//! what the test gave it. The real one is tested in its own crate, and on a cluster.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{IoSlice, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use agent_sandbox_events::client::{decode, encode};
use agent_sandbox_events::protocol::{PACKET_BYTES, Request, Response, TrailFile, Which};
use agent_sandbox_events::record::Record;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, Shutdown, SockFlag, SockType, UnixAddr,
    accept4, bind, listen, recv, sendmsg, shutdown, socket,
};
use tempfile::TempDir;

/// Nothing here takes longer, also on a machine with much to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The trace that whoever registers gets.
const TRACED: u32 = 99;

#[derive(Default)]
struct State {
    place: PathBuf,
    /// A file for each trail, by user and name.
    files: BTreeMap<(u32, String), PathBuf>,
    /// The one that a line was added to last.
    last: (u32, String),
    refused: Option<String>,
    /// How many read: have asked for the files of a trail.
    readers: usize,
    /// All connections.
    all: Vec<RawFd>,
    asked: Vec<Request>,
}

impl State {
    /// Adds a line to the file of its trail; what is no record stands behind the line before it.
    fn add(&mut self, line: &str) {
        if let Ok(record) = serde_json::from_str::<Record>(line) {
            let trail = &record.trail;
            let session = trail.session.as_deref().unwrap_or("-");
            let job = trail.job.unwrap_or(0);
            let name = format!("{session}-{job}@{}-{}.jsonl", trail.node, trail.trace);
            self.last = (trail.uid, name);
        }
        let (uid, name) = self.last.clone();
        let path = self.place.join(format!("{uid}-{name}"));
        let mut options = File::options();
        let mut file = options.append(true).create(true).open(&path).unwrap();
        file.write_all(line.as_bytes()).unwrap();
        self.files.insert((uid, name), path);
    }
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
    /// One that has these records.
    pub(crate) fn new(lines: Vec<String>) -> Self {
        let place = tempfile::tempdir().unwrap();
        let mut state = State {
            place: place.path().join("trails"),
            ..State::default()
        };
        std::fs::create_dir(&state.place).unwrap();
        for line in lines {
            state.add(&line);
        }
        let mut fake = Self {
            socket: place.path().join("tracer.sock"),
            place,
            listener: None,
            state: Arc::new(Mutex::new(state)),
        };
        fake.start();
        fake
    }

    /// Of one session, whose id is `k3v9m2qp`.
    pub(crate) fn with_session() -> Self {
        let records = super::records::session("k3v9m2qp");
        Self::new(records.iter().map(super::records::line).collect())
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
        state.readers = 0;
        for connection in std::mem::take(&mut state.all) {
            let _ = shutdown(connection, Shutdown::Both);
        }
    }

    /// Refuses whoever registers or reads.
    pub(crate) fn refuse(&self, why: &str) {
        lock(&self.state).refused = Some(why.to_owned());
    }

    /// Something happens.
    pub(crate) fn happen(&self, line: String) {
        lock(&self.state).add(&line);
    }

    /// What was asked, up to now.
    pub(crate) fn asked(&self) -> Vec<Request> {
        lock(&self.state).asked.clone()
    }

    /// Waits until somebody reads.
    pub(crate) fn followed(&self) {
        until(|| lock(&self.state).readers > 0);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.stop();
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
    say_with(connection, response, &[]);
}

fn say_with(connection: RawFd, response: &Response, files: &[File]) {
    let packet = encode(response).unwrap();
    let numbers: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&numbers)];
    // Whoever asked may be gone.
    let _ = sendmsg::<UnixAddr>(
        connection,
        &[IoSlice::new(&packet)],
        if files.is_empty() { &[] } else { &rights },
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
            (Request::Files { .. } | Request::Register(_), Some(refused)) => {
                say(connection, &refused);
            }
            (Request::Files { which, after, .. }, None) => {
                state.readers += usize::from(which != Which::All);
                let all = state.files.keys();
                let all = all.filter(|file| after.as_ref().is_none_or(|after| *file > after));
                let files = all.map(|(uid, name)| TrailFile {
                    uid: *uid,
                    name: name.clone(),
                    modified: 0,
                    live: Some(true),
                });
                // Few at a time, so that there are several answers.
                say(connection, &Response::Files(files.take(2).collect()));
            }
            (Request::Open { files, .. }, _) => {
                let open = |file| File::open(state.files.get(file)?).ok();
                let opened: Vec<Option<File>> = files.iter().map(open).collect();
                let there = opened.iter().map(Option::is_some).collect();
                let opened: Vec<File> = opened.into_iter().flatten().collect();
                say_with(connection, &Response::Opened(there), &opened);
            }
            (Request::Register(_), None) => {
                // Another one begins.
                let of_traces = |name: &str| name.ends_with("-99.jsonl");
                state.files.retain(|(_, name), path| {
                    let stays = !of_traces(name);
                    if !stays {
                        std::fs::remove_file(path).unwrap();
                    }
                    stays
                });
                let blind = vec!["opens by io_uring cannot be seen".into()];
                let trace = TRACED;
                say(connection, &Response::Registered { trace, blind });
            }
            (Request::End, _) => {
                let mut writer = super::records::Writer::command(TRACED);
                writer.skip(1000);
                state.add(&super::records::line(&writer.write(super::records::end())));
                say(connection, &Response::Done);
            }
            _ => say(connection, &Response::Done),
        }
    }
    // Its number is not closed: another thread may still write to it, and by then it could be another's.
}
