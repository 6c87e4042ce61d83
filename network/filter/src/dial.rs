//! The way out: a name is resolved once, each of its addresses is judged, and one of these is dialled.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use agent_sandbox_hosts::{Host, Refusal, Rule};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::event::{Event, Verdict};
use crate::place::Place;
use crate::proxy::Proxy;
use crate::session::Session;

/// What a resolver with two servers that do not answer takes (`resolv.conf(5)`: 5 s each).
const RESOLVING: Duration = Duration::from_secs(12);
/// For all addresses together; curl gives up later, most libraries after 10 to 60 s.
const CONNECTING: Duration = Duration::from_secs(20);
/// After which the next address is tried beside the first (RFC 8305, 5).
const NEXT: Duration = Duration::from_millis(250);
/// Addresses of one name. Large services have eight.
const MOST_ADDRESSES: usize = 16;

/// A host is not reached: for a rule, or because it is not there.
#[derive(Debug)]
pub(crate) enum Unreached {
    Refused(Box<Refusal>),
    Failed(io::Error),
}

impl Unreached {
    /// Tells it, and gives what was told.
    pub(crate) fn tell(&self, session: &Session, host: &Host, port: u16) -> Event {
        let event = match self {
            Self::Refused(refusal) => Event::refused(refusal),
            Self::Failed(_) => {
                let why = format!("{host}:{port} is allowed, and {self}");
                Event {
                    host: host.to_string(),
                    port: Some(port),
                    inside: None,
                    verdict: Verdict::Failed { why },
                }
            }
        };
        session.tell(event.clone());
        event
    }
}

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Failed(error) => write!(f, "cannot be reached from this host: {error}"),
        }
    }
}

/// A connection to a host that a rule allows.
pub(crate) async fn dial(
    session: &Session,
    place: &Place,
    (host, port): (&Host, u16),
    by: &Rule,
) -> Result<TcpStream, Unreached> {
    if let Some(proxy) = proxy_to(session, host, port) {
        let connected = timeout(CONNECTING, proxy.connect(host, port)).await;
        let stream = connected
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(Unreached::Failed)?;
        // The host's own is not known here.
        let address = stream.peer_addr().map_err(Unreached::Failed)?.ip();
        let event = Event::reached(host.to_string(), port, address, by);
        session.tell(event);
        return Ok(stream);
    }
    let addresses = match host {
        Host::Address(address) => vec![*address],
        Host::Name(name) => {
            let found = timeout(RESOLVING, session.outside.resolve(name, port)).await;
            found
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
                .map_err(Unreached::Failed)?
        }
    };
    let rules = session.rules();
    for address in &addresses {
        let own = session.outside.is_own(address.to_canonical());
        // One that is refused among others is how names are made to point inside.
        if let Err(refusal) = rules.judge_address(host, *address, port, own) {
            return Err(Unreached::Refused(Box::new(refusal)));
        }
    }
    let addresses = addresses.into_iter().take(MOST_ADDRESSES);
    let reached = timeout(CONNECTING, first(addresses, port)).await;
    let stream = reached
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        .map_err(Unreached::Failed)?;
    let address = stream.peer_addr().map_err(Unreached::Failed)?.ip();
    place.leads_to(address);
    session.tell(Event::reached(host.to_string(), port, address, by));
    Ok(stream)
}

/// The site's proxy, if it is on the way to a host. Who is meant to be near is reached directly, and judged: a host of `private`, a
/// name without a dot, an address that is not public.
fn proxy_to(session: &Session, host: &Host, port: u16) -> Option<Proxy> {
    let near = match host {
        Host::Name(name) => name.is_localhost() || !name.as_str().contains('.'),
        Host::Address(address) => {
            let own = session.outside.is_own(address.to_canonical());
            let rules = session.rules();
            !matches!(rules.judge_address(host, *address, port, own), Ok(None))
        }
    };
    if near || session.rules().is_private(host, port) {
        return None;
    }
    session.outside.proxy(host, port)
}

/// The first address that answers; each is tried a little after the one before it, or when that one fails.
async fn first(mut addresses: impl Iterator<Item = IpAddr>, port: u16) -> io::Result<TcpStream> {
    let mut attempts = JoinSet::new();
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "it has no address");
    loop {
        let next = addresses.next();
        if let Some(address) = next {
            attempts.spawn(TcpStream::connect(SocketAddr::new(address, port)));
        }
        tokio::select! {
            done = attempts.join_next() => match done {
                Some(Ok(Ok(stream))) => return Ok(stream),
                Some(Ok(Err(e))) => failure = e,
                Some(Err(e)) => failure = io::Error::other(e),
                None => return Err(failure),
            },
            () = sleep(NEXT), if next.is_some() => {}
        }
    }
}
