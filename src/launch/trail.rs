//! `watch`, `report` and `trace`: this process becomes the program that shows trails. What draws on a terminal
//! is not in the launcher, which starts often and should be small.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use agent_sandbox_events::ask::{PROGRAM, Untraced, What};
use anyhow::{Context, Result};

use super::{chaperon, untraced};
use crate::cli::TrailCall;
use crate::failure::{self, one_line};
use crate::host;
use crate::users::{self, Known, User};

/// Becomes the program; it returns only if that does not work.
///
/// # Errors
/// The program is not installed or cannot be started; the policy, which says where the tracer listens, cannot
/// be read.
pub fn show(call: TrailCall) -> Result<u8> {
    let TrailCall {
        options,
        mut ask,
        command,
        user,
    } = call;
    let program = chaperon::program(PROGRAM)?;
    if ask.socket.is_empty() {
        // The policy is in the way where it is broken, and then says so.
        let socket = super::prepare::prepare(&options, &[])?
            .policy
            .trace
            .socket
            .value;
        let text = socket.to_str().context("trace.socket is not UTF-8")?;
        text.clone_into(&mut ask.socket);
    }
    // Without a home there is no place to keep a summary, and all else works.
    ask.state = host::directories(None)
        .ok()
        .and_then(|(_, directories)| Some(directories.state.to_str()?.to_owned()));
    if let What::Report { which, .. } = &ask.what {
        match users::meant(user.as_deref(), Known::Ever)? {
            None => {
                ask.untraced = ask
                    .state
                    .iter()
                    .flat_map(|state| untraced::all(Path::new(state)))
                    .collect()
            }
            Some(users) => {
                ask.uid = user.and(users.first()).map(|user| user.uid);
                // The trails are the tracer's, and are there without a user's notes.
                ask.untraced = notes(users, which.as_deref()).unwrap_or_else(|error| {
                    failure::say(&format!(
                        "agent-sandbox: {}\n",
                        one_line(&format!("{error:#}"))
                    ));
                    Vec::new()
                });
            }
        }
    }
    let first = serde_json::to_string(&ask).context("cannot write what is asked")?;
    let error = Command::new(&program).arg(first).args(command).exec();
    Err(error).with_context(|| format!("cannot start `{}`", program.display()))
}

/// Notes of users about steps without a trace, for a report of what is asked for, each user's no more than a fair part.
fn notes(users: Vec<User>, which: Option<&str>) -> Result<Vec<Untraced>> {
    let word = which.map(|word| word.split('@').next().unwrap_or(word));
    let mut all = users::read(users, |user| {
        let mut notes = untraced::all(&user.state());
        notes.retain(|note| {
            word.is_none_or(|word| note.session == word || note.job.to_string() == word)
        });
        Ok(notes)
    })?;
    all.retain(|(_, notes)| !notes.is_empty());
    let part = untraced::MOST_NOTES
        .checked_div(all.len())
        .unwrap_or_default();
    let noted = all.into_iter().flat_map(|(user, notes)| {
        let uid = Some(user.uid);
        let own = notes.into_iter().take(part);
        own.map(move |note| Untraced { uid, ..note })
    });
    Ok(noted.collect())
}
