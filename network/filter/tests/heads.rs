//! Heads of HTTP by chance, as programs would never write them: whatever comes, a server gets requests that say one thing, for the host
//! of the connection, and a credential's value where a value belongs, and nowhere else.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // a test: the panic is the failure

mod harness;

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use agent_sandbox_filter::Broker;
use agent_sandbox_hosts::{Credential, Name};
use harness::tls::Authority;
use harness::{Jail, alone, rules, server};
use proptest::prelude::*;
use proptest::sample::select;
use rustls::{ServerConnection, StreamOwned};

const INSIDE: &str = "00112233445566778899aabbccddeeff-placeholder";
const VALUE: &str = "ghp_TheRealValueOfTheToken";
/// A request that is good, so that the rest of a connection is looked at as well.
const GOOD: &str = "GET /last HTTP/1.1\r\nHost: a.example:443\r\nConnection: close\r\n\r\n";

/// Requests on one connection, as a strict reader takes them.
type Heads = Arc<Mutex<Vec<String>>>;

fn line(stream: &mut impl Read) -> Option<String> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        bytes.push(byte[0]);
    }
    bytes.truncate(bytes.len() - 2);
    Some(bytes.into_iter().map(char::from).collect())
}

/// Reads a request as RFC 9112 has it, and nothing that somebody could read otherwise; its head.
fn strict(stream: &mut impl Read) -> Option<String> {
    let mut head = line(stream)?;
    let (mut length, mut chunked) = (0, false);
    loop {
        let next = line(stream)?;
        if next.is_empty() {
            break;
        }
        let (name, value) = next.split_once(':').unwrap_or((&next, ""));
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse::<usize>().ok()?,
            "transfer-encoding" => chunked = value == "chunked",
            _ => {}
        }
        head = head + "\n" + &next;
    }
    if chunked {
        loop {
            let size = line(stream)?;
            let size = usize::from_str_radix(size.split(';').next()?, 16).ok()?;
            stream.read_exact(&mut vec![0; size]).ok()?;
            line(stream)?;
            if size == 0 {
                break;
            }
        }
    }
    stream.read_exact(&mut vec![0; length]).ok()?;
    Some(head)
}

/// What is wrong with a head that came out.
fn fault(head: &str) -> Option<String> {
    let mut lines = head.split('\n');
    let first = lines.next().unwrap();
    let words: Vec<&str> = first.split(' ').collect();
    let [method, target, "HTTP/1.1"] = words[..] else {
        return Some(format!("a first line: {first:?}"));
    };
    if !method.bytes().all(|c| c.is_ascii_graphic())
        || !(target.starts_with('/') || target == "*")
        || ["TRACE", "CONNECT"].contains(&method)
        || first.contains(VALUE)
    {
        return Some(format!("a first line: {first:?}"));
    }
    let (mut hosts, mut framings) = (Vec::new(), 0);
    for line in lines {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let (name, value) = (name.to_ascii_lowercase(), value.trim());
        if line.contains(['\r', '\0']) || name.contains([' ', '\t']) {
            return Some(format!("a line: {line:?}"));
        }
        match name.as_str() {
            "host" => hosts.push(value.to_owned()),
            "content-length" | "transfer-encoding" => framings += 1,
            "authorization" | "x-api-key" | "private-token" => {
                let whole = value.rsplit(' ').next() == Some(VALUE) || !value.contains(VALUE);
                if !whole {
                    return Some(format!("a part of a value: {line:?}"));
                }
            }
            _ if line.contains(VALUE) => return Some(format!("a value: {line:?}")),
            _ => {}
        }
    }
    (hosts != ["a.example"] || framings > 1)
        .then(|| format!("hosts {hosts:?}, framings {framings}"))
}

fn piece() -> impl Strategy<Value = String> {
    let names = select(vec![
        "Host",
        "host",
        "HOST ",
        "Authorization",
        "authorization",
        "X-Api-Key",
        "Private-Token",
        "User-Agent",
        "Cookie",
        "Content-Length",
        "Transfer-Encoding",
        "Transfer-Encoding ",
        "Connection",
        "Upgrade",
        "Expect",
        "X-A",
        "TE",
        "Trailer",
    ]);
    let values = prop_oneof![
        3 => select(vec![
            "a.example".to_owned(), "a.example:443".to_owned(), "b.example".to_owned(), "a.example, b.example".to_owned(),
            INSIDE.to_owned(), format!("Bearer {INSIDE}"), format!("Bearer {INSIDE}x"), format!("token  {INSIDE} "),
            format!("Digest a=\"{INSIDE}\""), format!("{INSIDE}, {INSIDE}"), "chunked".to_owned(), "chunked, chunked".to_owned(),
            "identity".to_owned(), "xchunked".to_owned(), "0".to_owned(), "5".to_owned(), "+5".to_owned(), "5, 5".to_owned(),
            "-1".to_owned(), "99999999999999999999".to_owned(), "close".to_owned(), "keep-alive, Host".to_owned(),
            "Authorization".to_owned(), "websocket".to_owned(), "h2c".to_owned(), "100-continue".to_owned(),
        ]),
        1 => "[ -~\t]{0,20}",
        1 => proptest::collection::vec(any::<u8>(), 0..12).prop_map(|bytes| bytes.into_iter().map(char::from).collect()),
    ];
    let ends = select(vec![
        "\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r", "\r\n ", "\r\n\t",
    ]);
    (names, select(vec![": ", ":", " : ", ":\t"]), values, ends)
        .prop_map(|(name, colon, value, end)| format!("{name}{colon}{value}{end}"))
}

/// The first mostly, or one of the others: what is odd in every part is refused for its first.
fn mostly(good: &'static str, odd: &[&'static str]) -> impl Strategy<Value = &'static str> + use<> {
    prop_oneof![6 => Just(good), 1 => select(odd.to_vec())]
}

fn heads() -> impl Strategy<Value = String> {
    let first = (
        mostly(
            "GET",
            &[
                "POST", "get", "TRACE", "CONNECT", "OPTIONS", "PRI", "", " GET",
            ],
        ),
        mostly(
            "/",
            &[
                "*",
                "/x?t=y",
                "http://a.example/",
                "http://b.example/",
                "http://a.example:443@b.example/",
                "//b.example/",
                "a.example:443",
                "/\u{e4}",
                "/ /",
                "",
            ],
        ),
        mostly(
            "HTTP/1.1",
            &["HTTP/1.0", "HTTP/2.0", "http/1.1", "HTTP/1.1 ", ""],
        ),
        mostly("\r\n", &["\n", "\r\n ", "\r"]),
    );
    let host = mostly(
        "Host: a.example:443\r\n",
        &[
            "",
            "Host: b.example\r\n",
            "Host: a.example\r\nHost: b.example\r\n",
        ],
    );
    let known = prop_oneof![1 => Just(String::new()), 1 => Just(format!("Authorization: Bearer {INSIDE}\r\n"))];
    let over = mostly("\r\n", &["\n", ""]);
    let body = mostly(
        "",
        &[
            "hello",
            "5\r\nhello\r\n0\r\n\r\n",
            "0\r\n\r\nGET /s HTTP/1.1\r\nHost: b.example\r\n\r\n",
        ],
    );
    (
        first,
        host,
        known,
        proptest::collection::vec(piece(), 0..3),
        over,
        body,
    )
        .prop_map(
            |((method, target, version, end), host, known, pieces, over, body)| {
                format!(
                    "{method} {target} {version}{end}{host}{known}{}{over}{body}",
                    pieces.concat()
                )
            },
        )
}

#[test]
fn what_goes_out_says_one_thing_whatever_comes() {
    alone("what_goes_out_says_one_thing_whatever_comes", || {
        let outside = Authority::new();
        let config = outside.server("a.example", 1);
        let seen = Heads::default();
        let told = Arc::clone(&seen);
        server("203.0.113.1:443", move |stream| {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, stream);
            while let Some(head) = strict(&mut stream) {
                let shown = head.replace('\n', " | ");
                let shown: String = shown.chars().filter(|c| (' '..='~').contains(c)).collect();
                let answer =
                    format!("HTTP/1.1 200 OK\r\nX-Echo: {shown}\r\nContent-Length: 0\r\n\r\n");
                told.lock().unwrap().push(head);
                if stream.write_all(answer.as_bytes()).is_err() {
                    return;
                }
            }
        });
        let credential = Credential {
            name: "a".to_owned(),
            hosts: vec![(Name::parse("a.example").unwrap(), 443)],
            placeholder: INSIDE.to_owned(),
            value: VALUE.to_owned().into(),
            by_base_url: true,
        };
        let broker = Broker::new(vec![credential], &[], outside.pem().as_bytes(), None).unwrap();
        let at: &[&[&str]] = &[&["203.0.113.1"]];
        let rules = rules(&["a.example"], &[], &["203.0.113.1"]);
        let jail = Jail::with(rules, Some(broker), &[("a.example", at)]);
        let (good, exchanged) = (Mutex::new(0_u32), Mutex::new(0_u32));
        proptest!(|(heads in heads(), more in proptest::option::of(heads()))| {
            let bytes: String = [heads.as_str(), more.as_deref().unwrap_or_default(), GOOD].concat();
            // One byte for each letter, as it was meant.
            let bytes: Vec<u8> = bytes.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect();
            let answer = jail.say("a.example", 443, &bytes);
            prop_assert!(!answer.contains(VALUE), "{:?}: {}", heads, answer);
            for head in seen.lock().unwrap().drain(..) {
                prop_assert_eq!(fault(&head), None, "{:?}: {}", heads, head);
                *good.lock().unwrap() += 1;
                *exchanged.lock().unwrap() += u32::from(head.contains(VALUE));
            }
        });
        // Some of it is HTTP, or nothing was tried.
        let counts = (*good.lock().unwrap(), *exchanged.lock().unwrap());
        assert!(counts.0 > 0 && counts.1 > 0, "{counts:?}");
    });
}
