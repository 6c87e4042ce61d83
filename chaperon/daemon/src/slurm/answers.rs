//! What commands that show have in common.

use std::ffi::{OsStr, OsString};

use agent_sandbox_wire::message::{End, Stream};

use crate::conn::Conn;
use crate::refusal::Refusal;
use crate::slurm::ask::{Stop, act, attended, look_up};
use crate::slurm::parse::{Parsed, canonical};
use crate::slurm::request::Context;
use crate::variables::Variables;

/// Options that ask about the command, not about jobs.
const ABOUT: [&str; 9] = [
    "help",
    "usage",
    "version",
    "helpformat",
    "helpFormat",
    "helpstate",
    "helpreason",
    "autocomplete",
    "help-fields",
];

/// The option that asks about the command itself, as a word for its command line.
pub fn about(parsed: &Parsed) -> Option<Vec<OsString>> {
    let given = parsed
        .given
        .iter()
        .find(|given| ABOUT.contains(&given.option.long))?;
    Some(canonical(std::slice::from_ref(given)))
}

/// Answers with what Slurm says, as it says it: for what is about no job.
///
/// # Errors
/// It cannot be asked, or the shim ends.
pub async fn plain(
    context: &mut Context<'_>,
    arguments: Vec<OsString>,
    environment: Variables,
) -> Result<End, Stop> {
    let command = context.request.command;
    let asked = look_up(&context.session, command, arguments, environment);
    let said = attended(context.conn, asked).await?;
    reply(context.conn, &said.output, &said.error, said.end).await
}

/// Has Slurm do something, and answers with what it says.
///
/// # Errors
/// It cannot be asked, or the shim ends.
pub async fn acted(context: &mut Context<'_>, arguments: Vec<OsString>) -> Result<End, Stop> {
    let command = context.request.command;
    let session = context.session.clone();
    let work = act(&session, command, arguments, Vec::new());
    let said = attended(context.conn, work).await?;
    reply(context.conn, &said.output, &said.error, said.end).await
}

/// Says what a command has to say, and ends as it ended.
///
/// # Errors
/// The end of the shim.
pub async fn reply(conn: &Conn, output: &[u8], error: &[u8], end: End) -> Result<End, Stop> {
    let gone = |_| Stop::Ended(End::Signal(libc::SIGHUP));
    // What is wrong with the request, Slurm says first.
    conn.output(Stream::Error, error).await.map_err(gone)?;
    conn.output(Stream::Output, output).await.map_err(gone)?;
    Ok(end)
}

/// Names of columns with widths, `NAME[%[-]WIDTH]`, as `sacct`, `sstat`, `sshare` and `sacctmgr`
/// take them.
///
/// # Errors
/// The first that is none.
pub fn fields(list: &OsStr) -> Result<Vec<String>, Refusal> {
    let wrong = |part: &str| {
        Refusal::mistake(format!(
            "Invalid field requested: \"{}\"",
            part.escape_debug()
        ))
    };
    let text = list
        .to_str()
        .ok_or_else(|| wrong(&list.to_string_lossy()))?;
    let parts = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, width) = part.split_once('%').unwrap_or((part, ""));
            let digits = width.strip_prefix('-').unwrap_or(width);
            let named = name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
            let sized = digits.len() <= 4 && digits.bytes().all(|b| b.is_ascii_digit());
            let good = named && sized && !name.is_empty();
            good.then(|| part.to_owned()).ok_or_else(|| wrong(part))
        })
        .collect()
}
