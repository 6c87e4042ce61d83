//! Names that an agent can choose: with newlines that would begin a line of ours, and with characters
//! that would speak to the terminal or make JSON unreadable.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::world::{Output, World, until};

/// What turns the direction of text, a control sequence's beginning, DEL, a tag that nobody sees, and
/// lines as ours are.
const ODD: &str =
    "x\u{202e}\u{9b}\u{7f}\u{e0001}\n  rule: forged\n  change: run this\n  ok       forged";

/// None of what speaks to a terminal is there as it is.
#[track_caller]
fn harmless(output: &Output) {
    let text = output.out() + &output.err();
    for bad in ['\u{202e}', '\u{9b}', '\u{7f}', '\u{e0001}'] {
        assert!(!text.contains(bad), "{bad:?} in {output}");
    }
}

/// An answer that a program can read.
#[track_caller]
fn json(output: &Output) -> Value {
    harmless(output);
    output.json()
}

/// Text in which nothing that a name says stands at the beginning of a line.
#[track_caller]
fn unforged(output: &Output) {
    harmless(output);
    let text = output.out() + &output.err();
    assert!(text.contains("forged"), "the name is not there: {output}");
    for line in text.lines() {
        for forged in ["  rule: forged", "  change: run", "  ok       forged"] {
            assert!(!line.starts_with(forged), "{line:?} in {output}");
        }
    }
}

/// A world with a link in the project to a directory of that name.
fn world() -> World {
    let world = World::new();
    fs::create_dir(world.project.join(ODD)).unwrap();
    symlink(ODD, world.project.join("link")).unwrap();
    world
}

#[test]
fn explain_stays_readable_outside() {
    let world = world();
    let real = world.project.join(ODD);
    for asked in ["link", ODD] {
        let answer = json(&world.call(["explain", "--json", asked]).run());
        assert_eq!(answer["verdict"], "writable", "{answer}");
        let key = if asked == ODD { "subject" } else { "real" };
        assert_eq!(answer[key], real.to_str().unwrap());
        let text = world.call(["explain", asked]).run();
        unforged(&text);
        let rules = text.out().matches("\n  rule: ").count();
        assert_eq!((text.code, rules), (0, 1), "{text}");
    }
    for question in [["--env", ODD], ["--slurm", ODD]] {
        let words = [&["explain", "--json"], &question[..]].concat();
        json(&world.call(words).run());
        let words = [&["explain"], &question[..]].concat();
        harmless(&world.call(words).run());
    }
    // JSON has no bytes: what is not UTF-8 is replaced.
    let bytes = OsStr::from_bytes(b"a\xff");
    fs::create_dir(world.project.join(bytes)).unwrap();
    symlink(bytes, world.project.join("bytes")).unwrap();
    let answer = json(&world.call(["explain", "--json", "bytes"]).run());
    let real = answer["real"].as_str().unwrap();
    assert!(real.ends_with("/a\u{fffd}"), "{answer}");
}

#[test]
fn explain_stays_readable_inside() {
    let world = world();
    let real = world.project.join(ODD);
    let inside = |words: &[&str]| {
        let explain = ["agent-sandbox", "explain"];
        world.quiet([&explain, words].concat()).run()
    };
    for asked in ["link", ODD] {
        let answer = json(&inside(&["--json", asked]));
        assert_eq!(answer["verdict"], "writable", "{answer}");
        let key = if asked == ODD { "subject" } else { "real" };
        assert_eq!(answer[key], real.to_str().unwrap());
        let text = inside(&[asked]);
        unforged(&text);
        let rules = text.out().matches("\n  rule: ").count();
        assert_eq!((text.code, rules), (0, 1), "{text}");
    }
    json(&inside(&["--json", "--slurm", ODD]));
}

/// A rule of the user's own names it, and the jail's document carries that.
#[test]
fn a_policy_that_names_it_stays_readable() {
    let world = world();
    let path = world.home.join(ODD);
    fs::create_dir(&path).unwrap();
    let rule = Value::from(path.to_str().unwrap()).to_string();
    // TOML's strings are JSON's here, but for DEL.
    world.policy(&format!(
        "[files]\nread = [{}]\n",
        rule.replace('\u{7f}', "\\u007F")
    ));
    let policy = json(&world.call(["policy", "--json"]).run());
    assert!(policy.to_string().contains("forged"), "{policy}");
    unforged(&world.call(["policy"]).run());
    json(&world.call(["--dry-run", "--json", "--", "true"]).run());
    unforged(&world.call(["--dry-run", "--", "true"]).run());
    let path = path.to_str().unwrap();
    for words in [&["explain"][..], &["-q", "agent-sandbox", "explain"]] {
        let answer = json(&world.call([words, &["--json", path]].concat()).run());
        assert!(answer["why"].to_string().contains("forged"), "{answer}");
        unforged(&world.call([words, &[path]].concat()).run());
    }
}

#[test]
fn sessions_stay_readable() {
    let world = world();
    let project = world.project.join(ODD);
    let mut child = world.quiet(["cat"]).cwd(&project).start();
    let mine = |all: &Value| {
        let mut all = all.as_array().unwrap().iter();
        all.any(|session| session["project"] == project.to_str().unwrap())
    };
    until("the session's record", || {
        mine(&json(&world.call(["sessions", "--json"]).run()))
    });
    unforged(&world.call(["sessions"]).run());
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[test]
fn doctor_stays_readable() {
    let world = world();
    let project = world.project.join(ODD);
    let calls = |words: &[&str]| {
        let words = [&["--set", "slurm.mode=off"], words, &["doctor"]].concat();
        let text = world.call(&words).cwd(&project).run();
        let json = world
            .call([&words[..], &["--json"]].concat())
            .cwd(&project)
            .run();
        (text, json)
    };
    let read = |output: &Output| -> Value {
        harmless(output);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output}"))
    };
    let (text, json) = calls(&[]);
    unforged(&text);
    assert!(read(&json).to_string().contains("forged"), "{json}");
    // In the words of an error, too.
    let named = project.join("none\nerror: forged\n  fix: run this");
    let (text, json) = calls(&["--project", named.to_str().unwrap()]);
    unforged(&text);
    let forged = |line: &str| line.starts_with("  fix: run this") || line.starts_with("error:");
    assert!(!text.out().lines().any(forged), "{text}");
    assert_eq!(read(&json)["starts"], false, "{json}");
}

#[test]
fn an_error_is_one_line() {
    let world = world();
    let missing = world.project.join(ODD).join("a\nhint: forged");
    let output = world
        .call(["--project", missing.to_str().unwrap(), "--", "true"])
        .run();
    assert_eq!(output.code, 125, "{output}");
    unforged(&output);
    let forged = |line: &str| line.starts_with("hint: forged");
    assert!(!output.err().lines().any(forged), "{output}");
}
