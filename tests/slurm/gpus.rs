//! Device nodes of GPUs and fast networks, without any: nodes that nobody drives. Who may open one is told that there is no device
//! (`ENXIO`); whom modes or Slurm's cgroup forbid it, that it is not permitted.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use crate::call::in_place;
use crate::chosen::is_landlock;
use crate::cluster::not_checked;
use crate::own::Own;
use crate::world::World;

/// What every node has that is not one GPU's: shared by all of NVIDIA's or AMD's, and the network's.
const SHARED: &[(&str, u64, u64)] = &[
    ("nvidiactl", 195, 255),
    ("nvidia-modeset", 195, 254),
    ("nvidia-uvm", 511, 0),
    ("nvidia-uvm-tools", 511, 1),
    ("nvidia-caps-imex-channels/channel0", 504, 0),
    ("gdrdrv", 505, 0),
    ("kfd", 510, 0),
    ("infiniband/uverbs0", 507, 192),
    ("infiniband/rdma_cm", 507, 58),
    ("cxi0", 509, 0),
    ("hfi1_0", 508, 0),
];
/// One GPU each; of the last GPU only instances are given away (MIG).
const GPUS: &[(&str, u64, u64)] = &[
    ("nvidia0", 195, 0),
    ("nvidia1", 195, 1),
    ("nvidia2", 195, 2),
    ("nvidia-caps/nvidia-cap21", 506, 21),
    ("nvidia-caps/nvidia-cap22", 506, 22),
    ("nvidia-caps/nvidia-cap30", 506, 30),
    ("nvidia-caps/nvidia-cap31", 506, 31),
    ("dri/renderD128", 503, 128),
    ("dri/renderD129", 503, 129),
];
/// The mode of MIG's configuration is root's.
const ROOTS: (&str, u64, u64) = ("nvidia-caps/nvidia-cap1", 506, 1);
/// What no jail has.
const OTHERS: &[(&str, u64, u64)] = &[
    ("sda", 502, 0),
    ("nvme0n1", 502, 1),
    ("mem", 502, 2),
    ("kvm", 502, 3),
    ("fuse", 502, 4),
    ("vfio/vfio", 502, 5),
    ("xpmem", 502, 6),
    ("knem", 502, 7),
];
const HARMLESS: &[(&str, u64, u64)] = &[
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];

/// A `/dev` with all of them; `None` where no nodes can be made.
fn devices() -> Option<tempfile::TempDir> {
    let place = tempfile::Builder::new()
        .prefix("agent-sandbox-dev.")
        .tempdir_in("/var/tmp")
        .unwrap();
    let dev = place.path();
    fs::set_permissions(dev, fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["pts", "shm", "mqueue"] {
        fs::create_dir(dev.join(name)).unwrap();
    }
    fs::set_permissions(dev.join("shm"), fs::Permissions::from_mode(0o1777)).unwrap();
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        symlink(target, dev.join(name)).unwrap();
    }
    let all = SHARED.iter().chain(GPUS).chain(OTHERS).chain(HARMLESS);
    for &(name, major, minor) in all.chain([&ROOTS]) {
        let path = dev.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let (kind, mode) = (SFlag::S_IFCHR, Mode::from_bits_truncate(0o666));
        if let Err(error) = mknod(&path, kind, mode, makedev(major, minor)) {
            not_checked(&format!("no device nodes can be made here: {error}"));
            return None;
        }
        let mode = if name == ROOTS.0 { 0o400 } else { 0o666 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    Some(place)
}

/// Says of each node whether it is there, and whether it may be opened.
fn probe() -> String {
    let all = SHARED.iter().chain(GPUS).chain(OTHERS).chain([&ROOTS]);
    let names: Vec<&str> = all.map(|(name, ..)| *name).collect();
    format!(
        "#!/bin/bash\nfor d in {}; do\n\
         if [ ! -e /dev/$d ]; then echo \"$d absent\"; continue; fi\n\
         case $({{ : < /dev/$d; }} 2>&1) in '' | *'No such device'*) echo \"$d open\" ;; *) echo \"$d closed\" ;; esac\ndone\n",
        names.join(" ")
    )
}

/// The nodes that can be opened, of these.
fn open<'a>(said: &str, of: &[(&'a str, u64, u64)]) -> Vec<&'a str> {
    let names = of.iter().map(|(name, ..)| *name);
    names
        .filter(|name| said.lines().any(|line| line == format!("{name} open")))
        .collect()
}

fn names<'a>(of: &[(&'a str, u64, u64)]) -> Vec<&'a str> {
    of.iter().map(|(name, ..)| *name).collect()
}

#[test]
fn a_session_has_the_devices_of_the_policy_and_no_others() {
    let Some(world) = World::new() else { return };
    let Some(dev) = devices() else { return };
    world.write("probe.sh", probe());
    let run = |settings: &[&str]| {
        let mut call = world.inside("./probe.sh");
        for setting in settings {
            call = call.set(setting);
        }
        let output = in_place(dev.path(), Path::new("/dev"), &call.command())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        for (name, ..) in OTHERS {
            let not_there = if is_landlock() { "closed" } else { "absent" };
            assert!(said.contains(&format!("{name} {not_there}\n")), "{said}");
        }
        // The user's own rights decide as well.
        assert!(!said.contains(&format!("{} open", ROOTS.0)), "{said}");
        said
    };
    let all = run(&[]);
    assert_eq!(open(&all, SHARED), names(SHARED), "{all}");
    assert_eq!(open(&all, GPUS), names(GPUS), "{all}");
    // As the page says it for a workstation.
    let none = run(&["devices.deny=[\"/dev/nvidia*\", \"/dev/dri/*\", \"/dev/kfd\"]"]);
    let rest = [
        "gdrdrv",
        "infiniband/uverbs0",
        "infiniband/rdma_cm",
        "cxi0",
        "hfi1_0",
    ];
    assert_eq!(open(&none, SHARED), rest, "{none}");
    assert_eq!(open(&none, GPUS), [""; 0], "{none}");
    // Adapters reach a network past every rule: they are there where it is open, or somebody has named them.
    let gpus = [
        "nvidiactl",
        "nvidia-modeset",
        "nvidia-uvm",
        "nvidia-uvm-tools",
        "gdrdrv",
        "kfd",
    ];
    let modes: &[&str] = match is_landlock() {
        true => &["filtered"],
        false => &["filtered", "isolated"],
    };
    for mode in modes {
        let mode = format!("network.mode=\"{mode}\"");
        let closed = run(&[&mode]);
        assert_eq!(open(&closed, SHARED), gpus, "{mode}: {closed}");
        let named = run(&[&mode, "devices.allow=[\"/dev/cxi*\"]"]);
        let and_one = [&gpus[..], &["cxi0"]].concat();
        assert_eq!(open(&named, SHARED), and_one, "{mode}: {named}");
    }
    let one = run(&["devices.deny=[\"/dev/nvidia0\", \"/dev/nvidia-caps/*\"]"]);
    assert_eq!(
        open(&one, GPUS),
        ["nvidia1", "nvidia2", "dri/renderD128", "dri/renderD129"],
        "{one}"
    );
}

/// Two of NVIDIA's, two of AMD's, and two instances of a third (MIG).
const GRES: &str = "Name=gpu Type=hopper File=/dev/nvidia[0-1]
Name=gpu Type=instinct File=/dev/dri/renderD[128-129]
Name=gpu Type=mig MultipleFiles=/dev/nvidia2,/dev/nvidia-caps/nvidia-cap21,/dev/nvidia-caps/nvidia-cap22
Name=gpu Type=mig MultipleFiles=/dev/nvidia2,/dev/nvidia-caps/nvidia-cap30,/dev/nvidia-caps/nvidia-cap31
";

#[test]
fn jobs_and_steps_open_their_own_gpus_and_no_others() {
    let Some(dev) = devices() else { return };
    let options = [
        "--devices".as_ref(),
        dev.path().as_os_str(),
        "--gres".as_ref(),
        "gpu:hopper:2,gpu:instinct:2,gpu:mig:2".as_ref(),
    ];
    let Some(own) = Own::start_with("gpus", &[("gres.conf", GRES)], &options) else {
        return;
    };
    let world = World::of(own.cluster, &own.cluster.alice);
    world.write("probe.sh", probe());
    let none = world.outside("srun -N1 ./probe.sh").run().good().out();
    if open(&none, GPUS) == names(GPUS) {
        not_checked("Slurm's cgroups keep nobody from devices here (ConstrainDevices)");
        return;
    }
    let asked = |what: &str| {
        let script = format!("srun -Q -N1 -n1 {what} ./probe.sh");
        let inside = world.inside(&script).run().good().out();
        let outside = world.outside(&script).run().good().out();
        for name in names(OTHERS) {
            let not_there = if is_landlock() { "closed" } else { "absent" };
            assert!(
                inside.contains(&format!("{name} {not_there}\n")),
                "{what}: {inside}"
            );
        }
        assert_eq!(open(&inside, SHARED), names(SHARED), "{what}: {inside}");
        let gpus = open(&inside, GPUS);
        assert_eq!(gpus, open(&outside, GPUS), "{what}");
        gpus.join(" ")
    };
    assert_eq!(asked(""), "");
    assert_eq!(asked("--gres=gpu:hopper:1"), "nvidia0");
    assert_eq!(asked("--gres=gpu:hopper:2"), "nvidia0 nvidia1");
    assert_eq!(asked("--gres=gpu:instinct:1"), "dri/renderD128");
    // An instance is three nodes, of which the GPU's own is also that of the others.
    let instance = asked("--gres=gpu:mig:1");
    let instance = instance.strip_prefix("nvidia2 ").unwrap_or(&instance);
    assert_eq!(
        instance,
        "nvidia-caps/nvidia-cap21 nvidia-caps/nvidia-cap22"
    );
    // Two steps of a job share its jail on a node, and no GPU.
    world.write(
        "steps.sh",
        "#!/bin/bash\n#SBATCH -N1 -n2 --gres=gpu:hopper:2 -o batch.txt\n./probe.sh > job.txt\n\
         for i in 1 2; do srun -Q -n1 --exact --gres=gpu:hopper:1 bash -c \"touch here.$i; until [ -e here.1 ] && [ -e here.2 ]; do sleep 0.05; done\n\
         ./probe.sh > step$i.txt\" & done; wait\n",
    );
    world.inside("sbatch -Q -W steps.sh").run().good();
    assert_eq!(open(&world.read("job.txt"), GPUS), ["nvidia0", "nvidia1"]);
    let steps = ["step1.txt", "step2.txt"].map(|name| open(&world.read(name), GPUS).join(" "));
    let mut both = steps.clone();
    both.sort();
    assert_eq!(both, ["nvidia0", "nvidia1"], "{}", world.read("batch.txt"));
}
