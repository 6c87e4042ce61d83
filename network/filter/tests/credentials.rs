//! Credentials that stay outside: to whom their values go, and to whom not.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // a test: the panic is the failure

mod harness;

use std::sync::mpsc::{Receiver, TryRecvError};

use agent_sandbox_filter::Broker;
use agent_sandbox_hosts::{Credential, Name, Secret};
use agent_sandbox_support::waiting::until;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use harness::tls::{Authority, asked, request, tls_client, tls_server, tls_server_that};
use harness::{Jail, PATIENCE, alone, rules, server};

const INSIDE: &str = "00112233445566778899aabbccddeeff-placeholder";
const VALUE: &str = "ghp_TheRealValueOfTheToken";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
const ALERT: &str = "\u{15}\u{3}\u{3}\0\u{2}\u{2}1";

/// A jail with a credential for `a.example`, and the certificates that are known inside.
fn jail(outside: &Authority, by_base_url: bool) -> (Jail, String) {
    let credential = Credential {
        name: "a".to_owned(),
        hosts: vec![(Name::parse("a.example").unwrap(), 443)],
        placeholder: INSIDE.to_owned(),
        value: VALUE.to_owned().into(),
        by_base_url,
    };
    let broker = Broker::new(vec![credential], &[], outside.pem().as_bytes(), None).unwrap();
    let known = broker.certificate();
    let rules = rules(
        &["a.example", "b.example"],
        &[],
        &["203.0.113.1", "203.0.113.2"],
    );
    let names: [(&str, &[&[&str]]); 2] = [
        ("a.example", &[&["203.0.113.1"]]),
        ("b.example", &[&["203.0.113.2"]]),
    ];
    (Jail::with(rules, Some(broker), &names), known)
}

/// A filter of another step of the same jail.
#[test]
fn another_filter_with_the_key_is_known_for_the_same_hosts_alone() {
    alone(
        "another_filter_with_the_key_is_known_for_the_same_hosts_alone",
        || {
            let outside = Authority::new();
            let broker = |host: &str, known: Option<&Secret>| {
                let credential = Credential {
                    name: "a".to_owned(),
                    hosts: vec![(Name::parse(host).unwrap(), 443)],
                    placeholder: INSIDE.to_owned(),
                    value: VALUE.to_owned().into(),
                    by_base_url: false,
                };
                Broker::new(vec![credential], &[], outside.pem().as_bytes(), known).unwrap()
            };
            let first = broker("a.example", None);
            let (known, key) = (first.certificate(), first.authority());
            for (host, address) in [("a.example", "203.0.113.1"), ("b.example", "203.0.113.2")] {
                let at = format!("{address}:443");
                let told = tls_server(&at, outside.server(host, 1), OK);
                let names: &[(&str, &[&[&str]])] = &[(host, &[&[address]])];
                let rules = rules(&[host], &[], &[address]);
                let jail = Jail::with(rules, Some(broker(host, Some(&key))), names);
                let stream = tls_client(&known, host, jail.connect(host, 443));
                let answer = asked(stream, &bearer(host));
                match host {
                    "a.example" => assert!(next(&told).contains(VALUE), "{answer:?}"),
                    _ => assert!(answer.is_err(), "{answer:?}"),
                }
                nothing(&told);
            }
        },
    );
}

/// A request to a host with a header.
fn get(host: &str, header: &str) -> String {
    format!("GET /x?t={INSIDE} HTTP/1.1\r\nHost: {host}\r\n{header}\r\nConnection: close\r\n\r\n")
}

fn bearer(host: &str) -> String {
    get(host, &format!("Authorization: Bearer {INSIDE}"))
}

fn next(told: &Receiver<String>) -> String {
    told.recv_timeout(PATIENCE).unwrap()
}

fn nothing(told: &Receiver<String>) {
    assert_eq!(told.try_recv(), Err(TryRecvError::Empty));
}

#[test]
fn a_placeholder_in_a_header_is_exchanged_outside() {
    alone("a_placeholder_in_a_header_is_exchanged_outside", || {
        let outside = Authority::new();
        let echo = "HTTP/1.1 302 Found\r\nLocation: https://b.example/\r\nX-Echo: got ghp_TheRealValueOfTheToken\r\nContent-Length: 0\r\n\r\n";
        let told = tls_server("203.0.113.1:443", outside.server("a.example", 1), echo);
        let (jail, known) = jail(&outside, false);
        let ask = |request: &str| {
            let stream = tls_client(&known, "a.example", jail.connect("a.example", 443));
            asked(stream, request).unwrap()
        };
        let answer = ask(&bearer("a.example"));
        let sent = next(&told);
        assert!(
            sent.contains(&format!("Authorization: Bearer {VALUE}\r\n")),
            "{sent}"
        );
        // A target is no header, and stays as it is.
        assert!(
            sent.starts_with(&format!("GET /x?t={INSIDE} HTTP/1.1\r\n")),
            "{sent}"
        );
        assert!(
            answer.contains(&format!("X-Echo: got {INSIDE}\r\n")),
            "{answer}"
        );
        // The program follows a redirect by itself, with what it has.
        assert!(
            answer.contains("Location: https://b.example/\r\n"),
            "{answer}"
        );

        let basic = |password: &str| BASE64_STANDARD.encode(format!("x-access-token:{password}"));
        ask(&get(
            "a.example",
            &format!("Authorization: Basic {}", basic(INSIDE)),
        ));
        let sent = next(&told);
        assert!(
            sent.contains(&format!("Basic {}\r\n", basic(VALUE))),
            "{sent}"
        );

        let body = format!("token={INSIDE}");
        let length = body.len();
        ask(&format!(
            "POST / HTTP/1.1\r\nHost: a.example\r\nUser-Agent: {INSIDE}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        ));
        let sent = next(&told);
        assert!(sent.ends_with(&body) && !sent.contains(VALUE), "{sent}");
        assert!(!format!("{:?}", jail.events()).contains(VALUE));
        assert!(format!("{:?}", jail.events()).contains("Exchanged { credential: \"a\" }"));
    });
}

/// A server that follows RFC 9110, 9.3.8 shows in a body all that it was sent.
#[test]
fn a_request_that_would_be_shown_is_not_sent() {
    alone("a_request_that_would_be_shown_is_not_sent", || {
        let outside = Authority::new();
        let told = tls_server("203.0.113.1:443", outside.server("a.example", 1), OK);
        let (jail, known) = jail(&outside, true);
        for method in ["TRACE", "TRACK", "trace"] {
            let request = bearer("a.example").replacen("GET", method, 1);
            let stream = tls_client(&known, "a.example", jail.connect("a.example", 443));
            let by_tls = asked(stream, &request).unwrap();
            let request = request.replacen("a.example", "a.example:443", 1);
            let by_base_url = jail.say("a.example", 443, request.as_bytes());
            for answer in [by_tls, by_base_url] {
                assert!(answer.starts_with("HTTP/1.1 403 "), "{method}: {answer}");
            }
        }
        nothing(&told);
    });
}

#[test]
fn words_behind_a_status_are_not_the_servers() {
    alone("words_behind_a_status_are_not_the_servers", || {
        let outside = Authority::new();
        let echo = "HTTP/1.1 401 no ghp_TheRealValueOfTheToken here\r\nContent-Length: 0\r\n\r\n";
        let told = tls_server("203.0.113.1:443", outside.server("a.example", 1), echo);
        let (jail, known) = jail(&outside, false);
        let stream = tls_client(&known, "a.example", jail.connect("a.example", 443));
        let answer = asked(stream, &bearer("a.example")).unwrap();
        assert!(next(&told).contains(VALUE));
        assert!(
            answer.starts_with("HTTP/1.1 401 Unauthorized\r\n"),
            "{answer}"
        );
    });
}

#[test]
fn nobody_else_gets_a_value() {
    alone("nobody_else_gets_a_value", || {
        let outside = Authority::new();
        let told = tls_server("203.0.113.1:443", outside.server("a.example", 1), OK);
        let other = tls_server("203.0.113.2:443", outside.server("b.example", 1), OK);
        server("203.0.113.1:80", |mut stream| {
            let sent = request(&mut stream).unwrap();
            let found = if sent.contains(VALUE) {
                "leaked"
            } else {
                "safe"
            };
            let answer = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{found}");
            std::io::Write::write_all(&mut stream, answer.as_bytes()).unwrap();
        });
        let (jail, known) = jail(&outside, false);
        // Another host speaks for itself: the session's authority is not asked.
        let stream = tls_client(&known, "b.example", jail.connect("b.example", 443));
        assert!(asked(stream, &bearer("b.example")).is_err());
        // A program that does not know the session's authority sends nothing, and the session says why.
        let stream = tls_client(&outside.pem(), "a.example", jail.connect("a.example", 443));
        assert!(asked(stream, &bearer("a.example")).is_err());
        until("why is said", || {
            jail.refusals()
                .iter()
                .any(|why| why.contains("does not take the filter for it"))
        });
        let stream = tls_client(&outside.pem(), "b.example", jail.connect("b.example", 443));
        asked(stream, &bearer("b.example")).unwrap();
        let sent = next(&other);
        assert!(sent.contains(&format!("Bearer {INSIDE}\r\n")), "{sent}");
        // Another name in TLS, and in the request.
        let stream = tls_client(&known, "b.example", jail.connect("a.example", 443));
        assert!(asked(stream, &bearer("a.example")).is_err());
        let hello = harness::hello::hello(Some("b.example"));
        assert_eq!(jail.say("a.example", 443, &hello), ALERT);
        let stream = tls_client(&known, "a.example", jail.connect("a.example", 443));
        let answer = asked(stream, &bearer("b.example")).unwrap();
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        // Without TLS: as at any other port.
        let answer = jail.say("a.example", 80, bearer("a.example").as_bytes());
        assert!(answer.contains("safe"), "{answer}");
        jail.say("a.example", 443, bearer("a.example:443").as_bytes());
        nothing(&told);
    });
}

#[test]
fn a_base_url_needs_no_certificate_inside() {
    alone("a_base_url_needs_no_certificate_inside", || {
        let outside = Authority::new();
        let told = tls_server("203.0.113.1:443", outside.server("a.example", 1), OK);
        let (jail, known) = jail(&outside, true);
        let request = get("a.example:443", &format!("X-Api-Key: {INSIDE}"));
        let answer = jail.say("a.example", 443, request.as_bytes());
        assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
        let sent = next(&told);
        assert!(sent.contains(&format!("X-Api-Key: {VALUE}\r\n")), "{sent}");
        assert!(
            sent.to_lowercase().contains("\r\nhost: a.example\r\n"),
            "{sent}"
        );
        // By TLS as well.
        let stream = tls_client(&known, "a.example", jail.connect("a.example", 443));
        asked(stream, &request).unwrap();
        assert!(next(&told).contains(VALUE));
        let answer = jail.say("a.example", 443, get("b.example:443", "X-A: b").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        nothing(&told);
    });
}

#[test]
fn a_server_that_does_not_prove_who_it_is_gets_nothing() {
    alone(
        "a_server_that_does_not_prove_who_it_is_gets_nothing",
        || {
            let (outside, unknown) = (Authority::new(), Authority::new());
            for (case, config) in [
                ("expired", outside.server("a.example", -1)),
                ("another name", outside.server("b.example", 1)),
                ("another authority", unknown.server("a.example", 1)),
            ] {
                // Each at an address of its own, for a listener stays.
                let last = case.len();
                let at = format!("203.0.113.{last}");
                let told = tls_server(&format!("{at}:443"), config, OK);
                let credential = Credential {
                    name: "a".to_owned(),
                    hosts: vec![(Name::parse("a.example").unwrap(), 443)],
                    placeholder: INSIDE.to_owned(),
                    value: VALUE.to_owned().into(),
                    by_base_url: true,
                };
                let broker =
                    Broker::new(vec![credential], &[], outside.pem().as_bytes(), None).unwrap();
                let rules = rules(&["a.example"], &[], &[&at]);
                let jail = Jail::with(rules, Some(broker), &[("a.example", &[&[&at]])]);
                let answer = jail.say("a.example", 443, bearer("a.example:443").as_bytes());
                assert!(answer.starts_with("HTTP/1.1 502 "), "{case}: {answer}");
                assert!(
                    answer.contains("certificate") && !answer.contains(VALUE),
                    "{case}: {answer}"
                );
                nothing(&told);
            }
        },
    );
}

/// Many services say in the body of an error what they were sent.
#[test]
fn an_error_that_repeats_the_value_says_the_placeholder() {
    alone(
        "an_error_that_repeats_the_value_says_the_placeholder",
        || {
            let outside = Authority::new();
            let long = format!("{}{VALUE}", " ".repeat(64 << 10));
            let told = tls_server_that(
                "203.0.113.1:443",
                outside.server("a.example", 1),
                move |request| {
                    let short = format!("'{VALUE}' is no pair in 'Bearer {VALUE}'");
                    let (status, more, body) = match request.to_lowercase() {
                        one if one.contains("x-case: long") => ("500 Error", "", &long),
                        one if one.contains("x-case: gzip") => {
                            ("500 Error", "Content-Encoding: gzip\r\n", &short)
                        }
                        _ => ("403 Forbidden", "", &short),
                    };
                    let length = body.len();
                    format!(
                        "HTTP/1.1 {status}\r\n{more}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                    )
                },
            );
            let (jail, known) = jail(&outside, false);
            let ask = |case: &str| {
                let stream = tls_client(&known, "a.example", jail.connect("a.example", 443));
                let header = format!("Authorization: Bearer {INSIDE}\r\nX-Case: {case}");
                let answer = asked(stream, &get("a.example", &header)).unwrap();
                (next(&told), answer)
            };
            let (sent, answer) = ask("short");
            assert!(
                sent.to_lowercase()
                    .contains("accept-encoding: identity\r\n"),
                "{sent}"
            );
            assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
            let expected = format!("'{INSIDE}' is no pair in 'Bearer {INSIDE}'");
            assert!(answer.ends_with(&expected), "{answer}");
            // What cannot be looked through stays outside.
            for case in ["long", "gzip"] {
                let (_, answer) = ask(case);
                assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
                assert!(
                    answer.contains("answered 500 ") && !answer.contains(VALUE),
                    "{answer}"
                );
            }
        },
    );
}
