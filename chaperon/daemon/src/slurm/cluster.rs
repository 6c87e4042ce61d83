//! The cluster that this node belongs to.

use std::ffi::OsString;

use agent_sandbox_wire::command::Command;

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

/// A cluster's name becomes the name of a directory (`slurm.conf(5)`: at most 40 characters of a
/// host name's kind).
fn sound(name: &str) -> Result<String, Refusal> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.starts_with('.') || name.len() > 255 || !name.chars().all(good) {
        return Err(Refusal::mistake("the cluster has no sound name"));
    }
    Ok(name.to_owned())
}
