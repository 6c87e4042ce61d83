//! A tracer of a test's own: root starts it, in places that no other one uses.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use agent_sandbox_events::client::{Connection, Unanswered};
use agent_sandbox_events::protocol::{Request, Response, Status, VERSION, Which};
use agent_sandbox_events::record::Record;
use agent_sandbox_events::trails::Reader;
use agent_sandbox_support::waiting::PATIENCE;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// A tracer, or the places of one that does not run now. All of it is gone with this.
pub(crate) struct Service {
    place: tempfile::TempDir,
    records: PathBuf,
    /// The name that its node has; none: the machine's.
    node: Option<String>,
    /// What stands before its own words: a program that starts it with other rights.
    through: Vec<String>,
    child: Option<Child>,
}

impl Service {
    /// One with these settings (`tracer.toml`), which runs.
    #[track_caller]
    pub(crate) fn start(settings: &str) -> Self {
        let mut service = Self::places(settings);
        service.again();
        service
    }

    /// Its places alone. They are root's on every component, as launches demand it of the socket's.
    #[track_caller]
    pub(crate) fn places(settings: &str) -> Self {
        let place = tempfile::Builder::new()
            .prefix("agent-sandbox-tracer.")
            .tempdir_in("/run")
            .unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let config = place.path().join("tracer.toml");
        fs::write(&config, settings).unwrap();
        fs::set_permissions(&config, fs::Permissions::from_mode(0o644)).unwrap();
        for (name, mode) in [("run", 0o755), ("state", 0o700), ("bpf", 0o700)] {
            let path = place.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let records = place.path().join("trails");
        Self {
            place,
            records,
            node: None,
            through: Vec::new(),
            child: None,
        }
    }

    /// As if it ran on a node of this name, with these records, which another one has, too.
    pub(crate) fn on_node(mut self, node: &str, records: &Path) -> Self {
        self.node = Some(node.to_owned());
        self.records = records.to_owned();
        self
    }

    /// Through a program that takes its command line as last words.
    pub(crate) fn through(mut self, words: &[&str]) -> Self {
        self.through = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// The program.
    pub(crate) fn program() -> PathBuf {
        std::env::var_os("AGENT_SANDBOX_TEST_TRACER").map_or_else(
            || {
                // Beside the launcher, where one cargo has built both.
                let launcher = PathBuf::from(env!("CARGO_BIN_EXE_agent-sandbox"));
                launcher.with_file_name("agent-sandbox-tracer")
            },
            PathBuf::from,
        )
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.place.path().join("run/tracer.sock")
    }

    /// The directory of its trails.
    pub(crate) fn records(&self) -> &Path {
        &self.records
    }

    /// The BPF file system in which it pins; it mounts one here if there is none.
    pub(crate) fn bpffs(&self) -> PathBuf {
        self.place.path().join("bpf")
    }

    fn log(&self) -> PathBuf {
        self.place.path().join("log")
    }

    /// What it has said so far.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// The call of one of its commands, with the options of these places.
    pub(crate) fn command(&self, name: &str) -> Command {
        let config = self.place.path().join("tracer.toml");
        let mut words: Vec<String> = Vec::new();
        if let Some(node) = &self.node {
            let script = format!("hostname {node} && exec \"$@\"");
            let own = ["/usr/bin/unshare", "--uts", "/bin/sh", "-c", &script, "sh"];
            words.extend(own.map(str::to_owned));
        }
        words.extend(self.through.iter().cloned());
        words.push(Self::program().display().to_string());
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .arg(name)
            .arg("--config")
            .arg(&config)
            .arg("--socket")
            .arg(self.socket())
            .arg("--records")
            .arg(&self.records)
            .arg("--audit")
            .arg(self.place.path().join("audit"))
            .arg("--state")
            .arg(self.place.path().join("state"))
            .arg("--bpffs")
            .arg(self.bpffs())
            .stdin(Stdio::null());
        command
    }

    /// Starts it, and waits until it answers.
    #[track_caller]
    pub(crate) fn again(&mut self) {
        assert!(self.child.is_none(), "it runs");
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.log())
            .unwrap();
        let mut command = self.command("run");
        command
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .process_group(0);
        let mut child = command.spawn().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while self.try_status().is_none() {
            let ended = child.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "the tracer does not come up ({ended:?}):\n{}",
                self.said()
            );
            std::thread::sleep(LOOK);
        }
        self.child = Some(child);
    }

    /// Its process.
    pub(crate) fn pid(&self) -> Pid {
        let child = self.child.as_ref().expect("it runs");
        Pid::from_raw(i32::try_from(child.id()).unwrap())
    }

    /// Ends it by a signal, and waits for that; what it has pinned stays. Its exit code, if it has one.
    #[track_caller]
    pub(crate) fn end(&mut self, signal: Signal) -> Option<i32> {
        let mut child = self.child.take().expect("it runs");
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        kill(pid, signal).unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status.code();
            }
            if Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                panic!("the tracer does not end:\n{}", self.said());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// A connection of root's.
    #[track_caller]
    pub(crate) fn connect(&self) -> Connection {
        Connection::open(&self.socket(), PATIENCE)
            .unwrap_or_else(|error| panic!("{error}:\n{}", self.said()))
    }

    fn try_status(&self) -> Option<Status> {
        let connection = Connection::open(&self.socket(), PATIENCE).ok()?;
        match connection.ask(&Request::Status { version: VERSION }) {
            Ok(Response::Status(status)) => Some(*status),
            _ => None,
        }
    }

    /// How it is.
    #[track_caller]
    pub(crate) fn status(&self) -> Status {
        self.try_status().unwrap_or_else(|| {
            panic!("the tracer does not say how it is:\n{}", self.said());
        })
    }

    /// What root reads of these trails, in their order.
    #[track_caller]
    pub(crate) fn read(&self, which: Which) -> Vec<Record> {
        let read = || -> Result<Vec<Record>, Unanswered> {
            let mut reader = Reader::new(self.connect(), which)?;
            let mut records = Vec::new();
            loop {
                let more = reader.read()?;
                if more.is_empty() {
                    return Ok(records);
                }
                records.extend(more.into_iter().map(|(record, _)| record));
            }
        };
        read().unwrap_or_else(|error| panic!("{error}:\n{}", self.said()))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("-- the tracer said:\n{}--", self.said());
        }
        if let Some(mut child) = self.child.take() {
            let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or_default());
            let _ = kill(pid, Signal::SIGTERM);
            let _ = child.wait();
        }
        // Nothing of it may stay in the kernel: it would be paid for by whoever comes next.
        let _ = self.command("unpin").stderr(Stdio::null()).status();
        let _ = nix::mount::umount2(&self.bpffs(), nix::mount::MntFlags::MNT_DETACH);
    }
}
