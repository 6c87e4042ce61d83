//! Trails, recorded and made up, against what is taken from them.

use std::net::IpAddr;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Of a run of the script in `tests/tracer/profiles.rs`, by the tracepoints object.
const RECORDED: &str = include_str!("recorded.jsonl");

fn traced() -> Traced {
    Traced {
        session: "k3v9m2qp".to_owned(),
        trace: 17,
        first: 2,
    }
}

fn nothing_seen() -> Seen {
    let mut seen = Seen::default();
    seen.begin(&[], [Path::new("/home/ada")]);
    seen
}

fn hidden(path: &Path) -> Option<String> {
    let shadow = path == Path::new("/etc/shadow") || path.starts_with("/secrets");
    shadow.then(|| "/a/rule".to_owned())
}

fn read<'a>(lines: impl IntoIterator<Item = &'a str>, trouble: Option<String>) -> Seen {
    let traced = traced();
    let mut reading = Reading::new(&traced, nothing_seen(), &hidden);
    lines.into_iter().for_each(|line| reading.line(line));
    reading.finish(trouble)
}

/// A record of the trail with these fields beside its own.
fn record(seq: u64, fields: Value) -> String {
    let mut record = json!({"seq": seq, "time": 1.5, "node": "n1", "uid": 1000, "session": "k3v9m2qp", "trace": 17,
        "pid": 7, "ppid": 1, "comm": "x", "verdict": "allowed"});
    let (Value::Object(all), Value::Object(fields)) = (&mut record, fields) else {
        panic!("an object");
    };
    all.extend(fields);
    record.to_string()
}

fn header() -> String {
    record(
        1,
        json!({"event": "header", "version": 1, "object": "trampolines", "kernel": "6.12", "blind": ["a"], "events": [],
            "enforce": "audit", "every": 1, "began": 1.0}),
    )
}

fn open(seq: u64, path: &str, fields: Value) -> String {
    let mut all = json!({"event": "open", "path": path, "access": ["read"]});
    let (Value::Object(all_of), Value::Object(fields)) = (&mut all, fields) else {
        panic!("an object");
    };
    all_of.extend(fields);
    record(seq, all)
}

fn end(seq: u64) -> String {
    record(
        seq,
        json!({"event": "end", "why": "all tasks have ended", "verdict": null}),
    )
}

fn told(seen: &Seen) -> &TrailSummary {
    seen.told.as_ref().expect("a trail")
}

fn denied(seen: &Seen) -> Vec<(String, String, Option<String>)> {
    let all = told(seen).denied.iter();
    all.map(|(path, denied)| {
        let path = path.to_string_lossy().into_owned();
        (path, denied.how.clone(), denied.hidden.clone())
    })
    .collect()
}

#[test]
fn a_recorded_trail_says_what_the_run_did() {
    let seen = read(RECORDED.lines(), None);
    let roots: Vec<_> = seen
        .written
        .iter()
        .map(|(path, _)| path.to_str().expect("text"))
        .collect();
    let expected = [
        ".bashrc",
        ".cache/fake",
        ".config/fake",
        ".fake.json",
        ".fake.tmp",
        ".fakeagent",
        "results",
    ];
    assert_eq!(roots, expected);
    let looked = |path: &str| seen.looked.get(Path::new(path)).copied();
    for path in [
        ".ssh/id_rsa",
        ".fakerc",
        ".api_token",
        ".fakeagent/settings",
    ] {
        assert_eq!(looked(path), Some(true), "{path}");
    }
    let some = |text: &str| text.to_owned();
    let in_vain = [
        (
            some("/etc/shadow"),
            some("denied (EACCES)"),
            Some(some("/a/rule")),
        ),
        (some("/etc/x"), some("denied by permissions (EROFS)"), None),
    ];
    assert_eq!(denied(&seen), in_vain);
    let told = told(&seen);
    assert_eq!(
        (told.object.as_str(), told.kernel.as_str()),
        ("tracepoints", "6.12.57")
    );
    assert!(!told.blind.is_empty());
    // The shell looks for the script by a name of its own first.
    assert!(told.gaps().is_empty() && told.unplaced == 0, "{told:?}");
}

#[test]
fn only_the_runs_own_trail_is_read() {
    let others = [
        json!({"trace": 18}),
        json!({"session": "other"}),
        json!({"session": null}),
        json!({"node": "n2"}),
        json!({"job": 4711, "step": "0"}),
    ];
    let mut lines = vec![open(2, "/home/ada/.early/x", json!({})), header()];
    for (seq, other) in (2..).zip(others) {
        let mut fields = json!({"access": ["write"]});
        let (Value::Object(fields_of), Value::Object(other)) = (&mut fields, other) else {
            panic!("an object");
        };
        fields_of.extend(other);
        lines.push(open(seq, "/home/ada/.other/x", fields));
    }
    lines.extend([
        open(2, "/home/ada/.own/x", json!({"access": ["write"]})),
        end(3),
    ]);
    // Behind the end nothing is its own.
    lines.push(open(4, "/home/ada/.late/x", json!({"access": ["write"]})));
    let seen = read(lines.iter().map(String::as_str), None);
    let roots: Vec<_> = seen.written.iter().map(|(path, _)| path).collect();
    assert_eq!(roots, [Path::new(".own")]);
    assert_eq!(seen.looked.iter().count(), 0);
    assert!(told(&seen).gaps().is_empty(), "{:?}", told(&seen).gaps());
}

#[test]
fn what_is_missing_is_said() {
    let cases = [
        (vec![header(), end(9)], None, "7 records are not there"),
        (
            vec![
                header(),
                record(
                    2,
                    json!({"event": "lost", "lost": 12, "more": 12, "why": "x"}),
                ),
                end(3),
            ],
            None,
            "12 events were lost",
        ),
        (
            vec![
                header(),
                record(2, json!({"event": "away", "seconds": 1.0})),
                end(3),
            ],
            None,
            "the tracer was away",
        ),
        (
            vec![header(), "{".to_owned(), end(2)],
            None,
            "1 records could not be read",
        ),
        (
            vec![
                header(),
                record(2, json!({"event": "end", "why": "x", "skipped": 5})),
            ],
            None,
            "5 opens were left out",
        ),
        (vec![header()], None, "no end yet"),
        (vec![], Some("the tracer has gone"), "the tracer has gone"),
    ];
    for (lines, trouble, gap) in cases {
        let seen = read(lines.iter().map(String::as_str), trouble.map(str::to_owned));
        let gaps = told(&seen).gaps();
        assert!(gaps.len() == 1 && gaps[0].contains(gap), "{gap}: {gaps:?}");
    }
}

#[test]
fn names_are_bytes_again_or_lead_nowhere() {
    let lines = [
        header(),
        open(
            2,
            "/home/ada/.a\\x0a\\xff\\\\b/x",
            json!({"access": ["write"]}),
        ),
        open(3, "relative", json!({})),
        open(4, "/home/ada/.cut", json!({"weak": ["truncated"]})),
        open(5, "/home/ada/.tail", json!({"weak": ["tail"]})),
        open(6, "/home/ada/.[redacted]", json!({})),
        open(7, "/home/ada/.bad\\q", json!({})),
        end(8),
    ];
    let seen = read(lines.iter().map(String::as_str), None);
    let name = PathBuf::from(OsString::from_vec(b".a\n\xff\\b".to_vec()));
    assert!(seen.written.get(&name).is_some());
    assert_eq!((seen.written.iter().count(), told(&seen).unplaced), (1, 5));
    assert_eq!(seen.looked.iter().count(), 0);
}

#[test]
fn what_was_not_written_is_not_state() {
    let failed = json!({"access": ["write", "create"], "verdict": "failed", "error": "ENOENT"});
    let would = json!({"access": ["write"], "verdict": "would_deny", "by": "tracer"});
    let lines = [
        header(),
        open(2, "/home/ada/.no/x", failed),
        open(3, "/home/ada/.would/x", would),
        open(4, "/home/ada/.path", json!({"access": ["path", "write"]})),
        open(
            5,
            "/home/ada/.tmp",
            json!({"access": ["write", "temporary"]}),
        ),
        record(
            6,
            json!({"event": "operation", "operation": "rename", "path": "/home/ada/.no/y", "other": "/home/ada/.no/z",
                "verdict": "failed", "error": "ENOENT"}),
        ),
        end(7),
    ];
    let seen = read(lines.iter().map(String::as_str), None);
    let roots: Vec<_> = seen.written.iter().map(|(path, _)| path).collect();
    assert_eq!(roots, [Path::new(".would")]);
    assert_eq!(seen.looked.get(Path::new(".no/y")), Some(&true));
    let how = "let through, and the tracer would deny it".to_owned();
    let would = ("/home/ada/.would/x".to_owned(), how, None);
    assert_eq!(denied(&seen), [would]);
}

/// Landlock's mediator answers calls, and does by itself what it lets happen.
#[test]
fn what_holds_the_jail_up_is_not_the_runs() {
    let traced = traced();
    let mut seen = nothing_seen();
    seen.begin(
        &[],
        [Path::new("/home/ada"), Path::new("/secrets/own/home")],
    );
    seen.stands_in(Path::new("/secrets/own"));
    let mut reading = Reading::new(&traced, seen, &hidden);
    let answered = json!({"verdict": "denied", "by": "seccomp", "error": "ENOENT"});
    let refused = json!({"verdict": "denied", "by": "seccomp", "error": "EACCES"});
    let vm = |seq, pid: u32| {
        record(
            seq,
            json!({"event": "operation", "operation": "process_vm", "pid": pid}),
        )
    };
    let lines = [
        header(),
        open(2, "/secrets", json!({})),
        open(3, "/secrets/own/home/.x", answered.clone()),
        open(4, "/secrets/own/sh", json!({})),
        open(5, "/else", answered),
        open(6, "/closed", refused),
        open(7, "/secrets/x", json!({})),
        vm(8, 2),
        vm(9, 7),
    ];
    lines.iter().for_each(|line| reading.line(line));
    let seen = reading.finish(None);
    let all = denied(&seen);
    let paths: Vec<_> = all.iter().map(|(path, ..)| path.as_str()).collect();
    assert_eq!(paths, ["/closed", "/secrets/x"]);
    assert_eq!(seen.looked.get(Path::new(".x")), Some(&true));
    let all: Vec<_> = told(&seen).operations.values().collect();
    assert_eq!(all, [&1]);
}

#[test]
fn operations_on_names_say_what_came_to_be() {
    let operation = |seq, operation: &str, path: &str, other: Option<&str>| {
        record(
            seq,
            json!({"event": "operation", "operation": operation, "path": path, "other": other}),
        )
    };
    let lines = [
        header(),
        operation(2, "mkdir", "/home/ada/.made", None),
        operation(3, "link", "/home/ada/.old", Some("/home/ada/.new")),
        operation(4, "rename", "/home/ada/.s/tmp", Some("/home/ada/.s/token")),
        operation(5, "unlink", "/home/ada/.removed", None),
        operation(6, "symlink", "/home/ada/.link", Some("anywhere")),
        operation(7, "userfaultfd", "relative", None),
        end(8),
    ];
    let seen = read(lines.iter().map(String::as_str), None);
    let written = |path: &str| seen.written.get(Path::new(path)).map(|one| one.directory);
    assert_eq!(
        [".made", ".new", ".s", ".link", ".removed", ".old"].map(written),
        [Some(true), Some(false), Some(true), Some(false), None, None]
    );
    assert!(seen.files.get(Path::new(".s/token")).is_some());
    assert!(seen.files.get(Path::new(".made")).is_none());
    let all: Vec<_> = told(&seen).operations.keys().collect();
    assert_eq!(all, [&("userfaultfd".to_owned(), "allowed".to_owned())]);
    assert_eq!(told(&seen).unplaced, 1);
}

#[test]
fn many_names_are_as_many_as_are_kept() {
    let traced = traced();
    let mut reading = Reading::new(&traced, nothing_seen(), &hidden);
    reading.line(&header());
    let denied = json!({"verdict": "denied", "error": "EACCES", "count": u64::MAX});
    for number in 0..20_000 {
        let (path, secret) = (format!("/home/ada/.{number}"), format!("/secrets/{number}"));
        reading.line(&open(
            2 * number + 2,
            &path,
            json!({"access": ["write"], "count": u64::MAX}),
        ));
        reading.line(&open(2 * number + 3, &secret, denied.clone()));
        // As many kinds of operations as there are none of.
        if number < 100 {
            let operation = format!("op{number}");
            reading.line(&record(
                2 * number + 3,
                json!({"event": "operation", "operation": operation}),
            ));
        }
    }
    let seen = reading.finish(None);
    let told = told(&seen);
    assert!(seen.written.iter().count() <= 4096 && seen.written.left_out > 10_000);
    assert!(told.denied.iter().count() <= 4096 && told.denied.left_out > 10_000);
    assert!(told.operations.len() <= MOST_TOLD);
}

#[test]
fn two_recorders_are_added_and_not_doubled() {
    let mut seen = nothing_seen();
    seen.calls = true;
    seen.note(Path::new("/home/ada/.fakeagent/state"), Act::Write);
    seen.note(Path::new("/home/ada/.seen-by-calls"), Act::Look);
    seen.note(Path::new("/home/ada/.fakerc"), Act::Look);
    seen.note_left(Path::new(".fake.json"), false);
    seen.note_peer(IpAddr::from([127, 0, 0, 1]), 9);
    seen.add(read(RECORDED.lines(), None));
    let state = seen.written.get(Path::new(".fakeagent")).expect("state");
    assert_eq!((state.directory, state.times), (true, 1));
    let left = seen.written.get(Path::new(".fake.json")).expect("a file");
    assert!(left.left && !left.directory);
    assert_eq!(seen.looked.get(Path::new(".seen-by-calls")), Some(&false));
    assert_eq!(seen.looked.get(Path::new(".fakerc")), Some(&true));
    assert!(seen.told.is_some() && seen.peers.len() == 1);
}

proptest! {
    /// Whatever stands in a line, it is read or counted.
    #[test]
    fn no_line_is_trusted(
        path in "\\PC{0,40}",
        access in prop::collection::vec("[a-z]{0,9}", 0..4),
        verdict in "[a-z_]{0,12}",
        count in any::<u64>(),
        seq in any::<u64>(),
        raw in "\\PC{0,60}",
    ) {
        let fields = json!({"access": access, "verdict": verdict, "count": count});
        let hostile = open(seq, &path, fields);
        let seen = read([header().as_str(), &hostile, &raw, &end(2)], None);
        prop_assert!(told(&seen).ended);
    }
}

#[test]
fn what_is_hidden_is_found_by_every_name_of_it() {
    let names = [
        "/secrets/key",
        "//secrets/key",
        "/srv/../secrets/key",
        "/./secrets//key",
        "/../secrets/key",
        "/proc/self/root/secrets/key",
        "/proc/self/root/../secrets/key",
        "/proc/self/root/proc/self/root/secrets/key",
        "/srv/../proc//self/./root/secrets/key",
    ];
    for name in names {
        // As what sees only calls has it.
        let weak =
            json!({"verdict": "failed", "error": "ENOENT", "weak": ["unresolved", "from_user"]});
        let lines = [header(), open(2, name, weak), end(3)];
        let seen = read(lines.iter().map(String::as_str), None);
        let found = denied(&seen);
        let hidden = (
            "/secrets/key".to_owned(),
            "failed (ENOENT)".to_owned(),
            Some("/a/rule".to_owned()),
        );
        assert_eq!(found, [hidden], "{name}");
    }
}
