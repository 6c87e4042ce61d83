//! A machine that qemu emulates: its files, the boot, and what the stages of its `init` said. The suites
//! `kernels` and `ebpf` share it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A machine that says nothing for so long hangs. How long all its stages take depends on what else runs beside it.
const SILENCE: Duration = Duration::from_secs(1500);
/// Between two looks at whether the machine is off.
const PAUSE: Duration = Duration::from_millis(50);
/// The probe's last line.
const THE_END: &str = "the end";
/// Two processors, so that races have a chance.
const PROCESSORS: &str = "2";

/// What a machine's clocks count.
#[allow(dead_code)] // Not every suite counts instructions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clocks {
    /// Time, on two processors.
    Time,
    /// Instructions, each as a nanosecond, on one processor (QEMU's `-icount`): figures that are the same on each run,
    /// whatever else the host does. Translated code has no caches and no misses, so they are no times.
    Instructions,
}

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n";
const GROUP: &str = "root:x:0:\ntty:x:5:\nuser:x:1000:\n";
const SWITCH: &str = "passwd: files\ngroup: files\nhosts: files\n";

/// Where `tests/kernels/fetch` has put kernels, qemu and busybox, or why it is not known.
pub(crate) fn fetched() -> Result<PathBuf, String> {
    const DIRECTORY: &str = "AGENT_SANDBOX_TEST_KERNELS";
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return Err(format!("{DIRECTORY} names nothing: tests/run sets it"));
    };
    Ok(directory.into())
}

/// Whether this run leaves out machines that differ little from others (`tests/run --short`).
pub(crate) fn short() -> bool {
    std::env::var_os("AGENT_SANDBOX_TEST_SHORT").is_some()
}

/// What one stage said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stage {
    pub(crate) lines: Vec<String>,
    pub(crate) status: i32,
}

impl Stage {
    /// All that it wrote.
    pub(crate) fn text(&self) -> String {
        self.lines.join("\n")
    }

    /// What the probe reported, in order: a name, and `ok` or how it failed.
    pub(crate) fn reports(&self) -> impl Iterator<Item = (&str, &str)> {
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        self.lines
            .iter()
            .filter(|line| *line != THE_END)
            .filter_map(|line| line.split_once(' '))
            .filter(move |(name, result)| !result.contains(' ') && name.bytes().all(is_name))
    }

    /// Whether the probe came to its end.
    pub(crate) fn complete(&self) -> bool {
        self.lines.last().is_some_and(|last| last == THE_END)
    }
}

/// What a machine said, by stage.
#[derive(Debug)]
pub(crate) struct Transcript {
    stages: BTreeMap<String, Stage>,
    /// Everything, for messages.
    all: String,
    pub(crate) took: Duration,
}

impl Transcript {
    fn parse(all: String, took: Duration) -> Self {
        let mut stages: BTreeMap<String, Stage> = BTreeMap::new();
        let mut open: Option<(String, Stage)> = None;
        for line in all.lines().map(|line| line.trim_end_matches('\r')) {
            if let Some(name) = line.strip_prefix("== ") {
                open = Some((name.to_owned(), Stage::default()));
            } else if let Some(status) = line.strip_prefix("-- ") {
                if let Some((name, mut stage)) = open.take() {
                    let code = status.split(' ').next().unwrap_or_default();
                    stage.status = code.parse().expect("an exit code");
                    stages.insert(name, stage);
                }
            } else if let (Some((_, stage)), Some(text)) = (&mut open, line.strip_prefix("  ")) {
                stage.lines.push(text.to_owned());
            }
        }
        Self { stages, all, took }
    }

    /// A stage, which has ended.
    pub(crate) fn stage(&self, name: &str) -> &Stage {
        let Some(stage) = self.stages.get(name) else {
            panic!("no stage `{name}` in:\n{}", self.all);
        };
        stage
    }
}

/// The complaint, unless the condition holds.
pub(crate) fn unless(holds: bool, complaint: impl FnOnce() -> String) -> Option<String> {
    (!holds).then(complaint)
}

/// The complaint that a stage has not ended as it should, or has not said something.
pub(crate) fn ended(said: &Transcript, name: &str, status: i32, words: &[&str]) -> Vec<String> {
    let stage = said.stage(name);
    let text = stage.text();
    let missing: Vec<&&str> = words.iter().filter(|word| !text.contains(**word)).collect();
    let good = stage.status == status && missing.is_empty();
    unless(good, || {
        let Stage { status: got, .. } = stage;
        format!("{name}: exit code {got}, wanted {status}; not said: {missing:?}; said:\n{text}")
    })
    .into_iter()
    .collect()
}

/// What a suite's machines hold beside busybox.
pub(crate) struct Contents<'a> {
    /// The script that is the first process.
    pub(crate) init: &'a str,
    /// The directory with the sources of the program `probe`, from the root of the tree.
    pub(crate) probe: &'a str,
    /// Programs, which come with their libraries: where they are, and where they come to be.
    pub(crate) programs: Vec<(PathBuf, String)>,
    /// Files as they are: where they are, and where they come to be.
    pub(crate) files: Vec<(PathBuf, String)>,
    /// So much memory has a machine, in MiB.
    pub(crate) memory: u32,
}

/// Everything that machines are booted with, made once.
pub(crate) struct Workshop {
    directory: tempfile::TempDir,
    fetched: PathBuf,
    memory: u32,
}

impl Workshop {
    /// Builds the probe and packs the file system.
    pub(crate) fn new(fetched: PathBuf, contents: &Contents<'_>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let workshop = Self {
            directory,
            fetched,
            memory: contents.memory,
        };
        let mut archive = Archive::default();
        for at in ["usr", "usr/bin", "usr/lib", "usr/libexec", "etc", "dev"] {
            archive.directory(at);
        }
        for at in ["bin", "lib", "lib64", "sbin"] {
            let (name, to) = match at {
                "lib64" => (at, "usr/lib"),
                "sbin" => (at, "usr/bin"),
                _ => (at, ["usr/bin", "usr/lib"][usize::from(at == "lib")]),
            };
            archive.link(name, to);
        }
        archive.file("init", 0o755, contents.init.as_bytes());
        archive.file("etc/passwd", 0o644, PASSWD.as_bytes());
        archive.file("etc/group", 0o644, GROUP.as_bytes());
        archive.file("etc/nsswitch.conf", 0o644, SWITCH.as_bytes());
        archive.file("etc/hosts", 0o644, b"127.0.0.1 localhost\n");
        archive.file(
            "usr/bin/busybox",
            0o755,
            &read(&workshop.fetched.join("busybox")),
        );
        archive.file(
            "usr/bin/probe",
            0o755,
            &read(&workshop.probe(contents.probe)),
        );
        let mut libraries = Vec::new();
        for (program, at) in &contents.programs {
            libraries.extend(libraries_of(program));
            archive.file(at, 0o755, &read(&workshop.stripped(program)));
        }
        for (file, at) in &contents.files {
            archive.file(at, 0o644, &read(file));
        }
        libraries.sort();
        libraries.dedup();
        for library in libraries {
            let name = library.file_name().expect("a name").to_string_lossy();
            archive.file(&format!("usr/lib/{name}"), 0o755, &read(&library));
        }
        fs::write(workshop.archive(), archive.end()).expect("the archive");
        workshop
    }

    fn archive(&self) -> PathBuf {
        self.directory.path().join("initramfs")
    }

    fn probe(&self, sources: &str) -> PathBuf {
        let sources = Path::new(&root()).join(sources);
        let made = self.directory.path().join("probe");
        let mut sources: Vec<PathBuf> = fs::read_dir(sources)
            .expect("the probe's sources")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
            .collect();
        sources.sort();
        run(Command::new("gcc")
            .args([
                "-std=gnu11",
                "-O1",
                "-static",
                "-no-pie",
                "-Wall",
                "-Wextra",
            ])
            .args(["-Werror", "-o"])
            .arg(&made)
            .args(sources));
        made
    }

    /// A copy without what a debugger wants: the machine keeps all of it in memory.
    fn stripped(&self, program: &Path) -> PathBuf {
        let made = self.directory.path().join("stripped");
        run(Command::new("strip").arg("-o").arg(&made).arg(program));
        made
    }

    /// Boots a kernel and waits until the machine is off. QEMU's emulation of several processors may break a kernel that
    /// rewrites its own instructions while it starts (`Oops: int3`); such a machine, in which nothing of ours has begun yet, is
    /// started again, and that is said.
    pub(crate) fn boot(
        &self,
        name: &str,
        kernel: &str,
        stages: &str,
        more: &str,
        clocks: Clocks,
    ) -> Transcript {
        for again in 0.. {
            match self.boot_once(name, kernel, stages, more, clocks) {
                Ok(transcript) => return transcript,
                Err(console) if again < 3 && console.contains("Oops: int3") => {
                    println!("{name}: the emulated kernel broke while it started; started again");
                }
                Err(console) => panic!("qemu ended, and nothing ran\nconsole:\n{console}"),
            }
        }
        unreachable!("it ends above");
    }

    /// As `boot`; what the console shows if nothing of ours ran.
    fn boot_once(
        &self,
        name: &str,
        kernel: &str,
        stages: &str,
        more: &str,
        clocks: Clocks,
    ) -> Result<Transcript, String> {
        let begin = Instant::now();
        let results = self.directory.path().join(format!("{name}.results"));
        let console = self.directory.path().join(format!("{name}.console"));
        let serial = |to: &Path| format!("file:{}", to.display());
        let processors: &[&str] = match clocks {
            Clocks::Time => &["-smp", PROCESSORS],
            Clocks::Instructions => &["-smp", "1", "-icount", "shift=0,sleep=off"],
        };
        let mut machine = Command::new(self.fetched.join("qemu"))
            .args(["-nodefaults", "-no-user-config", "-display", "none"])
            .args(["-monitor", "none", "-no-reboot", "-accel", "tcg"])
            .args(processors)
            .args(["-cpu", "max", "-m"])
            .arg(self.memory.to_string())
            .arg("-kernel")
            .arg(self.fetched.join(format!("linux-{kernel}")))
            .arg("-initrd")
            .arg(self.archive())
            .arg("-append")
            // An emulated timer is late where other work holds the processor: no reason to panic.
            .arg(format!(
                "console=ttyS0 quiet loglevel=4 panic=-1 no_timer_check stages={stages} {more}"
            ))
            .args(["-serial", &serial(&console), "-serial", &serial(&results)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("qemu");
        let said_so_far = || {
            let length = |path| fs::metadata(path).map_or(0, |file| file.len());
            length(&results) + length(&console)
        };
        let mut heard = (0, begin);
        let ended = loop {
            if let Some(status) = machine.try_wait().expect("qemu's end") {
                break Some(status);
            }
            let length = said_so_far();
            if length > heard.0 {
                heard = (length, Instant::now());
            }
            if heard.1.elapsed() > SILENCE {
                let _ = machine.kill();
                let _ = machine.wait();
                break None;
            }
            std::thread::sleep(PAUSE);
        };
        let text = |path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        let (said, console) = (text(&results), text(&console));
        match ended {
            Some(status) if status.success() && !said.is_empty() => {
                Ok(Transcript::parse(said, begin.elapsed()))
            }
            Some(status) if status.success() => Err(console),
            Some(status) => panic!("qemu: {status}\n{said}\nconsole:\n{console}"),
            None => panic!("{name} says nothing for {SILENCE:?}\n{said}\nconsole:\n{console}"),
        }
    }
}

/// The tree.
pub(crate) fn root() -> String {
    std::env::var("AGENT_SANDBOX_ROOT").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned())
}

/// The launcher under test.
pub(crate) fn launcher() -> PathBuf {
    std::env::var_os("AGENT_SANDBOX_BIN")
        .unwrap_or_else(|| env!("CARGO_BIN_EXE_agent-sandbox").into())
        .into()
}

/// A program that is installed beside the launcher.
pub(crate) fn beside_launcher(name: &str) -> PathBuf {
    launcher().with_file_name(name)
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("a command that is here");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

/// The libraries that a program is linked with, and what loads them; none for a static one.
fn libraries_of(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().expect("ldd");
    String::from_utf8_lossy(&output.stdout)
        .split_whitespace()
        .filter(|word| word.starts_with('/') && !word.ends_with(':'))
        .map(PathBuf::from)
        .collect()
}

/// A file system as the kernel unpacks it (`Documentation/driver-api/early-userspace/
/// buffer-format.rst`): a cpio archive of the format `newc`, in which everything is root's.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn directory(&mut self, at: &str) {
        self.entry(at, 0o040_755, &[]);
    }

    fn link(&mut self, at: &str, to: &str) {
        self.entry(at, 0o120_777, to.as_bytes());
    }

    fn file(&mut self, at: &str, mode: u32, content: &[u8]) {
        self.entry(at, 0o100_000 | mode, content);
    }

    fn end(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, at: &str, mode: u32, content: &[u8]) {
        const ALIGNMENT: usize = 4;
        self.entries += 1;
        let size = u32::try_from(content.len()).expect("a file below 4 GiB");
        let name = u32::try_from(at.len() + 1).expect("a short name");
        // Inode, mode, owner, group, links, time, size, two device numbers of two, name, checksum.
        let fields = [self.entries, mode, 0, 0, 1, 1, size, 0, 0, 0, 0, name, 0];
        let mut head = String::from("070701");
        for field in fields {
            write!(head, "{field:08x}").expect("text grows");
        }
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(at.as_bytes());
        self.bytes.push(0);
        self.bytes
            .resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
        self.bytes.extend_from_slice(content);
        self.bytes
            .resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
    }
}
