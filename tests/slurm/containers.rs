//! MPI in containers: each rank starts one in its jail, of Podman's by the files of docs/guide/containers.md, of Apptainer's
//! where that is installed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::call::Call;
use crate::cluster::not_checked;
use crate::mpi::{column, with_programs, world};
use crate::world::World;

/// An image with the host's programs and libraries, and a script that is nowhere else: what it starts
/// is in a container.
const IMAGE: &str = r#"set -e; mkdir -p image/{usr,proc,dev,sys,tmp,etc,run,host,of-image}
for l in bin lib lib64 sbin; do ln -s usr/$l image/$l; done
printf '#!/bin/bash\nexec "$@"\n' > image/of-image/start; chmod +x image/of-image/start
tar -C image -c . | podman import - tried > /dev/null
"#;

/// The same image as a directory, which Apptainer starts as it is.
const DIRECTORY: &str = r#"set -e; mkdir -p image/{usr,proc,dev,sys,tmp,etc,run,host,of-image,home,var/tmp}
for l in bin lib lib64 sbin; do ln -s usr/$l image/$l; done
printf '#!/bin/bash\nexec "$@"\n' > image/of-image/start; chmod +x image/of-image/start
"#;

/// What the page starts for a rank, with what this image needs.
const APPTAINER: &str = "apptainer exec --bind /usr image /of-image/start";

/// The page's own scripts, with what this image needs.
const TASK: &str = ".podman/task -v /usr:/usr:ro";
const START: &str = "tried /of-image/start .podman/rank";

/// The page's block of shell that starts with these words.
#[track_caller]
fn block<'a>(page: &'a str, words: &str) -> &'a str {
    let mut blocks = page.split("```sh\n").skip(1);
    let found = blocks.find(|block| block.starts_with(words));
    let found = found.unwrap_or_else(|| panic!("the page has no block `{words}`"));
    found.split("```").next().unwrap_or_default()
}

/// A script in a session with the page's options.
fn session<'a>(world: &'a World, script: &str) -> Call<'a> {
    let files = world.project().join(".podman");
    let named = |variable: &str, file: &str| format!("{variable}={}", files.join(file).display());
    let mut options = vec![
        ("--read", "/sys/fs/cgroup".to_owned()),
        ("--env", "XDG_RUNTIME_DIR=/tmp".to_owned()),
        ("--env", named("CONTAINERS_CONF", "containers.conf")),
        ("--env", named("CONTAINERS_STORAGE_CONF", "storage.conf")),
    ];
    if Path::new("/sys/fs/cgroup/unified").exists() {
        options.push(("--hide", "/sys/fs/cgroup/unified".to_owned()));
    }
    let call = world.inside(script).set("jail.nested=true");
    options.into_iter().fold(call, |call, (option, value)| {
        call.option(option).option(value)
    })
}

/// A world with the programs of MPI, the page's files, and the image, which the jobs of later sessions find.
#[track_caller]
fn prepared() -> Option<World> {
    for program in ["podman", "crun"] {
        if !Path::new("/usr/bin").join(program).exists() {
            not_checked(&format!("MPI in containers: {program} is not installed"));
            return None;
        }
    }
    let world = world()?;
    if world.lacks("nested", "containers inside") || world.lacks("tasks", "tasks that share a jail")
    {
        return None;
    }
    let root = std::env::var_os("AGENT_SANDBOX_ROOT")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let page = fs::read_to_string(root.join("docs/guide/containers.md")).unwrap();
    let files = block(&page, "mkdir -p .podman");
    let files = files.split("agent-sandbox --set").next().unwrap();
    let task = block(&page, "cat > .podman/task");
    let task = task.split("srun ").next().unwrap();
    world.inside(&format!("{files}{task}")).run().good();
    session(&world, IMAGE).run().good();
    Some(world)
}

#[test]
fn ranks_in_containers_find_each_other() {
    let Some(world) = prepared() else { return };
    // Memory is the only transport, without which MPI_Init fails.
    let pmix = format!("srun -N1 -n4 --mpi=pmix {TASK} {START}");
    let script = format!(
        "export OMPI_MCA_btl=vader,self\n\
         {pmix} ./ring.openmpi; echo $?\n{pmix} ./ids.openmpi\n{pmix} ./shm.openmpi"
    );
    let output = session(&world, &script).run();
    let text = output.out();
    assert!(text.starts_with("sum 10 of 4\n0\n"), "{output}");
    assert!(text.contains("posix ok\n"), "{output}");
    assert!(text.contains("window ok\n"), "{output}");
    // Four ranks in four containers share the network, and have a process number each.
    let ranks = text.lines().filter(|line| line.starts_with("rank "));
    let ranks: Vec<&str> = ranks.collect();
    for (name, kinds) in [
        ("pidns", 4),
        ("userns", 4),
        ("mntns", 4),
        ("pid", 4),
        ("netns", 1),
    ] {
        let all: BTreeSet<&str> = column(&ranks, name).into_iter().collect();
        assert_eq!(all.len(), kinds, "{name}: {output}");
    }
    // Of MPICH the end is not waited for, as in `mpi::ranks_run_on_two_nodes`: UCX 1.13 does not always
    // come out of MPI_Finalize where ranks of one host have pid namespaces of their own.
    let pmi2 = format!(
        "srun -Q -N1 -n4 --mpi=pmi2 -o sum.txt {TASK} {START} ./ring.mpich 2> /dev/null & \
         for i in $(seq 600); do grep -q sum sum.txt 2> /dev/null && break; sleep 0.1; done\n\
         grep sum sum.txt; kill $!; wait"
    );
    let output = session(&world, &pmi2).run();
    assert_eq!(output.out(), "sum 10 of 4\n", "{output}");
}

#[test]
fn a_container_in_a_job_uncovers_nothing() {
    let Some(world) = prepared() else { return };
    let run = format!("{TASK} -v /:/host {START}");
    uncovers_nothing(&world, &run, session);
}

/// A task starts a container, in which the jail's root is `/host`: what the jail hides is hidden there.
#[track_caller]
fn uncovers_nothing(world: &World, run: &str, inside: for<'a> fn(&'a World, &str) -> Call<'a>) {
    let secret = world.home(".ssh/id_rsa");
    let secret = secret.display();
    // The control: outside the same path leads to it.
    let control = world.outside(&format!("cat {secret}")).run();
    assert!(control.out().contains(&world.cluster.marker), "{control}");
    let script =
        format!("srun -n1 {run} bash -c 'echo works; ls -d /host$PWD; cat /host{secret} {secret}'");
    let output = inside(world, &script).run();
    let shown = format!("works\n/host{}\n", world.project().display());
    assert_eq!(output.out(), shown, "{output}");
    world.check(&output);
}

/// A world with the programs of MPI and the image, if Apptainer is installed.
#[track_caller]
fn with_apptainer() -> Option<World> {
    if !Path::new("/usr/bin/apptainer").exists() {
        not_checked("MPI in containers: apptainer is not installed");
        return None;
    }
    let world = World::new()?;
    if world.lacks("nested", "containers inside") || world.lacks("tasks", "tasks that share a jail")
    {
        return None;
    }
    with_programs(&world);
    world.inside(DIRECTORY).run().good();
    Some(world)
}

/// A script in a session that permits Apptainer.
fn apptainer<'a>(world: &'a World, script: &str) -> Call<'a> {
    let call = world.inside(script).set("jail.nested=true");
    call.option("--read").option("/var/lib/apptainer")
}

#[test]
fn ranks_in_containers_of_apptainer_find_each_other() {
    let Some(world) = with_apptainer() else {
        return;
    };
    let pmi2 = format!("srun -N1 -n4 --mpi=pmi2 {APPTAINER}");
    let script = format!(
        "{pmi2} ./ring.mpich; echo $?\n{pmi2} ./ids.mpich\n{pmi2} ./shm.mpich\n\
         salloc -Q -N1 -n4 mpirun.openmpi -n 4 {APPTAINER} ./ring.openmpi"
    );
    let output = apptainer(&world, &script).run();
    let text = output.out();
    assert!(text.starts_with("sum 10 of 4\n0\n"), "{output}");
    assert!(text.ends_with("sum 10 of 4\n"), "{output}");
    for memory in ["posix ok\n", "sysv ok\n", "window ok\n"] {
        assert_eq!(text.matches(memory).count(), 4, "{output}");
    }
    // Four containers with user namespaces and mounts of their own, in one jail.
    let ranks: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("rank "))
        .collect();
    for (name, kinds) in [
        ("userns", 4),
        ("mntns", 4),
        ("pid", 4),
        ("pidns", 1),
        ("ipcns", 1),
        ("netns", 1),
    ] {
        let all: BTreeSet<&str> = column(&ranks, name).into_iter().collect();
        assert_eq!(all.len(), kinds, "{name}: {output}");
    }
}

#[test]
fn a_container_of_apptainer_in_a_job_uncovers_nothing() {
    let Some(world) = with_apptainer() else {
        return;
    };
    let run = APPTAINER.replace("--bind /usr", "--bind /usr --bind /:/host");
    uncovers_nothing(&world, &run, apptainer);
}
