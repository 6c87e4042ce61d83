//! The self-test: a process of the tracer's own is traced, does known things and tries forbidden ones. What
//! is then claimed was seen, not believed: a program that is loaded and attached may never run (security
//! hooks without `bpf` in lsm=).

#![allow(
    clippy::disallowed_methods,
    reason = "effects: starts a process, makes files, reads the clock"
)]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use agent_sandbox_events::raw::{self, About, By, Kind, OPERATIONS, trace_flags, turned};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Pid, getuid};

use super::exercise::{FILE, FREE, NOTHING, Results, SHUT, attempts};
use super::maps::{SELF_TEST, Sweep, SweepWhat, TraceEntry};
use super::probes::Probes;
use super::settings::Settings;

/// As long as the child may take for a part: an emulated machine is slow.
const PATIENCE: Duration = Duration::from_secs(20);

/// As long as events may take that the child has caused. They are in the ring before its calls return, so
/// this only bounds the wait for what never comes.
const EVENTS: Duration = Duration::from_secs(1);

/// The probes wake a reader at most every 20 ms.
const PAUSE: Duration = Duration::from_millis(30);

/// What the test found out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Proof {
    /// Kinds of events that were seen with what was expected in them.
    pub(crate) seen: BTreeSet<Kind>,
    /// What was denied as it should be.
    pub(crate) denied: BTreeSet<&'static str>,
    /// What should have been denied and was not.
    pub(crate) let_through: BTreeSet<&'static str>,
}

impl Proof {
    /// Whether the object is of any use.
    pub(crate) fn sees(&self) -> bool {
        ESSENTIAL.iter().all(|kind| self.seen.contains(kind))
    }

    /// Whether there is a second layer.
    pub(crate) fn denies(&self) -> bool {
        DENIED.iter().all(|what| self.denied.contains(what))
    }

    /// A line for each thing that is proved.
    pub(crate) fn lines(&self) -> Vec<String> {
        let seen = self.seen.iter();
        let seen = seen.map(|kind| format!("recorded: {}", kind.name()));
        let denied = self.denied.iter();
        seen.chain(denied.map(|what| format!("denied: {what}")))
            .collect()
    }
}

/// Without these nothing is relied on.
const ESSENTIAL: [Kind; 3] = [Kind::Exec, Kind::Open, Kind::Connect];

/// Without these nothing is said to be denied.
const DENIED: [&str; 5] = ["open", "link", "rename", "connect", "internet"];

/// The name of what is tried at last.
pub(crate) const USER_NAMESPACE: &str = "user namespace";

/// Runs the test. `denials`: whether there are programs that could deny.
pub(crate) fn prove(probes: &mut Probes, settings: &Settings, denials: bool) -> io::Result<Proof> {
    let room = ScratchDirectory::new(&settings.state)?;
    let mut child = Exerciser::start(settings.program(), &room.0)?;
    let result = parts(probes, &room.0, &mut child, denials);
    // The trace goes in any case: a number that is given again must not be forbidden anything.
    probes.pardon(SELF_TEST)?;
    probes.remove_trace(SELF_TEST)?;
    result
}

fn parts(
    probes: &mut Probes,
    room: &Path,
    child: &mut Exerciser,
    denials: bool,
) -> io::Result<Proof> {
    let mut proof = Proof::default();
    // It has made its files and waits.
    child.results()?;
    let uid = getuid().as_raw();
    let mut entry = TraceEntry {
        events: Kind::ALL.iter().map(|kind| kind.bit()).sum(),
        flags: trace_flags::RECORD,
        uid,
        every: 1,
        operations: (1 << OPERATIONS.len()) - 1,
        parent: 0,
        rules: 0,
    };
    probes.set_trace(SELF_TEST, &entry)?;
    let marked = probes.sweep(&Sweep {
        what: SweepWhat::Process(child.pid()),
        trace: SELF_TEST,
        from: u32::MAX,
        uid,
    })?;
    if marked == 0 {
        return Err(io::Error::other(
            "the process of the self-test was not found",
        ));
    }
    let free = child.go()?;
    let pid = child.pid();
    let done = [
        Kind::Exec,
        Kind::Fork,
        Kind::Exit,
        Kind::Open,
        Kind::Connect,
    ];
    watch(probes, &mut proof.seen, done.len(), |event| {
        expected(event, pid)
    });
    if !denials {
        return Ok(proof);
    }
    let shut = File::open(room.join(SHUT))?;
    let (device, inode) = probes.identify(shut.as_fd())?;
    probes.forbid(SELF_TEST, device, inode)?;
    entry.flags |= trace_flags::ENFORCE;
    entry.flags |= trace_flags::NO_INTERNET | trace_flags::NO_USER_NAMESPACE;
    probes.set_trace(SELF_TEST, &entry)?;
    let shut = child.go()?;
    // That a user namespace is refused proves nothing by itself, as many nodes refuse it anyway.
    let mut by_us = BTreeSet::new();
    watch(probes, &mut by_us, 1, |event| match event.about {
        About::Operation { what, .. } if event.head.by == By::Tracer => {
            let name = usize::try_from(what).ok().and_then(|n| OPERATIONS.get(n));
            (name == Some(&"user_namespace")).then_some(())
        }
        _ => None,
    });
    judge(&mut proof, &free, &shut, !by_us.is_empty());
    Ok(proof)
}

/// What was denied: what works where nothing is forbidden, and is not permitted where it is.
fn judge(proof: &mut Proof, free: &Results, shut: &Results, user_namespace: bool) {
    for name in attempts() {
        let works = free.get(name) == Some(&0);
        if works && shut.get(name) == Some(&libc::EPERM) {
            proof.denied.insert(name);
        } else {
            proof.let_through.insert(name);
        }
    }
    if user_namespace && shut.get(USER_NAMESPACE) == Some(&libc::EPERM) {
        proof.denied.insert(USER_NAMESPACE);
    } else {
        proof.let_through.insert(USER_NAMESPACE);
    }
}

/// The kind of an event that is one of those that the first part must cause.
fn expected(event: &raw::Event<'_>, pid: u32) -> Option<Kind> {
    let head = &event.head;
    let is_it = match event.about {
        About::Exec { arguments, .. } => {
            let mut words = arguments.split(|byte| *byte == 0);
            words.nth(1) == Some(NOTHING.as_bytes())
        }
        About::Open { path, .. } => {
            let path = turned(path, head.flags);
            let end = format!("{FREE}/{FILE}");
            path.ends_with(end.as_bytes()) && head.pid == pid && head.result >= 0
        }
        About::Address { family, .. } => {
            i32::from(family) == libc::AF_INET && head.kind == Kind::Connect && head.pid == pid
        }
        About::Life => head.ppid == pid || head.kind == Kind::Exit,
        About::Operation { .. } => false,
    };
    is_it.then_some(head.kind)
}

/// Reads the ring until as many things were found as there are, or nothing more is to come. Events of other
/// traces are kept for whoever drains the ring afterwards.
fn watch<T: Ord>(
    probes: &mut Probes,
    found: &mut BTreeSet<T>,
    enough: usize,
    mut look: impl FnMut(&raw::Event<'_>) -> Option<T>,
) {
    let end = Instant::now() + EVENTS;
    loop {
        probes.sort_out(&mut |bytes| {
            if let Ok(event) = raw::parse(bytes) {
                found.extend(look(&event));
            }
        });
        let left = end.saturating_duration_since(Instant::now());
        if found.len() >= enough || left.is_zero() {
            return;
        }
        let timeout = PollTimeout::try_from(left.min(PAUSE)).unwrap_or(PollTimeout::ZERO);
        let ring = probes.ring_fd();
        // An error shows in the next round, as nothing is found.
        let _ = poll(&mut [PollFd::new(ring, PollFlags::POLLIN)], timeout);
    }
}

/// A directory of the test's own.
struct ScratchDirectory(PathBuf);

impl ScratchDirectory {
    fn new(scratch: &Path) -> io::Result<Self> {
        let path = scratch.join(format!("self-test-{}", Pid::this()));
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        // What stays is removed by the next test, and hurts nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The process that is tested on.
struct Exerciser {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl Exerciser {
    fn start(program: &Path, room: &Path) -> io::Result<Self> {
        let mut child = Command::new(program)
            .arg("prove")
            .arg(room)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        Ok(Self {
            child,
            input,
            output,
        })
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets it do its next part, and returns how that went.
    fn go(&mut self) -> io::Result<Results> {
        self.input.write_all(b"\n")?;
        self.results()
    }

    /// The next line that it says.
    fn results(&mut self) -> io::Result<Results> {
        let end = Instant::now() + PATIENCE;
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            let left = end.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            let mut fds = [PollFd::new(self.output.as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, timeout)? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let mut part = [0; 4096];
            match self.output.read(&mut part)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => line.extend_from_slice(&part[..length]),
            }
        }
        serde_json::from_slice(&line).map_err(io::Error::from)
    }
}

impl Drop for Exerciser {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(number: i32) -> Results {
        attempts().map(|name| (name.to_owned(), number)).collect()
    }

    #[test]
    fn only_what_works_elsewhere_counts_as_denied() {
        let (free, mut shut) = (all(0), all(libc::EPERM));
        let mut proof = Proof::default();
        judge(&mut proof, &free, &shut, false);
        assert!(proof.denies());
        assert_eq!(proof.let_through, [USER_NAMESPACE].into());

        let mut proof = Proof::default();
        judge(&mut proof, &all(libc::EPERM), &shut, false);
        assert!(!proof.denies(), "it does not work anywhere");

        shut.insert("open".to_owned(), libc::EACCES);
        let mut proof = Proof::default();
        judge(&mut proof, &free, &shut, false);
        assert!(!proof.denies(), "somebody else denied");
    }

    #[test]
    fn a_user_namespace_is_denied_by_the_tracer_alone() {
        let mut shut = all(libc::EPERM);
        shut.insert(USER_NAMESPACE.to_owned(), libc::EPERM);
        let mut proof = Proof::default();
        judge(&mut proof, &all(0), &shut, false);
        assert!(!proof.denied.contains(USER_NAMESPACE));
        judge(&mut proof, &all(0), &shut, true);
        assert!(proof.denied.contains(USER_NAMESPACE));
    }

    #[test]
    fn an_object_that_misses_a_kind_is_not_relied_on() {
        let mut proof = Proof::default();
        proof.seen.extend([Kind::Exec, Kind::Open, Kind::Fork]);
        assert!(!proof.sees());
        proof.seen.insert(Kind::Connect);
        assert!(proof.sees());
        assert!(!proof.denies());
    }
}
