//! A throw-away home with a project and planted credentials, and the command run in it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

pub(crate) use agent_sandbox_support::not_checked;
use agent_sandbox_support::process::drain;
pub(crate) use agent_sandbox_support::process::{code, wait};
pub(crate) use agent_sandbox_support::waiting::until;

use crate::transcript::like;

/// What every planted secret holds.
pub(crate) const CANARY: &str = "canary-3f9c1e";

pub(crate) fn binary() -> PathBuf {
    std::env::var_os("AGENT_SANDBOX_BIN")
        .map_or_else(|| env!("CARGO_BIN_EXE_agent-sandbox").into(), PathBuf::from)
}

/// The tree whose documents are tested.
pub(crate) fn root() -> PathBuf {
    std::env::var_os("AGENT_SANDBOX_ROOT")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

/// A program in a directory that every jail shows.
pub(crate) fn has(program: &str) -> bool {
    ["/usr/bin", "/bin", "/usr/local/bin"]
        .iter()
        .any(|directory| Path::new(directory).join(program).exists())
}

pub(crate) struct World {
    // Removed on drop.
    _root: tempfile::TempDir,
    /// Holds the home and whatever a test puts beside it.
    pub(crate) place: PathBuf,
    pub(crate) home: PathBuf,
    pub(crate) project: PathBuf,
}

impl World {
    #[track_caller]
    pub(crate) fn new() -> Self {
        assert!(
            !nix::unistd::Uid::effective().is_root(),
            "agent-sandbox refuses to run as root: run by tests/run as an ordinary user"
        );
        let root = tempfile::Builder::new()
            .prefix("agent-sandbox-cli.")
            .tempdir()
            .unwrap();
        let place = fs::canonicalize(root.path()).unwrap();
        let home = place.join("home");
        let world = Self {
            _root: root,
            project: home.join("project"),
            place,
            home,
        };
        world.write("home/.ssh/id_rsa", CANARY);
        world.write("home/.netrc", CANARY);
        world.write("home/.bash_history", CANARY);
        world.write("home/.gitconfig", "[user]\n\tname = Ada\n");
        world.write("home/project/main.c", "int main(void) { return 0; }\n");
        world
    }

    /// Writes a file, and the directories above it.
    pub(crate) fn write(&self, below: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.place.join(below);
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

    /// The user's policy.
    pub(crate) fn policy(&self, text: &str) -> PathBuf {
        self.write("home/.config/agent-sandbox/config.toml", text)
    }

    /// A call of agent-sandbox in the project.
    pub(crate) fn call<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Call<'_> {
        let mut words = vec![binary().into_os_string()];
        words.extend(arguments.into_iter().map(|word| word.as_ref().to_owned()));
        Call {
            world: self,
            words,
            cwd: self.project.clone(),
            variables: Vec::new(),
            input: Vec::new(),
        }
    }

    /// A call without the banner, which has its own tests.
    pub(crate) fn quiet<S: AsRef<OsStr>>(&self, command: impl IntoIterator<Item = S>) -> Call<'_> {
        let command = command.into_iter().map(|word| word.as_ref().to_owned());
        self.call(std::iter::once(OsString::from("-q")).chain(command))
    }

    /// A shell script in a jail.
    pub(crate) fn sh(&self, script: &str) -> Call<'_> {
        self.quiet(["sh", "-c", script])
    }

    /// The environment of somebody who is logged in.
    pub(crate) fn environment(&self) -> Vec<(OsString, OsString)> {
        let user = nix::unistd::User::from_uid(nix::unistd::getuid()).unwrap();
        let user = user.map_or_else(|| "nobody".to_owned(), |user| user.name);
        let home = self.home.clone().into_os_string();
        vec![
            ("HOME".into(), home),
            ("USER".into(), user.clone().into()),
            ("LOGNAME".into(), user.into()),
            ("SHELL".into(), "/bin/bash".into()),
            ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
            ("LANG".into(), "C.UTF-8".into()),
            ("TERM".into(), "xterm".into()),
            (
                "GITHUB_TOKEN".into(),
                format!("ghp_{CANARY}-and-more").into(),
            ),
        ]
    }
}

/// A call that is being put together.
pub(crate) struct Call<'a> {
    world: &'a World,
    words: Vec<OsString>,
    cwd: PathBuf,
    variables: Vec<(OsString, Option<OsString>)>,
    input: Vec<u8>,
}

impl Call<'_> {
    pub(crate) fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = cwd.into();
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.variables.push((name.into(), Some(value.into())));
        self
    }

    pub(crate) fn without_variable(mut self, name: &str) -> Self {
        self.variables.push((name.into(), None));
        self
    }

    pub(crate) fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = input.into();
        self
    }

    /// Started by these words, which get the call as their last arguments.
    pub(crate) fn by<S: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        let mut all: Vec<OsString> = words
            .into_iter()
            .map(|word| word.as_ref().to_owned())
            .collect();
        all.append(&mut self.words);
        self.words = all;
        self
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command
            .args(&self.words[1..])
            .current_dir(&self.cwd)
            .env_clear()
            .envs(self.world.environment());
        for (name, value) in &self.variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    /// Starts it with pipes.
    pub(crate) fn start(&self) -> Child {
        self.command()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {:?}: {error}", self.words))
    }

    #[track_caller]
    pub(crate) fn run(self) -> Output {
        let mut child = self.start();
        let mut stdin = child.stdin.take().unwrap();
        let input = self.input.clone();
        let feed = thread::spawn(move || {
            // Who does not read it all has seen enough.
            let _ = stdin.write_all(&input);
        });
        let stdout = drain(child.stdout.take().unwrap());
        let stderr = drain(child.stderr.take().unwrap());
        let status = wait(&mut child, &format!("{:?}", self.words));
        feed.join().unwrap();
        Output {
            code: code(status),
            stdout: stdout.all(),
            stderr: stderr.all(),
            place: self.world.place.clone(),
        }
    }
}

/// How a call ended and what it said.
#[derive(Clone)]
pub(crate) struct Output {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    place: PathBuf,
}

impl Output {
    /// Text with the throw-away directory left out.
    fn text(&self, bytes: &[u8]) -> String {
        let text = String::from_utf8_lossy(bytes);
        text.replace(&self.place.display().to_string(), "[PLACE]")
    }

    pub(crate) fn out(&self) -> String {
        self.text(&self.stdout)
    }

    pub(crate) fn err(&self) -> String {
        self.text(&self.stderr)
    }

    /// Compares all three; `[..]` stands for any text in a line, a line `...` for any lines.
    #[track_caller]
    pub(crate) fn expect(self, code: i32, stdout: &str, stderr: &str) -> Self {
        let fits = self.code == code && like(stdout, &self.out()) && like(stderr, &self.err());
        assert!(
            fits,
            "expected exit code {code}\n-- stdout:\n{stdout}\n-- stderr:\n{stderr}\n\ngot {self}"
        );
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!(self.code, 0, "{self}");
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self}"))
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "exit code {}\n-- stdout:\n{}\n-- stderr:\n{}",
            self.code,
            self.out(),
            self.err()
        )
    }
}
