//! codex and gemini: each works in the jail as without it, and finds the keys only without it.

use std::ffi::OsString;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::dialects::{gemini, gemini_results, responses, responses_results};
use crate::messages_api::{Answer, MessagesApi, Step, ToolUse, call};
use crate::running::{Agent, read_to_string};
use crate::{BROKEN, BUG, FIX, PRINTED, World, agent_sandbox, command, plant, steal_line};

/// The agent's own key for its API, by a name that the policy knows nothing of.
const KEY: &str = "TEST_MODEL_KEY";
/// Repairs the program, compiles and runs it.
const WORK: &str = "sed -i 's/6 \\* 7) }/6 * 7); return 0; }/' hello.c && cc -o hello hello.c && \
                    ./hello && git init -q . && git status --short";

/// An agent and how it is set up.
struct Other {
    words: &'static [&'static str],
    /// Where it keeps what it remembers; given for writing.
    state: &'static str,
    answer: Answer,
    /// Its tool that runs a command line.
    shell: fn(&'static str, &str) -> ToolUse,
    /// Its settings: a file in the home, and what it holds.
    settings: fn(&MessagesApi) -> (&'static str, String),
    /// The variables that it needs.
    variables: fn(&MessagesApi) -> Vec<(&'static str, String)>,
    results: fn(&MessagesApi) -> Vec<String>,
}

const CODEX: Other = Other {
    words: &[
        "codex",
        "exec",
        "--skip-git-repo-check",
        // Its own sandbox needs namespaces of its own. The jail is this one.
        "--dangerously-bypass-approvals-and-sandbox",
        "run",
    ],
    state: "~/.codex",
    answer: responses,
    shell: |label, line| call(label, "exec_command", json!({"cmd": line})),
    settings: |api| {
        let text = format!(
            "model = \"test\"\nmodel_provider = \"test\"\n\
             [model_providers.test]\nname = \"test\"\nbase_url = \"{}/v1\"\n\
             wire_api = \"responses\"\nenv_key = \"{KEY}\"\n\
             request_max_retries = 0\nstream_max_retries = 0\n",
            api.url()
        );
        (".codex/config.toml", text)
    },
    variables: |_| vec![(KEY, "dummy".to_owned())],
    results: |api| responses_results(api).into_values().collect(),
};

const GEMINI: Other = Other {
    words: &[
        "gemini",
        "-m",
        "gemini-2.5-flash",
        "--skip-trust",
        "--yolo",
        "-p",
        "run",
    ],
    state: "~/.gemini",
    answer: gemini,
    shell: |label, line| call(label, "run_shell_command", json!({"command": line})),
    settings: |_| {
        let settings = json!({
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "general": {"enableAutoUpdate": false},
            "privacy": {"usageStatisticsEnabled": false},
            "telemetry": {"enabled": false},
        });
        (".gemini/settings.json", settings.to_string())
    },
    variables: |api| {
        vec![
            ("GEMINI_API_KEY", "dummy".to_owned()),
            ("GOOGLE_GEMINI_BASE_URL", api.url()),
        ]
    },
    results: gemini_results,
};

#[test]
fn codex_works_and_finds_no_keys() {
    works_and_finds_no_keys(&CODEX);
}

#[test]
fn gemini_works_and_finds_no_keys() {
    works_and_finds_no_keys(&GEMINI);
}

fn works_and_finds_no_keys(other: &Other) {
    let home = std::env::var_os("HOME").expect("the user who runs the tests has a HOME");
    for jailed in [false, true] {
        let world = World::new(std::path::Path::new(&home));
        let script = vec![
            Step::Call(vec![(other.shell)("steal", &steal_line(&world))]),
            Step::Call(vec![(other.shell)("work", WORK)]),
            Step::Say(world.farewell()),
        ];
        let api = MessagesApi::speaking(other.answer, script).expect("cannot start the API");
        let (name, text) = (other.settings)(&api);
        plant(&world.home.join(name), &text);
        let variables = (other.variables)(&api);

        let mut words: Vec<OsString> = Vec::new();
        if jailed {
            words.extend(agent_sandbox());
            let names: Vec<&str> = variables.iter().map(|(name, _)| *name).collect();
            for setting in [
                format!("home.write={}", Value::from(vec![other.state])),
                format!("env.pass={}", Value::from(names)),
            ] {
                words.extend(["--set".into(), setting.into()]);
            }
        }
        words.extend(other.words.iter().map(OsString::from));
        let mut command = command(&world, &api, words.into_iter());
        command.stdin(Stdio::null()).envs(variables);
        let outcome = Agent::start(&world, command).outcome(&api);
        let results = (other.results)(&api);
        let told = format!("jailed: {jailed}\n{outcome}\n{results:#?}");

        assert_eq!(api.problems(), [""; 0], "{told}");
        assert!(outcome.status.success(), "{told}");
        assert!(outcome.stdout.contains(&world.farewell()), "{told}");
        assert_eq!(results.len(), 2, "{told}");
        assert!(results.iter().any(|text| text.contains(PRINTED)), "{told}");
        assert_eq!(
            read_to_string(&world.project.join("hello.c")),
            BROKEN.replace(BUG, FIX),
            "{told}"
        );
        for secret in &world.secrets {
            let leaked = api.received(&secret.marker);
            assert_eq!(leaked, !jailed, "{}: {told}", secret.place);
        }
        let settings = read_to_string(&world.home.join(name));
        assert!(!jailed || settings == text, "its settings changed\n{told}");
    }
}
