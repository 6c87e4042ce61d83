//! What a job finds in its environment.

use crate::world::World;

/// Prints variables without those that differ from run to run.
const SHOW: &str = "env | grep -E '^(SLURM|MINE|OTHER|HOME|USER|LOGNAME|SHELL|FROM_TASK|TMPDIR|ENVIRONMENT)' \
    | grep -vE '^SLURM_(TASK_PID|CONF|LAUNCH_NODE|SRUN_COMM|EXPORT_ENV|GET_USER_ENV|STEP_LAUNCHER|STEP_RESV|TOPOLOGY|WORKING_CLUSTER|JOB_START_TIME|JOB_END_TIME)' | sort";

#[test]
fn export_chooses_as_slurm_does() {
    let Some(world) = World::new() else { return };
    for option in [
        "",
        "--export=ALL",
        "--export=MINE",
        "--export=MINE,OTHER=new",
        "--export=ALL,OTHER='a b'",
        "--export=MINE=1,OTHER",
    ] {
        world.clear();
        world.same(&format!("export MINE='mine = \"x\"' OTHER=$'two\\nlines'; sbatch {option} -o env.txt --wrap \"{SHOW}\""));
    }
    world.clear();
    world.same(&format!(
        "export SBATCH_EXPORT=MINE MINE=1 OTHER=2; sbatch -o env.txt --wrap \"{SHOW}\""
    ));
}

#[test]
fn export_none_gives_the_plain_variables() {
    let Some(world) = World::new() else { return };
    for option in ["--export=NONE", "--export=NIL"] {
        world
            .inside(&format!(
                "export MINE=1; sbatch {option} -W -o env.txt --wrap env"
            ))
            .run()
            .good();
        let text = world.without_session(&world.read("env.txt"));
        assert!(!text.contains("MINE="), "{text}");
        let home = format!("HOME={}\n", world.user.dir.display());
        for wanted in [
            home.as_str(),
            "SLURM_JOB_ID=",
            "SLURM_JOB_NAME=wrap\n",
            "PATH=",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
    }
}

#[test]
fn a_step_finds_what_slurm_gives_it() {
    let Some(world) = World::new() else { return };
    let step = "env | grep -E '^SLURM_(PROCID|LOCALID|NTASKS|NPROCS|NODEID|STEP_ID|STEP_NUM_TASKS|JOB_NAME|JOB_ID|\
                STEP_NUM_NODES|SUBMIT_DIR|CPUS_ON_NODE|TASKS_PER_NODE)=|^MINE|^FROM_TASK' | sort";
    world.same(&format!("export MINE=1; srun -J named bash -c \"{step}\""));
    world.same(&format!(
        "export MINE=1; srun -N1 -n2 -l --export=PATH bash -c \"{step}\" | sort"
    ));
    world.same("export MINE=1; srun --export=OTHER=2 /bin/bash -c '/usr/bin/env | /bin/grep -E ^MINE\\|^OTHER'");
    world.clear();
    world.write(
        "steps.sh",
        format!("#!/bin/bash\n#SBATCH -N 1 -n 2 -o steps.txt\nexport MINE=1\nsrun -l bash -c \"{step}\" | sort\nsrun -n1 bash -c \"{step}\"\n"),
    );
    world.same("sbatch steps.sh");
}

#[test]
fn the_jobs_own_variables_are_those_of_the_submission() {
    let Some(world) = World::new() else { return };
    // Variables of an outer job do not reach an inner one but by Slurm's own rules.
    world.same(
        r#"export SLURM_JOB_NAME=forged SLURM_PROCID=77 SLURM_SUBMIT_DIR=/nowhere SLURM_NTASKS=3
        sbatch -o forged.txt --wrap 'echo "$SLURM_JOB_NAME $SLURM_PROCID $SLURM_SUBMIT_DIR $SLURM_NTASKS"'"#,
    );
}

#[test]
fn variables_with_any_content_arrive() {
    let Some(world) = World::new() else { return };
    world.same(
        r#"export MINE=$'tab\t newline\n quote\' double" back\\ dollar$HOME `id` \xff end'
        export OTHER=$(head -c 60000 /dev/zero | tr '\0' x)
        f() { echo "a function of the shell"; }; export -f f
        sbatch -o any.txt --wrap 'printf "%s" "$MINE" | od -c; echo ${#OTHER}'
        printf '#!/bin/bash\n#SBATCH -o function.txt\nf\n' | sbatch"#,
    );
}
