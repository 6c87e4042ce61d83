//! Real agents in the jail, from end to end; the jail is Landlock's where
//! `AGENT_SANDBOX_TEST_BACKEND` says so.
//!
//! The real `claude` runs against a stand-in for its API ([`messages_api`]), which has it do what a
//! researcher wants of it (read, fix, compile, run, write) and what nobody wants of it (look for the
//! keys of its user). The work must succeed as without the jail; of the keys, nothing may reach the
//! API.
//!
//! The agents come from `tests/agents/install DIR`; `AGENT_SANDBOX_TEST_AGENTS` names `DIR` where it
//! is not `target/agents`. `AGENT_SANDBOX_BIN` names another `agent-sandbox` than the one just built.

#![allow(clippy::disallowed_methods)] // a test: makes a home, runs agents, waits for them

#[allow(dead_code)] // here less is asked of it than there
#[path = "../confine/chosen.rs"]
mod chosen;
mod dialects;
mod driven;
mod hook;
mod messages_api;
mod rows;
mod running;
mod watched;

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use chosen::is_landlock;
use messages_api::{MessagesApi, Step, ToolUse, call};
use nix::unistd::geteuid;
use running::{Agent, Outcome, files_with, read_to_string};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Does not compile, so that a compiler that runs must have seen the fix.
const BROKEN: &str =
    "#include <stdio.h>\nint main(void) { printf(\"six times seven is %d\\n\", 6 * 7) }\n";
const BUG: &str = "6 * 7) }";
const FIX: &str = "6 * 7); return 0; }";
/// What the repaired program prints; it stands in no source.
const PRINTED: &str = "six times seven is 42";
const NOTES: &str = "The semicolon was missing.\n";

/// A setting of the user's in `~/.claude.json`, which must survive.
const THEME: &str = "light-daltonized";
/// The key for the API. It is the agent's own, so it is the one that the jail lets through.
const API_KEY: &str = "dummy";

/// The width of the terminal that claude is started at: no default of any program's.
const COLUMNS: usize = 93;
/// What claude shows below its question whether a project is trusted, in one piece.
const QUESTION: &str = "cancel";
/// Between the keys that leave claude. It shows a menu for a command that is being typed, and takes
/// Enter for its own until that is drawn.
const TYPING: Duration = Duration::from_millis(500);

/// Where claude's state is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// In the user's home.
    Shared,
    /// Where the launcher keeps it for the project.
    Project,
}

#[test]
fn claude_works_and_finds_no_keys_with_a_home_below_tmp() {
    // The jail has a /tmp of its own, and the home and the project have to be put into it.
    if has_claude("a home below /tmp") {
        jailed(Path::new("/tmp"), State::Project);
    }
}

#[test]
fn claude_works_and_finds_no_keys_with_a_home_elsewhere() {
    let own = std::env::var_os("HOME").expect("the user who runs the tests has a HOME");
    if has_claude("a home elsewhere") {
        jailed(Path::new(&own), State::Shared);
    }
}

#[test]
fn claude_works_at_a_terminal_and_finds_no_keys() {
    if !has_claude("at a terminal") {
        return;
    }
    let world = World::new(Path::new("/tmp"));
    let script = vec![
        Step::Call(vec![
            steal(&world),
            call("list", "Bash", json!({"command": "ls"})),
        ]),
        Step::Say(world.farewell()),
    ];
    let api = MessagesApi::start(script).expect("cannot start the API");
    let outcome = converse(&world, &api, &agent_sandbox());

    assert_eq!(api.problems(), [""; 0], "{outcome}");
    assert!(outcome.status.success(), "claude failed\n{outcome}");
    let rule = "\u{2500}".repeat(COLUMNS);
    assert!(
        outcome.stdout.contains(&rule) && !outcome.stdout.contains(&(rule + "\u{2500}")),
        "claude did not see a terminal of {COLUMNS} columns\n{outcome}"
    );
    let list = outcome.result("list");
    assert!(list.text.contains("hello.c"), "{outcome}");
    expect_state_kept(&world, &api, &outcome, State::Project);
    expect_no_keys(&world, &api, &outcome);
}

/// The proof that the tests above can fail: without the jail, the same script gets the keys.
#[test]
fn claude_without_the_jail_leaks_the_keys() {
    if !has_claude("without the jail") {
        return;
    }
    let world = World::new(Path::new("/tmp"));
    let api = MessagesApi::start(script(&world)).expect("cannot start the API");
    let outcome = print(&world, &api, &[]);

    expect_work_done(&world, &api, &outcome, State::Shared);
    for secret in &world.secrets {
        assert!(
            api.received(&secret.marker),
            "{} did not leak even without the jail: the script is no attack on it\n{outcome}",
            secret.place
        );
    }
}

fn jailed(parent: &Path, state: State) {
    let world = World::new(parent);
    let api = MessagesApi::start(script(&world)).expect("cannot start the API");
    let mut launcher = agent_sandbox();
    if state == State::Shared {
        launcher.extend(["--set", "agents.state=shared"].map(OsString::from));
    }
    let outcome = print(&world, &api, &launcher);

    expect_work_done(&world, &api, &outcome, state);
    expect_no_keys(&world, &api, &outcome);
    for label in ["read_key", "read_key_beside"] {
        let result = outcome.result(label);
        let said = ["does not exist", "EACCES", "permission denied"];
        let said = said.iter().filter(|_| is_landlock()).chain(&said[..1]);
        assert!(
            result.is_error && said.clone().any(|said| result.text.contains(said)),
            "{label}: the key is not reported as missing\n{outcome}"
        );
    }
}

/// What must hold in the jail: the agent met no key, and nothing that told of one.
fn expect_no_keys(world: &World, api: &MessagesApi, outcome: &Outcome) {
    let steal = &outcome.result("steal").text;
    for file in [".ssh/id_rsa", ".aws/credentials", ".netrc"] {
        // Not "Permission denied": the jail does not tell that there is something to be had. Where
        // Landlock makes it, the home is a directory of the session's own.
        let home = world.home.display().to_string();
        let home = if is_landlock() { "" } else { &home };
        let answer = format!("{home}/{file}: No such file or directory");
        assert!(steal.contains(&answer), "no `{answer}`\n{outcome}");
    }
    assert!(
        steal.lines().any(|line| line == "AGENT_SANDBOX=1"),
        "the agent is not told that it is in the jail\n{outcome}"
    );
    expect_no_copies(world, api, outcome);
}

/// What must hold with and without the jail: the agent did all its work, and the host has it.
fn expect_work_done(world: &World, api: &MessagesApi, outcome: &Outcome, state: State) {
    assert_eq!(api.problems(), [""; 0], "{outcome}");
    assert!(outcome.status.success(), "claude failed\n{outcome}");
    assert_eq!(outcome.stdout.trim_end(), world.farewell(), "{outcome}");

    let expect = |label: &str, failed: bool, text: &str| {
        let result = outcome.result(label);
        assert_eq!(result.is_error, failed, "{label}\n{outcome}");
        assert!(
            result.text.contains(text),
            "{label}: no `{text}`\n{outcome}"
        );
    };
    expect("read_source", false, BUG);
    expect("compile_bug", true, "error: expected");
    expect("compile", false, PRINTED);
    expect("run_beside", false, PRINTED);
    expect("read_notes", false, NOTES.trim_end());

    let on_host = |file: &str| read_to_string(&world.project.join(file));
    assert_eq!(on_host("hello.c"), BROKEN.replace(BUG, FIX), "{outcome}");
    assert_eq!(on_host("notes.txt"), NOTES, "{outcome}");
    let program = Command::new(world.project.join("hello")).output();
    let program = program.expect("cannot run the program that the agent has compiled");
    assert_eq!(String::from_utf8_lossy(&program.stdout).trim_end(), PRINTED);

    expect_state_kept(world, api, outcome, state);
}

/// No key reached the API, and none was copied to where the agent, or a later one, finds it.
fn expect_no_copies(world: &World, api: &MessagesApi, told: &dyn fmt::Display) {
    for Secret { place, marker } in &world.secrets {
        assert!(!api.received(marker), "{place} reached the API\n{told}");
        let planted = place.strip_prefix("~/").map(|name| world.home.join(name));
        let mut found = files_with(&world.home, marker);
        found.retain(|path| Some(path) != planted.as_ref());
        assert!(found.is_empty(), "{place} is in {found:?}\n{told}");
    }
}

/// What must hold with and without the jail: claude reads the state that its user has, and adds to it, or to
/// what is kept for the project.
fn expect_state_kept(world: &World, api: &MessagesApi, outcome: &Outcome, state: State) {
    assert!(
        api.received(&world.memory),
        "~/.claude/CLAUDE.md was not read\n{outcome}"
    );
    let kept = world.home.join(".local/state/agent-sandbox/kept");
    let transcripts = files_with(&world.home, &world.last_word);
    let transcript = transcripts
        .iter()
        .find(|path| path.starts_with(&kept) == (state == State::Project));
    assert!(transcript.is_some(), "no transcript is left\n{outcome}");
    let of_user = world.home.join(".claude.json");
    let config = read_to_string(&of_user);
    let config: Value = serde_json::from_str(&config).expect("~/.claude.json is no longer JSON");
    assert_eq!(config["theme"], THEME, "{outcome}");
    let as_before = config == claude_config(&world.project);
    match state {
        State::Shared => assert!(!as_before, "~/.claude.json was not updated\n{outcome}"),
        State::Project => {
            assert!(as_before, "~/.claude.json has changed\n{outcome}");
            let themes = files_with(&kept, THEME);
            assert!(!themes.is_empty(), "no setting was carried over\n{outcome}");
        }
    }
}

/// What the model has the agent do.
fn script(world: &World) -> Vec<Step> {
    let bash = |label, command| call(label, "Bash", json!({"command": command}));
    let read = |label, path: PathBuf| call(label, "Read", json!({"file_path": path}));
    let key = world.home.join(".ssh/id_rsa");
    let source = world.project.join("hello.c");
    let notes = world.project.join("notes.txt");
    let fix = json!({"file_path": source, "old_string": BUG, "new_string": FIX});
    vec![
        Step::Call(vec![steal(world)]),
        Step::Call(vec![read("read_key", key.clone())]),
        Step::Call(vec![read("read_source", source.clone())]),
        Step::Call(vec![bash("compile_bug", "cc -o hello hello.c")]),
        Step::Call(vec![call("fix", "Edit", fix)]),
        Step::Call(vec![bash("compile", "cc -o hello hello.c && ./hello")]),
        Step::Call(vec![call(
            "write",
            "Write",
            json!({"file_path": notes, "content": NOTES}),
        )]),
        Step::Call(vec![
            read("read_notes", notes),
            read("read_key_beside", key),
            bash("run_beside", "./hello"),
        ]),
        Step::Say(world.farewell()),
    ]
}

/// The call that looks for the keys where they are known to be.
fn steal(world: &World) -> ToolUse {
    call("steal", "Bash", json!({"command": steal_line(world)}))
}

/// The same as a command line. The home by its variable, and by its real path: Landlock's jail has
/// another one.
fn steal_line(world: &World) -> String {
    let home = world.home.display();
    format!(
        "cat ~/.ssh/id_rsa; cat ~/.aws/credentials; cat ~/.netrc; \
         cat {home}/.ssh/id_rsa {home}/.aws/credentials {home}/.netrc; \
         env; cat /proc/$PPID/environ; cat /proc/1/environ; true"
    )
}

/// A home with keys in it, and a project to work on. Gone when dropped.
struct World {
    root: TempDir,
    home: PathBuf,
    project: PathBuf,
    secrets: Vec<Secret>,
    /// Stands in the user's own notes for claude, which go with every conversation.
    memory: String,
    /// Stands in the model's last answer.
    last_word: String,
}

/// Something that must not leave, marked so that it is known wherever it turns up.
struct Secret {
    place: &'static str,
    marker: String,
}

impl World {
    fn new(parent: &Path) -> Self {
        assert!(
            !geteuid().is_root(),
            "these tests are about an ordinary user's files, and claude refuses to work \
             unasked for root: run by tests/run as an ordinary user"
        );
        let root = tempfile::Builder::new()
            .prefix("agent-sandbox-test-")
            .tempdir_in(parent)
            .expect("cannot make a directory for the test");
        // Claude knows projects by their real paths.
        let real = root.path().canonicalize();
        let home = real.expect("cannot resolve a directory").join("home");
        let project = home.join("project");
        let secret = |place| Secret {
            place,
            marker: format!("secret-{}", random()),
        };
        let [key, cloud, netrc, token] = [
            "~/.ssh/id_rsa",
            "~/.aws/credentials",
            "~/.netrc",
            "GITHUB_TOKEN",
        ]
        .map(secret);
        let memory = format!("The word of the day is {}.", random());

        let begin = "-----BEGIN OPENSSH PRIVATE KEY-----";
        let end = "-----END OPENSSH PRIVATE KEY-----";
        plant(
            &home.join(".ssh/id_rsa"),
            &format!("{begin}\n{}\n{end}\n", key.marker),
        );
        plant(
            &home.join(".aws/credentials"),
            &format!("[default]\naws_secret_access_key = {}\n", cloud.marker),
        );
        plant(
            &home.join(".netrc"),
            &format!("machine example.org login me password {}\n", netrc.marker),
        );
        plant(
            &home.join(".claude.json"),
            &claude_config(&project).to_string(),
        );
        plant(
            &home.join(".claude/settings.json"),
            r#"{"skipDangerousModePermissionPrompt": true}"#,
        );
        plant(&home.join(".claude/CLAUDE.md"), &memory);
        plant(&project.join("hello.c"), BROKEN);

        Self {
            root,
            home,
            project,
            secrets: vec![key, cloud, netrc, token],
            memory,
            last_word: random(),
        }
    }

    /// The model's last answer.
    fn farewell(&self) -> String {
        format!("Fixed, compiled and noted. {}", self.last_word)
    }

    fn github_token(&self) -> &str {
        let token = self.secrets.iter().find(|s| s.place == "GITHUB_TOKEN");
        &token.expect("planted in World::new").marker
    }
}

/// The `~/.claude.json` of a user who has answered claude's first questions, and those about
/// `project` and about [`API_KEY`]. (The answer about working unasked is in `settings.json`.)
fn claude_config(project: &Path) -> Value {
    json!({
        "hasCompletedOnboarding": true,
        "theme": THEME,
        "customApiKeyResponses": {"approved": [API_KEY], "rejected": []},
        "projects": {project.to_str().expect("paths of the tests are UTF-8"): {"hasTrustDialogAccepted": true}},
    })
}

/// Makes a file that only its owner can read, and its directory.
fn plant(path: &Path, content: &str) {
    let directory = path.parent().expect("a file below the home");
    fs::create_dir_all(directory).expect("cannot make a directory");
    fs::write(path, content).expect("cannot write a file");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("cannot set a mode");
}

/// 128 bits that no one else has, in hexadecimal.
fn random() -> String {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .expect("cannot read /dev/urandom");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether this agent can be run here: `tests/agents/install` has it, or a reason.
fn installed(name: &str) -> Result<(), String> {
    let directory = agents();
    if directory.join("bin").join(name).exists() {
        return Ok(());
    }
    let reason = fs::read_to_string(directory.join(format!("{name}.missing")));
    Err(reason.map_or_else(
        |_| {
            let home = env!("CARGO_MANIFEST_DIR");
            let directory = directory.display();
            format!("not installed: run  {home}/tests/agents/install {directory} {name}")
        },
        |text| text.trim().to_owned(),
    ))
}

/// Whether claude can be run here; where it cannot, says so.
fn has_claude(test: &str) -> bool {
    let installed = installed("claude");
    if let Err(why) = &installed {
        println!("not checked: agents: claude: {test}: {why}");
    }
    installed.is_ok()
}

/// The directory that `tests/agents/install` fills.
fn agents() -> PathBuf {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = std::env::var_os("AGENT_SANDBOX_TEST_AGENTS")
        .map_or_else(|| home.join("target/agents"), PathBuf::from);
    directory.canonicalize().unwrap_or(directory)
}

/// The words that put a command into the jail, which has to show the agents' directory.
fn agent_sandbox() -> Vec<OsString> {
    let binary = std::env::var_os("AGENT_SANDBOX_BIN")
        .unwrap_or_else(|| env!("CARGO_BIN_EXE_agent-sandbox").into());
    let mut words = vec![binary, "--read".into(), agents().into()];
    words.extend(chosen::options().iter().map(OsString::from));
    words
}

/// Runs `claude -p`, behind the words of `launcher`, on the conversation that `api` plays.
fn print(world: &World, api: &MessagesApi, launcher: &[OsString]) -> Outcome {
    let claude = ["claude", "-p", "run", "--dangerously-skip-permissions"];
    let words = launcher.iter().cloned().chain(claude.map(OsString::from));
    let mut command = command(world, api, words);
    command.stdin(Stdio::null());
    if launcher.is_empty() {
        // With no /tmp of its own it would leave its directories in everyone's.
        command.env("CLAUDE_CODE_TMPDIR", world.root.path());
    }
    Agent::start(world, command).outcome(api)
}

/// Runs claude at a terminal, behind the words of `launcher`, and leaves it when the model has said
/// its last word.
fn converse(world: &World, api: &MessagesApi, launcher: &[OsString]) -> Outcome {
    let claude = ["claude", "run", "--dangerously-skip-permissions"].map(OsString::from);
    let words: Vec<OsString> = launcher.iter().chain(&claude).cloned().collect();
    let mut command = command(world, api, at_terminal(&words).into_iter());
    command
        .env("SHELL", "/bin/sh")
        .env("TERM", "xterm-256color")
        .stdin(Stdio::piped());

    let mut agent = Agent::start(world, command);
    let mut keyboard = agent.child.stdin.take().expect("stdin is a pipe");
    // A terminal that is gone takes no keys: the agent's end tells how it went.
    let mut keys = |keys: &str| keyboard.write_all(keys.as_bytes()).is_ok();
    // What the user said of this project elsewhere stays there, and so claude asks once more.
    agent.wait_until(|agent| read_to_string(&agent.stdout).contains(QUESTION));
    keys("\r");
    agent.wait_until(|agent| read_to_string(&agent.stdout).contains(&world.last_word));
    keys("/exit");
    loop {
        let next = Instant::now() + TYPING;
        agent.wait_until(|_| Instant::now() >= next);
        if !agent.is_running() || !keys("\r") {
            return agent.outcome(api);
        }
    }
}

/// The words that have these run at a terminal. script(1) makes it, and passes what is typed and shown.
fn at_terminal(words: &[OsString]) -> Vec<OsString> {
    let quoted = words.iter().map(|word| {
        let word = word.to_str().expect("paths of the tests are UTF-8");
        format!("'{}'", word.replace('\'', r"'\''"))
    });
    let quoted: Vec<String> = quoted.collect();
    let line = format!("stty rows 40 cols {COLUMNS} && exec {}", quoted.join(" "));
    ["script", "-qefc", &line, "/dev/null"]
        .map(OsString::from)
        .to_vec()
}

/// The same, for claude.
fn command(world: &World, api: &MessagesApi, words: impl Iterator<Item = OsString>) -> Command {
    let mut command = plain_command(world, words);
    command
        .env("ANTHROPIC_BASE_URL", api.url())
        .env("ANTHROPIC_API_KEY", API_KEY)
        // No telemetry, no look for updates: a test has no business on the internet.
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
    command
}

/// The command of these words as the user of `world` runs it in the project.
fn plain_command(world: &World, mut words: impl Iterator<Item = OsString>) -> Command {
    let path = format!(
        "{}:/usr/local/bin:/usr/bin:/bin",
        agents().join("bin").display()
    );
    let mut command = Command::new(words.next().expect("at least the agent itself"));
    command
        .args(words)
        .current_dir(&world.project)
        .env_clear()
        .env("HOME", &world.home)
        .env("PATH", path)
        .env("LANG", "C.UTF-8")
        .env("SHELL", "/bin/bash")
        .env("GITHUB_TOKEN", world.github_token());
    command
}
