//! Trails that are no trails: numbers, depths and lengths that nobody writes, lines that are cut, headers that are
//! missing. Whoever reads them gets an answer all the same, and is told what was not understood.

use agent_sandbox_events::ask::{Ask, What};
use agent_sandbox_events::record::LINE_BYTES;

use crate::fake::Fake;
use crate::output::{ask, program, report_of, text};
use crate::records::{self, Writer};
use crate::terminal::Terminal;

/// Where each odd record says that it is of.
const TRAIL: &str = r#""node":"login1","uid":1000,"session":"k3v9m2qp","trace":7"#;
const ACTOR: &str = r#""pid":9,"ppid":1,"comm":"sh""#;

/// Lines that are no records.
fn none() -> Vec<String> {
    let deep = format!("{}1{}", "[".repeat(2000), "]".repeat(2000));
    let open = format!(r#""event":"open",{ACTOR},"path":"/x","access":[],"verdict":"allowed""#);
    vec![
        String::new() + "{",
        "null".into(),
        deep.clone(),
        format!(r#"{{"seq":1,"time":1,{TRAIL},"event":"end","why":{deep}}}"#),
        // Cut in the middle, as a file is that somebody writes to.
        format!(r#"{{"seq":2,"time":1,{TRAIL},{open}"#),
        format!(r#"{{"seq":-1,"time":1,{TRAIL},{open}}}"#),
        format!(r#"{{"seq":99999999999999999999999999,"time":1,{TRAIL},{open}}}"#),
        format!(r#"{{"seq":2,"time":1e999,{TRAIL},{open}}}"#),
        format!(r#"{{"seq":2,"time":"now",{TRAIL},{open}}}"#),
        format!(r#"{{"seq":2,"seq":3,"time":1,{TRAIL},{open}}}"#),
        format!(r#"{{"seq":2,"time":1,{TRAIL},"event":"opened"}}"#),
        format!(r#"{{"seq":2,"time":1,{TRAIL},{open},"count":-5}}"#),
        "\u{1b}[2J\u{7}".into(),
    ]
}

/// Records whose numbers nobody writes.
fn odd() -> Vec<String> {
    let most = u64::MAX;
    let event = |seq: u64, time: &str, rest: &str| {
        format!(r#"{{"seq":{seq},"time":{time},{TRAIL},{rest}}}"#)
    };
    let open = |path: &str, count: u64| {
        format!(
            r#""event":"open",{ACTOR},"path":"{path}","access":["read"],"verdict":"denied","by":"permissions","error":"EACCES","count":{count}"#
        )
    };
    let long = "y".repeat(LINE_BYTES / 3);
    vec![
        // No header, and it does not begin with the first number.
        event(40, "1768471200", &open("/first", 1)),
        event(most, "1e308", &open("/last", most)),
        event(most, "-1e308", &open("/last", most)),
        event(0, "0", &open("/nothing", 0)),
        event(7, "1768471201", &open(&long, 3)),
        event(
            10,
            "1768471201",
            &format!(r#""event":"lost","more":{most},"why":"a""#),
        ),
        event(
            11,
            "1768471201",
            &format!(r#""event":"lost","more":{most},"why":"b""#),
        ),
        event(12, "1768471201", r#""event":"away","seconds":1e308"#),
        event(13, "1768471201", r#""event":"away","seconds":1e308"#),
        event(14, "1768471201", r#""event":"away","seconds":-5"#),
        event(
            15,
            "1768471201",
            &format!(r#""event":"exit",{ACTOR},"code":-2147483648"#),
        ),
        event(
            16,
            "1768471201",
            r#""event":"header","version":4000000000,"object":"","kernel":"","blind":[],"events":[],"enforce":"?","every":0"#,
        ),
        event(
            17,
            "1768471201",
            &format!(r#""event":"end","why":"","skipped":{most}"#),
        ),
        event(18, "1768471202", &open("/behind-the-end", 2)),
    ]
}

fn lines() -> Vec<String> {
    let (none, odd) = (none(), odd());
    let longest = none.len().max(odd.len());
    // One of each in turn: what is no record takes nothing of what stands beside it.
    let turns = (0..longest).flat_map(|at| [odd.get(at).cloned(), none.get(at).cloned()]);
    turns.flatten().map(|line| line + "\n").collect()
}

fn fake() -> Fake {
    Fake::new(lines())
}

#[test]
fn odd_trails_are_reported_and_what_was_not_understood_is_counted() {
    let fake = fake();
    let run = |json, markdown| {
        let ask = Ask {
            json,
            ..ask(fake.socket(), report_of(None, markdown))
        };
        let output = program(&ask).output().unwrap();
        assert_eq!(text(&output.stderr), "");
        assert_eq!(output.status.code(), Some(0));
        text(&output.stdout)
    };
    let data: serde_json::Value = serde_json::from_str(&run(true, false)).unwrap();
    assert_eq!(data["unseen"]["unreadable"], none().len());
    assert_eq!(data["verdicts"]["denied"], u64::MAX);
    assert_eq!(data["unseen"]["lost"], 0);
    let paths: Vec<&str> = data["denied"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|denied| denied["on"].as_str())
        .collect();
    for path in ["/first", "/last", "/behind-the-end"] {
        assert!(paths.contains(&path), "{path}");
    }
    for report in [run(false, false), run(false, true)] {
        let said = format!("{} lines were not understood", none().len());
        assert!(report.contains(&said), "{report}");
        assert!(report.contains("/behind-the-end"), "{report}");
        let longest = report.lines().map(|line| line.chars().count()).max();
        assert!(longest < Some(1000), "{longest:?}");
        assert!(!report.contains('\u{1b}'));
    }
}

#[test]
fn odd_trails_are_watched_and_what_follows_is_shown() {
    let fake = fake();
    let state = fake.place.path().join("state");
    let ask = Ask {
        state: Some(state.to_str().unwrap().into()),
        ..ask(fake.socket(), What::Watch { which: None })
    };
    let mut command = program(&ask);
    command.env("TERM", "xterm-256color");
    let mut terminal = Terminal::start(&command);
    terminal.expect("k3v9m2qp");
    // Numbers that are too large leave room for what stands beside them.
    terminal.expect("DENIED >10T");
    terminal.expect(&format!("{} not understood", none().len()));
    terminal.expect("away for 2932896 d");
    fake.followed();
    for line in lines() {
        fake.happen(line);
    }
    let mut writer = Writer::session("k3v9m2qp", "login1", 7);
    writer.skip(100);
    let what = records::exec(77, "/usr/bin/live-now", &["live-now"], records::allowed());
    fake.happen(records::line(&writer.write(what)));
    terminal.expect("/usr/bin/live-now");
    for pane in 1..=8 {
        terminal.keys(&pane.to_string());
        terminal.expect("k3v9m2qp");
    }
    terminal.keys("q");
    assert_eq!(terminal.end(), 0);
    assert!(terminal.is_given_back());
    assert!(!terminal.wrote("\u{7}"));
}
