//! Questions of the launcher's own to Slurm's real commands, which take a bounded time.

use std::ffi::OsString;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use agent_sandbox_wire::command::Command as Name;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::chaperon;
use crate::host::HostFacts;

/// How long Slurm may take to answer. Without a controller its commands try for minutes.
const PATIENCE: Duration = Duration::from_secs(5);
/// An answer of Slurm's is not longer, in bytes: a user's jobs, a line each, or the processes of a job on a node.
const LONGEST_ANSWER: u64 = 4 << 20;

/// Slurm's commands on this host, with the environment that the chaperon gives them.
#[derive(Clone, Debug)]
pub(super) struct SlurmCommands {
    paths: Vec<(Name, PathBuf)>,
    environment: Vec<(OsString, OsString)>,
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub(super) struct Unanswered {
    /// Begins with the command's name.
    pub(super) why: String,
    /// Whether the command was asked, and failed.
    pub(super) fails: bool,
}

impl SlurmCommands {
    /// # Errors
    /// There are none.
    pub(super) fn of(host: &HostFacts) -> Result<Self, String> {
        let slurm = host.slurm.as_ref().ok_or("Slurm: there is none")?;
        let environment = chaperon::environment(host, &slurm.conf);
        let entries = environment.into_iter().filter_map(|entry| {
            let at = entry.iter().position(|&byte| byte == b'=')?;
            let word = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
            Some((word(&entry[..at]), word(&entry[at + 1..])))
        });
        Ok(Self {
            paths: slurm.commands.clone(),
            environment: entries.collect(),
        })
    }

    /// What one of them says on standard output.
    ///
    /// # Errors
    /// It cannot be trusted or started, takes too long, says too much, or fails.
    pub(super) fn ask(
        &self,
        name: Name,
        words: impl IntoIterator<Item = String>,
    ) -> Result<String, Unanswered> {
        let failed = |why: &str| Unanswered {
            why: format!("{}: {why}", name.name()),
            fails: false,
        };
        let found = self.paths.iter().find(|(known, _)| *known == name);
        let (_, path) = found.ok_or_else(|| failed("there is none that can be trusted"))?;
        let mut child = Command::new(path)
            .args(words)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("SLURM_TIME_FORMAT", "%s")
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| failed(&error.to_string()))?;
        let said = listen(&mut child);
        if said.is_none() {
            // It may have ended by now.
            let _ = child.kill();
        }
        let status = child.wait().map_err(|error| failed(&error.to_string()))?;
        match said {
            None => Err(failed("it does not answer")),
            Some(_) if !status.success() => Err(Unanswered {
                fails: true,
                ..failed("it fails")
            }),
            Some(said) => Ok(String::from_utf8_lossy(&said).into_owned()),
        }
    }
}

/// All that a child writes; `None` if it takes too long, or writes too much.
fn listen(child: &mut Child) -> Option<Vec<u8>> {
    let mut output = child.stdout.take()?;
    let until = Instant::now() + PATIENCE;
    let mut said = Vec::new();
    let mut part = [0; 8192];
    loop {
        let left = until.saturating_duration_since(Instant::now()).as_millis();
        let mut fds = [PollFd::new(output.as_fd(), PollFlags::POLLIN)];
        let left = PollTimeout::from(u16::try_from(left).unwrap_or(u16::MAX));
        match poll(&mut fds, left) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(nix::errno::Errno::EINTR) => continue,
            Err(_) => return None,
        }
        match output.read(&mut part) {
            Ok(0) => return Some(said),
            Ok(count) => said.extend_from_slice(&part[..count]),
            Err(_) => return None,
        }
        if said.len() as u64 > LONGEST_ANSWER {
            return None;
        }
    }
}
