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
        (
            "slurm-credentials",
            " can be reached outside, and in no jail",
        ),
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
    nodes_are_named_or_taken_by_kind(&world, first, second);
    a_node_on_which_no_job_runs_is_told(&own, &world, first, second);
    nothing_is_left_of_one_that_is_interrupted(&world, first);
    names_of_a_sites_file_are_those_of_slurm(&world);
    // Nothing of it is left in the queue.
    let left = own.cluster.said("squeue", ["-h", "-o", "%j %u"]);
    assert_eq!(left, "");
}

/// The rows of the table: node, backend, and whether a job from a jail ran.
fn rows(json: &Value) -> Vec<(String, String, Value)> {
    let all = json["nodes"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap_or("none").to_owned();
    all.map(|row| {
        (
            text(&row["node"]),
            text(&row["backend"]),
            row["job"].clone(),
        )
    })
    .collect()
}

fn nodes_are_named_or_taken_by_kind(world: &World, first: &str, second: &str) {
    let ask = |words: &[&str]| {
        let words = [&["doctor", "--json", "--nodes"], words].concat();
        let output = world.launcher(&words);
        let json: Value =
            serde_json::from_str(&output.out()).unwrap_or_else(|error| panic!("{error}: {output}"));
        assert_eq!(
            (output.code, &json["starts"]),
            (0, &Value::Bool(true)),
            "{json:#}"
        );
        json
    };
    let ran = |node: &str| (node.to_owned(), "bwrap".to_owned(), Value::Bool(true));
    assert_eq!(rows(&ask(&[second])), [ran(second)]);
    let (prefix, digits) = first.split_at(first.len() - 2);
    let list = format!("{prefix}[{digits}-{}]", &second[second.len() - 2..]);
    assert_eq!(rows(&ask(&[&list])), [ran(first), ran(second)]);
    // Both nodes are of one kind, and one is taken.
    let json = ask(&[]);
    assert_eq!(rows(&json), [ran(first)], "{json:#}");
    let row = &json["nodes"][0];
    assert!(
        row["landlock"].as_i64().is_some() && row["user_namespaces"] == true,
        "{row:#}"
    );
    assert!(!row["kernel"].as_str().unwrap().is_empty(), "{row:#}");
    let text = world.launcher(&["doctor", "--nodes", second]).out();
    let mut lines = text.lines();
    assert!(lines.next().unwrap().starts_with("NODE "), "{text}");
    let line = lines.next().unwrap();
    assert!(line.starts_with(second) && line.ends_with(" ran"), "{text}");
    let output = world.launcher(&["doctor", "--nodes", "nosuch[1-2]"]);
    assert!(
        output.code == 125 && output.err().contains("no partition and no node `nosuch1`"),
        "{output}"
    );
}

/// A session would start there, and the site lets none of its jobs go there.
fn a_node_on_which_no_job_runs_is_told(own: &Own, world: &World, first: &str, second: &str) {
    let file = own.login().join("enforced.toml");
    fs::write(&file, "[slurm.bounds]\npartitions = [\"long\"]\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let (code, json) = nodes(world, &[]);
    fs::remove_file(&file).unwrap();
    assert_eq!(
        (code, &json["starts"]),
        (1, &Value::Bool(false)),
        "{json:#}"
    );
    for (row, node) in json["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .zip([first, second])
    {
        assert_eq!(
            (&row["node"], &row["job"]),
            (&Value::from(node), &Value::Bool(false))
        );
        let problem = row["problem"].as_str().unwrap();
        assert!(
            problem.contains("partition `debug`: the policy allows `long`"),
            "{row:#}"
        );
    }
    let verdict = json["verdict"].as_str().unwrap();
    assert!(
        verdict.contains("A job from a jail failed on "),
        "{verdict}"
    );
}

/// Interrupted while jobs of it are in the queue.
fn nothing_is_left_of_one_that_is_interrupted(world: &World, first: &str) {
    let script = format!(
        "{launcher} doctor --nodes {first} > /dev/null 2>&1 & pid=$!\n\
         for i in $(seq 200); do squeue -h -u $(id -un) -o %j | grep -q agent-sandbox-doctor && break; sleep 0.05; done\n\
         squeue -h -u $(id -un) -o 'seen %j'; kill -INT $pid; wait $pid; echo \"ended $?\"",
        launcher = world.cluster.launcher.display()
    );
    let said = world.outside(&script).run().good().out();
    assert!(said.contains("seen agent-sandbox-doctor-"), "{said}");
    assert!(said.contains("ended 130"), "{said}");
    until("its jobs are gone", || {
        world.cluster.said("squeue", ["-h", "-o", "%j"]).is_empty()
    });
}

/// `doctor --policy` asks this cluster.
fn names_of_a_sites_file_are_those_of_slurm(world: &World) {
    let text = "[slurm.bounds]\npartitions = [\"debug\", \"no-such\"]\nqos = [\"no-qos\"]\naccounts = [\"no-account*\"]\n\
                [[when]]\npartition = \"nowhere\"\n[when.slurm.bounds]\nminutes = 5\n";
    let script = format!(
        "mkdir -p site && cat > site/enforced.toml <<'END'\n{text}END\n{} doctor --policy site/enforced.toml",
        world.cluster.launcher.display()
    );
    let output = world.outside(&script).run().good();
    let said = output.out();
    for words in [
        "enforced.toml:2: Slurm has no partition `no-such`",
        "enforced.toml:3: Slurm has no QOS `no-qos`",
        "enforced.toml:4: Slurm has no account that `no-account*` matches",
        "enforced.toml:5: this section is never in force: partition nowhere: Slurm has no such partition",
    ] {
        assert!(said.contains(words), "no `{words}`: {output}");
    }
    assert!(!said.contains("partition `debug`"), "{output}");
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
        said.starts_with("NODE ") && said.contains(&format!("\nThe same on {answered}\n")),
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
        ("nosuch", "Slurm knows no partition and no node `nosuch`"),
        ("a b", "no name of a partition and no list of nodes"),
        ("debug;long", "no name of a partition and no list of nodes"),
    ] {
        let output = world.launcher(&["doctor", "--nodes", name]);
        assert!(
            output.code == 125 && output.out().is_empty() && output.err().contains(words),
            "{output}"
        );
    }
}
