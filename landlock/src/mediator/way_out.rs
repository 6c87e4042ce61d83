//! `connect(2)` of TCP where the network is filtered: the socket is connected to a listener of the mediator's, at the host's loopback,
//! and what that accepts goes to the filter with the address that the program meant.
//!
//! A connection that is accepted is the caller's if it comes from the address and port that the caller's socket has now: while that is
//! connected the kernel gives the pair to no other. Whoever else on this host connects to the listener is dropped. The mediator and the
//! command have Landlock domains by which TCP reaches the listener's ports, and no port at all.

#![allow(
    clippy::disallowed_methods,
    reason = "an effect module: it makes connections, and waits for them by the clock"
)]

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent_sandbox_wire::led;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::SendTimeout;
use nix::sys::socket::{
    MsgFlags, Shutdown, SockaddrStorage, getsockname, getsockopt, setsockopt, shutdown,
};
use nix::sys::time::{TimeVal, TimeValLike};

use agent_sandbox_base::mediate::caller::Caller;
use agent_sandbox_base::sys::{passing, sockets};

/// How long a connection by loopback may take: the kernel makes it during `connect(2)`, unless the listener's queue is full and the first
/// packet has to be sent again, after a second. All others of the session wait for it.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long the filter may take to answer. It decides by what it has in memory.
const ANSWER: Duration = Duration::from_secs(10);
/// Connections that may wait at a listener, where `net.core.somaxconn` allows it; and how many of others are dropped before the
/// caller's own is given up.
const MOST_WAITING: u16 = 4096;

/// `TCP_ESTABLISHED`, `TCP_CLOSE`, `TCP_CLOSE_WAIT`: include/net/tcp_states.h.
const ESTABLISHED: u8 = 1;
const CLOSED: u8 = 7;
const CLOSE_WAIT: u8 = 8;

/// `struct sockaddr_in`, ip(7), and `struct sockaddr_in6` without its scope, which the kernel takes as well (`SIN6_LEN_RFC2133`).
const SHORTEST_4: usize = 16;
const SHORTEST_6: usize = 24;

/// How connections leave a jail whose network is filtered.
#[derive(Debug)]
pub struct WayOut {
    filter: OwnedFd,
    four: TcpListener,
    /// None where the host has no IPv6.
    six: Option<TcpListener>,
    /// Held while a connection is made, and while the filter is asked: how many answers it owes to questions that nobody waited for
    /// any longer.
    turn: Mutex<u32>,
}

/// What an address asks for.
#[derive(Debug, PartialEq, Eq)]
enum Meant {
    /// To end the connection that there is (`AF_UNSPEC`).
    Nobody,
    /// To connect; by which family the kernel would.
    Somebody { to: SocketAddr, by_six: bool },
}

impl WayOut {
    /// With listeners of its own. On the socket `filter` is the filter ([`led`]), and nobody else.
    ///
    /// # Errors
    /// What `bind(2)` answers.
    pub fn new(filter: OwnedFd) -> io::Result<Self> {
        let four = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let six = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).ok();
        for listener in [Some(&four), six.as_ref()].into_iter().flatten() {
            // Who waits for a connection waits in poll(2), for a bounded time.
            listener.set_nonblocking(true)?;
            sockets::listen(listener, MOST_WAITING.into())?;
        }
        Ok(Self {
            filter,
            four,
            six,
            turn: Mutex::default(),
        })
    }

    /// The ports of its listeners.
    pub(super) fn ports(&self) -> Vec<u16> {
        let addresses = self.listeners().map(TcpListener::local_addr);
        addresses.flatten().map(|at| at.port()).collect()
    }

    /// Its descriptors.
    pub(super) fn descriptors(&self) -> Vec<RawFd> {
        let listeners = self.listeners().map(AsRawFd::as_raw_fd);
        listeners.chain([self.filter.as_raw_fd()]).collect()
    }

    fn listeners(&self) -> impl Iterator<Item = &TcpListener> {
        [Some(&self.four), self.six.as_ref()].into_iter().flatten()
    }

    /// Connects a copy of the caller's socket, of this domain, to the filter.
    ///
    /// # Errors
    /// Those of `connect(2)`: `EACCES` for what is not TCP; `ECONNREFUSED` where nobody listens.
    pub(super) fn lead(
        &self,
        caller: &Caller,
        socket: &OwnedFd,
        domain: i32,
        address: &[u8],
    ) -> io::Result<()> {
        let number = socket.as_raw_fd();
        let is_tcp = sockets::option(number, libc::SO_TYPE)? == libc::SOCK_STREAM
            && sockets::option(number, libc::SO_PROTOCOL)? == libc::IPPROTO_TCP;
        if !is_tcp {
            return Err(Errno::EACCES.into());
        }
        let (to, by_six) = match meant(domain, address)? {
            Meant::Nobody => {
                let _turn = self.turn();
                let unspecified = family(libc::AF_UNSPEC);
                return sockets::connect(socket, &unspecified);
            }
            Meant::Somebody { to, by_six } => (to, by_six),
        };
        let listener = match by_six {
            true => self.six.as_ref().ok_or(Errno::ENETUNREACH)?,
            false => &self.four,
        };
        let by = as_bytes(domain, listener.local_addr()?);
        let mut turn = self.turn();
        let connect = || caller.patiently(|| sockets::connect(socket, &by));
        if sockets::tcp_state(socket)? != CLOSED {
            // What was begun is ended by another call, or is there already: no connection comes of it.
            return connect();
        }
        if !self.has_listener(&mut turn, &to) {
            return Err(Errno::ECONNREFUSED.into());
        }
        // Others can keep the queue full, and with it the caller's first packet out.
        drop_waiting(listener);
        let connected = in_time(socket, connect);
        match &connected {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(_) => return connected,
        }
        let given = accepted(listener, socket);
        drop(turn);
        let given = given.and_then(|stream| self.give(&to, &stream));
        if given.is_err() {
            let _ = shutdown(number, Shutdown::Both);
            return Err(Errno::ECONNREFUSED.into());
        }
        connected
    }

    fn turn(&self) -> MutexGuard<'_, u32> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the filter says that somebody would listen at an address. One that is slow is waited for, and goes on when it can: its
    /// answers come in the order of the questions, so that those to earlier ones are told apart.
    fn has_listener(&self, owed: &mut u32, to: &SocketAddr) -> bool {
        match self.ask(owed, to) {
            Ok(listens) => listens,
            // Its queue is full of questions.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                *owed += 1;
                false
            }
            Err(_) => {
                let _ = shutdown(self.filter.as_raw_fd(), Shutdown::Both);
                false
            }
        }
    }

    fn ask(&self, owed: &mut u32, to: &SocketAddr) -> io::Result<bool> {
        let message = led::message(to).map_err(io::Error::other)?;
        again(|| passing::send_now(&self.filter, &message, None))?;
        while *owed > 0 {
            self.answer()?;
            *owed -= 1;
        }
        self.answer()
    }

    fn answer(&self) -> io::Result<bool> {
        wait_for(&self.filter, ANSWER)?;
        let mut answer = [0; led::LONGEST];
        let (length, _) =
            again(|| passing::receive(&self.filter, &mut answer, MsgFlags::MSG_DONTWAIT))?;
        match answer.get(..length) {
            Some(led::LISTENS) => Ok(true),
            Some(led::NOBODY) => Ok(false),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn give(&self, to: &SocketAddr, stream: &TcpStream) -> io::Result<()> {
        let message = led::message(to).map_err(io::Error::other)?;
        again(|| passing::send(&self.filter, &message, Some(stream.as_fd())))
    }
}

/// Connects a socket within [`PATIENCE`]. One that waits for its connection ends with `TimedOut` then.
fn in_time(socket: &OwnedFd, connect: impl Fn() -> io::Result<()>) -> io::Result<()> {
    // The time of connect(2) as well (socket(7)). It is the caller's, who sends nothing before there is a connection.
    let own = getsockopt(socket, SendTimeout)?;
    let most = i64::try_from(PATIENCE.as_millis()).unwrap_or(i64::MAX);
    setsockopt(socket, SendTimeout, &TimeVal::milliseconds(most))?;
    let connected = connect();
    setsockopt(socket, SendTimeout, &own)?;
    let flags = OFlag::from_bits_retain(fcntl(socket, FcntlArg::F_GETFL)?);
    match connected {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
            match flags.contains(OFlag::O_NONBLOCK) {
                true => Err(error),
                false => {
                    let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
                    Err(Errno::ETIMEDOUT.into())
                }
            }
        }
        connected => connected,
    }
}

/// Drops what waits to be accepted: none of it is the caller's.
fn drop_waiting(listener: &TcpListener) {
    let waiting = (0..MOST_WAITING).map(|_| again(|| listener.accept()));
    waiting.take_while(Result::is_ok).for_each(drop);
}

/// Accepts the connection of this socket, and drops those of others.
fn accepted(listener: &TcpListener, socket: &OwnedFd) -> io::Result<TcpStream> {
    let from: SockaddrStorage = getsockname(socket.as_raw_fd())?;
    let from = plain(&from).ok_or(Errno::EADDRNOTAVAIL)?;
    let end = Instant::now() + PATIENCE;
    for _ in 0..MOST_WAITING {
        match again(|| listener.accept()) {
            Ok((stream, peer)) => {
                // One of somebody else may have had the port, and be over.
                let lives = matches!(sockets::tcp_state(&stream)?, ESTABLISHED | CLOSE_WAIT);
                if lives && (peer.ip().to_canonical(), peer.port()) == from {
                    return Ok(stream);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_for(listener, end.saturating_duration_since(Instant::now()))?;
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Waits until something can be read.
///
/// # Errors
/// `TimedOut`.
fn wait_for(what: impl AsFd, patience: Duration) -> io::Result<()> {
    let mut ready = [PollFd::new(what.as_fd(), PollFlags::POLLIN)];
    let patience = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
    match again(|| Ok(poll(&mut ready, patience)?))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// Does something again that a signal interrupts: what waits here waits for a bounded time.
fn again<T>(mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match act() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

fn plain(address: &SockaddrStorage) -> Option<(IpAddr, u16)> {
    let four = address
        .as_sockaddr_in()
        .map(|at| (at.ip().into(), at.port()));
    let six = || {
        address
            .as_sockaddr_in6()
            .map(|at| (at.ip().to_canonical(), at.port()))
    };
    four.or_else(six)
}

/// What the kernel takes an address for that is given to a TCP socket of this domain (net/ipv4/tcp_ipv4.c, `tcp_v4_connect`;
/// net/ipv6/tcp_ipv6.c, `tcp_v6_connect`).
fn meant(domain: i32, address: &[u8]) -> Result<Meant, Errno> {
    let (said, rest) = address.split_first_chunk().ok_or(Errno::EINVAL)?;
    let said = i32::from(libc::sa_family_t::from_ne_bytes(*said));
    let shortest = match domain {
        libc::AF_INET => SHORTEST_4,
        libc::AF_INET6 => SHORTEST_6,
        _ => return Err(Errno::EACCES),
    };
    if said == libc::AF_UNSPEC {
        return Ok(Meant::Nobody);
    }
    if address.len() < shortest {
        return Err(Errno::EINVAL);
    }
    if said != domain {
        return Err(Errno::EAFNOSUPPORT);
    }
    let (port, rest) = rest.split_first_chunk().ok_or(Errno::EINVAL)?;
    let ip: IpAddr = match domain {
        libc::AF_INET => {
            let bytes = rest.first_chunk::<4>().ok_or(Errno::EINVAL)?;
            Ipv4Addr::from(*bytes).into()
        }
        // Behind the flow.
        _ => {
            let bytes = rest.get(4..).and_then(<[u8]>::first_chunk::<16>);
            Ipv6Addr::from(*bytes.ok_or(Errno::EINVAL)?).into()
        }
    };
    let canonical = ip.to_canonical();
    // Nobody has these; the kernel takes the loopback.
    let ip = match canonical {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        other => other,
    };
    Ok(Meant::Somebody {
        to: SocketAddr::new(ip, u16::from_be_bytes(*port)),
        by_six: canonical.is_ipv6(),
    })
}

fn family(number: i32) -> Vec<u8> {
    // Every family's number is small.
    let number = libc::sa_family_t::try_from(number).unwrap_or_default();
    let mut bytes = number.to_ne_bytes().to_vec();
    // What the kernel reads of an address of any family.
    bytes.resize(SHORTEST_4, 0);
    bytes
}

/// An address as a socket of this domain takes it.
fn as_bytes(domain: i32, at: SocketAddr) -> Vec<u8> {
    let mut bytes = family(domain);
    bytes.truncate(size_of::<libc::sa_family_t>());
    bytes.extend(at.port().to_be_bytes());
    match at.ip() {
        IpAddr::V4(ip) if domain == libc::AF_INET => {
            bytes.extend(ip.octets());
            bytes.resize(size_of::<libc::sockaddr_in>(), 0);
        }
        ip => {
            let ip = match ip {
                // A socket for IPv6 alone gets the kernel's own answer.
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            bytes.extend([0; 4]);
            bytes.extend(ip.octets());
            bytes.resize(size_of::<libc::sockaddr_in6>(), 0);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

    use super::*;

    fn somebody(text: &str, by_six: bool) -> Result<Meant, Errno> {
        let to = text.parse().expect("an address");
        Ok(Meant::Somebody { to, by_six })
    }

    #[test]
    fn an_address_is_what_the_kernel_takes_it_for() {
        let at = |domain, text: &str| as_bytes(domain, text.parse().expect("an address"));
        let (four, six) = (libc::AF_INET, libc::AF_INET6);
        let whole = at(four, "198.18.0.1:443");
        assert_eq!(whole.len(), SHORTEST_4);
        assert_eq!(meant(four, &whole), somebody("198.18.0.1:443", false));
        assert_eq!(
            meant(four, &at(four, "0.0.0.0:1")),
            somebody("127.0.0.1:1", false)
        );
        let mapped = at(six, "198.18.0.1:443");
        assert_eq!(meant(six, &mapped), somebody("198.18.0.1:443", false));
        assert_eq!(
            meant(six, &at(six, "0.0.0.0:1")),
            somebody("127.0.0.1:1", false)
        );
        assert_eq!(meant(six, &at(six, "[::]:1")), somebody("[::1]:1", true));
        let mut scoped = at(six, "[fe80::1]:80");
        scoped[24] = 3;
        assert_eq!(meant(six, &scoped), somebody("[fe80::1]:80", true));
        assert_eq!(meant(six, &scoped[..24]), somebody("[fe80::1]:80", true));
        for (domain, bytes, errno) in [
            (four, &whole[..15], Errno::EINVAL),
            (six, &mapped[..23], Errno::EINVAL),
            (six, &whole, Errno::EINVAL),
            (four, &mapped, Errno::EAFNOSUPPORT),
            (four, &[], Errno::EINVAL),
            (four, &[2], Errno::EINVAL),
            (libc::AF_NETLINK, &whole, Errno::EACCES),
        ] {
            assert_eq!(meant(domain, bytes), Err(errno), "{bytes:?}");
        }
        for length in [2, 16, 28] {
            assert_eq!(meant(four, &vec![0; length]), Ok(Meant::Nobody));
            assert_eq!(meant(six, &vec![0; length]), Ok(Meant::Nobody));
        }
    }

    fn listener(waiting: i32) -> TcpListener {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
        sockets::listen(&listener, waiting).expect("a queue");
        listener.set_nonblocking(true).expect("a flag");
        listener
    }

    fn new_socket() -> OwnedFd {
        let (family, kind) = (AddressFamily::Inet, SockType::Stream);
        socket(family, kind, SockFlag::SOCK_CLOEXEC, None).expect("a socket")
    }

    /// Whoever keeps the queue full would hold up every connection of the session, for as long as the kernel tries: two minutes.
    #[test]
    fn a_connection_to_a_full_queue_takes_bounded_time() {
        let listener = listener(0);
        let at = listener.local_addr().expect("an address");
        let fills = || TcpStream::connect_timeout(&at, Duration::from_millis(200));
        let _all: Vec<_> = (0..4).map_while(|_| fills().ok()).collect();
        let socket = new_socket();
        let begun = Instant::now();
        let done = in_time(&socket, || {
            sockets::connect(&socket, &as_bytes(libc::AF_INET, at))
        });
        let kind = done.map_err(|error| error.kind());
        assert_eq!(kind, Err(io::ErrorKind::TimedOut));
        assert!((PATIENCE..PATIENCE * 3).contains(&begun.elapsed()));
        let left = getsockopt(&socket, SendTimeout).expect("a time");
        assert_eq!(left, TimeVal::seconds(0), "the caller's own");
        assert_eq!(sockets::tcp_state(&socket).expect("a state"), CLOSED);
    }

    /// Others who connect now and then would have the caller's own be waited for without end.
    #[test]
    fn others_do_not_prolong_the_wait_for_a_connection() {
        let listener = listener(MOST_WAITING.into());
        let at = listener.local_addr().expect("an address");
        let own = new_socket();
        let here: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        sockets::bind(&own, &as_bytes(libc::AF_INET, here)).expect("an address of its own");
        std::thread::spawn(move || {
            for _ in 0..20 {
                drop(TcpStream::connect(at));
                std::thread::sleep(PATIENCE / 6);
            }
        });
        let begun = Instant::now();
        assert!(accepted(&listener, &own).is_err());
        assert!(begun.elapsed() < PATIENCE * 2);
    }
}
