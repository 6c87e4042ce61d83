//! Ports of servers inside, for the user outside: in jobs and steps on their nodes, and for nobody else.

use std::path::Path;

use crate::call::{Call, Output};
use crate::chosen::is_landlock;
use crate::cluster::not_checked;
use crate::world::{Side, World, until};

/// A world with a server, `./serve.sh NAME`, which shows that name until the file `NAME.over` is there, and has `NAME.up` made when it
/// listens.
#[track_caller]
fn world() -> Option<World> {
    let world = World::new()?;
    if is_landlock() {
        not_checked("a jail of Landlock's has no network of its own");
        return None;
    }
    world.write(
        "serve.sh",
        "#!/bin/bash\nmkdir -p $1; echo of $1 > $1/page; echo $SLURM_JOB_ID > $1.id\n\
         python3 -m http.server -b 127.0.0.1 -d $1 8123 > $1.log 2>&1 & server=$!\n\
         until curl -sSf -o $1.own http://127.0.0.1:8123/page 2> /dev/null; do sleep 0.05; done; touch $1.up\n\
         until [ -e $1.over ]; do sleep 0.05; done; kill $server\n",
    );
    Some(world)
}

fn inside<'a>(world: &'a World, mode: &str, script: &str) -> Call<'a> {
    let call = world.inside(script).set(&format!("network.mode={mode}"));
    call.set("network.forward=[8123]")
}

fn is_up(world: &World, name: &str) {
    until(&format!("the server {name}"), || {
        world.project().join(format!("{name}.up")).exists()
    });
}

/// The socket in a line that says what to type.
#[track_caller]
fn socket(said: &str) -> String {
    let line = said
        .lines()
        .find(|line| line.contains("forwarded from inside: ssh -N "));
    let behind = line.and_then(|line| line.split_once("-L 8123:"));
    let (_, rest) = behind.unwrap_or_else(|| panic!("{said}"));
    rest.split(' ').next().unwrap().to_owned()
}

fn get(world: &World, socket: &str) -> Output {
    world.real(&[
        "curl",
        "-sS",
        "-m",
        "20",
        "--unix-socket",
        socket,
        "http://localhost/page",
    ])
}

/// Its user reaches a server, and another user of the node does not.
#[track_caller]
fn is_the_users_alone(world: &World, socket: &str, name: &str) {
    let own = get(world, socket);
    assert_eq!(own.out(), format!("of {name}\n"), "{own}");
    let bob = World::of(world.cluster, &world.cluster.bob);
    let others = get(&bob, socket);
    assert_eq!(others.out(), "", "{others}");
    assert!(others.err().contains("connect to server"), "{others}");
    let tried = bob.real(&[
        "bash",
        "-c",
        &format!("ls {socket} || rm -f {socket} || mv {socket} {socket}.x"),
    ]);
    assert!(tried.err().contains("Permission denied"), "{tried}");
    assert!(Path::new(socket).exists());
}

#[test]
fn a_server_in_a_job_is_reached_on_its_node_by_its_user_alone() {
    let Some(world) = world() else { return };
    let node = &world.cluster.nodes[0];
    for mode in ["isolated", "filtered"] {
        let (batch, step) = (format!("{mode}.batch"), format!("{mode}.step"));
        world.write(
            "job.sh",
            format!(
                "#!/bin/bash\n#SBATCH -N1 -n1\n./serve.sh {batch}; srun -Q -n1 --overlap ./serve.sh {step}\n"
            ),
        );
        let output = format!("{mode}.txt");
        let submit = format!("sbatch -Q -w {node} -o {output} job.sh");
        inside(&world, mode, &submit).run().good();
        is_up(&world, &batch);
        let job = world.read(&format!("{batch}.id")).trim().to_owned();
        let said = world.launcher(&["log", &job]).out();
        let of_batch = socket(&said);
        is_the_users_alone(&world, &of_batch, &batch);
        // A step in the network of the script is reached by the script's socket.
        world.write(&format!("{batch}.over"), "");
        is_up(&world, &step);
        assert_eq!(
            get(&world, &of_batch).out(),
            format!("of {step}\n"),
            "{mode}"
        );
        world.write(&format!("{step}.over"), "");
        world.settle(Side::Inside);
        until("the end of the socket", || !Path::new(&of_batch).exists());
        assert_eq!(world.read(&output), "", "{mode}");
    }
}

#[test]
fn a_server_in_a_step_of_a_session_is_reached_and_so_is_one_in_the_session() {
    let Some(world) = world() else { return };
    for mode in ["isolated", "filtered"] {
        let (here, there) = (format!("{mode}.session"), format!("{mode}.step"));
        let script =
            format!("srun -n1 ./serve.sh {there} 2> {there}.said & ./serve.sh {here}; wait");
        let running = inside(&world, mode, &script).start();
        is_up(&world, &here);
        is_up(&world, &there);
        let of_step = socket(&world.read(&format!("{there}.said")));
        let sessions = world.launcher(&["sessions"]).out();
        let of_session = sessions
            .lines()
            .find_map(|line| line.trim().strip_prefix("port 8123 inside: "));
        is_the_users_alone(&world, &of_step, &there);
        is_the_users_alone(
            &world,
            of_session.unwrap_or_else(|| panic!("{sessions}")),
            &here,
        );
        for name in [&here, &there] {
            world.write(&format!("{name}.over"), "");
        }
        running.end().good();
        until("the end of the socket", || !Path::new(&of_step).exists());
    }
    world.settle(Side::Inside);
}

/// Where nobody logs in to nodes, a step of the job that the user starts outside leads there.
#[test]
fn slurm_leads_to_a_port_of_a_job_where_ssh_does_not() {
    let Some(world) = world() else { return };
    let there = |word: &str| world.real(&["sh", "-c", &format!("command -v {word}")]);
    if there("socat").out().is_empty() {
        return not_checked("the way by srun: there is no socat");
    }
    world.write("job.sh", "#!/bin/bash\n#SBATCH -N1 -n1\n./serve.sh job\n");
    inside(&world, "isolated", "sbatch -Q -o job.txt job.sh")
        .run()
        .good();
    is_up(&world, "job");
    let job = world.read("job.id").trim().to_owned();
    let socket = socket(&world.launcher(&["log", &job]).out());
    let script = format!(
        "socat UNIX-LISTEN:way,fork,mode=600 EXEC:'srun -Q --jobid={job} --overlap -n1 -u socat - UNIX-CONNECT\\:{socket}' & way=$!\n\
         until [ -e way ]; do sleep 0.05; done\n\
         for n in 1 2; do curl -sS -m 60 --unix-socket way http://localhost/page; done; kill $way"
    );
    let output = world.outside(&script).run();
    assert_eq!(output.out(), "of job\nof job\n", "{output}");
    world.write("job.over", "");
    world.settle(Side::Inside);
}

/// Slurm kills what stands by a job that is cancelled.
#[test]
fn the_ports_of_a_job_that_is_cancelled_lead_nowhere() {
    let Some(world) = world() else { return };
    world.write(
        "job.sh",
        "#!/bin/bash\n#SBATCH -N1 -n1\n./serve.sh cancelled\n",
    );
    inside(&world, "filtered", "sbatch -Q -o job.txt job.sh")
        .run()
        .good();
    is_up(&world, "cancelled");
    let job = world.read("cancelled.id").trim().to_owned();
    let socket = socket(&world.launcher(&["log", &job]).out());
    assert_eq!(get(&world, &socket).out(), "of cancelled\n");
    world.real(&["scancel", &job]).good();
    world.settle(Side::Inside);
    until("the end of who forwards", || {
        get(&world, &socket).err().contains("connect to server")
    });
    // What a killed server left behind goes with the next.
    inside(&world, "isolated", "true").run().good();
    assert!(!Path::new(&socket).parent().unwrap().exists());
}
