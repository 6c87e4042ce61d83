//! The cluster that runs, its users, and what is planted in their homes.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use nix::unistd::{Uid, User};

use crate::world::until;

/// What is planted in a home, all of it hidden in every jail.
const PLANTED: &[&str] = &[".ssh/id_rsa", ".aws/credentials", ".netrc"];

/// What `tests/slurm/cluster` notes at accounts that it makes.
const USER_NOTE: &[u8] = b"agent-sandbox tests";

/// The cluster of this run.
pub(crate) struct Cluster {
    /// `SLURM_CONF`
    pub(crate) conf: PathBuf,
    /// The launcher under test, with its companions beside it.
    pub(crate) launcher: PathBuf,
    /// Who works.
    pub(crate) alice: User,
    /// Somebody else.
    pub(crate) bob: User,
    /// What every planted secret holds; new for each run.
    pub(crate) marker: String,
    /// Its name in Slurm.
    pub(crate) name: String,
    /// Its nodes.
    pub(crate) nodes: Vec<String>,
    /// What the users' own commands see as the site's directory; `None`: the machine's.
    pub(crate) site: Option<PathBuf>,
}

/// Where a site's policy stands.
pub(crate) const SITE: &str = "/etc/agent-sandbox";

/// The cluster; where there is none, says so and answers `None`.
pub(crate) fn cluster() -> Option<&'static Cluster> {
    static CLUSTER: OnceLock<Result<Cluster, String>> = OnceLock::new();
    match CLUSTER.get_or_init(find) {
        Ok(cluster) => Some(cluster),
        Err(why) => {
            not_checked(why);
            None
        }
    }
}

/// Says what this machine cannot show, and in which test.
pub(crate) fn not_checked(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    println!("not checked: slurm: {test}: {why}");
}

fn variable(name: &str) -> Result<PathBuf, String> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
        .ok_or_else(|| format!("no cluster: {name} is not set (tests/run slurm sets it)"))
}

fn user(name: &str) -> Result<User, String> {
    let name = variable(name)?;
    let name = name.to_str().unwrap_or_default();
    User::from_name(name)
        .ok()
        .flatten()
        .ok_or_else(|| format!("no cluster: no user `{name}`"))
}

fn find() -> Result<Cluster, String> {
    variable("AGENT_SANDBOX_TEST_CLUSTER")?;
    let conf = variable("SLURM_CONF")?;
    let (alice, bob) = (
        user("AGENT_SANDBOX_TEST_ALICE")?,
        user("AGENT_SANDBOX_TEST_BOB")?,
    );
    if !Uid::effective().is_root() {
        return Err("must run as root, which becomes the cluster's users".into());
    }
    let launcher = std::env::var_os("AGENT_SANDBOX_BIN").map_or_else(
        || PathBuf::from(env!("CARGO_BIN_EXE_agent-sandbox")),
        PathBuf::from,
    );
    let mut random = [0u8; 12];
    fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut random))
        .map_err(|error| format!("no random bytes: {error}"))?;
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut cluster = Cluster {
        conf,
        launcher,
        alice,
        bob,
        marker: format!("MARKER{digits}"),
        name: String::new(),
        nodes: Vec::new(),
        site: None,
    };
    cluster.look()?;
    cluster.prepare(&cluster.alice);
    cluster.prepare(&cluster.bob);
    Ok(cluster)
}

impl Cluster {
    /// Another cluster of the same users, which runs with this `SLURM_CONF`. `site` is what their own
    /// commands see as the site's directory.
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) fn beside(&self, conf: PathBuf, site: PathBuf) -> Result<Self, String> {
        let mut cluster = Self {
            conf,
            launcher: self.launcher.clone(),
            alice: self.alice.clone(),
            bob: self.bob.clone(),
            marker: self.marker.clone(),
            name: String::new(),
            nodes: Vec::new(),
            site: Some(site),
        };
        cluster.look()?;
        Ok(cluster)
    }

    /// The same cluster, for sessions of another installation.
    pub(crate) fn with_launcher(&self, launcher: PathBuf) -> Self {
        Self {
            conf: self.conf.clone(),
            launcher,
            alice: self.alice.clone(),
            bob: self.bob.clone(),
            marker: self.marker.clone(),
            name: self.name.clone(),
            nodes: self.nodes.clone(),
            site: self.site.clone(),
        }
    }

    /// Whether munge gives its credentials; if not, it is sackd (`auth/slurm`).
    pub(crate) fn has_munge(&self) -> bool {
        !self.configuration().contains("\nCredType=cred/slurm\n")
    }

    /// The sockets of who gives its credentials: first the one that commands use.
    pub(crate) fn credentials(&self) -> Vec<String> {
        let configuration = self.configuration();
        if !self.has_munge() {
            // slurmctld and slurmdbd may have their own.
            let made =
                |socket: &String| socket.starts_with("/run/slurm/") || Path::new(socket).exists();
            let all = ["slurm", "slurmctld", "slurmdbd"].map(|of| format!("/run/{of}/sack.socket"));
            return all.into_iter().filter(made).collect();
        }
        let named = configuration
            .lines()
            .find_map(|line| line.strip_prefix("AuthInfo=socket="));
        vec![named.unwrap_or("/run/munge/munge.socket.2").to_owned()]
    }

    fn configuration(&self) -> String {
        fs::read_to_string(&self.conf).expect("slurm.conf")
    }

    /// Asks for its name and its nodes.
    fn look(&mut self) -> Result<(), String> {
        let config = self.ask("scontrol", ["show", "config"])?;
        let line = config.lines().find(|line| line.starts_with("ClusterName"));
        let name = line.and_then(|line| line.split_once('='));
        self.name = name
            .ok_or("scontrol does not know the cluster's name")?
            .1
            .trim()
            .to_owned();
        let nodes = self.ask("sinfo", ["-h", "-N", "-p", "debug", "-o", "%N"])?;
        self.nodes = nodes.split_whitespace().map(str::to_owned).collect();
        Ok(())
    }

    /// Plants secrets, and the start files that attacks would like to write.
    fn prepare(&self, user: &User) {
        // A new cluster counts its jobs from the beginning: what is recorded of others of the same
        // number, in an account that is the tests' own, is not theirs.
        if user.gecos.to_bytes() == USER_NOTE {
            let _ = fs::remove_dir_all(user.dir.join(".local/state/agent-sandbox"));
        }
        for name in PLANTED {
            let text = format!("secret {}\n", self.marker);
            put(user, &user.dir.join(name), text.as_bytes(), 0o600);
        }
        for name in [".ssh/authorized_keys", ".bashrc"] {
            put(user, &user.dir.join(name), b"# the user's own\n", 0o600);
        }
    }

    /// Nothing that the attacks would like to write has changed.
    #[track_caller]
    pub(crate) fn check_start_files(&self) {
        for name in [".ssh/authorized_keys", ".bashrc"] {
            let text = fs::read_to_string(self.alice.dir.join(name)).unwrap();
            assert_eq!(text, "# the user's own\n", "~/{name} was written");
        }
    }

    /// A real command, by root, who sees all.
    fn ask<const N: usize>(&self, program: &str, arguments: [&str; N]) -> Result<String, String> {
        let mut command = Command::new(program);
        let answer = command
            .args(arguments)
            .env("SLURM_CONF", &self.conf)
            .output()
            .map_err(|error| format!("no cluster: cannot start {program}: {error}"))?;
        if !answer.status.success() {
            let text = String::from_utf8_lossy(&answer.stderr);
            return Err(format!("no cluster: {program}: {}", text.trim()));
        }
        Ok(String::from_utf8_lossy(&answer.stdout).into_owned())
    }

    /// What a real command prints for root.
    #[track_caller]
    pub(crate) fn said<const N: usize>(&self, program: &str, arguments: [&str; N]) -> String {
        self.ask(program, arguments).unwrap()
    }

    /// Slurm's release, by which its words differ: year and month.
    pub(crate) fn release(&self) -> (u32, u32) {
        let said = self.said("sinfo", ["--version"]);
        let number = |part: Option<&str>| part.and_then(|part| part.parse().ok());
        let version = said.split_whitespace().last().unwrap_or_default();
        let mut parts = version.split('.');
        let release = (number(parts.next()), number(parts.next()));
        let (Some(year), Some(month)) = release else {
            panic!("no release: {said}")
        };
        (year, month)
    }

    /// What the cgroup of a job is called.
    pub(crate) fn group_of(&self, job: u32) -> String {
        if self.release() < (26, 5) {
            return format!("job_{job}");
        }
        let job = format!("--jobs={job}");
        let mut sluid = String::new();
        // slurmdbd may have heard of the job a little later.
        until("the SLUID", || {
            let said = self.said("sacct", ["-nXP", "-o", "SLUID", &job]);
            said.trim().clone_into(&mut sluid);
            sluid.starts_with('s')
        });
        sluid
    }

    /// A command as one of the users, with the environment of somebody who is logged in.
    pub(crate) fn command(&self, user: &User, program: impl AsRef<OsStr>) -> Command {
        let mut command = match &self.site {
            None => Command::new("/usr/bin/setpriv"),
            Some(site) => {
                let mut command = Command::new("/usr/bin/unshare");
                command
                    .args(["--mount", "--propagation", "slave", "--", "/bin/sh", "-c"])
                    .arg(r#"mount --bind "$1" "$2" && shift 2 && exec "$@""#)
                    .arg("sh")
                    .arg(site)
                    .args([SITE, "/usr/bin/setpriv"]);
                command
            }
        };
        command
            .arg(format!("--reuid={}", user.uid))
            .arg(format!("--regid={}", user.gid))
            .args(["--init-groups", "--inh-caps=-all", "--"])
            .arg(program)
            .current_dir(&user.dir)
            .env_clear()
            .env("HOME", &user.dir)
            .env("USER", &user.name)
            .env("LOGNAME", &user.name)
            .env("SHELL", "/bin/bash")
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .env("TERM", "xterm")
            .env("SLURM_CONF", &self.conf)
            // Open MPI 5 binds ranks to cores, of which a node here says that it has more than there are.
            .env("PRTE_MCA_hwloc_default_binding_policy", "none");
        command
    }
}

/// Writes a file of a user's, and the directories above it that are missing.
#[track_caller]
pub(crate) fn put(user: &User, path: &Path, content: &[u8], mode: u32) {
    let (uid, gid) = (Some(user.uid.as_raw()), Some(user.gid.as_raw()));
    for above in path
        .ancestors()
        .skip(1)
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
    {
        if !above.exists() {
            fs::create_dir(above).unwrap();
            chown(above, uid, gid).unwrap();
        }
    }
    // What stood there may be read-only, or a link.
    let _ = fs::remove_file(path);
    fs::write(path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    chown(path, uid, gid).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}
