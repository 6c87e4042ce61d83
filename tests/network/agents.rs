//! Real agents with the key of their model outside: each talks by TLS to a stand-in of its model's host, which gets the key. Inside, in
//! all that the agent and its commands can see, and in all that is kept, is a placeholder.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_sandbox_support::not_checked;
use serde_json::json;

use crate::dialects::{asked, chat, gemini, not_found, responses, said};
use crate::messages_api::{Answer, MessagesApi, Request, Shared, Step, ToolUse, call, messages};
use crate::outside::{Outside, launcher, outside, start};

/// What stands in front of each key. A pattern for it that is not it itself: it stands in the command that looks for it.
const REAL: &str = "real-key-";
const PATTERN: &str = "real-[k]ey-[0-9a-f]*";
/// What each placeholder ends in.
const PLACEHOLDER: &str = "-agent-sandbox-placeholder";
/// Between two looks at the processes of a session.
const LOOK: Duration = Duration::from_millis(100);
const LAST: &str = "That was all.";

/// An agent, as it comes, with the built-in profile.
struct Row {
    name: &'static str,
    /// Of its model.
    host: &'static str,
    /// The variable of its key, and the credential of its profile.
    variable: &'static str,
    credential: &'static str,
    answer: Answer,
    /// Its tool that runs a command line; without one it only talks.
    shell: Option<fn(&str) -> ToolUse>,
    settings: fn(&Path) -> Vec<(&'static str, String)>,
    variables: &'static [(&'static str, &'static str)],
    words: &'static [&'static str],
}

/// All places where the key could stand: variables and command lines of every process, and files.
fn look() -> String {
    format!(
        "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -a '{PATTERN}'; \
         grep -raoh '{PATTERN}' . ~ /tmp /run /dev/shm 2>/dev/null; echo looked everywhere"
    )
}

/// Processes that have this text in their variables or their command line.
fn holders(text: &str) -> BTreeSet<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let has = |at: &Path| {
        let read = |name: &str| fs::read(at.join(name)).unwrap_or_default();
        let all = [read("environ"), read("cmdline")].concat();
        all.windows(text.len()).any(|part| part == text.as_bytes())
    };
    let holding = processes.map(|one| one.path()).filter(|at| has(at));
    let own = fs::read_link("/proc/self/ns/pid").ok();
    let shown = holding.map(|at| {
        let outside = fs::read_link(at.join("ns/pid")).ok() == own;
        let name = fs::read_to_string(at.join("comm")).unwrap_or_default();
        format!(
            "{} {}",
            if outside { "outside" } else { "inside" },
            name.trim()
        )
    });
    shown.collect()
}

fn agents() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/agents");
    std::env::var_os("AGENT_SANDBOX_TEST_AGENTS").map_or(own, PathBuf::from)
}

fn drive(test: &str, row: &Row) {
    let bin = agents().join("bin");
    if !bin.join(row.name).exists() {
        return not_checked(test, "it is not installed (tests/agents/install)");
    }
    let zone = json!({ (row.host): { "A": [["9.9.9.1"]] } });
    outside(test, &zone, |net| played(net, row));
}

fn played(net: &Outside, row: &Row) {
    let random = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap();
    let key = format!("{REAL}{}", random.trim().replace('-', ""));
    let mut script: Vec<Step> = row
        .shell
        .iter()
        .map(|shell| Step::Call(vec![shell(&look())]))
        .collect();
    script.push(Step::Say(LAST.to_owned()));
    let api = MessagesApi::speaking(row.answer, script).unwrap();
    fs::create_dir(net.served("behind")).unwrap();
    let port = api.url().rsplit_once(':').unwrap().1.to_owned();
    fs::write(net.served("behind").join(row.host), port).unwrap();
    let home = net.project("").parent().unwrap().to_owned();
    for (name, text) in (row.settings)(&net.project("").canonicalize().unwrap()) {
        fs::create_dir_all(home.join(name).parent().unwrap()).unwrap();
        fs::write(home.join(name), text).unwrap();
    }
    let (launcher, agents) = (launcher(), agents());
    let mut words = vec![
        launcher.to_str().unwrap(),
        "-q",
        "--read",
        agents.to_str().unwrap(),
    ];
    words.extend(["--set", "network.mode=filtered", row.name]);
    words.extend(row.words);
    let mut command = net.command(&words);
    command
        .env(
            "PATH",
            format!("{}/bin:/usr/local/bin:/usr/bin:/bin", agents.display()),
        )
        .env("SHELL", "/bin/bash")
        .env("SSL_CERT_FILE", net.served("ca.pem"))
        .env(row.variable, &key)
        .envs(row.variables.iter().copied());
    let (over, mut held) = (AtomicBool::new(false), BTreeSet::new());
    let ran = std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut all = BTreeSet::new();
            while !over.load(Ordering::SeqCst) {
                all.extend(holders(&key));
                std::thread::sleep(LOOK);
            }
            all
        });
        let ran = start(&mut command).wait();
        over.store(true, Ordering::SeqCst);
        held.extend(looking.join().unwrap());
        ran
    });
    let said = format!("{}{}", ran.stdout, ran.stderr);
    let requests = api.requests().join("\n");
    assert_eq!(ran.code, 0, "{requests}\n{said}");
    assert_eq!(api.problems(), [""; 0], "{requests}\n{said}");
    assert!(said.contains(LAST) && !said.contains(&key), "{said}");
    // The server has the key, and of the agent, which shows it all that it saw, nothing but the placeholder.
    assert!(api.received(&key), "{requests}\n{said}");
    let bodies: Vec<String> = api.bodies().iter().map(ToString::to_string).collect();
    let bodies = bodies.join("\n");
    assert!(!bodies.contains(REAL), "{bodies}");
    if row.shell.is_some() {
        for seen in [
            &format!("{}=", row.variable),
            PLACEHOLDER,
            "looked everywhere",
        ] {
            assert!(bodies.contains(seen), "{seen}: {bodies}");
        }
    }
    assert_eq!(
        held,
        ["outside agent-sandbox".to_owned()].into(),
        "who held the key"
    );
    // What is kept of the session.
    let found = Command::new("grep")
        .args(["-rlaF", &key])
        .arg(&home)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
    let audit = home.join(".local/state/agent-sandbox/audit");
    let sent = format!("the value of the credential `{}` was sent", row.credential);
    let found = Command::new("grep")
        .args(["-rlF", &sent])
        .arg(audit)
        .output()
        .unwrap();
    assert!(found.status.success(), "{sent}");
}

#[test]
fn claude_works_without_its_key() {
    let row = Row {
        name: "claude",
        host: "api.anthropic.com",
        variable: "ANTHROPIC_API_KEY",
        credential: "anthropic",
        answer: messages,
        shell: Some(|line| call("look", "Bash", json!({ "command": line }))),
        settings: |project| {
            let config = json!({
                "hasCompletedOnboarding": true,
                "projects": { project.to_str().unwrap(): { "hasTrustDialogAccepted": true } },
            });
            vec![
                (".claude.json", config.to_string()),
                (".claude/settings.json", "{}".to_owned()),
            ]
        },
        // No telemetry, no look for updates: the names of their hosts have no addresses here.
        variables: &[("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")],
        words: &["-p", "run", "--dangerously-skip-permissions"],
    };
    drive("agents::claude_works_without_its_key", &row);
}

#[test]
fn codex_works_without_its_key() {
    let row = Row {
        name: "codex",
        host: "api.openai.com",
        variable: "OPENAI_API_KEY",
        credential: "openai",
        answer: responses,
        shell: Some(|line| {
            call(
                "look",
                "exec_command",
                json!({ "cmd": line, "yield_time_ms": 30_000 }),
            )
        }),
        // Its own provider asks for a login, not for the variable.
        settings: |_| {
            let text = "model = \"test\"\nmodel_provider = \"test\"\n[model_providers.test]\nname = \"test\"\n\
                base_url = \"https://api.openai.com/v1\"\nwire_api = \"responses\"\nenv_key = \"OPENAI_API_KEY\"\n\
                request_max_retries = 0\nstream_max_retries = 0\n";
            vec![(".codex/config.toml", text.to_owned())]
        },
        variables: &[],
        words: &[
            "exec",
            "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox",
            "run",
        ],
    };
    drive("agents::codex_works_without_its_key", &row);
}

#[test]
fn gemini_works_without_its_key() {
    let row = Row {
        name: "gemini",
        host: "generativelanguage.googleapis.com",
        variable: "GEMINI_API_KEY",
        credential: "gemini",
        answer: gemini,
        shell: Some(|line| call("look", "run_shell_command", json!({ "command": line }))),
        settings: |_| {
            let settings = json!({
                "security": { "auth": { "selectedType": "gemini-api-key" } },
                "general": { "enableAutoUpdate": false },
                "privacy": { "usageStatisticsEnabled": false },
                "telemetry": { "enabled": false },
            });
            vec![(".gemini/settings.json", settings.to_string())]
        },
        variables: &[],
        words: &[
            "-m",
            "gemini-2.5-flash",
            "--skip-trust",
            "--yolo",
            "-p",
            "run",
        ],
    };
    drive("agents::gemini_works_without_its_key", &row);
}

/// A model of the Chat Completions API that is offered no tools.
fn talk(stream: &TcpStream, request: &Request, _: &Shared) -> io::Result<()> {
    let Some(body) = asked(request, |path| path.ends_with("/chat/completions")) else {
        return not_found(stream);
    };
    let message = json!({ "role": "assistant", "content": LAST });
    said(stream, &body, message, "stop")
}

/// It offers its model no tools: only its talk is looked at, and what it keeps.
#[test]
fn aider_works_without_its_key() {
    let row = Row {
        name: "aider",
        host: "api.openai.com",
        variable: "OPENAI_API_KEY",
        credential: "openai",
        answer: talk,
        shell: None,
        settings: |_| Vec::new(),
        variables: &[],
        words: &[
            "--model=openai/test",
            "--yes-always",
            "--no-git",
            "--no-pretty",
            "--no-check-update",
            "--no-show-model-warnings",
            "--analytics-disable",
            "--message=run",
        ],
    };
    drive("agents::aider_works_without_its_key", &row);
}

#[test]
fn opencode_works_without_its_key() {
    let row = Row {
        name: "opencode",
        host: "api.openai.com",
        variable: "OPENAI_API_KEY",
        credential: "openai",
        answer: chat,
        shell: Some(|line| {
            let input = json!({ "command": line, "description": "as the script says" });
            call("look", "bash", input)
        }),
        settings: |_| {
            let settings = json!({
                "autoupdate": false,
                "share": "disabled",
                "model": "test/test",
                "permission": "allow",
                "provider": { "test": {
                    "npm": "@ai-sdk/openai-compatible",
                    "options": { "baseURL": "https://api.openai.com/v1", "apiKey": "{env:OPENAI_API_KEY}" },
                    "models": { "test": {} },
                } },
            });
            vec![(".config/opencode/opencode.json", settings.to_string())]
        },
        variables: &[
            ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
            ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
            ("npm_config_offline", "true"),
        ],
        words: &["run", "begin"],
    };
    drive("agents::opencode_works_without_its_key", &row);
}

#[test]
fn pi_works_without_its_key() {
    let row = Row {
        name: "pi",
        host: "api.openai.com",
        variable: "OPENAI_API_KEY",
        credential: "openai",
        answer: chat,
        shell: Some(|line| call("look", "bash", json!({ "command": line }))),
        settings: |_| {
            let models = json!({ "providers": { "test": {
                "baseUrl": "https://api.openai.com/v1",
                "api": "openai-completions",
                "apiKey": "OPENAI_API_KEY",
                "models": [{ "id": "test" }],
            } } });
            vec![(".pi/agent/models.json", models.to_string())]
        },
        variables: &[("PI_OFFLINE", "1")],
        words: &["--provider", "test", "--model", "test", "-p", "run"],
    };
    drive("agents::pi_works_without_its_key", &row);
}
