//! Serves a jail's ssh agent: who calls, how long they may take, and what is told of it.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: reads and writes sockets, reads the clock"
)]

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::Uid;

use crate::connection::{Connection, Permit};
use crate::destination::Destination;
use crate::encoding::Writer;
use crate::message::{read_message_after, write_message};
use crate::pace::Pace;
use crate::refusal::Refusal;
use crate::request::{FAILURE, IDENTITIES_ANSWER, Request, SUCCESS};
use crate::rules::{Fingerprint, Rules};
use crate::users_agent::UsersAgent;

/// Connections at the same time; more are closed at once. Each has a thread, and may have a message.
pub const MOST_CONNECTIONS: usize = 32;
/// How long a client may say nothing.
const SILENCE: Duration = Duration::from_secs(120);
/// How long a client may take for a message that it has begun, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait for descriptors or memory to come back.
const PAUSE: Duration = Duration::from_millis(100);
/// Of a thread, in bytes. Messages are on the heap.
const STACK: usize = 512 << 10;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// For whom, if it was for a host that is named.
    pub host: Option<Destination>,
    /// What became of it.
    pub verdict: Verdict,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A login was signed.
    Signed {
        /// Of this user, in plain characters.
        user: String,
        /// With this key.
        key: Fingerprint,
    },
    /// It was refused.
    Refused(Refusal),
    /// The user's agent did not do it.
    Failed(String),
}

/// Gets each event, on the thread of a connection.
pub type Sink = Box<dyn Fn(Event) + Send + Sync>;

/// An agent.
pub struct Agent {
    rules: Rules,
    users: PathBuf,
    sink: Sink,
    pace: Mutex<Pace>,
    open: AtomicUsize,
}

impl Agent {
    /// An agent with these rules, before the user's own at the socket `users`.
    #[must_use]
    pub fn new(rules: Rules, users: PathBuf, sink: Sink) -> Self {
        Self {
            rules,
            users,
            sink,
            pace: Mutex::new(Pace::new(Instant::now())),
            open: AtomicUsize::new(0),
        }
    }

    /// Serves whoever connects, for as long as the process lives.
    pub fn serve(self: &Arc<Self>, listener: &UnixListener) -> ! {
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                // Descriptors or memory are short, or the caller is gone.
                Err(_) => {
                    thread::sleep(PAUSE);
                    continue;
                }
            };
            if self.open.fetch_add(1, Ordering::AcqRel) >= MOST_CONNECTIONS {
                self.open.fetch_sub(1, Ordering::AcqRel);
                continue;
            }
            let one = Arc::clone(self);
            let thread = thread::Builder::new().stack_size(STACK).spawn(move || {
                // A client that is gone, or that takes too long, needs no answer.
                let _ = one.attend(stream);
                one.open.fetch_sub(1, Ordering::AcqRel);
            });
            if thread.is_err() {
                self.open.fetch_sub(1, Ordering::AcqRel);
                thread::sleep(PAUSE);
            }
        }
    }

    /// Answers one client to its end.
    fn attend(&self, mut stream: UnixStream) -> io::Result<()> {
        let peer = Uid::from_raw(getsockopt(&stream, PeerCredentials)?.uid());
        if peer != Uid::effective() {
            return Ok(());
        }
        let mut connection = Connection::new(&self.rules);
        let mut users = None;
        while let Some(message) = read_message_after(SILENCE, PATIENCE, &mut stream)? {
            let answer = match Request::parse(&message) {
                Ok(request) => self.answer(&mut connection, &mut users, &request)?,
                Err(_) => self.refuse(Refusal::Malformed),
            };
            write_message(&mut stream, &answer, Instant::now() + PATIENCE)?;
        }
        Ok(())
    }

    /// The answer; an error ends the connection.
    fn answer(
        &self,
        connection: &mut Connection<'_>,
        users: &mut Option<UsersAgent>,
        request: &Request<'_>,
    ) -> io::Result<Vec<u8>> {
        Ok(match *request {
            Request::Identities => self.identities(connection, users),
            Request::Bind {
                host_key,
                session,
                signature,
                forwarding,
            } => match connection.bind(host_key, session, signature, forwarding) {
                Ok(()) => {
                    // An agent that knows of no hosts says no, and has no keys for some of them only. One that says nothing may
                    // not know to which host its keys would lead, and what it says next could be the answer to this.
                    if let Err(error) = self.users(users).and_then(|users| users.bind(request)) {
                        self.fail(users, None, &error);
                        return Err(error);
                    }
                    vec![SUCCESS]
                }
                Err(refusal) => self.refuse(refusal),
            },
            Request::Sign { key, data, flags } => match connection.judge(key, data, flags) {
                Ok(permit) => self.sign(users, key, flags, permit),
                Err(refusal) => self.refuse(refusal),
            },
            Request::Other(number) => self.refuse(Refusal::Request(number)),
        })
    }

    fn identities(&self, connection: &Connection<'_>, users: &mut Option<UsersAgent>) -> Vec<u8> {
        let all = match self.users(users).and_then(UsersAgent::identities) {
            Ok(all) => all,
            Err(error) => return self.fail(users, None, &error),
        };
        let shown: Vec<_> = all
            .iter()
            .filter(|one| connection.shows(&one.key))
            .collect();
        let count = u32::try_from(shown.len()).unwrap_or(0);
        let mut answer = Writer::of(IDENTITIES_ANSWER).number(count);
        for one in shown {
            answer = answer.string(&one.key).string(one.comment.as_bytes());
        }
        answer.done()
    }

    fn sign(
        &self,
        users: &mut Option<UsersAgent>,
        key: &[u8],
        flags: u32,
        permit: Permit,
    ) -> Vec<u8> {
        let wait = {
            let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
            pace.step(Instant::now())
        };
        thread::sleep(wait);
        let Permit {
            destination,
            user,
            key: shown,
            data,
        } = permit;
        let request = Request::Sign {
            key,
            data: &data,
            flags,
        };
        match self.users(users).and_then(|users| users.sign(&request)) {
            Ok(answer) => {
                self.tell(Some(destination), Verdict::Signed { user, key: shown });
                answer
            }
            Err(error) => self.fail(users, Some(destination), &error),
        }
    }

    /// The user's agent, connected to when it is needed.
    fn users<'a>(&self, users: &'a mut Option<UsersAgent>) -> io::Result<&'a mut UsersAgent> {
        match users {
            Some(users) => Ok(users),
            none => Ok(none.insert(UsersAgent::connect(&self.users)?)),
        }
    }

    fn refuse(&self, refusal: Refusal) -> Vec<u8> {
        self.tell(refusal.destination().cloned(), Verdict::Refused(refusal));
        vec![FAILURE]
    }

    fn fail(
        &self,
        users: &mut Option<UsersAgent>,
        host: Option<Destination>,
        error: &io::Error,
    ) -> Vec<u8> {
        // What it says next could be the answer to this.
        *users = None;
        self.tell(
            host,
            Verdict::Failed(format!("the user's ssh-agent outside: {error}")),
        );
        vec![FAILURE]
    }

    fn tell(&self, host: Option<Destination>, verdict: Verdict) {
        (self.sink)(Event { host, verdict });
    }
}
