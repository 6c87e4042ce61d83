//! Commands that show: own jobs as outside, what is the cluster's as outside.

use crate::world::World;

/// Times and what else differs from one job to the next.
const PLAIN: &str = "sed -E -e 's/[0-9]{4}-[0-9T:-]{14}/TIME/g' -e 's/(Sid|Priority)=[^ ]*/\\1=/g'";

#[test]
fn squeue_shows_own_jobs_as_outside() {
    let Some(world) = World::new() else { return };
    world.write(
        "held.sh",
        "#!/bin/bash\n#SBATCH --comment='a comment' -J 'a name'\ntrue\n",
    );
    world.same(
        r#"a=$(sbatch --parsable -H held.sh); b=$(sbatch --parsable -H -a 1-3 -n 2 -t 7 --wrap true)
        ids=$a,$b
        squeue -j $ids; squeue -j $ids -l | tail -n +2; squeue -h -j $a -o '%i|%j|%u|%a|%T|%r|%k|%Z|%o|%C|%D|%l|%m|%q|%P|%K|%F|%A'
        squeue -h -j $ids -O JobID,Name,UserName,State,WorkDir:60,Comment,Command:80,NumTasks,TimeLimit
        c=$(sbatch --parsable -H -o 'o-%j-%x' -e 'e-%j' -i /dev/zero held.sh); d=$(sbatch --parsable -H -o 'only-%j' held.sh)
        for j in $a $b $c $d; do squeue -h -j $j -O STDOUT:90,STDERR:90,STDIN:60; done; squeue -h --expand-patterns -j $a,$c -O STDOUT:90
        squeue -j $b -r -h -S i -o '%i %t'; squeue -h -j ${b}_2 -o %i; squeue --me -h -j $a -n 'a name' -o '%j %t'
        squeue -h -t PD -j $a -o %20j; squeue -h -j $a -o '%.5j|%8u|'; squeue -u $USER -h -j $a -o %t
        squeue -s -j $a -h; squeue -h -j $a --start -o %j
        SQUEUE_FORMAT='%j-%t' squeue -h -j $a; SQUEUE_STATES=RUNNING squeue -h -j $a
        squeue -j 999999999; echo $?"#,
    );
}

#[test]
fn json_names_own_jobs_alone() {
    let (Some(world), Some(other)) = (World::new(), World::new()) else {
        return;
    };
    let place = other.project();
    let foreign = [
        "sbatch",
        "-H",
        "-D",
        place.to_str().unwrap(),
        "-J",
        "foreign",
        "--wrap",
        "true",
    ];
    other.real(&foreign).good();
    world
        .inside("sbatch -H -J 'own job' -o out.txt --wrap true")
        .run()
        .good();
    for call in ["squeue --json", "scontrol --json show jobs"] {
        // Not every version has both.
        if world.outside(call).run().code != 0 {
            continue;
        }
        let output = world.inside(call).run().good();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{call}: {error}: {output}"));
        let jobs = json["jobs"]
            .as_array()
            .unwrap_or_else(|| panic!("{call}: {output}"));
        let own = jobs.iter().find(|job| job["name"] == "own job");
        let own = own.unwrap_or_else(|| panic!("{call}: {output}"));
        let project = world.project();
        let project = project.to_str().unwrap();
        assert_eq!(own["current_working_directory"], project, "{call}");
        assert_eq!(
            own["standard_output"],
            format!("{project}/out.txt"),
            "{call}"
        );
        assert!(
            !jobs.iter().any(|job| job["name"] == "foreign"),
            "{call}: {output}"
        );
    }
}

#[test]
fn scontrol_shows_own_jobs_and_the_cluster_as_outside() {
    let Some(world) = World::new() else { return };
    world.same(&format!(
        r#"a=$(sbatch --parsable -H --comment 'two words' -o 'x-%j.txt' --wrap true); b=$(sbatch --parsable -H -a 1-2 --wrap true)
        for call in "job $a" "job=$a" "jobid $a" "job $b" "job ${{b}}_1"; do scontrol show $call | {PLAIN}; done
        scontrol -o show job $a | {PLAIN}; scontrol -d show job $a | {PLAIN}
        scontrol show partition; scontrol show node | grep -oE '^NodeName=[^ ]*|CPUTot=[0-9]*'
        scontrol show hostnames 'n[1-3,7]'; scontrol show hostlist n1,n2,n3; scontrol show hostlistsorted n3,n1
        scontrol ping; scontrol version; scontrol show licenses; scontrol show reservation
        scontrol show config | grep -E '^(ClusterName|SelectType |MaxArraySize)'
        scontrol show job 999999999; echo $?"#
    ));
}

#[test]
fn sacct_shows_own_jobs_as_outside() {
    let Some(world) = World::new() else { return };
    world.same(
        r#"id=$(sbatch --parsable -o s.txt -J named --comment 'a comment' -t 3 --wrap 'srun true; exit 2')
        until sacct -X -n -j $id -o State | grep -q FAILED; do sleep 0.3; done
        while sacct -n -j $id -o State | grep -q RUNNING; do sleep 0.3; done; sleep 1
        sacct -j $id -P -o JobID,JobIDRaw,JobName,User,Account,Partition,State,ExitCode,ReqCPUS,AllocCPUS,NTasks,Timelimit,WorkDir,Comment | grep -v extern
        sacct -X -n -j $id -o JobName%20,State; sacct -b -n -X -j $id; sacct -n -X -j $id.batch -o JobName
        sacct -n -X --name=named -j $id -o JobName; sacct -n -X -s F -j $id -o JobName; sacct -n -X -s CD -j $id
        sacct --helpformat | head -n 3"#,
    );
}

#[test]
fn the_cluster_is_shown_as_outside() {
    let Some(world) = World::new() else { return };
    let without = |text: &str| {
        let drop = ["sdiag output at", "Data since", "gettimeofday"];
        let kept = text
            .lines()
            .filter(|line| !drop.iter().any(|word| line.contains(word)));
        kept.collect::<Vec<_>>().join("\n")
    };
    world.same_but(
        r#"sinfo -h -o '%P %l %D %N %c %m %f %G' | sort; sinfo -h -N -o '%N %P %c %m' | sort; sinfo -s -h -o '%P %l'; sinfo --version
        sinfo -h -O partition,time | sort; SINFO_FORMAT='%P' sinfo -h | sort; sinfo -p debug -h -o %P
        sacctmgr -n -P show cluster format=cluster; sacctmgr -n -P show qos format=name
        sacctmgr -n -P show association user=$USER format=account,user | sort
        sdiag | grep -cE '^(Server thread count|Jobs submitted)'
        sshare -h -o Account,User -u $USER | sort; sprio -h -w > /dev/null; echo $?"#,
        without,
    );
}

#[test]
fn steps_that_run_are_shown() {
    let Some(world) = World::new() else { return };
    world.same(
        r#"id=$(sbatch --parsable -o run.txt -J running --wrap 'srun bash -c "echo begun; sleep 60"')
        until grep -q begun run.txt 2> /dev/null; do sleep 0.1; done
        squeue -h -j $id -o '%T %j %u'; squeue -h -s -j $id -o '%i %j %u' | grep -v extern
        sstat -n -P -a -j $id -o JobID,NTasks | grep -v extern; sstat -n -P -j $id.batch -o JobID
        scontrol show step $id.0 | grep -oE '(StepId|Name|State)=[^ ]*'; scontrol listpids $id > /dev/null 2>&1
        scancel $id.0 2> /dev/null; until ! squeue -h -j $id | grep -q .; do sleep 0.2; done; sed -i '/slurmstepd\|srun\|error/d' run.txt"#,
    );
}

#[test]
fn one_hundred_queries_at_once_are_answered() {
    let Some(world) = World::new() else { return };
    let output = world
        .inside("for i in $(seq 100); do (squeue -h -o %i > /dev/null 2>> err.txt; echo $? >> codes.txt) & done; wait")
        .run()
        .good();
    let codes = world.read("codes.txt");
    assert_eq!(
        codes.lines().filter(|code| *code == "0").count(),
        100,
        "{output}\n{}",
        world.read("err.txt")
    );
}

#[test]
fn output_goes_through_pipes() {
    let Some(world) = World::new() else { return };
    world.same(
        "sinfo -h -o %P | head -n 1 > /dev/null; echo ${PIPESTATUS[0]}; squeue --help | head -n 1",
    );
}
