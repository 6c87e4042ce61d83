//! `[trace]`: what a launch asks the node's tracer, when, and what it does if it gets no answer. The tracer here is a
//! fake ([`crate::fake_tracer`]).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agent_sandbox_events::protocol::{Enforce, EventKind, Lifetime};
use agent_sandbox_wire::capsule::{
    Backend, Capsule, Layer, LayerKind, Options, PolicySnapshot, Program, Streams,
};

use agent_sandbox_support::not_checked;

use crate::fake_tracer::{Asked, Fake, Manners};
use crate::widening::Tried;

use crate::world::{Output, World, mode};

pub(crate) const BOTH: [&str; 2] = ["bwrap", "landlock"];

/// A directory where only root can put a socket.
fn of_root() -> tempfile::TempDir {
    let directory = tempfile::Builder::new()
        .prefix("agent-sandbox-trace.")
        .tempdir_in("/run")
        .unwrap();
    mode(directory.path(), 0o755);
    directory
}

/// A site whose tracer listens there.
fn site(directory: &Path, more: &str) -> String {
    let socket = directory.join("tracer.sock");
    format!("[trace]\nsocket = {socket:?}\n{more}")
}

/// What a launch says but for what every jail of Landlock's says.
fn said(output: &Output) -> Vec<&str> {
    let usual = "agent-sandbox: weaker jail: Landlock, ";
    let lines = output.stderr.lines();
    lines.filter(|line| !line.starts_with(usual)).collect()
}

/// A launch that makes the file `started` in the project.
fn launch(tried: &Tried, options: &[&str]) -> Output {
    tried.jail(options, "echo yes > started; echo ran").run()
}

fn started(tried: &Tried) -> PathBuf {
    tried.world.home().join("project/started")
}

/// One launch with a tracer of these manners, under a site that says `more`.
pub(crate) fn with_tracer(
    backend: &'static str,
    manners: Manners,
    more: &str,
) -> (Tried, Output, Vec<Asked>) {
    let (tried, directory) = (Tried::new(backend), of_root());
    tried.world.enforced(&site(directory.path(), more));
    let fake = Fake::new(directory.path(), manners, Some(started(&tried)));
    let output = launch(&tried, &[]);
    (tried, output, fake.asked())
}

#[test]
fn a_session_is_traced_before_anything_of_it_runs() {
    for backend in BOTH {
        let (tried, directory) = (Tried::new(backend), of_root());
        tried.world.enforced(&site(directory.path(), ""));
        let fake = Fake::new(directory.path(), Manners::Whole, Some(started(&tried)));
        let output = launch(&tried, &["--set", "trace.redact=[\"--key=*\"]"]).ok();
        assert_eq!(output.stdout, "ran\n");
        assert!(said(&output).is_empty(), "{output}");
        let asked = fake.one();
        assert!(started(&tried).exists());
        assert!(
            asked.begun && !asked.too_late && asked.closed,
            "{backend}: {asked:?}"
        );
        assert_eq!(asked.uid, Some(tried.world.user().uid.as_raw()));
        // The jail's own processes are there, and nothing else.
        let shell = asked.programs.iter().any(|program| program == "sh");
        assert!(!shell && asked.programs.len() >= 2, "{backend}: {asked:?}");
        let register = asked.register.unwrap();
        let session = register.session.as_deref().unwrap();
        assert_eq!(session.len(), 8, "{session}");
        assert_eq!((register.job, register.step), (None, None));
        assert_eq!(&register.command[..2], ["sh", "-c"]);
        assert!(register.scope.descendants && register.scope.cgroup.is_none());
        assert_eq!(register.redact, ["--key=*"]);
        assert_eq!((register.every, register.missing), (1, false));
        assert!(register.events.contains(&EventKind::Open));
        assert!(!register.events.contains(&EventKind::Fork));
        assert_eq!(register.enforce, Enforce::Off);
        assert_eq!(register.lifetime, Lifetime::Tasks);
        assert!(asked.forbidden.is_empty());
    }
}

/// Where the whole of cgroup v2 is mounted, if it is.
fn cgroups() -> Option<PathBuf> {
    let places = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    let is = |path: &&&str| Path::new(path).join("cgroup.procs").exists();
    let found = places
        .iter()
        .find(|path| Path::new(path).join("cgroup.controllers").exists());
    found.filter(is).map(PathBuf::from)
}

/// As `systemd --user` has it: a part of the tree is the user's.
#[test]
fn a_session_has_a_cgroup_of_its_own_where_the_user_may_make_one() {
    let Some(root) = cgroups() else {
        return not_checked("a session's cgroup", "cgroup v2 is not mounted");
    };
    for backend in BOTH {
        let (tried, directory) = (Tried::new(backend), of_root());
        tried.world.enforced(&site(directory.path(), ""));
        let fake = Fake::new(directory.path(), Manners::Whole, None);
        let group = root.join(format!("agent-sandbox-test-{}", std::process::id()));
        if let Err(error) = fs::create_dir(&group) {
            return not_checked("a session's cgroup", &error.to_string());
        }
        tried.world.own(&group, 0o755);
        tried.world.own(&group.join("cgroup.procs"), 0o644);
        let output = tried
            .jail(&[], "grep ^0: /proc/self/cgroup")
            .cgroup(&group)
            .run();
        let left: Vec<_> = fs::read_dir(&group).unwrap().flatten().collect();
        let left: Vec<_> = left
            .into_iter()
            .filter(|entry| entry.path().is_dir())
            .collect();
        let removed = fs::remove_dir(&group);
        let register = fake.one().register.unwrap();
        let session = register.session.unwrap();
        assert!(register.scope.cgroup.is_some(), "{backend}: {output}");
        // What the process reads is relative to where the jail's own tree begins.
        assert!(
            output.stdout.contains(&format!("agent-sandbox-{session}")) || backend == "bwrap",
            "{output}"
        );
        assert!(left.is_empty(), "{backend}: {left:?}");
        removed.unwrap();
    }
}

#[test]
fn nothing_is_said_where_no_tracer_runs() {
    for backend in BOTH {
        let (tried, directory) = (Tried::new(backend), of_root());
        tried.world.enforced(&site(directory.path(), ""));
        let output = launch(&tried, &[]).ok();
        assert_eq!(output.stdout, "ran\n");
        assert!(said(&output).is_empty(), "{output}");
    }
}

#[test]
fn what_the_policy_demands_and_cannot_be_had_starts_nothing() {
    const REQUIRED: &str = "mode = \"required\"\n";
    let enforced = format!("{REQUIRED}enforce = true\n");
    for backend in BOTH {
        for (manners, more, why) in [
            (Manners::Refuses, REQUIRED, "there are too many traces"),
            (Manners::Strange, REQUIRED, "another version"),
            (Manners::Silent, REQUIRED, "does not answer"),
            (Manners::Weak, &enforced, "can deny nothing on this kernel"),
        ] {
            let (tried, output, _) = with_tracer(backend, manners, more);
            output.refused(&[
                "the policy demands that this is traced",
                why,
                "trace.mode `required` (/etc/agent-sandbox/enforced.toml:3)",
            ]);
            assert!(!started(&tried).exists(), "{backend} {manners:?}");
        }
        // Nobody listens; and whatever a user says.
        let (tried, directory) = (Tried::new(backend), of_root());
        tried.world.enforced(&site(directory.path(), REQUIRED));
        for options in [
            &[][..],
            &["--set", "trace.mode=off"],
            &["--set", "trace.mode=on"],
        ] {
            launch(&tried, options).refused(&["no tracer runs on this node"]);
        }
        // A socket without anybody behind it.
        drop(Fake::new(directory.path(), Manners::Whole, None));
        launch(&tried, &[]).refused(&["no tracer runs on this node"]);
        assert!(!started(&tried).exists());
        // And with one it starts.
        let (tried, output, asked) = with_tracer(backend, Manners::Whole, &enforced);
        output.ok();
        assert!(started(&tried).exists() && asked.iter().any(|asked| asked.begun));
    }
}

#[test]
fn what_is_only_wished_for_is_said_to_be_lacking() {
    for backend in BOTH {
        for (manners, more, why) in [
            (
                Manners::Refuses,
                "",
                "this is not traced: the tracer refuses: there are too many traces\\nof yours",
            ),
            (
                Manners::Strange,
                "",
                "this is not traced: the tracer's answer is not understood",
            ),
            (
                Manners::Weak,
                "enforce = true\n",
                "the tracer can deny nothing on this kernel (tracepoints 6.0-fake)",
            ),
        ] {
            let (_, output, asked) = with_tracer(backend, manners, more);
            let output = output.ok().says(&["agent-sandbox: warning: ", why]);
            assert_eq!(said(&output).len(), 1, "{output}");
            let register = asked.into_iter().find_map(|asked| asked.register);
            match manners {
                Manners::Weak => assert_eq!(register.unwrap().enforce, Enforce::Off),
                _ => assert!(register.is_none()),
            }
        }
        let (tried, directory) = (Tried::new(backend), of_root());
        tried
            .world
            .enforced(&site(directory.path(), "enforce = true\n"));
        launch(&tried, &[])
            .ok()
            .says(&["this is not traced: no tracer runs"]);
    }
}

const SLOW: &str = "the tracer is slow to answer: it has 10 seconds";

/// A tracer that does not answer costs a session ten seconds, and no more.
#[test]
fn a_tracer_that_is_stuck_is_not_waited_for() {
    let begin = Instant::now();
    let (_, output, _) = with_tracer("bwrap", Manners::Silent, "");
    output
        .ok()
        .says(&[SLOW, "this is not traced: the tracer does not answer"]);
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
}

/// One that is busy is not one that is not there.
#[test]
fn a_tracer_that_is_slow_is_waited_for() {
    let (_, output, asked) = with_tracer("bwrap", Manners::Slow, "");
    let output = output.ok().says(&[SLOW]);
    assert_eq!(said(&output).len(), 1, "{output}");
    assert!(asked.iter().any(|asked| asked.begun && !asked.too_late));
}

/// A job of a session on a node whose tracer has these manners, run by hand.
fn job(backend: &'static str, traced: bool, manners: Option<Manners>) -> (Tried, Output) {
    let (tried, directory) = (Tried::new(backend), of_root());
    tried.world.enforced(&site(directory.path(), ""));
    let _fake = manners.map(|manners| Fake::new(directory.path(), manners, None));
    let (project, home) = (tried.seen("project"), tried.world.seen_home());
    let capsule = Capsule {
        snapshot: PolicySnapshot {
            session: "traced00".into(),
            project: project.as_str().into(),
            layers: vec![Layer {
                kind: LayerKind::User,
                file: "~/.config/agent-sandbox/config.toml".into(),
                text: String::new(),
            }],
            options: Options {
                backend: match backend {
                    "landlock" => Backend::Landlock,
                    _ => Backend::Bwrap,
                },
                ..Options::default()
            },
            variables: Vec::new(),
            told: Vec::new(),
            traced,
            allocation: Vec::new(),
            placeholders: Vec::new(),
        },
        base_environment: Vec::new(),
        environment: vec![
            format!("HOME={}", home.display()).into(),
            b"PATH=/usr/bin:/bin".to_vec(),
        ],
        cwd: project.as_str().into(),
        submit_directory: project.as_str().into(),
        umask: 0o22,
        streams: Streams::default(),
        program: Program::Script {
            script: b"#!/bin/bash\necho yes > started\n".to_vec(),
            arguments: Vec::new(),
        },
    };
    let launcher = std::env::var("AGENT_SANDBOX_BIN").unwrap();
    let script = capsule.batch_script(launcher.as_bytes()).unwrap();
    tried.world.write("project/job.sh", script);
    let mut outside = tried.world.outside("\"$LAUNCHER\" job \"$PWD/job.sh\"");
    for (name, value) in [
        ("SLURM_JOB_ID", "7"),
        ("SLURM_JOBID", "7"),
        ("SLURM_JOB_NODELIST", "n1"),
        ("SLURMD_NODENAME", "n1"),
    ] {
        outside = outside.variable(name, value);
    }
    let output = outside.run();
    (tried, output)
}

/// Whoever keeps a node's tracer from answering does not have the next job run unseen.
#[test]
fn a_job_of_a_traced_session_does_not_start_untraced_where_a_tracer_listens() {
    for backend in BOTH {
        for (manners, why) in [
            (Manners::Refuses, "there are too many traces"),
            (Manners::Silent, "the tracer does not answer"),
        ] {
            let (tried, output) = job(backend, true, Some(manners));
            assert_ne!(output.code, 0, "{output}");
            let output = output.says(&[
                "the session of this job was to be traced, and this cannot be",
                why,
            ]);
            assert!(!started(&tried).exists(), "{backend}: {output}");
        }
        // Of a session that is not, and on a node without a tracer, it starts as ever.
        for (traced, manners) in [
            (false, Some(Manners::Refuses)),
            (true, None),
            (true, Some(Manners::Whole)),
        ] {
            let (tried, output) = job(backend, traced, manners);
            assert!(started(&tried).exists(), "{backend} {manners:?}: {output}");
            output.ok();
        }
    }
}

/// What somebody sends to the launcher while the tracer is asked is for the command.
#[test]
fn a_signal_that_comes_while_the_command_is_held_reaches_it() {
    for backend in BOTH {
        let (tried, directory) = (Tried::new(backend), of_root());
        let site = site(directory.path(), "mode = \"required\"\n");
        tried.world.enforced(&site);
        let _fake = Fake::new(directory.path(), Manners::Slow, None);
        let script = format!(
            "$LAUNCHER -q --backend {backend} sleep 20 &\n\
             sleep 2; kill -TERM $!; wait $!; echo $?"
        );
        let begin = Instant::now();
        let output = tried.world.outside(&script).run();
        assert_eq!(output.stdout, "143\n", "{backend}: {output}");
        assert!(begin.elapsed() < Duration::from_secs(15), "{backend}");
    }
}

#[test]
fn only_the_site_says_where_the_tracer_listens() {
    let world = World::new();
    let words = ["--set", "trace.socket=/run/mine/tracer.sock", "true"];
    world
        .run(&words)
        .refused(&["where the tracer listens is the site's to say"]);
    world.user_config("[trace]\nsocket = \"/run/mine/tracer.sock\"\n");
    world.run(&["true"]).refused(&["the site's to say"]);
}

/// Where a user could put a socket, a user could be the tracer.
#[test]
fn a_socket_where_others_could_have_put_it_is_not_spoken_to() {
    for (owned, bits) in [(true, 0o755), (false, 0o1777)] {
        for mode_line in ["", "mode = \"required\"\n"] {
            let (tried, directory) = (Tried::new("bwrap"), of_root());
            let inner = directory.path().join("inner");
            fs::create_dir(&inner).unwrap();
            match owned {
                true => tried.world.own(&inner, bits),
                false => mode(&inner, bits),
            }
            tried.world.enforced(&site(&inner, mode_line));
            let fake = Fake::new(&inner, Manners::Whole, None);
            let output = launch(&tried, &[]);
            let why = ["its socket cannot be trusted", "inner"];
            match mode_line {
                "" => output.ok().says(&why),
                _ => output.refused(&why),
            };
            assert!(fake.asked().iter().all(|asked| asked.register.is_none()));
        }
    }
}

#[test]
fn the_second_layer_forbids_what_is_hidden_and_exists() {
    for (backend, more, enforce) in [
        ("bwrap", "enforce = true\n", Enforce::On),
        ("landlock", "enforce = true\n", Enforce::On),
        ("bwrap", "audit = true\n", Enforce::Audit),
    ] {
        let (tried, directory) = (Tried::new(backend), of_root());
        let hidden = tried.data("secret");
        let site = site(directory.path(), more);
        tried
            .world
            .enforced(&format!("{site}[files]\nhide = [{hidden:?}]\n"));
        let fake = Fake::new(directory.path(), Manners::Whole, Some(started(&tried)));
        // Writes to what is kept below the state directory, which is hidden.
        let script =
            "echo yes > started; mkdir -p ~/.cache/x && echo kept > ~/.cache/x/y; echo ran";
        let output = tried
            .jail(&["--set", "network.mode=isolated"], script)
            .run();
        assert_eq!(output.ok().stdout, "ran\n");
        let asked = fake.one();
        let register = asked.register.clone().unwrap();
        assert_eq!(register.enforce, enforce);
        assert!(register.no_internet && register.no_user_namespace);
        let id = |path: &Path| {
            let found = fs::symlink_metadata(path).unwrap();
            (found.dev(), found.ino())
        };
        let home = tried.world.home();
        for path in [
            home.join(".ssh"),
            home.join(".netrc"),
            hidden.clone().into(),
        ] {
            assert!(asked.forbidden.contains(&id(&path)), "{backend}: {path:?}");
        }
        // Nothing that the jail shows, and nothing above it, by whatever name.
        let state = home.join(".local/state/agent-sandbox");
        let mut shown = vec![
            home.join("project/main.c"),
            "/usr/bin".into(),
            state.clone(),
        ];
        let kept = fs::read_dir(state.join("kept"))
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        shown.push(kept.path());
        for path in shown.iter().flat_map(|path| path.ancestors()) {
            assert!(!asked.forbidden.contains(&id(path)), "{backend}: {path:?}");
        }
        let plan = tried.jail(&["--dry-run", "--json"], "true").run().json();
        let layer = &plan["trace"]["second_layer"];
        let listed = layer["forbidden"].as_array().unwrap();
        assert!(listed.iter().any(|path| path == hidden.as_str()), "{layer}");
    }
}

/// Also where the policy gives the directory around it.
#[test]
fn the_tracers_socket_is_not_there_inside() {
    for backend in BOTH {
        let (tried, directory) = (Tried::new(backend), of_root());
        tried.world.enforced(&site(directory.path(), ""));
        let fake = Fake::new(directory.path(), Manners::Whole, None);
        let other = directory.path().join("other");
        fs::write(&other, "seen\n").unwrap();
        let script = format!(
            "cat {}; /usr/bin/python3 - <<'E'\n\
             import errno, os, socket\n\
             at = {:?}\n\
             for path in (at, '/proc/self/root' + at, os.path.relpath(at)):\n\
            \x20   try:\n\
            \x20       socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect(path)\n\
            \x20       print('reached')\n\
            \x20   except OSError as error:\n\
            \x20       print(errno.errorcode[error.errno])\n\
             E",
            other.display(),
            fake.socket().display().to_string(),
        );
        for (given, seen) in [(None, false), (directory.path().to_str(), true)] {
            let options: Vec<&str> = given
                .into_iter()
                .flat_map(|path| ["--read", path])
                .collect();
            let output = tried.jail(&options, &script).run();
            assert_eq!(
                output.stdout.contains("seen"),
                seen,
                "{backend} {given:?}: {output}"
            );
            assert!(
                !output.stdout.contains("reached"),
                "{backend} {given:?}: {output}"
            );
            let tries = output
                .stdout
                .lines()
                .filter(|line| line.starts_with('E'))
                .count();
            assert_eq!(tries, 3, "{backend} {given:?}: {output}");
        }
        let sessions = fake.asked().iter().filter(|asked| asked.begun).count();
        assert_eq!(sessions, 2);
    }
}

#[test]
fn the_plan_and_the_agent_are_told() {
    let (tried, directory) = (Tried::new("bwrap"), of_root());
    tried.world.enforced(&site(directory.path(), ""));
    let told = "What you do is recorded by this node's tracer";
    let text = |tried: &Tried| {
        let claude = tried.world.write(
            "bin/claude",
            "#!/bin/sh\ncat \"$@\" 2>/dev/null; cat ~/.claude/CLAUDE.md; agent-sandbox doctor\n",
        );
        mode(&claude, 0o755);
        let program = tried.seen("bin/claude");
        tried.world.run(&["-q", "--", program.as_str()])
    };
    let shown = |tried: &Tried| tried.world.run(&["--dry-run", "true"]).ok().stdout;
    let line = |text: &str| {
        text.lines()
            .find(|line| line.starts_with("trace "))
            .unwrap()
            .to_owned()
    };
    assert!(line(&shown(&tried)).contains("on, and no tracer can be used here"));
    let untold = text(&tried);
    assert!(!untold.stdout.contains(told), "{untold}");
    let _fake = Fake::new(directory.path(), Manners::Whole, None);
    let plan = line(&shown(&tried));
    assert!(
        plan.contains("on: exec, exit, open, connect, listen, operation"),
        "{plan}"
    );
    let output = text(&tried);
    assert!(output.stdout.contains(told), "{output}");
    assert!(
        output.stderr.contains("recorded by the node's tracer"),
        "{output}"
    );
    let off = tried
        .world
        .run(&["--set", "trace.mode=off", "--dry-run", "true"])
        .ok();
    assert!(
        line(&off.stdout).contains("off  (--set trace.mode)"),
        "{off}"
    );
}

#[test]
fn doctor_says_what_the_tracer_can_and_what_is_demanded() {
    let find = |world: &World, name: &str| {
        let json = world.run(&["doctor", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
        let mut all = json["checks"].as_array().unwrap().iter();
        let line = all.find(|line| line["name"] == name)?;
        let text = |key: &str| line[key].as_str().unwrap().to_owned();
        Some((text("status"), text("found")))
    };
    let (world, directory) = (World::new(), of_root());
    world.enforced(&site(
        directory.path(),
        "mode = \"required\"\nenforce = true\n",
    ));
    let (status, found) = find(&world, "tracer").unwrap();
    assert_eq!(status, "broken", "{found}");
    assert!(found.contains("none runs on this node"), "{found}");
    let fake = Fake::new(directory.path(), Manners::Weak, None);
    let (status, found) = find(&world, "tracer").unwrap();
    assert_eq!(status, "degraded", "{found}");
    assert!(
        found.contains("root's") && found.contains("tracepoints on Linux 6.0-fake"),
        "{found}"
    );
    let (status, _) = find(&world, "tracer-layer").unwrap();
    assert_eq!(status, "broken");
    let (_, found) = find(&world, "tracer-blind").unwrap();
    assert_eq!(found, "nothing can be seen");
    drop(fake);
    let _fake = Fake::new(directory.path(), Manners::Whole, None);
    assert_eq!(find(&world, "tracer").unwrap().0, "ok");
    assert_eq!(find(&world, "tracer-layer").unwrap().0, "ok");
    assert_eq!(find(&world, "tracer-losses"), None);
}
