//! Ports inside for the user outside: what listens there is this test's own, on the loopback, and hostile where it matters.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // a test: the panic is the failure

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use agent_sandbox_filter::{MOST_FORWARDED, forward};

/// Nothing here takes as long, but on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that forwards ports, as a thread.
struct Forwarding {
    life: Option<UnixStream>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Forwarding {
    fn of(ports: &[u16]) -> Self {
        let listeners = ports.iter().map(|port| {
            let listener = UnixListener::bind_addr(&address(*port)).unwrap();
            (*port, listener)
        });
        let listeners: Vec<_> = listeners.collect();
        let (life, theirs) = UnixStream::pair().unwrap();
        let thread = thread::spawn(move || forward(listeners, theirs.into()));
        Self {
            life: Some(life),
            thread: Some(thread),
        }
    }

    fn connect(&self, port: u16) -> UnixStream {
        let stream = UnixStream::connect_addr(&address(port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        drop(self.life.take());
        let ended = self.thread.take().unwrap().join().unwrap();
        if !thread::panicking() {
            ended.unwrap();
        }
    }
}

/// The user's socket of a port.
fn address(port: u16) -> SocketAddr {
    let name = format!("forward-test.{}.{port}", std::process::id());
    SocketAddr::from_abstract_name(name).unwrap()
}

/// A server inside; its port.
fn server(at: &str, serve: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> u16 {
    let listener = TcpListener::bind(at).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    port
}

/// Takes everything, and then sends it back.
fn echo(mut stream: TcpStream) {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    stream.write_all(&all).unwrap();
}

/// Nothing more comes: an end, or a reset, and no wait.
fn ends(stream: &mut UnixStream) {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
    assert!(rest.is_empty(), "{rest:?}");
}

#[test]
fn bytes_go_both_ways_until_both_ends_are_done() {
    let four = server("127.0.0.1:0", echo);
    let six = server("[::1]:0", echo);
    let forwarding = Forwarding::of(&[four, six]);
    let sent: Vec<u8> = (0..3_000_000u32).map(|at| (at % 251) as u8).collect();
    for port in [four, six] {
        let mut stream = forwarding.connect(port);
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        assert!(got == sent, "{} bytes of {}", got.len(), sent.len());
    }
}

#[test]
fn where_nobody_listens_a_connection_ends_at_once() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let forwarding = Forwarding::of(&[port]);
    let began = Instant::now();
    for _ in 0..20 {
        ends(&mut forwarding.connect(port));
    }
    assert!(began.elapsed() < PATIENCE / 2);
    // A server that comes later is reached.
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let mut stream = forwarding.connect(port);
    listener.accept().unwrap().0.write_all(b"late").unwrap();
    let mut got = [0; 4];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"late");
}

/// A program inside that lets its queue fill up, and accepts nobody.
#[test]
fn a_server_that_accepts_nobody_holds_nobody_for_long() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
    // What waits in the queue is connected.
    let _waiting = TcpStream::connect(at).unwrap();
    let forwarding = Forwarding::of(&[at.port()]);
    ends(&mut forwarding.connect(at.port()));
}

/// A program inside that holds on to connections, whatever becomes of the other end: it gets as many as there is room for. When the
/// user has gone there is room again.
#[test]
fn whoever_holds_connections_inside_holds_a_bounded_number_of_them_and_none_that_the_user_has_left()
{
    let holds = server("127.0.0.1:0", |mut stream| {
        let _ = stream.write_all(b"here");
        thread::sleep(PATIENCE * 4);
        drop(stream);
    });
    let other = server("127.0.0.1:0", echo);
    let forwarding = Forwarding::of(&[holds, other]);
    let mut held: Vec<UnixStream> = (0..MOST_FORWARDED)
        .map(|_| forwarding.connect(holds))
        .collect();
    for stream in &mut held {
        stream.read_exact(&mut [0; 4]).unwrap();
    }
    ends(&mut forwarding.connect(holds));
    ends(&mut forwarding.connect(other));
    drop(held);
    let until = Instant::now() + PATIENCE;
    loop {
        let mut stream = forwarding.connect(other);
        // Where there is no room it may have ended already.
        let sent = stream
            .write_all(b"back")
            .and_then(|()| stream.shutdown(Shutdown::Write));
        let mut got = Vec::new();
        if sent.is_ok() && stream.read_to_end(&mut got).is_ok() && got == b"back" {
            break;
        }
        assert!(Instant::now() < until, "the places are not given back");
        thread::sleep(Duration::from_millis(100));
    }
}

/// What the user has sent before leaving still arrives.
#[test]
fn what_was_sent_arrives_though_the_user_has_left() {
    let (tell, told) = std::sync::mpsc::channel();
    let port = server("127.0.0.1:0", move |mut stream| {
        // The relay still holds some of it when the other end is gone.
        thread::sleep(Duration::from_millis(500));
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        let _ = tell.send(all.len());
    });
    let forwarding = Forwarding::of(&[port]);
    let mut stream = forwarding.connect(port);
    stream.write_all(&vec![7; 3_000_000]).unwrap();
    drop(stream);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), 3_000_000);
}

/// A server inside that sends without end to a user who reads nothing, on every connection.
#[test]
fn what_floods_from_inside_waits_there() {
    let flood = server("127.0.0.1:0", |mut stream| {
        let block = vec![0; 1 << 20];
        while stream.write_all(&block).is_ok() {}
    });
    let other = server("127.0.0.1:0", echo);
    let forwarding = Forwarding::of(&[flood, other]);
    let before = resident_mib();
    let held: Vec<UnixStream> = (0..200).map(|_| forwarding.connect(flood)).collect();
    let mut seen = [0];
    for mut stream in &held {
        stream.read_exact(&mut seen).unwrap();
    }
    thread::sleep(Duration::from_millis(500));
    let mut stream = forwarding.connect(other);
    stream.write_all(b"beside").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"beside");
    // A buffer of 256 KiB for each would be 50 MiB; the threads of the server have a part, too.
    let more = resident_mib() - before;
    assert!(more < 48, "{more} MiB");
}

fn resident_mib() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: i64 = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib / 1024
}
