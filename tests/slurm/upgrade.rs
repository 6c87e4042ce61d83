//! Two versions: what docs/admin/upgrade.md says of sessions, of jobs that wait, and of policies. The older one is a real one, built from
//! the project's history (`tests/slurm/old-version`).

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::call::Output;
use crate::chosen::is_landlock;
use crate::cluster::{cluster, not_checked};
use crate::world::{Side, World};

/// All that a session and its jobs start.
const PROGRAMS: [&str; 4] = [
    "agent-sandbox",
    "agent-sandbox-chaperon",
    "agent-sandbox-filter",
    "agent-sandbox-shim",
];
const OLD: &str = "agent-sandbox 0.0.9";

/// The older version's directory.
#[track_caller]
fn old() -> Option<PathBuf> {
    cluster()?;
    let old = std::env::var_os("AGENT_SANDBOX_TEST_OLD_VERSION").map(PathBuf::from);
    if old.is_none() {
        not_checked(
            "upgrades: an older version is not there: a whole run builds one (tests/slurm/old-version)",
        );
    }
    old
}

/// Where the version under test stands.
fn new() -> PathBuf {
    let launcher = &cluster().unwrap().launcher;
    launcher.parent().unwrap().to_owned()
}

/// An installation that all nodes have.
struct Prefix(tempfile::TempDir);

impl Prefix {
    fn with(programs: &Path) -> Self {
        let mut place = tempfile::Builder::new();
        place.prefix("agent-sandbox-prefix.");
        let prefix = Self(place.tempdir_in("/var/tmp").unwrap());
        fs::set_permissions(prefix.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
        prefix.install(programs);
        prefix
    }

    /// As `make install` does it: each file is written beside the old one, and takes its place.
    fn install(&self, programs: &Path) {
        for name in PROGRAMS {
            let (at, beside) = (self.0.path().join(name), self.0.path().join("new"));
            fs::copy(programs.join(name), &beside).unwrap();
            fs::set_permissions(&beside, fs::Permissions::from_mode(0o755)).unwrap();
            fs::rename(&beside, &at).unwrap();
        }
    }

    fn launcher(&self) -> PathBuf {
        self.0.path().join("agent-sandbox")
    }

    /// A world whose sessions are started by it.
    fn world(&self) -> World {
        let cluster = cluster().unwrap().with_launcher(self.launcher());
        let cluster = Box::leak(Box::new(cluster));
        World::of(cluster, &cluster.alice)
    }

    /// Whether a job runs on a node whose program is the one that stands here now.
    fn runs_a_job(&self) -> bool {
        let launcher = self.launcher();
        let (here, named) = (fs::metadata(&launcher).unwrap().ino(), launcher.to_str());
        fs::read_dir("/proc").unwrap().flatten().any(|process| {
            let words = fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
            let mut words = words.split('\0');
            words.next() == named
                && words.next() == Some("job")
                && fs::metadata(process.path().join("exe")).is_ok_and(|meta| meta.ino() == here)
        })
    }
}

/// A job that says what it reaches of what is hidden, and stays until it may go.
const JOB: &str = "#!/bin/bash\n#SBATCH -o out.txt\necho ran > ran.txt; until [ -e go.txt ]; do sleep 0.05; done\n\
                   echo this: $(cat kept.txt); cat hidden/secret ~/.ssh/id_rsa; srun -n1 echo step\n";

fn submit_held(world: &World) -> String {
    world.write("kept.txt", "kept\n");
    world.write("hidden/secret", "canary\n");
    world.write("job.sh", JOB);
    let hidden = world.project().join("hidden");
    let call = world.inside("sbatch --parsable -H job.sh");
    call.option("--hide").option(hidden).run().good().word()
}

/// Releases a job, and waits for its end.
fn release(world: &World, id: &str) {
    world.real(&["scontrol", "release", id]).good();
    world.settle(Side::Inside);
}

#[test]
fn a_job_that_the_old_version_queued_is_run_by_the_new() {
    let Some(old) = old() else { return };
    let prefix = Prefix::with(&old.join("bin"));
    let world = prefix.world();
    assert_eq!(world.launcher(&["--version"]).word(), OLD);
    let id = submit_held(&world);
    prefix.install(&new());
    world.real(&["scontrol", "release", &id]).good();
    world.until(Side::Inside, "ran.txt", "ran");
    assert!(prefix.runs_a_job(), "another program runs the job");
    world.write("go.txt", "");
    world.settle(Side::Inside);
    let said = world.read("out.txt");
    assert!(said.starts_with("this: kept\n"), "{said}");
    assert!(said.contains("\nstep\n"), "{said}");
    assert!(
        !said.contains("canary") && !said.contains("secret MARKER"),
        "{said}"
    );
}

#[test]
fn a_waiting_job_of_another_format_runs_nothing_and_says_so() {
    let Some(old) = old() else { return };
    let prefix = Prefix::with(&old.join("bin"));
    let world = prefix.world();
    let id = submit_held(&world);
    // The controller keeps the script, and reads it when the job starts.
    let shown = world.cluster.said("scontrol", ["show", "config"]);
    let line = shown
        .lines()
        .find(|line| line.starts_with("StateSaveLocation"));
    let kept = line.unwrap().split_once('=').unwrap().1.trim();
    let number: u32 = id.parse().unwrap();
    let script = Path::new(kept).join(format!("hash.{}/job.{id}/script", number % 10));
    let text = String::from_utf8(fs::read(&script).unwrap()).unwrap();
    let (own, other) = ("# agent-sandbox capsule 5 ", "# agent-sandbox capsule 4 ");
    assert!(text.contains(own), "{text}");
    fs::write(&script, text.replacen(own, other, 1)).unwrap();
    prefix.install(&new());
    world.write("go.txt", "");
    release(&world, &id);
    assert_eq!(world.read("ran.txt") + &world.read("out.txt"), "");
    let log = world.launcher(&["log", &id]);
    let said = "submitted by another version of agent-sandbox: its capsule has version 4";
    assert!(log.out().contains(said), "{log}");
}

#[test]
fn versions_side_by_side_each_run_their_own_jobs() {
    let Some(old) = old() else { return };
    let prefixes = [Prefix::with(&old.join("bin")), Prefix::with(&new())];
    let worlds = prefixes.each_ref().map(Prefix::world);
    let ids = worlds.each_ref().map(submit_held);
    for ((prefix, world), id) in prefixes.iter().zip(&worlds).zip(&ids) {
        world.real(&["scontrol", "release", id]).good();
        world.until(Side::Inside, "ran.txt", "ran");
        assert!(prefix.runs_a_job(), "another program runs the job");
        world.write("go.txt", "");
        world.settle(Side::Inside);
        let said = world.read("out.txt");
        assert!(
            said.starts_with("this: kept\n") && said.contains("\nstep\n"),
            "{said}"
        );
    }
}

/// Commands of Slurm's that a session uses, each with how it ended.
const USE: &str = "squeue -h > /dev/null; echo squeue $?\nsbatch -Q -W -o job.txt --wrap 'echo job'; cat job.txt\n\
                   srun -n1 echo step\nsalloc -Q -n1 echo allocated\n";
const USED: &str = "squeue 0\njob\nstep\nallocated\n";

/// A session of one version uses Slurm when the programs of another stand in its place; `first`, what it does before.
#[track_caller]
fn across(before: &Path, after: &Path, first: &str) -> Output {
    let prefix = Prefix::with(before);
    let world = prefix.world();
    let script =
        format!("{first}echo ready > ready.txt; until [ -e go.txt ]; do sleep 0.05; done\n{USE}");
    let running = world.inside(&script).start();
    world.until(Side::Inside, "ready.txt", "ready");
    prefix.install(after);
    world.write("go.txt", "");
    let output = running.end();
    world.settle(Side::Inside);
    output
}

#[test]
fn a_session_keeps_the_programs_that_it_began_with() {
    let Some(old) = old() else { return };
    for first in ["", "squeue -h > /dev/null\n"] {
        let output = across(&new(), &old.join("bin"), first);
        assert_eq!(output.out(), USED, "{output}");
    }
}

/// A version that does not hold its chaperon's program yet.
#[test]
fn a_session_that_meets_another_versions_chaperon_is_told() {
    let Some(old) = old() else { return };
    if is_landlock() {
        return not_checked("under Landlock the older version has no shim of its own in a session");
    }
    let output = across(&old.join("bin"), &new(), "");
    assert_eq!(output.out(), "squeue 1\n", "{output}");
    assert!(output.err().contains("chaperon"), "{output}");
    assert!(output.err().contains("start the session again"), "{output}");
    // Where it runs already, the new programs of jobs and steps understand it.
    let output = across(&old.join("bin"), &new(), "squeue -h > /dev/null\n");
    let without = USED.strip_suffix("allocated\n").unwrap();
    assert!(output.out().starts_with(without), "{output}");
}

/// What is the session's own lies in `/tmp`, where some sites execute nothing.
#[test]
fn slurms_commands_are_there_where_tmp_executes_nothing() {
    let Some(world) = World::new() else { return };
    let inner = world
        .inside("sinfo -h | wc -l; [ -x $(command -v sbatch) ] && $(type -ap sbatch | tail -n 1) -Q --hold --wrap true && scancel --me")
        .command();
    let mut call = std::process::Command::new("/usr/bin/unshare");
    call.args(["--mount", "--propagation", "slave", "--", "/bin/sh", "-c"])
        .arg(r#"mount -t tmpfs -o noexec,mode=1777 tmp /tmp && exec "$@""#)
        .arg("sh")
        .arg(inner.get_program())
        .args(inner.get_args())
        .env_clear();
    for (name, value) in inner.get_envs() {
        call.env(name, value.unwrap());
    }
    call.current_dir(inner.get_current_dir().unwrap());
    let output = call.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.trim() != "0", "{output:?}");
}

/// The jail of a job on a node belongs to the version that made it.
#[test]
fn steps_of_another_version_do_not_join_a_running_job() {
    let Some(old) = old() else { return };
    let prefix = Prefix::with(&new());
    let world = prefix.world();
    let id = submit_held(&world);
    world.real(&["scontrol", "release", &id]).good();
    world.until(Side::Inside, "ran.txt", "ran");
    prefix.install(&old.join("bin"));
    world.write("go.txt", "");
    world.settle(Side::Inside);
    let said = world.read("out.txt");
    assert!(said.starts_with("this: kept\n"), "{said}");
    assert!(
        !said.contains("canary") && !said.contains("secret MARKER"),
        "{said}"
    );
    if !world.lacks("tasks", "tasks that share a jail") {
        assert!(!said.contains("\nstep\n"), "{said}");
        let why = "made the jail of this job on this node, and this is 0.0.9";
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn policies_of_the_old_version_mean_the_same_and_new_keys_are_errors_there() {
    let Some(old) = old() else { return };
    let prefixes = [Prefix::with(&old.join("bin")), Prefix::with(&new())];
    let worlds = prefixes.each_ref().map(Prefix::world);
    let profiles = old.join("source/profiles");
    let policy = |world: &World, text: &str| {
        world.write("config/agent-sandbox/config.toml", text);
        let config = world.project().join("config");
        let launcher = world.cluster.launcher.to_str().unwrap().to_owned();
        let call = world.outside("").words([&launcher, "policy"]);
        call.variable("XDG_CONFIG_HOME", config).run()
    };
    // Every key that there was, with a value.
    let all = fs::read_to_string(profiles.join("default.toml")).unwrap();
    // But one, which is the site's to say.
    let lines = all.lines().filter(|line| !line.starts_with("socket = "));
    let all = lines.collect::<Vec<_>>().join("\n");
    let [before, after] = worlds.each_ref().map(|world| policy(world, &all).good());
    // What both know has the same value.
    let values = |output: &Output| -> Vec<String> {
        let text = output.out();
        let lines = text.lines().filter(|line| line.contains(" = "));
        lines
            .map(|line| line.split("  #").next().unwrap().to_owned())
            .collect()
    };
    let (before, after) = (values(&before), values(&after));
    assert!(before.len() > 30, "{before:?}");
    let missing: Vec<_> = before.iter().filter(|line| !after.contains(line)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    // A key of the new one: what an old one does not know holds nobody to anything, and so is an error.
    let key = "[slurm.budget]\nsession_cpu_hours = 10\n";
    policy(&worlds[1], key).good();
    let refused = policy(&worlds[0], key);
    assert!(
        refused.code != 0 && refused.err().contains("unknown"),
        "{refused}"
    );
}

/// The site's examples of the old version, by the new one.
#[test]
fn a_sites_files_of_the_old_version_are_none_but_good_ones() {
    let Some(old) = old() else { return };
    let Some(world) = World::new() else { return };
    for (which, kind) in [
        ("university", "enforced"),
        ("university", "defaults"),
        ("small-group", "defaults"),
    ] {
        let file = old.join(format!("source/profiles/site/{which}/{kind}.toml"));
        let Ok(text) = fs::read_to_string(&file) else {
            continue;
        };
        world.write(&format!("{kind}.toml"), text);
        let draft = world.place(Side::Outside).join(format!("{kind}.toml"));
        let checked = world.launcher(&["doctor", "--policy", draft.to_str().unwrap()]);
        assert!(!checked.out().contains("unknown"), "{checked}");
    }
}
