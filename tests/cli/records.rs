//! What sessions did, of a time: `sessions`, `log` and `report` of the caller's own records.

use serde_json::Value;

use crate::world::World;

#[test]
fn what_a_session_was_is_told_after_its_end() {
    let world = World::new();
    world.quiet(["true"]).run().expect(0, "", "");
    let sessions = world
        .call(["sessions", "--since", "1h", "--json"])
        .run()
        .json();
    let all = sessions.as_array().unwrap();
    assert_eq!(all.len(), 1, "{sessions}");
    assert_eq!(
        (&all[0]["agent"], &all[0]["jobs"]),
        (&"true".into(), &0.into())
    );
    let project = all[0]["project"].as_str().unwrap();
    let report = world
        .call(["report", "--since", "1h", "--json"])
        .run()
        .json();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{report}");
    assert_eq!(
        (&rows[0]["sessions"], &rows[0]["project"]),
        (&1.into(), &project.into())
    );
    // A session that is over runs nowhere, and asked nothing of Slurm.
    world
        .call(["sessions"])
        .run()
        .expect(0, "no session runs on this node\n", "");
    world
        .call(["log", "--since", "1h"])
        .run()
        .expect(0, "nothing was asked of Slurm\n", "");
    for (words, count) in [
        (["--agent", "true"], 1),
        (["--agent", "claude"], 0),
        (["--project", project], 1),
        (["--project", "/nowhere"], 0),
    ] {
        let words = ["report", "--since", "1h", "--json"]
            .iter()
            .chain(&words)
            .copied();
        let report = world.call(words).run().json();
        assert_eq!(
            report["rows"].as_array().map(Vec::len),
            Some(count),
            "{report}"
        );
    }
    let later = world.call(["report", "--since", "2999-01-01"]).run();
    later.expect(0, "no session is recorded since 2999-01-01T00:00:00Z\n", "");
}

#[test]
fn records_of_a_directory_are_read_in_place_of_ones_own() {
    let world = World::new();
    let line = |uid: u32, rest: &str| {
        format!(r#"{{"uid":{uid},"host":"n1","time":1790000000,"session":"s1",{rest}}}"#) + "\n"
    };
    let text = line(
        4_100_000_000,
        r#""kind":"session","agent":"claude","project":"/p""#,
    ) + &line(
        4_100_000_000,
        r#""pid":1,"command":"sbatch","verdict":"allowed","reason":null,"jobs":[7]"#,
    ) + r#"{"uid":41"#;
    world.write("collected/n1/audit.jsonl", text);
    let from = world.place.join("collected");
    let from = from.to_str().unwrap();
    let report = world.call(["report", "--from", from]).run();
    let rows = report.out();
    assert!(rows.starts_with("USER "), "{rows}");
    let words: Vec<&str> = rows.lines().nth(1).unwrap().split_whitespace().collect();
    // This machine has no name for that number.
    assert_eq!(
        words,
        ["4100000000", "claude", "1", "1", "0", "0", "0", "/p"]
    );
    assert!(
        report
            .err()
            .ends_with("collected: left out: 1 torn lines\n"),
        "{}",
        report.err()
    );
    let log = world.call(["log", "--from", from, "--json"]).run().json();
    let requests: Vec<&Value> = log["requests"].as_array().unwrap().iter().collect();
    assert_eq!(
        (requests.len(), &requests[0]["user"]),
        (1, &"4100000000".into())
    );
}

/// A name that is spelt wrong would have no sessions, and look as if all were well.
#[test]
fn a_directory_of_records_that_is_none_is_said() {
    let world = World::new();
    world.write("collected.jsonl", "");
    for (name, said) in [
        ("colected", "cannot be read: No such file"),
        ("collected.jsonl", "is no directory"),
    ] {
        let from = world.place.join(name);
        for question in ["sessions", "log", "report"] {
            let output = world
                .call([question, "--from", from.to_str().unwrap()])
                .run();
            assert_eq!(output.code, 125, "{question} {name}: {}", output.err());
            assert!(output.err().contains(said), "{question}: {}", output.err());
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let world = World::new();
    for (words, said) in [
        (&["report", "--since", "yesterday"][..], "it is no time"),
        (&["log", "--since", "7"], "it is no time"),
        (&["report", "--all", "k3v9m2qp"], "it takes no session"),
        (&["report", "--since", "7d", "--markdown"], "no --markdown"),
        (
            &["report", "--agent", "claude"],
            "with --all, --since or --from",
        ),
        (&["log", "12", "--since", "7d"], "cannot be used with"),
        (&["report", "--all"], "only root sees other users"),
        (&["log", "--all", "--network"], "only root sees other users"),
        (&["sessions", "--all"], "only root sees other users"),
    ] {
        let output = world.call(words).run();
        assert!(output.err().contains(said), "{words:?}: {}", output.err());
        assert_eq!(output.out(), "", "{words:?}");
    }
}
