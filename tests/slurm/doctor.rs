//! `doctor` where Slurm is, and `doctor --nodes`: the nodes of a partition, asked by jobs and compared.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::own::Own;
use crate::world::{Side, World, until};

/// What is said of the nodes of the partition, and the exit code.
#[track_caller]
fn nodes(world: &World, words: &[&str]) -> (i32, Value) {
    let words = [&["doctor", "--nodes", "debug", "--json"], words].concat();
    let output = world.launcher(&words);
    let json = serde_json::from_str(&output.out());
    (
        output.code,
        json.unwrap_or_else(|error| panic!("{error}: {output}")),
    )
}

/// The rows of these names, as `NODES: FOUND` each.
fn differing(json: &Value, name: &str) -> Vec<String> {
    let rows = json["differs"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == name);
    let parts = row.map(|row| row["parts"].as_array().unwrap().clone());
    let text = |part: &Value| {
        let word = |key: &str| part[key].as_str().unwrap().to_owned();
        format!("{}: {}", word("nodes"), word("found"))
    };
    parts.iter().flatten().map(text).collect()
}

#[test]
fn the_way_to_slurm_is_tried_and_timed() {
    let Some(world) = World::new() else { return };
    let output = world.launcher(&["doctor", "--json"]);
    let json: Value =
        serde_json::from_str(&output.out()).unwrap_or_else(|error| panic!("{error}: {output}"));
    let line = |name: &str| {
        let all = json["checks"].as_array().unwrap();
        let line = all.iter().find(|line| line["name"] == name);
        line.unwrap_or_else(|| panic!("no `{name}`: {json:#}"))
    };
    for (name, found) in [
        ("slurm-commands", " commands in /usr/bin (slurm"),
        ("slurm-programs", "agent-sandbox-chaperon and -shim in "),
        ("slurm-controller", " is UP"),
        ("munge", " can be reached outside, and in no jail"),
        ("chaperon", "a request from a jail to Slurm and back"),
        ("session", "a session started and ended"),
    ] {
        let line = line(name);
        assert!(
            line["status"] == "ok" && line["found"].as_str().unwrap().contains(found),
            "{line:#}"
        );
    }
    let took = line("chaperon")["milliseconds"].as_u64().unwrap();
    println!("a request took {took} ms");
    assert!(took > 0, "{json:#}");
    assert_eq!((output.code, &json["starts"]), (0, &Value::Bool(true)));
    let world_of_bob = World::of(world.cluster, &world.cluster.bob);
    // What the trial asked is in nobody's record.
    let before = world_of_bob.launcher(&["log", "--json"]).out();
    world_of_bob.launcher(&["doctor"]);
    assert_eq!(world_of_bob.launcher(&["log", "--json"]).out(), before);
}

#[test]
fn nodes_of_a_partition_are_compared() {
    let Some(own) = Own::start("doctor", &[]) else {
        return;
    };
    let world = World::of(own.cluster, &own.cluster.alice);
    let [first, second] = own.cluster.nodes.as_slice() else {
        panic!("two nodes: {:?}", own.cluster.nodes);
    };
    all_are_alike(&world, first, second);
    a_site_differs(&own, &world, first, second);
    a_drained_node_is_named(&world, first, second);
    a_busy_node_is_not_waited_for(&world, first, second);
    what_is_no_partition(&world);
    // Nothing of it is left in the queue.
    let left = own
        .cluster
        .said("squeue", ["-h", "-n", "agent-sandbox-doctor"]);
    assert_eq!(left, "");
}

fn all_are_alike(world: &World, first: &str, second: &str) {
    let (code, json) = nodes(world, &[]);
    let differs: Vec<&Value> = json["differs"].as_array().unwrap().iter().collect();
    assert!(differs.is_empty(), "{json:#}");
    assert_eq!((code, &json["starts"]), (0, &Value::Bool(true)), "{json:#}");
    let answered = json["answered"].as_str().unwrap();
    // Two digits: `tests/slurm/cluster` names nodes so.
    let number = |node: &str| node[node.len() - 2..].to_owned();
    assert!(
        answered.ends_with(&format!("[{}-{}]", number(first), number(second))),
        "{answered}"
    );
    let same: Vec<&str> = json["same"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["name"].as_str().unwrap())
        .collect();
    for name in [
        "version",
        "executable",
        "digest",
        "verdict",
        "kernel",
        "session",
        "chaperon",
    ] {
        assert!(same.contains(&name), "no `{name}`: {json:#}");
    }
    let text = world.launcher(&["doctor", "--nodes", "debug"]);
    assert_eq!((text.code, text.err().as_str()), (0, ""), "{text}");
    let said = text.out();
    assert!(
        said.starts_with(&format!("The same on {answered}\n")),
        "{text}"
    );
    assert!(
        said.ends_with(&format!("\nA session would start on {answered}.\n")),
        "{text}"
    );
}

fn a_site_differs(own: &Own, world: &World, first: &str, second: &str) {
    let file = own.node(1).join("enforced.toml");
    fs::write(&file, "[jail]\nmax_processes = 77\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let (code, json) = nodes(world, &[]);
    assert_eq!(code, 0, "{json:#}");
    let found = differing(&json, "site-enforced");
    let (without, with) = (format!("{first}: "), format!("{second}: "));
    assert!(
        found
            .iter()
            .any(|part| part.starts_with(&without) && part.contains("does not exist"))
            && found
                .iter()
                .any(|part| part.starts_with(&with) && part.contains("1 key")),
        "{json:#}"
    );
    assert_eq!(differing(&json, "digest").len(), 2, "{json:#}");
    let text = world.launcher(&["doctor", "--nodes", "debug"]).out();
    for words in [
        "\nDifferent\n",
        &format!("\n    {second}\n"),
        "fix: ask your administrators",
    ] {
        assert!(text.contains(words), "no `{words}`: {text}");
    }
    // One that stops sessions there.
    fs::write(&file, "[jail]\nmax_proceses = 77\n").unwrap();
    let (code, json) = nodes(world, &[]);
    assert_eq!(
        (code, &json["starts"]),
        (1, &Value::Bool(false)),
        "{json:#}"
    );
    let verdict = json["verdict"].as_str().unwrap();
    assert_eq!(
        verdict,
        format!("A session would start on {first}. No session would start on {second}.")
    );
    fs::remove_file(&file).unwrap();
}

fn a_drained_node_is_named(world: &World, first: &str, second: &str) {
    let update = |state: &str| {
        let node = format!("NodeName={second}");
        let state = format!("State={state}");
        world
            .cluster
            .said("scontrol", ["update", &node, &state, "Reason=a broken fan"]);
    };
    update("DRAIN");
    until("the node is drained", || {
        world
            .cluster
            .said("sinfo", ["-h", "-n", second, "-p", "debug", "-o", "%T"])
            .contains("drained")
    });
    let (code, json) = nodes(world, &[]);
    update("RESUME");
    assert_eq!(code, 0, "{json:#}");
    assert_eq!(json["answered"], first);
    let [part] = json["unavailable"].as_array().unwrap().as_slice() else {
        panic!("{json:#}");
    };
    assert_eq!(part["nodes"], second);
    assert!(
        part["found"].as_str().unwrap().contains("a broken fan"),
        "{part:#}"
    );
    assert!(
        json["verdict"]
            .as_str()
            .unwrap()
            .ends_with(&format!("Not asked: {second}.")),
        "{json:#}"
    );
    until("the node is back", || {
        world
            .cluster
            .said("sinfo", ["-h", "-n", second, "-p", "debug", "-o", "%T"])
            .contains("idle")
    });
}

fn a_busy_node_is_not_waited_for(world: &World, first: &str, second: &str) {
    let script = format!("sbatch --parsable --exclusive -w {first} -o o.txt --wrap 'sleep 300'");
    let job = world.outside(&script).run().good().word();
    until("the job runs", || {
        world
            .cluster
            .said("squeue", ["-h", "-j", &job, "-o", "%T"])
            .contains("RUNNING")
    });
    let (code, json) = nodes(world, &[]);
    world.real(&["scancel", &job]).good();
    assert_eq!(
        (code, &json["answered"]),
        (0, &Value::from(second)),
        "{json:#}"
    );
    let part = &json["unavailable"][0];
    assert!(
        part["nodes"] == first && part["found"].as_str().unwrap().contains("busy"),
        "{json:#}"
    );
    world.settle(Side::Outside);
}

fn what_is_no_partition(world: &World) {
    for (name, words) in [
        ("nosuch", "Slurm knows no node of a partition `nosuch`"),
        ("-a", "no name of a partition"),
        ("debug,long", "no name of a partition"),
    ] {
        let output = world.launcher(&["doctor", "--nodes", name]);
        assert!(
            output.code == 125 && output.out().is_empty() && output.err().contains(words),
            "{output}"
        );
    }
}
