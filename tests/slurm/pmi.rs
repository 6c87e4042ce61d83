//! PMI-2, by which a task asks for more processes: Slurm's srun starts them, outside of every jail.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cluster::{not_checked, put};
use crate::world::{Side, World, until};

/// What is started if somebody listens: the secret goes to where the test looks.
const STOLEN: &str = "stolen.txt";

/// A world with the program that asks.
fn world() -> Option<World> {
    let world = World::new()?;
    let root = std::env::var_os("AGENT_SANDBOX_ROOT")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let built = tempfile::tempdir().unwrap();
    let program = built.path().join("ask");
    let compiled = Command::new("gcc")
        .args(["-O1", "-o"])
        .arg(&program)
        .arg(root.join("tests/slurm/mpi/ask.c"))
        .status()
        .unwrap();
    assert!(compiled.success());
    world.write("ask", fs::read(program).unwrap());
    Some(world)
}

/// Looks for what was stolen for a while.
const LOOK: &str =
    "for i in $(seq 80); do [ -s stolen.txt ] && break; sleep 0.1; done; cat stolen.txt";

#[test]
fn a_task_that_asks_by_its_descriptor_gets_no_process_outside() {
    let Some(world) = world() else { return };
    let script = format!(
        "srun -Q -n1 --overlap --mpi=pmi2 bash -c './ask fd /bin/cp ~/.ssh/id_rsa $PWD/{STOLEN}; {LOOK}'"
    );
    let output = world.attack(&script);
    assert!(
        output.out().contains("cmd=response_to_init rc=0"),
        "PMI_FD does not reach the task, so this shows nothing yet: {output}"
    );
    assert!(output.out().contains("spawn-response"), "{output}");
}

/// The ports that the real srun with this job name listens on.
fn ports(name: &str) -> BTreeSet<u16> {
    let mine = |process: &Path| {
        let read = |file| fs::read(process.join(file)).unwrap_or_default();
        let words = read("cmdline");
        let word = format!("--job-name={name}");
        read("comm") == b"srun\n"
            && words
                .split(|byte| *byte == 0)
                .any(|one| one == word.as_bytes())
    };
    let mut sockets = BTreeSet::new();
    let mut table = String::new();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let path = process.path();
        if !mine(&path) {
            continue;
        }
        table = fs::read_to_string(path.join("net/tcp")).unwrap_or_default();
        for fd in fs::read_dir(path.join("fd"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let target = fs::read_link(fd.path()).unwrap_or_default();
            let target = target.to_string_lossy();
            let inode = target
                .strip_prefix("socket:[")
                .and_then(|rest| rest.strip_suffix(']'));
            sockets.extend(inode.map(str::to_owned));
        }
    }
    // proc_net_tcp: local address in column 1, state in 3 (0A: it listens), inode in 9.
    let listening = table.lines().filter_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let ours = *columns.get(3)? == "0A" && sockets.contains(*columns.get(9)?);
        let port = u16::from_str_radix(columns[1].rsplit(':').next()?, 16).ok()?;
        ours.then_some(port)
    });
    listening.collect()
}

/// A step with PMI-2 on this side, and its srun's ports in `ports.txt` of both directories.
fn with_ports(world: &World, side: Side, then: impl FnOnce()) {
    let name = format!("pmi-{side:?}-{}", &world.cluster.marker[6..14]);
    let running = world
        .on(
            side,
            &format!(
                "srun -Q -n1 --overlap --job-name={name} --mpi=pmi2 bash -c 'touch begun.txt; for i in $(seq 300); do [ -e over.txt ] && break; sleep 0.1; done'"
            ),
        )
        .start();
    let place = world.place(side);
    until("the step", || place.join("begun.txt").exists());
    let found = ports(&name);
    assert!(!found.is_empty(), "srun listens nowhere");
    let text = found
        .iter()
        .map(u16::to_string)
        .collect::<Vec<_>>()
        .join("\n");
    for side in [Side::Inside, Side::Outside] {
        put(
            world.user,
            &world.place(side).join("ports.txt"),
            text.as_bytes(),
            0o644,
        );
    }
    then();
    put(world.user, &place.join("over.txt"), b"", 0o644);
    running.end();
}

/// Asks at all ports. With a credential only somebody outside can ask: munge is not in the jail.
fn ask(credential: &str) -> String {
    format!(
        "for port in $(cat ports.txt); do ./ask port $port \"{credential}\" /bin/cp ~/.ssh/id_rsa $PWD/{STOLEN}; done; {LOOK}"
    )
}

const CREDENTIAL: &str = "$(munge -n -S \"$(sed -n 's/^AuthInfo=socket=//p' \"$SLURM_CONF\")\")";

#[test]
fn srun_starts_nothing_for_who_asks_at_its_port() {
    let Some(world) = world() else { return };
    if !world.cluster.has_munge() {
        return not_checked("the question takes a credential of munge's");
    }
    // The control: without a jail srun starts it for everybody who has a credential of the user's.
    with_ports(&world, Side::Outside, || {
        let output = world.outside(&ask(CREDENTIAL)).run();
        assert!(output.out().contains("asked"), "{output}");
        assert!(output.out().contains(&world.cluster.marker), "{output}");
    });
    fs::remove_file(world.place(Side::Outside).join(STOLEN)).unwrap();
    with_ports(&world, Side::Inside, || {
        // From inside, where no credential can be had.
        let output = world.inside(&ask(CREDENTIAL)).run();
        assert!(!output.out().contains(&world.cluster.marker), "{output}");
        // And even with one: the chaperon's srun can execute nothing. It got the request.
        let output = world.outside(&ask(CREDENTIAL)).run();
        assert!(output.out().contains("asked"), "{output}");
        assert!(!output.out().contains(&world.cluster.marker), "{output}");
    });
    for side in [Side::Inside, Side::Outside] {
        assert!(!world.place(side).join(STOLEN).exists());
    }
}
