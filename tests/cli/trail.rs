//! `watch`, `report`, `trace`: from the launcher to the program that shows trails. What that shows has tests
//! of its own, with a tracer that is played (`ebpf/trail/tests`).

use crate::world::World;

#[test]
fn without_a_tracer_the_message_says_where_it_would_be() {
    let world = World::new();
    let none = world.place.join("none.sock");
    for words in [&["report"][..], &["watch", "--json"], &["report", "12"]] {
        let socket = ["--socket", none.to_str().unwrap()];
        let output = world.call(words.iter().chain(&socket)).run();
        output.expect(
            125,
            "",
            "error: no tracer runs on this node: there is no `[PLACE]/none.sock`\nhint: the socket is named by --socket, [..]\n",
        );
    }
}

#[test]
fn without_a_tracer_nothing_is_run_untraced() {
    let world = World::new();
    let none = world.place.join("none.sock");
    let words = ["trace", "--socket", none.to_str().unwrap(), "touch", "ran"];
    let output = world.call(words).run();
    assert_eq!(output.code, 125, "{output}");
    assert!(!world.project.join("ran").exists());
}

#[test]
fn the_policy_says_where_the_tracer_listens() {
    let world = World::new();
    let output = world.call(["report"]).run();
    // A tracer may run here; then this user has no trails, as the suites have others.
    let error = output.err();
    assert!(
        error.contains("`/run/agent-sandbox/tracer.sock`") || !error.contains("--socket"),
        "{output}"
    );
    // A policy that cannot be read is not passed over.
    world.policy("[trace]\nmood = 1\n");
    let output = world.call(["report"]).run();
    assert_eq!(output.code, 125, "{output}");
    assert!(output.err().contains("mood"), "{output}");
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_asked() {
    let world = World::new();
    for (words, said) in [
        (
            &["trace"][..],
            "error: `agent-sandbox trace` needs a COMMAND, or one of --pid N, --cgroup PATH and --job N\n",
        ),
        (
            &["trace", "--events", "opens", "true"],
            "error: --events: `opens` is no kind of event; there are fork, exec, exit, open, connect, listen, operation\n",
        ),
        (
            &["--json", "report", "--markdown"],
            "error: `agent-sandbox report` takes one of --json and --markdown\n",
        ),
    ] {
        let output = world.call(words).run();
        assert_eq!(output.code, 125, "{output}");
        assert!(output.err().starts_with(said), "{output}");
    }
}

#[test]
fn inside_a_jail_no_tracer_is_reached() {
    let world = World::new();
    for words in ["watch", "report", "trace true"] {
        let output = world.sh(&format!("agent-sandbox {words}")).run();
        assert_eq!(output.code, 125, "{output}");
        let said = "error: this is the inside of a jail, and no tracer can be reached from here: ";
        assert!(output.err().starts_with(said), "{output}");
    }
}
