//! Which jobs are seen and touched: those of the project, unless the policy says otherwise.

use agent_sandbox_support::waiting::wait_for;

use crate::call::Output;
use crate::cluster::not_checked;
use crate::own::Own;
use crate::world::{Side, World};

/// A pending job of this world's user, outside of every jail.
fn foreign(world: &World, name: &str) -> String {
    let place = world.place(Side::Outside);
    let place = place.to_str().unwrap();
    let words = [
        "sbatch",
        "--parsable",
        "-H",
        "-D",
        place,
        "-J",
        name,
        "--comment",
        name,
        "-o",
        "/dev/null",
        "--wrap",
        "echo script-of-it",
    ];
    world.real(&words).good().word()
}

fn state(world: &World, id: &str) -> String {
    world
        .real(&["squeue", "-h", "-j", id, "-o", "%T/%l/%j/%P/%Q"])
        .word()
}

/// Everything that changes a job.
fn touch(world: &World, id: &str) -> Output {
    let script = r#"for id in @ID@ @ID@_1 @ID@.0 @ID@.batch '@ID@,@ID@' '@ID@_[1-3]'; do
            scancel $id; scontrol hold $id; scontrol release $id; scontrol requeue $id; scontrol suspend $id; scontrol resume $id
            scontrol update job=$id TimeLimit=1; scontrol update jobid=$id Name=taken; scontrol top $id
        done 2>> err.txt
        scancel -n foreign-name; scancel -u $USER; scancel -t PENDING; scancel --me; scancel -p debug -f
        scontrol update jobname=foreign-name TimeLimit=1; scontrol update job @ID@ Partition=long
        srun --jobid=@ID@ true; SLURM_JOB_ID=@ID@ srun true; sattach @ID@.0
        sbatch --dependency=singleton --hold --wrap true > /dev/null; true"#;
    world.inside(&script.replace("@ID@", id)).run()
}

#[test]
fn jobs_of_other_projects_are_not_touched() {
    let (Some(world), Some(other)) = (World::new(), World::new()) else {
        return;
    };
    let id = foreign(&other, "foreign-name");
    let before = state(&other, &id);
    let output = touch(&world, &id);
    assert_eq!(
        state(&other, &id),
        before,
        "{output}\n{}",
        world.read("err.txt")
    );
}

#[test]
fn jobs_of_other_users_are_not_touched_or_named() {
    let Some(world) = World::new() else { return };
    let bob = World::of(world.cluster, &world.cluster.bob);
    let id = foreign(&bob, "foreign-name");
    let before = state(&bob, &id);
    let output = touch(&world, &id);
    assert_eq!(state(&bob, &id), before, "{output}");
    names_are_hidden(
        &world,
        &id,
        &[
            "foreign-name",
            "script-of-it",
            &world.cluster.bob.name,
            bob.place(Side::Outside).to_str().unwrap(),
        ],
    );
}

/// A node that belongs to one user for the time of a job says whose it is.
#[test]
fn who_has_a_node_for_himself_is_not_named() {
    // A cluster that nobody else waits for.
    let Some(own) = Own::start("exclusive", &[]) else {
        return;
    };
    let world = World::of(own.cluster, &own.cluster.alice);
    let bob = World::of(own.cluster, &own.cluster.bob);
    if !bob
        .outside("sinfo --json")
        .run()
        .out()
        .contains("\"owner\":")
    {
        return not_checked("names of those who have a node: this sinfo has none in its JSON");
    }
    let job = "sbatch --parsable --exclusive=user -o /dev/null --wrap 'sleep 300'";
    bob.outside(job).run().good();
    let name = &own.cluster.bob.name;
    let owner = format!("\"owner\": \"{name}\"");
    wait_for("the node to be bob's", || {
        let seen = bob.outside("sinfo --json").run();
        seen.out().contains(&owner).then_some(())
    })
    .unwrap();
    let asked = ["sinfo --json", "sinfo --yaml", "scontrol show node"];
    let asked = asked.map(|call| (call, world.inside(&format!("{call} 2>&1")).run()));
    let names = world
        .inside("sinfo --json")
        .set("slurm.queries=\"names\"")
        .run();
    for (call, output) in &asked {
        assert!(
            !output.out().contains(name),
            "`{call}` shows `{name}`: {output}"
        );
    }
    let nodes = asked[0].1.out();
    let nodes: serde_json::Value = serde_json::from_str(&nodes).unwrap();
    assert!(nodes["meta"].is_object(), "{nodes}");
    assert!(names.out().contains(&owner), "{names}");
}

#[test]
fn jobs_of_other_projects_are_not_named() {
    let (Some(world), Some(other)) = (World::new(), World::new()) else {
        return;
    };
    let id = foreign(&other, "foreign-name");
    names_are_hidden(
        &world,
        &id,
        &[
            "foreign-name",
            "script-of-it",
            other.place(Side::Outside).to_str().unwrap(),
        ],
    );
}

/// Slurm prints times between what users named: an end of a line in their format would make what
/// follows look like a line of a job in the scope.
#[test]
fn a_format_of_times_begins_no_line_of_another_job() {
    let (Some(world), Some(other)) = (World::new(), World::new()) else {
        return;
    };
    foreign(&other, "foreign-name");
    let script = |format: &str, query: &str| {
        format!(
            "J=$(sbatch --parsable -H -J own --wrap true)
            SLURM_TIME_FORMAT=\"{format}\" {query}; scancel $J"
        )
    };
    for (format, query) in [
        ("%n%nJobId=$J UserId=$UID ", "scontrol show job"),
        ("%nJobId=$J UserId=$UID ", "scontrol -o show job"),
        ("%n$J       ", "sacct -X -o JobID,Submit,JobName%30"),
        ("%n$J|", "sacct -X -P -o JobID,Submit,JobName"),
        ("%5n", "squeue -o '%i %V %j'"),
    ] {
        let output = world.inside(&script(format, query)).run();
        assert!(!output.out().contains("foreign"), "{query}: {output}");
        assert!(output.err().contains("SLURM_TIME_FORMAT"), "{output}");
    }
    let output = world
        .inside(&script("%s", "squeue -h -n own -o '%V'"))
        .run();
    assert!(output.out().trim().parse::<u64>().is_ok(), "{output}");
}

fn names_are_hidden(world: &World, id: &str, names: &[&str]) {
    for call in [
        "squeue",
        "squeue -l",
        "squeue -a -r -t all",
        "squeue -o %all",
        "squeue -O ALL",
        "squeue --json",
        "squeue --yaml",
        "squeue -o '%i %j %u %U %a %k %Z %o %g %G %q %v %w %n %B'",
        "squeue -o '%.100j|%100u|%.200Z|%.200o|%100k'",
        "squeue -O 'JobID,Name:100,UserName:100,WorkDir:300,Comment:100,Command:300,STDOUT:300,STDERR:300,UserID,Account'",
        "squeue -j @ID@ -o '%j %u %Z'",
        "squeue -n foreign-name -o '%i %j'",
        "squeue -s -o '%i %j %u'",
        "squeue --start",
        "squeue -S u -o %u",
        "SQUEUE_FORMAT='%j %u %Z' squeue",
        "SQUEUE_FORMAT2=Name,UserName,WorkDir squeue",
        "scontrol show job",
        "scontrol show job @ID@",
        "scontrol -d show jobs",
        "scontrol -o show job=@ID@",
        "scontrol --json show jobs",
        "scontrol show step @ID@.0",
        "scontrol write batch_script @ID@ -",
        "scontrol listpids @ID@",
        "sacct -a -P -o ALL",
        "sacct -a -X -o JobID,JobName%100,User%50,WorkDir%200,Comment%50,SubmitLine%300",
        "sacct -j @ID@ -P -o ALL",
        "sacct -B -j @ID@",
        "sacct --json -j @ID@",
        "sacct -u @BOB@ -P -o ALL",
        "sacct --name=foreign-name -a -P -o ALL",
        "sacct --env-vars -j @ID@",
        "sstat -a -P -o ALL @ID@",
        "sprio -l",
        "sprio -o '%i %u %n'",
        "sprio -j @ID@ -o '%u'",
    ] {
        let call = call.replace("@ID@", id).replace("@BOB@", "no-such-user");
        let output = world.inside(&format!("{call} 2> /dev/null")).run();
        for name in names {
            assert!(
                !output.out().contains(name),
                "`{call}` shows `{name}`: {output}"
            );
        }
    }
}

#[test]
fn that_other_jobs_exist_is_shown() {
    let Some(world) = World::new() else { return };
    let bob = World::of(world.cluster, &world.cluster.bob);
    let id = foreign(&bob, "foreign-name");
    let shown = world.inside("squeue -h -o '%A %T'").run().good();
    assert!(shown.out().contains(&format!("{id} PENDING")), "{shown}");
    let none = world
        .inside("squeue -h -o '%A %T'")
        .set("slurm.queries=\"none\"")
        .run()
        .good();
    assert!(!none.out().contains(&id), "{none}");
}

#[test]
fn the_scope_may_be_the_session_or_the_user() {
    let Some(world) = World::new() else { return };
    let place = world.place(Side::Outside);
    let plain = foreign(&world, "outside-name");
    let first = world
        .inside("sbatch --parsable -H -J first --wrap true")
        .run()
        .good()
        .word();
    let look = format!(
        "squeue -h -j {first} -o %j; squeue -h -j {plain} -o %j; scancel {first} {plain}; echo $?"
    );
    let session = world.inside(&look).set("slurm.scope=\"session\"").run();
    assert!(
        !session.out().contains("first") && !session.out().contains("outside-name"),
        "{session} {place:?}"
    );
    assert!(state(&world, &first).starts_with("PENDING"), "{session}");
    let project = world.inside(&look).run();
    assert!(
        project.out().contains("first") && !project.out().contains("outside-name"),
        "{project}"
    );
    assert!(state(&world, &plain).starts_with("PENDING"), "{project}");
    let user = world.inside(&look).set("slurm.scope=\"user\"").run();
    assert!(user.out().contains("outside-name"), "{user}");
    assert!(!state(&world, &plain).starts_with("PENDING"), "{user}");
}

#[test]
fn a_record_cannot_be_forged_from_inside() {
    let (Some(world), Some(other)) = (World::new(), World::new()) else {
        return;
    };
    let id = foreign(&other, "foreign-name");
    let records = world.records();
    let script = format!(
        "mkdir -p {0}; echo '{{}}' > {0}/{id}.json; for f in {0}/*.json; do cp $f {0}/{id}.json; done; ls {0}; scancel {id}",
        records.display()
    );
    let output = world.inside(&script).run();
    assert!(state(&other, &id).starts_with("PENDING"), "{output}");
    assert!(!records.join(format!("{id}.json")).exists(), "{output}");
}

#[test]
fn a_step_of_another_job_cannot_be_started() {
    let (Some(world), Some(other)) = (World::new(), World::new()) else {
        return;
    };
    let place = other.place(Side::Outside);
    let id = other
        .real(&[
            "sbatch",
            "--parsable",
            "-D",
            place.to_str().unwrap(),
            "-o",
            "begun.txt",
            "--wrap",
            "echo begun; sleep 30",
        ])
        .good()
        .word();
    other.until(Side::Outside, "begun.txt", "begun");
    let output = world.defended(&format!(
        "srun --jobid={id} --overlap touch here; SLURM_JOB_ID={id} SLURM_JOBID={id} srun --overlap touch here; srun --jobi {id} --overlap touch here; ls"
    ));
    assert!(!output.out().contains("here"), "{output}");
    let steps = world
        .cluster
        .said("squeue", ["-h", "-s", "-j", &id, "-o", "%i"]);
    assert!(
        steps
            .lines()
            .all(|step| step.contains("batch") || step.contains("extern")),
        "{steps}"
    );
}

/// The SLUID of a job that is there; none: this Slurm has none.
fn sluid(world: &World, id: &str) -> Option<String> {
    let said = world.real(&["squeue", "-h", "-j", id, "-O", "SLUID:30"]);
    let sluid = said.out().trim().to_owned();
    (said.code == 0 && sluid.starts_with('s')).then_some(sluid)
}

#[test]
fn a_sluid_is_the_number_of_its_job() {
    let (Some(world), Some(other)) = (World::new(), World::new()) else {
        return;
    };
    let bob = World::of(world.cluster, &world.cluster.bob);
    let mut names = Vec::new();
    for foreign_to in [&other, &bob] {
        let foreign = foreign(foreign_to, "foreign-name");
        let Some(name) = sluid(foreign_to, &foreign) else {
            return not_checked("SLUIDs: this Slurm has none");
        };
        let before = state(foreign_to, &foreign);
        let output = touch(&world, &name);
        assert_eq!(state(foreign_to, &foreign), before, "{output}");
        names.push(name);
    }
    // Later: the attempts end all jobs of their own session.
    let call = "sbatch --parsable -H -J mine --wrap true";
    let id = world.inside(call).run().good().word();
    let own = sluid(&world, &id).expect("a SLUID");
    // Whoever names another's learns nothing of it, not even whether it is there.
    let others = names.join(" ");
    let said = world
        .inside(&format!("squeue -h -j {id} -o '{others} {own}'"))
        .run();
    assert_eq!(said.out(), format!("{others} {id}\n"), "{said}");
    let script = format!(
        "squeue -h -j {own} -o '%i %j'; squeue -h --jobs={own},{id} -o %i; scontrol show job {own} | grep -o 'JobId=[0-9]*'
        scontrol update job={own} Name=renamed; scontrol update jobid={own} TimeLimit=3; scontrol release {own}; scontrol hold {own}
        squeue -h -j {id} -o '%j %l'; scancel {own}; sacct -n -X -P -j {own} -o JobID,State%9"
    );
    let said = world.inside(&script).run().good();
    let expected = format!("{id} mine\n{id}\nJobId={id}\nrenamed 3:00\n{id}|CANCELLED");
    assert!(said.out().starts_with(&expected), "{said}");
}
