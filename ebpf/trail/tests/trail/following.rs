//! `watch --json`: records as they come.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use agent_sandbox_events::ask::{Ask, What};
use agent_sandbox_events::record::Record;

use crate::fake::Fake;
use crate::output::{ask, program};
use crate::records::{self, Writer};

fn json(fake: &Fake) -> Ask {
    Ask {
        json: true,
        ..ask(fake.socket(), What::Watch { which: None })
    }
}

#[test]
fn records_come_a_line_each_and_no_name_comes_raw() {
    let mut writer = Writer::session("k3v9m2qp", "login1", 7);
    let name = "/a\u{9b}31m\u{202e}\u{7f}";
    let first = writer.write(records::open(9, "sh", name, &["read"], records::allowed()));
    let fake = Fake::new(vec![records::line(&first)]);
    let mut child = program(&json(&fake))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    assert!(
        !line.chars().any(|c| c.is_control() || c == '\u{202e}'),
        "{line:?}"
    );
    assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), first);
    fake.followed();
    let second = writer.write(records::exit(9, "sh", 0));
    fake.happen(records::line(&second));
    let line = lines.next().unwrap().unwrap();
    assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), second);
    // A reader that has seen enough.
    drop(lines);
    for _ in 0..200 {
        fake.happen(records::line(&writer.write(records::exit(9, "sh", 0))));
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_tracer_that_ends_is_said() {
    let mut fake = Fake::with_session();
    let mut child = program(&json(&fake))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    fake.followed();
    fake.stop();
    let mut said = String::new();
    let mut errors = child.stderr.take().unwrap();
    errors.read_to_string(&mut said).unwrap();
    assert!(
        said.starts_with("error: the tracer has closed the connection\n"),
        "{said}"
    );
    assert_eq!(child.wait().unwrap().code(), Some(125));
}
