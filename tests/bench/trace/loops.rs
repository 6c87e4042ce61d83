//! The loops that are traced, or not: this executable again, as a process of its own.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use agent_sandbox_events::client::Connection;
use agent_sandbox_events::protocol::{
    Enforce, EventKind, Lifetime, Register, Request, Response, Scope, VERSION,
};
use anyhow::Context;
use nix::sys::signal::Signal;

use crate::median;
use crate::service::Service;

/// With this argument the benchmark is what is traced: `LOOP ITERATIONS`, from then on when it reads a line.
pub(crate) const LOOP: &str = "--trace-loop";
/// Rounds of all sides in turn; the median is quoted.
const ROUNDS: usize = 9;
/// Iterations of a loop, about a third of a second.
pub(super) const ITERATIONS: u64 = 300_000;
/// So often does a loop with a pace look at the clock.
const PACES_A_SECOND: u64 = 1000;
/// Long enough for whatever is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// What a loop does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// open(2) and close(2) of one file.
    Open,
    /// A system call that no probe looks at.
    Getppid,
    /// The cheapest event: listen(2) on a socket that listens, so many times a second.
    Listen(u64),
}

impl Work {
    fn word(self) -> String {
        match self {
            Self::Open => "open".to_owned(),
            Self::Getppid => "getppid".to_owned(),
            Self::Listen(pace) => pace.to_string(),
        }
    }
}

/// The loop: says that it is there, waits for a line, works, and says how many nanoseconds one iteration took.
pub(crate) fn work() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(2).collect();
    let [work, iterations, here @ ..] = words.as_slice() else {
        anyhow::bail!("{LOOP} WORK ITERATIONS [now]");
    };
    let iterations: u64 = iterations.parse()?;
    if here.is_empty() {
        println!("ready");
        std::io::stdin()
            .lines()
            .next()
            .context("nobody says go")??;
    }
    let start = Instant::now();
    match work.as_str() {
        "open" => {
            for _ in 0..iterations {
                drop(fs::File::open("/etc/passwd")?);
            }
        }
        "getppid" => {
            for _ in 0..iterations {
                nix::unistd::getppid();
            }
        }
        pace => listen(iterations, pace.parse()?)?,
    }
    let taken = start.elapsed().as_secs_f64() * 1e9;
    println!("{}", taken / iterations as f64);
    Ok(())
}

/// Calls listen(2) so many times, at this pace a second.
fn listen(iterations: u64, pace: u64) -> anyhow::Result<()> {
    let socket = TcpListener::bind("127.0.0.1:0")?;
    let backlog = nix::sys::socket::Backlog::new(8)?;
    let chunk = (pace / PACES_A_SECOND).max(1);
    let start = Instant::now();
    let mut done = 0;
    while done < iterations {
        for _ in 0..chunk {
            nix::sys::socket::listen(&socket, backlog)?;
        }
        done += chunk;
        let due = start + Duration::from_secs_f64(done as f64 / pace as f64);
        if let Some(rest) = due.checked_duration_since(Instant::now()) {
            std::thread::sleep(rest);
        }
    }
    Ok(())
}

/// A loop that waits for its line.
pub(super) struct Looper {
    pub(super) child: Child,
    from: BufReader<std::process::ChildStdout>,
}

impl Looper {
    pub(super) fn new(work: Work, iterations: u64) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([LOOP, &work.word(), &iterations.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut from = BufReader::new(child.stdout.take().context("no output")?);
        let mut line = String::new();
        from.read_line(&mut line)?;
        anyhow::ensure!(line == "ready\n", "a loop says {line:?}");
        Ok(Self { child, from })
    }

    pub(super) fn go(&mut self) -> anyhow::Result<()> {
        let mut to = self.child.stdin.take().context("no input")?;
        to.write_all(b"go\n")?;
        Ok(())
    }

    /// Nanoseconds an iteration.
    pub(super) fn end(mut self) -> anyhow::Result<f64> {
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        let status = self.child.wait()?;
        anyhow::ensure!(status.success(), "a loop ended with {status}");
        Ok(line.trim().parse()?)
    }
}

/// Nanoseconds an iteration of a loop that nobody traces.
fn untraced(work: Work) -> anyhow::Result<f64> {
    let mut looper = Looper::new(work, ITERATIONS)?;
    looper.go()?;
    looper.end()
}

/// The same of one that is.
fn traced(work: Work, service: &Service) -> anyhow::Result<f64> {
    let mut looper = Looper::new(work, ITERATIONS)?;
    let connection = register(service, &[looper.child.id()])?;
    looper.go()?;
    let taken = looper.end();
    drop(connection);
    taken
}

/// Has processes traced as long as the connections are kept.
pub(super) fn register(service: &Service, pids: &[u32]) -> anyhow::Result<Vec<Connection>> {
    let one = |pid: u32| -> anyhow::Result<Connection> {
        let connection = Connection::open(&service.socket(), PATIENCE)?;
        let register = Register {
            version: VERSION,
            session: None,
            job: None,
            step: None,
            command: vec!["benchmark".to_owned()],
            scope: Scope {
                process: Some(pid),
                descendants: false,
                cgroup: None,
            },
            events: vec![
                EventKind::Fork,
                EventKind::Exec,
                EventKind::Exit,
                EventKind::Open,
                EventKind::Connect,
                EventKind::Listen,
                EventKind::Operation,
            ],
            every: 1,
            missing: false,
            hidden: Vec::new(),
            redact: Vec::new(),
            enforce: Enforce::Off,
            no_internet: false,
            no_user_namespace: false,
            lifetime: Lifetime::Connection,
        };
        match connection.ask(&Request::Register(Box::new(register)))? {
            Response::Registered { .. } => {}
            other => anyhow::bail!("registering is answered by {other:?}"),
        }
        match connection.ask(&Request::Begin)? {
            Response::Done => Ok(connection),
            other => anyhow::bail!("the begin is answered by {other:?}"),
        }
    };
    pids.iter().map(|pid| one(*pid)).collect()
}

/// Medians in nanoseconds.
pub(super) struct Loops {
    /// With nothing attached, attached and not traced, traced.
    pub(super) open: [f64; 3],
    /// With nothing attached, attached and not traced.
    pub(super) getppid: [f64; 2],
}

impl Loops {
    /// All sides in turn; the tracer runs at the end.
    pub(super) fn measure(service: &mut Service) -> anyhow::Result<Self> {
        let mut open = [const { Vec::new() }; 3];
        let mut getppid = [const { Vec::new() }; 2];
        for round in 0..ROUNDS {
            open[0].push(untraced(Work::Open)?);
            getppid[0].push(untraced(Work::Getppid)?);
            service.again();
            open[1].push(untraced(Work::Open)?);
            getppid[1].push(untraced(Work::Getppid)?);
            open[2].push(traced(Work::Open, service)?);
            if round + 1 < ROUNDS {
                service.end(Signal::SIGTERM);
                // Nothing of it is left attached.
                let unpinned = service.command("unpin").status()?;
                anyhow::ensure!(unpinned.success(), "unpin: {unpinned}");
            }
        }
        Ok(Self {
            open: open.map(|mut all| median(&mut all)),
            getppid: getppid.map(|mut all| median(&mut all)),
        })
    }
}
