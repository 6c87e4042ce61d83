//! The service's socket: one thread that waits for events, requests and signals, and asks the core.
#![allow(clippy::disallowed_methods, reason = "effects: reads the clock")]

pub mod client;
pub mod closing;
mod requests;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use agent_sandbox_events::client::decode;
use agent_sandbox_events::protocol::{PACKET_BYTES, Request, Response};
use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{SockFlag, accept4};
use tracing::warn;

use super::config::Config;
use super::core::{BUDGET, Core, SECOND, SLICE, TICK};
use super::files;
use super::kernel::Kernel;
use super::limits::{Verdict, cost};
use super::mark_key::MarkKey;
use super::refusal::{instead, no};
use crate::logging::TARGET;
use crate::trail::{Now, Trails};
use client::{Client, Received, Tracing};
use closing::Closing;

/// Nothing is traced and nobody is there.
const IDLE: Duration = Duration::from_secs(5);
/// After events more may have come without that the probes wake anybody: they do so at most each 20 ms.
const SOON: Duration = Duration::from_millis(30);
/// So long directories are looked through for all who ask for it together, before events have their turn.
const LOOKING: Duration = Duration::from_millis(8);
/// Requests of one connection before others have their turn.
const REQUESTS: usize = 8;
/// Connections that are accepted at one time.
const ACCEPTS: usize = 64;
/// A connection that has neither a trace nor anything to read, and asks nothing, is closed after so many ticks.
const IDLE_TICKS: u64 = 120 * SECOND;

const RING: u64 = 0;
const LISTENER: u64 = 1;
const SIGNALS: u64 = 2;
/// Keys of connections begin here.
const FIRST_CLIENT: u64 = 16;

/// What the loop does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Goes on.
    On,
    /// Was told to stop.
    Stop,
    /// Was told to read its configuration.
    Reload,
}

/// The service.
#[derive(Debug)]
pub struct Service<K> {
    core: Core<K>,
    clients: BTreeMap<u64, Client>,
    /// What users have sent and is not needed any more.
    closing: Closing,
    /// Connections whose requests look through directories, in the order in which they came. A user who asks often has
    /// to wait before.
    looking: VecDeque<u64>,
    /// Connections that are cut, and whose other end has not received all: they count until it has. Else a user could have
    /// any number of descriptors on their way, by connection after connection.
    leaving: Vec<Client>,
    last_tick: u64,
    next_client: u64,
    busy: bool,
    accepting: bool,
    /// The key by which jobs are marked.
    mark_key: Option<MarkKey>,
    listener: OwnedFd,
    signals: SignalFd,
    epoll: Epoll,
    buffer: Vec<u8>,
}

impl<K: Kernel> Service<K> {
    /// Goes on where the last one ended, and listens. Signals are blocked from here on.
    ///
    /// # Errors
    /// Another tracer runs, or it cannot listen.
    pub fn new(
        config: Config,
        node: String,
        lock: files::Lock,
        kernel: K,
        trails: Trails,
    ) -> Result<Self> {
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            mask.add(signal);
        }
        mask.thread_block().context("cannot block signals")?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&mask, flags).context("cannot wait for signals")?;
        let epoll =
            Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("cannot wait for events")?;
        let listener = files::listener(&config.socket)?;
        let service = Self {
            core: Core::new(config, node, lock, kernel, trails)?,
            clients: BTreeMap::new(),
            closing: Closing::default(),
            looking: VecDeque::new(),
            leaving: Vec::new(),
            last_tick: Now::read().boot,
            next_client: FIRST_CLIENT,
            busy: true,
            accepting: true,
            mark_key: None,
            listener,
            signals,
            epoll,
            buffer: vec![0; PACKET_BYTES],
        };
        let readable = |key| EpollEvent::new(EpollFlags::EPOLLIN, key);
        service
            .epoll
            .add(service.core.kernel.ring(), readable(RING))?;
        service.epoll.add(&service.listener, readable(LISTENER))?;
        service.epoll.add(&service.signals, readable(SIGNALS))?;
        Ok(service)
    }

    /// Marks jobs by this key from now on.
    pub fn sign_with(&mut self, key: Option<MarkKey>) {
        self.mark_key = key;
    }

    /// Serves until a signal ends it. `reload` gives the configuration anew.
    ///
    /// # Errors
    /// It cannot wait any more.
    pub fn run(&mut self, mut reload: impl FnMut() -> Result<Config>) -> Result<()> {
        loop {
            match self.turn()? {
                Turn::On => {}
                Turn::Stop => {
                    self.stop();
                    return Ok(());
                }
                Turn::Reload => match reload() {
                    Ok(config) => self.reconfigure(config),
                    Err(error) => warn!(target: TARGET, "goes on as before: {error:#}"),
                },
            }
        }
    }

    fn reconfigure(&mut self, config: Config) {
        match MarkKey::read(&config.mark_key) {
            Ok(key) => self.mark_key = key,
            Err(error) => warn!(target: TARGET, "marks jobs as before: {error:#}"),
        }
        self.core.reconfigure(config);
    }

    /// Waits, and does what is due.
    ///
    /// # Errors
    /// It cannot wait any more.
    pub fn turn(&mut self) -> Result<Turn> {
        let mut events = [EpollEvent::empty(); 64];
        let wait = EpollTimeout::try_from(self.patience()).unwrap_or(EpollTimeout::ZERO);
        let count = match self.epoll.wait(&mut events, wait) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(error) => return Err(error).context("cannot wait for events"),
        };
        let mut turn = Turn::On;
        // Whoever asks comes first: events can be as many as one user likes, and wait in a buffer.
        for event in &events[..count] {
            match event.data() {
                RING => {}
                LISTENER => self.accept(),
                SIGNALS => turn = self.signal(),
                key => self.hear(key, event.events()),
            }
        }
        self.look_for_files(LOOKING);
        self.busy = self.core.drain(BUDGET, SLICE) > 0;
        self.core.end_those_read();
        let passed = Now::read().boot.saturating_sub(self.last_tick);
        if u128::from(passed) >= TICK.as_nanos() {
            self.last_tick += passed;
            self.core.tick += 1;
            self.core.usage.pass(Duration::from_nanos(passed));
            self.closing.tidy();
            self.accept_again();
            self.core.upkeep();
            self.close_idle();
            self.let_all_go();
            self.pump_all();
        }
        Ok(turn)
    }

    fn patience(&self) -> Duration {
        let nobody = self.clients.is_empty() && self.leaving.is_empty();
        let idle = self.core.registry.is_empty() && nobody && self.accepting;
        if !self.core.drained || !self.looking.is_empty() {
            return Duration::ZERO;
        }
        if self.busy {
            return SOON;
        }
        if idle {
            return IDLE;
        }
        let passed = Duration::from_nanos(Now::read().boot.saturating_sub(self.last_tick));
        // Rounded up: epoll counts milliseconds.
        TICK.saturating_sub(passed) + Duration::from_millis(1)
    }

    fn signal(&mut self) -> Turn {
        match self.signals.read_signal() {
            Ok(Some(info)) => match i32::try_from(info.ssi_signo) {
                Ok(libc::SIGHUP) => Turn::Reload,
                _ => Turn::Stop,
            },
            _ => Turn::On,
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            let socket = match accept4(self.listener.as_raw_fd(), flags) {
                Ok(number) => crate::sys::socket::accepted(number),
                Err(Errno::EAGAIN) => return,
                Err(Errno::EINTR | Errno::ECONNABORTED) => continue,
                Err(error) => {
                    // No descriptors left, for example: the next tick tries again.
                    self.core
                        .complain("connections cannot be accepted", Err::<(), _>(error));
                    self.accept_no_more();
                    return;
                }
            };
            let Ok(mut client) = Client::new(socket, self.core.tick) else {
                continue;
            };
            let refused = match self.core.usage.connection(client.peer.uid) {
                Verdict::Room => None,
                Verdict::User(most) => Some(instead(
                    format!("you have {most} connections already"),
                    "end a `watch` that nobody looks at",
                )),
                Verdict::All(most) => Some(no(format!("there are {most} connections already"))),
            };
            if let Some(refusal) = refused {
                client.answer(&Response::from(refusal));
                let _ = client.pump();
                let uid = client.peer.uid;
                // Nobody may have all descriptors of the tracer's wait for what hangs.
                if !self.closing.is_full(uid) {
                    self.closing.close(uid, vec![client.into_socket()]);
                }
                continue;
            }
            client.note_mark(&self.core.kernel);
            let key = self.next_client;
            let added = self
                .epoll
                .add(&client, EpollEvent::new(EpollFlags::EPOLLIN, key));
            if added.is_ok() {
                self.next_client += 1;
                self.core.usage.connected(client.peer.uid);
                client.interest = EpollFlags::EPOLLIN;
                self.clients.insert(key, client);
            }
        }
    }

    fn accept_no_more(&mut self) {
        if self.accepting && self.epoll.delete(&self.listener).is_ok() {
            self.accepting = false;
        }
    }

    fn accept_again(&mut self) {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, LISTENER);
        if !self.accepting && self.epoll.add(&self.listener, event).is_ok() {
            self.accepting = true;
        }
    }

    /// Something has happened on a connection.
    fn hear(&mut self, key: u64, events: EpollFlags) {
        let Some(mut client) = self.clients.remove(&key) else {
            return;
        };
        let mut gone = false;
        if events.contains(EpollFlags::EPOLLIN) {
            gone = self.take_requests(key, &mut client);
        } else if events.intersects(EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR) {
            gone = true;
        }
        gone |= self.push(key, &mut client).is_err();
        if gone {
            self.bury(client);
        } else {
            self.clients.insert(key, client);
        }
    }

    /// Answers what it has asked, as much as is its turn. Returns whether it has gone.
    fn take_requests(&mut self, key: u64, client: &mut Client) -> bool {
        for _ in 0..REQUESTS {
            if !client.may_ask() || !self.is_heard(client.peer.uid) {
                return false;
            }
            let mut buffer = std::mem::take(&mut self.buffer);
            let received = client.receive(&mut buffer);
            let request = match &received {
                Received::Packet(length, _) => buffer.get(..*length).and_then(decode::<Request>),
                _ => None,
            };
            self.buffer = buffer;
            client.last = self.core.tick;
            match (received, request) {
                (Received::Nothing, _) => return false,
                (Received::End, _) => return true,
                (Received::Packet(_, with), Some(request)) => {
                    self.core
                        .usage
                        .asked(client.peer.uid, cost(&request, with.len()));
                    if with.is_empty() && matches!(request, Request::Files { .. }) {
                        client.deferred = Some(request);
                        self.looking.push_back(key);
                    } else {
                        self.timed(client, request, &with);
                    }
                    self.closing.close(client.peer.uid, with);
                }
                (Received::Packet(_, with), None) => {
                    self.closing.close(client.peer.uid, with);
                    let refusal = instead(
                        "this request is not understood",
                        "use a launcher and a tracer of the same version",
                    );
                    client.answer(&refusal.into());
                    client.closing = true;
                }
            }
        }
        false
    }

    /// Answers a request, and counts how long that takes.
    fn timed(&mut self, client: &mut Client, request: Request, with: &[OwnedFd]) {
        let begun = Now::of_this_thread();
        self.request(client, request, with);
        let taken = Duration::from_nanos(Now::of_this_thread().saturating_sub(begun));
        self.core.usage.took(client.peer.uid, taken);
    }

    /// Whether a user may ask now: who has not asked too often, and sends nothing that takes for ever to close.
    fn is_heard(&mut self, uid: u32) -> bool {
        self.core.usage.may_ask(uid) && !self.closing.is_full(uid)
    }

    /// Sends what waits, and waits for what can come next.
    ///
    /// # Errors
    /// The connection is to be closed.
    fn push(&mut self, key: u64, client: &mut Client) -> Result<()> {
        client.pump()?;
        let blocked = client.is_blocked();
        anyhow::ensure!(blocked || !client.closing, "all is said");
        let mut interest = EpollFlags::empty();
        if client.may_ask() && self.is_heard(client.peer.uid) {
            interest |= EpollFlags::EPOLLIN;
        }
        // Where the kernel is short the socket stays writable: that would wake at once, again and again.
        if blocked && !client.is_short() {
            interest |= EpollFlags::EPOLLOUT;
        }
        if interest != client.interest {
            let mut event = EpollEvent::new(interest, key);
            self.epoll.modify(&*client, &mut event)?;
            client.interest = interest;
        }
        Ok(())
    }

    /// Looks through directories for those who asked for it, so long and no longer.
    fn look_for_files(&mut self, time: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < time {
            let Some(key) = self.looking.pop_front() else {
                return;
            };
            let Some(mut client) = self.clients.remove(&key) else {
                continue;
            };
            if let Some(request) = client.deferred.take() {
                self.timed(&mut client, request, &[]);
            }
            match self.push(key, &mut client) {
                Ok(()) => drop(self.clients.insert(key, client)),
                Err(_) => self.bury(client),
            }
        }
    }

    /// Those who had to wait may ask again.
    fn pump_all(&mut self) {
        let keys: Vec<u64> = self.clients.keys().copied().collect();
        for key in keys {
            let Some(mut client) = self.clients.remove(&key) else {
                continue;
            };
            if self.push(key, &mut client).is_err() {
                self.bury(client);
            } else {
                self.clients.insert(key, client);
            }
        }
    }

    fn close(&mut self, key: u64) {
        if let Some(client) = self.clients.remove(&key) {
            self.bury(client);
        }
    }

    /// A connection is closed.
    fn bury(&mut self, mut client: Client) {
        let _ = self.epoll.delete(&client);
        match std::mem::take(&mut client.tracing) {
            Tracing::None => {}
            Tracing::Registered(registered) => self.core.give_up(&registered),
            Tracing::Begun(id) => self.core.abandoned(id),
        }
        client.forget_answers();
        self.let_go(client);
    }

    /// Closes a connection, or keeps it among those that leave.
    fn let_go(&mut self, client: Client) {
        if client.is_owed() {
            self.leaving.push(client);
            return;
        }
        let uid = client.peer.uid;
        self.core.usage.disconnected(uid);
        self.closing.close(uid, vec![client.into_socket()]);
    }

    /// Closes those of which all has been received meanwhile.
    fn let_all_go(&mut self) {
        for client in std::mem::take(&mut self.leaving) {
            self.let_go(client);
        }
    }

    fn close_idle(&mut self) {
        let tick = self.core.tick;
        let idle: Vec<u64> = self
            .clients
            .iter()
            .filter(|(_, client)| client.is_idle() && tick.saturating_sub(client.last) > IDLE_TICKS)
            .map(|(key, _)| *key)
            .collect();
        for key in idle {
            self.close(key);
        }
    }

    /// Says what it has seen up to now, and leaves everything as it is: traces go on in the kernel.
    pub fn stop(&mut self) {
        self.core.finish_reading();
        let keys: Vec<u64> = self.clients.keys().copied().collect();
        for key in keys {
            if let Some(mut client) = self.clients.remove(&key) {
                // What waits is sent if there is room for it.
                let _ = client.pump();
                let uid = client.peer.uid;
                self.closing.close(uid, vec![client.into_socket()]);
            }
        }
        self.core.leave();
    }

    /// The ring, for tests that wait for it.
    pub fn ring(&self) -> BorrowedFd<'_> {
        self.core.kernel.ring()
    }
}
