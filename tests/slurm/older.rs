//! Nodes whose bubblewrap is older than that of the node of submission: 0.4.1, as in RHEL 9.

use crate::chosen::is_landlock;
use crate::cluster::not_checked;
use crate::own::Own;
use crate::world::World;

/// What a jail's walls are made of: the modes and sizes of what is private, who may write where, and that
/// no namespace can be made.
const WALLS: &str = r#"
stat -c '%a %n' / /tmp /var/tmp /dev/shm /run /run/agent-sandbox /run/agent-sandbox/slurm ~ hidden /etc/passwd
stat -f -c '%S %b %n' /tmp /var/tmp /dev/shm /run ~ hidden | awk '{ print $1 * $2, $3 }'
for at in / /run/agent-sandbox /etc/passwd hidden; do [ -w $at ] && echo writable $at; done
chmod 600 /etc/passwd 2> /dev/null && echo changed
cat hidden/* 2> /dev/null
unshare --user true 2> /dev/null && echo a namespace
true"#;

#[test]
fn jobs_and_steps_on_nodes_with_an_older_bubblewrap() {
    if is_landlock() {
        not_checked("Landlock makes the jail in this run");
        return;
    }
    let Some(old) = std::env::var_os("AGENT_SANDBOX_TEST_OLD_BWRAP") else {
        not_checked("bubblewrap 0.4.1 cannot be had here");
        return;
    };
    let Some(own) = Own::start_with("older", &[], &["--bwrap".as_ref(), &old]) else {
        return;
    };
    let world = World::of(own.cluster, &own.cluster.alice);
    world.write("hidden/secret", "canary\n");
    world.write("walls.sh", format!("#!/bin/bash\n{WALLS}"));
    world.write(
        "job.sh",
        "#!/bin/bash\n#SBATCH -n2 -N1\nbwrap --version; ./walls.sh > job.txt\n\
         srun -n1 ./walls.sh > step.txt\n\
         srun -n2 sh -c 'echo $SLURM_PROCID > /tmp/met.$SLURM_PROCID\n\
         until [ -e /tmp/met.0 ] && [ -e /tmp/met.1 ]; do sleep 0.05; done; echo met'\n",
    );
    let script = "chmod +x *.sh; bwrap --version; ./walls.sh > here.txt\n\
                  sbatch -Q -W -o out.txt job.sh; echo $?; cat out.txt";
    let hidden = world.project().join("hidden");
    // By itself it is half of a job's memory.
    let call = world
        .inside(script)
        .option("--set")
        .option("jail.shm_size=1G");
    let output = call.option("--hide").option(hidden).run();
    let said = output.good().out();
    // The jail shows the bubblewrap of its node.
    let lines: Vec<&str> = said.lines().collect();
    assert_ne!(lines[0], "bubblewrap 0.4.1", "{said}");
    assert_eq!(
        lines[1..],
        ["0", "bubblewrap 0.4.1", "met", "met"],
        "{said}"
    );
    // The walls are the same, whoever has built them.
    let here = world.read("here.txt");
    assert!(
        here.contains("1777 /tmp\n") && here.contains(" hidden\n"),
        "{here}"
    );
    for wrong in ["writable", "changed", "canary", "a namespace"] {
        assert!(!here.contains(wrong), "{here}");
    }
    assert_eq!(world.read("job.txt"), here);
    assert_eq!(world.read("step.txt"), here);
}
