//! The mark of a batch script: the node's tracer signs what Slurm will hold, where there is one that does. The job is
//! the same without: whether it must have a mark is the site's to say, on Slurm's controller.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_sandbox_events::client::{Connection, Unanswered};
use agent_sandbox_events::mark::{DIGEST, LINE, LONGEST, Mark};
use agent_sandbox_events::protocol::{Request, Response, VERSION};
use ring::digest::{SHA256, digest};

use crate::session::Session;
use crate::slurm::cluster;

/// How long a submission waits for the tracer.
const PATIENCE: Duration = Duration::from_secs(2);

/// How much longer a mark makes a script, in bytes, at most.
pub(super) fn most(session: &Session) -> usize {
    let line = LINE.len() + LONGEST + 1;
    session.order.signer.as_ref().map_or(0, |_| line)
}

/// Adds the mark as the script's last line, if there is one to be had.
pub(super) async fn add(session: &Session, script: &mut Vec<u8>) {
    let Some(socket) = session.order.signer.as_deref() else {
        return;
    };
    let cluster = match cluster::name(session).await {
        Ok(name) => name.to_owned(),
        Err(refusal) => {
            tracing::warn!(target: "slurm", why = %refusal.message, "the job is not marked");
            return;
        }
    };
    let socket = PathBuf::from(OsStr::from_bytes(socket));
    let mut sum = [0; DIGEST];
    sum.copy_from_slice(digest(&SHA256, script).as_ref());
    let request = Request::Mark {
        version: VERSION,
        session: session.order.snapshot.session.clone(),
        cluster,
        script: sum,
    };
    // It is another process that may be busy, and the conversation blocks.
    match tokio::task::spawn_blocking(move || ask(&socket, &request)).await {
        Ok(Ok(mark)) => script.extend_from_slice(format!("{LINE}{mark}\n").as_bytes()),
        Ok(Err(error)) => {
            tracing::info!(target: "slurm", why = %error, "the job is not marked");
        }
        Err(error) => tracing::warn!(target: "slurm", why = %error, "the job is not marked"),
    }
}

fn ask(socket: &Path, request: &Request) -> Result<Mark, Unanswered> {
    let connection = Connection::open(socket, PATIENCE)?;
    match connection.ask(request)? {
        // A line that is written anew from what it says.
        Response::Marked(text) => Mark::parse(&text).ok_or(Unanswered::Strange),
        _ => Err(Unanswered::Strange),
    }
}
