//! The answer of `agent-sandbox sessions`.

use anyhow::Result;

use super::lines::Of;
use super::print::{print, print_json};
use super::{across, summary};
use crate::cli::{Options, Wanted};
use crate::failure::one_line;
use crate::host;
use crate::session::{self, Record};
use crate::users::{self, Known};

pub(super) fn list(options: &Options, wanted: &Wanted) -> Result<()> {
    if wanted.is_of_the_past() {
        return summary::list(options, wanted);
    }
    let users = users::meant(wanted.user.as_deref(), Known::Running)?;
    if wanted.all && users.is_none() {
        return Err(across::not_root().into());
    }
    let several = users.is_some();
    let mut all: Vec<Of<Record>> = match users {
        None => own()?.into_iter().map(Of::own).collect(),
        Some(users) => {
            let found = users::read(users, |user| {
                session::running(&session::directory(user.uid, &user.state()))
            })?;
            let mut all = Vec::new();
            for (user, mut records) in found {
                // A process has one record; of more the others are made up.
                records.sort_unstable_by_key(|record| record.pid);
                records.dedup_by_key(|record| record.pid);
                records.retain(|record| record.is_of(user.uid));
                all.extend(records.into_iter().map(|what| Of {
                    user: Some(user.name.clone()),
                    root: false,
                    what,
                }));
            }
            all.sort_unstable_by_key(|one| (one.what.started, one.what.pid));
            all
        }
    };
    let project = across::Project::new(wanted);
    all.retain(|one| project.is(&one.what.project));
    if options.json {
        return print_json(&serde_json::to_value(&all)?);
    }
    if all.is_empty() {
        return print("no session runs on this node\n");
    }
    let whose = |user: &str| match several {
        true => format!("{user:<16} "),
        false => String::new(),
    };
    let mut text = format!(
        "{}{:<10} {:>8} {:>9}  {:<16} PROJECT\n",
        whose("USER"),
        "SESSION",
        "PID",
        "RUNNING",
        "COMMAND"
    );
    let now = session::now();
    for Of {
        user, what: record, ..
    } in &all
    {
        let running = duration(now.saturating_sub(record.started));
        let (id, pid, command) = (&record.id, record.pid, &record.command);
        let line = format!(
            "{}{id:<10} {pid:>8} {running:>9}  {command:<16} {}",
            whose(user.as_deref().unwrap_or_default()),
            record.project.display()
        );
        text.push_str(&one_line(&line));
        text.push('\n');
        for (port, socket) in &record.forward {
            let line = format!("{:<10} port {port} inside: {}", "", socket.display());
            text.push_str(&one_line(&line));
            text.push('\n');
        }
    }
    print(&text)
}

fn own() -> Result<Vec<Record>> {
    let (_, directories) = host::directories(None)?;
    let uid = nix::unistd::Uid::current().as_raw();
    session::running(&session::directory(uid, &directories.state))
}

/// Seconds in the form of `squeue`: `[D-]HH:MM:SS`, leading zeros left away.
fn duration(seconds: u64) -> String {
    let (days, hours, minutes, rest) = (
        seconds / 86400,
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60,
    );
    match (days, hours) {
        (0, 0) => format!("{minutes}:{rest:02}"),
        (0, _) => format!("{hours}:{minutes:02}:{rest:02}"),
        _ => format!("{days}-{hours:02}:{minutes:02}:{rest:02}"),
    }
}
