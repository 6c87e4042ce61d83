//! What an agent keeps for its project, in the jobs and steps of its sessions, and with many sessions of
//! one user at once.

use std::fs;

use crate::cluster::put;
use crate::world::World;

/// A profile of alice's, under a name of the test's own: her home is shared by all tests.
fn profile(world: &World, name: &str) {
    let text = format!(
        "[profile]\ndescription = \"A tool\"\ncommands = [\"{name}\"]\n\n\
         [profile.state]\ndirectories = [\"~/.{name}\"]\nlogin = [\"~/.{name}/login\"]\n\
         settings = [\"~/.{name}/settings\"]\n"
    );
    let at = format!(".config/agent-sandbox/profiles/{name}.toml");
    put(world.user, &world.home(&at), text.as_bytes(), 0o644);
    let settings = world.home(&format!(".{name}/settings"));
    put(world.user, &settings, b"the user's\n", 0o644);
}

#[test]
fn a_job_and_its_steps_have_the_state_of_the_session() {
    let Some(world) = World::new() else { return };
    profile(&world, "keptjob");
    world.write(
        "job.sh",
        r#"#!/bin/bash
#SBATCH -N1 -n2 -o job.txt
cat ~/.keptjob/history ~/.keptjob/settings
echo job >> ~/.keptjob/history
(echo evil > ~/.keptjob/settings) 2> /dev/null || echo refused
srun -Q -n2 sh -c 'cat ~/.keptjob/settings; echo step >> ~/.keptjob/history; (echo evil > ~/.keptjob/settings) 2> /dev/null || echo refused'
"#,
    );
    let script = "echo session > ~/.keptjob/history; sbatch -Q -W job.sh; cat job.txt ~/.keptjob/history; \
        echo token > ~/.keptjob/login; srun -Q -n1 sh -c 'cat ~/.keptjob/login; echo srun >> ~/.keptjob/history'; \
        tail -1 ~/.keptjob/history";
    let call = || world.inside(script).option("-p").option("keptjob");
    let output = call().run().good();
    let mut lines: Vec<String> = output.out().lines().map(str::to_owned).collect();
    // Two tasks say the same in any order.
    lines[3..7].sort();
    let expected = [
        "session",
        "the user's",
        "refused",
        "refused",
        "refused",
        "the user's",
        "the user's",
        "session",
        "job",
        "step",
        "step",
        "token",
        "srun",
    ];
    assert_eq!(lines, expected, "{output}");
    let login = world.home(".keptjob/login");
    assert_eq!(fs::read_to_string(&login).unwrap(), "token\n", "{output}");
    let settings = fs::read_to_string(world.home(".keptjob/settings")).unwrap();
    assert_eq!(settings, "the user's\n");
    assert!(!world.home(".keptjob/history").exists());
    // In the next session the login is the user's own, in its jobs, too.
    let script = "srun -Q -n1 sh -c 'cat ~/.keptjob/login; echo again > ~/.keptjob/login'";
    let next = world.inside(script).option("-p").option("keptjob");
    assert_eq!(next.run().good().out(), "token\n");
    assert_eq!(fs::read_to_string(&login).unwrap(), "again\n");
    fs::remove_file(&login).unwrap();
}

/// One of two sessions in a project. `N` is its number.
const ONE_OF_TWO: &str = r#"
both() { touch $1-$N; until [ -e $1-0 ] && [ -e $1-1 ]; do sleep 0.05; done; }
echo $N > ~/.keptten/$N
id=$(sbatch --parsable -H -o held-$N.txt --wrap true); echo $id > id-$N
both submitted
sbatch -Q -W -o $N.txt --wrap "cat ~/.keptten/$N ~/.keptten/settings; echo job >> ~/.keptten/$N"
cat $N.txt ~/.keptten/$N
both over
ids=$(cat id-0),$(cat id-1)
squeue -h -j $ids -o %T
both seen
# Whatever is in sight; the other projects do the same.
[ $N = 1 ] || scancel $(squeue -h -t PD -o %i) 2> /dev/null
until [ -z "$(squeue -h -t PD -j $ids -o %i 2> /dev/null)" ]; do sleep 0.1; done
both cancelled
ls ~/.keptten
"#;

#[test]
fn ten_sessions_at_once_do_not_disturb_each_other() {
    let mut worlds = Vec::new();
    for _ in 0..5 {
        let Some(world) = World::new() else { return };
        worlds.push(world);
    }
    profile(&worlds[0], "keptten");
    let mut all = Vec::new();
    for world in &worlds {
        for number in ["0", "1"] {
            let call = world.inside(ONE_OF_TWO).option("-p").option("keptten");
            let call = call.option("--env").option(format!("N={number}"));
            all.push((number, call.start()));
        }
    }
    for (number, running) in all {
        let output = running.end().good();
        // Its own state, and the other's; and its jobs, until a session of the project cancels them.
        let expected =
            format!("{number}\nthe user's\n{number}\njob\nPENDING\nPENDING\n0\n1\nsettings\n");
        assert_eq!(output.out(), expected, "{output}");
    }
}
