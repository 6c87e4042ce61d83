//! The files of srun's streams: opened in the jail, by the shim or by the tasks.

use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use agent_sandbox_wire::capsule::Streams;
use agent_sandbox_wire::message::How;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};

use crate::closing::Received;
use crate::conn::Unanswered;
use crate::refusal::Refusal;
use crate::slurm::ask::Stop;
use crate::slurm::parse::Parsed;
use crate::slurm::request::Context;
use crate::slurm::submit::streams::{Known, Target, appends, for_release};

/// Where the streams lead.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// Words for srun.
    pub words: Vec<OsString>,
    /// Files that srun keeps open, under the numbers in its words.
    pub kept: Vec<Received>,
    /// What the tasks open.
    pub streams: Streams,
}

/// Has the files opened that are opened here.
///
/// # Errors
/// One cannot be opened, in srun's own words; or the shim ends.
pub(super) async fn arrange(
    context: &mut Context<'_>,
    parsed: &Parsed,
    known: &Known,
) -> Result<Files, Stop> {
    let release = context.table().await?.release;
    let target = |long: &str| {
        let name = parsed.value(long).map(OsStrExt::as_bytes);
        known.target(name.map(|name| for_release(name, release)).as_deref())
    };
    let targets = [target("input"), target("output"), target("error")];
    let names = ["input", "output", "error"];
    let any = names.iter().any(|name| parsed.has(name));
    if any && parsed.has("pty") {
        return Err(
            Refusal::mistake("--error/--input/--output are incompatible with --pty").into(),
        );
    }
    let append = appends(parsed);
    let write = if append { How::Append } else { How::Truncate };
    let mut files = Files::default();
    files.streams.append = append;
    let per_task = matches!(targets[1], Target::PerTask { .. });
    for (at, (target, name)) in targets.into_iter().zip(names).enumerate() {
        let asked = parsed.has(name);
        let word = match target {
            Target::Shared if !asked => continue,
            Target::Shared => "all".to_owned(),
            Target::Nowhere => "none".to_owned(),
            Target::Task(task) => task.to_string(),
            Target::File(path) => {
                let how = if at == 0 { How::Read } else { write };
                let file = match context.conn.open_inside(&path, how).await {
                    Ok(file) => file,
                    Err(Unanswered::Failed(errno)) => {
                        return Err(Refusal::mistake(format!(
                            "Could not open std{} file: {}",
                            ["in", "out", "err"][at],
                            Errno::from_raw(errno).desc()
                        ))
                        .into());
                    }
                    Err(other) => return Err(Stop::Ended(other.end())),
                };
                may(&file, how)?;
                let word = format!("/dev/fd/{}", file.as_raw_fd());
                files.kept.push(file);
                word
            }
            Target::PerTask { pattern, shared } => {
                files.streams.append |= shared;
                let pattern = if shared && parsed.has("chdir") {
                    here(&context.request.cwd, pattern)
                } else {
                    pattern
                };
                let stream = match at {
                    0 => &mut files.streams.input,
                    1 => &mut files.streams.output,
                    _ => &mut files.streams.error,
                };
                *stream = Some(pattern);
                // The tasks read nothing else then.
                match at {
                    0 => "none".to_owned(),
                    _ => continue,
                }
            }
        };
        if at == 2 && per_task {
            // Otherwise it would follow the output. What srun does with it is in its word.
            files.streams.error = Some(Vec::new());
        }
        files.words.push(format!("--{name}={word}").into());
    }
    if !files.kept.is_empty() {
        // They were emptied when they were opened, if they were to be.
        files.words.push("--open-mode=append".into());
    }
    Ok(files)
}

/// A file that srun itself would open, where srun is called: the tasks, who know the job's number, are
/// elsewhere. A backslash would switch patterns off.
fn here(cwd: &Path, pattern: Vec<u8>) -> Vec<u8> {
    let cwd = cwd.as_os_str().as_bytes();
    if pattern.starts_with(b"/") || cwd.contains(&b'\\') {
        return pattern;
    }
    let mut all = Vec::with_capacity(cwd.len() + pattern.len() + 1);
    for &byte in cwd {
        all.extend_from_slice(if byte == b'%' {
            b"%%"
        } else {
            std::slice::from_ref(&byte)
        });
    }
    all.push(b'/');
    all.extend(pattern);
    all
}

/// Makes sure that a descriptor allows what srun will do with it. srun opens it anew by its
/// number, on the chaperon's side of the jail: that must gain nothing.
fn may(file: &Received, how: How) -> Result<(), Refusal> {
    let flags = fcntl(file, FcntlArg::F_GETFL).map(OFlag::from_bits_retain);
    let allowed = flags.is_ok_and(|flags| {
        let access = flags & OFlag::O_ACCMODE;
        let wanted = match how {
            How::Read => OFlag::O_RDONLY,
            How::Truncate | How::Append => OFlag::O_WRONLY,
        };
        !flags.contains(OFlag::O_PATH) && (access == wanted || access == OFlag::O_RDWR)
    });
    if allowed {
        return Ok(());
    }
    Err(Refusal::rule(
        "a file of srun's is refused: this process has it not open for that (reading, or writing)",
        "redirect from a file that can be read, and to one that can be written",
    ))
}
