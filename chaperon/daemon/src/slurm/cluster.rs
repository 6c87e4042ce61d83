//! The cluster that this node belongs to, and the Slurm that it has.

use std::ffi::OsString;

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::End;

use super::options::Release;
use crate::refusal::Refusal;
use crate::session::Session;
use crate::spawn::{self, Start};

/// Stands for a cluster that does not say its name.
pub const NAMELESS: &str = "cluster";

/// The cluster's name, asked for once.
///
/// # Errors
/// Slurm does not answer.
pub async fn name(session: &Session) -> Result<&str, Refusal> {
    let ask = || async {
        if let Some((_, name)) = session
            .job_variables()
            .iter()
            .find(|(name, _)| name == "SLURM_CLUSTER_NAME")
        {
            return sound(&name.to_string_lossy());
        }
        let arguments = ["show", "config"].map(OsString::from).to_vec();
        let said = spawn::capture(session, Start::query(Command::Scontrol, arguments), &[]).await?;
        let text = String::from_utf8_lossy(&said.output);
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("ClusterName"));
        match line.and_then(|rest| rest.split_once('=')) {
            Some((_, name)) => sound(name.trim()),
            None => Err(Refusal::mistake(format!(
                "cannot learn the cluster's name: {}",
                String::from_utf8_lossy(&said.error).trim()
            ))),
        }
    };
    session
        .cluster
        .get_or_try_init(ask)
        .await
        .map(String::as_str)
}

/// Whether Slurm shows a script's arguments with its path (`Command=`): until 23.02 (`job_mgr.c`).
pub async fn shows_arguments(session: &Session) -> bool {
    let release = release(session).await;
    release.is_some_and(|release| release < Release::new(23, 2))
}

/// The release of the Slurm on this node, asked for until it is known; none: it does not say.
pub async fn release(session: &Session) -> Option<Release> {
    let ask = || async {
        let version = Start::query(Command::Scontrol, vec!["--version".into()]);
        let said = spawn::capture(session, version, &[]).await?;
        match Release::printed(&said.output).filter(|_| said.end == End::SUCCESS) {
            Some(_) => Ok(said.output),
            None => Err(Refusal::mistake("Slurm does not say which release it is")),
        }
    };
    let version = session.version.get_or_try_init(ask).await.ok()?;
    Release::printed(version)
}

/// The same, as far as it has been asked for.
pub fn known_release(session: &Session) -> Option<Release> {
    Release::printed(session.version.get()?)
}

/// A cluster's name becomes the name of a directory (`slurm.conf(5)`: at most 40 characters of a
/// host name's kind).
fn sound(name: &str) -> Result<String, Refusal> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.starts_with('.') || name.len() > 255 || !name.chars().all(good) {
        return Err(Refusal::mistake("the cluster has no sound name"));
    }
    Ok(name.to_owned())
}
