//! Device nodes: which ones are there, and that no more can be made or opened.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileTypeExt;

use crate::backend::{is_as_good, is_landlock};
use crate::op;
use crate::world::{World, not_checked};

#[test]
fn devices_are_the_harmless_ones() {
    let world = World::new();
    if is_landlock() {
        return devices_of_the_host_are_closed(&world);
    }
    let listed = world.jail([]).operation(op!("list", "/dev"));
    let minimal = [
        "core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout",
        "tty", "urandom", "zero",
    ];
    let allowed = [
        "nvidia",
        "gdrdrv",
        "kfd",
        "dri",
        "accel",
        "neuron",
        "infiniband",
        "hfi1",
        "ipath",
        "cxi",
    ];
    let inside: Vec<&str> = listed.trim_start_matches("ok:").split(',').collect();
    for name in &inside {
        assert!(
            minimal.contains(name) || allowed.iter().any(|known| name.starts_with(known)),
            "/dev/{name}"
        );
    }
    for name in minimal {
        assert!(inside.contains(&name), "/dev/{name} is missing: {inside:?}");
    }
    // Everything else that the host has, and what a host may have.
    let mut absent: BTreeSet<String> = fs::read_dir("/dev")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| !inside.contains(&name.as_str()))
        .collect();
    absent.extend(
        [
            "sda",
            "vda",
            "nvme0",
            "mem",
            "kmem",
            "port",
            "kmsg",
            "fuse",
            "kvm",
            "loop0",
            "loop-control",
            "console",
            "tty0",
            "vhost-net",
            "net",
            "mapper",
            "hugepages",
            "mqueue",
            "uinput",
            "snapshot",
        ]
        .map(str::to_owned),
    );
    let reads: Vec<String> = absent
        .iter()
        .map(|name| op!("stat", format!("/dev/{name}")))
        .collect();
    for (operation, answer) in reads.iter().zip(world.jail([]).operations(&reads)) {
        assert_eq!(answer, "ENOENT", "{operation}");
    }
    let answers = world.jail([]).operations(&[
        op!("list", "/dev/pts"),
        op!("mknod", "/tmp/disk"),
        op!("mknod", "/dev/disk"),
        op!("mknod", world.project("disk")),
        op!("read", "/dev/core"),
    ]);
    assert_eq!(answers[0], "ok:ptmx");
    for answer in &answers[1..4] {
        assert!(
            ["EPERM", "EROFS", "EACCES"].contains(&answer.as_str()),
            "{answers:?}"
        );
    }
    assert!(
        ["EACCES", "EPERM", "ENOENT"].contains(&answers[4].as_str()),
        "{answers:?}"
    );
}

/// The host's own `/dev`: all but the harmless ones are closed, whatever their modes say.
fn devices_of_the_host_are_closed(world: &World) {
    let harmless = ["full", "null", "ptmx", "random", "tty", "urandom", "zero"];
    let accelerators = [
        "nvidia", "gdrdrv", "kfd", "dri", "accel", "neuron", "hfi1", "ipath",
    ];
    let others = ["infiniband", "cxi"];
    let mut closed = Vec::new();
    for entry in fs::read_dir("/dev").unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_string_lossy().into_owned();
        let device = fs::metadata(entry.path()).is_ok_and(|meta| {
            meta.file_type().is_char_device() || meta.file_type().is_block_device()
        });
        // Standard streams by their other names are the jail's own.
        let known = accelerators.iter().chain(&others);
        let known = known.clone().any(|known| name.starts_with(known));
        let own = entry.path().is_symlink();
        if device && !own && !known && !harmless.contains(&name.as_str()) {
            closed.push(name);
        }
    }
    let mut operations = Vec::new();
    for name in &closed {
        operations.push(op!("read", format!("/dev/{name}")));
        operations.push(op!("write", format!("/dev/{name}")));
    }
    for (operation, answer) in operations
        .iter()
        .zip(world.jail([]).operations(&operations))
    {
        assert_eq!(answer, "EACCES", "{operation}");
    }
    // With a device that everybody may open, the attack is one.
    let plain = world.outside().operations(&operations);
    if plain
        .iter()
        .all(|answer| ["EACCES", "EPERM"].contains(&answer.as_str()))
    {
        not_checked(
            "devices that everybody may open",
            "this host has none but the harmless ones",
        );
    }
    let writes = harmless.map(|name| op!("write", format!("/dev/{name}")));
    for (operation, answer) in writes.iter().zip(world.jail([]).operations(&writes)) {
        // No terminal controls a test; the others work.
        let expected = if operation.ends_with("/tty") {
            "ENXIO"
        } else {
            "ok"
        };
        assert_eq!(answer, expected, "{operation}");
    }
    let disks = [
        op!("mknod", "/tmp/disk"),
        op!("mknod", "/dev/disk"),
        op!("mknod", world.project("disk")),
    ];
    for answer in world.jail([]).operations(&disks) {
        assert!(
            is_as_good(&answer, "EPERM") || answer == "EACCES",
            "{answer}"
        );
    }
}
