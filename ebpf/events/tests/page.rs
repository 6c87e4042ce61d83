//! The page about trails: its examples are records, and it describes every field and operation.

use std::collections::BTreeSet;

use agent_sandbox_events::raw::OPERATIONS;
use agent_sandbox_events::record::{
    Actor, Away, End, Exec, Exit, Header, Lost, Open, Operation, Peer, Record, Trail, Verdict, What,
};

/// The page.
const PAGE: &str = include_str!("../../../docs/reference/trail.md");

/// The lines of its blocks of JSON.
fn examples(page: &str) -> Vec<&str> {
    let blocks = page.split("```json\n").skip(1);
    let lines = blocks.filter_map(|block| block.split("```").next());
    lines.flat_map(str::lines).collect()
}

/// The word in which a record says what it is.
fn event(what: &What) -> String {
    let value = serde_json::to_value(what).expect("JSON");
    value["event"].as_str().expect("a word").to_string()
}

/// A record of each kind, with every field.
fn full() -> Vec<What> {
    let text = || "x".to_string();
    let some = || Some(text());
    let actor = || Actor {
        pid: 1,
        tid: Some(2),
        ppid: 3,
        comm: text(),
        cgroup: 4,
        worker: true,
    };
    let verdict = || Verdict {
        verdict: text(),
        by: some(),
        error: some(),
        count: 2,
        weak: vec![text()],
    };
    let peer = || Peer {
        host: Some("example.org".into()),
        actor: actor(),
        family: text(),
        kind: text(),
        address: text(),
        verdict: verdict(),
    };
    vec![
        What::Header(Header {
            version: 1,
            object: text(),
            kernel: text(),
            blind: vec![text()],
            events: vec![text()],
            enforce: text(),
            every: 1,
            missing: true,
            began: 1.0,
            command: vec![text()],
        }),
        What::Fork(actor()),
        What::Exec(Exec {
            actor: actor(),
            path: text(),
            arguments: vec![text()],
            verdict: verdict(),
            set_id: true,
        }),
        What::Exit(Exit {
            actor: actor(),
            code: Some(1),
            signal: some(),
        }),
        What::Open(Open {
            actor: actor(),
            path: text(),
            access: vec![text()],
            hidden: true,
            device: some(),
            inode: 1,
            verdict: verdict(),
        }),
        What::Connect(peer()),
        What::Listen(peer()),
        What::Operation(Operation {
            actor: actor(),
            operation: text(),
            detail: text(),
            path: some(),
            other: some(),
            verdict: verdict(),
        }),
        What::Lost(Lost {
            more: 1,
            why: text(),
        }),
        What::Away(Away {
            seconds: 1.0,
            since: Some(2.0),
        }),
        What::End(End {
            why: text(),
            skipped: 1,
        }),
    ]
}

#[test]
fn examples_are_records() {
    let examples = examples(PAGE);
    assert!(examples.len() > 10);
    for example in examples {
        let record: Record =
            serde_json::from_str(example).unwrap_or_else(|error| panic!("{error}: {example}"));
        // Written as the tracer writes it: nothing that it would not say, and in its order. JSON has no
        // difference between 2 and 2.0.
        let written = serde_json::to_string(&record).expect("JSON");
        let same = |text: &str| serde_json::from_str::<Record>(text).expect("a record");
        assert_eq!(same(&written), record);
        assert_eq!(written.replace(".0,", ",").replace(".0}", "}"), example);
    }
}

#[test]
fn every_event_has_an_example_or_a_heading() {
    let page = PAGE;
    for what in full() {
        let event = event(&what);
        let headings = page.lines().filter(|line| line.starts_with("## "));
        let mut named = headings.filter(|line| line.contains(&format!("`{event}`")));
        assert!(named.next().is_some(), "{event}");
    }
}

#[test]
fn every_field_is_described() {
    let page = PAGE;
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with('|')).collect();
    let trail = Trail {
        node: "n".into(),
        uid: 1,
        session: Some("s".into()),
        job: Some(1),
        step: Some("0".into()),
        trace: 1,
    };
    let mut fields = BTreeSet::new();
    for what in full() {
        let record = Record {
            seq: 1,
            time: 1.0,
            trail: trail.clone(),
            lost: 1,
            what,
        };
        let value = serde_json::to_value(&record).expect("JSON");
        fields.extend(value.as_object().expect("an object").keys().cloned());
    }
    assert!(fields.len() > 40);
    for field in &fields {
        let described = |row: &&&str| {
            row.split('|')
                .take(3)
                .any(|cell| cell.contains(&format!("`{field}`")))
        };
        assert!(rows.iter().any(|row| described(&row)), "{field}");
    }
}

#[test]
fn every_operation_is_described() {
    let page = PAGE;
    for operation in OPERATIONS {
        let described = |line: &str| {
            line.starts_with("| `")
                && line
                    .split(" | ")
                    .next()
                    .is_some_and(|cell| cell.contains(&format!("`{operation}`")))
        };
        assert!(page.lines().any(described), "{operation}");
    }
}
