//! Two hundred idle sessions of twenty users on one node: their memory together, and how often they wake up. Root starts it, for
//! only root becomes twenty users, and reads the memory maps of processes that close them to their own user.
//!
//! The users are numbers without accounts, with homes in a directory of the run's. The command is sleep(1), which is not counted.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{Bench, field};

/// With this argument it measures idle sessions alone: `tests/run --bench -- sessions`.
pub(crate) const ONLY_SESSIONS: &str = "sessions";
const USERS: u32 = 20;
const SESSIONS: u32 = 10;
/// The first of the users; nobody has an account with such a number.
const FIRST: u32 = 61_001;
/// The sessions have started after so long at most.
const PATIENCE: Duration = Duration::from_secs(180);
/// Until what a start leaves behind has come to rest.
const REST: Duration = Duration::from_secs(5);
/// So long it is counted how often they wake up.
const WATCHED: Duration = Duration::from_secs(10);

/// The command of each session.
const COMMAND: &str = "sleep";

pub(crate) fn main() -> ExitCode {
    Bench::as_root(Bench::sessions)
}

/// Sessions that end with this.
struct Sessions {
    launchers: Vec<Child>,
    _homes: tempfile::TempDir,
}

impl Drop for Sessions {
    fn drop(&mut self) {
        for launcher in &self.launchers {
            if let Ok(pid) = i32::try_from(launcher.id()) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            }
        }
        for launcher in &mut self.launchers {
            let _ = launcher.wait();
        }
        // Where tasks of a user's jobs would meet, and where sessions are recorded.
        for user in FIRST..FIRST + USERS {
            for parent in ["/tmp", "/var/tmp", "/dev/shm"] {
                let _ = fs::remove_dir_all(format!("{parent}/agent-sandbox-{user}"));
            }
        }
    }
}

/// A process of one of the users.
struct Process {
    name: String,
    pss: u64,
    switches: u64,
}

impl Bench {
    fn sessions(&mut self) -> anyhow::Result<()> {
        anyhow::ensure!(
            nix::unistd::Uid::effective().is_root(),
            "twenty users are root's to become: `make bench` started by root, or with sudo"
        );
        let homes = tempfile::Builder::new()
            .prefix("bench")
            .tempdir_in("/var/tmp")?;
        fs::set_permissions(homes.path(), fs::Permissions::from_mode(0o755))?;
        let mut sessions = Sessions {
            launchers: Vec::new(),
            _homes: homes,
        };
        for user in FIRST..FIRST + USERS {
            let home = sessions._homes.path().join(user.to_string());
            let project = home.join("project");
            fs::create_dir_all(&project)?;
            for directory in [&home, &project] {
                chown(directory, Some(user), Some(user))?;
                fs::set_permissions(directory, fs::Permissions::from_mode(0o700))?;
            }
            for _ in 0..SESSIONS {
                sessions.launchers.push(self.session_of(user, &home)?);
            }
        }
        let start = Instant::now();
        loop {
            let all = processes()?;
            let started = all.values().filter(|one| one.name == COMMAND).count();
            if started == (USERS * SESSIONS) as usize {
                break;
            }
            anyhow::ensure!(
                start.elapsed() < PATIENCE,
                "of {} sessions {started} have started in {} s",
                USERS * SESSIONS,
                PATIENCE.as_secs()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
        std::thread::sleep(REST);
        let before = processes()?;
        std::thread::sleep(WATCHED);
        let after = processes()?;
        let mut by_name: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
        let mut woken = 0;
        for (pid, one) in after.iter().filter(|(_, one)| one.name != COMMAND) {
            let sum = by_name.entry(&one.name).or_default();
            *sum = (sum.0 + 1, sum.1 + one.pss);
            let earlier = before.get(pid).map_or(0, |one| one.switches);
            woken += one.switches.saturating_sub(earlier);
        }
        let all: u64 = by_name.values().map(|(_, pss)| pss).sum();
        self.row(
            "200 idle sessions of 20 users (PSS)",
            200.0,
            all as f64 / 1024.0,
            " MB",
        );
        for (name, (count, pss)) in by_name {
            let what = format!("– of these {count} processes {name}");
            self.note(&what, &format!("{:.1} MB", pss as f64 / 1024.0));
        }
        self.row("wake-ups of all of them in 10 s", 0.0, woken as f64, "");
        Ok(())
    }

    fn session_of(&self, user: u32, home: &std::path::Path) -> anyhow::Result<Child> {
        let mut command = Command::new("setpriv");
        command
            .arg(format!("--reuid={user}"))
            .arg(format!("--regid={user}"))
            .args(["--clear-groups", "--inh-caps=-all", "--"])
            .arg(&self.binary)
            .args(["-q", COMMAND, "1000"])
            .current_dir(home.join("project"))
            .env_clear()
            .env("HOME", home)
            .env("PATH", "/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .stdin(Stdio::null());
        // With Slurm a session has a chaperon.
        if let Some(conf) = std::env::var_os("SLURM_CONF") {
            command.env("SLURM_CONF", conf);
        }
        command.spawn().context("cannot start setpriv")
    }
}

/// The processes of the users, by their numbers.
fn processes() -> anyhow::Result<BTreeMap<u32, Process>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let at = PathBuf::from("/proc").join(entry.file_name());
        // The directory belongs to root where a process closes its maps; its status says whose it is.
        let Ok(status) = fs::read_to_string(at.join("status")) else {
            continue;
        };
        let user = field(&status, "Uid:");
        if !(u64::from(FIRST)..u64::from(FIRST + USERS)).contains(&user) {
            continue;
        }
        let maps = fs::read_to_string(at.join("smaps_rollup")).unwrap_or_default();
        let pss = maps
            .lines()
            .find_map(|line| line.strip_prefix("Pss:"))
            .and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        let switches = field(&status, "voluntary_ctxt_switches:")
            + field(&status, "nonvoluntary_ctxt_switches:");
        let name = status.lines().find_map(|line| line.strip_prefix("Name:\t"));
        let name = name.unwrap_or_default().to_owned();
        let process = Process {
            // One that has just ended has no memory.
            pss: pss.unwrap_or(0),
            name,
            switches,
        };
        all.insert(pid, process);
    }
    Ok(all)
}
