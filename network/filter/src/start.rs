#![allow(
    clippy::disallowed_methods,
    reason = "effects: starts the filter's thread"
)]
//! The filter as the process that holds its sockets sees it.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread::JoinHandle;

use agent_sandbox_hosts::{Host, HostRules};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Semaphore, oneshot};

use crate::broker::Broker;
use crate::dns;
use crate::event::{Event, Events, Sink};
use crate::outside::{MOST_RESOLVING, Outside};
use crate::serve::{listen, take};
use crate::session::Session;

/// Connections of a session at once: two descriptors each, of the 4,096 that most hosts allow a process.
pub const MOST_CONNECTIONS: usize = 1024;

/// Where names are asked for.
const NAMES: u16 = 53;

/// Sockets that were made inside the jail's network. A jail without a network of its own has none: its connections are led here one by
/// one ([`Filter::lead`]).
#[derive(Debug, Default)]
pub struct Sockets {
    /// Listeners at every address, for IPv4 and IPv6, one for each port of [`HostRules::ports`].
    pub tcp: Vec<TcpListener>,
    /// The resolver's, at `127.0.0.1:53`.
    pub dns_udp: Option<UdpSocket>,
    /// The resolver's, at `127.0.0.1:53`.
    pub dns_tcp: Option<TcpListener>,
}

/// A filter that runs. It ends when this is dropped, with all its connections.
pub struct Filter {
    session: Arc<Session>,
    room: Arc<Semaphore>,
    /// For those who ask for names by streams.
    asking: Arc<Semaphore>,
    runtime: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Filter {
    /// Starts a filter in a thread of its own. `sink` is told what happens; nothing is reached that `rules` do not allow. With a broker
    /// credentials are exchanged.
    ///
    /// # Errors
    /// A socket or a thread cannot be had.
    pub fn start(
        rules: HostRules,
        broker: Option<Broker>,
        sockets: Sockets,
        outside: Arc<dyn Outside>,
        sink: Sink,
    ) -> io::Result<Self> {
        let session = Arc::new(Session::new(rules, broker, outside, Events::new(sink)));
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(MOST_RESOLVING)
            .build()?;
        let _guard = runtime.enter();
        let dns_udp = sockets.dns_udp.map(|socket| {
            socket.set_nonblocking(true)?;
            tokio::net::UdpSocket::from_std(socket)
        });
        let dns_udp = dns_udp.transpose()?;
        let dns_tcp = sockets.dns_tcp.map(listener).transpose()?;
        let tcp = sockets
            .tcp
            .into_iter()
            .map(listener)
            .collect::<io::Result<Vec<_>>>()?;
        let (stop, stopped) = oneshot::channel::<()>();
        drop(_guard);
        let shared = Arc::clone(&session);
        let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        let asking = Arc::new(Semaphore::new(dns::MOST_TCP));
        let (space, handle) = (Arc::clone(&room), runtime.handle().clone());
        let asked = Arc::clone(&asking);
        let thread = std::thread::Builder::new()
            .name("filter".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    if let Some(socket) = dns_udp {
                        tokio::spawn(dns::serve_udp(Arc::clone(&shared), socket));
                    }
                    if let Some(listener) = dns_tcp {
                        tokio::spawn(dns::serve_tcp(Arc::clone(&shared), listener, asked));
                    }
                    for listener in tcp {
                        tokio::spawn(listen(Arc::clone(&shared), listener, Arc::clone(&space)));
                    }
                    // An error is the other end's drop, which means the same.
                    let _ = stopped.await;
                });
                // A name that is being resolved is not waited for.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            session,
            room,
            asking,
            runtime: handle,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Another listener that was made inside, for a port that had none.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn listen(&self, at: TcpListener) -> io::Result<()> {
        let _guard = self.runtime.enter();
        let (session, room) = (Arc::clone(&self.session), Arc::clone(&self.room));
        self.runtime.spawn(listen(session, listener(at)?, room));
        Ok(())
    }

    /// Whether somebody would listen at an address inside, in a jail with a network of its own: at the ports that rules name, and where
    /// names are asked for. That nobody does is told where no rule allows the host.
    pub fn listens_at(&self, to: SocketAddr) -> bool {
        let rules = self.session.rules();
        let port = to.port();
        let listens = port == NAMES || rules.ports().is_ok_and(|ports| ports.contains(&port));
        if !listens
            && let Some(host) = self.session.host_by_hosts_file(to.ip(), port)
            && let Err(refusal) = rules.judge(&host, port)
        {
            self.session.events.tell(Event::refused(&refusal));
        }
        listens
    }

    /// A connection from inside to this address, as it was meant. Whoever gives it knows that it is one of the jail's. Where names are
    /// asked for, every address but that of a name leads to the resolver.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn lead(&self, stream: TcpStream, to: SocketAddr) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let _guard = self.runtime.enter();
        let stream = tokio::net::TcpStream::from_std(stream)?;
        let port = to.port();
        let host = self.session.host_by_hosts_file(to.ip(), port);
        let named = matches!(&host, Some(Host::Name(name)) if !name.is_localhost());
        match port {
            NAMES if !named => dns::take(&self.session, stream, &self.asking),
            _ => take(
                &self.session,
                stream,
                host.map(|host| (host, port)),
                &self.room,
            ),
        }
        Ok(())
    }

    /// Other rules, for lookups and connections from now on. Connections to hosts that are not allowed any more end. Ports
    /// without a listener stay closed.
    pub fn replace_rules(&self, rules: HostRules) {
        self.session.replace_rules(rules);
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listener(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}
