//! The outside half: a throw-away home with planted secrets, a project, and runs of the launcher
//! in it, bounded in time, whose output never holds a secret.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

pub(crate) use agent_sandbox_support::not_checked;
use agent_sandbox_support::process::{Drained, drain};
pub(crate) use agent_sandbox_support::waiting::wait_for;
use tempfile::TempDir;

use crate::probe;

/// The launcher's own failures.
pub(crate) const REFUSED: i32 = 125;

/// Credentials that every home here has, by their place in it.
pub(crate) const CREDENTIALS: &[&str] = &[
    ".ssh/id_rsa",
    ".ssh/config",
    ".aws/credentials",
    ".netrc",
    ".git-credentials",
    ".config/gh/hosts.yml",
    ".config/gcloud/credentials.db",
    ".kube/config",
    ".docker/config.json",
    ".gnupg/private-keys-v1.d/key",
    ".bash_history",
    ".python_history",
    ".pgpass",
    ".npmrc",
    ".cache/huggingface/token",
    ".local/share/keyrings/login.keyring",
    ".mozilla/firefox/logins.json",
    ".Xauthority",
    ".claude.json",
];

/// A home, a project and secrets of one test.
pub(crate) struct World {
    base: TempDir,
    /// What every secret holds; unique.
    pub(crate) marker: String,
}

impl World {
    /// A home in which every credential is planted.
    pub(crate) fn new() -> Self {
        assert!(
            !nix::unistd::geteuid().is_root(),
            "run by tests/run as an ordinary user"
        );
        let home = std::env::var_os("HOME").expect("HOME");
        let base = tempfile::Builder::new()
            .prefix("confine.")
            .tempdir_in(home)
            .expect("a directory in the tester's home");
        let mut random = [0u8; 12];
        fs::File::open("/dev/urandom")
            .and_then(|mut file| file.read_exact(&mut random))
            .expect("random bytes");
        let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let world = Self {
            base,
            marker: format!("MARKER{digits}"),
        };
        fs::create_dir(world.home("")).expect("a home");
        fs::set_permissions(world.home(""), fs::Permissions::from_mode(0o700)).expect("its mode");
        for name in CREDENTIALS {
            world.put(&world.home(name), &format!("secret {}\n", world.marker));
        }
        world.put(
            &world.home(".gitconfig"),
            "[user]\n\tname = A\n\temail = a@b\n",
        );
        world.put(&world.home(".profile"), "# the user's own\n");
        world.put(&world.home("notes/today.txt"), "harmless\n");
        world.put(&world.project("README"), "a project\n");
        world
    }

    /// A place beside the home.
    pub(crate) fn base(&self, name: &str) -> PathBuf {
        join(&self.base.path().canonicalize().expect("the base"), name)
    }

    /// A place in the home.
    pub(crate) fn home(&self, name: &str) -> PathBuf {
        join(&self.base("home"), name)
    }

    /// A place in the directory above the project.
    pub(crate) fn outer(&self, name: &str) -> PathBuf {
        join(&self.home("work"), name)
    }

    /// A place in the project.
    pub(crate) fn project(&self, name: &str) -> PathBuf {
        join(&self.home("work/project"), name)
    }

    /// Writes a file, with the directories above it.
    pub(crate) fn put(&self, at: &Path, text: &str) {
        fs::create_dir_all(at.parent().expect("a parent")).expect("directories");
        fs::write(at, text).unwrap_or_else(|error| panic!("{}: {error}", at.display()));
    }

    /// Writes a file with the marker.
    pub(crate) fn secret(&self, at: &Path) {
        self.put(at, &format!("secret {}\n", self.marker));
    }

    /// The paths of the planted credentials.
    pub(crate) fn credentials(&self) -> Vec<PathBuf> {
        CREDENTIALS.iter().map(|name| self.home(name)).collect()
    }

    /// A launch in the project.
    pub(crate) fn jail<const N: usize>(&self, options: [&str; N]) -> Run<'_> {
        let mut command = Command::new(launcher());
        command.args(crate::backend::options());
        command.arg("-q").arg("--read").arg(probe_path());
        command.args(options);
        Run::new(self, command, true)
    }

    /// The same with the banner.
    pub(crate) fn loud<const N: usize>(&self, options: [&str; N]) -> Run<'_> {
        let mut command = Command::new(launcher());
        command.args(crate::backend::options()).args(options);
        Run::new(self, command, true)
    }

    /// The same without a jail.
    pub(crate) fn outside(&self) -> Run<'_> {
        Run::new(self, Command::new("env"), false)
    }
}

fn join(base: &Path, name: &str) -> PathBuf {
    if name.is_empty() {
        base.to_path_buf()
    } else {
        base.join(name)
    }
}

/// The launcher under test.
pub(crate) fn launcher() -> PathBuf {
    std::env::var_os("AGENT_SANDBOX_BIN")
        .unwrap_or_else(|| env!("CARGO_BIN_EXE_agent-sandbox").into())
        .into()
}

/// This executable.
pub(crate) fn probe_path() -> PathBuf {
    let path = std::env::current_exe().expect("the own path");
    path.canonicalize().expect("its real path")
}

/// Landlock's ABI version; 0 where there is none.
pub(crate) fn landlock_abi() -> i64 {
    const VERSION: u64 = 1;
    probe::syscall(libc::SYS_landlock_create_ruleset, &[0, 0, VERSION])
}

/// A command that is being put together.
pub(crate) struct Run<'a> {
    world: &'a World,
    pub(crate) command: Command,
    jailed: bool,
    secrets_expected: bool,
}

impl<'a> Run<'a> {
    fn new(world: &'a World, mut command: Command, jailed: bool) -> Self {
        command
            .env_clear()
            .env("HOME", world.home(""))
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .current_dir(world.project(""))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        Self {
            world,
            command,
            jailed,
            secrets_expected: !jailed,
        }
    }

    /// One more option.
    pub(crate) fn option(mut self, option: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.arg(option).arg(value);
        self
    }

    /// One more variable.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Another current directory.
    pub(crate) fn cwd(mut self, directory: &Path) -> Self {
        self.command.current_dir(directory);
        self
    }

    /// Another standard input.
    pub(crate) fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.command.stdin(stdin);
        self
    }

    /// Starts a program.
    pub(crate) fn start<S: AsRef<OsStr>>(mut self, words: &[S]) -> Running<'a> {
        if self.jailed {
            self.command.arg("--");
        }
        self.command.args(words);
        let mut child = self.command.spawn().expect("a process");
        // A test may have given it streams of its own.
        let stdout = match child.stdout.take() {
            Some(pipe) => drain(pipe),
            None => drain(std::io::empty()),
        };
        let stderr = match child.stderr.take() {
            Some(pipe) => drain(pipe),
            None => drain(std::io::empty()),
        };
        Running {
            world: self.world,
            child,
            stdout,
            stderr,
            secrets_expected: self.secrets_expected,
        }
    }

    /// Runs a program to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(self, words: &[S]) -> Output {
        self.start(words).wait()
    }

    /// Starts an attack.
    pub(crate) fn start_attack<S: AsRef<OsStr>>(self, name: &str, words: &[S]) -> Running<'a> {
        let mut all: Vec<OsString> = vec![probe_path().into(), probe::WORD.into(), name.into()];
        all.extend(words.iter().map(|word| word.as_ref().to_owned()));
        self.start(&all)
    }

    /// Runs an attack to its end.
    pub(crate) fn attack<S: AsRef<OsStr>>(self, name: &str, words: &[S]) -> Report {
        self.start_attack(name, words).wait().report()
    }

    /// Carries operations out; one answer each.
    pub(crate) fn operations(self, operations: &[String]) -> Vec<String> {
        let report = self.attack("operations", operations);
        (0..operations.len())
            .map(|at| report.get(&at.to_string()).to_owned())
            .collect()
    }

    /// Carries one operation out.
    pub(crate) fn operation(self, operation: String) -> String {
        self.operations(&[operation]).remove(0)
    }
}

/// A command that runs.
pub(crate) struct Running<'a> {
    world: &'a World,
    pub(crate) child: Child,
    stdout: Drained,
    stderr: Drained,
    secrets_expected: bool,
}

impl Running<'_> {
    /// The launcher's pid.
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().try_into().expect("a pid")
    }

    /// Waits for the end; kills the process group where there is none in time.
    pub(crate) fn wait(mut self) -> Output {
        let status = wait_for("the end of the command", || {
            self.child.try_wait().expect("its status")
        });
        let status = status.unwrap_or_else(|why| {
            self.kill_group();
            let _ = self.child.wait();
            panic!("{why}")
        });
        let text = |pipe: &Drained| String::from_utf8_lossy(&pipe.all()).into_owned();
        let output = Output {
            status,
            stdout: text(&self.stdout),
            stderr: text(&self.stderr),
        };
        if !self.secrets_expected {
            let marker = &self.world.marker;
            assert!(
                !output.stdout.contains(marker) && !output.stderr.contains(marker),
                "a secret came out of the jail: {output:?}"
            );
        }
        output
    }

    fn kill_group(&self) {
        // SAFETY: the group was made for this command.
        unsafe { libc::kill(-self.pid(), libc::SIGKILL) };
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // A test that failed half-way leaves nothing running.
        if let Ok(None) = self.child.try_wait() {
            self.kill_group();
            let _ = self.child.wait();
        }
    }
}

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    /// Its exit code.
    pub(crate) fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| panic!("killed by signal {:?}: {self:?}", self.status.signal()))
    }

    /// The launcher refused; its words hold `reason`.
    #[track_caller]
    pub(crate) fn refused(&self, reason: &str) {
        assert_eq!(self.code(), REFUSED, "{self:?}");
        assert!(self.stderr.contains(reason), "not for `{reason}`: {self:?}");
        assert_eq!(self.stdout, "", "something ran: {self:?}");
    }

    /// The report of an attack.
    #[track_caller]
    pub(crate) fn report(&self) -> Report {
        assert_eq!(self.code(), 0, "the attack itself failed: {self:?}");
        let mut lines: Vec<&str> = self.stdout.lines().collect();
        assert_eq!(lines.pop(), Some(probe::END), "cut off: {self:?}");
        let facts = lines.into_iter().filter_map(|line| line.split_once('='));
        Report(
            facts
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
        )
    }
}

/// Facts that an attack told.
#[derive(Debug)]
pub(crate) struct Report(BTreeMap<String, String>);

impl Report {
    /// A fact that must have been told.
    #[track_caller]
    pub(crate) fn get(&self, key: &str) -> &str {
        self.0
            .get(key)
            .unwrap_or_else(|| panic!("nothing told about {key}: {self:?}"))
    }

    /// Every fact.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }
}
