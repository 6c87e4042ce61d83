//! Steps of traced sessions that ran without a trace, as no tracer took them: noted beside the session's other records, so that
//! a report does not seem to be of all that ran.
#![allow(
    clippy::disallowed_methods,
    reason = "an effect module: it writes and reads notes in the state directory"
)]

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use agent_sandbox_events::ask::Untraced;

use crate::plan::model::trace::TraceRequest;

/// Below the state directory, which no jail sees: a file for each session.
const NOTES: &str = "untraced";
/// Of one session so much is read, in bytes: some thousand steps.
const MOST_BYTES: u64 = 256 << 10;
/// Notes of so many sessions are told: more is no argument of a program.
pub const MOST_NOTES: usize = 500;

/// Notes that a step runs without a trace, if its session was traced. What cannot be written is not said: it is no reason to
/// keep the step from running.
pub fn note(state: &Path, request: &TraceRequest) {
    let (true, Some((job, step))) = (request.held, &request.step) else {
        return;
    };
    // It becomes the name of a file, and came with the job.
    let plain = |byte: u8| byte.is_ascii_alphanumeric();
    if request.session.is_empty() || !request.session.bytes().all(plain) {
        return;
    }
    let node = nix::unistd::gethostname().unwrap_or_default().into_vec();
    let untraced = Untraced {
        session: request.session.clone(),
        job: *job,
        step: step.clone(),
        node: String::from_utf8_lossy(&node).into_owned(),
        uid: None,
    };
    let _ = append(&state.join(NOTES), &untraced);
}

fn append(directory: &Path, untraced: &Untraced) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let mut line = serde_json::to_vec(untraced)?;
    line.push(b'\n');
    // One write of a short line: those of other nodes' steps are not mixed with it.
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(directory.join(&untraced.session))?
        .write_all(&line)
}

/// What was noted, each step of a node once.
pub fn all(state: &Path) -> Vec<Untraced> {
    let entries = std::fs::read_dir(state.join(NOTES)).into_iter().flatten();
    let mut all = Vec::new();
    for entry in entries.flatten() {
        let mut text = String::new();
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(entry.path());
        if file.is_ok_and(|file| file.take(MOST_BYTES).read_to_string(&mut text).is_ok()) {
            let notes = text.lines().map(serde_json::from_str::<Untraced>);
            all.extend(notes.filter_map(Result::ok));
        }
    }
    // They travel as an argument, and somebody else may have written them.
    all.retain(|one| {
        let texts = [(&one.session, 32), (&one.step, 32), (&one.node, 64)];
        let plain = |byte: u8| byte.is_ascii_graphic() && !b"\"\\".contains(&byte);
        let fits = |&(text, most): &(&String, usize)| text.len() <= most && text.bytes().all(plain);
        texts.iter().all(fits)
    });
    all.sort_unstable();
    all.dedup();
    // Later jobs have larger numbers.
    all.sort_by_key(|one| std::cmp::Reverse(one.job));
    all.truncate(MOST_NOTES);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_that_somebody_else_wrote_are_no_notes() {
        let state = tempfile::tempdir().unwrap();
        let notes = state.path().join(NOTES);
        std::fs::create_dir(&notes).unwrap();
        let line = |step: &str, node: &str| {
            format!("{{\"session\":\"s\",\"job\":4,\"step\":\"{step}\",\"node\":\"{node}\"}}\n")
        };
        let own = line("batch", "n01.cluster");
        let others = [
            line(&"A".repeat(150_000), "n"),
            line("0", "\\u001b[2J"),
            line("0", "n\\n"),
        ];
        std::fs::write(notes.join("s"), own + &others.concat()).unwrap();
        let nodes: Vec<String> = all(state.path()).into_iter().map(|one| one.node).collect();
        assert_eq!(nodes, ["n01.cluster"]);
    }
}
