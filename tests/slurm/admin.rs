//! What a site can put into Slurm beside agent-sandbox, from `profiles/site/slurm`: jobs of sessions are
//! recognised when they are submitted and on the nodes.

use std::fs;
use std::path::PathBuf;

use crate::own::Own;
use crate::world::{Side, World, until};

/// A file of the examples.
fn example(name: &str) -> String {
    let root = std::env::var_os("AGENT_SANDBOX_ROOT")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let path = root.join("profiles/site/slurm").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What a site adapts; the example must have it.
#[track_caller]
fn adapted(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "`{from}` in {text}");
    text.replace(from, to)
}

/// The column of a job in the accounting.
fn accounted(world: &World, job: &str, column: &str) -> String {
    let format = format!("--format={column}");
    let said = world.cluster.said("sacct", ["-nPX", "-j", job, &format]);
    said.trim().to_owned()
}

#[test]
fn jobs_of_sessions_are_marked_and_kept_to_partitions() {
    let rule = adapted(
        &example("job_submit.lua"),
        "students = { teaching = true },",
        "proj2 = { long = true },",
    );
    let spool = "SPOOL=\"${SLURM_CONF%/conf/*}/var/spool/$SLURMD_NODENAME\"";
    let prolog = adapted(
        &example("task_prolog.sh"),
        "SPOOL=/var/spool/slurmd\n",
        &format!("{spool}\n"),
    );
    let extra = [
        ("slurm.conf", "JobSubmitPlugins=lua\n"),
        ("job_submit.lua", rule.as_str()),
        ("task_prolog", prolog.as_str()),
    ];
    let Some(own) = Own::start("admin", &extra) else {
        return;
    };
    let world = World::of(own.cluster, &own.cluster.alice);
    marked_in_the_accounting(&world);
    kept_to_partitions(&world);
    told_on_the_nodes(&world);
}

fn marked_in_the_accounting(world: &World) {
    // A script of the user's that speaks of capsules is none: its first line decides what runs.
    world.write("own.sh", "#!/bin/sh\n# agent-sandbox capsule 1 4\nexit 0\n");
    let script = "sbatch --parsable -o o.txt --wrap true; sbatch --parsable -o o.txt own.sh;
                  srun sh -c 'echo $SLURM_JOB_ID'; salloc -Q sh -c 'echo $SLURM_JOB_ID'";
    let jobs = |side| {
        let said = world.on(side, script).run().good().out();
        let jobs: Vec<String> = said.lines().map(str::to_owned).collect();
        assert_eq!(jobs.len(), 4, "{said}");
        jobs
    };
    let (inside, outside) = (jobs(Side::Inside), jobs(Side::Outside));
    // What salloc asks for does not say who asks: it is the one that gets no mark.
    for (job, mark) in inside
        .iter()
        .zip(["agent-sandbox", "agent-sandbox", "agent-sandbox", ""])
    {
        until("the end of a job in the accounting", || {
            accounted(world, job, "State") == "COMPLETED"
        });
        assert_eq!(
            accounted(world, job, "AdminComment"),
            mark,
            "{job} of {inside:?}"
        );
    }
    for job in &outside {
        assert_eq!(
            accounted(world, job, "AdminComment"),
            "",
            "{job} of {outside:?}"
        );
    }
    // Nobody takes the mark away.
    let script = "id=$(sbatch --parsable -H -o o.txt --wrap true)\n\
                  scontrol update JobId=$id AdminComment=none; echo $? $id";
    let said = world.inside(script).run();
    let last = said.out().lines().last().unwrap_or_default().to_owned();
    let (status, job) = last.split_once(' ').unwrap_or_default();
    assert_ne!(status, "0", "{said}");
    let by_hand = world.real(&[
        "scontrol",
        "update",
        &format!("JobId={job}"),
        "AdminComment=none",
    ]);
    assert_ne!(by_hand.code, 0, "{by_hand}");
    let shown = world.cluster.said("scontrol", ["show", "job", job]);
    assert!(shown.contains("AdminComment=agent-sandbox"), "{shown}");
    world.real(&["scancel", job]).good();
    // Imitated, as the example says: the user's own script, which runs in no session.
    let launcher = world.cluster.launcher.display();
    world.write(
        "imitated.sh",
        format!("#!{launcher} job\n# agent-sandbox capsule 1 4\nnone\n"),
    );
    let said = world
        .outside("sbatch --parsable -H -o o.txt imitated.sh")
        .run()
        .good();
    let shown = world
        .cluster
        .said("scontrol", ["show", "job", &said.word()]);
    assert!(shown.contains("AdminComment=agent-sandbox"), "{shown}");
    world.real(&["scancel", &said.word()]).good();
}

fn kept_to_partitions(world: &World) {
    let why = "this site lets agents of account proj2 use partition long only, not debug";
    for command in [
        "sbatch -A proj2 -p debug -o o.txt --wrap true",
        "sbatch -A proj2 -o o.txt --wrap true",
        "sbatch -A proj2 -p long,debug -o o.txt --wrap true",
        "srun -A proj2 -p debug true",
    ] {
        let said = world.inside(command).run();
        assert!(
            said.code != 0 && said.err().contains(why),
            "{command}: {said}"
        );
        // The rule is for agents.
        world.outside(command).run().good();
    }
    for command in [
        "sbatch -A proj2 -p long -o o.txt --wrap true",
        "sbatch -A proj1 -p debug -o o.txt --wrap true",
        "srun -A proj2 -p long true",
    ] {
        world.inside(command).run().good();
    }
    // A job that waits is not moved out, neither from inside nor by the user, whom the rule stops for
    // this job. It is no wall: see the example's own words.
    let said = world
        .inside("sbatch --parsable -H -A proj2 -p long -o o.txt --wrap true")
        .run()
        .good();
    let job = format!("JobId={}", said.word());
    let moved = world
        .inside(&format!("scontrol update {job} Partition=debug"))
        .run();
    assert_ne!(moved.code, 0, "{moved}");
    let moved = world.real(&["scontrol", "update", &job, "Partition=debug"]);
    assert_ne!(moved.code, 0, "{moved}");
    world.real(&["scancel", &said.word()]).good();
}

fn told_on_the_nodes(world: &World) {
    world.write(
        "told.sh",
        "#!/bin/sh\n#SBATCH -n2 -o told.txt\necho batch $SITE_AGENT_SANDBOX ${AGENT_SANDBOX_STEP:-no} capsule\n\
         srun -n2 sh -c 'echo step $SITE_AGENT_SANDBOX ${AGENT_SANDBOX_STEP:-no} capsule'\n",
    );
    let script = "sbatch -W told.sh > /dev/null; cat told.txt
                  srun sh -c 'echo job $SITE_AGENT_SANDBOX'; salloc -Q srun sh -c 'echo allocation $SITE_AGENT_SANDBOX'";
    let inside = world.inside(script).run().good();
    // The capsule arrives whole, and stays outside.
    let expected = "batch batch no capsule\nstep step no capsule\nstep step no capsule\njob step\nallocation step\n";
    assert_eq!(inside.out(), expected, "{inside}");
    let outside = world.outside(script).run().good();
    let expected = "batch no capsule\nstep no capsule\nstep no capsule\njob\nallocation\n";
    assert_eq!(outside.out(), expected, "{outside}");
}
