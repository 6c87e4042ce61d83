//! scancel and scontrol on own jobs.

use crate::world::{Side, World};

#[test]
fn own_jobs_are_cancelled_in_every_way() {
    let Some(world) = World::new() else { return };
    world.same(
        r#"new() { sbatch --parsable -H "$@" --wrap true; }
        a=$(new); b=$(new); scancel $a $b; echo $?; squeue -h -j $a,$b
        a=$(new -J byname-$$); scancel -n byname-$$; echo $?; squeue -h -j $a
        a=$(new -a 1-4); scancel ${a}_2 ${a}_[3-4]; squeue -h -r -j $a -o %K; scancel $a
        a=$(new -J s-$$); scancel --state=PENDING --name=s-$$ --quiet; squeue -h -j $a"#,
    );
}

#[test]
fn a_job_that_is_over_is_cancelled_without_a_word() {
    let Some(world) = World::new() else { return };
    world.same(
        r#"id=$(sbatch --parsable -W -o /dev/null --wrap true); scancel $id; echo $?
        id=$(sbatch --parsable -H --wrap true); scancel $id; scancel $id; echo $?; scancel -Q -n no-such-job-at-all; echo $?"#,
    );
}

#[test]
fn own_jobs_are_changed() {
    let Some(world) = World::new() else { return };
    world.same(
        r#"id=$(sbatch --parsable -H --wrap true)
        scontrol update job=$id Name=renamed TimeLimit=3 Comment='new comment'; echo $?
        squeue -h -j $id -o '%j %l %k'
        scontrol update JobId=$id Nice=10 Partition=long; echo $?; squeue -h -j $id -o '%P'
        for wrong in NoSuchKey=1 TimeLimit=soon; do scontrol update job=$id $wrong 2> /dev/null || echo failed; done
        scontrol hold $id; scontrol uhold $id; scontrol release $id; echo $?"#,
    );
    world.settle(Side::Inside);
}

#[test]
fn the_whole_project_is_cancelled_by_user_and_nothing_else() {
    let (Some(world), Some(other)) = (World::new(), World::new()) else {
        return;
    };
    let foreign = other.real(&[
        "sbatch",
        "--parsable",
        "-H",
        "-D",
        other.project().to_str().unwrap(),
        "--wrap",
        "true",
    ]);
    let foreign = foreign.good().word();
    let output = world
        .inside("a=$(sbatch --parsable -H --wrap true); scancel -u $USER; scancel --me; echo $a; squeue -h -j $a -o %T")
        .run();
    assert_eq!(output.out().lines().count(), 1, "{output}");
    let state = other
        .real(&["squeue", "-h", "-j", &foreign, "-o", "%T"])
        .word();
    other.real(&["scancel", &foreign]);
    assert_eq!(state, "PENDING");
}
