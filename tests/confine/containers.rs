//! Containers inside, as docs/guide/containers.md starts them: they work, and reach no more than the jail.

use std::fs;
use std::path::Path;

use crate::operations::text;
use crate::world::{Output, World, not_checked};

/// Makes the tree of an image in `image`, from programs of this host.
const IMAGE: &str = "mkdir -p image/bin image/lib64 image/proc image/dev image/sys image/tmp image/etc image/run image/var/tmp image/host image/home\n\
    for p in bash cat umount mount; do p=$(command -v $p); cp $p image/bin/\n\
    for l in $(ldd $p | grep -o '/[^ ]*'); do mkdir -p image${l%/*}; cp -n $l image$l; done; done";

/// What root of a container tries; the words are a covered directory, a covered file, a read-only file, a key.
const ATTACK: &str = "echo works; for root in /host ''; do cat $root$1/secret $root$2 $root$4; umount -l $root$1; umount $root$2\n\
    mount -o remount,rw,bind $root${3%/*}; mount --bind $root${1%/*} /tmp; cat $root$1/secret /tmp/private/secret $root$2; echo evil >> $root$3; done 2> /dev/null";

/// Whether a program is there; says so if not.
fn has(program: &str) -> bool {
    let there = ["/usr/bin", "/usr/local/bin"].map(|at| Path::new(at).join(program).exists());
    if there == [false; 2] {
        not_checked(&format!("{program} inside"), "it is not installed");
    }
    there != [false; 2]
}

/// Runs a container's command line in a jail with covers, without and with attacks.
fn try_out(options: &[(&str, String)], prepare: &str, run: &str) {
    let world = World::new();
    if world.lacks("nested", "containers inside") {
        return;
    }
    let (covered, token, data) = (
        world.project("private"),
        world.project("token"),
        world.home("data"),
    );
    world.secret(&covered.join("secret"));
    world.secret(&token);
    world.put(&data.join("file"), "data\n");
    let project = text(&world.project(""));
    let project = project.trim_end_matches('/');
    let started = |nested: bool, script: &str| -> Output {
        let mut run = world.jail([
            "--set",
            if nested {
                "jail.nested=true"
            } else {
                "jail.nested=false"
            },
        ]);
        for (option, value) in options {
            run = run.option(option, value.replace("PROJECT", project));
        }
        run.option("--hide", &covered)
            .option("--hide", &token)
            .option("--read", &data)
            .run(&["bash", "-c", script])
    };
    let made = world
        .outside()
        .run(&["bash", "-c", &format!("cd {project} && {IMAGE}\n{prepare}")]);
    assert_eq!(made.code(), 0, "{made:?}");
    let words = [
        covered.join("secret").parent().unwrap(),
        &token,
        &data.join("file"),
        &world.home(".ssh/id_rsa"),
    ]
    .map(text);
    let attack = format!(
        "{run} bash -c '{}' x {}",
        ATTACK.replace('\'', "'\\''"),
        words.join(" ")
    );
    // Without user namespaces neither starts.
    let refused = started(false, &attack);
    assert!(!refused.stdout.contains("works"), "{refused:?}");
    let output = started(true, &attack);
    assert!(output.stdout.contains("works\n"), "{output:?}");
    assert!(!output.stdout.contains(&world.marker), "{output:?}");
    assert_eq!(fs::read_to_string(data.join("file")).unwrap(), "data\n");
}

#[test]
fn apptainer_works_inside_and_uncovers_nothing() {
    if !has("apptainer") {
        return;
    }
    let mounts = "/var/lib/apptainer".to_owned();
    try_out(
        &[("--read", mounts)],
        "",
        "apptainer exec --bind /:/host image",
    );
}

#[test]
fn podman_works_inside_and_uncovers_nothing() {
    if !has("podman") || !has("crun") {
        return;
    }
    // The page's own words make its files.
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/guide/containers.md");
    let page = std::env::var_os("AGENT_SANDBOX_ROOT").map_or_else(
        || page.into(),
        |root| Path::new(&root).join("docs/guide/containers.md"),
    );
    let page = fs::read_to_string(page).unwrap();
    let block = page
        .split("```sh\n")
        .find(|block| block.starts_with("mkdir -p .podman"))
        .unwrap();
    let prepare = block.split("agent-sandbox --set").next().unwrap();
    let mut options = vec![("--read", "/sys/fs/cgroup".to_owned())];
    for line in [
        "XDG_RUNTIME_DIR=/tmp",
        "CONTAINERS_CONF=PROJECT/.podman/containers.conf",
        "CONTAINERS_STORAGE_CONF=PROJECT/.podman/storage.conf",
    ] {
        assert!(block.contains(&line.replace("PROJECT", "$PWD")), "{line}");
        options.push(("--env", line.to_owned()));
    }
    if Path::new("/sys/fs/cgroup/unified").exists() {
        options.push(("--hide", "/sys/fs/cgroup/unified".to_owned()));
    }
    let run = "tar -C image -c . | podman import - tried > /dev/null 2>&1 && podman run --privileged --rm -v /:/host tried";
    try_out(&options, prepare, run);
}
