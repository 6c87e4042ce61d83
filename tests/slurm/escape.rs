//! Attacks that try to run something outside of a jail, on any node, and print the planted secret.
//! Without agent-sandbox every one of them works, and is seen to.

use crate::world::World;

#[test]
fn a_batch_script_reads_no_secret() {
    let Some(world) = World::new() else { return };
    world.attack("sbatch -o out.txt --wrap 'cat ~/.ssh/id_rsa ~/.aws/credentials ~/.netrc'");
    world.attack(r#"printf '#!/bin/bash\ncat ~/.ssh/id_rsa\n' | /usr/bin/sbatch"#);
    world.attack("sbatch -o out.txt -a 1-2 --wrap 'cat $HOME/.ssh/id_rsa'");
}

#[test]
fn a_plain_srun_in_a_batch_script_reads_no_secret() {
    let Some(world) = World::new() else { return };
    for step in [
        "srun cat ~/.ssh/id_rsa",
        "/usr/bin/srun cat ~/.ssh/id_rsa",
        "srun -n1 bash -c 'cat ~/.ssh/id_rsa'",
        "srun --overlap --pty cat ~/.ssh/id_rsa",
        "srun -N1 -o step.txt cat ~/.ssh/id_rsa",
        "env -i PATH=/usr/bin SLURM_CONF=$SLURM_CONF SLURM_JOB_ID=$SLURM_JOB_ID srun cat $HOME/.ssh/id_rsa",
    ] {
        world.write(
            "step.sh",
            format!("#!/bin/bash\n#SBATCH -o step-job.txt\n{step}\n"),
        );
        world.attack("sbatch step.sh");
    }
}

#[test]
fn a_plain_srun_reads_no_secret() {
    let Some(world) = World::new() else { return };
    world.attack("srun cat ~/.ssh/id_rsa");
    world.attack("srun -n2 -l cat ~/.ssh/id_rsa");
    world.attack("cp /usr/bin/cat ./cat; srun ./cat ~/.ssh/id_rsa");
    world.attack("PATH=.:$PATH; ln -s /usr/bin/cat mine; srun mine ~/.ssh/id_rsa");
    world.attack("printf '0 cat %s\n' ~/.ssh/id_rsa > m.conf; srun -n1 --multi-prog m.conf");
    world.attack("cd ~/.ssh && srun cat id_rsa; srun -D ~/.ssh cat id_rsa");
}

#[test]
fn a_job_of_a_job_reads_no_secret() {
    let Some(world) = World::new() else { return };
    world.write(
        "two.sh",
        "#!/bin/bash\n#SBATCH -o two.txt\nsrun cat ~/.ssh/id_rsa\ncat ~/.netrc\n",
    );
    world.write(
        "one.sh",
        "#!/bin/bash\n#SBATCH -o one.txt\nsrun sbatch two.sh\nsbatch --wait two.sh\n",
    );
    world.attack("sbatch --wait one.sh");
    world.write(
        "three.sh",
        "#!/bin/bash\n#SBATCH -o three.txt\nsalloc -Q -n1 srun cat ~/.ssh/id_rsa\n",
    );
    world.attack("sbatch three.sh");
}

#[test]
fn variables_start_nothing_before_the_jail() {
    let Some(world) = World::new() else { return };
    world.write(
        "steal.sh",
        "cat ~/.ssh/id_rsa >> \"${0%/*}/stolen.txt\" 2>/dev/null; cat ~/.ssh/id_rsa\n",
    );
    for variables in [
        "BASH_ENV=$PWD/steal.sh",
        "ENV=$PWD/steal.sh,BASH_ENV=$PWD/steal.sh",
    ] {
        world.attack(&format!("sbatch -o out.txt --export=ALL,{variables} --wrap true; sbatch -o out2.txt --export=ALL,{variables} <<< $'#!/bin/bash\\ntrue'"));
        world.attack(&format!("srun --export=ALL,{variables} bash -c true"));
        world.attack(&format!(
            "export {} ; sbatch -o out3.txt <<< $'#!/bin/bash\\ntrue'",
            variables.replace(',', " ")
        ));
    }
    world.attack("export SBATCH_EXPORT=ALL,BASH_ENV=$PWD/steal.sh; sbatch -o out.txt <<< $'#!/bin/bash\\ntrue'");
    world.attack("export SLURM_EXPORT_ENV=ALL,BASH_ENV=$PWD/steal.sh; srun bash -c true");
}

#[test]
fn a_program_in_the_project_is_not_started_outside() {
    let Some(world) = World::new() else { return };
    world.write("bin/bash", "#!/bin/sh\n/bin/cat ~/.ssh/id_rsa\n");
    world.write("bin/agent-sandbox", "#!/bin/sh\n/bin/cat ~/.ssh/id_rsa\n");
    world.write("bin/bwrap", "#!/bin/sh\n/bin/cat ~/.ssh/id_rsa\n");
    world.attack(
        "export PATH=$PWD/bin:$PATH; srun bash -c true; sbatch -o out.txt --wrap 'bash -c true'",
    );
    world.defended("export PATH=$PWD/bin:$PATH; sbatch -o o.txt --export=ALL,PATH=$PWD/bin:/usr/bin:/bin --wrap 'srun true'");
}

#[test]
fn a_library_in_the_project_is_not_loaded_outside() {
    let Some(world) = World::new() else { return };
    let cc = std::path::Path::new("/usr/bin/gcc");
    if !cc.exists() {
        crate::cluster::not_checked("no gcc");
        return;
    }
    world.write(
        "steal.c",
        "#include <stdlib.h>\n__attribute__((constructor)) static void steal(void) {\n\
         unsetenv(\"LD_PRELOAD\"); system(\"cat ~/.ssh/id_rsa\"); }\n",
    );
    let build = "gcc -shared -fPIC -o steal.so steal.c || exit 1; ";
    world.attack(&format!(
        "{build}sbatch -o out.txt --export=ALL,LD_PRELOAD=$PWD/steal.so --wrap true"
    ));
    world.attack(&format!(
        "{build}srun --export=ALL,LD_PRELOAD=$PWD/steal.so true"
    ));
    world.attack(&format!(
        "{build}LD_PRELOAD=$PWD/steal.so sbatch -o preload.txt --wrap true"
    ));
    world.attack(&format!(
        "{build}LD_LIBRARY_PATH=$PWD LD_PRELOAD=steal.so srun true"
    ));
}

#[test]
fn options_that_run_programs_are_refused() {
    let Some(world) = World::new() else { return };
    world.write(
        "steal.sh",
        "#!/bin/bash\ncat ~/.ssh/id_rsa | tee -a \"${0%/*}/stolen.txt\"\n",
    );
    for option in ["--task-prolog", "--task-epilog", "--prolog", "--epilog"] {
        world.attack(&format!("srun {option}=$PWD/steal.sh true; sleep 0.2"));
        // The same, abbreviated.
        let short = &option[..option.len() - 2];
        world.defended(&format!(
            "srun {short}=$PWD/steal.sh true; srun {short} $PWD/steal.sh true"
        ));
    }
    for variable in [
        "SLURM_TASK_PROLOG",
        "SLURM_TASK_EPILOG",
        "SLURM_PROLOG",
        "SLURM_EPILOG",
    ] {
        world.defended(&format!("{variable}=$PWD/steal.sh srun true; export {variable}=$PWD/steal.sh; sbatch -o o.txt --wrap 'srun true'"));
    }
}

#[test]
fn options_that_leave_the_jail_are_refused() {
    let Some(world) = World::new() else { return };
    world.write("job.sh", "#!/bin/bash\ncat ~/.ssh/id_rsa\n");
    for call in [
        "sbatch --uid=0 job.sh",
        "sbatch --uid=root job.sh",
        "sbatch --gid=0 job.sh",
        "sbatch --get-user-env job.sh",
        "sbatch --get-user-env=10L job.sh",
        "sbatch --export-file=job.sh job.sh",
        "sbatch --container=/tmp job.sh",
        "srun --container=/tmp true",
        "srun --bcast=/tmp/x ./job.sh",
        "srun --bcast ./job.sh",
        "srun -Z true",
        "srun --no-allocate true",
        "sbatch --bbf=job.sh job.sh",
        "sbatch -F job.sh job.sh",
        "sbatch --nodefile=job.sh job.sh",
        "sbatch --clusters=other job.sh",
        "sbatch -M other job.sh",
        "sbatch --reboot job.sh",
        "srun --het-group=0 true",
        "srun -n1 true : -n1 true",
        "salloc --uid=0 true",
        "salloc --get-user-env true",
        "sbcast job.sh /tmp/x",
        "strigger --set --node --down --program=$PWD/job.sh",
        "strigger --get",
        "scrontab -l",
        "scrontab job.sh",
        "scrun list",
        "sgather x y",
        "swait 1",
        // Abbreviated, in another spelling, bundled.
        "sbatch --ui=0 job.sh",
        "sbatch --get=5 job.sh",
        "sbatch --export-f=job.sh job.sh",
        "srun --bcas=/tmp/x ./job.sh",
        "sbatch -QMother job.sh",
        "sbatch -QF job.sh job.sh",
        "srun -QZ true",
        "sbatch -- --uid=0",
    ] {
        let output = world.defended(&format!("{call}; code=$?; [ $code != 0 ] || echo accepted"));
        assert!(!output.out().contains("accepted"), "{call}: {output}");
        // Not every version of Slurm has every command.
        let said = ["error", "command not found"]
            .iter()
            .any(|word| output.err().contains(word));
        assert!(said, "{call}: {output}");
    }
    for variable in [
        "SBATCH_GET_USER_ENV=1",
        "SBATCH_CLUSTERS=other",
        "SBATCH_CONTAINER=/tmp",
    ] {
        let output = world.defended(&format!("{variable} sbatch --hold job.sh || echo refused"));
        assert!(output.out().contains("refused"), "{variable}: {output}");
    }
    let output = world.defended("SLURM_BCAST=/tmp/x srun ./job.sh || echo refused");
    assert!(output.out().contains("refused"), "{output}");
}

#[test]
fn every_kind_of_directive_is_judged() {
    let Some(world) = World::new() else { return };
    for directive in [
        "#SBATCH --get-user-env",
        "#SBATCH -J x --get-user-env=5",
        "#SBATCH --job-name=x --uid=0",
        "#SBATCH -J 'a b' --gid=0",
        "#SBATCH --export-file=x",
        "#SBATCH -QMother",
        "#SBATCH\t--clusters=other",
        "#SBATCH --wrap=x --container=/",
        "#SBATCH -J \"x\" --bb=x",
    ] {
        world.write(
            "job.sh",
            format!("#!/bin/bash\n#SBATCH --hold\n{directive}\ncat ~/.ssh/id_rsa\n"),
        );
        let output = world.defended("sbatch job.sh || echo refused");
        assert!(output.out().contains("refused"), "{directive}: {output}");
    }
}
