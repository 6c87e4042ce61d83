//! `make bench`: every speed and size that agent-sandbox promises, as figures of one run against
//! the real alternative. Prints target and figure; fails where a target is missed.
//!
//! Both sides of a ratio run in turn (A B A B …), so that a machine that slows down slows both.

#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark starts processes and reads files"
)]

mod agent;
mod landlock;
mod mpi;
mod network;
mod sessions;
mod slurm;
mod trace;
mod trampolines;
mod view;

/// The machines that tests of the tracer boot.
#[allow(dead_code, clippy::expect_used)] // less is asked of them here; they are the tests'
#[path = "../machine/mod.rs"]
mod machine;
#[allow(dead_code, clippy::expect_used)]
#[path = "../ebpf/machines.rs"]
mod machines;
/// The tracer, in places of its own.
#[allow(dead_code, clippy::unwrap_used)] // less is asked of it here; it is the tests'
#[path = "../tracer/service.rs"]
mod service;

use std::ffi::{OsStr, OsString};
use std::io::{Seek, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use agent_sandbox::backend::bubblewrap;
use agent_sandbox::cli::Options;
use agent_sandbox::{launch, seccomp};
use anyhow::Context;

/// Runs of each side; the median is quoted.
const RUNS: usize = 60;
/// Runs that are not counted, first: caches and page tables.
const WARM_UP: usize = 5;

/// The whole host, read-only: what somebody may start bubblewrap with who writes no policy.
const LEAST: [&str; 9] = [
    "--unshare-all",
    "--ro-bind",
    "/",
    "/",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "true",
];

/// With this argument the benchmark plans once and prints the milliseconds.
const PLAN_ONCE: &str = "--plan-once";

/// With this argument it measures jails of Landlock's alone: `tests/run --bench -- landlock`.
const ONLY_LANDLOCK: &str = "landlock";

/// With this argument it measures steps with several tasks alone: `tests/run --bench -- mpi`.
const ONLY_MPI: &str = "mpi";

fn plan_once() -> anyhow::Result<()> {
    let start = Instant::now();
    let prepared = launch::prepare(&Options::default(), &[OsString::from("true")])?;
    let plan = prepared.plan()?;
    println!("{}", start.elapsed().as_secs_f64() * 1000.0);
    drop(plan);
    Ok(())
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(PLAN_ONCE) {
        return if plan_once().is_ok() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    if std::env::args().nth(1).as_deref() == Some(mpi::JOIN) {
        if let Err(error) = mpi::join() {
            eprintln!("error: {error:#}");
            return ExitCode::FAILURE;
        }
        return ExitCode::SUCCESS;
    }
    if std::env::args().nth(1).as_deref() == Some(network::CLIENT) {
        let arguments: Vec<String> = std::env::args().skip(2).collect();
        if let Err(error) = network::client(&arguments) {
            eprintln!("error: {error:#}");
            return ExitCode::FAILURE;
        }
        return ExitCode::SUCCESS;
    }
    if std::env::args().nth(1).as_deref() == Some(landlock::CALLS) {
        if let Err(error) = landlock::calls() {
            eprintln!("error: {error:#}");
            return ExitCode::FAILURE;
        }
        return ExitCode::SUCCESS;
    }
    if std::env::args().nth(1).as_deref() == Some(trace::LOOP) {
        if let Err(error) = trace::work() {
            eprintln!("error: {error:#}");
            return ExitCode::FAILURE;
        }
        return ExitCode::SUCCESS;
    }
    if std::env::args().nth(1).as_deref() == Some(trace::ONLY_TRACE) {
        return trace::main();
    }
    if std::env::args().nth(1).as_deref() == Some(sessions::ONLY_SESSIONS) {
        return sessions::main();
    }
    if nix::unistd::Uid::effective().is_root() {
        eprintln!("the benchmark runs agent-sandbox, which root must not: use `make bench`");
        return ExitCode::FAILURE;
    }
    let mut bench = match Bench::new() {
        Ok(bench) => bench,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let done = match std::env::args().nth(1).as_deref() {
        Some(ONLY_MPI) => bench.mpi(),
        Some(ONLY_LANDLOCK) => bench.landlock(),
        Some(agent::ONLY_AGENT) => bench.agent(),
        Some(network::ONLY_NETWORK) => bench.network(),
        Some(view::ONLY_VIEW) => bench.view(),
        Some(trampolines::ONLY_TRAMPOLINES) => {
            bench.trampolines();
            Ok(())
        }
        _ => bench.all(),
    };
    if let Err(error) = done {
        eprintln!("error: {error:#}");
        return ExitCode::FAILURE;
    }
    if bench.missed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

struct Bench {
    binary: PathBuf,
    project: tempfile::TempDir,
    missed: usize,
}

impl Bench {
    fn new() -> anyhow::Result<Self> {
        let binary = std::env::var_os("AGENT_SANDBOX_BIN").map_or_else(
            || PathBuf::from(env!("CARGO_BIN_EXE_agent-sandbox")),
            PathBuf::from,
        );
        let home = std::env::var_os("HOME")
            .map(PathBuf::from)
            .unwrap_or_default();
        let project = tempfile::Builder::new().prefix("bench").tempdir_in(home)?;
        std::env::set_current_dir(project.path())?;
        Ok(Self::in_project(binary, project))
    }

    /// What root measures; a failure where a target is missed.
    fn as_root(part: impl FnOnce(&mut Self) -> anyhow::Result<()>) -> ExitCode {
        let measured = Self::of_root().and_then(|mut bench| {
            part(&mut bench)?;
            Ok(bench.missed)
        });
        match measured {
            Ok(0) => ExitCode::SUCCESS,
            Ok(_) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        }
    }

    /// For what root measures, who launches nothing itself.
    fn of_root() -> anyhow::Result<Self> {
        let binary =
            std::env::var_os("AGENT_SANDBOX_BIN").context("AGENT_SANDBOX_BIN is not set")?;
        Ok(Self::in_project(binary.into(), tempfile::tempdir()?))
    }

    fn in_project(binary: PathBuf, project: tempfile::TempDir) -> Self {
        println!("{:<44} {:>10} {:>10}", "", "target", "figure");
        Self {
            binary,
            project,
            missed: 0,
        }
    }

    fn all(&mut self) -> anyhow::Result<()> {
        self.launch()?;
        self.plan()?;
        self.memory()?;
        self.size()?;
        self.agent()?;
        self.landlock()?;
        self.network()?;
        self.slurm()?;
        self.view()?;
        self.trampolines();
        Ok(())
    }

    fn row(&mut self, what: &str, target: f64, figure: f64, unit: &str) {
        let verdict = if figure <= target { "" } else { "  MISSED" };
        self.missed += usize::from(figure > target);
        println!(
            "{what:<44} {:>10} {:>10}{verdict}",
            format!("≤ {target}{unit}"),
            format!("{figure:.2}{unit}")
        );
    }

    /// The same for what ought to be large.
    fn row_at_least(&mut self, what: &str, target: f64, figure: f64, unit: &str) {
        let verdict = if figure >= target { "" } else { "  MISSED" };
        self.missed += usize::from(figure < target);
        println!(
            "{what:<44} {:>10} {:>10}{verdict}",
            format!("≥ {target}{unit}"),
            format!("{figure:.2}{unit}")
        );
    }

    /// `agent-sandbox -q true` against bubblewrap with the same arguments, and against one with three mounts.
    fn launch(&mut self) -> anyhow::Result<()> {
        let bare = Bare::new(self.project.path())?;
        let mut ours = Vec::new();
        let mut theirs = Vec::new();
        let mut least = Vec::new();
        for run in 0..WARM_UP + RUNS {
            let a = time(Command::new(&self.binary).args(["-q", "true"]))?;
            let (mut command, _files) = bare.command()?;
            let b = time(&mut command)?;
            let c = time(Command::new("/usr/bin/bwrap").args(LEAST))?;
            if run >= WARM_UP {
                ours.push(a);
                theirs.push(b);
                least.push(c);
            }
        }
        let (ours, theirs) = (median(&mut ours), median(&mut theirs));
        let least = median(&mut least);
        println!(
            "{:<44} {:>10} {:>10}",
            "agent-sandbox -q true, median",
            "",
            format!("{ours:.2} ms")
        );
        println!(
            "{:<44} {:>10} {:>10}",
            "bwrap with the same arguments, median",
            "",
            format!("{theirs:.2} ms")
        );
        println!(
            "{:<44} {:>10} {:>10}",
            "bwrap with three mounts, median",
            "",
            format!("{least:.2} ms")
        );
        self.row("agent-sandbox -q true / bwrap", 2.0, ours / theirs, " ×");
        self.row(
            "agent-sandbox -q true / bwrap, three mounts",
            2.0,
            ours / least,
            " ×",
        );
        Ok(())
    }

    /// Reading the policy and planning, each time in a new process, as every launch does it.
    fn plan(&mut self) -> anyhow::Result<()> {
        let mut all = Vec::new();
        for run in 0..WARM_UP + RUNS {
            let output = Command::new(std::env::current_exe()?)
                .arg(PLAN_ONCE)
                .output()?;
            let text = String::from_utf8(output.stdout)?;
            if run >= WARM_UP {
                all.push(text.trim().parse()?);
            }
        }
        self.row("policy load + plan", 2.0, median(&mut all), " ms");
        Ok(())
    }

    fn memory(&mut self) -> anyhow::Result<()> {
        let mut child = Command::new(&self.binary)
            .args(["-q", "sleep", "30"])
            .stdin(Stdio::null())
            .spawn()?;
        std::thread::sleep(Duration::from_millis(300));
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()))?;
        let threads = field(&status, "Threads:");
        let resident = field(&status, "VmRSS:") as f64 / 1024.0;
        child.kill()?;
        child.wait()?;
        self.row("memory of the supervisor (RSS)", 4.0, resident, " MB");
        self.row("threads of the supervisor", 1.0, threads as f64, "");
        Ok(())
    }

    fn size(&mut self) -> anyhow::Result<()> {
        let size = std::fs::metadata(&self.binary)?.len() as f64 / (1024.0 * 1024.0);
        self.row("size of the binary", 5.0, size, " MB");
        Ok(())
    }
}

fn field(status: &str, name: &str) -> u64 {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap_or_default();
    line.split_whitespace()
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(u64::MAX)
}

fn time(command: &mut Command) -> anyhow::Result<f64> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let start = Instant::now();
    let status = command.status()?;
    let taken = start.elapsed();
    anyhow::ensure!(status.success(), "{command:?}: {status}");
    Ok(taken.as_secs_f64() * 1000.0)
}

fn median(all: &mut [f64]) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// bubblewrap called directly, with the arguments that agent-sandbox gives it, starting `true`.
struct Bare {
    call: bubblewrap::Call,
}

impl Bare {
    fn new(_project: &Path) -> anyhow::Result<Self> {
        let prepared = launch::prepare(&Options::default(), &[OsString::from("true")])?;
        let plan = prepared.plan()?;
        Ok(Self {
            call: bubblewrap::call(
                &plan,
                seccomp::compile(&plan.syscalls)?,
                bubblewrap::Finisher::Bubblewrap,
            ),
        })
    }

    /// The command, and the files that have to stay open until it was started.
    fn command(&self) -> anyhow::Result<(Command, Vec<std::fs::File>)> {
        let mut files = Vec::new();
        for content in &self.call.contents {
            let mut file = tempfile::tempfile()?;
            file.write_all(content)?;
            file.rewind()?;
            agent_sandbox::sys::fds::inheritable(&file)?;
            files.push(file);
        }
        let mut command = Command::new("/usr/bin/bwrap");
        for argument in &self.call.options {
            match argument {
                bubblewrap::Argument::Text(text) => command.arg(text),
                bubblewrap::Argument::Content(at) => {
                    command.arg(files[*at].as_raw_fd().to_string())
                }
            };
        }
        command
            .arg(OsStr::new("--"))
            .arg("/usr/bin/true")
            .env_clear();
        Ok((command, files))
    }
}
