//! A throw-away place with a home, a prefix, and what `make build` leaves behind.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

pub(crate) use agent_sandbox_support::not_checked;
pub(crate) use agent_sandbox_support::process::{code, wait};
pub(crate) use agent_sandbox_support::waiting::PATIENCE;

/// The search path of everything that is started.
pub(crate) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The programs, side by side.
fn programs() -> PathBuf {
    let binary = std::env::var_os("AGENT_SANDBOX_BIN")
        .map_or_else(|| env!("CARGO_BIN_EXE_agent-sandbox").into(), PathBuf::from);
    binary.parent().unwrap().to_owned()
}

/// The tree that is installed.
pub(crate) fn root() -> PathBuf {
    std::env::var_os("AGENT_SANDBOX_ROOT")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

/// Whether there is a program of this name; says so if not.
pub(crate) fn has(program: &str, what: &str) -> bool {
    let there = PATH
        .split(':')
        .any(|directory| Path::new(directory).join(program).exists());
    if !there {
        not_checked(what, &format!("{program} is not installed"));
    }
    there
}

/// The version that is installed.
pub(crate) fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// What `make build PROFILE=debug` leaves in the directory for builds: made once, from the programs that
/// are tested.
pub(crate) fn built() -> &'static Path {
    static BUILT: OnceLock<tempfile::TempDir> = OnceLock::new();
    let made = BUILT.get_or_init(|| {
        let directory = tempfile::Builder::new()
            .prefix("agent-sandbox-built.")
            .tempdir()
            .unwrap();
        let debug = directory.path().join("debug");
        fs::create_dir(&debug).unwrap();
        fs::write(debug.join(".site-dir"), "/etc/agent-sandbox\n").unwrap();
        let pages = std::env::var_os("AGENT_SANDBOX_TEST_PAGES")
            .map_or_else(|| programs().join("examples/pages"), PathBuf::from);
        let done = Command::new(&pages).arg(debug.join("pages")).status();
        let done = done.unwrap_or_else(|e| panic!("cannot run {}: {e}", pages.display()));
        assert!(done.success());
        for name in [
            "agent-sandbox-attest",
            "agent-sandbox-chaperon",
            "agent-sandbox-filter",
            "agent-sandbox-shim",
            "agent-sandbox-tracer",
            "agent-sandbox-trail",
            "agent-sandbox",
        ] {
            let (from, to) = (programs().join(name), debug.join(name));
            // Without what debuggers read, which is most of it: it is copied often.
            let stripped = Command::new("strip").arg("-o").args([&to, &from]).status();
            if !stripped.is_ok_and(|status| status.success()) {
                fs::copy(&from, &to)
                    .unwrap_or_else(|e| panic!("cannot copy {}: {e}", from.display()));
            }
        }
        directory
    });
    made.path()
}

/// A directory of its own for a test.
pub(crate) struct TestPrefix {
    // Removed on drop.
    _root: tempfile::TempDir,
    /// Everything is below it.
    pub(crate) path: PathBuf,
    pub(crate) home: PathBuf,
    pub(crate) prefix: PathBuf,
}

impl TestPrefix {
    pub(crate) fn new() -> Self {
        assert!(
            !nix::unistd::Uid::effective().is_root(),
            "agent-sandbox refuses to run as root: run by tests/run as an ordinary user"
        );
        let root = tempfile::Builder::new()
            .prefix("agent-sandbox-install.")
            .tempdir()
            .unwrap();
        let path = fs::canonicalize(root.path()).unwrap();
        let place = Self {
            _root: root,
            home: path.join("home"),
            prefix: path.join("prefix"),
            path,
        };
        fs::create_dir_all(place.home.join("project")).unwrap();
        fs::create_dir(&place.prefix).unwrap();
        place
    }

    /// With everything installed.
    pub(crate) fn installed() -> Self {
        let place = Self::new();
        place.make("install", &[]).ok();
        place
    }

    /// Writes a file, and the directories above it.
    pub(crate) fn write(&self, below: &str, content: &str) -> PathBuf {
        let path = self.path.join(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        path
    }

    pub(crate) fn program(&self, below: &str, script: &str) -> PathBuf {
        let path = self.write(below, script);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// A command with a small environment, in the home directory.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.home)
            .env_clear()
            .env("HOME", &self.home)
            .env("PATH", PATH)
            .env("LANG", "C.UTF-8")
            .env("TERM", "xterm")
            .env("SHELL", "/bin/bash")
            .env("USER", "agentsandbox-test");
        command
    }

    /// `make TARGET` in the tree, which is built: cargo must not be asked.
    pub(crate) fn make(&self, target: &str, variables: &[&str]) -> Done {
        Done::of(self.make_command(target, variables))
    }

    pub(crate) fn make_command(&self, target: &str, variables: &[&str]) -> Command {
        let mut make = self.command("make");
        make.current_dir(root())
            .args([
                "--no-print-directory",
                target,
                "CARGO=false",
                "PROFILE=debug",
            ])
            .arg(format!("CARGO_TARGET_DIR={}", built().display()))
            .arg(format!("PREFIX={}", self.prefix.display()))
            .args(variables);
        make
    }

    /// The installed launcher, in a project.
    pub(crate) fn launcher(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(self.prefix.join("bin/agent-sandbox"));
        command
            .args(arguments)
            .current_dir(self.home.join("project"));
        command
    }

    /// A script for a shell, with more variables.
    pub(crate) fn shell(&self, words: &[&str], script: &str) -> Done {
        let mut command = self.command(words[0]);
        command.args(&words[1..]).args(["-c", script]);
        command.env("PREFIX", &self.prefix);
        Done::of(command)
    }
}

/// How a command ended and what it said.
pub(crate) struct Done {
    pub(crate) words: String,
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    #[track_caller]
    pub(crate) fn of(mut command: Command) -> Self {
        let words = format!("{command:?}");
        let Output {
            status,
            stdout,
            stderr,
        } = command
            .output()
            .unwrap_or_else(|error| panic!("cannot start {words}: {error}"));
        Self {
            words,
            code: code(status),
            out: String::from_utf8_lossy(&stdout).into_owned(),
            err: String::from_utf8_lossy(&stderr).into_owned(),
        }
    }

    /// It succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self}");
        self
    }

    /// It failed, and said this.
    #[track_caller]
    pub(crate) fn fails(self, words: &str) -> Self {
        assert_ne!(self.code, 0, "{self}");
        assert!(self.err.contains(words), "`{words}` is not in {self}");
        self
    }

    /// Standard output holds this.
    #[track_caller]
    pub(crate) fn says(self, words: &str) -> Self {
        assert!(self.out.contains(words), "`{words}` is not in {self}");
        self
    }
}

impl std::fmt::Display for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            words,
            code,
            out,
            err,
        } = self;
        write!(
            f,
            "{words}\nexit code {code}\n-- stdout:\n{out}\n-- stderr:\n{err}"
        )
    }
}

/// What stands below a directory: of each entry its mode, and what is in it.
pub(crate) fn tree(directory: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    fn walk(directory: &Path, prefix: &str, found: &mut BTreeMap<String, (u32, Vec<u8>)>) {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            let meta = fs::symlink_metadata(&path).unwrap();
            let content = if meta.is_symlink() {
                fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes()
            } else if meta.is_file() {
                fs::read(&path).unwrap()
            } else {
                walk(&path, &format!("{name}/"), found);
                Vec::new()
            };
            found.insert(name, (meta.mode(), content));
        }
    }
    let mut found = BTreeMap::new();
    walk(directory, "", &mut found);
    found
}

/// Fails with the names that differ, and not with all that is in them.
#[track_caller]
pub(crate) fn same_trees(
    before: &BTreeMap<String, (u32, Vec<u8>)>,
    after: &BTreeMap<String, (u32, Vec<u8>)>,
) {
    let differing = |name: &&String| before.get(*name) != after.get(*name);
    let mut names: Vec<&String> = before
        .keys()
        .chain(after.keys())
        .filter(differing)
        .collect();
    names.sort();
    names.dedup();
    assert!(names.is_empty(), "these differ: {names:?}");
}
