//! What a review found, tried again: steps of the user's own in a recorded job, words for programs
//! of the site's, allocations that nobody records, and directories that Slurm tells about.

use std::fs;
use std::time::{Duration, Instant};

use crate::processes::{Process, marked};
use crate::world::{PATIENCE, Side, World, until};

/// Ids of this world's jobs, with names and states, as Slurm has them.
fn queue(world: &World, name: &str) -> String {
    let user = &world.user.name;
    world
        .real(&["squeue", "-h", "-u", user, "-n", name, "-o", "%i"])
        .word()
}

#[test]
fn sattach_types_into_no_step() {
    let Some(world) = World::new() else { return };
    let id = world
        .inside("sbatch --parsable -n1 -t 2 -o begun.txt --wrap 'echo begun; sleep 40'")
        .run()
        .good()
        .word();
    world.until(Side::Inside, "begun.txt", "begun");
    // The user looks into the job, outside of every jail, with a shell that waits for words.
    let shell = world
        .outside(&format!(
            "(echo 'echo shell-is-here > shell.txt'; sleep 15) | srun --jobid={id} --overlap bash"
        ))
        .start();
    world.until(Side::Outside, "shell.txt", "shell-is-here");
    let output = world.inside(&format!(
        "for step in 0 1; do (echo 'cat ~/.ssh/id_rsa; touch ~/.ssh/typed'; sleep 1) | sattach {id}.$step; echo $?; done"
    ))
    .run();
    assert!(
        output.err().contains("sattach is refused") && !output.out().contains('0'),
        "{output}"
    );
    assert!(!world.home(".ssh/typed").exists(), "{output}");
    world.real(&["scancel", &id]);
    let shown = shell.end();
    assert!(!shown.out().contains(&world.cluster.marker), "{shown}");
}

#[test]
fn a_pending_allocation_that_lost_its_salloc_is_recorded_and_counts() {
    let Some(world) = World::new() else { return };
    // slurmctld ends a job whose salloc it cannot answer (_kill_job_on_msg_fail, src/slurmctld/proc_req.c): salloc is ended when it
    // has been told.
    // Before 26.05 salloc does nothing about SIGALRM: it ends, and the allocation stays in the queue. Since then it catches all
    // that a jail can send it, and somebody outside has to end it.
    let name = format!("lost-{}", &world.cluster.marker[6..14]);
    let (end, code) = match world.cluster.release() < (26, 5) {
        true => ("kill -ALRM $!", 142),
        false => ("touch queued", 137),
    };
    let running = world
        .inside(&format!(
            "salloc -J {name} --begin=now+200 -t 1 true 2> said.txt & for i in $(seq 600); do grep -q 'Pending job allocation' said.txt && break; sleep 0.1; done
             [ $i -lt 600 ] || echo too late for this test: nothing is queued; {end}; wait $!; echo ended $?
             sbatch -H -t 1 --wrap true; echo sbatch $?
             squeue -h -o %j; scancel $(squeue -h -n {name} -o %i); squeue -h -n {name} | wc -l"
        ))
        .set("slurm.limits.jobs=1")
        .start();
    if code == 137 {
        until("the salloc", || world.project().join("queued").exists());
        let real = |process: &Process| {
            fs::read_link(process.path("exe")).is_ok_and(|exe| exe.ends_with("bin/salloc"))
        };
        let sallocs = marked(&world, &name);
        sallocs
            .iter()
            .filter(|one| real(one))
            .for_each(Process::kill);
    }
    let output = running.end();
    // Of a job that is not counted: whether Slurm has it.
    let user = &world.user.name;
    let known = ["squeue", "-t", "all", "-u", user, "-o", "%A %j %T %r %V"];
    let known = world.real(&known).out();
    assert!(
        output.out().contains(&format!("ended {code}"))
            && output.out().contains("sbatch 1")
            && output.err().contains("slurm.limits.jobs")
            && output.out().contains(&name)
            && output.out().ends_with("\n0\n"),
        "{output}\nSlurm has:\n{known}"
    );
    assert_eq!(queue(&world, &name), "", "{output}");
}

#[test]
fn a_submission_that_was_ended_early_is_recorded() {
    let Some(world) = World::new() else { return };
    let name = format!("early-{}", &world.cluster.marker[6..14]);
    // What became of those that were ended last is known a while later.
    let running = world
        .inside(&format!(
            "for after in 1 2 3 4 5 6 7 8 9; do sbatch -H -J {name} -t 1 --wrap true > /dev/null & sleep 0.00$after; kill -TERM $!; done; wait; sleep 5; touch asked
             until [ -e over ]; do scancel -n {name}; sleep 0.5; done"
        ))
        .start();
    until("the submissions", || world.project().join("asked").exists());
    let deadline = Instant::now() + PATIENCE / 3;
    while !queue(&world, &name).is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(200));
    }
    world.write("over", "");
    let output = running.end().good();
    assert_eq!(queue(&world, &name), "", "not within reach: {output}");
}

#[test]
fn no_word_reaches_the_mail_program_as_an_option() {
    let Some(world) = World::new() else { return };
    let output = world
        .inside(
            "sbatch -H --mail-type=ALL --mail-user=-X!/tmp/x --wrap true; echo $?
             echo -e '#!/bin/sh\\n#SBATCH --mail-user=a,-X' | sbatch -H; echo $?
             id=$(sbatch --parsable -H --mail-user=a.b@example.org --wrap true); echo $?
             scontrol update job=$id MailUser=-X; echo $?
             scontrol update job=$id Dependency=expand:$id; echo $?; scancel $id",
        )
        .run();
    assert_eq!(output.out(), "255\n255\n0\n1\n1\n", "{output}");
    assert_eq!(world.jobs(Side::Inside).len(), 1, "{output}");
}

#[test]
fn what_a_job_says_does_not_tell_which_directories_exist() {
    let Some(world) = World::new() else { return };
    if world.lacks("metadata", "which directories exist") {
        return;
    }
    let output = world
        .inside(
            "for dir in ~/.ssh ~/.no-such ~/.ssh/id_rsa; do
                 sbatch -W -o $PWD/batch.txt --chdir=$dir --wrap true > /dev/null; echo $?
                 srun -Q --chdir=$dir true 2> step.txt; echo $?
                 salloc -Q --chdir=$dir true 2> allocation.txt; echo $?
                 cat batch.txt step.txt allocation.txt | sed \"s:$dir:DIR:g; s/[0-9][0-9]*/N/g\"; rm *.txt
                 echo ==
             done",
        )
        .run();
    let answers = output.out();
    let answers: Vec<&str> = answers.split("==\n").collect();
    assert_eq!(answers.len(), 4, "{output}");
    assert!(
        answers[0] == answers[1] && answers[1] == answers[2],
        "{output}"
    );
    assert!(!output.out().contains("going to /tmp"), "{output}");
}

#[test]
fn the_directory_that_was_asked_for_is_shown() {
    let Some(world) = World::new() else { return };
    world.same(
        "mkdir sub; id=$(sbatch --parsable -H --chdir=sub --wrap true)
         squeue -h -j $id -o %Z; squeue -h -j $id -O WorkDir:300
         scontrol show job $id | grep WorkDir
         scancel $id; until sacct -X -n -j $id -o State | grep -q CANCELLED; do sleep 0.3; done; sacct -X -P -j $id -o State,WorkDir,JobName
         salloc --no-shell -Q -t 1 -J kept$$ --chdir=sub; squeue -h -n kept$$ -o %Z; scancel -n kept$$
         srun --chdir=sub bash -c pwd",
    );
    let output = world
        .inside(
            "id=$(sbatch --parsable -H --chdir=/nowhere --wrap true); squeue --json | grep current_working; scancel $id
             until sacct -X -n -j $id -o State | grep -q CANCELLED; do sleep 0.3; done; sacct --json -j $id | grep working_directory; sacct -j $id -o WorkDir",
        )
        .run();
    assert_eq!(
        output.out().matches("/nowhere\"").count() + output.out().matches("\\/nowhere\"").count(),
        2,
        "{output}"
    );
    assert!(output.err().contains("--parsable2"), "{output}");
}
