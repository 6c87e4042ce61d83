//! Attacks by names of files: Slurm opens them as the user, outside of every jail. Without
//! agent-sandbox each reads or writes what the jail may not.

use crate::world::World;

#[test]
fn output_does_not_write_outside_the_jail() {
    let Some(world) = World::new() else { return };
    for call in [
        "sbatch --output=@TARGET@ --wrap 'echo x'",
        "sbatch -o@TARGET@ --wrap 'echo x'",
        "sbatch -Qo @TARGET@ --wrap 'echo x'",
        "sbatch --outp=@TARGET@ --wrap 'echo x'",
        "sbatch -o o.txt --error=@TARGET@ --wrap 'echo x >&2'",
        "sbatch -o @TARGET@ --open-mode=append --wrap 'echo x'",
        "SBATCH_OUTPUT=@TARGET@ sbatch --wrap 'echo x'",
        "SBATCH_ERROR=@TARGET@ sbatch -o o.txt --wrap 'echo x >&2'",
        "sbatch -D ~/.ssh -o $(basename @TARGET@) --wrap 'echo x'",
        "sbatch -o ../../.ssh/$(basename @TARGET@) --wrap 'echo x'",
        "sbatch -o ./../../.ssh/../.ssh/$(basename @TARGET@) --wrap 'echo x'",
        "srun -o @TARGET@ echo x",
        "srun -e @TARGET@ -o o.txt bash -c 'echo x >&2'",
        "srun -lo@TARGET@ echo x",
        "SLURM_STDOUTMODE=@TARGET@ srun echo x",
        "sbatch -o job.txt --wrap 'srun -o @TARGET@ echo x'",
        "cd ~/.ssh; srun -o $(basename @TARGET@) echo x",
        "printf '#!/bin/bash\n#SBATCH -D %s -o x.txt -e @TARGET@\necho x >&2\n' ~/.ssh | sbatch",
    ] {
        world.write_attack(call);
    }
}

#[test]
fn directives_do_not_write_outside_the_jail() {
    let Some(world) = World::new() else { return };
    for directives in [
        "#SBATCH --output=@TARGET@",
        "#SBATCH -J x --output=@TARGET@",
        "#SBATCH -J x -n 1 -o@TARGET@ # comment",
        "#SBATCH --job-name='a b' --output=@TARGET@",
        "#SBATCH --output=o.txt --error=@TARGET@",
        "#SBATCH --output=\"@TARGET@\"",
        "#PBS -o @TARGET@",
        "#PBS -N name -o @TARGET@ -j oe",
        "#BSUB -o @TARGET@",
    ] {
        world.write_attack(&format!(
            "printf '%s\\n' '#!/bin/bash' '{}' 'echo x; echo y >&2' > job.sh; sbatch job.sh; sbatch < job.sh",
            directives.replace('\'', "'\\''")
        ));
    }
}

#[test]
fn links_and_races_do_not_write_outside_the_jail() {
    let Some(world) = World::new() else { return };
    for call in [
        "ln -s @TARGET@ link.txt; sbatch -o link.txt --wrap 'echo x'",
        "ln -s ~/.ssh there; sbatch -o there/$(basename @TARGET@) --wrap 'echo x'",
        "ln -s @TARGET@ slurm.txt; srun -o slurm.txt echo x",
        // The link is put there when the job is already submitted.
        "id=$(sbatch --parsable -H -o later.txt --wrap 'echo x'); ln -s @TARGET@ later.txt; scontrol release $id",
    ] {
        world.clear();
        world.write_attack(call);
    }
    world.clear();
    world.defended(
        "mkdir real; i=0; while [ $i -lt 4 ]; do i=$((i+1)); sbatch -Q -o flip/written.txt --wrap 'echo x'; done & \
         for n in $(seq 300); do ln -sfn ~/.ssh flip; ln -sfn real flip; done; wait",
    );
    assert!(!world.home(".ssh/written.txt").exists());
}

/// Those that are missing are made in the jail, with what it may.
#[test]
fn directories_of_output_files_are_not_made_outside_the_jail() {
    let Some(world) = World::new() else { return };
    let ssh = world.home(".ssh");
    world.defended(&format!(
        "ln -s ~/.ssh there; ln -s {at}/below link
        sbatch -Q -o there/made/x.txt --wrap 'echo x'; srun -Q -o there/made/x.txt echo x
        srun -Q -n2 -o there/made/%t.txt echo x; srun -Q -o link/made/x.txt echo x
        id=$(sbatch --parsable -H -o later/made/%j/x.txt --wrap 'echo x'); ln -s ~/.ssh later; scontrol release $id",
        at = ssh.display()
    ));
    for name in ["made", "below"] {
        assert!(!ssh.join(name).exists(), "{name}");
    }
}

#[test]
fn special_files_are_no_way_out() {
    let Some(world) = World::new() else { return };
    for call in [
        "sbatch -o /proc/1/fd/1 --wrap 'echo x'",
        "sbatch -o /proc/self/mem --wrap 'echo x'",
        "sbatch -o /proc/self/cwd/x.txt --wrap 'echo x'",
        "sbatch -o /proc/self/root/etc/x --wrap 'echo x'",
        "sbatch -o /dev/mem --wrap 'echo x'",
        "srun -o /proc/1/root/etc/x echo x",
        "srun -i /proc/1/environ cat",
        "sbatch -i /proc/1/environ -o e.txt --wrap 'tr \"\\0\" \"\\n\"'",
    ] {
        world.defended(call);
    }
    // A FIFO that nobody opens at the other end holds up the job, and nothing else.
    let output = world.defended(
        "mkfifo fifo; id=$(sbatch --parsable -o fifo --wrap 'echo x'); sleep 1; squeue -h > /dev/null && echo answered; timeout 20 cat fifo; scancel $id",
    );
    assert!(output.out().contains("answered"), "{output}");
}

#[test]
fn input_does_not_read_outside_the_jail() {
    let Some(world) = World::new() else { return };
    for call in [
        "sbatch --input=$HOME/.ssh/id_rsa -o o.txt --wrap cat",
        "sbatch -i ~/.ssh/id_rsa -o o.txt --wrap cat",
        "SBATCH_INPUT=$HOME/.ssh/id_rsa sbatch -o o.txt --wrap cat",
        "printf '#!/bin/bash\n#SBATCH -o o.txt -i %s\ncat\n' ~/.ssh/id_rsa | sbatch",
        "ln -s ~/.ssh/id_rsa key; sbatch -i key -o o.txt --wrap cat",
        "sbatch -D ~/.ssh -i id_rsa -o $PWD/o.txt --wrap cat; for i in $(seq 40); do grep -q secret o.txt && break; sleep 0.1; done",
        "srun -i ~/.ssh/id_rsa cat",
        "srun --inp=$HOME/.ssh/id_rsa cat",
        "SLURM_STDINMODE=$HOME/.ssh/id_rsa srun cat",
        "ln -sf ~/.ssh/id_rsa key2; srun -i key2 cat",
    ] {
        world.clear();
        world.attack(call);
    }
}

#[test]
fn a_script_outside_the_jail_is_not_read() {
    let Some(world) = World::new() else { return };
    // sbatch itself would read the file, and show it.
    world.defended("sbatch ~/.ssh/id_rsa; sbatch --hold < ~/.ssh/id_rsa");
    world.defended("ln -s ~/.ssh/id_rsa s.sh; sbatch -H s.sh; srun --multi-prog ~/.ssh/id_rsa");
    // What another tool shows of jobs is read from their own scripts alone.
    world.defended(
        "scontrol write batch_script 1 -; scontrol write batch_script 1 ~/.ssh/x; sacct -B -j 1",
    );
}

#[test]
fn what_scontrol_writes_is_written_inside() {
    let Some(world) = World::new() else { return };
    world.write_attack("id=$(sbatch --parsable -H --wrap true); scontrol write batch_script $id @TARGET@; scancel $id");
    world.defended("cd ~; scontrol write config; scontrol write config /tmp/x; SLURM_CONF_OUT=$PWD/x scontrol write config");
}

#[test]
fn a_job_is_not_updated_to_other_files() {
    let Some(world) = World::new() else { return };
    for key in ["StdOut", "StdErr", "StdIn"] {
        let output = world.defended(&format!(
            "id=$(sbatch --parsable -H -o o.txt --wrap 'echo x'); \
             scontrol update job=$id {key}=$HOME/.ssh/updated-{key} || echo refused; scontrol release $id"
        ));
        assert!(
            !world.home(&format!(".ssh/updated-{key}")).exists(),
            "{output}"
        );
    }
    let output = world.defended(
        "id=$(sbatch --parsable -H -o o.txt --wrap 'echo x'); scontrol update job=$id WorkDir=/etc || echo refused; \
         scontrol update job=$id AdminComment=x || echo refused; scontrol update job=$id UserId=0 || echo refused; scancel $id",
    );
    assert!(output.out().contains("refused"), "{output}");
}
