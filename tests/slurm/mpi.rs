//! MPI from the distribution, on a real cluster: Open MPI by `mpirun` and by PMIx, MPICH by PMI-2.
//! Each script runs outside and inside. What ranks share on a node is `shared.rs`, how they end `ends.rs`.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use crate::cluster::not_checked;
use crate::world::{Side, World};

/// Compiled for both MPIs, as `NAME.openmpi` and `NAME.mpich`.
const PROGRAMS: [&str; 6] = ["ring", "cma", "shm", "crash", "ids", "signals"];
const KINDS: [&str; 2] = ["openmpi", "mpich"];

/// A world with the programs of `tests/slurm/mpi` in it, compiled once.
#[track_caller]
pub(crate) fn world() -> Option<World> {
    let world = World::new()?;
    let listed = world.real(&["srun", "--mpi=list"]);
    if !format!("{}{}", listed.out(), listed.err()).contains("pmix") {
        not_checked("MPI: this Slurm has no plugin for PMIx");
        return None;
    }
    with_programs(&world);
    Some(world)
}

/// Puts the programs into a world.
pub(crate) fn with_programs(world: &World) {
    static PROGRAMS_BUILT: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    for (name, program) in PROGRAMS_BUILT.get_or_init(build) {
        world.write(name, program);
    }
}

fn build() -> Vec<(String, Vec<u8>)> {
    let mpi = PROGRAMS.iter().flat_map(|name| {
        KINDS.map(|kind| (*name, format!("{name}.{kind}"), format!("mpicc.{kind}")))
    });
    let plain = ("abstract", "abstract".to_owned(), "gcc".to_owned());
    mpi.chain([plain])
        .map(|(source, name, compiler)| {
            let program = compile(source, &compiler);
            (name, program)
        })
        .collect()
}

fn compile(source: &str, compiler: &str) -> Vec<u8> {
    let root = std::env::var_os("AGENT_SANDBOX_ROOT")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let built = tempfile::tempdir().unwrap();
    let program = built.path().join(source);
    let compiled = Command::new(compiler)
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(root.join(format!("tests/slurm/mpi/{source}.c")))
        .status()
        .unwrap_or_else(|error| panic!("{compiler}: {error} (tests/slurm/cluster install)"));
    assert!(compiled.success(), "{compiler} {source}.c");
    fs::read(program).unwrap()
}

/// Takes out the programs, which are the same files on both sides and nothing to read, and what must
/// differ: how large `/dev/shm` is, who the ranks are.
pub(crate) fn plain(text: &str) -> String {
    let program = |name: &str| {
        ["abstract", "other"].contains(&name)
            || KINDS.iter().any(|kind| name.ends_with(&format!(".{kind}")))
    };
    let mut kept = Vec::new();
    let mut skips = false;
    for line in text.lines() {
        let file = line.strip_prefix("-- file ");
        if let Some((name, _)) = file.and_then(|file| file.split_once(" (")) {
            skips = program(name);
        }
        let differs =
            line.starts_with("devshm ") || line.starts_with("rank ") && line.contains("ns ");
        if !skips && !differs {
            kept.push(line);
        }
    }
    kept.join("\n")
}

/// Ranks that reach each other's memory in all the ways there are.
const SHARED: &str = "rank 1 read ok write ok\nrank 2 read ok write ok\nrank 3 read ok write ok\n\
                      cma ok\nposix ok\nsysv ok\nwindow ok\n";

/// Only memory as a transport, with the two ways of it. Without it MPI_Init fails.
const TRANSPORTS: &str = "export OMPI_MCA_btl=vader,self\n";
const ONE_COPY: &str = "export OMPI_MCA_btl_vader_single_copy_mechanism=";

/// Four ranks of either library, started by these words, with and without one copy.
#[track_caller]
fn a_batch_script_starts_ranks(world: &World, openmpi: &str, mpich: &str) {
    world.write(
        "job.sh",
        format!(
            "#!/bin/bash\n#SBATCH -N1 -n4 -o job.txt\n{TRANSPORTS}\
             for how in cma none; do\n{ONE_COPY}$how\n{openmpi} ./ring.openmpi; echo $?\ndone\n\
             {openmpi} ./cma.openmpi; {openmpi} ./shm.openmpi\n\
             {mpich} ./ring.mpich; echo $?\n\
             {mpich} ./cma.mpich; {mpich} ./shm.mpich\n"
        ),
    );
    world.same_but("sbatch -Q -W job.sh; echo $?", plain);
    let text = world.read("job.txt");
    assert_eq!(text.matches("sum 10 of 4\n0\n").count(), 3, "{text}");
    assert_eq!(plain(&text).matches(SHARED.trim()).count(), 2, "{text}");
    assert!(!text.contains("CMA is not available"), "{text}");
}

#[test]
fn mpirun_starts_ranks_in_a_batch_script() {
    let Some(world) = world() else { return };
    if world.lacks("system-v", "MPICH, which wants System V segments") {
        return;
    }
    a_batch_script_starts_ranks(&world, "mpirun.openmpi -n 4", "mpiexec.mpich -n 4");
}

#[test]
fn srun_starts_ranks_in_a_batch_script() {
    let Some(world) = world() else { return };
    if world.lacks("tasks", "tasks that share a jail") {
        return;
    }
    a_batch_script_starts_ranks(&world, "srun --mpi=pmix", "srun --mpi=pmi2");
}

#[test]
fn srun_starts_ranks_from_a_login_node_and_in_an_allocation() {
    let Some(world) = world() else { return };
    if world.lacks("tasks", "tasks that share a jail") {
        return;
    }
    let output = world.same_but(
        r#"srun -N1 -n4 --mpi=pmix ./ring.openmpi; echo $?
        srun -N1 -n4 --mpi=$(srun --mpi=list 2>&1 | grep -om1 "pmix_v[0-9]*") ./ring.openmpi; echo $?
        srun -N1 -n4 --mpi=pmi2 ./ring.mpich; echo $?
        salloc -Q -N1 -n4 bash -c 'srun --mpi=pmix ./ring.openmpi; srun --mpi=pmi2 ./ring.mpich; mpirun.openmpi -n 4 ./ring.openmpi'
        srun -N1 -n8 --overcommit --mpi=pmix ./ring.openmpi
        srun -n2 --mpi=none ./ring.mpich"#,
        plain,
    );
    // Without a type of MPI the ranks are on their own, as everywhere.
    let ten = "sum 10 of 4\n";
    let expected = [
        &format!("{ten}0\n").repeat(3),
        &ten.repeat(3),
        "sum 36 of 8\n",
        &"sum 1 of 1\n".repeat(2),
    ];
    assert_eq!(output.out(), expected.concat(), "{output}");
}

/// One column of what `ids` prints.
#[track_caller]
pub(crate) fn column<'a>(lines: &[&'a str], name: &str) -> Vec<&'a str> {
    let value = |line: &&'a str| {
        let mut words = line.split_whitespace();
        words.find(|word| *word == name);
        words.next().unwrap_or_else(|| panic!("no {name}: {line}"))
    };
    lines.iter().map(value).collect()
}

/// Ranks on two nodes: those of one node share everything, and those of two nodes nothing. Which of
/// the nodes has three of the four is Slurm's choice.
#[track_caller]
fn on_two_nodes(text: &str) {
    let ranks = text
        .lines()
        .filter(|line| line.starts_with("rank ") && line.contains(" size 4 "));
    let lines: Vec<&str> = ranks.collect();
    assert_eq!(lines.len(), 4, "{text}");
    for name in ["pidns", "ipcns", "userns", "mntns"] {
        let spaces = column(&lines, name);
        let all: BTreeSet<&str> = spaces.iter().copied().collect();
        assert_eq!(all.len(), 2, "{name}: {text}");
        let ends = (spaces[0], spaces[3]);
        assert_ne!(ends.0, ends.1, "{name}: {text}");
        // In order of the ranks they change once, and each kind at the same place.
        let first = column(&lines, "pidns");
        let changes = |all: &[&str]| all.windows(2).position(|two| two[0] != two[1]);
        assert_eq!(changes(&spaces), changes(&first), "{name}: {text}");
    }
}

const PER_NODE: &str = "-N2 -n4 --distribution=block";

#[test]
fn ranks_run_on_two_nodes() {
    let Some(world) = world() else { return };
    if world.lacks("tasks", "tasks that share a jail") {
        return;
    }
    // By PMI-2 they find each other and talk. MPICH's end is not waited for: UCX 1.13 does not come out
    // of MPI_Finalize where two pid namespaces are one host, which a cluster on one machine makes of
    // two jails. It is the same without a jail, if unshare(1) starts the ranks of one node.
    let pmi2 = format!(
        "srun -Q {PER_NODE} --mpi=pmi2 -o sum.txt ./ring.mpich 2> /dev/null & \
         for i in $(seq 150); do [ -s sum.txt ] && break; sleep 0.1; done; cat sum.txt; kill $!; wait; rm -f sum.txt"
    );
    let output = world.inside(&pmi2).run();
    assert_eq!(output.out(), "sum 10 of 4\n", "{output}");
    let pmix = format!("srun {PER_NODE} --mpi=pmix ./ids.openmpi");
    // Where the two nodes of the tests' cluster have no mount namespaces of their own.
    // Open MPI's shared memory may take the ranks of one for those of the other, and crash or hang.
    let outside = format!("timeout -k 1 20 {pmix}");
    if world.outside(&outside).run().code != 0 {
        not_checked("ranks on two nodes by PMIx do not run without a jail, either");
        return;
    }
    on_two_nodes(&world.inside(&pmix).run().good().out());
    let script = format!("srun {PER_NODE} --mpi=pmix ./ring.openmpi; echo $?");
    let output = world.inside(&script).run();
    assert_eq!(output.out(), "sum 10 of 4\n0\n", "{output}");
}

#[test]
fn mpirun_starts_ranks_on_two_nodes() {
    let Some(world) = world() else { return };
    if world.lacks("tasks", "tasks that share a jail") {
        return;
    }
    world.write(
        "two.sh",
        format!(
            "#!/bin/bash\n#SBATCH {PER_NODE} -o two.txt\n\
             mpirun.openmpi -n 4 ./ring.openmpi; echo $?\nmpirun.openmpi -n 4 ./ids.openmpi > ids.txt\n"
        ),
    );
    world.inside("sbatch -Q -W two.sh").run().good();
    let text = world.read("two.txt");
    assert!(text.contains("sum 10 of 4\n0\n"), "{text}");
    on_two_nodes(&world.read("ids.txt"));
}

#[test]
fn each_task_has_what_is_its_own() {
    let Some(world) = world() else { return };
    if world.lacks("tasks", "tasks that share a jail") {
        return;
    }
    world.write("multi.conf", "0-1 ./ring.openmpi\n2-3 ./other\n");
    world.write("multi2.conf", "0,2 ./ring.mpich\n* ./other\n");
    world.write(
        "other",
        fs::read(world.project().join("ring.openmpi")).unwrap(),
    );
    let output = world.same_but(
        r#"srun -N1 -n4 --mpi=pmix --multi-prog multi.conf; echo $?
        cp ring.mpich other; srun -N1 -n4 --mpi=pmi2 --multi-prog multi2.conf; echo $?"#,
        plain,
    );
    assert_eq!(output.out(), "sum 10 of 4\n0\n".repeat(2), "{output}");
    let output = world.same_but(
        r#"srun -N1 --mpi=pmix -n3 -l bash -c 'echo $SLURM_PROCID $SLURM_LOCALID $PMIX_RANK $PWD' | sort
        srun -N1 --mpi=pmi2 -n3 -l bash -c 'echo $SLURM_PROCID $SLURM_LOCALID $PMI_RANK of $PMI_SIZE' | sort
        echo typed | srun -N1 --mpi=pmi2 -n2 -l cat | sort
        echo typed | srun -N1 --mpi=pmix -n2 -l --input=1 cat
        srun -N1 --mpi=pmi2 -n2 -o 'of-%t.txt' bash -c 'echo $PMI_RANK'
        srun -N1 -n3 bash -c 'exit $((SLURM_PROCID * 2))' 2>&1 | sort
        srun -N1 --mpi=pmix -n2 -l bash -c 'ulimit -Sn; ulimit -Hn; ulimit -s; ulimit -c; ulimit -m; ulimit -l' | sort
        srun -N1 -n2 -l grep -E '^(Cpus_allowed_list|SigBlk|SigIgn)' /proc/self/status | sort"#,
        plain,
    );
    let text = output.out();
    for line in [
        "2: 2 2 2 ",
        "1: 1 1 1 of 3\n",
        "0: typed\n1: typed\n1: typed\n",
    ] {
        assert!(text.contains(line), "{line}: {output}");
    }
    assert_eq!(world.read("of-1.txt"), "1\n");
}

#[test]
fn many_tasks_run_at_once() {
    let Some(world) = World::new() else { return };
    let output = world.same(
        "srun -N1 -n128 --overcommit sh -c 'echo $SLURM_PROCID' | sort -un | awk '{ s += $1 } END { print NR, s }'",
    );
    assert_eq!(output.out(), "128 8128\n", "{output}");
}

#[test]
fn a_step_of_two_kinds_is_refused() {
    let Some(world) = World::new() else { return };
    let output = world.inside("srun -n1 hostname : -n1 hostname").run();
    assert!(output.code != 0 && output.out().is_empty(), "{output}");
    assert!(
        output
            .err()
            .starts_with("srun: error: `:` is refused: heterogeneous jobs are not supported\n"),
        "{output}"
    );
    assert!(world.jobs(Side::Inside).is_empty());
}
