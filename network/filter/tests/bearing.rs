//! What the filter bears: readers that are slow, more connections than it has room for, ends at a bad time, a panic.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // a test: the panic is the failure

mod harness;

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use harness::hello::hello;
use harness::{ALERT, AT, Jail, alone, echo, open, said, server};

/// A server may end a connection that is idle while the next request is on its way: what may be sent twice is.
#[test]
fn a_request_that_meets_the_end_of_a_connection_is_sent_again() {
    alone(
        "a_request_that_meets_the_end_of_a_connection_is_sent_again",
        || {
            let connections = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&connections);
            // It answers one request on each connection, and ends it when it has read the next.
            server("203.0.113.1:80", move |mut stream| {
                counted.fetch_add(1, Ordering::SeqCst);
                let mut bytes = [0; 4096];
                let _ = stream.read(&mut bytes);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                let _ = stream.read(&mut bytes);
            });
            let jail = Jail::new(open(&["a.example"]), &[("a.example", AT)]);
            let first = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
            for (second, answer, made) in [
                (
                    "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n",
                    "200 OK",
                    2,
                ),
                (
                    "DELETE / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n",
                    "200 OK",
                    2,
                ),
                (
                    "POST / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n",
                    "502 Bad",
                    1,
                ),
                (
                    "PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx",
                    "502 Bad",
                    1,
                ),
            ] {
                connections.store(0, Ordering::SeqCst);
                let mut stream = jail.connect("a.example", 80);
                stream.write_all(first.as_bytes()).unwrap();
                let mut got = Vec::new();
                while !got.ends_with(b"ok") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    got.push(byte[0]);
                }
                stream.write_all(second.as_bytes()).unwrap();
                let said = said(&mut stream);
                assert!(
                    said.starts_with(&format!("HTTP/1.1 {answer}")),
                    "{second:?}: {said}"
                );
                assert_eq!(connections.load(Ordering::SeqCst), made, "{second:?}");
            }
            // A server that never answers is asked once.
            server("203.0.113.2:80", move |mut stream| {
                let _ = stream.read(&mut [0; 4096]);
            });
            let jail = Jail::new(open(&["b.example"]), &[("b.example", &[&["203.0.113.2"]])]);
            let ask = "GET / HTTP/1.1\r\nHost: b.example\r\nConnection: close\r\n\r\n";
            let said = jail.say("b.example", 80, ask.as_bytes());
            assert!(said.starts_with("HTTP/1.1 502 "), "{said}");
            assert_eq!(jail.zone.asked.lock().unwrap().len(), 1);
        },
    );
}

/// What readers that take nothing keep waiting is bounded over all connections, and others go on beside them.
#[test]
fn slow_readers_hold_little_and_nobody_up() {
    alone("slow_readers_hold_little_and_nobody_up", || {
        // More than the sockets of both sides take, and the filter.
        server("203.0.113.1:7", |mut stream| {
            let mut ask = [0];
            let _ = stream.read(&mut ask);
            let block = vec![0; 1 << 20];
            let _ = (0..4).try_for_each(|_| stream.write_all(&block));
        });
        echo("203.0.113.2:7");
        let names: &[(&str, &[&[&str]])] = &[("a.example", AT), ("b.example", &[&["203.0.113.2"]])];
        let jail = Jail::new(open(&["a.example:7", "b.example:7"]), names);
        // Much comes at once, and little of it is taken by the sockets inside.
        let sizes = |most: usize| {
            for name in ["tcp_rmem", "tcp_wmem"] {
                let file = format!("/proc/sys/net/ipv4/{name}");
                std::fs::write(file, format!("4096 {most} {most}")).unwrap();
            }
        };
        sizes(1 << 20);
        jail.run(move || sizes(1 << 16));
        let before = resident_mib();
        let slow: Vec<_> = (0..200)
            .map(|_| {
                let mut stream = jail.connect("a.example", 7);
                stream.write_all(&[1]).unwrap();
                stream.read_exact(&mut [0]).unwrap();
                stream
            })
            .collect();
        for _ in 0..20 {
            assert_eq!(jail.say_and_end("b.example", 7, b"\x01x"), "got \u{1}x");
        }
        // A buffer of 256 KiB for each would be 50 MiB; threads of the server have a part, too.
        let more = resident_mib() - before;
        assert!(more < 36, "{more} MiB");
        // They get all of it when they take it.
        let mut one = slow.into_iter().next().unwrap();
        let mut all = Vec::new();
        one.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), (4 << 20) - 1);
    });
}

/// A panic while a connection is served ends that connection, and no other.
#[test]
fn a_panic_ends_one_connection() {
    alone("a_panic_ends_one_connection", || {
        echo("203.0.113.1:443");
        let jail = Jail::new(open(&["*"]), &[("a.example", AT)]);
        let panics = jail.say("panic.example", 443, &hello(Some("panic.example")));
        assert!(!panics.contains("got "), "{panics}");
        let bytes = hello(Some("a.example"));
        assert!(
            jail.say_and_end("a.example", 443, &bytes)
                .starts_with("got ")
        );
    });
}

#[test]
fn a_thousand_connections_have_room_and_one_more_is_reset() {
    alone(
        "a_thousand_connections_have_room_and_one_more_is_reset",
        || {
            let jail = Jail::new(open(&["a.example"]), &[]);
            let held: Vec<_> = (0..agent_sandbox_filter::MOST_CONNECTIONS)
                .map(|_| jail.connect("a.example", 443))
                .collect();
            // Accepting is in order, so one is past the limit when it is answered.
            assert_eq!(jail.say("a.example", 443, b""), "reset");
            assert!(jail.refusals()[0].contains("as many connections as it may have"));
            drop(held);
            // Room comes back.
            let again = || jail.say("a.example", 443, &hello(Some("x.example"))) == ALERT;
            assert!((0..100).any(|_| again() || {
                thread::sleep(std::time::Duration::from_millis(50));
                false
            }));
        },
    );
}

/// MiB of this process in memory: the filter, the servers' threads and the test.
fn resident_mib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<usize>()
        .unwrap()
        / 1024
}
