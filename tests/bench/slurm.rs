//! The promises about Slurm: each command through the jail against the same command run directly,
//! by the same user, on the same cluster, in turn.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::{Bench, field, median};

/// Runs of each side; the median is quoted.
const RUNS: usize = 40;
/// Runs of what takes long.
const SLOW_RUNS: usize = 15;
/// Jobs in the queue for the large query.
const MANY: usize = 10_000;

/// Runs each line that it reads and says how many microseconds it took and its exit code. The same
/// shell runs on both sides, so that what it costs is in both figures.
const RUNNER: &str = r#"while IFS= read -r line; do
    start=${EPOCHREALTIME/./}; eval "$line" >/dev/null 2>&1 </dev/null; code=$?; end=${EPOCHREALTIME/./}
    echo "$((end - start)) $code"
done"#;

pub(crate) struct Runner {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Runner {
    pub(crate) fn new(command: &mut Command) -> anyhow::Result<Self> {
        let mut child = command
            .args(["bash", "--norc", "--noprofile", "-c", RUNNER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let to = child.stdin.take().context("no input")?;
        let from = BufReader::new(child.stdout.take().context("no output")?);
        Ok(Self { child, to, from })
    }

    /// Milliseconds that a line of shell takes.
    pub(crate) fn time(&mut self, line: &str) -> anyhow::Result<f64> {
        writeln!(self.to, "{line}")?;
        let mut answer = String::new();
        self.from.read_line(&mut answer)?;
        let (taken, code) = answer.trim().split_once(' ').context("no answer")?;
        anyhow::ensure!(code == "0", "`{line}` ended with {code}");
        Ok(taken.parse::<f64>()? / 1000.0)
    }

    pub(crate) fn end(self) -> anyhow::Result<()> {
        let Self {
            mut child,
            to,
            from,
        } = self;
        drop((to, from));
        child.wait()?;
        Ok(())
    }
}

/// The same shell in a jail and without one.
pub(crate) struct Sides {
    pub(crate) inside: Runner,
    pub(crate) outside: Runner,
}

impl Sides {
    /// Medians of both sides, in turn; `after` runs behind each, outside, and is not counted.
    pub(crate) fn medians(
        &mut self,
        line: &str,
        runs: usize,
        after: &str,
    ) -> anyhow::Result<(f64, f64)> {
        let (mut inside, mut outside) = (Vec::new(), Vec::new());
        for run in 0..runs + 3 {
            let a = self.inside.time(line)?;
            self.outside.time(after)?;
            let b = self.outside.time(line)?;
            self.outside.time(after)?;
            if run >= 3 {
                inside.push(a);
                outside.push(b);
            }
        }
        Ok((median(&mut inside), median(&mut outside)))
    }
}

impl Bench {
    /// Everything about Slurm; without a cluster it says so.
    pub(crate) fn slurm(&mut self) -> anyhow::Result<()> {
        if std::env::var_os("SLURM_CONF").is_none() {
            println!("not checked: Slurm: no cluster (`make bench` starts one)");
            return Ok(());
        }
        let mut jail = Command::new(&self.binary);
        jail.args([
            "-q",
            "--set",
            "slurm.limits.queries_per_minute=0",
            "--set",
            "slurm.limits.submissions_per_minute=0",
            "--set",
            "slurm.limits.submissions_per_day=0",
            "--set",
            "slurm.query_cache_seconds=0",
        ]);
        let mut sides = Sides {
            inside: Runner::new(&mut jail)?,
            outside: Runner::new(&mut Command::new("env"))?,
        };
        let cancel = "scancel --me --quiet";
        let (inside, outside) = sides.medians("squeue", RUNS, ":")?;
        self.row("squeue, jailed / direct", 1.5, inside / outside, " ×");
        self.row("squeue, jailed - direct", 4.0, inside - outside, " ms");
        let submit = "sbatch --hold --output=/dev/null --wrap=true";
        let (inside, outside) = sides.medians(submit, RUNS, ":")?;
        self.row("sbatch, jailed - direct", 8.0, inside - outside, " ms");
        sides.outside.time(cancel)?;
        std::thread::sleep(Duration::from_secs(1));
        let (inside, outside) = sides.medians("srun -Q hostname", SLOW_RUNS, ":")?;
        self.row(
            "srun hostname, jailed - direct",
            20.0,
            inside - outside,
            " ms",
        );
        self.first_line(&mut sides)?;
        self.mpi()?;
        self.crowd(&mut sides)?;
        self.idle()?;
        let last = MANY - 1;
        sides.outside.time(&format!(
            "sbatch --hold --array=0-{last} --output=/dev/null --wrap=true"
        ))?;
        // Of this many jobs the ones that the session sees in full are none.
        let (inside, outside) = sides.medians("squeue --array", SLOW_RUNS, ":")?;
        let what = format!("squeue of {MANY} jobs, jailed / direct");
        self.row(&what, 1.3, inside / outside, " ×");
        // One more, which is counted in hours: Slurm is asked what became of it.
        sides
            .inside
            .time("sbatch --hold --time=1 --output=/dev/null --wrap=true")?;
        let budget = format!("{} budget", self.binary.display());
        let mut all = Vec::new();
        for _ in 0..SLOW_RUNS {
            all.push(sides.outside.time(&budget)?);
        }
        let what = format!("budget, with {MANY} jobs in the queue");
        self.row(&what, 100.0, median(&mut all), " ms");
        sides.outside.time(cancel)?;
        sides.inside.end()?;
        sides.outside.end()?;
        Ok(())
    }

    /// From Slurm's start of a job to the first line of the user's script.
    fn first_line(&mut self, sides: &mut Sides) -> anyhow::Result<()> {
        let directory = std::env::current_dir()?;
        std::fs::write(
            directory.join("first.sh"),
            "#!/bin/bash\necho $EPOCHREALTIME > first.$1\n",
        )?;
        let mut medians = Vec::new();
        let mut all = [Vec::new(), Vec::new()];
        for run in 0..SLOW_RUNS * 2 {
            for (side, times) in all.iter_mut().enumerate() {
                let runner = if side == 0 {
                    &mut sides.inside
                } else {
                    &mut sides.outside
                };
                let start = std::time::SystemTime::now()
                    .duration_since(std::time::UNIX_EPOCH)?
                    .as_secs_f64();
                let name = format!("{side}-{run}");
                runner.time(&format!("sbatch --output=/dev/null first.sh {name}"))?;
                let path: PathBuf = directory.join(format!("first.{name}"));
                let text = wait_for(&path)?;
                times.push((text.trim().parse::<f64>()? - start) * 1000.0);
            }
        }
        for times in &mut all {
            medians.push(median(times));
        }
        let what = "submission to first line, jailed - direct";
        self.row(what, 25.0 + 8.0, medians[0] - medians[1], " ms");
        Ok(())
    }

    /// A hundred at once.
    fn crowd(&mut self, sides: &mut Sides) -> anyhow::Result<()> {
        let line = "pids=(); for i in {1..100}; do squeue & pids+=($!); done; bad=0; \
                    for pid in ${pids[@]}; do wait $pid || bad=1; done; [ $bad = 0 ]";
        let start = Instant::now();
        let failed = f64::from(u8::from(sides.inside.time(line).is_err()));
        let taken = start.elapsed().as_secs_f64() * 1000.0;
        self.row("100 squeue at once: failures", 0.0, failed, "");
        println!(
            "{:<44} {:>10} {:>10}",
            "100 squeue at once",
            "",
            format!("{taken:.0} ms")
        );
        Ok(())
    }

    /// The chaperon of a session that asked once and is idle. Its memory maps are closed to its own user, so that what processes share
    /// is told from what each has alone by `/proc/PID/status` (proc_pid_status(5)).
    fn idle(&mut self) -> anyhow::Result<()> {
        let mut jail = Command::new(&self.binary);
        let mut session = Runner::new(jail.arg("-q"))?;
        session.time("squeue")?;
        let pids = chaperons(session.child.id())?;
        let pid = *pids.first().context("there is no chaperon")?;
        let read = || std::fs::read_to_string(format!("/proc/{pid}/status"));
        let before = read()?;
        std::thread::sleep(Duration::from_secs(2));
        let after = read()?;
        let switches = |text: &str| {
            field(text, "voluntary_ctxt_switches:") + field(text, "nonvoluntary_ctxt_switches:")
        };
        let resident = field(&after, "VmRSS:") as f64 / 1024.0;
        let own = field(&after, "RssAnon:") as f64 / 1024.0;
        let shared = field(&after, "RssFile:") as f64 / 1024.0;
        self.row("memory of the idle chaperon (RSS)", 3.0, resident, " MB");
        let woken = switches(&after).saturating_sub(switches(&before)) as f64;
        self.row("wake-ups of the idle chaperon in 2 s", 0.0, woken, "");
        let what = "200 chaperons (own memory, shared once)";
        self.row(what, 60.0, 200.0 * own + shared, " MB");
        session.end()?;
        self.used_slurm()
    }

    /// Launcher and chaperon of a session that asked and submitted; its shims have ended. What is mapped from files is shared by
    /// all sessions of a machine, and noted beside.
    fn used_slurm(&mut self) -> anyhow::Result<()> {
        let mut jail = Command::new(&self.binary);
        let mut session = Runner::new(jail.arg("-q"))?;
        session.time("squeue")?;
        session.time("sbatch --hold --output=/dev/null --wrap=true")?;
        std::thread::sleep(Duration::from_secs(1));
        let launcher = session.child.id();
        let (mut own, mut shared) = (0.0, 0.0);
        for pid in chaperons(launcher)?.into_iter().chain([launcher]) {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
            own += field(&status, "RssAnon:") as f64 / 1024.0;
            shared += field(&status, "RssFile:") as f64 / 1024.0;
        }
        self.row("a session that used Slurm: own memory", 1.5, own, " MB");
        self.note(
            "– mapped from files, shared by all sessions",
            &format!("{shared:.2} MB"),
        );
        session.time("scancel --me --quiet")?;
        session.end()
    }
}

pub(crate) fn wait_for(path: &std::path::Path) -> anyhow::Result<String> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(30) {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return Ok(text),
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
    }
    anyhow::bail!("`{}` does not appear", path.display())
}

/// The chaperons of a launcher.
fn chaperons(launcher: u32) -> anyhow::Result<Vec<u32>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        // The kernel keeps 15 characters of a name.
        if status.contains("Name:\tagent-sandbox-c\n")
            && field(&status, "PPid:") == u64::from(launcher)
        {
            all.push(pid);
        }
    }
    Ok(all)
}
