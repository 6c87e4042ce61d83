#![allow(
    clippy::disallowed_methods,
    reason = "effects: starts the filter's thread"
)]
//! The filter as the process that holds its sockets sees it.

use std::io;
use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;
use std::thread::JoinHandle;

use agent_sandbox_hosts::HostRules;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Semaphore, oneshot};

use crate::broker::Broker;
use crate::dns;
use crate::event::{Events, Sink};
use crate::outside::{MOST_RESOLVING, Outside};
use crate::serve::listen;
use crate::session::Session;

/// Connections of a session at once: two descriptors each, of the 4,096 that most hosts allow a process.
pub const MOST_CONNECTIONS: usize = 1024;

/// Sockets that were made inside the jail's network.
#[derive(Debug)]
pub struct Sockets {
    /// Listeners at every address, for IPv4 and IPv6, one for each port of [`HostRules::ports`].
    pub tcp: Vec<TcpListener>,
    /// The resolver's, at `127.0.0.1:53`.
    pub dns_udp: UdpSocket,
    /// The resolver's, at `127.0.0.1:53`.
    pub dns_tcp: TcpListener,
}

/// A filter that runs. It ends when this is dropped, with all its connections.
pub struct Filter {
    session: Arc<Session>,
    room: Arc<Semaphore>,
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
        let dns_udp = {
            sockets.dns_udp.set_nonblocking(true)?;
            tokio::net::UdpSocket::from_std(sockets.dns_udp)?
        };
        let dns_tcp = listener(sockets.dns_tcp)?;
        let tcp = sockets
            .tcp
            .into_iter()
            .map(listener)
            .collect::<io::Result<Vec<_>>>()?;
        let (stop, stopped) = oneshot::channel::<()>();
        drop(_guard);
        let shared = Arc::clone(&session);
        let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        let (space, handle) = (Arc::clone(&room), runtime.handle().clone());
        let thread = std::thread::Builder::new()
            .name("filter".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::spawn(dns::serve_udp(Arc::clone(&shared), dns_udp));
                    tokio::spawn(dns::serve_tcp(Arc::clone(&shared), dns_tcp));
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
