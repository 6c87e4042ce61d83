//! `scontrol write batch_script`: the script as it was submitted, not the capsule around it.

use std::ffi::OsString;
use std::io::Write;

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::{End, How};
use nix::sys::stat::fstat;

use crate::conn::Unanswered;
use crate::refusal::Refusal;
use crate::slurm::answers::reply;
use crate::slurm::ask::{Stop, ask, attended};
use crate::slurm::ids;
use crate::slurm::keywords::{KeywordRequest, means};
use crate::slurm::query::shown::unwrapped;
use crate::slurm::request::Context;
use crate::slurm::scope;

/// Carries it out.
pub(in crate::slurm) async fn write(
    context: &mut Context<'_>,
    asked: KeywordRequest,
) -> Result<End, Stop> {
    let [what, words @ ..] = &asked.words[..] else {
        return Err(Refusal::mistake("too few arguments for keyword:write").into());
    };
    if means(what, "config", 6) {
        let text = "scontrol write config is refused: it writes a file outside the jail";
        return Err(Refusal::rule(text, "use scontrol show config").into());
    }
    if !means(what, "batch_script", 5) {
        let text = format!("invalid write argument:{}", what.escape_debug());
        return Err(Refusal::mistake(text).into());
    }
    let (job, path) = match words {
        [job] => (job, None),
        [job, path] => (job, Some(path)),
        [] => return Err(Refusal::mistake("too few arguments for keyword:write").into()),
        _ => return Err(Refusal::mistake("too many arguments for keyword:write").into()),
    };
    let list = ids::parse_list(job.as_ref())?;
    let [selector] = &list[..] else {
        return Err(Refusal::mistake("one job at a time").into());
    };
    let session = context.session.clone();
    let arguments = ["write", "batch_script", &selector.to_string(), "-"];
    let arguments = arguments.map(OsString::from).to_vec();
    let work = async {
        scope::check_change(&session, std::slice::from_ref(selector)).await?;
        ask(&session, Command::Scontrol, arguments, Vec::new()).await
    };
    let said = attended(context.conn, work).await?;
    if said.end != End::SUCCESS {
        return reply(context.conn, b"", &said.error, said.end).await;
    }
    let script = unwrapped(&said.output).unwrap_or_else(|| said.output.clone());
    let default = format!("slurm-{}.sh", selector.job);
    let path = match path.map(String::as_str) {
        Some("-") => return reply(context.conn, &script, &said.error, said.end).await,
        Some(path) => path,
        None => &default,
    };
    let file = match context
        .conn
        .open_inside(path.as_bytes(), How::Truncate)
        .await
    {
        Ok(file) => file,
        Err(Unanswered::Interrupted(signal)) => return Err(Stop::Ended(End::Signal(signal))),
        Err(Unanswered::Failed(errno)) => {
            let error = nix::errno::Errno::from_raw(errno).desc();
            let text = format!("failed to open file `{}`: {error}", path.escape_debug());
            return Err(Refusal::mistake(text).into());
        }
        Err(_) => return Err(Stop::Ended(End::Signal(libc::SIGHUP))),
    };
    // Who wrote into a pipe that nobody reads would wait for ever.
    if !fstat(&file).is_ok_and(|meta| meta.st_mode & libc::S_IFMT == libc::S_IFREG) {
        let text = format!("`{}` is not a regular file", path.escape_debug());
        let hint = "with `-` the script goes to standard output";
        return Err(Refusal::mistake(text).hint(hint).into());
    }
    // A file system may be slow.
    let wrote = tokio::task::spawn_blocking(move || file.into_file().write_all(&script));
    let work = async {
        let failed = |error: &dyn std::fmt::Display| {
            Refusal::mistake(format!("cannot write the script: {error}"))
        };
        match wrote.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(failed(&error)),
            Err(error) => Err(failed(&error)),
        }
    };
    attended(context.conn, work).await?;
    let text = format!("batch script for job {selector} written to {path}\n");
    reply(context.conn, text.as_bytes(), &said.error, End::SUCCESS).await
}
