//! Slurm's commands, its controller and the sockets of munge or sackd, outside of any jail.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_sandbox_wire::command::Command;

use super::super::facts::Slurm;
use super::run::{self, Held, Program};
use crate::host::HostFacts;
use crate::host::slurm::Conf;
use crate::launch::{Prepared, chaperon};
use crate::plan::Plan;

/// Where munge's socket is unless Slurm's configuration names another place (munged(8)).
const MUNGE: &str = "/run/munge/munge.socket.2";
/// Where sackd's is, in place of munge's with `auth/slurm` (sackd(8)).
const SACKD: &str = "/run/slurm/sack.socket";
/// How long the controller may take. Without one, Slurm's commands try for minutes.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn look(held: &mut Held, prepared: &Prepared, plan: Option<&Plan>) -> Option<Slurm> {
    let host = &prepared.host;
    let found = host.slurm.as_ref()?;
    let mut slurm = Slurm {
        directory: found
            .commands
            .first()
            .and_then(|(_, path)| path.parent())
            .map(Path::to_path_buf),
        commands: found.commands.len(),
        distrusted: found.distrusted.clone(),
        conf: match &found.conf {
            Conf::Distrusted { path, reason } => {
                Some(format!("SLURM_CONF is {}, which {reason}", path.display()))
            }
            Conf::BuiltIn | Conf::At(_) => None,
        },
        chaperon: found.chaperon.clone(),
        shim: found.shim.clone(),
        on: plan.map(Plan::wants_chaperon),
        ..Slurm::default()
    };
    if slurm.conf.is_some() {
        return Some(slurm);
    }
    let programs: Vec<(Command, Program)> =
        [(Command::Squeue, "--version"), (Command::Scontrol, "ping")]
            .into_iter()
            .filter_map(|(name, word)| Some((name, program(host, name, &[word.into()], PATIENCE)?)))
            .collect();
    let calls: Vec<Program> = programs
        .iter()
        .map(|(_, program)| program.clone())
        .collect();
    for ((name, _), ran) in programs.iter().zip(run::all(held, &calls, calls.len())) {
        match name {
            Command::Squeue => slurm.version = ran.first_line().filter(|_| ran.good()),
            _ => {
                slurm.controller = Some(match ran.good() {
                    true => Ok(ran.first_line().unwrap_or_default()),
                    false => Err(ran.why()),
                });
            }
        }
    }
    let mut sockets: Vec<PathBuf> = found
        .sockets
        .iter()
        .map(|named| named.path.clone())
        .collect();
    sockets.extend([MUNGE.into(), SACKD.into()]);
    sockets.sort_unstable();
    sockets.dedup();
    slurm.credentials = sockets
        .into_iter()
        .map(|path| {
            let reached = UnixStream::connect(&path).is_ok();
            (path, reached)
        })
        .collect();
    Some(slurm)
}

/// A real command of Slurm's, in the environment that the chaperon gives it; `None` if it cannot be
/// trusted.
pub(crate) fn program(
    host: &HostFacts,
    command: Command,
    arguments: &[OsString],
    patience: Duration,
) -> Option<Program> {
    let slurm = host.slurm.as_ref()?;
    let (_, path) = slurm.commands.iter().find(|(name, _)| *name == command)?;
    let mut words = vec![OsString::from(path)];
    words.extend(arguments.iter().cloned());
    let environment = chaperon::environment(host, &slurm.conf);
    let pairs = environment.into_iter().filter_map(|entry| {
        let at = entry.iter().position(|&byte| byte == b'=')?;
        let word = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        Some((word(&entry[..at]), word(&entry[at + 1..])))
    });
    Some(Program {
        words,
        environment: pairs.collect(),
        cwd: Some("/".into()),
        patience,
    })
}
