//! `agent-sandbox profile init` with real agents: what each writes when it is started for the first time
//! is found, and with the profile that comes of it the agent starts again.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::{agent_sandbox, agents, installed};

/// An agent, and the directories that it makes when it is asked for its version.
const AGENTS: &[(&str, &[&str])] = &[
    ("claude", &[]),
    ("codex", &["~/.codex"]),
    ("gemini", &["~/.gemini"]),
    (
        "opencode",
        &["~/.local/share/opencode", "~/.local/state/opencode"],
    ),
];

#[test]
fn a_profile_is_drafted_from_a_run_of_a_real_agent() {
    for (name, state) in AGENTS {
        match installed(name) {
            Ok(()) => drafted(name, state),
            Err(why) => println!("not checked: agents: {name}: a drafted profile: {why}"),
        }
    }
}

fn drafted(name: &str, state: &[&str]) {
    // Codex makes less of its state where its home is below /tmp.
    let own = std::env::var_os("HOME").expect("the user who runs the tests has a HOME");
    let world = tempfile::tempdir_in(own).expect("a directory");
    let root = world.path().canonicalize().expect("its real path");
    let (home, project) = (root.join("home"), root.join("home/project"));
    fs::create_dir_all(&project).expect("a project");
    fs::create_dir(home.join(".ssh")).expect("a directory");
    fs::write(home.join(".ssh/id_rsa"), "secret").expect("a key");
    // Not the name of a built-in one.
    let profile = format!("drafted-{name}");
    let mut words = vec!["profile", "init", &profile, "--", name, "--version"];
    let drafted = run(&home, &project, &words);
    let version = String::from_utf8_lossy(&drafted.stdout).into_owned();
    assert!(
        drafted.status.success() && !version.is_empty(),
        "{name}: {drafted:?}"
    );
    let file = format!(".config/agent-sandbox/profiles/{profile}.toml");
    let text = fs::read_to_string(home.join(file)).expect("the profile");
    let table: toml::Table = toml::from_str(&text).expect("TOML");
    let list = |of: &toml::Value, key: &str| -> Vec<String> {
        let all = of[key].as_array().expect("a list").iter();
        all.map(|one| one.as_str().expect("a string").to_owned())
            .collect()
    };
    let written = &table["profile"]["state"];
    assert_eq!(list(written, "directories"), state, "{name}\n{text}");
    assert_eq!(list(written, "files"), [""; 0], "{name}\n{text}");
    assert_eq!(list(&table["home"], "read"), [""; 0], "{name}\n{text}");
    assert!(!text.contains("secret"), "{name}\n{text}");
    for directory in state {
        let below = directory.trim_start_matches("~/");
        assert!(!home.join(below).exists(), "{name}: {directory} stayed");
    }
    words.splice(.., ["-p", &profile, name, "--version"]);
    let used = run(&home, &project, &words);
    let again = String::from_utf8_lossy(&used.stdout);
    assert!(
        used.status.success() && again == version,
        "{name}: {used:?}"
    );
}

fn run(home: &Path, project: &Path, words: &[&str]) -> Output {
    let launcher = agent_sandbox();
    let path = format!(
        "{}:/usr/local/bin:/usr/bin:/bin",
        agents().join("bin").display()
    );
    Command::new(&launcher[0])
        .args(&launcher[1..])
        .args(words)
        .current_dir(project)
        .env_clear()
        .env("HOME", home)
        .env("PATH", path)
        .env("TERM", "xterm")
        .output()
        .expect("agent-sandbox starts")
}
