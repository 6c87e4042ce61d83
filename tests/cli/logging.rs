//! What `-v` and `AGENT_SANDBOX_LOG` have a launch log, and what they do not.

use crate::world::{CANARY, World};
use agent_sandbox_support::terminal::Terminal;

const VARIABLE: &str = "AGENT_SANDBOX_LOG";

/// The log lines about this.
fn about(err: &str, target: &str) -> Vec<String> {
    let target = format!(" {target}: ");
    let lines = err.lines().filter(|line| line.contains(&target));
    lines.map(str::to_owned).collect()
}

#[test]
fn nothing_is_logged_unless_asked_for() {
    let world = World::new();
    world.quiet(["true"]).run().expect(0, "", "");
    world
        .quiet(["true"])
        .variable(VARIABLE, "")
        .run()
        .expect(0, "", "");
    world
        .quiet(["true"])
        .variable(VARIABLE, "off")
        .run()
        .expect(0, "", "");
}

#[test]
fn v_logs_the_stages_of_a_launch_and_more_of_it_more() {
    let world = World::new();
    let mut lines = Vec::new();
    for flag in ["-v", "-vv", "-vvv"] {
        let output = world.call(["-q", flag, "true"]).run();
        assert_eq!(output.code, 0, "{output}");
        let err = output.err();
        let launch = about(&err, "launch");
        for stage in [
            "policy read",
            "host examined",
            "jail started",
            "the command starts",
        ] {
            let line = launch.iter().find(|line| line.contains(stage));
            let line = line.unwrap_or_else(|| panic!("no `{stage}`: {output}"));
            assert!(line.starts_with("agent-sandbox: "), "{line}");
        }
        let timed = launch.iter().filter(|line| line.contains("took="));
        assert!(timed.count() >= 3, "{output}");
        assert!(
            about(&err, "plan").iter().any(|l| l.contains("mounts=")),
            "{output}"
        );
        lines.push(err.lines().count());
    }
    assert!(lines[0] < lines[1] && lines[1] < lines[2], "{lines:?}");
}

#[test]
fn the_variable_chooses_what_is_logged() {
    let world = World::new();
    let output = world.quiet(["true"]).variable(VARIABLE, "plan=trace").run();
    let err = output.err();
    assert_eq!(output.code, 0, "{output}");
    let plan = about(&err, "plan");
    assert!(plan.len() > 10, "{output}");
    assert_eq!(plan.len(), err.lines().count(), "{output}");
    // Both: the level of all, and more of one.
    let output = world
        .call(["-q", "-v", "true"])
        .variable(VARIABLE, "plan=trace")
        .run();
    assert!(about(&output.err(), "plan").len() > 10, "{output}");
    assert!(!about(&output.err(), "launch").is_empty(), "{output}");
}

#[test]
fn a_wrong_filter_is_named_and_the_command_runs() {
    let world = World::new();
    for wrong in ["chaperon=loud", "degub", "agent=debug"] {
        let output = world.quiet(["echo", "ran"]).variable(VARIABLE, wrong).run();
        assert_eq!((output.code, output.out().as_str()), (0, "ran\n"));
        let expected = format!(
            "agent-sandbox: warning: AGENT_SANDBOX_LOG is `{wrong}`, which says nothing: expected a level \
             (error, warn, info, debug, trace, off), or TARGET=LEVEL,… with targets among launch, plan, chaperon, \
             slurm, tracer\n"
        );
        assert_eq!(output.err(), expected);
    }
    let output = world
        .quiet(["true"])
        .variable(VARIABLE, "\x1b]0;x\x07")
        .run();
    assert!(!output.err().contains('\x1b'), "{output}");
}

#[test]
fn a_log_holds_names_and_no_values() {
    let world = World::new();
    let secret = format!("ghp_{CANARY}");
    let set = format!("MINE={secret}");
    let words = ["-q", "-vvv", "--env", "GITHUB_TOKEN", "--env", &set];
    let output = world
        .call(
            words
                .into_iter()
                .chain(["sh", "-c", ": \"$1\"", "sh", &secret]),
        )
        .run();
    assert_eq!(output.code, 0, "{output}");
    assert!(output.err().contains("name=GITHUB_TOKEN"), "{output}");
    assert!(output.err().contains("name=MINE"), "{output}");
    assert!(!output.err().contains(CANARY), "{output}");
}

#[test]
fn names_of_files_say_nothing_to_the_terminal() {
    let world = World::new();
    let project = world
        .place
        .join("home/\x1b]0;title\x07\nERROR launch: forged");
    std::fs::create_dir(&project).unwrap();
    let output = world.call(["-q", "-vvv", "true"]).cwd(&project).run();
    assert_eq!(output.code, 0, "{output}");
    let err = output.err();
    assert!(!err.contains('\x1b') && err.contains("\\u{1b}"), "{output}");
    assert!(
        !err.lines().any(|line| line.starts_with("ERROR")),
        "{output}"
    );
}

#[test]
fn while_a_command_has_the_terminal_lines_wait() {
    let world = World::new();
    let call = world.call([
        "-q",
        "-v",
        "sh",
        "-c",
        "echo the''screen; sleep 1; echo still''mine",
    ]);
    let mut terminal = Terminal::start(&call.command());
    terminal.expect("stillmine");
    terminal.expect("jail is over");
    let screen = terminal.screen();
    let at = |text: &str| {
        screen
            .find(text)
            .unwrap_or_else(|| panic!("no {text}: {screen}"))
    };
    assert!(at("policy read") < at("thescreen"), "{screen}");
    let between = &screen[at("thescreen")..at("stillmine")];
    assert!(!between.contains(" INFO "), "{screen}");
    assert!(at("stillmine") < at("the command starts"), "{screen}");
    assert_eq!(terminal.end(), 0);
}
