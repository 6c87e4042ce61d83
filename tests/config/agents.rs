//! The built-in profiles: what they say fits together and fits the built-in policy; mistakes in a
//! profile are shown; and the page that lists them, `docs/reference/agents.md`, which `UPDATE=1` writes anew.

use std::fmt::Write as _;

use agent_sandbox::config::agent::{Agent, Given, HomePath, Marker};
use agent_sandbox::config::load::{ProfileEntry, built_in_profiles, parse};
use agent_sandbox::config::source::{Layer, Sourced};

use crate::support::said;

const DEFAULT: &str = include_str!("../../profiles/default.toml");
const INSTALL: &str = include_str!("../agents/install");
const PAGE: &str = "docs/reference/agents.md";

fn all() -> Vec<ProfileEntry> {
    built_in_profiles().unwrap()
}

/// A list of the built-in policy or of a profile; empty if it is not there.
fn list(text: &str, section: &str, key: &str) -> Vec<String> {
    let table: toml::Table = toml::from_str(text).unwrap();
    let list = table.get(section).and_then(|section| section.get(key));
    let entries = list.and_then(toml::Value::as_array).into_iter().flatten();
    entries
        .map(|entry| entry.as_str().unwrap().to_owned())
        .collect()
}

/// Whether a path is the other one, or lies below it. The entries may end in a pattern.
fn is_within(path: &str, entry: &str) -> bool {
    match entry.strip_suffix('*') {
        Some(start) => path.starts_with(start),
        None => path == entry || path.starts_with(&format!("{entry}/")),
    }
}

fn written(paths: &[Sourced<HomePath>]) -> impl Iterator<Item = &str> {
    paths.iter().map(|path| path.value.written())
}

#[test]
fn the_twelve_agents_have_profiles() {
    let names: Vec<String> = all().into_iter().map(|entry| entry.name).collect();
    for name in [
        "aider",
        "claude",
        "cline",
        "codex",
        "continue",
        "copilot",
        "gemini",
        "generic",
        "goose",
        "opencode",
        "openhands",
        "pi",
        "qwen",
    ] {
        assert!(names.iter().any(|known| known == name), "{name}");
    }
}

#[test]
fn logins_are_hidden_from_everybody_else_and_settings_protected() {
    let (hide, protect) = (
        list(DEFAULT, "files", "hide"),
        list(DEFAULT, "home", "protect"),
    );
    for ProfileEntry { name, agent, .. } in all() {
        let state = &agent.state;
        for path in written(&state.login) {
            assert!(
                hide.iter().any(|entry| is_within(path, entry)),
                "{name}: {path} is not hidden"
            );
            // It is renewed by the agent.
            assert!(
                !protect.iter().any(|entry| is_within(path, entry)),
                "{name}: {path} is protected"
            );
        }
        let at = agent
            .instructions
            .iter()
            .filter_map(|given| given.at.as_ref());
        for path in written(&state.settings).chain(at.map(HomePath::written)) {
            assert!(
                protect.iter().any(|entry| is_within(path, entry)),
                "{name}: {path} is not protected"
            );
        }
        for seed in state.seeds.iter().filter(|seed| seed.from == seed.to) {
            let path = seed.from.written();
            assert!(
                hide.iter().any(|entry| is_within(path, entry)),
                "{name}: {path} is not hidden"
            );
        }
        for marker in &agent.authentication {
            let Marker::File(path) = marker else { continue };
            let path = path.written();
            assert!(
                hide.iter().any(|entry| is_within(path, entry)),
                "{name}: {path} is not hidden"
            );
        }
    }
}

/// Keys of models, and the one host each of them is for.
const KEYS: [(&str, &str); 10] = [
    ("ANTHROPIC_API_KEY", "api.anthropic.com"),
    ("DEEPSEEK_API_KEY", "api.deepseek.com"),
    ("GEMINI_API_KEY", "generativelanguage.googleapis.com"),
    (
        "GOOGLE_GENERATIVE_AI_API_KEY",
        "generativelanguage.googleapis.com",
    ),
    ("GROQ_API_KEY", "api.groq.com"),
    ("MISTRAL_API_KEY", "api.mistral.ai"),
    ("OPENAI_API_KEY", "api.openai.com"),
    ("OPENCODE_API_KEY", "opencode.ai"),
    ("OPENROUTER_API_KEY", "openrouter.ai"),
    ("XAI_API_KEY", "api.x.ai"),
];

/// The credentials of a profile: variable, source and hosts of each.
fn credentials(text: &str) -> Vec<(String, String, Vec<String>)> {
    let table: toml::Table = toml::from_str(text).unwrap();
    let all = table.get("credential").and_then(toml::Value::as_array);
    let word = |value: &toml::Value| value.as_str().unwrap().to_owned();
    let each = all.into_iter().flatten().map(|one| {
        let hosts = one["hosts"].as_array().unwrap();
        let hosts = hosts.iter().map(word).collect();
        (word(&one["env"]), word(&one["from"]), hosts)
    });
    each.collect()
}

#[test]
fn keys_stay_outside_where_an_agent_was_seen_to_work_so() {
    for name in ["aider", "claude", "codex", "gemini", "opencode", "pi"] {
        let entry = all().into_iter().find(|entry| entry.name == name).unwrap();
        let stated = credentials(&entry.text);
        for (variable, from, hosts) in &stated {
            assert_eq!(from, &format!("env:{variable}"), "{name}");
            let known = KEYS.iter().find(|(known, _)| known == variable);
            assert!(
                known.is_none_or(|(_, host)| hosts == &[*host]),
                "{name}: {hosts:?}"
            );
        }
        for marker in &entry.agent.authentication {
            let Marker::Variable(variable) = marker else {
                continue;
            };
            if KEYS.iter().any(|(known, _)| known == variable) {
                assert!(
                    stated.iter().any(|(stated, ..)| stated == variable),
                    "{name}: {variable}"
                );
            }
        }
    }
}

#[test]
fn what_an_agent_needs_is_not_hidden_from_it() {
    let hide = list(DEFAULT, "files", "hide");
    for ProfileEntry {
        name, agent, text, ..
    } in all()
    {
        let state = &agent.state;
        let mut shown = list(&text, "files", "unhide");
        for entry in &shown {
            assert!(hide.contains(entry), "{name}: {entry} is not hidden anyway");
        }
        shown.extend(written(&state.login).map(str::to_owned));
        let paths = [&state.directories, &state.login, &state.settings];
        for path in paths.into_iter().flat_map(|paths| written(paths)) {
            let hidden = hide
                .iter()
                .find(|entry| is_within(path, entry) && !shown.contains(entry));
            assert_eq!(hidden, None, "{name}: {path} is hidden");
        }
    }
}

/// In these a value can be a command: the agent runs it at its next start, outside as well.
#[test]
fn login_files_that_can_run_something_are_settings() {
    let runs = [
        ("pi", "~/.pi/agent/auth.json"),
        ("pi", "~/.pi/agent/models.json"),
        ("goose", "~/.config/goose/config.yaml"),
        ("continue", "~/.continue/config.yaml"),
        ("openhands", "~/.openhands/agent_settings.json"),
        ("aider", "~/.aider.conf.yml"),
        ("aider", "~/.aider/oauth-keys.env"),
        ("copilot", "~/.copilot/config.json"),
        ("goose", "~/.config/goose/secrets.yaml"),
    ];
    let all = all();
    for (name, path) in runs {
        let entry = all.iter().find(|entry| entry.name == name).unwrap();
        let settings = &entry.agent.state.settings;
        assert!(written(settings).any(|one| one == path), "{path}");
    }
    // Nobody's is given as a file: what reads it outside obeys more of it than a token.
    for entry in &all {
        assert_eq!(
            written(&entry.agent.state.login).next(),
            None,
            "{}",
            entry.name
        );
    }
}

/// Of a login nothing comes back that names a service, a file, a command or an account.
#[test]
fn of_logins_tokens_alone_come_back() {
    let tokens = [
        "OPENAI_API_KEY",
        "access",
        "accessToken",
        "access_token",
        "account_id",
        "auth_mode",
        "expires",
        "expiresAt",
        "expiry_date",
        "id_token",
        "last_refresh",
        "rateLimitTier",
        "refresh",
        "refreshToken",
        "refresh_token",
        "scope",
        "scopes",
        "subscriptionType",
        "token_type",
    ];
    let mut count = 0;
    for entry in all() {
        for seed in &entry.agent.state.seeds {
            for value in &seed.back {
                let last = value.rsplit('.').next().unwrap();
                assert!(tokens.contains(&last), "{}: {value}", entry.name);
                count += 1;
            }
        }
    }
    assert!(count > 20, "{count}");
}

#[test]
fn keys_of_models_pass_by_exact_name() {
    for ProfileEntry {
        name, agent, text, ..
    } in all()
    {
        let pass = list(&text, "env", "pass");
        assert!(pass.iter().all(|entry| !entry.contains('*')), "{name}");
        for marker in &agent.authentication {
            if let Marker::Variable(variable) = marker {
                assert!(pass.contains(variable), "{name}: {variable} does not pass");
            }
        }
        // These open more than a model.
        for wide in [
            "AWS_",
            "GITHUB_TOKEN",
            "GH_TOKEN",
            "HF_TOKEN",
            "GOOGLE_APPLICATION",
            "SSH_",
        ] {
            let passes = pass.iter().any(|entry| entry.starts_with(wide));
            assert!(!passes, "{name}: {wide}");
        }
    }
}

#[test]
fn what_a_profile_was_tried_with_is_what_the_tests_install() {
    let mut compared = 0;
    for entry in all() {
        let (Some(seen), Some(command)) = (&entry.agent.seen, entry.agent.commands.first()) else {
            continue;
        };
        let rows = INSTALL
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let row = rows.into_iter().find(|row| {
            row.first() == Some(&command.value.as_str())
                && matches!(row.get(1), Some(&"npm" | &"pypi"))
        });
        // tmux comes with the system.
        let Some(row) = row else {
            assert_eq!(entry.name, "tmux");
            continue;
        };
        assert_eq!(row[3], seen, "{}", entry.name);
        compared += 1;
    }
    assert!(compared >= 9, "{compared}");
}

#[test]
fn agents_say_what_a_user_needs() {
    for ProfileEntry { name, agent, .. } in all() {
        if matches!(&*name, "generic" | "tmux") {
            continue;
        }
        assert!(
            agent.description.chars().count() <= 30,
            "{name}: it is cut in the list"
        );
        assert!(agent.login.is_some(), "{name}");
        assert!(!agent.authentication.is_empty(), "{name}");
        assert!(!agent.hosts.is_empty(), "{name}");
        assert!(agent.nested.is_some(), "{name}");
        assert!(!agent.cannot.is_empty(), "{name}");
        assert!(agent.instructions.is_some(), "{name}");
        assert!(!agent.state.is_empty(), "{name}");
        assert!(
            agent.seen.is_some() || agent.description.contains("(from its doc"),
            "{name}"
        );
        for quirk in &agent.quirks {
            assert!(agent.seen.is_some(), "{name}: {}", quirk.text);
        }
    }
}

#[track_caller]
fn mistake(text: &str, expected: &str) {
    let error = parse(Layer::Profile, "P", text).expect_err("is accepted");
    assert_eq!(said(&error), expected.trim_matches('\n'));
}

#[test]
fn mistakes_in_a_profile_are_shown() {
    mistake(
        "[profile]\nauthentication = [\"~/.tool/key\", \"TOOL_KEY\"]\n",
        r#"
`TOOL_KEY` marks no login
 --> P:2:34
  |
2 | authentication = ["~/.tool/key", "TOOL_KEY"]
  |                                  ^^^^^^^^^^
hint: a file below home, `~/.tool/auth.json`, or a variable, `$TOOL_API_KEY`"#,
    );
    mistake(
        "[profile.state]\ndirectories = [\"/var/tool\"]\n",
        r#"
path `/var/tool` does not lie below the home directory
 --> P:2:16
  |
2 | directories = ["/var/tool"]
  |                ^^^^^^^^^^^
hint: for example `~/.tool/settings.json`"#,
    );
    mistake(
        "[profile.state]\ndirectories = [\"~/.tool\"]\n\n[[profile.state.seed]]\n\
         from = \"~/.tool.json\"\nto = \"~/.other/tool.json\"\nkeys = [\"account\"]\n",
        r#"
`~/.other/tool.json` lies below no directory of the state
 --> P:6:6
  |
6 | to = "~/.other/tool.json"
  |      ^^^^^^^^^^^^^^^^^^^^
hint: a copy of the project's is kept in one of `directories`"#,
    );
    mistake(
        "[profile.instructions]\nname = \"AGENTS.md\"\nat = \"~/.tool/AGENTS.md\"\narguments = [\"{file}\"]\n",
        r#"
`at` and `arguments` both lead the agent to its instructions
 --> P:1:1
  |
1 | [profile.instructions]
  | ^^^^^^^^^^^^^^^^^^^^^^
hint: exactly one of `at`, `variables` and `arguments`"#,
    );
}

/// What makes no sense, and words of the message.
const MISTAKES: &[(&str, &str)] = &[
    ("[profile]\ndescription = \"\"", "says nothing"),
    ("[profile]\ncannot = [\"a\\nb\"]", "expected one line"),
    (
        "[profile]\ncommands = [\"/bin/x\"]",
        "the name of a command, without a directory",
    ),
    ("[profile]\nauthentication = [\"$A B\"]", "marks no login"),
    (
        "[profile]\nauthentication = [\"~/.tool/*\"]",
        "is a pattern",
    ),
    (
        "[profile]\nhosts = [\"https://x\"]",
        "`https://x` is not a host",
    ),
    (
        "[profile.state]\ndirectories = [\"~\"]",
        "does not lie below",
    ),
    ("[profile.state]\ndirectories = [\"~/a/../b\"]", "`..`"),
    ("[profile.state]\ndirectories = [\"~/.*\"]", "is a pattern"),
    (
        "[profile.state]\ndirectories = [\"~/.t\", \"~/.t/a\"]",
        "lie in one another",
    ),
    (
        "[profile.state]\nfiles = [\"~/.t/a\"]",
        "no entry of home itself",
    ),
    (
        "[profile.state]\ndirectories = [\"~/.t/a\"]\nsettings = [\"~/.t\"]",
        "holds the whole directory",
    ),
    (
        "[profile.state]\ndirectories = [\"~/.t\"]\nlogin = [\"~/.t\"]",
        "holds the whole directory",
    ),
    (
        "[profile.state]\ninitial = { \"~/.t\" = \"\" }",
        "is not made",
    ),
    (
        "[profile.state.variables]\n\"A=B\" = \"x\"",
        "cannot name a variable",
    ),
    ("[profile.state.variables]\nA = \"~/../x\"", "`..`"),
    (
        "[profile.instructions]\nname = \"A\"",
        "nothing leads the agent",
    ),
    (
        "[profile.instructions]\nname = \"../A\"\nat = \"~/A\"",
        "cannot be the name of a given file",
    ),
    (
        "[profile.instructions]\nname = \"A\"\narguments = [\"--read\"]",
        "stands in no value",
    ),
    (
        "[[profile.given]]\nname = \"a\"\ntext = \"\"\n[[profile.given]]\nname = \"a\"\ntext = \"\"",
        "two files are called",
    ),
    (
        "[profile.state]\ndirectories = [\"~/.t\"]\nsettings = [\"~/.t/a\"]\n\
         [[profile.state.seed]]\nfrom = \"~/b\"\nto = \"~/.t/a\"\nkeys = [\"k\"]",
        "is the user's own file",
    ),
    (
        "[profile.state]\ndirectories = [\"~/.t\"]\n\
         [[profile.state.seed]]\nfrom = \"~/b\"\nto = \"~/.t/a\"\nkeys = []",
        "no key of it is carried over",
    ),
];

#[test]
fn what_makes_no_sense_in_a_profile_is_refused() {
    for (text, words) in MISTAKES {
        let error = parse(Layer::Profile, "P", text).expect_err(text);
        assert!(said(&error).contains(words), "{text}\n{}", said(&error));
        assert!(error.line().is_some(), "{text}");
    }
}

const HEAD: &str = "# Agents

<!-- Written by the program: UPDATE=1 cargo test --test config -- agents -->

The profiles that are built in, from `profiles/agents`. `agent-sandbox profile list` says which of these agents are
installed and logged in, `agent-sandbox profile show NAME` shows the file. How to use, change and add profiles is explained in
[A second agent](../guide/second-agent.md).

*State* is what each project has of its own with `agents.state = \"project\"`. *Login* files are yours, and written where the
agent renews them. *Settings* are yours, and read-only. *Keys* are the variables that pass.

";

fn text_of(page: &mut String, label: &str, text: &str) {
    if !text.is_empty() {
        writeln!(page, "| {label} | {} |", text.replace('|', "\\|")).unwrap();
    }
}

fn code<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words
        .map(|word| format!("`{word}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn told(given: &Given) -> String {
    match &given.at {
        Some(at) => format!("`{at}`"),
        None if given.arguments.is_empty() => {
            code(given.variables.iter().map(|(name, _)| name.value.as_str()))
        }
        None => format!("`{}`", given.arguments.join(" ")),
    }
}

/// The page, as the profiles have it.
fn page() -> String {
    let mut page = HEAD.to_owned();
    page.push_str(
        "| profile | commands | tried with | instructions about the jail |\n|---|---|---|---|\n",
    );
    let all = all();
    for ProfileEntry { name, agent, .. } in &all {
        let commands = code(agent.commands.iter().map(|command| command.value.as_str()));
        let seen = agent.seen.as_deref().unwrap_or("");
        let told = agent.instructions.as_ref().map(told).unwrap_or_default();
        writeln!(page, "| [{name}](#{name}) | {commands} | {seen} | {told} |").unwrap();
    }
    for ProfileEntry {
        name, agent, text, ..
    } in &all
    {
        let Agent {
            description, state, ..
        } = agent;
        write!(page, "\n## {name}\n\n{description}.\n\n").unwrap();
        page.push_str("| | |\n|---|---|\n");
        text_of(&mut page, "to log in", agent.login.as_deref().unwrap_or(""));
        let hosts: Vec<String> = agent.hosts.iter().map(ToString::to_string).collect();
        text_of(&mut page, "hosts", &code(hosts.iter().map(String::as_str)));
        text_of(&mut page, "state", &code(written(&state.directories)));
        text_of(
            &mut page,
            "besides, if shared",
            &code(written(&state.files)),
        );
        text_of(&mut page, "login", &code(written(&state.login)));
        text_of(&mut page, "settings", &code(written(&state.settings)));
        let pass = list(text, "env", "pass");
        text_of(&mut page, "keys", &code(pass.iter().map(String::as_str)));
        let outside = credentials(text);
        let outside = code(outside.iter().map(|(variable, ..)| variable.as_str()));
        text_of(&mut page, "stay outside, if filtered", &outside);
        text_of(
            &mut page,
            "its own sandbox",
            agent.nested.as_deref().unwrap_or(""),
        );
        for cannot in &agent.cannot {
            text_of(&mut page, "cannot", cannot);
        }
        for quirk in &agent.quirks {
            text_of(&mut page, &quirk.version, &quirk.text);
        }
    }
    page
}

#[test]
fn the_page_of_agents_says_what_the_profiles_say() {
    let root = std::env::var_os("AGENT_SANDBOX_ROOT").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
    let path = std::path::Path::new(&root).join(PAGE);
    let expected = page();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "{PAGE} is old: UPDATE=1 cargo test --test config -- agents"
    );
}
