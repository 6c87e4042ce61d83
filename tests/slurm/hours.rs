//! Hours of jobs: `[slurm.budget]`, counted over sessions, and `[slurm.confirm]`, with which jobs wait for the user.

use std::fs;
use std::path::{Path, PathBuf};

use agent_sandbox_support::terminal::Terminal;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::call::{Call, Output};
use crate::world::{Side, World, until};

/// A job on one node, for an hour.
const HOUR: &str = "sbatch -N1 -t 60";

/// The jobs of this project that are in the queue.
fn queued(world: &World) -> usize {
    let jobs = world.jobs(Side::Inside);
    let words = ["-h", "-r", "-t", "pending,running", "-o", "%F"];
    let said = world.cluster.said("squeue", words);
    let its = said.lines().filter_map(|line| line.trim().parse().ok());
    its.filter(|job: &u32| jobs.contains_key(job)).count()
}

/// A session in a project that has so many node-hours.
fn with_nodes<'a>(world: &'a World, hours: u32, script: &str) -> Call<'a> {
    let budget = format!("slurm.budget.project_node_hours={hours}");
    world.inside(script).set(&budget)
}

/// What `agent-sandbox budget --json` says of one budget.
fn row(said: &Output, whose: &str, of: &str) -> Value {
    let all: Value = serde_json::from_str(&said.out()).unwrap_or_else(|_| panic!("{said}"));
    let rows = all["budgets"].as_array().unwrap();
    let mut its = rows
        .iter()
        .filter(|row| row["whose"] == whose && row["of"] == of);
    its.next().cloned().unwrap_or_else(|| panic!("{said}"))
}

fn is(value: &Value, hours: f64) -> bool {
    value
        .as_f64()
        .is_some_and(|value| (value - hours).abs() < 0.02)
}

/// Fifty sessions of a project at once get just the hours that there are.
#[test]
fn hours_are_counted_over_all_sessions_exactly() {
    let Some(world) = World::new() else { return };
    let script = format!(
        "echo up >> up.txt; until [ $(wc -l < up.txt) -ge 50 ]; do sleep 0.1; done; {HOUR} -H --wrap true"
    );
    let sessions: Vec<_> = (0..50)
        .map(|_| with_nodes(&world, 20, &script).start())
        .collect();
    let outputs: Vec<_> = sessions.into_iter().map(|session| session.end()).collect();
    let submitted = outputs.iter().filter(|output| output.code == 0).count();
    let said: String = outputs.iter().map(ToString::to_string).collect();
    assert_eq!((queued(&world), submitted), (20, 20), "{said}");
    for output in outputs.iter().filter(|output| output.code != 0) {
        let key = "slurm.budget.project_node_hours";
        assert!(output.err().contains(key), "{output}");
    }
    // What was cancelled gives its hours back, and a session of another project has its own.
    let other = World::new().unwrap();
    with_nodes(&other, 1, &format!("{HOUR} -H --wrap true && scancel --me"))
        .run()
        .good();
    let again = format!(
        "scancel --me; for i in {{1..60}}; do {HOUR} -H --array=1-20 --wrap true && exit; sleep 1; done; exit 9"
    );
    with_nodes(&world, 20, &again).run().good();
    assert_eq!(queued(&world), 20);
    world.inside("scancel --me").run();
}

/// Inside and outside say the same of what was used, is held and is left.
#[test]
fn what_slurm_says_takes_the_place_of_what_was_held() {
    let Some(world) = World::new() else { return };
    let project = world.project().display().to_string();
    let out = |words: &[&str]| {
        let common = [
            "-C",
            &project,
            "--set",
            "slurm.budget.project_node_hours=5",
            "budget",
        ];
        world.launcher(&[&common, words].concat()).good()
    };
    let script = format!(
        "id=$({HOUR} --parsable --wrap 'sleep 8'); agent-sandbox budget --json > held.json; \
         agent-sandbox wait $id; \
         for i in {{1..60}}; do agent-sandbox budget --json > used.json; grep -q '\"held\": 1' used.json || exit 0; sleep 1; done; \
         echo 'it did not happen within a minute:'; cat used.json; squeue; sacct -XDPj $id -o JobID,State,Submit,End; exit 9"
    );
    with_nodes(&world, 5, &script).run().good();
    let said = |name: &str| Output {
        code: 0,
        stdout: world.read(name).into_bytes(),
        stderr: Vec::new(),
    };
    for whose in ["project", "session"] {
        let held = row(&said("held.json"), whose, "node_hours");
        let both = held["held"].as_f64().unwrap() + held["used"].as_f64().unwrap();
        assert!((both - 1.0).abs() < 0.02, "{held}");
        let used = row(&said("used.json"), whose, "node_hours");
        assert!(
            is(&used["held"], 0.0) && used["used"].as_f64().unwrap() > 0.001,
            "{used}"
        );
    }
    let project_row = row(&out(&["--json"]), "project", "node_hours");
    assert!(
        is(&project_row["left"], 5.0) && project_row["limit"] == 5,
        "{project_row}"
    );
    assert_eq!(project_row["key"], "slurm.budget.project_node_hours");
    let table = out(&[]).out();
    let line = table
        .lines()
        .find(|line| line.starts_with("project  node-hours"));
    assert!(line.is_some_and(|line| line.contains("--set")), "{table}");
    // Without a limit the same is counted once it was used.
    let plain = World::new().unwrap();
    let script = "id=$(sbatch --parsable --wrap 'sleep 4'); agent-sandbox wait $id; \
         for i in {1..60}; do agent-sandbox budget | grep '^session  node-hours  *0\\.[0-9]' && exit; sleep 1; done; exit 9";
    plain.inside(script).run().good();
}

/// Ways to more hours than there are. Each is refused, or counts.
#[test]
fn there_is_no_way_to_more_hours() {
    let Some(world) = World::new() else { return };
    let refused = |script: &str| {
        let output = with_nodes(&world, 2, script).run();
        let said = output.err();
        assert!(
            output.code != 0 && said.contains("slurm.budget."),
            "{script}: {output}"
        );
        assert_eq!(queued(&world), 0, "{script}: {output}");
        output
    };
    for words in [
        "-t 121",
        "-N3 -t 60",
        "-N1-3 -t 60",
        "-n3 -t 60",
        "-t 0",
        "-t UNLIMITED",
        "-t 61 --array=1-2",
        "-t 61 --array=1,7%1",
        "-t 121 --begin=now+90days",
        "-t 121 --time-min=1",
        "-t 121 --requeue",
        "-t 121 --dependency=singleton",
        "-p long -N3",
        "-t 41 -w nowhere1,nowhere2,nowhere3",
    ] {
        refused(&format!("sbatch -H {words} --wrap true"));
    }
    refused("SBATCH_TIMELIMIT=121 sbatch -H --wrap true");
    refused("printf '#!/bin/sh\\n#SBATCH -t 121\\n' > x; sbatch -H x");
    refused("salloc -N1 -t 121 true");
    refused("srun -N1 -t 121 true");
    refused("sbatch -H -t 1 : -t 121 --wrap true || sbatch -H -t 121 --wrap true");
    let output = refused("sbatch -H -N2 -t 90 --wrap true");
    assert!(output.err().contains("--time=60"), "{output}");
    assert!(output.err().contains("agent-sandbox budget"), "{output}");
    // An allocation counts as a whole, its steps do not again, and what it did not use comes back.
    let steps = "salloc -Q -N1 -t 120 bash -c 'srun -n1 true && srun -n1 -t 60 true && ! sbatch -H -t 1 --wrap true'";
    with_nodes(&world, 2, steps).run().good();
    // A job that is there does not become more.
    let changes = [
        "TimeLimit=121",
        "TimeLimit=UNLIMITED",
        "TimeLimit+=1",
        "TimeLimit=+1",
        "NumNodes=2",
        "NumCPUs=64",
        "NumTasks=64",
        "OverSubscribe=NO",
        "Partition=long",
        "MinMemoryNode=100G",
    ];
    for change in changes {
        let script = format!(
            "for i in {{1..40}}; do id=$({HOUR} -H --parsable --wrap true) && break; sleep 1; done; \
             scontrol update JobId=$id {change}; code=$?; scancel $id; exit $code"
        );
        let output = with_nodes(&world, 2, &script).run();
        let said = output.err();
        assert!(
            output.code != 0 && said.contains("slurm.budget."),
            "{change}: {output}"
        );
    }
    // What has room may become more, and counts then.
    let script = format!(
        "for i in {{1..40}}; do id=$({HOUR} -H --parsable --wrap true) && break; sleep 1; done; \
         scontrol update JobId=$id TimeLimit=120 || exit 8; scontrol update JobId=$id TimeLimit=1 || exit 9; \
         sbatch -H -N1 -t 61 --wrap true; code=$?; scancel --me; exit $code"
    );
    let output = with_nodes(&world, 3, &script).run();
    assert!(
        output.code == 1 && output.err().contains("slurm.budget."),
        "{output}"
    );
    // A job that puts itself back into the queue gets as many runs as there are hours. Slurm waits two minutes before a second
    // run (slurm.conf(5), AuthInfo: cred_expire), which is not waited for: it counts at once.
    let again = "for i in {1..40}; do \
         id=$(sbatch -N1 -t 59 --parsable -o runs.txt --wrap 'echo run; sleep 2; scontrol requeue $SLURM_JOB_ID; sleep 9') && break; \
         sleep 1; done; until grep -q 'slurm.budget\\|REQUEUE' runs.txt; do sleep 0.2; done; \
         sbatch -H -N1 -t 62 --wrap true; code=$?; scancel --me; exit $code";
    for (hours, requeued) in [(1, false), (2, true)] {
        let output = with_nodes(&world, hours, again).run();
        let runs = world.read("runs.txt");
        assert!(
            runs.contains("REQUEUE") == requeued && runs.contains("slurm.budget.") != requeued,
            "{runs}"
        );
        assert!(
            output.code == 1 && output.err().contains("slurm.budget."),
            "{output}"
        );
        fs::remove_file(world.project().join("runs.txt")).unwrap();
    }
}

/// `slurmctld` does one key, or some tasks, and then refuses the rest: what it did counts.
#[test]
fn a_change_of_which_slurm_does_a_part_counts() {
    let Some(world) = World::new() else { return };
    for (made, change, longer) in [
        (
            "sbatch -H -N1 -t 1 --parsable --wrap true",
            "TimeLimit=60 Nice=-100",
            "1:00:00",
        ),
        // Of a task that runs nobody may make the limit longer.
        (
            "sbatch -N1 -n1 -t 1 --parsable --array=1-3%1 -o none --wrap 'sleep 50'",
            "TimeLimit=20",
            "20:00",
        ),
    ] {
        let script = format!(
            "id=$({made}) || exit 7; for i in {{1..60}}; do squeue -h -j $id -t running,pending -o '%t %r' | grep -q '^R\\|Held' && break; sleep 0.5; done; \
             scontrol update JobId=$id {change} && exit 8; squeue -h -r -j $id -o 'limit %l'; \
             sbatch -H -N1 -t 90 --wrap true; code=$?; scancel --me; exit $code"
        );
        let output = with_nodes(&world, 2, &script).run();
        if !output.out().contains(&format!("limit {longer}\n")) {
            println!("not checked: {change}: this Slurm refuses all of it or none: {output}");
            continue;
        }
        assert!(
            output.code == 1 && output.err().contains("slurm.budget."),
            "{change}: {output}"
        );
        until("an empty queue", || queued(&world) == 0);
    }
}

/// From inside nobody reaches the ledger, or the answer of a request.
#[test]
fn the_ledger_and_the_answers_are_out_of_reach() {
    let Some(world) = World::new() else { return };
    let state = world.home(".local/state/agent-sandbox/slurm");
    let place = state.display();
    let script = format!(
        "for d in {place} $HOME/.local/state/agent-sandbox/slurm; do \
           echo x >> $d/ledger; rm -rf $d/ledger $d/pending; mkdir -p $d/pending; \
           for i in {{1..40}}; do for f in $d/pending/??????; do echo '{{\"number\":1,\"approved\":true}}' > $f.answer; done; sleep 0.1; done; \
         done & \
         timeout 8 {HOUR} -H -N1 --wrap true; echo \"code $?\"; agent-sandbox pending; agent-sandbox approve abcdef; \
         agent-sandbox deny abcdef; kill %1"
    );
    let before = fs::metadata(state.join("ledger")).map_or(0, |data| data.len());
    let output = world.inside(&script).set("slurm.confirm.minutes=30").run();
    assert!(!output.out().contains("code 0"), "{output}");
    assert_eq!(queued(&world), 0, "{output}");
    assert_eq!(
        output.err().matches("approves of no job").count(),
        3,
        "{output}"
    );
    let after = fs::metadata(state.join("ledger")).map_or(0, |data| data.len());
    assert!(after >= before, "the ledger is there");
    let text = fs::read_to_string(state.join("ledger")).unwrap_or_default();
    assert!(!text.lines().any(|line| line == "x"), "written from inside");
}

/// The requests of this project that wait.
fn pending(world: &World) -> Vec<Value> {
    let said = world.launcher(&["pending", "--json"]).good();
    let all: Vec<Value> = serde_json::from_str(&said.out()).unwrap_or_else(|_| panic!("{said}"));
    let project = world.project().display().to_string();
    let its = all
        .into_iter()
        .filter(|one| one["project"] == project.as_str());
    its.collect()
}

/// The id of the only one, once it is there.
fn the_pending(world: &World) -> String {
    until("a request that waits", || !pending(world).is_empty());
    let all = pending(world);
    assert_eq!(all.len(), 1, "{all:?}");
    all[0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_job_above_the_users_threshold_waits_for_approval() {
    let Some(world) = World::new() else { return };
    let confirmed = |script: &str| world.inside(script).set("slurm.confirm.node_hours=1");
    // What is below does not wait, and a test of one neither.
    confirmed("sbatch -N1 -t 60 -H --wrap true && sbatch --test-only -N1 -t 61 --wrap true && scancel --me")
        .run()
        .good();
    assert!(pending(&world).is_empty());

    // What was approved is what runs, whatever becomes of the script meanwhile.
    world.write(
        "job.sh",
        "#!/bin/sh\n#SBATCH -N1 -t 90 -o out.txt\necho as it was\n",
    );
    let session = confirmed("sbatch -W -J plain job.sh").start();
    let id = the_pending(&world);
    world.write(
        "job.sh",
        "#!/bin/sh\n#SBATCH -N1 -t 90 -o out.txt\necho changed\n",
    );
    let list = world.launcher(&["pending"]).good().out();
    assert!(
        list.contains(&id) && list.contains("1.5 node-hours"),
        "{list}"
    );
    assert!(list.contains("slurm.confirm.node_hours"), "{list}");
    assert!(list.contains("called `plain`"), "{list}");
    // By which one sees that the file has changed.
    let held = "script of 54 bytes, SHA-256 ";
    assert!(list.contains(held), "{list}");
    assert_eq!(queued(&world), 0, "it waits");
    // Nobody else answers.
    let other = World::of(world.cluster, &world.cluster.bob);
    let others = other.launcher(&["approve", &id]);
    assert!(
        others.code != 0 && others.err().contains("no request"),
        "{others}"
    );
    let said = world.launcher(&["approve", &id.to_uppercase()]).good();
    assert!(said.out().starts_with("approved: sbatch"), "{said}");
    let output = session.end().good();
    assert!(output.err().contains(&format!("approve {id}")), "{output}");
    assert!(
        output.err().contains("slurm.confirm.node_hours"),
        "{output}"
    );
    assert_eq!(world.read("out.txt"), "as it was\n");
    // Once.
    let twice = world.launcher(&["approve", &id]);
    assert!(
        twice.code != 0 && twice.err().contains("no request"),
        "{twice}"
    );
    let wrong = world.launcher(&["approve", "../../x"]);
    assert!(
        wrong.code != 0 && wrong.err().contains("is no id"),
        "{wrong}"
    );

    // Denied.
    let session = confirmed("sbatch -N1 -t 61 -H --wrap true").start();
    let id = the_pending(&world);
    world.launcher(&["deny", &id]).good();
    let output = session.end();
    assert!(
        output.code == 1 && output.err().contains("denied"),
        "{output}"
    );

    // Nobody answers.
    let session = confirmed("salloc -N1 -t 61 true")
        .set("slurm.confirm.wait_minutes=1")
        .start();
    let id = the_pending(&world);
    let output = session.end();
    assert!(
        output.code == 1 && output.err().contains("did not answer"),
        "{output}"
    );
    let late = world.launcher(&["approve", &id]);
    assert!(
        late.code != 0 && late.err().contains("no request"),
        "{late}"
    );
    assert_eq!(queued(&world), 0);
    let log = world.launcher(&["log", "--json"]).good().out();
    for word in ["asked", "approved", "denied", "withdrawn"] {
        assert!(
            log.contains(&format!("\"approval\": \"{word}\"")),
            "{word}: {log}"
        );
    }
}

/// A request goes with who made it.
#[test]
fn a_request_ends_with_its_command_and_with_its_chaperon() {
    let Some(world) = World::new() else { return };
    let confirmed = |script: &str| world.inside(script).set("slurm.confirm.node_hours=1");
    let session = confirmed(
        "sbatch -N1 -t 61 -H --wrap true & sleep 3; kill %1; wait %1; touch killed; sleep 5",
    )
    .start();
    let id = the_pending(&world);
    until("the command's end", || {
        world.project().join("killed").exists()
    });
    until("no request", || pending(&world).is_empty());
    let late = world.launcher(&["approve", &id]);
    assert!(late.code != 0, "{late}");
    session.end().good();

    let session = confirmed("sbatch -N1 -t 61 -H --wrap true").start();
    let id = the_pending(&world);
    let file = world
        .home(".local/state/agent-sandbox/slurm/pending")
        .join(&id);
    let held = chaperon_of(&file);
    kill(Pid::from_raw(held), Signal::SIGKILL).unwrap();
    let output = session.end();
    assert!(output.code != 0, "{output}");
    assert!(pending(&world).is_empty() && !file.exists());
    let late = world.launcher(&["approve", &id]);
    assert!(
        late.code != 0 && late.err().contains("no request"),
        "{late}"
    );
    assert_eq!(queued(&world), 0);
}

/// The process that has a file open, of those that are chaperons.
fn chaperon_of(file: &Path) -> i32 {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut found = processes.filter_map(|process| {
        let number = process.file_name().to_str()?.parse().ok()?;
        let mut open = fs::read_dir(process.path().join("fd")).ok()?.flatten();
        let target = |fd: fs::DirEntry| fs::read_link(fd.path()).ok();
        let name = file.file_name()?.to_str()?;
        let is = |path: PathBuf| {
            let last = path
                .file_name()
                .and_then(|last| last.to_str())
                .unwrap_or_default();
            path.parent() == file.parent() && last.contains(name)
        };
        open.any(|fd| target(fd).is_some_and(is)).then_some(number)
    });
    found.next().expect("somebody holds it")
}

/// A job that was approved does not become more, and the approval is of one run.
#[test]
fn an_approved_job_stays_what_it_was() {
    let Some(world) = World::new() else { return };
    let script = "id=$(sbatch -N1 -t 61 -H --parsable --wrap true) || exit 7; \
         scontrol update JobId=$id TimeLimit=62 && exit 8; scontrol update JobId=$id NumNodes=2 && exit 9; \
         scontrol requeuehold $id && exit 10; scontrol update JobId=$id TimeLimit=30; scancel $id";
    let session = world
        .inside(script)
        .set("slurm.confirm.node_hours=1")
        .start();
    let id = the_pending(&world);
    world.launcher(&["approve", &id]).good();
    let output = session.end().good();
    assert!(
        output.err().contains("needs the user's approval"),
        "{output}"
    );
}

/// A line and the bell, where the session's terminal is; nothing that a job is called speaks to it.
#[test]
fn the_user_in_front_of_the_terminal_is_told() {
    let Some(world) = World::new() else { return };
    let call = world
        .inside(
            "name=$'a\\e]0;owned\\a\\nagent-sandbox: all is well'; printf '#!/bin/sh\\n' > \"$name\"; \
             sbatch -N1 -t 61 -H \"$name\" 2> said.txt; echo \"ended\" $?",
        )
        .set("slurm.confirm.minutes=60");
    let mut terminal = Terminal::start(&call.at_terminal());
    terminal.expect("waits for your approval");
    let id = the_pending(&world);
    terminal.expect(&format!("agent-sandbox approve {id}"));
    let list = world.launcher(&["pending"]).good().out();
    assert!(list.contains("a\\u{1b}]0;owned\\u{7}"), "{list:?}");
    assert!(!list.contains(['\u{1b}', '\u{7}']), "{list:?}");
    let screen = terminal.screen();
    assert!(
        screen.contains('\u{7}') && !screen.contains("\u{1b}]0;"),
        "{screen:?}"
    );
    assert!(
        !screen.contains("\nagent-sandbox: all is well"),
        "{screen:?}"
    );
    world.launcher(&["deny", &id]).good();
    terminal.expect("ended 1");
    terminal.end();
}
