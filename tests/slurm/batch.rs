//! sbatch in ordinary use, compared with the same outside.

use crate::world::{Side, World};

/// Says what a job sees of itself.
const TELL: &str = r#"#!/bin/bash
#SBATCH --job-name=tell
echo "0=$0 pwd=$PWD umask=$(umask) user=$(id -un) name=$SLURM_JOB_NAME arguments=$#"
printf '[%s]\n' "$@"
echo "submitted in $SLURM_SUBMIT_DIR, node ${SLURMD_NODENAME:+known}"
read -r line && echo "input: $line" || echo "no input"
tr '\0' '\n' < /proc/$$/cmdline
echo "to standard error" >&2
"#;

#[test]
fn a_script_runs_as_it_does_outside() {
    let Some(world) = World::new() else { return };
    for call in [
        "sbatch tell.sh",
        "sbatch tell.sh a 'b c' '' '*' -n --output=x",
        "umask 027; sbatch ./tell.sh",
        "mkdir below; cd below; sbatch ../tell.sh",
        "sbatch --chdir=below tell.sh; mkdir -p below; sbatch --chdir=below tell.sh",
        "sbatch -J other -Q tell.sh; echo $?",
        "/usr/bin/sbatch --parsable tell.sh; /bin/sbatch tell.sh | cut -d' ' -f1-3",
        "sbatch -Q -D / -o $PWD/x --wrap pwd; until [ -s x ]; do sleep 0.1; done",
        "cd /; sbatch -Q -o $OLDPWD/x --wrap pwd; until [ -s $OLDPWD/x ]; do sleep 0.1; done",
    ] {
        world.clear();
        world.write("tell.sh", TELL);
        world.same(call);
    }
}

#[test]
fn scripts_from_standard_input_and_wrap() {
    let Some(world) = World::new() else { return };
    world.same(
        r#"sbatch <<< $'#!/bin/bash\n#SBATCH -o stdin.txt\necho stdin "$@"'
        printf '#!/bin/sh\necho "pipe $*"\n' | sbatch -o pipe.txt
        sbatch -o wrap.txt --wrap 'echo "wrapped $0"; echo "$SLURM_JOB_NAME"; exit 3'
        sbatch --wrap 'true' extra words; echo $?
        sbatch -o hostname.txt --wrap='id -un'"#,
    );
}

#[test]
fn arrays_run_each_task() {
    let Some(world) = World::new() else { return };
    world.write(
        "array.sh",
        "#!/bin/bash\n#SBATCH --array=1-3\necho $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID \
         $SLURM_ARRAY_TASK_MIN $SLURM_ARRAY_TASK_MAX $SLURM_ARRAY_TASK_COUNT\n",
    );
    world.same("sbatch array.sh");
    world.clear();
    world.same("sbatch -a 0,5-7:2%1 -o '%x-%a.txt' --wrap 'echo $SLURM_ARRAY_TASK_ID'");
}

#[test]
fn parsable_wait_and_test_only() {
    let Some(world) = World::new() else { return };
    world.same(
        "sbatch --parsable -o /dev/null --wrap true; sbatch --parsable -Q -o /dev/null --wrap true",
    );
    world.same(
        "sbatch --wait -o /dev/null --wrap 'exit 7'; echo $?; sbatch -W -o /dev/null --wrap 'kill -9 $$'; echo $?",
    );
    world.same("sbatch --test-only --wrap true 2>&1 | sed -E 's/Job [0-9]+/Job/; s/(start at|on nodes) [^ ]*/\\1/g'");
}

#[test]
fn exit_codes_and_signals_are_in_the_accounting() {
    let Some(world) = World::new() else { return };
    world.same(
        r#"for what in 'exit 0' 'exit 42' 'kill -TERM $$' 'kill -KILL $$' 'exit 300'; do
            id=$(sbatch --parsable -o /dev/null -J "$what" --wrap "$what")
            until sacct -X -n -j "$id" -o State | grep -qE 'COMPLETED|FAILED|CANCELLED'; do sleep 0.3; done
            sacct -P -j "$id" -o JobID,State,ExitCode,DerivedExitCode | grep -v extern
        done"#,
    );
}

#[test]
fn jobs_are_held_released_requeued_and_cancelled() {
    let Some(world) = World::new() else { return };
    world.same(
        r#"id=$(sbatch --parsable --hold -o held.txt --wrap 'echo ran')
        squeue -h -j $id -o '%T %r %j %u %D'
        scontrol release $id; echo $?
        until grep -q ran held.txt 2>/dev/null; do sleep 0.1; done
        id=$(sbatch --parsable -o hold.txt --begin=now+1hour --wrap 'echo ran')
        scontrol hold $id; squeue -h -j $id -o '%T %r'; scancel $id; echo $?; squeue -h -j $id -o %T"#,
    );
    world.clear();
    world.same(
        r#"id=$(sbatch --parsable --requeue -o r.txt --open-mode=append --wrap '
            echo "run $SLURM_RESTART_COUNT"; [ "$SLURM_RESTART_COUNT" = 1 ] || sleep 60')
        until grep -q run r.txt 2>/dev/null; do sleep 0.1; done
        scontrol requeue $id; echo $?
        until [ "$(squeue -h -j $id -o %r)" = BeginTime ]; do sleep 0.2; done
        sleep 1.5 # slurmd takes no job again in the second in which it was revoked
        scontrol update job=$id StartTime=now; echo $?
        until grep -q 'run 1' r.txt; do sleep 0.2; done
        grep -c . r.txt > /dev/null; sed -i '/CANCELLED\|slurmstepd/d' r.txt"#,
    );
}

#[test]
fn a_job_that_depends_on_another_waits() {
    let Some(world) = World::new() else { return };
    world.same(
        r#"first=$(sbatch --parsable -H -o order.txt --open-mode=append --wrap 'echo first; exit 1')
        second=$(sbatch --parsable -d afterany:$first -o order.txt --open-mode=append --wrap 'echo second')
        never=$(sbatch --parsable --dependency=afterok:$first -o never.txt --wrap 'echo never')
        squeue -h -j $second,$never -o '%j %T %r'
        scontrol release $first
        until grep -q second order.txt 2>/dev/null; do sleep 0.1; done
        scancel $never"#,
    );
}

#[test]
fn a_job_submits_a_job() {
    let Some(world) = World::new() else { return };
    world.write(
        "outer.sh",
        "#!/bin/bash\n#SBATCH -o outer.txt\necho outer\nsbatch inner.sh one\nsqueue -h -n inner -o '%j %u'\n",
    );
    world.write(
        "inner.sh",
        "#!/bin/bash\n#SBATCH -J inner -H -o inner.txt\necho inner $1\nsrun echo step\n",
    );
    world.same(
        r#"sbatch outer.sh
        until id=$(squeue -h -n inner -o %i) && [ -n "$id" ]; do sleep 0.1; done
        until grep -q "inner" outer.txt; do sleep 0.1; done
        scontrol release $id"#,
    );
    assert!(world.read("inner.txt").contains("step"));
}

#[test]
fn a_cancellation_is_said_in_the_users_file() {
    let Some(world) = World::new() else { return };
    world
        .inside(
            r#"id=$(sbatch --parsable -o cancelled.txt --wrap 'echo begun; sleep 60')
        until grep -q begun cancelled.txt 2>/dev/null; do sleep 0.1; done
        scancel $id"#,
        )
        .run()
        .good();
    world.settle(Side::Inside);
    world.until(Side::Inside, "cancelled.txt", "CANCELLED AT");
    let text = world.read("cancelled.txt");
    // Who says it stands before it, since 26.05 when.
    let who = match world.cluster.release() < (26, 5) {
        true => "slurmstepd",
        false => "[20",
    };
    assert!(
        text.starts_with(&format!("begun\n{who}")) && text.contains(" error: *** JOB "),
        "{text}"
    );
}

#[test]
fn the_time_limit_is_said_in_the_users_file() {
    let Some(world) = World::new() else { return };
    let output = world
        .inside("sbatch --parsable -t 5 -o limit.txt --wrap 'echo begun; sleep 600'")
        .run()
        .good();
    world.until(Side::Inside, "limit.txt", "begun");
    // Limits are minutes; their end can be set to the second, and is looked at twice a minute.
    let job = format!("job={}", output.word());
    world
        .cluster
        .said("scontrol", ["update", &job, "EndTime=now+1"]);
    world.until(Side::Inside, "limit.txt", "DUE TO TIME LIMIT");
    world.settle(Side::Inside);
    let state = world.real(&[
        "sacct",
        "-X",
        "-n",
        "-P",
        "-j",
        &output.word(),
        "-o",
        "State",
    ]);
    assert_eq!(state.word(), "TIMEOUT");
}

#[test]
fn signals_that_a_job_asks_for_reach_its_script() {
    let Some(world) = World::new() else { return };
    world.same(
        r#"id=$(sbatch --parsable -o signal.txt --wrap '
            trap "echo got USR1; exit 5" USR1; echo ready; while :; do sleep 0.1; done')
        until grep -q ready signal.txt 2>/dev/null; do sleep 0.1; done
        scancel --signal=USR1 --batch $id
        until grep -q got signal.txt; do sleep 0.1; done
        id=$(sbatch --parsable -o term.txt --wrap '
            trap "echo got TERM; exit 6" TERM; echo ready; while :; do sleep 0.1; done')
        until grep -q ready term.txt 2>/dev/null; do sleep 0.1; done
        scancel --full --signal=TERM $id
        until grep -q got term.txt; do sleep 0.1; done; while squeue -h -j $id | grep -q .; do sleep 0.1; done; sed -i "/slurmstepd/d; /Terminated/d" term.txt"#,
    );
}

#[test]
fn mistakes_are_said_in_slurms_words() {
    let Some(world) = World::new() else { return };
    world.write("job.sh", "#!/bin/bash\ntrue\n");
    for call in [
        "sbatch missing.sh",
        "sbatch",
        "sbatch .",
        "sbatch --partition=nowhere job.sh",
        "sbatch --account=nobody job.sh",
        "sbatch --mem=1000G job.sh",
        "sbatch --nodelist=nowhere job.sh",
        "sbatch --dependency=afterok:999999999 job.sh",
        "chmod 0 job.sh; sbatch job.sh",
        "sbatch --version",
        "sbatch --usage",
    ] {
        world.same(&format!("{call} < /dev/null; echo $?"));
    }
    for call in [
        "sbatch --time=soon job.sh",
        "sbatch --array=9-1 job.sh",
        "sbatch --parsable=x --wrap true",
        "sbatch --no-such-option --wrap true",
        "sbatch --open-mode=sideways --wrap true",
        "sbatch --n=1 --wrap true",
        "sbatch --job-name",
        "salloc --no-such-option true",
        "srun --ntasks=many true",
        "squeue --no-such-option",
        "squeue -o",
        "squeue -j 1x",
        "sinfo --no-such-option",
        "sacct --no-such-option",
        "sacct -j nonsense",
        "scancel nonsense",
        "scancel",
    ] {
        world.both_fail(call);
    }
}
