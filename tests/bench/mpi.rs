//! The promises about steps with several tasks: what they have between them, how fast many of them
//! start, and what one of them waits for before its command runs.
//!
//! Both sides have an allocation each (`salloc`) on the same machine, from which the same shell calls
//! `srun` in turn. A step of the jailed side is the only one of its job on the node: it builds the
//! job's jail, so that everything that a step can cost is in the figures.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_sandbox::cli::Options;
use agent_sandbox::launch;
use agent_sandbox_wire::capsule::{Capsule, Program, Streams};
use agent_sandbox_wire::step;
use anyhow::Context;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use crate::slurm::{Runner, Sides, wait_for};
use crate::{Bench, median};

/// With this argument the benchmark measures, as a task of a step, what joining a step costs.
pub(crate) const JOIN: &str = "--join";

/// Steps of each side that measure the rate of messages.
const STEPS: usize = 14;
/// Seconds of messages in each: a handful of windows.
const STEP_SECONDS: f64 = 0.5;
/// Steps of each side with many tasks.
const CROWDS: usize = 11;
/// Tasks in each.
const TASKS: usize = 64;
/// Tasks that join a step, and runs of the same program without one.
const JOINS: usize = 80;
/// Joins that are not counted, first.
const JOIN_WARM_UP: usize = 5;

impl Bench {
    /// Everything about tasks that share a jail.
    pub(crate) fn mpi(&mut self) -> anyhow::Result<()> {
        let mut sides = self.allocated()?;
        self.messages(&mut sides)?;
        let line = format!("srun -Q -n {TASKS} --overcommit true");
        let (inside, outside) = sides.medians(&line, CROWDS, ":")?;
        note(
            &format!("{line}, direct, median"),
            &format!("{outside:.0} ms"),
        );
        let what = format!("srun -n {TASKS} true, jailed / direct");
        self.row(&what, 1.25, inside / outside, " ×");
        self.joining(&mut sides)?;
        sides.inside.end()?;
        sides.outside.end()
    }

    /// A shell on each side, with an allocation of its own.
    fn allocated(&self) -> anyhow::Result<Sides> {
        let words = ["salloc", "--quiet", "--nodes=1", "--ntasks=2"];
        let mut jail = Command::new(&self.binary);
        let jail = jail.args(["-q", "--set", "slurm.limits.queries_per_minute=0"]);
        Ok(Sides {
            inside: Runner::new(jail.args(words))?,
            outside: Runner::new(Command::new("env").args(words))?,
        })
    }

    /// The rate at which two ranks of Open MPI hand 4 MiB to each other, through shared memory.
    ///
    /// Of each side the best counts, over many short windows in many steps. Two ranks need both
    /// processors of a small machine, and the rate is of the order of the memory's own: anything
    /// else that runs, on either side, halves it for a while, and nothing ever makes it higher than
    /// the hardware allows. The median measures the neighbours, the best measures the way of the
    /// data. The sides take turns, so that a quiet moment is not one side's alone.
    fn messages(&mut self, sides: &mut Sides) -> anyhow::Result<()> {
        let program = std::env::current_dir()?.join("pingpong");
        if !compile("mpicc.openmpi", "tests/slurm/mpi/pingpong.c", &program)? {
            println!("not checked: MPI: there is no mpicc.openmpi");
            return Ok(());
        }
        let mut best = [0f64; 2];
        for _ in 0..STEPS {
            for (side, best) in best.iter_mut().enumerate() {
                let line =
                    format!("srun -Q -n 2 --mpi=pmix ./pingpong {STEP_SECONDS} > rate.{side}");
                let runner = match side {
                    0 => &mut sides.inside,
                    _ => &mut sides.outside,
                };
                runner.time(&line)?;
                let text = wait_for(Path::new(&format!("rate.{side}")))?;
                *best = best.max(rate(&text).with_context(|| format!("no rate: {text}"))?);
            }
        }
        let [inside, outside] = best;
        let shown = |rate: f64| format!("{:.2} GB/s", rate / 1e9);
        note("4 MiB between two ranks, jailed, best", &shown(inside));
        note("4 MiB between two ranks, direct, best", &shown(outside));
        let what = "4 MiB between two ranks, jailed / direct";
        self.row_at_least(what, 0.97, inside / outside, " ×");
        Ok(())
    }

    /// What one more task of a step waits for, more than a program that Slurm starts itself: from the
    /// call of `agent-sandbox task` to the command's first instruction, less the same for the
    /// command alone. The task's tail is measured as well, though nobody waits for it but the step.
    fn joining(&mut self, sides: &mut Sides) -> anyhow::Result<()> {
        let program = std::env::current_dir()?.join("now");
        anyhow::ensure!(
            compile("cc", "tests/bench/now.c", &program)?,
            "there is no cc"
        );
        let own = std::env::current_exe()?;
        let launcher = std::path::absolute(&self.binary)?;
        let line = format!(
            "AGENT_SANDBOX_BIN={} srun -Q -n 1 {} {JOIN} > joining.txt 2> joining.errors",
            launcher.display(),
            own.display()
        );
        sides.outside.time(&line).with_context(|| {
            let said = std::fs::read_to_string("joining.errors").unwrap_or_default();
            format!("cannot measure joining: {said}")
        })?;
        let text = wait_for(Path::new("joining.txt"))?;
        let figures: Vec<f64> = text.split_whitespace().flat_map(str::parse).collect();
        let [joining, whole, processor] = figures[..] else {
            anyhow::bail!("no figures of joining: {text}");
        };
        self.row("joining a step, beyond exec", 5.0, joining, " ms");
        note("joining, to the task's end", &format!("{whole:.2} ms"));
        note(
            "joining, processor time of the task",
            &format!("{processor:.2} ms"),
        );
        Ok(())
    }
}

/// A figure without a target.
pub(crate) fn note(what: &str, figure: &str) {
    println!("{what:<44} {:>10} {figure:>10}", "");
}

/// Compiles a program of the tree; `false` if there is no such compiler.
fn compile(compiler: &str, source: &str, program: &Path) -> anyhow::Result<bool> {
    let root = std::env::var_os("AGENT_SANDBOX_ROOT")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let mut command = Command::new(compiler);
    command
        .arg("-O2")
        .arg("-o")
        .arg(program)
        .arg(root.join(source));
    match command.status() {
        Ok(status) => {
            anyhow::ensure!(status.success(), "{command:?}: {status}");
            Ok(true)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Of the output of `pingpong`.
fn rate(text: &str) -> Option<f64> {
    let rest = text.strip_prefix("bytes_per_second ")?;
    rest.split(' ').next()?.parse().ok()
}

/// A step as one of its tasks finds it. This process is a task that the real `srun`
/// started, in the step's cgroup and with its environment, and does for each task what slurmstepd
/// does for the tasks of a step of the chaperon's: it starts `agent-sandbox task` with a capsule in
/// the environment.
struct Step {
    variables: Vec<(String, String)>,
    binary: OsString,
    first: Child,
}

impl Step {
    fn new() -> anyhow::Result<Self> {
        let binary = std::env::var_os("AGENT_SANDBOX_BIN").context("no AGENT_SANDBOX_BIN")?;
        let mut first = Self::task(&binary, &capsule(&["sh", "-c", "echo up; exec sleep 600"])?)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut said = [0; 3];
        let output = first.stdout.as_mut().context("no output")?;
        output
            .read_exact(&mut said)
            .context("the first task does not start")?;
        Ok(Self {
            variables: capsule(&["./now"])?,
            binary,
            first,
        })
    }

    fn task(binary: &OsString, variables: &[(String, String)]) -> Command {
        let mut command = Command::new(binary);
        command
            .arg("task")
            .envs(variables.iter().cloned())
            // What makes a step one of several tasks.
            .env("SLURM_STEP_TASKS_PER_NODE", TASKS.to_string())
            .env("SLURM_PROCID", "1")
            .stdin(Stdio::null());
        command
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        // Nobody waits for it, and it may have ended.
        let _ = self.first.kill();
        let _ = self.first.wait();
    }
}

/// The variables of a step's capsule.
fn capsule(words: &[&str]) -> anyhow::Result<Vec<(String, String)>> {
    let prepared = launch::prepare(&Options::default(), &[OsString::from("true")])?;
    let environment: Vec<Vec<u8>> = std::env::vars_os()
        .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
        .collect();
    let cwd = std::env::current_dir()?.into_os_string();
    let capsule = Capsule {
        snapshot: prepared.snapshot,
        base_environment: environment.clone(),
        environment,
        cwd: cwd.as_bytes().to_vec(),
        submit_directory: cwd.as_bytes().to_vec(),
        umask: 0o22,
        streams: Streams::default(),
        program: Program::Command(words.iter().map(|word| word.as_bytes().to_vec()).collect()),
    };
    step::variables(&capsule).map_err(|size| anyhow::anyhow!("a capsule of {size} bytes"))
}

/// Milliseconds from the call to the first instruction of `now`, to the end of what was started, and
/// of processor time.
fn timed(command: &mut Command) -> anyhow::Result<[f64; 3]> {
    let spent = processor()?;
    let start = clock()?;
    let output = command.stderr(Stdio::inherit()).output()?;
    let end = clock()?;
    anyhow::ensure!(output.status.success(), "{}", output.status);
    let said: f64 = String::from_utf8(output.stdout)?.trim().parse()?;
    Ok([
        (said - start) * 1000.0,
        (end - start) * 1000.0,
        processor()? - spent,
    ])
}

fn clock() -> anyhow::Result<f64> {
    let now: Duration = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(now.as_secs_f64())
}

/// Milliseconds of processor time of all children that have ended.
fn processor() -> anyhow::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let both = usage.user_time() + usage.system_time();
    Ok(both.num_microseconds() as f64 / 1000.0)
}

/// Measures joining, in turn with the same program alone, and prints medians of the differences: to
/// the first instruction, to the end, and of processor time.
pub(crate) fn join() -> anyhow::Result<()> {
    let step = Step::new()?;
    let mut all: [[Vec<f64>; 3]; 2] = Default::default();
    for run in 0..JOIN_WARM_UP + JOINS {
        let joined = timed(&mut Step::task(&step.binary, &step.variables))?;
        // The same environment, as execve(2) copies it.
        let mut plain = Command::new("./now");
        let plain = timed(plain.envs(step.variables.iter().cloned()))?;
        if run >= JOIN_WARM_UP {
            for (side, figures) in [joined, plain].into_iter().enumerate() {
                for (times, figure) in all[side].iter_mut().zip(figures) {
                    times.push(figure);
                }
            }
        }
    }
    drop(step);
    let [joined, plain] = &mut all;
    let differences: Vec<String> = joined
        .iter_mut()
        .zip(plain)
        .map(|(joined, plain)| (median(joined) - median(plain)).to_string())
        .collect();
    println!("{}", differences.join(" "));
    Ok(())
}
