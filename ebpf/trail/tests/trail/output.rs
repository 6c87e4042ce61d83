//! Standard output, standard error and exit codes: reports, and what cannot be had.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_sandbox_events::ask::{Ask, Untraced, VERSION, What};
use agent_sandbox_events::protocol::{Request, Which};
use agent_sandbox_events::record::{Record, Verdict};

use crate::fake::{Fake, until};
use crate::records::{self, Writer};

/// The program, with what is asked of it.
pub(crate) fn program(ask: &Ask) -> Command {
    let beside = std::env::var_os("AGENT_SANDBOX_BIN").map(|launcher| {
        let launcher = Path::new(&launcher);
        launcher.with_file_name("agent-sandbox-trail")
    });
    let program = beside
        .filter(|path| path.exists())
        .unwrap_or_else(|| env!("CARGO_BIN_EXE_agent-sandbox-trail").into());
    let mut command = Command::new(program);
    command.arg(serde_json::to_string(ask).unwrap());
    command.env_clear().env("PATH", "/usr/bin:/bin");
    command
}

pub(crate) fn ask(socket: &Path, what: What) -> Ask {
    Ask {
        version: VERSION,
        socket: socket.to_str().unwrap().into(),
        state: None,
        json: false,
        quiet: false,
        untraced: Vec::new(),
        uid: None,
        what,
    }
}

pub(crate) fn report_of(which: Option<&str>, markdown: bool) -> What {
    What::Report {
        which: which.map(str::to_owned),
        markdown,
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn run(ask: &Ask) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = program(ask).output().unwrap();
    (status.code().unwrap(), text(&stdout), text(&stderr))
}

#[test]
fn a_report_is_text_json_or_markdown() {
    let fake = Fake::with_session();
    let (code, out, err) = run(&ask(fake.socket(), report_of(None, false)));
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(
        out.starts_with("session k3v9m2qp on 3 nodes, user 1000\n"),
        "{out}"
    );
    assert!(
        out.contains("      3  open /home/ada/.ssh/id_rsa [key] by security module (EACCES)\n"),
        "{out}"
    );
    assert!(
        out.contains(
            "      1  open /home/ada/.aws/credentials [credential] hidden by the policy (ENOENT)\n"
        ),
        "{out}"
    );
    assert!(
        out.contains("\n  5 events were lost: no room in the ring (5)\n"),
        "{out}"
    );
    let (_, out, _) = run(&ask(fake.socket(), report_of(Some("k3v9m2qp"), true)));
    assert!(
        out.contains(
            "\n| 3 | `open` | `/home/ada/.ssh/id_rsa` | key | by security module (EACCES) |\n"
        ),
        "{out}"
    );
    let json = Ask {
        json: true,
        ..ask(fake.socket(), report_of(None, false))
    };
    let (_, out, _) = run(&json);
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(value["denied"][0]["sensitive"], "key");
    assert_eq!(value["unseen"]["lost"], 5);
    assert_eq!(value["trails"].as_array().unwrap().len(), 3);
    assert_eq!(value["written"][0]["path"], "/home/ada/work/notes");
}

/// The tracer sees the address that stands for a host in a filtered network; the user's own record says which host.
#[test]
fn a_connection_of_a_filtered_session_is_shown_with_its_host() {
    let mut writer = Writer::session("k3v9m2qp", "n1", 7);
    writer.own(nix::unistd::getuid().as_raw());
    let failed = Verdict {
        verdict: "denied".into(),
        ..records::allowed()
    };
    let all = [
        records::header(&[]),
        records::connect(7, "curl", "198.18.0.1:443", records::allowed()),
        records::connect(7, "curl", "198.18.0.1:443", failed),
        records::connect(7, "curl", "198.18.0.2:443", records::allowed()),
        records::end(),
    ];
    let lines = all.map(|what| records::line(&writer.write(what)));
    let fake = Fake::new(lines.to_vec());
    let state = fake.place.path().join("state");
    std::fs::create_dir_all(state.join("audit")).unwrap();
    std::fs::write(
        state.join("audit/n1.jsonl"),
        "{\"session\":\"k3v9m2qp\",\"host\":\"n1\",\"kind\":\"network\",\"name\":\"pypi.org\",\"port\":443,\"inside\":\"198.18.0.1\"}\n",
    )
    .unwrap();
    let with_names = |what, json| Ask {
        state: Some(state.to_str().unwrap().to_owned()),
        json,
        ..ask(fake.socket(), what)
    };
    let (_, out, _) = run(&with_names(report_of(None, false), false));
    for line in [
        "  pypi.org = 198.18.0.1:443 (inet, stream)",
        "  198.18.0.2:443 (inet, stream)",
        "connect pypi.org = 198.18.0.1:443",
    ] {
        assert!(out.contains(line), "no `{line}`: {out}");
    }
    let (_, out, _) = run(&with_names(report_of(None, false), true));
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    let first = &value["connections"][0];
    assert_eq!(
        (&first["address"], &first["host"]),
        (&"198.18.0.1:443".into(), &"pypi.org".into())
    );
    assert!(value["connections"][1]["host"].is_null(), "{out}");
    // Without the record, addresses are all that there is.
    let (_, out, _) = run(&ask(fake.socket(), report_of(None, false)));
    assert!(
        out.contains("  198.18.0.1:443 (inet, stream)") && !out.contains("pypi"),
        "{out}"
    );
}

/// A report of a session does not seem to be of all that ran, if steps of it were not traced; those of other sessions are theirs.
#[test]
fn steps_without_a_trace_are_in_the_report_of_their_session() {
    let fake = Fake::with_session();
    let step = |session: &str, job| Untraced {
        session: session.to_owned(),
        job,
        step: "batch".to_owned(),
        node: "node07".to_owned(),
        uid: None,
    };
    let ask = Ask {
        untraced: vec![step("k3v9m2qp", 4711), step("another1", 4712)],
        ..ask(fake.socket(), report_of(None, false))
    };
    let (_, out, _) = run(&ask);
    assert!(
        out.contains("\n  step batch of job 4711 ran untraced on node07: no tracer took it\n"),
        "{out}"
    );
    assert!(!out.contains("4712"), "{out}");
}

/// Root's report of a user is about that user's trails, and a note of another user's about them does not count.
#[test]
fn notes_of_others_are_not_in_a_users_report() {
    let fake = Fake::with_session();
    let of = |uid, job| Untraced {
        session: "k3v9m2qp".to_owned(),
        job,
        step: "batch".to_owned(),
        node: "node07".to_owned(),
        uid: Some(uid),
    };
    let ask = |uid| Ask {
        uid,
        untraced: vec![of(1000, 4711), of(1001, 4712)],
        ..ask(fake.socket(), report_of(None, false))
    };
    for uid in [None, Some(1000)] {
        let (_, out, _) = run(&ask(uid));
        assert!(out.contains("step batch of job 4711 ran untraced"), "{out}");
        assert!(!out.contains("4712"), "{out}");
    }
    let (code, _, err) = run(&ask(Some(1001)));
    assert!(
        code != 0 && err.contains("user 1001 has no trails"),
        "{err}"
    );
}

/// Records are written within a second of what they tell.
#[test]
fn what_has_just_happened_is_in_a_report() {
    let reads = |fake: &Fake| {
        let asked = fake.asked();
        let reads = |asked: &&Request| {
            matches!(
                asked,
                Request::Files {
                    which: Which::Session(_),
                    after: None,
                    ..
                }
            )
        };
        asked.iter().filter(reads).count()
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut writer = Writer::session("k3v9m2qp", "n1", 7);
    let mut record = |what, time: f64| {
        let record = writer.write(what);
        records::line(&Record { time, ..record })
    };
    let now = now.as_secs_f64();
    let (begin, end) = (
        record(records::header(&[]), now),
        record(records::end(), now),
    );
    let fake = Fake::new(vec![begin]);
    let out = std::thread::scope(|scope| {
        let report = scope.spawn(|| run(&ask(fake.socket(), report_of(None, false))).1);
        let opened = |asked: &Request| matches!(asked, Request::Open { .. });
        until(|| fake.asked().iter().any(opened));
        // Nothing tells when it has read the file. If that takes it longer it reads once, and the same comes out.
        std::thread::sleep(Duration::from_millis(100));
        fake.happen(end);
        report.join().unwrap()
    });
    assert!(out.contains(", ended: "), "{out}");
    // It has ended: nobody waits for more. Nor where nothing has happened for long.
    for fake in [&fake, &Fake::with_session()] {
        let before = reads(fake);
        run(&ask(fake.socket(), report_of(None, false)));
        assert_eq!(reads(fake), before + 1);
    }
}

#[test]
fn an_unknown_session_is_answered_by_those_that_there_are() {
    let fake = Fake::with_session();
    let (code, out, err) = run(&ask(fake.socket(), report_of(Some("zzzz"), false)));
    assert_eq!((code, out.as_str()), (125, ""));
    assert_eq!(
        err,
        "error: there is no trail of a session `zzzz`\nhint: there are session k3v9m2qp\n"
    );
    let none = Fake::new(Vec::new());
    let (code, _, err) = run(&ask(none.socket(), report_of(None, false)));
    assert_eq!(code, 125);
    assert!(
        err.starts_with("error: there are no trails of yours yet\nhint: "),
        "{err}"
    );
}

#[test]
fn without_a_tracer_the_message_says_where_it_would_be() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("none.sock");
    for what in [report_of(None, false), What::Watch { which: None }] {
        let json = Ask {
            json: true,
            ..ask(&socket, what)
        };
        let (code, out, err) = run(&json);
        assert_eq!((code, out.as_str()), (125, ""));
        let expected = format!(
            "error: no tracer runs on this node: there is no `{}`\nhint: ",
            socket.display()
        );
        assert!(err.starts_with(&expected), "{err}");
    }
    // What is left of one that was killed.
    let mut fake = Fake::with_session();
    let socket = fake.socket().to_owned();
    let bound = std::os::unix::net::UnixDatagram::unbound().unwrap();
    drop(bound);
    fake.stop();
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let (code, _, err) = run(&ask(&socket, report_of(None, false)));
    assert_eq!(code, 125);
    assert!(err.starts_with("error: "), "{err}");
}

#[test]
fn a_refusal_says_why_and_what_to_do() {
    let fake = Fake::with_session();
    fake.refuse("too many readers");
    let (code, _, err) = run(&ask(fake.socket(), report_of(None, false)));
    assert_eq!(code, 125);
    assert_eq!(
        err,
        "error: the tracer refuses: too many readers\nhint: ask an administrator\n"
    );
}

#[test]
fn a_view_needs_a_terminal() {
    let fake = Fake::with_session();
    let (code, _, err) = run(&ask(fake.socket(), What::Watch { which: None }));
    assert_eq!(code, 125);
    assert!(
        err.contains("needs a terminal") && err.contains("--json"),
        "{err}"
    );
}

#[test]
fn nobody_starts_it_by_hand() {
    for arguments in [
        &[][..],
        &["x"],
        &["{}"],
        &["held"],
        &["held", "x", "y", "z"],
    ] {
        let mut command = program(&ask(Path::new("/x"), report_of(None, false)));
        let program = command.get_program().to_owned();
        command = Command::new(program);
        let output = command.args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        assert!(text(&output.stderr).starts_with("error: "));
    }
}

#[test]
fn what_another_user_calls_the_same_is_in_no_report_with_it() {
    let mut records = crate::records::session("k3v9m2qp");
    let mut other = records.clone();
    for record in &mut other {
        record.trail.uid = 1666;
        record.trail.trace += 100;
    }
    records.extend(other);
    let lines: Vec<String> = records.iter().map(crate::records::line).collect();
    let several = "error: several users have trails of session k3v9m2qp: 1000, 1666\n";
    let fake = Fake::new(lines);
    let (code, out, err) = run(&ask(fake.socket(), report_of(Some("k3v9m2qp"), false)));
    assert_eq!((code, out.as_str()), (125, ""));
    assert!(err.starts_with(several), "{err}");
    for uid in [1000, 1666] {
        let word = format!("k3v9m2qp@{uid}");
        let (code, out, err) = run(&ask(fake.socket(), report_of(Some(&word), false)));
        assert_eq!((code, err.as_str()), (0, ""));
        let first = format!("session k3v9m2qp on 3 nodes, user {uid}\n");
        assert!(out.starts_with(&first), "{out}");
        assert!(
            out.contains("      3  open /home/ada/.ssh/id_rsa [key]"),
            "{out}"
        );
        assert!(out.contains(&format!(", user {uid}: ")), "{out}");
    }
}
