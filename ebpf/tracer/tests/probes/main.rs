//! The probes on this machine's own kernel: loaded, tried, taken over, lost, removed. It needs root, and says
//! so where it is not.

#![allow(clippy::disallowed_methods)] // a test: starts processes, mounts a file system

mod forged;
mod rights;

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use agent_sandbox_events::raw::{self, About, By, Kind, OPERATIONS, trace_flags, turned};
use agent_sandbox_tracer::kernel::{Choice, Error, Probes, Settings, Sweep, SweepWhat, TraceEntry};
use nix::mount::{MntFlags, umount2};
use nix::unistd::geteuid;
use tempfile::TempDir;

/// A BPF file system of its own, with what a tracer needs beside it.
struct BpfDirectory {
    directory: TempDir,
}

impl BpfDirectory {
    /// None where the probes cannot be loaded for lack of privilege.
    fn new(test: &str) -> Option<Self> {
        if !geteuid().is_root() {
            println!("not checked: tracer: {test}: only root can load probes");
            return None;
        }
        let directory = tempfile::tempdir_in("/run").expect("a directory");
        fs::create_dir(directory.path().join("state")).expect("a directory");
        Some(Self { directory })
    }

    fn bpffs(&self) -> PathBuf {
        self.directory.path().join("bpf")
    }

    fn settings(&self) -> Settings {
        Settings {
            bpffs: self.bpffs(),
            object: Choice::Tracepoints,
            objects: None,
            program: Some(env!("CARGO_BIN_EXE_agent-sandbox-tracer").into()),
            ring: 1 << 20,
            state: self.directory.path().join("state"),
        }
    }

    /// What is pinned, by the names of the objects.
    fn pinned(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.bpffs().join("agent-sandbox")) else {
            return Vec::new();
        };
        entries
            .map(|entry| entry.expect("an entry").file_name())
            .map(|name| name.to_string_lossy().into_owned())
            .collect()
    }
}

impl Drop for BpfDirectory {
    fn drop(&mut self) {
        // All pins go with the file system.
        let _ = umount2(&self.bpffs(), MntFlags::MNT_DETACH);
    }
}

/// An ordinary user, and a group that the user is in. Nobody has these numbers.
const USER: u32 = 424_242;
const GROUP: u32 = 424_243;
/// A group that the user is not in.
const CLOSED: u32 = 424_244;

/// A shell that waits for a line and then does something. It runs and has opened what it needs for itself.
struct Shell(Child);

impl Shell {
    fn new(script: &str) -> Self {
        Self::by(Command::new("/bin/sh"), script)
    }

    /// Of an ordinary user who is in one more group than their own.
    fn of_user(script: &str) -> Self {
        let mut command = Command::new("setpriv");
        let [user, group] = [USER, GROUP].map(|id| id.to_string());
        command.args(["--reuid", &user, "--regid", &user, "--groups", &group]);
        command.arg("/bin/sh");
        Self::by(command, script)
    }

    fn by(mut command: Command, script: &str) -> Self {
        command.args(["-c", &format!("echo ready; read line; {script}")]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = Self(command.spawn().expect("a shell"));
        let mut ready = [0; 6];
        let output = shell.0.stdout.as_mut().expect("a pipe");
        output.read_exact(&mut ready).expect("it runs");
        shell
    }

    fn go(&mut self) {
        let input = self.0.stdin.as_mut().expect("a pipe");
        input.write_all(b"go\n").expect("it reads");
    }

    fn end(mut self) {
        self.go();
        assert!(self.0.wait().expect("an end").success());
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn entry() -> TraceEntry {
    TraceEntry {
        events: Kind::ALL.iter().map(|kind| kind.bit()).sum(),
        flags: trace_flags::RECORD,
        uid: 0,
        every: 1,
        operations: (1 << OPERATIONS.len()) - 1,
        parent: 0,
        rules: 0,
    }
}

fn mark(probes: &mut Probes, trace: u32, shell: &Shell) {
    assert_eq!(mark_of(probes, trace, shell, 0), 1);
}

/// How many tasks of a user's process get the mark, that have none which counts.
fn mark_of(probes: &mut Probes, trace: u32, shell: &Shell, uid: u32) -> u64 {
    let entry = TraceEntry { uid, ..entry() };
    probes.set_trace(trace, &entry).expect("a trace");
    let sweep = Sweep {
        what: SweepWhat::Process(shell.0.id()),
        trace,
        from: 0,
        uid,
    };
    probes.sweep(&sweep).expect("a sweep")
}

fn count(probes: &mut Probes, trace: u32) -> u64 {
    let sweep = Sweep {
        what: SweepWhat::Count,
        trace,
        from: trace,
        uid: u32::MAX,
    };
    probes.sweep(&sweep).expect("a sweep")
}

/// Opens of a path in a trace, of all that is in the ring.
fn opens(probes: &mut Probes, trace: u32, wanted: &Path) -> u64 {
    let mut count = 0;
    probes.drain(usize::MAX, &mut |bytes| {
        let event = raw::parse(bytes).expect("an event");
        if let About::Open { path, .. } = event.about
            && event.head.trace == trace
            && Path::new(std::str::from_utf8(&turned(path, event.head.flags)).expect("UTF-8"))
                == wanted
        {
            count += 1;
        }
    });
    count
}

#[test]
fn the_probes_are_tried_and_leave_nothing_behind() {
    let Some(place) = BpfDirectory::new("loading") else {
        return;
    };
    let probes = Probes::check(&place.settings()).expect("probes");
    let about = probes.about().clone();
    for kind in ["exec", "open", "connect", "fork", "exit"] {
        let line = format!("recorded: {kind}");
        assert!(about.proved.contains(&line), "{line}: {about:?}");
    }
    assert_eq!(about.object, "tracepoints");
    assert!(!about.enforces && !about.taken_over);
    assert!(
        about
            .blind
            .iter()
            .any(|said| said.contains("nothing is denied"))
    );
    assert_eq!(about.refused, Vec::<String>::new());
    probes.unpin().expect("unpinned");
    assert_eq!(place.pinned(), Vec::<String>::new());
}

#[test]
fn marks_outlive_the_tracer_and_the_next_one_goes_on() {
    let Some(place) = BpfDirectory::new("taking over") else {
        return;
    };
    let file = place.directory.path().join("file");
    fs::write(&file, "").expect("a file");
    let mut first = Probes::open(&place.settings()).expect("probes");
    let shell = Shell::new(&format!(": < {}", file.display()));
    mark(&mut first, 7, &shell);
    first.drain(usize::MAX, &mut |_| {});
    drop(first);
    shell.end();
    let mut second = Probes::open(&place.settings()).expect("probes");
    assert!(second.about().taken_over);
    assert_eq!(second.traces().expect("traces"), [7]);
    assert_eq!(opens(&mut second, 7, &file), 1);
    assert_eq!(second.counts(7).expect("counts").lost, 0);
    assert_eq!(count(&mut second, 7), 0);
    second.unpin().expect("unpinned");
    assert_eq!(place.pinned(), Vec::<String>::new());
}

#[test]
fn a_second_tracer_is_refused() {
    let Some(place) = BpfDirectory::new("a second tracer") else {
        return;
    };
    let first = Probes::open(&place.settings()).expect("probes");
    let second = Probes::open(&place.settings());
    assert!(matches!(second, Err(Error::Running { .. })));
    let removed = Probes::unpin_all(&place.settings());
    assert!(matches!(removed, Err(Error::Running { .. })));
    let beside = Probes::check(&place.settings()).expect("a check goes beside it");
    beside.unpin().expect("unpinned");
    drop(first);
    assert_eq!(Probes::unpin_all(&place.settings()).expect("removed"), 1);
    assert_eq!(place.pinned(), Vec::<String>::new());
}

#[test]
fn a_directory_of_somebody_elses_is_not_used() {
    let Some(place) = BpfDirectory::new("a foreign directory") else {
        return;
    };
    drop(Probes::open(&place.settings()).expect("probes"));
    let home = place.bpffs().join("agent-sandbox");
    std::os::unix::fs::chown(&home, Some(65534), None).expect("chown");
    let refused = Probes::open(&place.settings());
    assert!(matches!(refused, Err(Error::Foreign { .. })));
}

#[test]
fn what_finds_no_room_is_counted() {
    let Some(place) = BpfDirectory::new("loss") else {
        return;
    };
    const OPENS: u64 = 20_000;
    let file = place.directory.path().join("file");
    fs::write(&file, "").expect("a file");
    let mut settings = place.settings();
    settings.ring = 64 << 10;
    let mut probes = Probes::open(&settings).expect("probes");
    let shell = Shell::new(&format!(
        "i=0; while [ $i -lt {OPENS} ]; do : < {}; i=$((i+1)); done",
        file.display()
    ));
    mark(&mut probes, 9, &shell);
    shell.end();
    let lost = probes.counts(9).expect("counts").lost;
    let mut seen = 0;
    probes.drain(usize::MAX, &mut |bytes| {
        seen += u64::from(raw::parse(bytes).expect("an event").head.trace == 9);
    });
    assert!(lost > OPENS / 2, "{lost}");
    // The shell's own exit is an event, too.
    assert_eq!(seen + lost, OPENS + 1, "{seen} seen, {lost} lost");
}

#[test]
fn older_probes_go_with_their_last_process() {
    let Some(place) = BpfDirectory::new("older probes") else {
        return;
    };
    let mut old = place.settings();
    let objects = place.directory.path().join("objects");
    fs::create_dir(&objects).expect("a directory");
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../probes/tracepoints.bpf.o");
    let mut bytes = fs::read(committed).expect("the object");
    // Behind what an ELF file is made of nobody looks: the same object under another name.
    bytes.extend_from_slice(b"older");
    fs::write(objects.join("tracepoints.bpf.o"), bytes).expect("an object");
    old.objects = Some(objects);
    let mut probes = Probes::open(&old).expect("probes");
    let shell = Shell::new(":");
    mark(&mut probes, 3, &shell);
    drop(probes);
    let mut probes = Probes::open(&place.settings()).expect("probes");
    assert!(!probes.about().taken_over);
    assert_eq!(place.pinned().len(), 2, "its process is alive");
    assert_eq!(probes.tidy(), 1);
    shell.end();
    let end = Instant::now() + Duration::from_secs(10);
    while probes.tidy() > 0 {
        assert!(Instant::now() < end, "they stay");
    }
    assert_eq!(place.pinned().len(), 1);
}

#[test]
fn a_loading_that_fails_leaves_nothing_behind() {
    let Some(place) = BpfDirectory::new("a broken object") else {
        return;
    };
    let mut settings = place.settings();
    let objects = place.directory.path().join("objects");
    fs::create_dir(&objects).expect("a directory");
    fs::write(objects.join("tracepoints.bpf.o"), b"nothing").expect("a file");
    settings.objects = Some(objects);
    let refused = Probes::open(&settings);
    assert!(matches!(refused, Err(Error::Load { .. })));
    assert_eq!(place.pinned(), Vec::<String>::new());
}

#[test]
fn without_privileges_it_says_what_it_needs() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent-sandbox-tracer"));
    let state = tempfile::tempdir().expect("a directory");
    command.args(["check", "--bpffs", "/nowhere", "--state"]);
    command.arg(state.path());
    if geteuid().is_root() {
        std::os::unix::fs::chown(state.path(), Some(65534), Some(65534)).expect("chown");
        std::os::unix::process::CommandExt::uid(&mut command, 65534);
    }
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("CAP_BPF and CAP_PERFMON"), "{said}");
    assert!(said.contains("hint:"), "{said}");
}
