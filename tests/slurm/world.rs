//! A project below a user's home, and scripts that run in it: outside, in a jail, or both to compare.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use agent_sandbox_support::waiting::{PATIENCE, until};
use nix::unistd::User;
use tempfile::TempDir;

use crate::call::{Call, Output};
use crate::chosen::{declared, is_landlock};
use crate::cluster::{Cluster, cluster, not_checked, put};

/// Between two looks at the queue.
const LOOK: Duration = Duration::from_millis(80);
/// The jail's project.
const IN_PROJECT: &str = "project";
/// The same script runs here without a jail. As long a name, for columns to be as wide.
const OUTSIDE: &str = "outside";

/// Held while bob's sessions run, by tests that want nobody else's to.
pub(crate) static BOBS: Mutex<()> = Mutex::new(());

/// A directory with two projects, one for each side.
pub(crate) struct World {
    pub(crate) cluster: &'static Cluster,
    pub(crate) user: &'static User,
    base: TempDir,
}

/// Which side a script runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Inside,
    Outside,
}

impl World {
    /// A world of alice's; `None` where there is no cluster, which was said then.
    #[track_caller]
    pub(crate) fn new() -> Option<Self> {
        let cluster = cluster()?;
        Some(Self::of(cluster, &cluster.alice))
    }

    /// The same for a test about tasks that share a jail; `None` where the launch says that each has
    /// one of its own.
    #[track_caller]
    pub(crate) fn steps() -> Option<Self> {
        let world = Self::new()?;
        let lacks = world.lacks("tasks", "tasks that share a jail");
        (!lacks).then_some(world)
    }

    /// A world of this user's.
    #[track_caller]
    pub(crate) fn of(cluster: &'static Cluster, user: &'static User) -> Self {
        let base = tempfile::Builder::new()
            .prefix("slurm-suite.")
            .tempdir_in(&user.dir)
            .unwrap();
        let world = Self {
            cluster,
            user,
            base,
        };
        world.own(world.base.path());
        for side in [Side::Inside, Side::Outside] {
            fs::create_dir(world.place(side)).unwrap();
            world.own(&world.place(side));
        }
        world
    }

    fn own(&self, path: &Path) {
        let (uid, gid) = (self.user.uid.as_raw(), self.user.gid.as_raw());
        chown(path, Some(uid), Some(gid)).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Where a side's scripts run.
    pub(crate) fn place(&self, side: Side) -> PathBuf {
        self.base.path().join(match side {
            Side::Inside => IN_PROJECT,
            Side::Outside => OUTSIDE,
        })
    }

    /// The project of the jail.
    pub(crate) fn project(&self) -> PathBuf {
        self.place(Side::Inside)
    }

    /// A place in the user's home.
    pub(crate) fn home(&self, name: &str) -> PathBuf {
        self.user.dir.join(name)
    }

    /// Writes a file into the directories of both sides.
    #[track_caller]
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        for side in [Side::Inside, Side::Outside] {
            let content = content.as_ref();
            let real = match (side, std::str::from_utf8(content)) {
                (Side::Inside, Ok(text)) => self.with_real_home(text).into_bytes(),
                _ => content.to_vec(),
            };
            put(self.user, &self.place(side).join(name), &real, 0o755);
        }
    }

    /// A script's text with the real paths of the credentials. Where Landlock makes the jail, `HOME`
    /// is a directory of the session's own, and an attack by that name would attack nothing.
    pub(crate) fn with_real_home(&self, text: &str) -> String {
        let mut text = text.to_owned();
        if is_landlock() {
            for name in [".ssh", ".aws", ".netrc"] {
                for home in ["~", "$HOME", "${HOME}"] {
                    let real = self.home(name).display().to_string();
                    text = text.replace(&format!("{home}/{name}"), &real);
                }
            }
        }
        text
    }

    /// What a file of the project holds; empty if it does not exist.
    pub(crate) fn read(&self, name: &str) -> String {
        let bytes = fs::read(self.project().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Whether a launch says that its jail lacks this, by its own table. Where it does, the test says
    /// what it does not check.
    #[track_caller]
    pub(crate) fn lacks(&self, row: &str, what: &str) -> bool {
        static DECLARED: OnceLock<BTreeSet<String>> = OnceLock::new();
        if !is_landlock() {
            return false;
        }
        let declared = DECLARED.get_or_init(|| {
            let call = self.inside("true").option("--dry-run").option("--json");
            declared(&call.run().good().out())
        });
        let lacks = declared.contains(row);
        if lacks {
            not_checked(&format!("{what}: this kernel cannot: {row}"));
        }
        lacks
    }

    /// A script, in a jail.
    pub(crate) fn inside(&self, script: &str) -> Call<'_> {
        Call::new(self, Side::Inside, script)
    }

    /// A script, without one.
    pub(crate) fn outside(&self, script: &str) -> Call<'_> {
        Call::new(self, Side::Outside, script)
    }

    /// A script on this side.
    pub(crate) fn on(&self, side: Side, script: &str) -> Call<'_> {
        Call::new(self, side, script)
    }

    /// The launcher itself, with these words.
    #[track_caller]
    pub(crate) fn launcher(&self, words: &[&str]) -> Output {
        let launcher = self.cluster.launcher.to_str().unwrap();
        let words = [&[launcher], words].concat();
        self.real(&words)
    }

    /// A real command as this user, without a jail.
    #[track_caller]
    pub(crate) fn real(&self, words: &[&str]) -> Output {
        self.outside("").words(words).run()
    }

    /// The jobs of this side that Slurm knows, with their states.
    pub(crate) fn jobs(&self, side: Side) -> BTreeMap<u32, Vec<String>> {
        let format = "%A|%Z|%T|%r";
        let all = self
            .cluster
            .said("squeue", ["-h", "-r", "-t", "all", "-o", format]);
        let place = self.place(side);
        let place = place.to_str().unwrap();
        let recorded = match side {
            Side::Inside => self.recorded(),
            Side::Outside => BTreeSet::new(),
        };
        let mut jobs = BTreeMap::<u32, Vec<String>>::new();
        for line in all.lines() {
            let mut fields = line.split('|');
            let mut field = || fields.next().unwrap_or_default();
            let (id, cwd, state, reason) = (field(), field(), field(), field());
            let Ok(id) = id.parse() else { continue };
            if cwd.starts_with(place) || recorded.contains(&id) {
                let held = reason.starts_with("JobHeld");
                let state = if held { "HELD" } else { state };
                jobs.entry(id).or_default().push(state.to_owned());
            }
        }
        jobs
    }

    /// Where the chaperon keeps its records of this cluster's jobs.
    pub(crate) fn records(&self) -> PathBuf {
        let below = format!(
            ".local/state/agent-sandbox/slurm/{}/jobs",
            self.cluster.name
        );
        self.user.dir.join(below)
    }

    /// Jobs whose record names this project.
    fn recorded(&self) -> BTreeSet<u32> {
        let project = format!("{}\"", self.project().display());
        let Ok(entries) = fs::read_dir(self.records()) else {
            return BTreeSet::new();
        };
        let ours = entries.flatten().filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let id = name.strip_suffix(".json")?.parse().ok()?;
            let text = fs::read_to_string(entry.path()).ok()?;
            text.contains(&project).then_some(id)
        });
        ours.collect()
    }

    /// Waits until no job of this side is left in the queue but those that are held.
    #[track_caller]
    pub(crate) fn settle(&self, side: Side) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let jobs = self.jobs(side);
            let over = |state: &String| {
                ![
                    "PENDING",
                    "RUNNING",
                    "COMPLETING",
                    "CONFIGURING",
                    "SUSPENDED",
                ]
                .contains(&state.as_str())
            };
            if jobs.values().flatten().all(over) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "jobs of {side:?} are still there after {PATIENCE:?}: {jobs:?}"
            );
            thread::sleep(LOOK);
        }
    }

    /// Waits until a file of this side has this text.
    #[track_caller]
    pub(crate) fn until(&self, side: Side, name: &str, text: &str) {
        let path = self.place(side).join(name);
        let found = || {
            let bytes = fs::read(&path).unwrap_or_default();
            String::from_utf8_lossy(&bytes).contains(text)
        };
        until(&format!("`{text}` in {}", path.display()), found);
    }

    /// Runs the script on both sides, waits for their jobs, and compares: exit code, standard output
    /// and error, and the files that came to be. Numbers of jobs, names of nodes and of the two
    /// directories are taken out first.
    #[track_caller]
    pub(crate) fn same(&self, script: &str) -> Output {
        self.same_but(script, |text| text.to_owned())
    }

    /// The same, with more taken out by `without`.
    #[track_caller]
    pub(crate) fn same_but(&self, script: &str, without: fn(&str) -> String) -> Output {
        self.same_started_by(&[], script, without)
    }

    /// The same, where the launcher, or outside the script, is started by a command.
    #[track_caller]
    pub(crate) fn same_started_by(
        &self,
        before: &[&str],
        script: &str,
        without: fn(&str) -> String,
    ) -> Output {
        let results = thread::scope(|scope| {
            let run = |side| {
                scope.spawn(move || {
                    let output = self.on(side, script).started_by(before).run();
                    self.settle(side);
                    output
                })
            };
            let both = [run(Side::Outside), run(Side::Inside)];
            both.map(|side| side.join())
        });
        let [outside, inside] = results.map(|side| match side {
            Ok(output) => output,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        let describe = |side, output: &Output| {
            let text = format!("{output}\n{}", self.files(side));
            without(&self.plain(side, &text))
        };
        let (expected, got) = (
            describe(Side::Outside, &outside),
            describe(Side::Inside, &inside),
        );
        assert!(
            expected == got,
            "{script}\n======== outside:\n{expected}\n======== inside:\n{got}\n========"
        );
        inside
    }

    /// A command line that is a mistake fails on both sides. Inside it is the command that says why;
    /// its words may be better than Slurm's.
    #[track_caller]
    pub(crate) fn both_fail(&self, command: &str) {
        let outside = self.outside(command).run();
        let inside = self.inside(command).run();
        let program = command.split(' ').next().unwrap_or_default();
        assert!(
            outside.code != 0,
            "outside this is no mistake: {command}: {outside}"
        );
        let said = inside.err().starts_with(&format!("{program}: error: "));
        assert!(
            inside.code != 0 && said,
            "{command}: {inside}\n-- outside: {outside}"
        );
    }

    /// Puts what a jail of Landlock's has directories of the session's own for in their place: the home,
    /// `/tmp` and, on both sides, where Slurm has put the script (rows `home` and `tmp`).
    pub(crate) fn without_session(&self, text: &str) -> String {
        const SCRIPT: &str = "[SCRIPT]";
        let session = format!("/tmp/agent-sandbox-{}/landlock+", self.user.uid);
        let home = self.user.dir.to_str().unwrap();
        let mut plain = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(&session) {
            plain.push_str(&rest[..at]);
            rest = &rest[at + session.len()..];
            let name = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '.'));
            rest = &rest[name.unwrap_or(rest.len())..];
            let places = [
                ("/home", home),
                ("/tmp", "/tmp"),
                ("/own/slurm_script", SCRIPT),
            ];
            let found = places.iter().find_map(|(place, instead)| {
                rest.strip_prefix(place).map(|after| (after, *instead))
            });
            let (after, instead) = found.unwrap_or((rest, "[SESSION]"));
            plain.push_str(instead);
            rest = after;
        }
        plain.push_str(rest);
        let words = plain.split_inclusive([' ', '\n', '=']);
        let words = words.map(|word| match word.split_once("/slurm_script") {
            Some((path, after)) => {
                let before = path.split('/').next().unwrap_or_default();
                format!("{before}{SCRIPT}{after}")
            }
            None => word.to_owned(),
        });
        words.collect()
    }

    /// Takes out what must differ.
    fn plain(&self, side: Side, text: &str) -> String {
        let mut text = text.replace(self.place(side).to_str().unwrap(), "[PROJECT]");
        if is_landlock() {
            text = self.without_session(&text);
        }
        for node in &self.cluster.nodes {
            text = text.replace(node, "[NODE]");
        }
        // How long an allocation took depends on what else runs.
        let waited = |line: &&str| {
            let job = line.starts_with("srun: job ") || line.starts_with("salloc: job ");
            let what = [
                "queued and waiting for resources",
                "has been allocated resources",
            ];
            let pending = line.starts_with("salloc: Pending job allocation ");
            // A race of salloc's own, at its end.
            let revoked = line.starts_with("salloc: Job allocation ");
            let steps = [
                " step creation ",
                ": Step created for ",
                ": Step completed in JobId=",
            ];
            let step = steps.iter().any(|words| line.contains(words));
            !(pending || revoked || step || job && what.iter().any(|what| line.ends_with(what)))
        };
        text = text.lines().filter(waited).collect::<Vec<_>>().join("\n");
        let ids: Vec<u32> = self.jobs(side).into_keys().collect();
        let mut plain = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
            plain.push_str(&rest[..at]);
            let number = &rest[at..];
            let end = number
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(number.len());
            let job = number[..end]
                .parse()
                .ok()
                .and_then(|number: u32| ids.iter().position(|id| *id == number));
            match job {
                Some(place) => plain.push_str(&format!("[JOB{place}]")),
                None => plain.push_str(&number[..end]),
            }
            rest = &number[end..];
        }
        plain.push_str(rest);
        // A job's other name, since 25.11.
        let known = |line: &&str| !line.starts_with("SLURM_JOB_SLUID=");
        let plain = plain.lines().filter(known).collect::<Vec<_>>().join("\n");
        without_times(&plain)
    }

    /// Every file of a side with its content, in order.
    pub(crate) fn files(&self, side: Side) -> String {
        let place = self.place(side);
        let mut all: Vec<String> = files_below(&place)
            .into_iter()
            .map(|path| {
                let content = fs::read(&path).unwrap_or_default();
                let mode = fs::metadata(&path).map_or(0, |meta| meta.permissions().mode() & 0o777);
                let name = path.strip_prefix(&place).unwrap().display();
                let content = String::from_utf8_lossy(&content);
                format!("-- file {name} ({mode:o}):\n{content}")
            })
            .collect();
        all.sort();
        all.join("\n")
    }

    /// An attack: a script that would print the secret or leave it in a file. Without a jail it must
    /// succeed; inside neither its output nor the output of its jobs may have it.
    #[track_caller]
    pub(crate) fn attack(&self, script: &str) -> Output {
        let control = self.outside(script).run();
        self.settle(Side::Outside);
        let shown = format!("{control}\n{}", self.files(Side::Outside));
        assert!(
            shown.contains(&self.cluster.marker),
            "without a jail this gets at the secret, or the test shows nothing:\n{script}\n{shown}"
        );
        self.defended(script)
    }

    /// An attack that writes to a file outside of the project, `@TARGET@` in the script. Without a
    /// jail it must succeed.
    #[track_caller]
    pub(crate) fn write_attack(&self, script: &str) -> Output {
        let name = self.base.path().file_name().unwrap().to_str().unwrap();
        let target = self.home(&format!(".ssh/written-by-{name}"));
        let script = script.replace("@TARGET@", target.to_str().unwrap());
        let control = self.outside(&script).run();
        self.settle(Side::Outside);
        // Jobs in other directories are not seen by that.
        let deadline = Instant::now() + PATIENCE / 4;
        while !target.exists() && Instant::now() < deadline {
            thread::sleep(LOOK);
        }
        assert!(
            fs::remove_file(&target).is_ok(),
            "without a jail this writes the file, or the test shows nothing:\n{script}\n{control}\n{}",
            self.files(Side::Outside)
        );
        let output = self.inside(&script).run();
        self.settle(Side::Inside);
        let written = fs::remove_file(&target).is_ok();
        assert!(!written, "the file was written:\n{script}\n{output}");
        self.check(&output);
        output
    }

    /// An attack without the control.
    #[track_caller]
    pub(crate) fn defended(&self, script: &str) -> Output {
        let output = self.inside(script).run();
        self.settle(Side::Inside);
        self.check(&output);
        output
    }

    /// The secret is nowhere, and nothing was written outside of the project.
    #[track_caller]
    pub(crate) fn check(&self, output: &Output) {
        let shown = format!("{output}\n{}", self.files(Side::Inside));
        assert!(
            !shown.contains(&self.cluster.marker),
            "the secret got out:\n{shown}"
        );
        self.cluster.check_start_files();
    }

    /// Empties both directories.
    pub(crate) fn clear(&self) {
        for side in [Side::Inside, Side::Outside] {
            fs::remove_dir_all(self.place(side)).unwrap();
            fs::create_dir(self.place(side)).unwrap();
            self.own(&self.place(side));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let mut left: Vec<String> = Vec::new();
        for side in [Side::Inside, Side::Outside] {
            let jobs = self.jobs(side);
            left.extend(jobs.into_keys().map(|id| id.to_string()));
        }
        // An allocation without a shell has the chaperon's directory. One that a failed test left would keep others waiting.
        let project = self.project();
        let base = project.parent().and_then(Path::file_name);
        let mark = base.unwrap_or_default().to_string_lossy().replace('.', "-");
        let mut ask = self.cluster.command(self.user, "squeue");
        if let Ok(said) = ask.args(["--me", "-h", "-o", "%i %j"]).output() {
            let text = String::from_utf8_lossy(&said.stdout).into_owned();
            let named = text.lines().filter_map(|line| line.split_once(' '));
            let named = named.filter(|(_, name)| name.ends_with(&mark));
            left.extend(named.map(|(id, _)| id.to_owned()));
        }
        if !left.is_empty() {
            let mut cancel = self.cluster.command(self.user, "scancel");
            let _ = cancel.arg("--quiet").args(left).output();
        }
    }
}

/// Times of day, as Slurm writes them (`2026-01-31T12:00:00`), taken out.
fn without_times(text: &str) -> String {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00";
    let fits = |at: usize| {
        let part = text.as_bytes().get(at..at + SHAPE.len());
        part.is_some_and(|part| {
            part.iter().zip(SHAPE).all(|(byte, shape)| match shape {
                b'0' => byte.is_ascii_digit(),
                other => byte == other,
            })
        })
    };
    let mut plain = String::with_capacity(text.len());
    let mut rest = 0;
    for (at, _) in text.char_indices() {
        if at >= rest && fits(at) {
            plain.push_str(&text[rest..at]);
            plain.push_str("[TIME]");
            rest = at + SHAPE.len();
        }
    }
    plain.push_str(&text[rest..]);
    plain
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => all.extend(files_below(&entry.path())),
            Ok(kind) if kind.is_file() => all.push(entry.path()),
            _ => {}
        }
    }
    all
}
