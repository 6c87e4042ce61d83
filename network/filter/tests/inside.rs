//! What programs inside a jail reach through the filter, and what they do not.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // a test: the panic is the failure

mod harness;

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};

use harness::hello::{hello, hello_in};
use harness::{ALERT, AT, Jail, PATIENCE, alone, echo, open, said, server};
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;

/// An outer one (RFC 9849, 5): algorithms, the key's number, no key, one byte of payload.
const ECH: [u8; 15] = [0xfe, 0x0d, 0, 11, 0, 0, 1, 0, 1, 5, 0, 0, 0, 1, 0xaa];

#[test]
fn names_have_addresses_inside_and_nobody_outside_is_asked() {
    alone(
        "names_have_addresses_inside_and_nobody_outside_is_asked",
        || {
            let jail = Jail::new(open(&["a.example", "*.b.example", "bad.example"]), &[]);
            let (code, first) = jail.ask("a.example.", RecordType::A);
            assert_eq!((code, first.len()), (ResponseCode::NoError, 1));
            assert_eq!(
                jail.ask("A.EXAMPLE.", RecordType::A).1,
                first,
                "a name keeps its address, in any case"
            );
            assert_ne!(jail.ask("x.b.example.", RecordType::A).1, first);
            for kind in [
                RecordType::AAAA,
                RecordType::HTTPS,
                RecordType::TXT,
                RecordType::MX,
                RecordType::CNAME,
            ] {
                assert_eq!(
                    jail.ask("a.example.", kind),
                    (ResponseCode::NoError, vec![]),
                    "{kind}"
                );
            }
            assert_eq!(
                jail.ask("a.example.", RecordType::ANY).0,
                ResponseCode::NotImp
            );
            for name in [
                "b.example.",
                "other.example.",
                "bad.example.",
                "1.0.18.198.in-addr.arpa.",
                ".",
            ] {
                assert_eq!(
                    jail.ask(name, RecordType::A).0,
                    ResponseCode::NXDomain,
                    "{name}"
                );
            }
            // The jail's own loopback, which no rule has to name.
            for name in ["localhost.", "x.localhost."] {
                let (code, addresses) = jail.ask(name, RecordType::A);
                assert_eq!(code, ResponseCode::NoError, "{name}");
                let loopback = IpAddr::from([127, 0, 0, 1]);
                assert_eq!(addresses, [loopback], "{name}");
            }
            assert!(jail.zone.asked.lock().unwrap().is_empty());
            assert!(
                jail.refusals()[0]
                    .contains("b.example is not reached: nothing in network.allow names it"),
                "{:?}",
                jail.refusals()
            );
            assert!(
                jail.refusals()[2].contains("`bad.example` in network.deny (policy:1)"),
                "{:?}",
                jail.refusals()
            );
        },
    );
}

#[test]
fn the_dns_over_tcp_says_the_same() {
    alone("the_dns_over_tcp_says_the_same", || {
        let jail = Jail::new(open(&["a.example"]), &[]);
        let query = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x01a\x07example\0\0\x01\0\x01";
        let mut stream = jail.connect("127.0.0.1", 53);
        // In pieces, and twice on one connection.
        for _ in 0..2 {
            for byte in [&[0, u8::try_from(query.len()).unwrap()], &query[..]].concat() {
                stream.write_all(&[byte]).unwrap();
            }
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut answer).unwrap();
            assert!(answer.ends_with(&[198, 18, 0, 1]), "{answer:?}");
        }
        // Longer than any query is.
        stream.write_all(&[0xff, 0xff]).unwrap();
        assert_eq!(said(&mut stream), "");
    });
}

#[test]
fn tls_passes_where_the_name_in_it_agrees() {
    alone("tls_passes_where_the_name_in_it_agrees", || {
        echo("203.0.113.1:443");
        let jail = Jail::new(open(&["a.example", "b.example"]), &[("a.example", AT)]);
        let text = |bytes: &[u8]| {
            format!(
                "got {}",
                bytes.iter().map(|b| char::from(*b)).collect::<String>()
            )
        };
        let through = |bytes: &[u8]| {
            let mut stream = jail.connect("a.example", 443);
            stream.set_nodelay(true).unwrap();
            for part in bytes.chunks(7) {
                stream.write_all(part).unwrap();
            }
            stream.shutdown(Shutdown::Write).unwrap();
            said(&mut stream)
        };
        let agreed = hello(Some("a.example"));
        assert_eq!(through(&agreed), text(&agreed));
        let fragments = hello_in(Some("A.example"), &[], 1);
        assert_eq!(through(&fragments), text(&fragments));
        // Encrypted ClientHello: the outer name agrees.
        let ech = hello_in(Some("a.example"), &ECH, 16_000);
        assert_eq!(through(&ech), text(&ech));
        assert_eq!(jail.reached(), ["a.example:443"]);

        for (bytes, why) in [
            (hello(Some("b.example")), "asked for b.example in TLS"),
            (hello(Some("evil.example")), "asked for evil.example in TLS"),
            (
                hello_in(Some("evil.example"), &ECH, 3),
                "asked for evil.example in TLS",
            ),
            (hello(None), "named no server in TLS"),
            (
                hello(Some("a.example\0.evil.example")),
                "neither TLS nor HTTP",
            ),
            (hello(Some("127.1")), "neither TLS nor HTTP"),
            (vec![0x16, 3, 1, 0xff, 0xff], "neither TLS nor HTTP"),
        ] {
            assert_eq!(jail.say("a.example", 443, &bytes), ALERT, "{why}");
            assert!(
                jail.refusals().last().unwrap().contains(why) || why.starts_with("neither"),
                "{:?}",
                jail.refusals()
            );
        }
        // No TLS and no HTTP.
        for bytes in [
            &b"SSH-2.0-x\r\n"[..],
            b"\x80\x2e\x01\0\x02",
            b"\0\0\0\0\n\n",
        ] {
            let answer = jail.say("a.example", 443, bytes);
            assert!(
                answer == "reset" || answer.starts_with("HTTP/1.1 400"),
                "{answer:?}"
            );
        }
        assert_eq!(
            jail.zone.asked.lock().unwrap().len(),
            3,
            "what is refused is not resolved"
        );
    });
}

/// A server of HTTP that answers each request with its head, and keeps the connection.
fn web(at: &str) {
    server(at, |mut stream| {
        let mut got = Vec::new();
        let mut bytes = [0; 4096];
        loop {
            while let Some(end) = got.windows(4).position(|w| w == b"\r\n\r\n") {
                let head: Vec<u8> = got.drain(..end + 4).collect();
                let head = String::from_utf8(head).unwrap();
                let answer = if head.to_lowercase().contains("upgrade: websocket") {
                    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nframes".to_owned()
                } else {
                    format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}",
                        head.len()
                    )
                };
                stream.write_all(answer.as_bytes()).unwrap();
            }
            match stream.read(&mut bytes) {
                Ok(n) if n > 0 => got.extend(&bytes[..n]),
                _ => return,
            }
        }
    });
}

#[test]
fn each_request_over_http_names_the_host_that_is_connected() {
    alone(
        "each_request_over_http_names_the_host_that_is_connected",
        || {
            web("203.0.113.1:80");
            let jail = Jail::new(open(&["a.example", "b.example"]), &[("a.example", AT)]);
            let ask = |text: &str| jail.say("a.example", 80, text.as_bytes());
            let last = "Connection: close\r\n";
            for (request, answer) in [
                (
                    format!("GET /x HTTP/1.1\r\nHost: a.example\r\n{last}\r\n"),
                    "GET /x HTTP/1.1",
                ),
                (
                    format!("GET / HTTP/1.1\r\nHost: A.Example:80\r\n{last}\r\n"),
                    "Host: A.Example:80",
                ),
                (
                    format!("GET http://a.example/y HTTP/1.1\r\nHost: a.example\r\n{last}\r\n"),
                    "GET /y HTTP/1.1",
                ),
                (
                    format!("GET /lf HTTP/1.1\nHost: a.example\n{last}\n"),
                    "GET /lf HTTP/1.1\r\n",
                ),
                // Old, and says whom it means.
                (
                    "GET /old HTTP/1.0\r\nHost: a.example\r\n\r\n".to_owned(),
                    "GET /old HTTP/1.1",
                ),
            ] {
                let said = ask(&request);
                assert!(
                    said.starts_with("HTTP/1.")
                        && said.contains(" 200 OK")
                        && said.contains(answer),
                    "{request:?}: {said}"
                );
            }
            for (request, why) in [
                (
                    "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n",
                    "asked for b.example over HTTP",
                ),
                (
                    "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
                    "asked for evil.example over HTTP",
                ),
                (
                    "GET / HTTP/1.1\r\nHost: a.example:8080\r\n\r\n",
                    "asked for a.example:8080 over HTTP",
                ),
                ("GET / HTTP/1.1\r\nHost: x@a.example\r\n\r\n", "no host"),
                ("GET / HTTP/1.1\r\nHost: a.example:80:80\r\n\r\n", "no host"),
                ("GET / HTTP/1.1\r\nHost: a.example/../b\r\n\r\n", "no host"),
                ("GET / HTTP/1.1\r\nHost: \r\n\r\n", "no host"),
                (
                    "GET / HTTP/1.1\r\nHost: 203.0.113.1\r\n\r\n",
                    "asked for 203.0.113.1 over HTTP",
                ),
                ("GET / HTTP/1.1\r\n\r\n", "one header `Host`"),
                (
                    "GET / HTTP/1.1\r\nHost: a.example\r\nHost: evil.example\r\n\r\n",
                    "one header `Host`",
                ),
                (
                    "GET http://evil.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
                    "asked for evil.example over HTTP",
                ),
                (
                    "GET http://a.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
                    "asked for evil.example over HTTP",
                ),
                (
                    "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n",
                    "CONNECT",
                ),
            ] {
                let said = ask(request);
                assert!(
                    said.starts_with("HTTP/1.1 403 Forbidden") && said.contains(why),
                    "{request:?}: {said}"
                );
                assert!(
                    said.contains("agent-sandbox: a.example:80 is not reached: "),
                    "{said}"
                );
            }
            for request in [
                "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
                "GET / HTTP/1.1\r\nHost : a.example\r\n\r\n".to_owned(),
                "GET / HTTP/1.1\r\nHost: a\0.example\r\n\r\n".to_owned(),
                "GET /\r\n\r\n".to_owned(),
                "\u{1}\u{2}\u{3}\r\n\r\n".to_owned(),
                format!(
                    "GET / HTTP/1.1\r\nHost: a.example\r\nX: {}\r\n\r\n",
                    "x".repeat(1 << 20)
                ),
                format!(
                    "GET / HTTP/1.1\r\nHost: a.example\r\n{}\r\n",
                    "X: y\r\n".repeat(1000)
                ),
            ] {
                let said = ask(&request);
                let refused = said.starts_with("HTTP/1.1 4") || said == "reset" || said.is_empty();
                assert!(
                    refused && !said.contains(" 200 "),
                    "{:?}: {said}",
                    &request[..request.len().min(60)]
                );
            }
        },
    );
}

#[test]
fn a_second_request_does_not_hide_behind_the_first() {
    alone("a_second_request_does_not_hide_behind_the_first", || {
        web("203.0.113.1:80");
        let jail = Jail::new(open(&["a.example"]), &[("a.example", AT)]);
        let second = "GET /second HTTP/1.1\r\nHost: evil.example\r\n\r\n";
        for first in [
            "GET /first HTTP/1.1\r\nHost: a.example\r\n\r\n".to_owned(),
            // Another parser ends the first where the second begins.
            "GET /first HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n".to_owned(),
            format!("POST /first HTTP/1.1\r\nHost: a.example\r\nContent-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", second.len() + 5),
            "POST /first HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
            "GET /first HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n".to_owned(),
        ] {
            let said = jail.say("a.example", 80, format!("{first}{second}").as_bytes());
            assert!(!said.contains("GET /second"), "{first:?}: {said}");
            assert!(["403 Forbidden", "400 Bad", "connection: close"].iter().any(|end| said.contains(end)), "{first:?}: {said}");
            assert!(!said.to_lowercase().contains("h2c"), "{said}");
        }
        let framed = "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: identity\r\n\r\n";
        let said = jail.say("a.example", 80, framed.as_bytes());
        assert!(!said.contains("identity"), "{said}");
    });
}

#[test]
fn a_web_socket_passes() {
    alone("a_web_socket_passes", || {
        web("203.0.113.1:80");
        let jail = Jail::new(open(&["a.example"]), &[("a.example", AT)]);
        let mut stream = jail.connect("a.example", 80);
        let ask = b"GET /ws HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        stream.write_all(ask).unwrap();
        let mut got = String::new();
        while !got.ends_with("frames") {
            let mut bytes = [0; 512];
            let length = stream.read(&mut bytes).unwrap();
            assert!(length > 0, "{got}");
            got.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
        }
        assert!(got.starts_with("HTTP/1.1 101 "), "{got}");
    });
}

/// What is said of a refusal is one line of ours: nothing that the program sent but the host's name.
#[test]
fn a_refusal_repeats_nothing_that_was_sent() {
    alone("a_refusal_repeats_nothing_that_was_sent", || {
        let jail = Jail::new(open(&["a.example"]), &[]);
        for request in [
            "POST /secret HTTP/1.1\r\nHost: b.example\r\nAuthorization: secret\r\nContent-Length: 6\r\n\r\nsecret",
            "GET http://secret@b.example/ HTTP/1.1\r\nHost: secret@b.example\r\n\r\n",
            "GET /secret HTTP/1.1\r\nHost: a.example\r\nSecret: secret\r\n\r\n",
        ] {
            let said = jail.say("a.example", 80, request.as_bytes());
            assert!(
                said.starts_with("HTTP/1.1 403 ") || said.starts_with("HTTP/1.1 502 "),
                "{said}"
            );
            assert!(!said.to_lowercase().contains("secret"), "{said}");
            let body = said.split_once("\r\n\r\n").unwrap().1;
            assert_eq!(body.lines().count(), 1, "{said}");
        }
    });
}

#[test]
fn addresses_are_judged_each_time() {
    alone("addresses_are_judged_each_time", || {
        echo("203.0.113.1:443");
        let names: &[(&str, &[&[&str]])] = &[
            ("rebind.example", &[&["203.0.113.1"], &["127.0.0.1"]]),
            ("mixed.example", &[&["203.0.113.1", "10.0.0.1"]]),
            ("meta.example", &[&["169.254.169.254"]]),
            ("mapped.example", &[&["::ffff:127.0.0.1"]]),
            ("nat.example", &[&["64:ff9b::7f00:1"]]),
            ("doc.example", &[&["203.0.113.9"]]),
            ("zero.example", &[&["0.0.0.0"]]),
            ("own.example", &[&["1.2.3.4"]]),
            ("none.example", &[&[]]),
            ("ctl.example", &[&["203.0.113.1"]]),
        ];
        let jail = Jail::new(open(&["*", "203.0.113.7", "ctl.example:6817"]), names);
        jail.own("1.2.3.4");
        let tls = |name| jail.say(name, 443, &hello(Some(name)));
        let mut stream = jail.connect("rebind.example", 443);
        stream.write_all(&hello(Some("rebind.example"))).unwrap();
        let mut got = [0; 4];
        stream.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"got ");
        for (name, why) in [
            ("rebind.example", "127.0.0.1 is this host's loopback"),
            ("mixed.example", "10.0.0.1 is a private address"),
            (
                "meta.example",
                "169.254.169.254 is a cloud's metadata service",
            ),
            ("mapped.example", "127.0.0.1 is this host's loopback"),
            ("nat.example", "127.0.0.1 is this host's loopback"),
            ("doc.example", "203.0.113.9 is an address for examples"),
            ("zero.example", "0.0.0.0 is no address of any host"),
            ("own.example", "1.2.3.4 is an address of this host"),
            ("none.example", "it has no address"),
            ("unknown.example", "no such name"),
        ] {
            assert_eq!(tls(name), ALERT, "{name}");
            assert!(
                jail.refusals().last().unwrap().contains(why),
                "{name}: {:?}",
                jail.refusals()
            );
        }
        // Bare addresses: no rule, a rule without `private`, one that nobody was given, the host's loopback, Slurm's.
        for (address, port, why) in [
            ("1.1.1.1", 443, "nothing in network.allow names it"),
            ("203.0.113.7", 443, "203.0.113.7 is an address for examples"),
            ("127.0.0.1", 443, "nothing in network.allow names it"),
            ("::1", 443, "nothing in network.allow names it"),
            ("ctl.example", 6817, "slurmctld is closed to every session"),
        ] {
            assert_eq!(jail.say(address, port, &hello(None)), ALERT, "{address}");
            assert!(
                jail.refusals().last().unwrap().contains(why),
                "{address}: {:?}",
                jail.refusals()
            );
        }
        assert_eq!(jail.say("198.18.77.77", 443, &hello(None)), "reset");
        assert_eq!(jail.reached(), ["rebind.example:443"]);
    });
}

#[test]
fn bare_addresses_are_reached_where_a_rule_names_them() {
    alone("bare_addresses_are_reached_where_a_rule_names_them", || {
        echo("203.0.113.1:443");
        echo("[2001:db8::1]:443");
        let jail = Jail::new(open(&["a.example"]), &[("a.example", AT)]);
        for address in ["203.0.113.1", "2001:db8::1"] {
            for (name, passes) in [
                (None, true),
                (Some("a.example"), true),
                (Some("bad.example"), false),
                (Some("x.example"), false),
            ] {
                let mut stream = jail.connect(address, 443);
                stream.write_all(&hello(name)).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                let said = said(&mut stream);
                assert_eq!(
                    said.starts_with("got "),
                    passes,
                    "{address} {name:?}: {said:?}"
                );
            }
        }
    });
}

#[test]
fn a_named_port_passes_any_protocol_and_half_closes() {
    alone("a_named_port_passes_any_protocol_and_half_closes", || {
        // The first speaks only when the client has ended; the second at once.
        server("203.0.113.1:22", |mut stream| {
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            stream
                .write_all(&got.len().to_string().into_bytes())
                .unwrap();
        });
        server("203.0.113.1:23", |mut stream| {
            stream.write_all(b"hello\n").unwrap()
        });
        let jail = Jail::new(open(&["a.example:22-23"]), &[("a.example", AT)]);
        assert!(jail.say("a.example", 23, b"").starts_with("hello\n"));
        for first in [&b"SSH-2.0-test\r\n"[..], b"\0\x01\x02", b"redis *1\r\n"] {
            let mut stream = jail.connect("a.example", 22);
            let all = [first, &vec![b'x'; 3_000_000]].concat();
            stream.write_all(&all).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(said(&mut stream), all.len().to_string());
        }
        // What speaks TLS or HTTP there is held to it.
        assert_eq!(
            jail.say("a.example", 22, &hello(Some("evil.example"))),
            ALERT
        );
        for request in [
            "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            "\r\n\r\n get / http/1.1\r\nHost: evil.example\r\n\r\n",
        ] {
            let said = jail.say("a.example", 22, request.as_bytes());
            assert!(said.starts_with("HTTP/1.1 4"), "{said}");
        }
    });
}

#[test]
fn what_has_no_listener_is_refused_at_once_and_so_is_all_when_the_filter_ends() {
    alone(
        "what_has_no_listener_is_refused_at_once_and_so_is_all_when_the_filter_ends",
        || {
            echo("203.0.113.1:443");
            let mut jail = Jail::new(open(&["a.example"]), &[("a.example", AT)]);
            let refused = |jail: &Jail, port| {
                let tried = jail.run(move || {
                    TcpStream::connect_timeout(&([203, 0, 113, 1], port).into(), PATIENCE)
                });
                tried.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused)
            };
            assert!(refused(&jail, 8080) && !refused(&jail, 443));
            let mut open_before = jail.connect("a.example", 443);
            open_before.write_all(&hello(Some("a.example"))).unwrap();
            let mut got = [0; 4];
            open_before.read_exact(&mut got).unwrap();
            drop(jail.filter.take());
            assert!(refused(&jail, 443));
            let mut rest = Vec::new();
            let _ = open_before.read_to_end(&mut rest);
        },
    );
}

#[test]
fn rules_that_change_hold_from_then_on() {
    alone("rules_that_change_hold_from_then_on", || {
        echo("203.0.113.1:443");
        let jail = Jail::new(
            open(&["a.example"]),
            &[("a.example", AT), ("b.example", AT)],
        );
        assert_eq!(
            jail.ask("b.example.", RecordType::A).0,
            ResponseCode::NXDomain
        );
        jail.filter
            .as_ref()
            .unwrap()
            .replace_rules(open(&["b.example"]));
        assert_eq!(
            jail.ask("b.example.", RecordType::A).0,
            ResponseCode::NoError
        );
        assert_eq!(
            jail.ask("a.example.", RecordType::A).0,
            ResponseCode::NXDomain
        );
        jail.filter
            .as_ref()
            .unwrap()
            .replace_rules(agent_sandbox_hosts::HostRules::default());
        assert_eq!(
            jail.ask("b.example.", RecordType::A).0,
            ResponseCode::NXDomain
        );
        assert_eq!(
            jail.say("198.18.0.1", 443, &hello(Some("b.example"))),
            ALERT
        );
    });
}
