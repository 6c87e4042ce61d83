//! The promises about jails that Landlock and the mediator make: what a launch costs, what a call
//! costs that is carried out by the mediator, and that all other calls cost what they cost outside.
//!
//! The same program measures its own calls on both sides, in turn. Of each call the median counts, and
//! of the medians of many runs the median: the ratio is of two figures from the same minutes.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Context;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

use crate::mpi::note;
use crate::{Bench, RUNS, WARM_UP, median, time};

/// With this argument the benchmark measures its own calls, in the current directory.
pub(crate) const CALLS: &str = "--calls";
/// Runs of each side that measure calls.
const SIDES: usize = 9;
/// Times of which a call's median is taken.
const TIMES: usize = 400;
/// Calls within one time, where one takes less than a clock can tell.
const BATCH: u32 = 500;
/// Landlock, with the built-in policy.
const LANDLOCK: &[&str] = &["-q", "--backend", "landlock"];
/// A directory of the project in which nothing is closed.
const DIRECT: &str = "src";

/// Calls that are left alone, which must cost what they cost outside.
const ALONE: &[&str] = &["getppid", "stat", "read"];
/// Calls that Landlock or the mediator judges, for which nothing is promised.
const JUDGED: &[(&str, &str)] = &[
    ("open", "open and close for reading"),
    ("write-guarded", "open for writing, project with .git"),
    ("write-direct", "open for writing, below src"),
    ("chmod", "chmod"),
    ("mkdir", "mkdir and rmdir, project with .git"),
];

impl Bench {
    /// Everything about Landlock's jails; said where this kernel has none.
    pub(crate) fn landlock(&mut self) -> anyhow::Result<()> {
        let tried = self.jail(&["true"]).output()?;
        if !tried.status.success() {
            let said = String::from_utf8_lossy(&tried.stderr);
            let why = said.lines().find(|line| line.starts_with("error:"));
            println!("not checked: Landlock: {}", why.unwrap_or("no launch"));
            return Ok(());
        }
        self.launches()?;
        self.calls()
    }

    fn jail(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(LANDLOCK);
        if let Ok(own) = std::env::current_exe() {
            command.arg("--read").arg(own);
        }
        command.arg("--").args(words);
        command
    }

    fn launches(&mut self) -> anyhow::Result<()> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for run in 0..WARM_UP + RUNS {
            let a = time(self.jail(&["true"]).stderr(Stdio::null()))?;
            let b = time(Command::new(&self.binary).args(["-q", "--backend", "bwrap", "true"]))?;
            if run >= WARM_UP {
                ours.push(a);
                theirs.push(b);
            }
        }
        let (ours, theirs) = (median(&mut ours), median(&mut theirs));
        note("launch with Landlock, median", &format!("{ours:.2} ms"));
        note("launch with bubblewrap, median", &format!("{theirs:.2} ms"));
        self.row("launch, Landlock / bubblewrap", 2.0, ours / theirs, " ×");
        Ok(())
    }

    fn calls(&mut self) -> anyhow::Result<()> {
        let project = self.project.path().join("calls");
        fs::create_dir_all(project.join(DIRECT))?;
        let made = Command::new("git")
            .args(["init", "-q"])
            .current_dir(&project)
            .status()?;
        anyhow::ensure!(made.success(), "git init: {made}");
        // Something of the project's that is closed, so that its directories are guarded.
        fs::create_dir_all(project.join(".git/hooks"))?;
        let own = std::env::current_exe()?;
        let own = own.to_str().context("a path that is no text")?.to_owned();
        let mut all: [BTreeMap<String, Vec<f64>>; 2] = Default::default();
        for _ in 0..SIDES {
            for (side, figures) in all.iter_mut().enumerate() {
                let mut command = match side {
                    0 => self.jail(&[&own, CALLS]),
                    _ => {
                        let mut plain = Command::new(&own);
                        plain.arg(CALLS);
                        plain
                    }
                };
                let output = command.current_dir(&project).output()?;
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                anyhow::ensure!(output.status.success(), "cannot measure calls: {said}");
                for line in String::from_utf8(output.stdout)?.lines() {
                    let (name, figure) = line.split_once(' ').context("no figure")?;
                    let each = figures.entry(name.to_owned()).or_default();
                    each.push(figure.parse()?);
                }
            }
        }
        let [mut inside, mut outside] = all;
        let mut both = |name: &str| -> anyhow::Result<(f64, f64)> {
            let one = |side: &mut BTreeMap<String, Vec<f64>>| side.get_mut(name).map(|f| median(f));
            let figures = one(&mut inside).zip(one(&mut outside));
            figures.with_context(|| format!("no figure of {name}"))
        };
        let mut rows = Vec::new();
        for name in ALONE {
            let (jailed, plain) = both(name)?;
            rows.push((format!("{name}, jailed / direct"), jailed / plain));
        }
        let (connect, plain) = both("connect")?;
        let mut notes = vec![("unix connect, direct, p50".to_owned(), plain)];
        for (name, what) in JUDGED {
            let (jailed, plain) = both(name)?;
            notes.push((format!("{what}, jailed, p50"), jailed));
            notes.push((format!("{what}, direct, p50"), plain));
        }
        for (what, figure) in rows {
            self.row(&what, 1.15, figure, " ×");
        }
        self.row("unix connect, mediated, p50", 30.0, connect / 1e3, " µs");
        for (what, nanoseconds) in notes {
            note(&what, &format!("{:.2} µs", nanoseconds / 1e3));
        }
        Ok(())
    }
}

/// Measures calls in the current directory, and prints for each its name and its median in
/// nanoseconds.
pub(crate) fn calls() -> anyhow::Result<()> {
    let here = std::env::current_dir()?;
    let file = here.join(DIRECT).join("file");
    fs::write(&file, "some text\n")?;
    batches("getppid", || {
        std::hint::black_box(std::os::unix::process::parent_id());
        Ok(())
    })?;
    batches("stat", || Ok(fs::metadata(&file).map(drop)?))?;
    let open = File::open(&file)?;
    let mut text = [0u8; 8];
    batches("read", || Ok(open.read_at(&mut text, 0).map(drop)?))?;
    each("open", || Ok(File::open(&file).map(drop)?))?;
    let guarded = here.join("file");
    for (name, path) in [("write-guarded", &guarded), ("write-direct", &file)] {
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        each(name, || Ok(options.open(path).map(drop)?))?;
    }
    let modes = [0o600, 0o644].map(fs::Permissions::from_mode);
    let mut at = 0;
    each("chmod", || {
        at = 1 - at;
        Ok(fs::set_permissions(&file, modes[at].clone())?)
    })?;
    let directory = here.join("new");
    each("mkdir", || {
        fs::create_dir(&directory)?;
        Ok(fs::remove_dir(&directory)?)
    })?;
    connects(&here)
}

/// A name below the project, which a socket's address has room for.
fn connects(here: &Path) -> anyhow::Result<()> {
    let path = PathBuf::from("s");
    let _ = fs::remove_file(here.join(&path));
    let listener = UnixListener::bind(&path)?;
    let accepting = std::thread::spawn(move || {
        // Ends with the process.
        for stream in listener.incoming() {
            drop(stream);
        }
    });
    let address = UnixAddr::new(&path)?;
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let stream = SockType::Stream;
        let flags = SockFlag::SOCK_CLOEXEC;
        let end = socket(AddressFamily::Unix, stream, flags, None)?;
        let start = Instant::now();
        connect(end.as_raw_fd(), &address)?;
        times.push(start.elapsed().as_secs_f64() * 1e9);
    }
    println!("connect {}", median(&mut times));
    drop(accepting);
    fs::remove_file(&path)?;
    Ok(())
}

/// A call that takes as long as a look at the clock, or less.
fn batches(name: &str, mut call: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let start = Instant::now();
        for _ in 0..BATCH {
            call()?;
        }
        times.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH));
    }
    println!("{name} {}", median(&mut times));
    Ok(())
}

fn each(name: &str, mut call: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let start = Instant::now();
        call()?;
        times.push(start.elapsed().as_secs_f64() * 1e9);
    }
    println!("{name} {}", median(&mut times));
    Ok(())
}
