//! The service: one thread that waits for events, requests and signals.
#![allow(clippy::disallowed_methods, reason = "effects: reads the clock")]

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime};

use agent_sandbox_events::client::decode;
use agent_sandbox_events::protocol::{PACKET_BYTES, Request, Response};
use agent_sandbox_events::raw::{self, Kind};
use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{SockFlag, accept4};

use super::cgroups::Cgroups;
use super::client::{Client, Pumped, Received};
use super::closing::Closing;
use super::config::Config;
use super::desk::{cost, instead, no};
use super::kernel::Kernel;
use super::lifetime::Ending;
use super::limits::{Usage, Verdict};
use super::process::Kept;
use super::registry::Registry;
use super::turns::Turns;
use super::{files, upkeep};
use crate::trail::{Now, Trails};

/// Between two times that lines are sent, traces looked after and allowances renewed.
pub const TICK: Duration = Duration::from_millis(200);
/// Nothing is traced and nobody is there.
const IDLE: Duration = Duration::from_secs(5);
/// After events more may have come without that the probes wake anybody: they do so at most each 20 ms.
const SOON: Duration = Duration::from_millis(30);
/// Events that are read before requests have their turn, and for how long: what one costs is up to whoever
/// makes it, by long names and traces in traces.
pub const BUDGET: usize = 32_768;
/// For how long.
pub const SLICE: Duration = Duration::from_millis(20);
/// So long history is read for all who ask for it together, before events have their turn.
pub const READING: Duration = Duration::from_millis(8);
/// The clock is looked at after so many.
const PIECE: usize = 64;
/// Requests of one connection before others have their turn.
const REQUESTS: usize = 8;
/// Connections that are accepted at one time.
const ACCEPTS: usize = 64;
/// The same complaint is not repeated for so many ticks: what goes wrong can go wrong for each event.
const QUIET: u64 = 60 * upkeep::SECOND;

/// What is complained of when a call answers `EMFILE`, `ENFILE` or `ENOMEM`.
pub(super) const SHORT: &str = "the tracer has no descriptors or no memory left";

const RING: u64 = 0;
const LISTENER: u64 = 1;
const SIGNALS: u64 = 2;
/// Keys of connections begin here.
const FIRST_CLIENT: u64 = 16;

/// Half of the descriptors that this process may have.
fn half_of_the_descriptors() -> usize {
    let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
    usize::try_from(soft / 2).unwrap_or(usize::MAX)
}

/// When a trace is looked at the next time: whether it has tasks.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The tick.
    pub next: u64,
    /// Ticks between that one and the one after it.
    pub wait: u64,
    /// So many times in a row no task was found.
    pub none: u32,
}

impl Check {
    /// In a second.
    #[must_use]
    pub fn after(tick: u64) -> Self {
        Self {
            next: tick + upkeep::SECOND,
            wait: 0,
            none: 0,
        }
    }
}

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
    pub(super) kernel: K,
    pub(super) trails: Trails,
    pub(super) config: Config,
    pub(super) node: String,
    pub(super) boot: String,
    pub(super) registry: Registry,
    pub(super) usage: Usage,
    pub(super) cgroups: Option<Cgroups>,
    /// Processes that traces began with and that live.
    pub(super) held: BTreeMap<u32, Vec<Kept>>,
    /// So many of them at most: other descriptors are for connections, trails and what is looked at.
    pub(super) most_held: usize,
    pub(super) checks: BTreeMap<u32, Check>,
    /// Traces without tasks of which events may still wait to be read.
    pub(super) ending: BTreeMap<u32, Ending>,
    /// Whether all events have been read that there were.
    pub(super) drained: bool,
    /// When the newest event was written that has been read, in nanoseconds since the boot.
    pub(super) newest: u64,
    pub(super) clients: BTreeMap<u64, Client>,
    /// What users have sent and is not needed any more.
    pub(super) closing: Closing,
    /// Connections that wait for a piece of history.
    turns: Turns,
    /// Connections that follow records.
    pub(super) followers: u32,
    /// Forbidden files of the trace that begins, as they were counted.
    pub(super) counted: u32,
    /// Events that are none.
    pub(super) unreadable: u64,
    /// Ticks since the start.
    pub(super) tick: u64,
    pub(super) lock: files::Lock,
    last_tick: u64,
    next_client: u64,
    busy: bool,
    accepting: bool,
    said: BTreeMap<&'static str, u64>,
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
        let away = SystemTime::now()
            .duration_since(lock.last)
            .unwrap_or_default();
        let listener = files::listener(&config.socket)?;
        let mut service = Self {
            kernel,
            trails,
            node,
            boot: files::boot_id()?,
            registry: Registry::default(),
            usage: Usage::new(config.limits),
            config,
            cgroups: Cgroups::find().ok(),
            held: BTreeMap::new(),
            most_held: half_of_the_descriptors(),
            checks: BTreeMap::new(),
            ending: BTreeMap::new(),
            drained: true,
            newest: 0,
            clients: BTreeMap::new(),
            closing: Closing::default(),
            turns: Turns::default(),
            followers: 0,
            counted: 0,
            unreadable: 0,
            tick: 0,
            lock,
            last_tick: Now::read().boot,
            next_client: FIRST_CLIENT,
            busy: true,
            accepting: true,
            said: BTreeMap::new(),
            listener,
            signals,
            epoll,
            buffer: vec![0; PACKET_BYTES],
        };
        service.take_over(away)?;
        service.lock.touch();
        let readable = |key| EpollEvent::new(EpollFlags::EPOLLIN, key);
        service.epoll.add(service.kernel.ring(), readable(RING))?;
        service.epoll.add(&service.listener, readable(LISTENER))?;
        service.epoll.add(&service.signals, readable(SIGNALS))?;
        Ok(service)
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
                    Ok(config) => {
                        self.usage.limit(config.limits);
                        self.config.limits = config.limits;
                        self.config.demand = config.demand;
                    }
                    Err(error) => eprintln!("agent-sandbox-tracer: goes on as before: {error:#}"),
                },
            }
        }
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
        self.read_history(READING);
        self.busy = self.drain(BUDGET, SLICE) > 0;
        self.end_those_read();
        let passed = Now::read().boot.saturating_sub(self.last_tick);
        if u128::from(passed) >= TICK.as_nanos() {
            self.last_tick += passed;
            self.tick += 1;
            self.usage.pass(Duration::from_nanos(passed));
            self.closing.tidy();
            self.accept_again();
            self.upkeep();
            self.pump_all();
        }
        Ok(turn)
    }

    fn patience(&self) -> Duration {
        let idle = self.registry.is_empty() && self.clients.is_empty() && self.accepting;
        if !self.drained || !self.turns.is_empty() {
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

    /// Reads events, so many and for so long at most. Returns how many there were.
    pub(super) fn drain(&mut self, budget: usize, time: Duration) -> usize {
        let begin = Instant::now();
        let mut count = 0;
        self.drained = false;
        while count < budget && begin.elapsed() < time {
            let piece = PIECE.min(budget - count);
            let read = self.drain_some(piece);
            count += read;
            if read < piece {
                self.drained = true;
                break;
            }
        }
        count
    }

    fn drain_some(&mut self, budget: usize) -> usize {
        let (registry, trails) = (&self.registry, &mut self.trails);
        let (checks, unreadable, tick) = (&mut self.checks, &mut self.unreadable, self.tick);
        let newest = &mut self.newest;
        let mut last = 0;
        self.kernel
            .drain(budget, &mut |bytes| match raw::parse(bytes) {
                Ok(mut event) => {
                    *newest = event.head.time.max(*newest);
                    // What is nobody's any more was a task's without a trace.
                    let Some(owner) = registry.owner(event.head.trace) else {
                        return;
                    };
                    event.head.trace = owner;
                    let exit = event.head.kind == Kind::Exit;
                    if exit || last != owner {
                        last = owner;
                        Self::noticed(checks, owner, exit, tick);
                    }
                    trails.event(&event);
                }
                Err(_) => *unreadable += 1,
            })
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
                    self.complain("connections cannot be accepted", Err::<(), _>(error));
                    self.accept_no_more();
                    return;
                }
            };
            let Ok(mut client) = Client::new(socket, self.tick) else {
                continue;
            };
            let refused = match self.usage.connection(client.peer.uid) {
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
            let key = self.next_client;
            let added = self
                .epoll
                .add(&client, EpollEvent::new(EpollFlags::EPOLLIN, key));
            if added.is_ok() {
                self.next_client += 1;
                self.usage.connected(client.peer.uid);
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
            gone = self.take_requests(&mut client);
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
    fn take_requests(&mut self, client: &mut Client) -> bool {
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
            client.last = self.tick;
            match (received, request) {
                (Received::Nothing, _) => return false,
                (Received::End, _) => return true,
                (Received::Packet(_, with), Some(request)) => {
                    self.usage
                        .asked(client.peer.uid, cost(&request, with.len()));
                    let looks = matches!(request, Request::Read { .. } | Request::List { .. });
                    if looks && with.is_empty() {
                        client.deferred = Some(request);
                    } else {
                        self.request(client, request, &with);
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

    /// Whether a user may ask now: who has not asked too often, and sends nothing that takes for ever to close.
    fn is_heard(&mut self, uid: u32) -> bool {
        self.usage.may_ask(uid) && !self.closing.is_full(uid)
    }

    /// Sends what waits, and waits for what can come next.
    ///
    /// # Errors
    /// The connection is to be closed.
    fn push(&mut self, key: u64, client: &mut Client) -> Result<()> {
        let pumped = client.pump()?;
        if pumped == Pumped::More {
            self.turns.add(client.peer.uid, key);
        }
        client.blocked = pumped == Pumped::Full;
        anyhow::ensure!(!(client.closing && pumped == Pumped::Empty), "all is said");
        let mut interest = EpollFlags::empty();
        if client.may_ask() && self.is_heard(client.peer.uid) {
            interest |= EpollFlags::EPOLLIN;
        }
        if client.blocked {
            interest |= EpollFlags::EPOLLOUT;
        }
        if interest != client.interest {
            let mut event = EpollEvent::new(interest, key);
            self.epoll.modify(&*client, &mut event)?;
            client.interest = interest;
        }
        Ok(())
    }

    /// Looks at records for those who asked for them, so long and no longer. What one piece takes is bounded
    /// ([`crate::trail::Reader`]).
    fn read_history(&mut self, time: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < time {
            let Some(key) = self.turns.take() else {
                return;
            };
            let Some(mut client) = self.clients.remove(&key) else {
                continue;
            };
            if let Some(request) = client.deferred.take() {
                self.request(&mut client, request, &[]);
            }
            let read = client.read().map_err(anyhow::Error::from);
            match read.and_then(|()| self.push(key, &mut client)) {
                Ok(()) => drop(self.clients.insert(key, client)),
                Err(_) => self.bury(client),
            }
        }
    }

    /// Those who follow get their lines, and those who had to wait may ask again.
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

    pub(super) fn close(&mut self, key: u64) {
        if let Some(client) = self.clients.remove(&key) {
            self.bury(client);
        }
    }

    /// A connection is closed.
    fn bury(&mut self, mut client: Client) {
        self.usage.disconnected(client.peer.uid);
        if client.follow.is_some() {
            self.followers = self.followers.saturating_sub(1);
            if self.followers == 0 {
                self.trails.watch(false);
            }
        }
        let _ = self.epoll.delete(&client);
        self.left(&mut client);
        let uid = client.peer.uid;
        self.closing.close(uid, vec![client.into_socket()]);
    }

    /// Says what goes wrong, but not all the time.
    pub(super) fn complain<E: std::fmt::Display>(
        &mut self,
        what: &'static str,
        result: Result<(), E>,
    ) {
        let Err(error) = result else {
            return;
        };
        let last = self.said.get(what);
        if last.is_none_or(|last| self.tick - last >= QUIET) {
            self.said.insert(what, self.tick);
            eprintln!("agent-sandbox-tracer: {what}: {error:#}");
        }
    }

    /// The ring, for tests that wait for it.
    pub fn ring(&self) -> BorrowedFd<'_> {
        self.kernel.ring()
    }
}
