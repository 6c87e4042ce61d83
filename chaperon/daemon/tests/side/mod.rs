//! Both sides of the chaperon: commands that write down what they get, and a shim.

#![allow(clippy::disallowed_methods)] // effects: files, processes and sockets of a test
#![allow(clippy::unwrap_used)] // a test: the panic is the failure

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_sandbox_wire::bounds::Bounds;
use agent_sandbox_wire::budget::Budgets;
use agent_sandbox_wire::capsule::{Options, PolicySnapshot};
use agent_sandbox_wire::command::Command as Name;
use agent_sandbox_wire::frame::{self, PREFACE};
use agent_sandbox_wire::logging::VARIABLE;
use agent_sandbox_wire::message::{Call, End, FromShim, How, Source, Stream, ToShim};
use agent_sandbox_wire::order::{Allocation, Limits, Order, Queries, Scope};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, accept, bind,
    listen, sendmsg, setsockopt, socket, sockopt,
};

/// What every stand-in does first: it writes down its words, environment, directory and input. The
/// shell does all of it itself: srun can start no other program.
const WRITES_DOWN: &str = r#"#!/bin/bash
seen=SEEN/${0##*/}
printf '%s\n' "$@" >"$seen.arguments"
while IFS= read -r -d '' entry; do printf '%s\n' "$entry"; done </proc/$$/environ >"$seen.environment"
pwd >"$seen.directory"
ulimit -c >"$seen.core"
"#;

/// What they do then.
const STAND_INS: [(Name, &str); 7] = [
    (Name::Sbatch, "cat >\"$seen.input\"\necho 42\n"),
    (
        Name::Srun,
        "case \"$*\" in *--comment=slowly*) read -rt 0.5 <> <(:);; esac\n\
         for word; do case $word in --output=/dev/fd/*) echo to the file >>\"${word#*=}\";; esac; done\nexit 3\n",
    ),
    (
        Name::Salloc,
        "while [ \"$1\" != -- ]; do shift; done; shift\n\
         SLURM_JOB_ID=43 SLURM_CONF=/x SLURM_SUBMIT_DIR=/ \"$@\"\n",
    ),
    (Name::Scontrol, "echo 'ClusterName = test'\n"),
    (
        Name::Squeue,
        "case \"$*\" in *--format=%F*) echo 42;; esac\n",
    ),
    (Name::Sacct, "exit 0\n"),
    (Name::Scancel, "exit 0\n"),
];

static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Descriptors are let through to one child at a time.
static STARTING: Mutex<()> = Mutex::new(());

/// A directory with all that a test needs.
pub(crate) struct World(PathBuf);

impl World {
    pub(crate) fn new() -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("chaperon-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        for directory in ["bin", "seen", "state", "inside"] {
            fs::create_dir_all(path.join(directory)).unwrap();
        }
        let world = Self(path.canonicalize().unwrap());
        let seen = world.0.join("seen");
        for (command, then) in STAND_INS {
            let file = world.0.join("bin").join(command.name());
            let text = WRITES_DOWN.replace("SEEN", seen.to_str().unwrap());
            fs::write(&file, text + then).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        world
    }

    /// Has a command do this, after it wrote down what it got.
    pub(crate) fn does(&self, command: &str, then: &str) {
        let file = self.0.join("bin").join(command);
        let begin = WRITES_DOWN.replace("SEEN", self.0.join("seen").to_str().unwrap());
        // Not written over: it may be running.
        let new = file.with_extension("new");
        fs::write(&new, begin + then).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(new, file).unwrap();
    }

    /// The directory that stands for the inside.
    pub(crate) fn inside(&self) -> String {
        self.0.join("inside").to_str().unwrap().to_owned()
    }

    pub(crate) fn file(&self, name: &str, content: &str) {
        fs::write(self.0.join("inside").join(name), content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join("inside").join(name)).unwrap()
    }

    pub(crate) fn record(&self, job: u32) -> String {
        let path = self.0.join(format!("state/slurm/test/jobs/{job}.json"));
        fs::read_to_string(path).unwrap()
    }

    /// No record can be written from now on.
    pub(crate) fn without_records(&self) {
        let directory = self.0.join("state/slurm/test");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("jobs"), "").unwrap();
    }

    /// What the chaperon said, and logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.0.join("log")).unwrap()
    }

    /// The lines of the audit record.
    pub(crate) fn audit(&self) -> Vec<String> {
        let files = fs::read_dir(self.0.join("state/audit")).unwrap();
        let texts = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
        let all = texts.collect::<String>();
        all.lines().map(str::to_owned).collect()
    }

    /// No audit record can be written from now on.
    pub(crate) fn without_audit(&self) {
        fs::write(self.0.join("state/audit"), "").unwrap();
    }

    /// Nothing can be written to the chaperon's standard error.
    pub(crate) fn without_log(&self) {
        std::os::unix::fs::symlink("/dev/full", self.0.join("log")).unwrap();
    }

    /// What stands for a tracer that signs, and never answers.
    pub(crate) fn signer(&self) -> Signer {
        let path = self.0.join("signer");
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap();
        bind(socket.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        listen(&socket, Backlog::new(8).unwrap()).unwrap();
        Signer { socket, path }
    }

    pub(crate) fn has_seen(&self, command: &str) -> bool {
        self.seen(command).path("arguments").exists()
    }

    /// What a stand-in got.
    pub(crate) fn seen(&self, command: &str) -> Seen {
        Seen(self.0.join("seen").join(command))
    }
}

pub(crate) struct Signer {
    socket: OwnedFd,
    path: PathBuf,
}

impl Signer {
    pub(crate) fn path(&self) -> Vec<u8> {
        self.path.to_str().unwrap().into()
    }

    /// Whether somebody asked that was not told of yet.
    pub(crate) fn is_asked(&self) -> bool {
        match accept(self.socket.as_raw_fd()) {
            Ok(connection) => nix::unistd::close(connection).is_ok(),
            Err(errno) => {
                assert_eq!(errno, nix::errno::Errno::EAGAIN);
                false
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) struct Seen(PathBuf);

impl Seen {
    fn path(&self, what: &str) -> PathBuf {
        self.0.with_extension(what)
    }

    fn lines(&self, what: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path(what)).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn arguments(&self) -> Vec<String> {
        self.lines("arguments")
    }

    pub(crate) fn environment(&self) -> Vec<String> {
        let mut all = self.lines("environment");
        all.sort();
        all
    }

    pub(crate) fn directory(&self) -> String {
        self.lines("directory").remove(0)
    }

    /// The largest memory image that it may leave.
    pub(crate) fn core(&self) -> String {
        self.lines("core").remove(0)
    }

    pub(crate) fn input(&self) -> Vec<u8> {
        fs::read(self.path("input")).unwrap()
    }
}

/// The program, running.
pub(crate) struct Chaperon {
    child: Child,
    life: UnixStream,
    socket: PathBuf,
    inside: PathBuf,
}

impl Chaperon {
    pub(crate) fn start(world: &World, change: impl FnOnce(&mut Order)) -> Self {
        Self::logging(world, None, change)
    }

    /// The same with this filter of what is logged.
    pub(crate) fn logging(
        world: &World,
        filter: Option<&str>,
        change: impl FnOnce(&mut Order),
    ) -> Self {
        let bytes = |path: &Path| path.to_str().unwrap().as_bytes().to_vec();
        let mut order = Order {
            snapshot: PolicySnapshot {
                session: "s0000001".into(),
                project: bytes(&world.0.join("inside")),
                layers: Vec::new(),
                options: Options::default(),
                variables: Default::default(),
                told: Default::default(),
                traced: false,
                allocation: Vec::new(),
                placeholders: Vec::new(),
            },
            scope: Scope::Project,
            queries: Queries::Counts,
            allocation: Allocation::Steps,
            limits: Limits::default(),
            bounds: Bounds::default(),
            budgets: Budgets::default(),
            commands: STAND_INS
                .iter()
                .map(|(name, _)| (*name, bytes(&world.0.join("bin").join(name.name()))))
                .collect(),
            agent_sandbox: b"/opt/agent-sandbox".to_vec(),
            query_cache: None,
            state: bytes(&world.0.join("state")),
            tracer: None,
            environment: vec![b"PATH=/usr/bin:/bin".to_vec(), b"LANG=C".to_vec()],
            user: "ada".into(),
            uid: nix::unistd::getuid().as_raw(),
            home: b"/home/ada".to_vec(),
            places: Vec::new(),
            job: None,
            signer: None,
        };
        change(&mut order);
        let file = world.0.join("order");
        fs::write(&file, agent_sandbox_wire::order::encode(&order).unwrap()).unwrap();
        let order = File::open(&file).unwrap();
        let socket = world.0.join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let (life, theirs) = UnixStream::pair().unwrap();

        let turn = STARTING.lock().unwrap();
        let errors = File::create(world.0.join("errors")).unwrap();
        let given = [
            order.as_fd(),
            errors.as_fd(),
            listener.as_fd(),
            theirs.as_fd(),
        ];
        for fd in given {
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
        }
        let child = Command::new(env!("CARGO_BIN_EXE_agent-sandbox-chaperon"))
            .arg("serve")
            .args(given.map(|fd| fd.as_raw_fd().to_string()))
            .env_clear()
            .envs(filter.map(|filter| (VARIABLE, filter)))
            .stderr(File::create(world.0.join("log")).unwrap())
            .spawn()
            .unwrap();
        drop((order, listener, theirs));
        drop(turn);
        Self {
            child,
            life,
            socket,
            inside: world.0.join("inside"),
        }
    }

    /// Ends the session; gives how long the chaperon goes on.
    pub(crate) fn end(mut self) -> Duration {
        let start = std::time::Instant::now();
        let _ = self.life.shutdown(Shutdown::Both);
        self.child.wait().unwrap();
        start.elapsed()
    }

    /// Memory of the chaperon that is in use, in KiB.
    pub(crate) fn memory(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with("VmHWM:"))
            .unwrap();
        let number = line.split_ascii_whitespace().nth(1).unwrap();
        number.parse().unwrap()
    }

    /// A shim that calls and then neither answers nor reads.
    pub(crate) fn leave(&self, asked: &CommandLine) -> UnixStream {
        let null = File::open("/dev/null").unwrap();
        self.leave_with(asked, null.as_fd())
    }

    /// The same with these standard streams.
    pub(crate) fn leave_with(&self, asked: &CommandLine, streams: BorrowedFd<'_>) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).unwrap();
        (&stream).write_all(&PREFACE).unwrap();
        let call = Call {
            command: asked.command.clone().into_bytes(),
            arguments: asked.arguments.clone(),
            cwd: self.inside.to_str().unwrap().into(),
            environment: asked.environment.clone(),
            umask: 0o022,
        };
        send(&stream, &FromShim::Call(call), &[streams; 3]);
        stream
    }

    /// Does what a shim does.
    pub(crate) fn ask(&self, asked: CommandLine) -> Reply {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.write_all(&PREFACE).unwrap();
        let null = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/null")
            .unwrap();
        let call = Call {
            command: asked.command.into_bytes(),
            arguments: asked.arguments,
            cwd: self.inside.to_str().unwrap().into(),
            environment: asked.environment,
            umask: 0o022,
        };
        send(&stream, &FromShim::Call(call), &[null.as_fd(); 3]);
        if let Some((seen, signal)) = asked.signalled {
            // The answers are others: what is sent here is sent at once, in one piece.
            let stream = stream.try_clone().unwrap();
            std::thread::spawn(move || {
                while !seen.exists() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                send(&stream, &FromShim::Signal(signal), &[]);
            });
        }
        for signal in asked.signals {
            send(&stream, &FromShim::Signal(signal), &[]);
        }
        let mut preface = [0; 4];
        stream.read_exact(&mut preface).unwrap();
        frame::check_preface(preface).unwrap();
        let mut said = Reply {
            end: End::FAILURE,
            output: Vec::new(),
            error: Vec::new(),
            ran: None,
        };
        let mut answers: VecDeque<FromShim> = VecDeque::new();
        loop {
            match frame::receive(&mut stream).unwrap() {
                ToShim::End(end) => {
                    said.end = end;
                    return said;
                }
                ToShim::Output { stream, bytes } => match stream {
                    Stream::Output => said.output.extend(bytes),
                    Stream::Error => said.error.extend(bytes),
                },
                ToShim::Fetch { source, .. } => match self.fetch(&source) {
                    Ok(content) => {
                        answers.extend(
                            content
                                .chunks(frame::PART)
                                .map(|part| FromShim::Content(part.to_vec())),
                        );
                        answers.push_back(FromShim::ContentEnds);
                    }
                    Err(error) => answers.push_back(failed(&error)),
                },
                ToShim::Open { path, how } => {
                    let path = self.inside.join(String::from_utf8(path).unwrap());
                    let how = if asked.opens_for_reading {
                        How::Read
                    } else {
                        how
                    };
                    match open(&path, how) {
                        Ok(file) => send(&stream, &FromShim::Opened, &[file.as_fd()]),
                        Err(error) => answers.push_back(failed(&error)),
                    }
                }
                ToShim::Look { directory, .. } => answers.push_back(FromShim::Looked {
                    directory,
                    missing: Vec::new(),
                    refused: 0,
                }),
                ToShim::Run { argv, environment } => {
                    said.ran = Some([argv, environment]);
                    answers.push_back(FromShim::RunEnded(End::Code(5)));
                }
                ToShim::Stopped | ToShim::Signal(_) => {}
            }
            for answer in answers.drain(..) {
                send(&stream, &answer, &[]);
            }
        }
    }

    fn fetch(&self, source: &Source) -> std::io::Result<Vec<u8>> {
        match source {
            Source::Input => Ok(Vec::new()),
            Source::File(path) => fs::read(self.inside.join(str::from_utf8(path).unwrap())),
        }
    }
}

impl Drop for Chaperon {
    fn drop(&mut self) {
        let _ = self.life.shutdown(Shutdown::Both);
        let _ = self.child.wait();
    }
}

fn failed(error: &std::io::Error) -> FromShim {
    FromShim::Failed(error.raw_os_error().unwrap_or(libc::EIO))
}

fn open(path: &Path, how: How) -> std::io::Result<OwnedFd> {
    let mut options = OpenOptions::new();
    match how {
        How::Read => options.read(true),
        How::Truncate => options.write(true).create(true).truncate(true),
        How::Append => options.append(true).create(true),
    };
    options.open(path).map(OwnedFd::from)
}

fn send(stream: &UnixStream, message: &FromShim, fds: &[BorrowedFd<'_>]) {
    let bytes = frame::encode(message).unwrap();
    let numbers: Vec<i32> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&numbers)];
    let rights = if fds.is_empty() {
        &rights[..0]
    } else {
        &rights[..]
    };
    let parts = [std::io::IoSlice::new(&bytes)];
    let flags = MsgFlags::empty();
    let sent = sendmsg::<()>(stream.as_raw_fd(), &parts, rights, flags, None).unwrap();
    let mut stream = stream;
    stream.write_all(&bytes[sent..]).unwrap();
}

/// What is asked of the chaperon.
pub(crate) struct CommandLine {
    command: String,
    arguments: Vec<Vec<u8>>,
    environment: Vec<Vec<u8>>,
    opens_for_reading: bool,
    signalled: Option<(PathBuf, i32)>,
    signals: Vec<i32>,
}

impl CommandLine {
    pub(crate) fn new(command: &str, arguments: &[&str]) -> Self {
        Self {
            command: command.to_owned(),
            arguments: arguments
                .iter()
                .map(|word| word.as_bytes().to_vec())
                .collect(),
            environment: Vec::new(),
            opens_for_reading: false,
            signalled: None,
            signals: Vec::new(),
        }
    }

    pub(crate) fn variables(mut self, all: &[&str]) -> Self {
        self.environment = all.iter().map(|entry| entry.as_bytes().to_vec()).collect();
        self
    }

    /// A shim that gets these signals at once.
    pub(crate) fn signals(mut self, all: &[i32]) -> Self {
        self.signals = all.to_vec();
        self
    }

    /// A shim that gets this signal as soon as the command has begun.
    pub(crate) fn signalled(mut self, world: &World, signal: i32) -> Self {
        let seen = world.seen(&self.command).path("directory");
        self.signalled = Some((seen, signal));
        self
    }

    /// A shim that opens every file for reading, whatever it is asked for.
    pub(crate) fn opens_for_reading(mut self) -> Self {
        self.opens_for_reading = true;
        self
    }
}

/// What came of it.
pub(crate) struct Reply {
    pub end: End,
    pub output: Vec<u8>,
    pub error: Vec<u8>,
    /// What was to be run inside, with which variables.
    pub ran: Option<[Vec<Vec<u8>>; 2]>,
}

/// The last descriptor of a connection that has something to say to nobody.
pub(crate) fn lingering(seconds: i32) -> (std::net::TcpListener, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stream.set_nonblocking(true).unwrap();
    while (&stream).write(&[0; 65536]).is_ok() {}
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: seconds,
    };
    setsockopt(&stream, sockopt::Linger, &linger).unwrap();
    (listener, stream)
}

pub(crate) fn now() -> std::time::Instant {
    std::time::Instant::now()
}
