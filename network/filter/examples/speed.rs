//! What the filter costs: the first byte, one stream, and memory for a thousand connections, beside the same without it; and one stream by
//! TLS where a credential is exchanged. With the argument `exchange` that alone.
//!
//!     unshare --user --map-root-user --net cargo run --release --example speed -p agent-sandbox-filter
//!
//! Client, server and filter are one process. Figures are medians of alternating runs, and mean something as ratios.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // measures the clock; a failure is its end

#[path = "../tests/harness/mod.rs"]
mod harness;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use agent_sandbox_filter::Broker;
use agent_sandbox_hosts::{Credential, Name};
use harness::tls::{Authority, request, tls_client};
use harness::{Jail, alone_here, rules, server};
use rustls::{ServerConnection, StreamOwned};

/// Bytes of a stream.
const STREAM: usize = 1 << 30;
const RUNS: usize = 200;
const STREAMS: usize = 5;
const MANY: usize = 1000;
/// `USER_HZ` is 100 everywhere.
const MS_OF_TICK: usize = 10;
/// Bytes of a stream by TLS.
const SECURED: usize = 1 << 28;

fn main() {
    alone_here();
    exchange();
    if std::env::args().nth(1).as_deref() == Some("exchange") {
        return;
    }
    // 1: one byte; 2: a stream. No text: of that a whole line is read before it is judged.
    server("203.0.113.1:7", |mut stream| {
        let mut ask = [0];
        let block = vec![0; 1 << 18];
        while stream.read(&mut ask).unwrap_or(0) == 1 {
            let blocks = if ask == [2] { STREAM / block.len() } else { 0 };
            let _ = stream.write_all(b"x");
            (0..blocks).for_each(|_| stream.write_all(&block).unwrap());
        }
    });
    let rules = rules(&["a.example:7"], &[], &["203.0.113.1"]);
    let jail = Jail::new(rules, &[("a.example", &[&["203.0.113.1"]])]);
    jail.connect("a.example", 7);

    let direct = || TcpStream::connect("203.0.113.1:7").unwrap();
    let inside = || jail.connect("198.18.0.1", 7);
    let first = |connect: &dyn Fn() -> TcpStream| {
        let start = Instant::now();
        let mut stream = connect();
        stream.write_all(&[1]).unwrap();
        stream.read_exact(&mut [0]).unwrap();
        start.elapsed()
    };
    let (a, b) = alternate(RUNS, || first(&direct), || first(&inside));
    println!("first byte: direct {a:?}, filtered {b:?}");

    let stream = |connect: &dyn Fn() -> TcpStream| {
        let mut stream = connect();
        let mut block = vec![0; 1 << 18];
        let start = Instant::now();
        stream.write_all(&[2]).unwrap();
        let mut left = STREAM + 1;
        while left > 0 {
            left -= stream.read(&mut block).unwrap();
        }
        start.elapsed()
    };
    let before = ticks_of_filter();
    let (a, b) = alternate(STREAMS, || stream(&direct), || stream(&inside));
    println!(
        "one stream of 1 GiB: direct {a:?}, filtered {b:?}: {:.2} of it; {} ms of the filter's processor time each",
        a.as_secs_f64() / b.as_secs_f64(),
        (ticks_of_filter() - before) * MS_OF_TICK / STREAMS
    );

    let before = resident();
    let held: Vec<_> = (0..MANY)
        .map(|_| {
            let mut stream = inside();
            stream.write_all(&[1]).unwrap();
            stream.read_exact(&mut [0]).unwrap();
            stream
        })
        .collect();
    println!(
        "{} connections: {} KiB more, of which the server's threads have a part",
        held.len(),
        resident() - before
    );
}

/// One stream by TLS, to the server and through an exchange of credentials.
fn exchange() {
    let outside = Authority::new();
    let config = outside.server("b.example", 1);
    server("203.0.113.2:443", move |stream| {
        let connection = ServerConnection::new(config.clone()).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        if request(&mut stream).is_err() {
            return;
        }
        let block = vec![0; 1 << 18];
        let _ = write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {SECURED}\r\n\r\n"
        );
        (0..SECURED / block.len()).for_each(|_| stream.write_all(&block).unwrap());
        stream.flush().unwrap();
    });
    let credential = Credential {
        name: "b".to_owned(),
        hosts: vec![(Name::parse("b.example").unwrap(), 443)],
        placeholder: "a-placeholder".to_owned(),
        value: "a-value".to_owned().into(),
        by_base_url: false,
    };
    let broker = Broker::new(vec![credential], &[], outside.pem().as_bytes(), None).unwrap();
    let known = broker.certificate();
    let rules = rules(&["b.example"], &[], &["203.0.113.2"]);
    let jail = Jail::with(rules, Some(broker), &[("b.example", &[&["203.0.113.2"]])]);
    let stream = |trusted: &str, stream: TcpStream| {
        let mut stream = tls_client(trusted, "b.example", stream);
        let start = Instant::now();
        let ask =
            "GET / HTTP/1.1\r\nHost: b.example\r\nAuthorization: Bearer a-placeholder\r\n\r\n";
        stream.write_all(ask.as_bytes()).unwrap();
        let mut block = vec![0; 1 << 18];
        let mut got = 0;
        // The head comes on top.
        while got < SECURED {
            got += stream.read(&mut block).unwrap();
        }
        start.elapsed()
    };
    let direct = || {
        stream(
            &outside.pem(),
            TcpStream::connect("203.0.113.2:443").unwrap(),
        )
    };
    let exchanged = || stream(&known, jail.connect("b.example", 443));
    let (a, b) = alternate(STREAMS, direct, exchanged);
    println!(
        "one stream of 256 MiB by TLS: direct {a:?}, exchanged {b:?}: {:.2} of it",
        a.as_secs_f64() / b.as_secs_f64()
    );
}

fn alternate(
    runs: usize,
    one: impl Fn() -> Duration,
    other: impl Fn() -> Duration,
) -> (Duration, Duration) {
    let (mut a, mut b): (Vec<_>, Vec<_>) = (0..runs).map(|_| (one(), other())).unzip();
    a.sort();
    b.sort();
    (a[runs / 2], b[runs / 2])
}

/// Processor time of the filter's thread so far, in ticks (`proc_pid_stat(5)`).
fn ticks_of_filter() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let stats = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("stat")).unwrap());
    let mut filters = stats.filter(|stat| stat.contains("(filter)"));
    let stat = filters.next().unwrap();
    let mut words = stat.rsplit_once(") ").unwrap().1.split(' ').skip(11);
    let mut next = || words.next().unwrap().parse::<usize>().unwrap();
    next() + next()
}

/// KiB of this process in memory.
fn resident() -> i64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
