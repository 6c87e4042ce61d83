//! Completion as somebody at a terminal gets it: real bash and zsh list what a tab offers, fish is asked.

use std::process::Command;
use std::thread;
use std::time::Duration;

use agent_sandbox_support::terminal::Terminal;

use crate::world::{Done, TestPrefix, has, not_checked};

/// As long as a list takes to be written, once it begins, or to be found empty.
const GLANCE: Duration = Duration::from_millis(300);

/// What is typed before the tab, what must be offered, and what must not be.
type Case = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

/// The same for every shell. `mytool` is the user's, and has a completion of its own.
const CASES: &[Case] = &[
    ("agent-sandbox poli", &["policy"], &[]),
    ("agent-sandbox --ho", &["--home"], &["policy"]),
    (
        "agent-sandbox -",
        &["--project", "--read", "--dry-run", "--version"],
        &["--session"],
    ),
    (
        "agent-sandbox --home ",
        &["tmpfs", "restricted", "read", "write"],
        &["policy", "mytool"],
    ),
    (
        "agent-sandbox --backend ",
        &["auto", "bwrap", "landlock"],
        &["policy"],
    ),
    (
        "agent-sandbox --profile ",
        &["claude", "physics"],
        &["policy", "mytool"],
    ),
    ("agent-sandbox -p ", &["claude", "physics"], &["policy"]),
    (
        "agent-sandbox policy --profile ",
        &["claude", "physics"],
        &[],
    ),
    (
        "agent-sandbox --set ",
        &["jail.users", "files.hide", "slurm.limits.jobs"],
        &["explain", "mytool"],
    ),
    (
        "agent-sandbox --set jail.users=",
        &["filtered"],
        &["jail.nested"],
    ),
    ("agent-sandbox --set jail.nested=t", &["true"], &["false"]),
    (
        "agent-sandbox policy --set slurm.sc",
        &["slurm.scope"],
        &["slurm.mode"],
    ),
    ("agent-sandbox --project ", &["genomes"], &["policy"]),
    ("agent-sandbox --home read poli", &["policy"], &[]),
    ("agent-sandbox --env A=b poli", &["policy"], &[]),
    ("agent-sandbox explain --sl", &["--slurm"], &[]),
    ("agent-sandbox profile ", &["list", "show"], &["policy"]),
    (
        "agent-sandbox log --",
        &["--session", "--json"],
        &["--slurm"],
    ),
    ("agent-sandbox -q myto", &["mytool"], &[]),
    ("agent-sandbox -- poli", &[], &["policy"]),
    ("agent-sandbox mytool --fl", &["--flavour"], &["--home"]),
    (
        "agent-sandbox --home read -q mytool --fl",
        &["--flavour"],
        &["--home"],
    ),
    ("agent-sandbox --env=A=b mytool --fl", &["--flavour"], &[]),
    ("agent-sandbox -- mytool --fl", &["--flavour"], &[]),
    ("agent-sandbox run mytool --fl", &["--flavour"], &[]),
    ("agent-sandbox run -- mytool --fl", &["--flavour"], &[]),
    ("agent-sandbox run poli", &[], &["policy"]),
    ("agent-sandbox mytool poli", &[], &["policy"]),
];

/// What is offered while a session runs, as [`SESSIONS`] says it.
const OF_SESSIONS: &[Case] = &[(
    "agent-sandbox allow ",
    &["7qm2x0vb"],
    &["SESSION", "evil", "mytool", "policy"],
)];

/// `agent-sandbox sessions`, with a line that is none; all else is the program's own.
const SESSIONS: &str = "#!/bin/sh
[ \"$*\" = sessions ] || exec \"$0.own\" \"$@\"
cat <<'END'
SESSION         PID   RUNNING  COMMAND          PROJECT
7qm2x0vb       4711      1:02  claude           /home/ada/work
$(evil)        4712      1:02  claude           /home/ada/work
END
";

/// A place whose home has a program, a profile and a project, and where a session runs.
fn place() -> TestPrefix {
    let place = TestPrefix::installed();
    let own = place.prefix.join("bin/agent-sandbox");
    std::fs::rename(&own, own.with_extension("own")).unwrap();
    place.program("prefix/bin/agent-sandbox", SESSIONS);
    place.program("prefix/bin/mytool", "#!/bin/sh\n");
    place.write("home/genomes/README", "");
    place.write(
        "home/.config/agent-sandbox/profiles/physics.toml",
        "[profile]\ndescription = \"Mine\"\n",
    );
    place
}

fn with_path(place: &TestPrefix, program: &str) -> Command {
    let mut command = place.command(program);
    let path = format!(
        "{}:{}",
        place.prefix.join("bin").display(),
        crate::world::PATH
    );
    command.env("PATH", path).env("PREFIX", &place.prefix);
    command
}

#[track_caller]
fn judge(shell: &str, case: &Case, offered: &str) {
    let (typed, wanted, unwanted) = case;
    let words: Vec<&str> = offered
        // Of `KEY=VALUE` a shell may show the value alone.
        .split(|c: char| c.is_whitespace() || c.is_control() || c == '=')
        .collect();
    // A tab may show a directory with its slash, an option with what follows it.
    let has = |word: &str| words.iter().any(|w| w.trim_end_matches(['/', '=']) == word);
    for word in *wanted {
        assert!(has(word), "{shell}: `{typed}` offers no {word}:\n{offered}");
    }
    for word in *unwanted {
        assert!(!has(word), "{shell}: `{typed}` offers {word}:\n{offered}");
    }
}

/// Types each line and a tab, which lists what there is and changes nothing.
fn typed(shell: &str, command: &Command, ready: &str, cases: &[Case]) {
    let mut terminal = Terminal::start(command);
    terminal.resize(200, 150);
    for line in ready.lines() {
        terminal.line(line);
    }
    // What is typed is shown, too: the words are put together by the shell.
    terminal.line("echo rea''dy");
    terminal.expect("ready");
    for (i, case) in cases.iter().enumerate() {
        let before = terminal.screen().len();
        terminal.send(&format!("{}\t", case.0));
        // A shell shows no list while more is typed. So the first word is waited for, and then the rest.
        if let Some(word) = case.1.first() {
            terminal.expect(word);
        }
        thread::sleep(GLANCE);
        terminal.send("\x15");
        terminal.line(&format!("echo e''nd-{i}-"));
        terminal.expect(&format!("end-{i}-"));
        let screen = terminal.screen();
        let offered = plain(screen.get(before..).unwrap_or_default());
        // Without the line itself, which is shown once more behind the list, and what ended it; with its
        // tab by the terminal, where the shell was not yet there to read.
        let offered = [' ', '\t', '\r', '\n'].iter().fold(offered, |text, end| {
            text.replace(&format!("{}{end}", case.0), " ")
        });
        judge(shell, case, &offered);
    }
    terminal.line("exit");
    terminal.end();
}

/// Without the terminal's control sequences (`ECMA-48`).
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '\x1b' {
            plain.push(c);
            continue;
        }
        if rest.peek() == Some(&'[') {
            rest.next();
            while rest.next().is_some_and(|c| !c.is_ascii_alphabetic()) {}
        } else {
            rest.next();
        }
        plain.push(' ');
    }
    plain
}

#[test]
fn bash_completes() {
    let place = place();
    let general = "/usr/share/bash-completion/bash_completion";
    let mut cases = [CASES, OF_SESSIONS].concat();
    let mut ready = String::from(
        "bind 'set completion-query-items 0'; bind 'set page-completions off'; bind '\"\\t\": possible-completions'\n\
         bind 'set enable-bracketed-paste off'; complete -W '--flavour --colour' mytool\n",
    );
    if std::path::Path::new(general).exists() {
        ready.push_str(&format!(". {general}\n"));
    } else {
        not_checked(
            "bash: completion of the arguments of one's own command",
            "bash-completion is not installed",
        );
        cases.retain(|(_, wanted, _)| !wanted.contains(&"--flavour"));
    }
    ready.push_str(". $PREFIX/share/bash-completion/completions/agent-sandbox\n");
    let mut bash = with_path(&place, "bash");
    bash.args(["--noprofile", "--norc", "-i"]).env("PS1", "$ ");
    typed("bash", &bash, &ready, &cases);
}

/// bash expands the words that it offers. A profile is data, whoever wrote it.
#[test]
fn what_stands_in_a_profile_is_not_run_by_a_tab() {
    let place = place();
    place.program(
        "stub/agent-sandbox",
        "#!/bin/sh\ncat <<'END'\nNAME     DESCRIPTION\nphysics  Mine [file]\n$(touch${IFS}ran)  x\n`touch${IFS}ran`\n$(touch${IFS}ran)\nEND\n",
    );
    let script = "PATH=$HOME/../stub:$PATH; cd; . $PREFIX/share/bash-completion/completions/agent-sandbox
        complete=($(complete -p agent-sandbox)); for ((i = 0; i < ${#complete[@]}; i++)); do
        [ ${complete[i]} != -F ] || function=${complete[i + 1]}; done
        COMP_WORDS=(agent-sandbox --profile ''); COMP_CWORD=2; COMP_LINE='agent-sandbox --profile '; COMP_POINT=24
        $function agent-sandbox '' --profile; echo offered ${COMPREPLY[@]}; ls";
    let output = with_path(&place, "bash")
        .args(["--noprofile", "--norc", "-c", script])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("offered physics\n"), "{output:?}");
    assert!(!said.lines().any(|line| line == "ran"), "{output:?}");
}

#[test]
fn bash_alone_completes_all_but_arguments() {
    let place = place();
    let ready = "bind 'set completion-query-items 0'; bind 'set page-completions off'; bind '\"\\t\": possible-completions'\n\
         bind 'set enable-bracketed-paste off'; . $PREFIX/share/bash-completion/completions/agent-sandbox\n";
    let mut cases = [CASES, OF_SESSIONS].concat();
    cases.retain(|(_, wanted, _)| !wanted.contains(&"--flavour"));
    let mut bash = with_path(&place, "bash");
    bash.args(["--noprofile", "--norc", "-i"]).env("PS1", "$ ");
    typed("bash", &bash, ready, &cases);
}

#[test]
fn zsh_completes() {
    if !has("zsh", "completion in zsh") {
        return;
    }
    let place = place();
    let ready = "unsetopt zle_bracketed_paste 2>/dev/null; unset zle_bracketed_paste; LISTMAX=1000; unsetopt prompt_sp\n\
         fpath=($PREFIX/share/zsh/site-functions $fpath); autoload -U compinit; compinit -D -u\n\
         _mytool() { _arguments '--flavour[x]' '--colour[y]' }; compdef _mytool mytool\n\
         bindkey '^I' list-choices; bindkey '^U' kill-whole-line\n";
    let mut zsh = with_path(&place, "zsh");
    zsh.args(["-f", "-i"]).env("PS1", "$ ");
    typed("zsh", &zsh, ready, &[CASES, OF_SESSIONS].concat());
}

#[test]
fn fish_completes() {
    if !has("fish", "completion in fish") {
        return;
    }
    let place = place();
    for case in CASES.iter().chain(OF_SESSIONS) {
        let script = format!(
            "set -p fish_complete_path $PREFIX/share/fish/vendor_completions.d\n\
             complete -c mytool -l flavour; complete -c mytool -l colour\n\
             complete -C '{}'",
            case.0
        );
        let mut fish = with_path(&place, "fish");
        fish.args(["--no-config", "-c", &script]);
        judge("fish", case, &Done::of(fish).ok().out);
    }
}
