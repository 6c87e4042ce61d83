//! `agent-sandbox profile list` and `profile show`; what is said of an agent that knows nobody.

use std::fs;

use agent_sandbox_support::terminal::Terminal;

use crate::world::{CANARY, World};

/// A world with a claude that says it ran, and a codex whose login is a planted secret.
fn world() -> World {
    let world = World::new();
    world.program("home/.local/bin/claude", "#!/bin/sh\necho it ran\n");
    world.write("home/.codex/auth.json", CANARY);
    world
}

/// A line of the list, its columns.
fn columns(list: &str, name: &str) -> Vec<String> {
    let lines = list.lines().map(|line| line.split("  ").map(str::trim));
    let mut rows = lines.map(|row| {
        let cells = row.filter(|cell| !cell.is_empty());
        cells.map(str::to_owned).collect::<Vec<_>>()
    });
    rows.find(|row| row.first().is_some_and(|first| first == name))
        .unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn the_list_says_what_is_installed_and_who_is_logged_in() {
    let world = world();
    let list = |world: &World| {
        let call = world.call(["profile", "list"]);
        let search = format!("{}:/usr/bin:/bin", world.home.join(".local/bin").display());
        let call = call
            .variable("PATH", search)
            .variable("GEMINI_API_KEY", CANARY);
        let output = call.run();
        assert_eq!((output.code, output.err().as_str()), (0, ""));
        output.out()
    };
    let text = list(&world);
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert_eq!(
        text.lines()
            .next()
            .unwrap()
            .split_whitespace()
            .collect::<Vec<_>>(),
        ["NAME", "LOGIN", "FROM", "DESCRIPTION", "INSTALLED"]
    );
    let claude = [
        "claude",
        "no",
        "built in",
        "Claude Code",
        "~/.local/bin/claude",
    ];
    assert_eq!(columns(&text, "claude"), claude);
    assert_eq!(columns(&text, "codex")[..2], ["codex", "yes"]);
    assert_eq!(columns(&text, "gemini")[..2], ["gemini", "yes"]);
    assert_eq!(columns(&text, "copilot")[..2], ["copilot", "no"]);
    assert!(!text.contains(CANARY), "{text}");
    // What cannot be executed is no program, and one of the user's own takes its place.
    fs::remove_file(world.home.join(".local/bin/claude")).unwrap();
    world.write("home/.local/bin/claude", "");
    world.write(
        "home/.config/agent-sandbox/profiles/claude.toml",
        "[profile]\ndescription = \"A description that is much too long for the list\"\ncommands = [\"claude\"]\n",
    );
    let text = list(&world);
    let own = [
        "claude",
        "-",
        "yours",
        "A description that is much to…",
        "-",
    ];
    assert_eq!(columns(&text, "claude"), own);
}

#[test]
fn data_names_markers_and_never_what_they_hold() {
    let world = world();
    let call = world.call(["--json", "profile", "list"]);
    let output = call.variable("GEMINI_API_KEY", CANARY).run();
    assert!(!output.out().contains(CANARY));
    let all = output.json();
    let entry = |name: &str| {
        let mut all = all.as_array().unwrap().iter();
        all.find(|entry| entry["name"] == name).unwrap().clone()
    };
    assert_eq!(entry("codex")["logged_in"], "~/.codex/auth.json");
    assert_eq!(entry("gemini")["logged_in"], "$GEMINI_API_KEY");
    assert!(entry("claude")["logged_in"].is_null());
    assert_eq!(entry("claude")["from"], "built in");
    assert_eq!(entry("claude")["state"]["directories"][0], "~/.claude");
    let one = world.call(["--json", "profile", "show", "codex"]).run();
    assert!(!one.out().contains(CANARY));
    assert_eq!(one.json()["name"], "codex");
    assert_eq!(one.json()["instructions"], "~/.codex/AGENTS.md");
}

#[test]
fn a_profile_is_shown_with_what_it_means_and_its_text_alone() {
    let world = world();
    let text = include_str!("../../profiles/agents/codex.toml");
    let alone = world.call(["profile", "show", "codex", "--text"]).run();
    alone.expect(0, text, "");
    let shown = world.call(["profile", "show", "codex"]).run();
    let out = shown.out();
    let (summary, file) = out.split_once("\n# OpenAI Codex").unwrap();
    assert!(text.ends_with(file), "{file}");
    assert!(
        summary.starts_with("codex: OpenAI Codex\n\nfile "),
        "{summary}"
    );
    assert!(
        summary.lines().all(|line| line.chars().count() <= 80),
        "{summary}"
    );
    for words in [
        "logged in        yes: ~/.codex/auth.json\n",
        "it cannot        change its config.toml",
    ] {
        assert!(summary.contains(words), "no {words:?} in {summary}");
    }
    assert!(!out.contains(CANARY));
    let unknown = world.call(["profile", "show", "codx"]).run();
    assert_eq!(unknown.code, 125);
    assert!(unknown.err().contains("hint: did you mean `codex`?"));
    let misuse = world.call(["profile", "list", "--text"]).run();
    assert!(
        misuse.err().contains("--text belongs to"),
        "{}",
        misuse.err()
    );
}

#[test]
fn several_profiles_are_in_one_jail() {
    let world = world();
    let login = format!("{{\"OPENAI_API_KEY\":\"{CANARY}\"}}\n");
    world.write("home/.codex/auth.json", &login);
    let script = "cat ~/.codex/auth.json; ls -d ~/.claude";
    let both = world
        .call(["-q", "-p", "claude", "-p", "codex", "sh", "-c", script])
        .run();
    both.expect(0, &format!("{login}[..]/.claude\n"), "");
    let one = world
        .call(["-q", "-p", "claude", "sh", "-c", "cat ~/.codex/auth.json"])
        .run();
    assert_ne!(one.code, 0);
    assert!(!one.out().contains(CANARY));
}

#[test]
fn at_a_terminal_an_agent_without_a_login_says_how_to_log_in() {
    let world = world();
    let hint = "no login for claude was found: start it once outside of the jail and use /login";
    let search = format!("{}:/usr/bin:/bin", world.home.join(".local/bin").display());
    let says = |words: &[&str], variable: Option<&str>| {
        let mut call = world.call(words).variable("PATH", &search);
        if let Some(name) = variable {
            call = call.variable(name, "x");
        }
        let mut terminal = Terminal::start(&call.command());
        terminal.expect("it ran");
        let screen = terminal.screen();
        assert_eq!(terminal.end(), 0);
        screen.contains(hint)
    };
    assert!(says(&["claude"], None));
    assert!(!says(&["-q", "claude"], None));
    assert!(!says(&["claude", "--version"], None));
    assert!(!says(&["claude"], Some("ANTHROPIC_API_KEY")));
    // Elsewhere nobody reads it.
    let output = world.call(["claude"]).variable("PATH", &search).run();
    assert_eq!(output.out(), "it ran\n");
    assert!(!output.err().contains("no login"), "{}", output.err());
}

#[test]
fn at_a_terminal_a_shell_says_how_agents_in_it_are_known() {
    let world = world();
    let search = format!("{}:/usr/bin:/bin", world.home.join(".local/bin").display());
    let says = |words: &[&str]| {
        let call = world.call(words).variable("PATH", &search);
        let mut terminal = Terminal::start(&call.command());
        terminal.line("echo it ran | tr a-z A-Z");
        terminal.expect("IT RAN");
        let screen = terminal.screen();
        terminal.line("exit 0");
        terminal.end();
        let hint = "an agent that you start in this shell has no login and no memory (";
        let found = screen.lines().position(|line| line.contains(hint))?;
        // The terminal is narrow.
        Some(screen.lines().skip(found).take(3).collect::<String>())
    };
    let line = says(&["sh"]).expect("the line");
    assert!(
        line.contains("claude") && line.contains("-p claude"),
        "{line}"
    );
    assert_eq!(says(&["-q", "sh"]), None);
    assert_eq!(says(&["-p", "claude", "sh"]), None);
}
