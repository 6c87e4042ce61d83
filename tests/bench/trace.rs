//! What tracing costs: `tests/run --bench -- trace`, which root starts, for the tracer is root's. The same
//! loop runs with nothing attached, attached and not traced, and traced; in turn, and beside it with what
//! people use otherwise.

mod loops;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::Signal;
use nix::unistd::User;

use self::loops::{ITERATIONS, Looper, Loops, PATIENCE, Work, register};
pub(crate) use self::loops::{LOOP, work};
use crate::service::Service;
use crate::{Bench, field, median};

/// With this argument it measures tracing alone.
pub(crate) const ONLY_TRACE: &str = "trace";

/// Iterations where each takes long.
const FEW: u64 = 10_000;
/// Launches of each side.
const LAUNCHES: usize = 40;
/// Events a second that are asked of all processors together, and for how long.
const EVENTS_A_SECOND: u64 = 1_150_000;
const SECONDS: u64 = 4;
/// Where a site's policy stands.
const SITE: &str = "/etc/agent-sandbox";
/// Binds a directory over [`SITE`], for one launch.
const WITH_SITE: &str = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";

/// All of it.
pub(crate) fn main() -> ExitCode {
    Bench::as_root(Bench::trace)
}

impl Bench {
    fn trace(&mut self) -> anyhow::Result<()> {
        anyhow::ensure!(
            nix::unistd::Uid::effective().is_root(),
            "the tracer is root's: `make bench` started by root, or with sudo"
        );
        let mut service = Service::places("");
        let loops = Loops::measure(&mut service)?;
        self.loops(&loops, &service);
        self.rivals(loops.open[0])?;
        self.load(&service)?;
        self.launch_traced(&service)
    }

    pub(crate) fn note(&self, what: &str, figure: &str) {
        println!("{what:<44} {:>10} {figure:>10}", "");
    }

    fn loops(&mut self, loops: &Loops, service: &Service) {
        let object = service.status().object;
        self.note(
            "open + close, nothing attached",
            &format!("{:.0} ns", loops.open[0]),
        );
        // What each object may cost a process that has nothing to do with it.
        let tax = match object.as_str() {
            "trampolines" => 1.10,
            _ => 1.3,
        };
        let what = format!("{object}: untraced / nothing attached");
        self.row(&what, tax, loops.open[1] / loops.open[0], " ×");
        let what = format!("{object}: traced / nothing attached");
        self.row(&what, 3.0, loops.open[2] / loops.open[0], " ×");
        let [before, after] = loops.getppid;
        if object == "trampolines" {
            self.row(
                "getppid, untraced / nothing attached",
                1.02,
                after / before,
                " ×",
            );
        } else {
            // Each system call passes the two programs of this object.
            let figures = format!("{before:.0} -> {after:.0} ns");
            self.note("getppid, nothing attached -> untraced", &figures);
        }
    }

    /// The same work by other programs.
    fn rivals(&mut self, alone: f64) -> anyhow::Result<()> {
        let own = std::env::current_exe()?;
        let output = tempfile::NamedTempFile::new()?;
        let file = output.path().to_str().context("a path that is no text")?;
        let strace = [
            ("strace -f --seccomp-bpf / nothing", &["--seccomp-bpf"][..]),
            ("strace -f / nothing", &[]),
        ];
        for (what, options) in strace {
            let mut command = Command::new("strace");
            command.args(["-f", "-o", file]).args(options);
            command.args(["-e", "trace=openat,execve,connect"]);
            command
                .arg(&own)
                .args([LOOP, "open", &FEW.to_string(), "now"]);
            match command.output() {
                Ok(said) if said.status.success() => {
                    let taken: f64 = String::from_utf8(said.stdout)?.trim().parse()?;
                    self.note(what, &format!("{:.1} ×", taken / alone));
                }
                _ => println!("not checked: {what}: strace is not here, or may not trace"),
            }
        }
        match bpftrace(file) {
            Ok([untraced, traced]) => {
                self.note(
                    "bpftrace, untraced / nothing",
                    &format!("{:.2} ×", untraced / alone),
                );
                self.note(
                    "bpftrace, traced / nothing",
                    &format!("{:.1} ×", traced / alone),
                );
            }
            Err(error) => println!("not checked: bpftrace beside it: {error:#}"),
        }
        Ok(())
    }

    /// As many events as they come from all processors.
    fn load(&mut self, service: &Service) -> anyhow::Result<()> {
        let status = fs::read_to_string(format!("/proc/{}/status", service.pid()))?;
        let resident = |status: &str| field(status, "VmRSS:") as f64 / 1024.0;
        self.row(
            "memory of the tracer after it has loaded (RSS)",
            20.0,
            resident(&status),
            " MB",
        );
        let processors = std::thread::available_parallelism()?.get() as u64;
        let pace = EVENTS_A_SECOND / processors;
        let mut loopers = Vec::new();
        for _ in 0..processors {
            loopers.push(Looper::new(Work::Listen(pace), pace * SECONDS)?);
        }
        let pids: Vec<u32> = loopers.iter().map(|looper| looper.child.id()).collect();
        let connections = register(service, &pids)?;
        let before = service.status();
        let start = Instant::now();
        for looper in &mut loopers {
            looper.go()?;
        }
        for looper in loopers {
            looper.end()?;
        }
        let taken = start.elapsed().as_secs_f64();
        // What the last loops left in the buffer.
        let deadline = Instant::now() + PATIENCE;
        let asked = processors * pace * SECONDS;
        let mut after = service.status();
        while after.events - before.events + after.lost - before.lost < asked {
            anyhow::ensure!(
                Instant::now() < deadline,
                "events are missing: {before:?} {after:?}"
            );
            std::thread::sleep(Duration::from_millis(10));
            after = service.status();
        }
        drop(connections);
        let events = (after.events - before.events) as f64 / taken / 1e6;
        self.row_at_least("events, million a second", 1.0, events, "");
        self.row(
            "events lost of these",
            0.0,
            (after.lost - before.lost) as f64,
            "",
        );
        let status = fs::read_to_string(format!("/proc/{}/status", service.pid()))?;
        self.row(
            "memory of the tracer after that (RSS)",
            20.0,
            resident(&status),
            " MB",
        );
        Ok(())
    }

    /// `agent-sandbox -q true`, traced and not.
    fn launch_traced(&mut self, service: &Service) -> anyhow::Result<()> {
        let name = std::env::var("AGENT_SANDBOX_TEST_USER").unwrap_or_default();
        let Some(user) = User::from_name(&name)? else {
            println!(
                "not checked: a launch with the tracer: no ordinary user (tests/run names one)"
            );
            return Ok(());
        };
        let project = tempfile::Builder::new()
            .prefix("bench")
            .tempdir_in(&user.dir)?;
        let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
        std::os::unix::fs::chown(project.path(), Some(uid), Some(gid))?;
        // Where the tracer is, is the site's to say.
        let site = tempfile::tempdir()?;
        fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755))?;
        let policy = format!("[trace]\nsocket = {:?}\n", service.socket());
        fs::write(site.path().join("defaults.toml"), policy)?;
        if !Path::new(SITE).is_dir() {
            println!(
                "not checked: a launch with the tracer: there is no {SITE} (tests/run makes it)"
            );
            return Ok(());
        }
        let launch = |mode: &str| -> anyhow::Result<f64> {
            let mut command = Command::new("/usr/bin/unshare");
            command
                .args(["--mount", "/bin/sh", "-c", WITH_SITE, "sh"])
                .arg(site.path())
                .args([SITE, "/usr/bin/setpriv"])
                .args([format!("--reuid={uid}"), format!("--regid={gid}")])
                .args(["--init-groups", "--inh-caps=-all", "--"])
                .arg(&self.binary)
                .args(["-q", "--set", &format!("trace.mode={mode}"), "true"])
                .env("HOME", &user.dir)
                .env("USER", &user.name)
                .current_dir(project.path())
                .process_group(0);
            crate::time(&mut command)
        };
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for run in 0..LAUNCHES + 3 {
            let (a, b) = (launch("required")?, launch("off")?);
            if run >= 3 {
                with.push(a);
                without.push(b);
            }
        }
        let (with, without) = (median(&mut with), median(&mut without));
        self.note(
            "agent-sandbox -q true, not traced",
            &format!("{without:.2} ms"),
        );
        self.row(
            "agent-sandbox -q true, traced - not traced",
            5.0,
            with - without,
            " ms",
        );
        Ok(())
    }
}

/// What bpftrace takes for a loop that it does not follow, and for one that it does: each open with its path
/// and its result, by process.
fn bpftrace(output: &str) -> anyhow::Result<[f64; 2]> {
    let follow = |work: Work, iterations: u64, others: bool| -> anyhow::Result<f64> {
        let mut looper = Looper::new(work, iterations)?;
        // Somebody else's: nobody has it.
        let pid = if others {
            u32::MAX >> 1
        } else {
            looper.child.id()
        };
        let script = format!(
            "BEGIN {{ @t[(uint64){pid}] = 1; printf(\"begun\\n\"); }}
             tracepoint:syscalls:sys_enter_openat /@t[pid]/ {{ @n[tid] = args->filename; }}
             tracepoint:syscalls:sys_exit_openat /@t[pid]/ {{
                 printf(\"%d %s %s %d\\n\", pid, comm, str(@n[tid]), args->ret); delete(@n[tid]);
             }}"
        );
        // In a mount namespace with a tracefs, which not every machine has mounted.
        let mount = "[ -e /sys/kernel/tracing/events ] || mount -t tracefs tracefs /sys/kernel/tracing; exec \"$@\"";
        let mut child = Command::new("/usr/bin/unshare")
            .args(["--mount", "/bin/sh", "-c", mount, "sh"])
            .args(["bpftrace", "-q", "-B", "line", "-o", output, "-e", &script])
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let deadline = Instant::now() + PATIENCE;
        while !fs::read(output)?.starts_with(b"begun") {
            if let Some(status) = child.try_wait()? {
                let mut said = String::new();
                let mut from = child.stderr.take().context("no errors")?;
                std::io::Read::read_to_string(&mut from, &mut said)?;
                anyhow::bail!(
                    "it ends with {status}: {}",
                    said.lines().last().unwrap_or_default()
                );
            }
            anyhow::ensure!(Instant::now() < deadline, "it does not begin");
            std::thread::sleep(Duration::from_millis(20));
        }
        // It attaches behind what it prints.
        std::thread::sleep(Duration::from_millis(500));
        looper.go()?;
        let taken = looper.end();
        let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id())?);
        let _ = nix::sys::signal::kill(pid, Signal::SIGINT);
        child.wait()?;
        fs::File::create(Path::new(output))?;
        taken
    };
    Ok([
        follow(Work::Open, ITERATIONS, true)?,
        follow(Work::Open, FEW * 10, false)?,
    ])
}
