//! Jobs and steps: each has a trail of its own, of what its script did and nothing else.

use std::collections::BTreeSet;

use agent_sandbox_events::record::What;

use crate::deeds::Trail;
use crate::sessions::Work;
use crate::site::{Site, WITH_FORKS, strace_works};
use crate::world::Side;

/// The number that sbatch printed.
pub(crate) fn number(text: &str) -> u32 {
    let words = text.split_whitespace();
    words
        .last()
        .and_then(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("no job in {text:?}"))
}

fn step<'a>(job: u32, step: &'a str) -> impl Fn(&Trail) -> bool + 'a {
    move |trail| trail.of.job == Some(job) && trail.of.step.as_deref() == Some(step)
}

#[test]
fn a_jobs_trail_names_exactly_what_its_script_did() {
    let Some(site) = Site::new("") else { return };
    if !strace_works() {
        return;
    }
    let world = site.alice();
    let work = Work::new(&world);
    world.write("job.sh", format!("#!/bin/bash\n{}\n", Work::under_strace()));
    let output = world
        .inside("sbatch -W -o job.txt job.sh")
        .set(WITH_FORKS)
        .set("trace.missing=true")
        .set("trace.mode=required")
        .run()
        .good();
    world.settle(Side::Inside);
    let job = number(&output.out());
    let trail = site.ended("trail of the job's script", step(job, "batch"));
    assert_eq!(trail.of.uid, world.user.uid.as_raw());
    work.same(&world, &trail);
    // The programs, one by one: the launcher, the chaperon and Slurm's daemon are not the job's.
    let started: Vec<String> = trail
        .started()
        .into_iter()
        .map(|exec| exec.path.rsplit('/').next().unwrap_or_default().to_owned())
        .filter(|name| !name.starts_with("python3") && name != "work.sh")
        .collect();
    assert_eq!(
        started,
        [
            "bash", "strace", "bash", "cat", "cp", "mkdir", "mv", "ln", "cat"
        ],
        "{}",
        trail.brief()
    );
    // What the session did is in the session's, with the same id.
    let session = site.ended("session", |other| {
        other.of.job.is_none() && other.of.session == trail.of.session
    });
    assert!(!session.has_opened("input.txt"), "{}", session.brief());
}

#[test]
fn each_step_has_a_trail_of_its_own() {
    let Some(site) = Site::new("") else { return };
    let world = site.alice();
    let files = ["one", "two", "three"].map(|name| format!("{name}.txt"));
    for file in &files {
        world.write(file, "text\n");
    }
    world.write(
        "job.sh",
        "#!/bin/bash\nsrun -n1 cat one.txt; srun -n2 cat two.txt; cat three.txt\n",
    );
    let output = world
        .inside("sbatch -W -n2 -o job.txt job.sh")
        .set("trace.mode=required")
        .run()
        .good();
    world.settle(Side::Inside);
    let job = number(&output.out());
    for (name, own) in [("0", "one.txt"), ("1", "two.txt"), ("batch", "three.txt")] {
        let trail = site.ended(&format!("trail of step {name}"), step(job, name));
        trail.whole();
        let opened: BTreeSet<&String> =
            files.iter().filter(|file| trail.has_opened(file)).collect();
        assert_eq!(
            opened,
            BTreeSet::from([&own.to_owned()]),
            "{}",
            trail.brief()
        );
    }
    // Two tasks of a step on one node are in one trail.
    let all = site.trails();
    let twos: Vec<&Trail> = all.iter().filter(|trail| step(job, "1")(trail)).collect();
    assert_eq!(
        twos.len(),
        1,
        "{}",
        all.iter().map(Trail::brief).collect::<String>()
    );
    let cats = twos[0]
        .started()
        .into_iter()
        .filter(|exec| exec.path.ends_with("/cat"));
    let processes: BTreeSet<u32> = cats.map(|exec| exec.actor.pid).collect();
    assert_eq!(processes.len(), 2, "{}", twos[0].brief());
}

/// A process that leaves its session and its parent, and outlives the step's first one, stays traced.
#[test]
fn what_a_job_leaves_behind_stays_in_its_trail() {
    let Some(site) = Site::new("") else { return };
    let world = site.alice();
    world.write("late.txt", "late\n");
    world.write(
        "job.sh",
        "#!/bin/bash\nsetsid sh -c '(sleep 1; cat late.txt > done.txt) &' &\nuntil [ -s done.txt ]; do sleep 0.1; done\n",
    );
    let output = world
        .inside("sbatch -W -o job.txt job.sh")
        .set(WITH_FORKS)
        .set("trace.mode=required")
        .run()
        .good();
    world.settle(Side::Inside);
    let trail = site.ended("trail of the job", step(number(&output.out()), "batch"));
    trail.whole();
    assert!(trail.has_opened("late.txt"), "{}", trail.brief());
    let exits = trail
        .records
        .iter()
        .filter(|record| matches!(record.what, What::Exit(_)));
    assert!(exits.count() >= 3, "{}", trail.brief());
}

#[test]
fn a_report_of_a_job_sums_it_up() {
    let Some(site) = Site::new("") else { return };
    let world = site.alice();
    world.write("summed.txt", "text\n");
    let output = world
        .inside("sbatch -W -o job.txt --wrap 'cat summed.txt'")
        .set("trace.mode=required")
        .run()
        .good();
    world.settle(Side::Inside);
    let job = number(&output.out());
    site.ended("trail of the job", step(job, "batch"));
    let word = job.to_string();
    for words in [
        &["report", &word][..],
        &["report", &word, "--markdown"],
        &["report", &word, "--json"],
    ] {
        let report = world.launcher(words).good().out();
        assert!(
            report.contains("summed.txt") && report.contains(&word),
            "{words:?}: {report}"
        );
    }
    let json = world.launcher(&["report", &word, "--json"]).good().out();
    serde_json::from_str::<serde_json::Value>(&json)
        .unwrap_or_else(|error| panic!("{error}: {json}"));
    // Nobody has such a job.
    let none = world.launcher(&["report", "4000000000"]);
    assert_ne!(none.code, 0, "{none}");
}
