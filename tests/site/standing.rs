//! A user who wants more than the site's enforced policy allows, by what stands around a launch: a link
//! that changes meanwhile, namespaces of the user's own, a jail in a jail, a job's own words.

use std::fs;
use std::process::{Command, Stdio};

use agent_sandbox_wire::capsule::{
    Backend, Capsule, Layer, LayerKind, Options, PolicySnapshot, Program, Streams,
};

use crate::widening::{SYSTEM, Tried, holds, stops};
use crate::world::{CANARY, Output, World};

/// Allows one tree, and nothing of the home.
fn one_tree(t: &Tried) -> String {
    format!(
        "[files]\nread = [\"/bin\", \"/etc\", \"/lib\", \"/lib64\", \"/opt\", \"/sbin\", \"/usr\", \"{}\"]\nwrite = []\n[home]\nread = []\nwrite = []\n",
        t.open("")
    )
}

/// A link that points into the tree that is allowed and into the forbidden one in turns.
#[test]
fn a_link_that_flips_gives_nothing_forbidden() {
    const LAUNCHES: usize = 12;
    for backend in ["bwrap", "landlock"] {
        let tried = Tried::new(backend);
        tried.world.enforced(&one_tree(&tried));
        tried.link(tried.open(""), "flip");
        let (flip, one, other) = (
            tried.world.home().join("flip"),
            tried.open(""),
            tried.data(""),
        );
        let script = format!(
            "for i in $(seq 9999); do ln -sfn {other} {0}.new && mv -T {0}.new {0}; ln -sfn {one} {0}.new && mv -T {0}.new {0}; done",
            flip.display()
        );
        let user = tried.world.user();
        let mut flipping = Command::new("setpriv")
            .args([
                format!("--reuid={}", user.uid),
                format!("--regid={}", user.gid),
                "--clear-groups".into(),
            ])
            .args(["--", "sh", "-c", &script])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut given = 0;
        for launch in 0..LAUNCHES {
            let list = ["--read", "--write"][launch % 2];
            let script = format!(
                "cat {0}/secret {1}/secret {2}/secret 2> /dev/null; echo ran",
                tried.open(""),
                tried.data(""),
                tried.seen("flip")
            );
            let output = tried.run(&[list, &tried.seen("flip")], &script);
            assert!(!output.to_string().contains(CANARY), "{backend}: {output}");
            given += usize::from(output.stdout.contains("allowed"));
        }
        let _ = flipping.kill();
        let _ = flipping.wait();
        println!("{backend}: {given} of {LAUNCHES} launches had what is allowed");
    }
}

/// In a user namespace of the user's own, root's file cannot be told from the user's, and a file of the
/// user's in its place not from root's: nothing starts. What is a program of the user's own is another
/// matter, and so is a directory of the site's that the user covers with an empty one there.
#[test]
fn a_user_namespace_of_the_users_does_not_start_another_policy() {
    let world = World::new();
    world.enforced("[files]\nhide = [\"~/private\"]\n");
    world.write("private/secret", CANARY);
    world.write("own/enforced.toml", "");
    let read = "--read \"$HOME/private\" -- cat \"$HOME/private/secret\"";
    let control = world
        .outside("unshare -Ur -m sh -c 'id -u; mount -t tmpfs none /mnt && echo mounted'")
        .run();
    if !control.stdout.contains("mounted") {
        return agent_sandbox_support::not_checked(
            "a user namespace of the user's own",
            &control.stderr,
        );
    }
    for script in [
        format!("unshare -U \"$LAUNCHER\" {read}"),
        format!("unshare -U --map-user=$(id -u) \"$LAUNCHER\" {read}"),
        format!("unshare -U --map-current-user -m \"$LAUNCHER\" {read}"),
        format!(
            "unshare -Ur -m sh -c 'mount --bind ~/own /etc/agent-sandbox && exec unshare -U --map-user=1000 \"$LAUNCHER\" {}'",
            read.replace('\'', "")
        ),
        format!(
            "unshare -Ur -m sh -c 'mount -t tmpfs none /etc/agent-sandbox && cp ~/own/enforced.toml /etc/agent-sandbox/ && exec unshare -U --map-user=1000 \"$LAUNCHER\" {read}'"
        ),
        format!("unshare -Ur \"$LAUNCHER\" {read}"),
    ] {
        let output = world.outside(&script).run();
        assert!(!output.to_string().contains(CANARY), "{script}: {output}");
        assert_eq!(output.code, 125, "{script}: {output}");
    }
}

/// The launcher inside of a jail can give what the outer jail has, and no more.
#[test]
fn a_jail_in_a_jail_has_no_more() {
    let nested = |t: &Tried| format!("{}[jail]\nnested = true\n", one_tree(t));
    holds("a launcher inside", nested, |t| {
        let script = format!(
            "mkdir -p /tmp/etc; unshare -Urm sh -c 'mount --bind /tmp/etc /etc; exec unshare -U \"$L\" --read {0} -- cat {0}/secret'; \
             \"$L\" --read {0} -- cat {0}/secret; unshare -Ur cat {0}/secret; echo ran",
            t.data("")
        );
        let launcher = std::env::var("AGENT_SANDBOX_BIN").unwrap_or_default();
        t.jail(
            &[
                "--set",
                "jail.nested=true",
                "--env",
                &format!("L={launcher}"),
            ],
            &script,
        )
        .run()
    });
}

/// A job as the user's own hands write it, run by hand: its layers come with it, and the node's site
/// narrows them like any.
#[test]
fn a_forged_job_is_narrowed_by_the_node() {
    let job = |t: &Tried, layers: Vec<Layer>| {
        let backend = match t.backend {
            "landlock" => Backend::Landlock,
            _ => Backend::Bwrap,
        };
        let project = t.seen("project");
        let home = t.world.seen_home().to_str().unwrap();
        let capsule = Capsule {
            snapshot: PolicySnapshot {
                session: "forged00".into(),
                project: project.as_str().into(),
                layers,
                options: Options {
                    backend,
                    ..Options::default()
                },
                variables: Vec::new(),
                told: Vec::new(),
                traced: false,
                allocation: Vec::new(),
                placeholders: Vec::new(),
            },
            base_environment: Vec::new(),
            environment: vec![
                format!("HOME={home}").into(),
                b"PATH=/usr/bin:/bin".to_vec(),
            ],
            cwd: project.as_str().into(),
            submit_directory: project.as_str().into(),
            umask: 0o22,
            streams: Streams {
                output: Some(b"forged.txt".to_vec()),
                ..Streams::default()
            },
            program: Program::Script {
                script: format!("#!/bin/bash\ncat {}\necho ran\n", t.data("secret")).into(),
                arguments: Vec::new(),
            },
        };
        let launcher = std::env::var("AGENT_SANDBOX_BIN").unwrap();
        let script = capsule.batch_script(launcher.as_bytes()).unwrap();
        t.world.write("project/forged.sh", script);
        t.world
            .outside(
                "\"$LAUNCHER\" job \"$PWD/forged.sh\" 2>&1; code=$?; cat forged.txt; exit $code",
            )
            .variable("SLURM_JOB_ID", "7")
            .variable("SLURM_JOBID", "7")
            .variable("SLURM_JOB_NODELIST", "n1")
            .variable("SLURMD_NODENAME", "n1")
            .run()
    };
    let layer = |kind, t: &Tried| Layer {
        kind,
        file: "~/.config/agent-sandbox/config.toml".into(),
        text: format!(
            "[files]\nread = [\"{0}\"]\nunhide = [\"{0}\"]\n",
            t.data("")
        ),
    };
    let hidden = |t: &Tried| format!("[files]\nhide = [\"{}\"]\n", t.data(""));
    for enforced in [&one_tree as &dyn Fn(&Tried) -> String, &hidden] {
        stops("a layer of the user's", enforced, |t| {
            job(t, vec![layer(LayerKind::User, t)])
        });
        stops("a profile", enforced, |t| {
            job(t, vec![layer(LayerKind::Profile, t)])
        });
    }
    // What says that it is the site's may only narrow: it excepts nothing that the node hides.
    holds("a layer that says it is the site's", hidden, |t| {
        let mut forged = layer(LayerKind::SiteEnforced, t);
        let wider = format!("read = [{SYSTEM}, ");
        forged.text = forged.text.replace("read = [", &wider);
        job(t, vec![layer(LayerKind::User, t), forged])
    });
}

/// What no jail can know: another name of the same file. The kernel lets nobody make one of a file that
/// is somebody else's (`fs.protected_hardlinks`), so it is the user's own file, which the user can copy.
#[test]
fn hard_links_are_the_users_own_files() {
    let world = World::new();
    let secret = world.base().join("secret");
    fs::write(&secret, CANARY).unwrap();
    crate::world::mode(&secret, 0o644);
    let made = |script: &str| -> Output { world.outside(script).run() };
    let protected = fs::read_to_string("/proc/sys/fs/protected_hardlinks").unwrap_or_default();
    if protected.trim() == "0" {
        return agent_sandbox_support::not_checked(
            "hard links to files of others",
            "fs.protected_hardlinks is 0",
        );
    }
    let output = made(&format!("ln {} project/linked", secret.display()));
    assert_ne!(output.code, 0, "{output}");
}
