//! What was seen, in every shape, against what stands in the file.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use agent_sandbox_events::text::escape;
use proptest::prelude::*;

use super::check;
use super::sort::{Judgement, Sorted, Stands};
use super::text::{Run, compose, string};
use crate::mediate::sight::calls::Act;
use crate::observe::seen::Seen;
use crate::observe::trail::{Reading, Traced};

fn seen() -> Seen {
    let mut seen = Seen::default();
    seen.calls = true;
    seen.begin(&[], [Path::new("/home/ada")]);
    seen
}

/// A host that has everything, and a policy that hides and protects some of it.
fn judge(below: &Path) -> Judgement {
    let rule = |name: &str| below.starts_with(name).then(|| format!("~/{name}"));
    let names_state = [".agent", ".config/agent"]
        .iter()
        .any(|state| below == Path::new(state));
    Judgement {
        hidden: rule(".ssh").or_else(|| rule(".netrc")),
        protected: rule(".bashrc"),
        stands: match names_state {
            true => Stands::Directory,
            false => Stands::File,
        },
    }
}

fn written(seen: &Seen, command: &[OsString]) -> String {
    let run = Run {
        name: "new",
        command,
        code: 0,
        commands: Ok("agent".to_owned()),
        seen,
    };
    compose(&run, &Sorted::new(seen, &judge))
}

/// What the file gives, by table and key.
fn given(text: &str) -> BTreeSet<(String, String)> {
    let table: toml::Table = toml::from_str(text).expect("TOML");
    let mut all = BTreeSet::new();
    let mut waiting: Vec<(String, toml::Value)> = table.into_iter().collect();
    while let Some((key, value)) = waiting.pop() {
        match value {
            toml::Value::Table(table) => {
                waiting.extend(
                    table
                        .into_iter()
                        .map(|(name, value)| (format!("{key}.{name}"), value)),
                );
            }
            toml::Value::Array(list) => {
                for one in list {
                    all.insert((key.clone(), one.as_str().expect("a string").to_owned()));
                }
            }
            value => {
                all.insert((key, value.as_str().expect("a string").to_owned()));
            }
        }
    }
    all
}

#[test]
fn what_is_seen_is_sorted() {
    let mut seen = seen();
    for (path, act) in [
        (".agent", Act::MakeDirectory),
        (".agent/state", Act::Write),
        (".config/agent/settings", Act::Write),
        (".config/single", Act::Write),
        (".ssh/id_rsa", Act::Open),
        (".netrc", Act::Write),
        (".bashrc", Act::Open),
        (".agentrc", Act::Open),
        (".toolrc", Act::Look),
        (".api_token", Act::Open),
        ("data.csv", Act::Open),
        ("results/x", Act::Write),
        (".cache/agent/x", Act::Write),
    ] {
        seen.note(&Path::new("/home/ada").join(path), act);
    }
    let text = written(&seen, &["agent".into()]);
    let expected = [
        ("home.read", "~/.agentrc"),
        ("profile.commands", "agent"),
        ("profile.description", "new, from an observed run"),
        ("profile.state.directories", "~/.agent"),
        ("profile.state.directories", "~/.config/agent"),
    ];
    let given: Vec<_> = given(&text).into_iter().collect();
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(given, expected, "{text}");
    for remark in [
        "#   \"~/.ssh/id_rsa\"  # opened; files.hide has ~/.ssh\n",
        "#   \"~/.netrc\"  # written; files.hide has ~/.netrc\n",
        "#   \"~/.bashrc\"  # opened; what runs by itself",
        "#   \"~/.toolrc\"  # looked for\n",
        "#   \"~/.api_token\"  # opened; by its name it may be a secret\n",
        "#   \"~/data.csv\"  # opened\n",
        "#   \"~/results\"  # without a dot",
        "#   \"~/.cache/agent\"  # written once\n",
        "#   \"~/.config/single\"  # a single file",
    ] {
        assert!(text.contains(remark), "{remark}\n{text}");
    }
}

#[test]
fn directories_and_files_of_the_state_are_told_apart() {
    let mut seen = seen();
    seen.note(Path::new("/home/ada/.agent/a/b"), Act::Write);
    seen.note(Path::new("/home/ada/.agent.json"), Act::Write);
    seen.note(Path::new("/home/ada/.gone.tmp"), Act::Write);
    seen.note_left(Path::new(".agent"), true);
    seen.note_left(Path::new(".agent.json"), false);
    seen.whole = true;
    let run = Run {
        name: "new",
        command: &[],
        code: 0,
        commands: Err("because".to_owned()),
        seen: &seen,
    };
    let nothing = |_: &Path| Judgement {
        hidden: None,
        protected: None,
        stands: Stands::Nothing,
    };
    let text = compose(&run, &Sorted::new(&seen, &nothing));
    let state: Vec<_> = given(&text)
        .into_iter()
        .filter(|(key, _)| key.starts_with("profile.state"))
        .map(|(_, path)| path)
        .collect();
    assert_eq!(state, ["~/.agent", "~/.agent.json"], "{text}");
    check("new.toml", &text).expect("a profile");
}

#[test]
fn a_string_holds_whatever_it_is_given_in_one_line() {
    for hostile in [
        "\"]\n[files]\nread=[\"/\"]",
        "\\",
        "\\\"",
        "\r\n\t\0\u{1b}\u{7f}\u{9b}",
        "\u{202e}\u{2028}\u{e0001}\u{feff}",
        "'''\"\"\"#",
        "äöü 𝄞",
    ] {
        let text = string(hostile);
        assert!(
            text.chars().all(|c| c == '"' || !c.is_control()),
            "{text:?}"
        );
        let table: toml::Table = toml::from_str(&format!("x = {text}")).expect(&text);
        assert_eq!(table["x"].as_str(), Some(hostile));
    }
}

/// Names as a hostile command makes them.
fn names() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        prop::collection::vec(any::<u8>().prop_filter("a name", |&byte| byte != 0), 1..20),
        Just(b"\"]\n[files]\nread=[\"/\"]".to_vec()),
        Just(b"\"\n#".to_vec()),
        Just(b"..".to_vec()),
        Just(b"*".to_vec()),
        Just(b".ssh".to_vec()),
        Just(b".bashrc".to_vec()),
        Just(b".config".to_vec()),
        Just(b".local/share".to_vec()),
        Just(b".agent".to_vec()),
    ];
    prop::collection::vec(word, 1..5).prop_map(|words| words.join(&b'/'))
}

/// The same as a tracer's trail tells it; each is written, opened, denied, or hidden.
fn told(seen: &Seen, names: &[(Vec<u8>, usize)]) -> Seen {
    let traced = Traced {
        session: "s".to_owned(),
        trace: 1,
        first: 2,
    };
    let hidden = |_: &Path| Some("~/a\nrule".to_owned());
    let mut reading = Reading::new(&traced, seen.other_recorder(), &hidden);
    let head = "\"time\":1,\"node\":\"n\",\"uid\":1,\"session\":\"s\",\"trace\":1";
    reading.line(&format!(
        "{{\"seq\":1,{head},\"event\":\"header\",\"version\":1,\"object\":\"a\\nb\",\"kernel\":\"\\u001b\",\
         \"blind\":[\"a\\nb = 1\"],\"events\":[],\"enforce\":\"off\",\"every\":1}}"
    ));
    for (seq, (name, kind)) in (2..).zip(names) {
        let access = ["write", "read", "read", "read"][*kind];
        let verdict = ["allowed", "allowed", "denied", "failed"][*kind];
        let place = ["/home/ada/", "/home/ada/", "/home/ada/", "/else/"][*kind];
        let path = escape(&[place.as_bytes(), name].concat());
        let path = serde_json::to_string(&path).expect("JSON");
        let operation = serde_json::to_string(&escape(name)).expect("JSON");
        reading.line(&format!(
            "{{\"seq\":{seq},{head},\"event\":\"open\",\"pid\":1,\"ppid\":1,\"comm\":\"x\",\"path\":{path},\
             \"access\":[\"{access}\"],\"verdict\":\"{verdict}\"}}"
        ));
        reading.line(&format!(
            "{{\"seq\":{seq},{head},\"event\":\"operation\",\"pid\":1,\"ppid\":1,\"comm\":\"x\",\
             \"operation\":{operation},\"verdict\":\"{verdict}\"}}"
        ));
    }
    reading.finish(Some("a\nb = 1".to_owned()))
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        Just(Act::Look),
        Just(Act::Open),
        Just(Act::Write),
        Just(Act::MakeDirectory)
    ]
}

proptest! {
    // Each reads the built-in policy anew.
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever a run does, the file is a profile, and gives at most entries of the home that were seen,
    /// none of which is hidden or protected.
    #[test]
    fn the_file_gives_at_most_what_was_seen(
        calls in prop::collection::vec((names(), acts()), 0..60),
        command in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..20),
        left in prop::collection::vec((names(), any::<bool>()), 0..20),
        whole in any::<bool>(),
        recorded in prop::collection::vec((names(), 0..4_usize), 0..40),
        calls_are_seen in any::<bool>(),
    ) {
        let mut seen = seen();
        let mut paths = Vec::new();
        for (name, act) in &calls {
            let name = PathBuf::from(OsString::from_vec(name.clone()));
            seen.note(&Path::new("/home/ada").join(&name), *act);
            paths.push(name);
        }
        for (name, directory) in &left {
            let name = PathBuf::from(OsString::from_vec(name.clone()));
            seen.note_left(&name, *directory);
            paths.push(name);
        }
        seen.whole = whole;
        seen.calls = calls_are_seen;
        for (name, _) in &recorded {
            paths.push(PathBuf::from(OsString::from_vec(name.clone())));
        }
        seen.add(told(&seen, &recorded));
        seen.note_peer(IpAddr::from([127, 0, 0, 1]), 443);
        let command: Vec<OsString> = command.into_iter().map(OsString::from_vec).collect();
        let text = written(&seen, &command);
        prop_assert!(check("new.toml", &text).is_ok(), "{}", text);
        prop_assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
        for (key, value) in given(&text) {
            match key.as_str() {
                "profile.description" | "profile.commands" => {}
                "profile.state.directories" | "profile.state.files" | "home.read" => {
                    let below = value.strip_prefix("~/").expect("below the home");
                    prop_assert!(!below.starts_with(".ssh") && !below.starts_with(".bashrc"));
                    let plain = |path: &PathBuf| {
                        let mut all = PathBuf::new();
                        for part in path.components() {
                            match part {
                                std::path::Component::ParentDir => { all.pop(); }
                                std::path::Component::Normal(part) => all.push(part),
                                _ => {}
                            }
                        }
                        all
                    };
                    prop_assert!(paths.iter().any(|path| plain(path).starts_with(below)), "{}", value);
                }
                other => prop_assert!(false, "{} = {}", other, value),
            }
        }
        let lines = text.lines().count();
        prop_assert!(lines < 800 && text.len() < 400_000);
    }
}
