//! No job is without a record, whatever ends its session, its chaperon or its sbatch.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::failure::{chaperon_of, descendants};
use crate::world::{Side, World, until};

/// The cluster's controller, which answers nobody until this is dropped.
struct Silent {
    controller: Pid,
    /// Held by one test at a time: it would not stay silent if another one woke it.
    _lock: Flock<File>,
}

impl Silent {
    fn new(world: &World) -> Self {
        let place = world.cluster.conf.parent().unwrap().parent().unwrap();
        let file = File::open(place.join("run/slurm/slurmctld.pid")).unwrap();
        let mut lock = Flock::lock(file, FlockArg::LockExclusive).unwrap();
        let mut text = String::new();
        lock.read_to_string(&mut text).unwrap();
        let controller = Pid::from_raw(text.trim().parse().unwrap());
        kill(controller, Signal::SIGSTOP).unwrap();
        Self {
            controller,
            _lock: lock,
        }
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = kill(self.controller, Signal::SIGCONT);
    }
}

/// Jobs of the project that Slurm has, and those of them that have a record.
fn jobs(world: &World) -> (BTreeSet<u32>, BTreeSet<u32>) {
    let all: BTreeSet<u32> = world.jobs(Side::Inside).into_keys().collect();
    let record = |job: &&u32| world.records().join(format!("{job}.json")).exists();
    let recorded = all.iter().filter(record).copied().collect();
    (all, recorded)
}

/// What the chaperons of this project have written and not yet settled.
fn intents(world: &World) -> usize {
    let place = world.records().with_file_name("intents");
    let project = format!("{}\"", world.project().display());
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let text = |entry: fs::DirEntry| fs::read_to_string(entry.path()).unwrap_or_default();
    entries
        .map(text)
        .filter(|text| text.contains(&project))
        .count()
}

const SUBMITS: &str = "squeue -h > /dev/null; echo ready > ready.txt; \
     until [ -e go.txt ]; do sleep 0.05; done; sbatch -H --wrap true & sbatch=$!; sleep 1; touch over.txt";

#[test]
fn a_session_that_ends_while_sbatch_runs_waits_for_its_job() {
    let Some(world) = World::new() else { return };
    let running = world.inside(SUBMITS).start();
    world.until(Side::Inside, "ready.txt", "ready");
    let silent = Silent::new(&world);
    world.write("go.txt", "");
    // The shell is over, and Slurm has not answered.
    until("the shell's end", || {
        world.project().join("over.txt").exists()
    });
    std::thread::sleep(Duration::from_millis(500));
    drop(silent);
    let output = running.end();
    let (all, recorded) = jobs(&world);
    assert_eq!(all.len(), 1, "{output}");
    assert_eq!(all, recorded, "{output}");
    until("the end of the intent", || intents(&world) == 0);
    // The same without anybody's help, at whatever moment.
    for number in 0..10 {
        let script = format!("sbatch -H --wrap true & sleep 0.0{number}; kill -9 $$");
        world.inside(&script).run();
    }
    let (all, recorded) = jobs(&world);
    assert_eq!(all, recorded);
    world.inside("scancel --me").run();
}

#[test]
fn a_job_whose_chaperon_was_killed_is_found_by_the_next_session() {
    let Some(world) = World::new() else { return };
    let script = format!("{SUBMITS}; sleep 60");
    let running = world.inside(&script).start();
    world.until(Side::Inside, "ready.txt", "ready");
    let chaperon = chaperon_of(running.pid()).expect("a chaperon");
    let silent = Silent::new(&world);
    world.write("go.txt", "");
    until("the real sbatch", || {
        let all = descendants(chaperon);
        all.iter().any(|(_, name)| name.starts_with("sbatch --"))
    });
    // It has asked Slurm by then, which has not answered.
    std::thread::sleep(Duration::from_secs(1));
    kill(chaperon, Signal::SIGKILL).unwrap();
    until("the chaperon's end", || {
        !Path::new(&format!("/proc/{chaperon}/cwd")).exists()
    });
    assert_eq!(intents(&world), 1, "it was killed too late for this test");
    drop(silent);
    let _ = kill(running.pid(), Signal::SIGTERM);
    running.end();
    until("the job that nobody waited for", || {
        jobs(&world).0.len() == 1
    });
    let (all, _) = jobs(&world);
    // What is another project's cannot be released. Any session of the user's may have recorded it by now.
    let job = all.first().unwrap();
    let script = format!("scontrol release {job} && scancel {job}");
    let output = world.inside(&script).run();
    assert_eq!(output.code, 0, "{output}");
    assert_eq!(jobs(&world).1, all);
    assert_eq!(intents(&world), 0);
}

#[test]
fn what_nothing_became_of_is_forgotten() {
    let Some(world) = World::new() else { return };
    let output = world.inside("sbatch -p no-such --wrap true; true").run();
    assert!(output.err().contains("sbatch: error: "), "{output}");
    let output = world
        .inside("squeue -h; sleep 6; squeue -h; sbatch -H --wrap true && scancel --me")
        .set("slurm.limits.jobs=1")
        .run()
        .good();
    assert_eq!(intents(&world), 0, "{output}");
}
