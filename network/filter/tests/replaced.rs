//! What other rules do to connections that there are, and to those to come.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // a test: the panic is the failure

mod harness;

use std::io::{Read, Write};

use harness::{Jail, alone, echo, rules};

const AT: &[&[&str]] = &[&["203.0.113.1"]];

#[test]
fn other_rules_end_connections_that_they_do_not_allow() {
    alone("other_rules_end_connections_that_they_do_not_allow", || {
        let allow = ["a.example:9", "b.example:9", "c.example:9"];
        let both = ["203.0.113.1", "203.0.113.2"];
        let names = [
            ("a.example", AT),
            ("b.example", AT),
            ("c.example", &[&["203.0.113.2"][..]][..]),
        ];
        let jail = Jail::new(rules(&allow, &[], &both), &names);
        both.iter().for_each(|at| echo(&format!("{at}:9")));
        let held: Vec<_> = ["a.example", "b.example", "c.example"]
            .into_iter()
            .map(|host| {
                let mut stream = jail.connect(host, 9);
                stream.read_exact(&mut [0; 4]).unwrap();
                (host, stream)
            })
            .collect();
        // What is allowed stays; one is denied, and one stands at an address that is not permitted any more.
        let filter = jail.filter.as_ref().unwrap();
        filter.replace_rules(rules(&allow, &["b.example"], &both[..1]));
        for (host, mut stream) in held {
            let stays = host == "a.example";
            if stays {
                stream.write_all(b"y").unwrap();
            }
            let read = stream.read(&mut [0]).unwrap_or(0);
            assert_eq!(read, usize::from(stays), "{host}");
        }
    });
}

#[test]
fn a_listener_can_come_later() {
    alone("a_listener_can_come_later", || {
        let jail = Jail::new(
            rules(&["a.example"], &[], &["203.0.113.1"]),
            &[("a.example", AT)],
        );
        echo("203.0.113.1:9");
        let filter = jail.filter.as_ref().unwrap();
        let listener = jail.run(|| std::net::TcpListener::bind(("0.0.0.0", 9)).unwrap());
        filter.listen(listener).unwrap();
        filter.replace_rules(rules(&["a.example:9"], &[], &["203.0.113.1"]));
        let mut stream = jail.connect("a.example", 9);
        stream.read_exact(&mut [0; 4]).unwrap();
    });
}
