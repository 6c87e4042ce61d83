//! A cluster whose nodes and users have a site's policy that the tests write, with a tracer of the test's.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use agent_sandbox_events::protocol::Which;
use agent_sandbox_events::record::{Record, What};
use nix::unistd::User;

use crate::call::Output;
use crate::cluster::{Cluster, SITE, cluster, not_checked};
use crate::deeds::Trail;
use crate::service::Service;
use crate::world::{PATIENCE, World};

/// Names what this executable does when a user starts it.
const PROBE: &str = "AGENT_SANDBOX_TRACER_PROBE";
/// The kinds of events by which it can be told which process comes of which.
pub(crate) const WITH_FORKS: &str =
    r#"trace.events=["fork","exec","exit","open","connect","listen","operation"]"#;

/// One test's, alone: the policy is that of the whole cluster, and probes are paid for by all.
pub(crate) struct Site {
    /// The tracer of all nodes.
    pub(crate) service: Service,
    cluster: &'static Cluster,
    place: &'static Path,
    /// The test's name.
    test: String,
    _alone: MutexGuard<'static, ()>,
}

/// The cluster of this suite. It ends with the run (tests/run), as the one beside it does.
fn started() -> Option<(&'static Cluster, &'static Path)> {
    static STARTED: OnceLock<Result<(&Cluster, PathBuf), String>> = OnceLock::new();
    let shared = cluster()?;
    let started = STARTED.get_or_init(|| {
        let beside = std::env::var("AGENT_SANDBOX_TEST_CLUSTER").unwrap();
        let place = PathBuf::from(format!("{beside}.traced"));
        let root = std::env::var_os("AGENT_SANDBOX_ROOT")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let users = format!("{},{}", shared.alice.name, shared.bob.name);
        // A test that runs once more, alone, finds the one of the whole suite.
        if place.exists() {
            let down = Command::new(root.join("tests/slurm/cluster"))
                .arg("down")
                .arg(&place)
                .status();
            assert!(down.unwrap().success());
            fs::remove_dir_all(&place).unwrap();
        }
        let said = Command::new(root.join("tests/slurm/cluster"))
            .arg("up")
            .arg(&place)
            .args(["--name", "traced", "--users", &users, "--site", SITE])
            .output()
            .unwrap();
        if !said.status.success() {
            return Err(String::from_utf8_lossy(&said.stderr).into_owned());
        }
        let login = place.join("login");
        fs::create_dir(&login).unwrap();
        let conf = place.join("conf/slurm.conf");
        let cluster = Box::leak(Box::new(shared.beside(conf, login)?));
        Ok((&*cluster, place))
    });
    match started {
        Ok((cluster, place)) => Some((cluster, place)),
        Err(why) => panic!("{why}"),
    }
}

impl Site {
    /// With a tracer that has these settings, and nothing else in the policy than where it is. `None` where
    /// there is no cluster, which was said then.
    #[track_caller]
    pub(crate) fn new(settings: &str) -> Option<Self> {
        Self::with(|| Service::start(settings))
    }

    /// With this tracer.
    #[track_caller]
    pub(crate) fn with(service: impl FnOnce() -> Service) -> Option<Self> {
        static ALONE: Mutex<()> = Mutex::new(());
        let (cluster, place) = started()?;
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let site = Self {
            service: service(),
            cluster,
            place,
            test: std::thread::current().name().unwrap_or_default().to_owned(),
            _alone: alone,
        };
        site.policy("");
        Some(site)
    }

    /// What the site enforces of `[trace]`, where users log in and on all nodes.
    pub(crate) fn policy(&self, keys: &str) {
        self.login(keys);
        for number in 0..self.cluster.nodes.len() {
            self.node(number, &self.service, keys);
        }
    }

    /// The same where users log in alone.
    pub(crate) fn login(&self, keys: &str) {
        write(&self.place.join("login"), &self.service, keys);
    }

    /// The same of one node, with a tracer of its own.
    pub(crate) fn node(&self, number: usize, service: &Service, keys: &str) {
        let node = &self.cluster.nodes[number];
        write(&self.place.join("site").join(node), service, keys);
    }

    /// The names of the nodes.
    pub(crate) fn nodes(&self) -> &'static [String] {
        &self.cluster.nodes
    }

    /// A world of alice's.
    #[track_caller]
    pub(crate) fn alice(&self) -> World {
        World::of(self.cluster, &self.cluster.alice)
    }

    /// A world of bob's.
    #[track_caller]
    pub(crate) fn bob(&self) -> World {
        World::of(self.cluster, &self.cluster.bob)
    }

    /// What root reads of all trails, each by itself.
    #[track_caller]
    pub(crate) fn trails(&self) -> Vec<Trail> {
        Trail::each(self.service.read(Which::All))
    }

    /// The trail that is meant, once it has ended.
    #[track_caller]
    pub(crate) fn ended(&self, what: &str, meant: impl Fn(&Trail) -> bool) -> Trail {
        self.once(what, |trail| meant(trail) && trail.has_ended())
    }

    /// The trail that is meant, once there is one.
    #[track_caller]
    pub(crate) fn once(&self, what: &str, meant: impl Fn(&Trail) -> bool) -> Trail {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut trails = self.trails();
            if let Some(at) = trails.iter().position(&meant) {
                return trails.swap_remove(at);
            }
            assert!(
                Instant::now() < deadline,
                "there is no {what} within {PATIENCE:?} among:\n{}\n-- the tracer said:\n{}",
                trails.iter().map(Trail::brief).collect::<String>(),
                self.service.said()
            );
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    /// Starts this executable as a user, for the other half of the test that calls it. It is told where the
    /// tracer is, and more words.
    #[track_caller]
    pub(crate) fn probe(&self, user: &User, words: &[String]) -> Output {
        let own = std::env::current_exe().unwrap();
        let mut command = self.cluster.command(user, own);
        command
            .args(["--exact", &self.test, "--nocapture", "--test-threads", "1"])
            .env(PROBE, words.join("\n"))
            .env("SOCKET", self.service.socket())
            .stdin(Stdio::null());
        let said = command.output().unwrap();
        let output = Output {
            code: crate::call::code(said.status),
            stdout: said.stdout,
            stderr: said.stderr,
        };
        assert_eq!(output.code, 0, "{output}");
        output
    }
}

/// The words for the other half, if this is it.
pub(crate) fn probed() -> Option<Vec<String>> {
    let words = std::env::var(PROBE).ok()?;
    Some(words.lines().map(str::to_owned).collect())
}

fn write(directory: &Path, service: &Service, keys: &str) {
    let text = format!("[trace]\nsocket = {:?}\n{keys}\n", service.socket());
    let path = directory.join("enforced.toml");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
}

/// Whether there is a program of this name; where not, what is not checked.
pub(crate) fn has(program: &str) -> bool {
    let there = Path::new("/usr/bin").join(program).exists();
    if !there {
        not_checked(&format!("{program} is not installed"));
    }
    there
}

/// Whether strace works in the jail; where not, what is not checked.
pub(crate) fn strace_works() -> bool {
    if cfg!(target_arch = "aarch64") {
        // docs/reference/syscalls.md
        not_checked("what strace says beside the trail: ptrace is refused on aarch64");
        return false;
    }
    has("strace")
}

/// The records of some kinds in words, for messages.
pub(crate) fn brief(record: &Record) -> String {
    match &record.what {
        What::Exec(exec) => format!("exec {} {:?}", exec.path, exec.arguments),
        What::Open(open) => format!(
            "open {} {:?} {}",
            open.path, open.access, open.verdict.verdict
        ),
        What::Connect(peer) => format!("connect {}", peer.address),
        What::Fork(actor) => format!("fork {} of {}", actor.pid, actor.ppid),
        What::Operation(operation) => format!("{} {:?}", operation.operation, operation.path),
        other => format!("{other:?}"),
    }
}
