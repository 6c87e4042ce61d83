//! A site with a policy, a user with a home, and launches in it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::unistd::{Group, User};

/// Where the launcher looks.
pub(crate) const SITE: &str = "/etc/agent-sandbox";
/// What every planted secret holds.
pub(crate) const CANARY: &str = "canary-51d07a";
/// The ordinary user; tests/run makes it.
pub(crate) const USER: &str = "agentsandbox-test";
/// No launch takes longer, in seconds, with room for a machine that is busy with other things.
const PATIENCE: &str = "120";

/// In a mount namespace of its own: pairs of what is bound over what, a host name, then the call.
const STAGE: &str = r#"
while [ "$1" != -- ]; do
    mount --bind "$1" "$2" || exit 90
    shift 2
done
[ -z "$2" ] || hostname "$2" || exit 91
cd "$3" || exit 92
shift 3
exec "$@"
"#;

/// Root's site and a user's home, gone when it is dropped.
pub(crate) struct World {
    /// Root's; others may look in.
    base: tempfile::TempDir,
    user: User,
    launcher: PathBuf,
}

impl World {
    /// An empty site, and a home with a project and credentials.
    #[track_caller]
    pub(crate) fn new() -> Self {
        assert!(
            nix::unistd::Uid::effective().is_root() && Path::new(SITE).is_dir(),
            "needs root and {SITE}: run by tests/run"
        );
        let user = User::from_name(USER).unwrap().expect(USER);
        let launcher = std::env::var_os("AGENT_SANDBOX_BIN")
            .map_or_else(|| env!("CARGO_BIN_EXE_agent-sandbox").into(), PathBuf::from);
        let base = tempfile::Builder::new()
            .prefix("agent-sandbox-site.")
            .tempdir_in("/var/tmp")
            .unwrap();
        let world = Self {
            base,
            user,
            launcher,
        };
        mode(world.base.path(), 0o755);
        fs::create_dir(world.site()).unwrap();
        mode(&world.site(), 0o755);
        fs::create_dir(world.home()).unwrap();
        world.own(&world.home(), 0o700);
        world.write(".ssh/id_rsa", CANARY);
        world.write(".netrc", CANARY);
        world.write("project/main.c", "int main(void) { return 0; }\n");
        world
    }

    /// The directory that launches see as [`SITE`].
    pub(crate) fn site(&self) -> PathBuf {
        self.base.path().join("site")
    }

    /// The directory that launches see as the user's home, [`World::seen_home`].
    pub(crate) fn home(&self) -> PathBuf {
        self.base.path().join("home")
    }

    /// The home directory as the launcher knows it, which is what the user database names.
    pub(crate) fn seen_home(&self) -> &Path {
        &self.user.dir
    }

    /// A directory beside site and home. Launches see it under this path.
    pub(crate) fn base(&self) -> &Path {
        self.base.path()
    }

    /// Root's file in the site's directory.
    pub(crate) fn site_file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.site().join(name);
        let directory = path.parent().unwrap();
        if !directory.exists() {
            fs::create_dir(directory).unwrap();
            mode(directory, 0o755);
        }
        fs::write(&path, text).unwrap();
        mode(&path, 0o644);
        path
    }

    /// What users may only narrow.
    pub(crate) fn enforced(&self, text: &str) {
        self.site_file("enforced.toml", text);
    }

    /// What users may override.
    pub(crate) fn defaults(&self, text: &str) {
        self.site_file("defaults.toml", text);
    }

    /// The user's policy.
    pub(crate) fn user_config(&self, text: &str) {
        self.write(".config/agent-sandbox/config.toml", text);
    }

    /// A profile of the user's.
    pub(crate) fn profile(&self, name: &str, text: &str) {
        self.write(&format!(".config/agent-sandbox/profiles/{name}.toml"), text);
    }

    /// Writes a file of the user's below the home, and the directories above it.
    pub(crate) fn write(&self, below: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let mut directory = self.home();
        let parts = Path::new(below).parent().into_iter().flatten();
        for part in parts {
            directory.push(part);
            if !directory.exists() {
                fs::create_dir(&directory).unwrap();
                self.own(&directory, 0o755);
            }
        }
        let path = self.home().join(below);
        fs::write(&path, content).unwrap();
        self.own(&path, 0o644);
        path
    }

    /// What a file below the home holds.
    #[track_caller]
    pub(crate) fn read(&self, below: &str) -> String {
        let path = self.home().join(below);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Gives a file or directory to the user.
    pub(crate) fn own(&self, path: &Path, bits: u32) {
        let (uid, gid) = (self.user.uid.as_raw(), self.user.gid.as_raw());
        chown(path, Some(uid), Some(gid)).unwrap();
        mode(path, bits);
    }

    /// The user's entry in the user database.
    pub(crate) fn user(&self) -> &User {
        &self.user
    }

    /// The program that is tested.
    pub(crate) fn launcher(&self) -> &Path {
        &self.launcher
    }

    /// A call of agent-sandbox in the project.
    pub(crate) fn call<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Call<'_> {
        let mut words = vec![self.launcher.clone().into_os_string()];
        words.extend(arguments.iter().map(|word| word.as_ref().to_owned()));
        self.words(words)
    }

    /// A shell script in a jail.
    pub(crate) fn sh(&self, script: &str) -> Call<'_> {
        self.call(&["-q", "--", "sh", "-c", script])
    }

    /// A call of agent-sandbox in the project, run.
    #[track_caller]
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Output {
        self.call(arguments).run()
    }

    /// Another program of the user's in the same world.
    pub(crate) fn outside(&self, script: &str) -> Call<'_> {
        let words = ["sh", "-c", script].map(OsString::from).to_vec();
        let launcher = self.launcher.as_os_str().to_owned();
        self.words(words).variable("LAUNCHER", launcher)
    }

    fn words(&self, words: Vec<OsString>) -> Call<'_> {
        Call {
            world: self,
            words,
            cwd: self.seen_home().join("project"),
            variables: Vec::new(),
            binds: Vec::new(),
            host: String::new(),
            groups: None,
            cgroup: None,
            root: false,
        }
    }
}

/// Sets the bits of a mode.
pub(crate) fn mode(path: &Path, bits: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(bits)).unwrap();
}

/// A call that is being put together.
pub(crate) struct Call<'a> {
    world: &'a World,
    words: Vec<OsString>,
    cwd: PathBuf,
    variables: Vec<(OsString, OsString)>,
    binds: Vec<OsString>,
    host: String,
    groups: Option<Vec<u32>>,
    cgroup: Option<PathBuf>,
    root: bool,
}

impl Call<'_> {
    /// Root's call, not the user's.
    pub(crate) fn root(mut self) -> Self {
        self.root = true;
        self
    }

    /// In another directory, by the path that the launcher sees.
    pub(crate) fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = cwd.into();
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// On a node of this name.
    pub(crate) fn host(mut self, name: &str) -> Self {
        name.clone_into(&mut self.host);
        self
    }

    /// Something else of the host's: `from` appears at `at`, which exists.
    pub(crate) fn bind(mut self, from: &Path, at: &str) -> Self {
        self.binds.extend([from.as_os_str().to_owned(), at.into()]);
        self
    }

    /// With exactly these supplementary groups, whatever the user database says.
    pub(crate) fn groups(mut self, groups: &[u32]) -> Self {
        self.groups = Some(groups.to_vec());
        self
    }

    /// In this cgroup.
    pub(crate) fn cgroup(mut self, path: &Path) -> Self {
        self.cgroup = Some(path.to_owned());
        self
    }

    /// With one more line in `/etc/group`, see `group(5)`.
    pub(crate) fn group_line(self, line: &str) -> Self {
        let mut text = fs::read_to_string("/etc/group").unwrap();
        text.push_str(line);
        text.push('\n');
        let path = self.world.base().join("group");
        fs::write(&path, text).unwrap();
        mode(&path, 0o644);
        self.bind(&path, "/etc/group")
    }

    fn command(&self) -> Command {
        let world = self.world;
        let mut command = match &self.cgroup {
            None => Command::new("unshare"),
            Some(cgroup) => {
                let mut shell = Command::new("sh");
                shell
                    .args(["-c", "echo $$ > \"$0\"/cgroup.procs && exec unshare \"$@\""])
                    .arg(cgroup);
                shell
            }
        };
        command
            .args([
                "--mount",
                "--uts",
                "--propagation",
                "private",
                "--",
                "sh",
                "-c",
                STAGE,
                "sh",
            ])
            .arg(world.site())
            .arg(SITE)
            .arg(world.home())
            .arg(world.seen_home())
            .args(&self.binds)
            .arg("--")
            .arg(&self.host)
            .arg(&self.cwd)
            .args(["timeout", "--kill-after=2", PATIENCE, "setpriv"])
            .arg(format!(
                "--reuid={}",
                if self.root {
                    0
                } else {
                    world.user.uid.as_raw()
                }
            ))
            .arg(format!(
                "--regid={}",
                if self.root {
                    0
                } else {
                    world.user.gid.as_raw()
                }
            ));
        match &self.groups {
            None => command.arg("--init-groups"),
            Some(none) if none.is_empty() => command.arg("--clear-groups"),
            Some(groups) => {
                let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
                command.arg(format!("--groups={}", groups.join(",")))
            }
        };
        command.args(["--inh-caps=-all", "--", "env", "-i"]);
        let own = [
            ("HOME", world.seen_home().as_os_str()),
            ("USER", OsStr::new(USER)),
            ("LOGNAME", OsStr::new(USER)),
            ("SHELL", OsStr::new("/bin/bash")),
            ("PATH", OsStr::new("/usr/local/bin:/usr/bin:/bin")),
            ("LANG", OsStr::new("C.UTF-8")),
            ("TERM", OsStr::new("xterm")),
        ];
        let given = self
            .variables
            .iter()
            .map(|(n, v)| (n.as_os_str(), v.as_os_str()));
        for (name, value) in own
            .into_iter()
            .map(|(n, v)| (OsStr::new(n), v))
            .chain(given)
        {
            command.arg(OsStr::from_bytes(
                &[name.as_bytes(), b"=", value.as_bytes()].concat(),
            ));
        }
        command.args(&self.words).stdin(Stdio::null());
        command
    }

    /// Started, for what happens meanwhile.
    #[track_caller]
    pub(crate) fn start(self) -> Child {
        let mut command = self.command();
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        quiet.spawn().expect("unshare runs")
    }

    #[track_caller]
    pub(crate) fn run(self) -> Output {
        let output = self.command().output().expect("unshare runs");
        let status = output.status;
        Output {
            code: status
                .code()
                .unwrap_or_else(|| -status.signal().unwrap_or(0)),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// How a call ended and what it said. 124: it took too long.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    /// It ended well.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self}");
        self
    }

    /// The launcher refused to start, and its message holds all of this.
    #[track_caller]
    pub(crate) fn refused(self, words: &[&str]) -> Self {
        assert_eq!(self.code, 125, "{self}");
        self.says(words)
    }

    /// Standard error holds all of this.
    #[track_caller]
    pub(crate) fn says(self, words: &[&str]) -> Self {
        for word in words {
            assert!(self.stderr.contains(word), "no {word:?} in {self}");
        }
        self
    }

    /// Standard output, as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!(self.code, 0, "{self}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self}"))
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            code,
            stdout,
            stderr,
        } = self;
        write!(
            f,
            "exit code {code}\n-- stdout:\n{stdout}\n-- stderr:\n{stderr}"
        )
    }
}

/// A group that is the user's own, by its name.
pub(crate) fn own_group(world: &World) -> String {
    Group::from_gid(world.user().gid).unwrap().unwrap().name
}
