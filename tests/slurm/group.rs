//! Directories of a group in jobs and steps: as in a session, a mediator outside gives what the jail's
//! user namespace has no number for.

use std::os::unix::fs::MetadataExt;

use nix::unistd::Group;

use crate::world::World;

/// Groups of `tests/run` that the user is in.
const LAB: &str = "agentsandbox-lab";
const DATA: &str = "agentsandbox-data";

/// What is done in a directory, whose name follows.
const WORK: &str = r#"umask 007; mkdir $1 && chgrp agentsandbox-lab $1 && chmod 2770 $1 && mkdir $1/below && chmod 2750 $1/below
echo x > $1/file && chown :agentsandbox-data $1/file && setfacl -m g:agentsandbox-lab:rw $1/file
cp -a $1 $1.copy; echo $?; stat -c %A $1 $1/below $1.copy/below $1/file; getfacl -nc $1.copy/file | grep group:
python3 -c 'import socket; a, b = socket.socketpair(); s = socket.socket(socket.AF_UNIX); print("sockets")'
"#;

#[test]
fn jobs_and_steps_work_in_directories_of_a_group() {
    let Some(world) = World::new() else { return };
    world.write("work.sh", format!("#!/bin/sh\n{WORK}"));
    world.write(
        "job.sh",
        "#!/bin/bash\n#SBATCH -N1 -n2 -o job.txt\nsh work.sh batch\nsrun -n1 sh work.sh step\n\
         srun -n2 sh -c 'sh work.sh rank$SLURM_PROCID > rank$SLURM_PROCID.txt'; cat rank?.txt\n",
    );
    world.same(
        "sh work.sh session; sbatch -Q -W job.sh; echo $?; cat job.txt; srun sh work.sh alone",
    );
    let group = |name| Group::from_name(name).unwrap().expect(name).gid.as_raw();
    for name in ["session", "batch", "step", "rank0", "rank1", "alone"] {
        let of = |path: &str| std::fs::metadata(world.project().join(path)).unwrap();
        assert_eq!(of(name).gid(), group(LAB), "{name}");
        assert_eq!(of(name).mode() & 0o7777, 0o2770, "{name}");
        assert_eq!(of(&format!("{name}/file")).gid(), group(DATA), "{name}");
    }
    let bit = "echo x > program; chmod 2755 program 2> /dev/null; stat -c %A program";
    world.write("bit.sh", bit);
    let output = world
        .inside("sh bit.sh; srun sh bit.sh; srun -n2 sh bit.sh")
        .run();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(
        shown.contains("-rw") && !shown.contains(['s', 'S']),
        "{shown}"
    );
}
