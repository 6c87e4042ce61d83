//! A service with a kernel of the tests, and those who ask it.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use agent_sandbox_events::client::{Connection, Unanswered};
use agent_sandbox_events::protocol::{
    Enforce, EventKind, Lifetime, Register, Request, Response, Scope, VERSION, Which,
};
use agent_sandbox_events::trails::Reader;
use agent_sandbox_tracer::service::config::Config;
use agent_sandbox_tracer::service::mark_key::MarkKey;
use agent_sandbox_tracer::service::socket::{Service, Turn};
use agent_sandbox_tracer::service::{files, trail_settings};
use agent_sandbox_tracer::trail::{Now, Trails};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use tempfile::TempDir;

use crate::fake::{Fake, Inside};

pub const PATIENCE: Duration = Duration::from_secs(60);

/// A node with a tracer.
pub struct World {
    pub kernel: Fake,
    pub config: Config,
    running: Option<Running>,
    _directory: TempDir,
}

struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Service<Fake>>,
}

impl World {
    pub fn new() -> Self {
        Self::with(|_| ())
    }

    pub fn with(set: impl FnOnce(&mut Config)) -> Self {
        let directory = tempfile::Builder::new().prefix("tracer").tempdir().unwrap();
        // Other users must come to the socket.
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(directory.path(), open).unwrap();
        let mut config = Config {
            records: directory.path().join("trails"),
            audit: directory.path().join("audit"),
            socket: directory.path().join("run/tracer.sock"),
            state: directory.path().join("state"),
            mark_key: directory.path().join("mark.key"),
            ..Config::default()
        };
        set(&mut config);
        let mut world = Self {
            kernel: Fake::new(),
            config,
            running: None,
            _directory: directory,
        };
        world.start();
        world
    }

    pub fn serve(&self) -> anyhow::Result<Service<Fake>> {
        files::directory(&self.config.state)?;
        let lock = files::lock(&self.config.state)?;
        let settings = trail_settings(&self.config, "node1")?;
        let trails = Trails::open(&settings, Now::read())?;
        let (config, kernel) = (self.config.clone(), self.kernel.clone());
        let key = MarkKey::read(&config.mark_key)?;
        let mut service = Service::new(config, "node1".to_owned(), lock, kernel, trails)?;
        service.sign_with(key);
        Ok(service)
    }

    pub fn start(&mut self) {
        let mut service = self.serve().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let thread = std::thread::spawn(move || {
            while !told.load(Ordering::SeqCst) {
                assert_eq!(service.turn().unwrap(), Turn::On);
            }
            service
        });
        self.running = Some(Running { stop, thread });
    }

    fn halt(&mut self) -> Option<Service<Fake>> {
        let running = self.running.take()?;
        running.stop.store(true, Ordering::SeqCst);
        self.kernel.wake();
        Some(running.thread.join().unwrap())
    }

    /// The tracer dies: it says and writes nothing more.
    pub fn kill(&mut self) {
        drop(self.halt().unwrap());
    }

    /// The tracer is told to end.
    pub fn stop(&mut self) {
        self.halt().unwrap().stop();
    }

    pub fn connect(&self) -> Connection {
        Connection::open(&self.config.socket, PATIENCE).unwrap()
    }

    /// Has the process traced.
    pub fn trace(&self, register: &Register) -> (Connection, u32) {
        self.trace_without(register, &[])
    }

    /// The same, with forbidden files.
    pub fn trace_without(
        &self,
        register: &Register,
        files: &[BorrowedFd<'_>],
    ) -> (Connection, u32) {
        let connection = self.connect();
        let id = registered(&connection, register);
        if !files.is_empty() {
            let forbid = Request::Forbid { version: VERSION };
            let answer = connection.ask_with(&forbid, files).unwrap();
            assert!(matches!(answer, Response::Forbidden { .. }), "{answer:?}");
        }
        assert_eq!(connection.ask(&Request::Begin).unwrap(), Response::Done);
        (connection, id)
    }

    /// All records that this user may read. Those of one trace begin with a header, which is written a moment
    /// after the trace has its number.
    pub fn records(&self, which: Which) -> Vec<serde_json::Value> {
        let written = matches!(which, Which::Trace(_));
        self.records_when(which, |records| !written || !records.is_empty())
    }

    /// Records as soon as they are as they should be.
    pub fn records_when(
        &self,
        which: Which,
        right: impl Fn(&[serde_json::Value]) -> bool,
    ) -> Vec<serde_json::Value> {
        let begin = Instant::now();
        loop {
            let records = records(&self.connect(), which.clone());
            if right(&records) {
                return records;
            }
            assert!(begin.elapsed() < PATIENCE, "{records:#?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl World {
    /// The service has served all that came before.
    pub fn served(&self) {
        // What is closed and what is asked can come in one turn, in any order; the second is of a later one.
        for _ in 0..2 {
            let status = Request::Status { version: VERSION };
            assert!(self.connect().ask(&status).is_ok());
        }
    }

    /// The service has looked for tasks since now: a trace that has none any more has ended.
    pub fn looked(&self) {
        let mut victim = Victim::new();
        let (_connection, id) = self.trace(&of(victim.pid()));
        victim.end();
        self.records_when(Which::Trace(id), |records| kinds(records).contains(&"end"));
    }

    /// The kernel is as it should be.
    pub fn until(&self, right: impl Fn(&Inside) -> bool) {
        let begin = Instant::now();
        loop {
            let inside = self.kernel.inside();
            if right(&inside) {
                return;
            }
            let late = begin.elapsed() > PATIENCE;
            let said = late.then(|| format!("{inside:?}"));
            drop(inside);
            assert_eq!(said, None, "it did not happen in time");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop.store(true, Ordering::SeqCst);
            self.kernel.wake();
            let ended = running.thread.join();
            if !std::thread::panicking() {
                assert!(ended.is_ok(), "the service has panicked");
            }
        }
    }
}

pub fn records(connection: &Connection, which: Which) -> Vec<serde_json::Value> {
    let mut reader = Reader::new(connection, which).unwrap();
    let mut records = Vec::new();
    loop {
        let more = reader.read().unwrap();
        if more.is_empty() {
            return records;
        }
        let parsed = more
            .iter()
            .map(|(_, line)| serde_json::from_str(line).unwrap());
        records.extend(parsed);
    }
}

pub fn registered(connection: &Connection, register: &Register) -> u32 {
    match connection
        .ask(&Request::Register(Box::new(register.clone())))
        .unwrap()
    {
        Response::Registered { trace, .. } => trace,
        other => panic!("{other:?}"),
    }
}

/// Why it is refused.
pub fn refused(answer: Result<Response, Unanswered>) -> String {
    match answer {
        Err(Unanswered::Refused { why, hint }) => format!("{why} ({})", hint.unwrap_or_default()),
        other => panic!("not refused: {other:?}"),
    }
}

/// It did not take that long. Whoever holds the service up does so when the test runs alone, too: `tests/suites` reads
/// these words.
pub fn in_time(begin: Instant, most: Duration) {
    let passed = begin.elapsed();
    assert!(passed < most, "too late for this test: after {passed:?}");
}

pub fn kinds(records: &[serde_json::Value]) -> Vec<&str> {
    records
        .iter()
        .map(|record| record["event"].as_str().unwrap())
        .collect()
}

/// A descriptor of what is there, without opening it.
pub fn path(path: &str) -> OwnedFd {
    open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).unwrap()
}

pub fn me() -> u32 {
    nix::unistd::getuid().as_raw()
}

/// What is asked for a process.
pub fn of(pid: u32) -> Register {
    Register {
        version: VERSION,
        session: Some("k3v9x2m1".to_owned()),
        job: None,
        step: None,
        command: vec!["sleep".to_owned(), "60".to_owned()],
        scope: Scope {
            process: Some(pid),
            descendants: false,
            cgroup: None,
        },
        events: vec![EventKind::Exec, EventKind::Open, EventKind::Exit],
        every: 0,
        missing: false,
        hidden: Vec::new(),
        redact: Vec::new(),
        enforce: Enforce::Off,
        no_internet: false,
        no_user_namespace: false,
        lifetime: Lifetime::Tasks,
    }
}

/// A process that can be traced, and that ends with the test.
pub struct Victim(pub Child);

impl Victim {
    pub fn new() -> Self {
        let mut command = Command::new("sleep");
        Self(
            command
                .arg("60")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs a test of this program, which is `#[ignore]`d otherwise, as somebody else: as that user, or in a pid
/// namespace of its own. Its arguments are the variables `TRACER_SOCKET` and `TRACER_ARGUMENT`. None: not
/// root.
pub fn elsewhere(
    test: &str,
    world: &World,
    argument: &str,
    uid: u32,
    namespace: bool,
) -> Option<String> {
    if me() != 0 {
        println!("not checked: what {test} tries: it needs root to become somebody else");
        return None;
    }
    let program: PathBuf = std::env::current_exe().unwrap();
    // Wherever it was built, others may not come there.
    let copy = world._directory.path().join("test-program");
    if !copy.exists() {
        std::fs::copy(&program, &copy).unwrap();
    }
    let mut command = Command::new(if namespace { "unshare" } else { "setpriv" });
    if namespace {
        command.args(["--pid", "--fork", "--mount-proc"]);
    } else {
        let (uid, gid) = (format!("--reuid={uid}"), format!("--regid={uid}"));
        command.args([&uid, &gid, "--clear-groups"]);
    }
    let output = command
        .arg(&copy)
        .args([
            "--exact",
            test,
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("TRACER_SOCKET", &world.config.socket)
        .env("TRACER_ARGUMENT", argument)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(text.contains("1 passed"), "{text}");
    Some(text)
}

/// What [`elsewhere`] says, on its other end.
pub fn told() -> Option<(Connection, String)> {
    let socket = PathBuf::from(std::env::var_os("TRACER_SOCKET")?);
    let argument = std::env::var("TRACER_ARGUMENT").unwrap();
    Some((Connection::open(&socket, PATIENCE).unwrap(), argument))
}
