//! The script: where it comes from, and what sbatch itself would say about it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::message::Source;
use bstr::ByteSlice;

use crate::conn::Unanswered;
use crate::refusal::Refusal;
use crate::session::Session;
use crate::slurm::ask::Stop;
use crate::slurm::parse::Parsed;
use crate::slurm::request::Context;
use crate::slurm::submit::directory::{self, LONGEST_PATH};
use crate::slurm::submit::own_words::job_name;
use crate::spawn::{self, Start};

/// The largest script that slurmctld takes where `max_script_size` (`slurm.conf(5)`,
/// `SchedulerParameters`) says nothing, in bytes.
const LARGEST_BY_DEFAULT: usize = 4 << 20;

/// The largest script that is read at all, in bytes, so that an error can say how large it is.
const LARGEST_READ: usize = 16 << 20;

/// Directories in PATH that are looked through.
const MOST_DIRECTORIES: usize = 64;

/// A batch script.
#[derive(Debug)]
pub(super) struct Script {
    /// The text.
    pub content: Vec<u8>,
    /// Its arguments.
    pub arguments: Vec<Vec<u8>>,
    /// The name of a job that gets none.
    pub name: OsString,
    /// Its path, if it is a file.
    pub path: Option<PathBuf>,
}

/// Finds the script and reads it.
///
/// # Errors
/// There is none, or it is none, in sbatch's own words; or the shim ends.
pub(super) async fn find(context: &mut Context<'_>, parsed: &Parsed) -> Result<Script, Stop> {
    let operands = parsed.operands.clone();
    if let Some(text) = parsed.value("wrap") {
        if !operands.is_empty() {
            return Err(
                Refusal::mistake("Script arguments not permitted with --wrap option").into(),
            );
        }
        return Ok(Script {
            content: wrapped(text),
            arguments: Vec::new(),
            name: "wrap".into(),
            path: None,
        });
    }
    let (content, path) = match operands.first() {
        None => match context.conn.fetch(Source::Input, LARGEST_READ).await {
            Ok(content) => (content, None),
            Err(Unanswered::Failed(libc::EISDIR)) => (Vec::new(), None),
            Err(Unanswered::Failed(errno)) => {
                return Err(unreadable("standard input", errno).into());
            }
            Err(Unanswered::TooLong) => return Err(too_large(None, LARGEST_BY_DEFAULT).into()),
            Err(other) => return Err(Stop::Ended(other.end())),
        },
        Some(named) if named.len() >= LONGEST_PATH => {
            return Err(directory::too_long("script").into());
        }
        Some(named) => {
            let (content, path) = read_file(context, parsed, named).await?;
            (content, Some(path))
        }
    };
    check(&content)?;
    let named = path.as_deref().and_then(Path::file_name);
    Ok(Script {
        content,
        name: job_name(named.unwrap_or(OsStr::new("sbatch"))),
        arguments: operands
            .into_iter()
            .skip(1)
            .map(|word| word.as_bytes().to_vec())
            .collect(),
        path,
    })
}

/// `--wrap` makes this script (`sbatch(1)`; `_script_wrap()` in `src/sbatch/sbatch.c`).
fn wrapped(text: &OsStr) -> Vec<u8> {
    [
        b"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n",
        text.as_bytes(),
        b"\n\n",
    ]
    .concat()
}

/// Reads the script of this name: in the job's directory, and else in the directories of PATH.
async fn read_file(
    context: &mut Context<'_>,
    parsed: &Parsed,
    named: &OsStr,
) -> Result<(Vec<u8>, PathBuf), Stop> {
    let failed = |path: &Path| {
        let path = path.to_string_lossy();
        Refusal::mistake(format!("Unable to open file {}", path.escape_debug()))
    };
    let mut unreadable = None;
    for path in candidates(context, parsed, named)? {
        let source = Source::File(path.as_os_str().as_bytes().to_vec());
        match context.conn.fetch(source, LARGEST_READ).await {
            Ok(content) => return Ok((content, path)),
            // What sbatch finds in a directory.
            Err(Unanswered::Failed(libc::EISDIR)) => return Ok((Vec::new(), path)),
            Err(Unanswered::TooLong) => return Err(too_large(None, LARGEST_BY_DEFAULT).into()),
            Err(Unanswered::Failed(libc::ENOENT | libc::ENOTDIR)) => {}
            Err(Unanswered::Failed(_)) => unreadable = unreadable.or(Some(path)),
            Err(other) => return Err(Stop::Ended(other.end())),
        }
    }
    Err(failed(unreadable.as_deref().unwrap_or(Path::new(named))).into())
}

/// Where a script of this name may be, in sbatch's order (`search_path()` in
/// `src/common/slurm_opt.c`): a name that begins with a dot below the current directory, and others
/// in the job's directory, in the directories of PATH, and then in the current directory.
fn candidates(
    context: &Context<'_>,
    parsed: &Parsed,
    named: &OsStr,
) -> Result<Vec<PathBuf>, Refusal> {
    let named = Path::new(named);
    if named.is_absolute() {
        return Ok(vec![named.to_owned()]);
    }
    let here = context.request.cwd.join(named);
    if named.as_os_str().as_bytes().starts_with(b".") {
        return Ok(vec![here]);
    }
    let mut all = vec![directory::of(&context.request.cwd, parsed.value("chdir"))?.join(named)];
    let path = context.request.environment.iter();
    let path = path.filter(|(name, _)| name == "PATH");
    all.extend(
        path.flat_map(|(_, directories)| std::env::split_paths(directories))
            .filter(|directory| directory.is_absolute())
            .take(MOST_DIRECTORIES)
            .map(|directory| directory.join(named)),
    );
    // What the search does not find is opened by its name.
    if all[0] != here {
        all.push(here);
    }
    Ok(all)
}

/// What sbatch says about scripts that are none (`src/sbatch/sbatch.c`, 22.05).
fn check(content: &[u8]) -> Result<(), Refusal> {
    let text = content.split(|&byte| byte == 0).next().unwrap_or_default();
    if content.is_empty() {
        return Err(Refusal::mistake("Batch script is empty!"));
    }
    if text
        .iter()
        .all(|byte| byte.is_ascii_whitespace() || *byte == 0x0b)
    {
        return Err(Refusal::mistake("Batch script contains only whitespace!"));
    }
    if !content.starts_with(b"#!") {
        return Err(Refusal::mistake(
            "This does not look like a batch script.  The first\n\
             sbatch: error: line must start with #! followed by the path to an interpreter.\n\
             sbatch: error: For instance: #!/bin/sh",
        ));
    }
    if content.contains(&0) {
        return Err(Refusal::mistake(
            "The Slurm controller does not allow scripts that\n\
             sbatch: error: contain a NULL character '\\0'.",
        ));
    }
    if content.contains_str("\r\n") {
        return Err(Refusal::mistake(
            "Batch script contains DOS line breaks (\\r\\n)\n\
             sbatch: error: instead of expected UNIX line breaks (\\n).",
        ));
    }
    Ok(())
}

fn unreadable(what: &str, errno: i32) -> Refusal {
    let why = nix::errno::Errno::from_raw(errno).desc();
    Refusal::mistake(format!("cannot read {what}: {why}"))
}

/// Makes sure that slurmctld takes a script of `size` bytes that has become a capsule of `packed`.
///
/// # Errors
/// It is too large.
pub(super) async fn check_size(
    session: &Session,
    size: usize,
    packed: usize,
) -> Result<(), Refusal> {
    if size.max(packed) < LARGEST_BY_DEFAULT {
        return Ok(());
    }
    let most = largest(session).await?;
    if size >= most {
        return Err(too_large(Some(size), most));
    }
    if packed >= most {
        return Err(Refusal::mistake(format!(
            "Batch job submission failed: the script and its environment make a capsule of \
             {packed} bytes; this cluster takes {most} (max_script_size)"
        ))
        .hint("keep data in files, and leave large variables out with --export"));
    }
    Ok(())
}

fn too_large(size: Option<usize>, most: usize) -> Refusal {
    let size = match size {
        Some(size) => format!("{size} bytes"),
        None => format!("more than {LARGEST_READ} bytes"),
    };
    Refusal::mistake(
        "Batch job submission failed: Pathname of a file, directory or other parameter too long",
    )
    .hint(format!(
        "the script has {size}; this cluster takes {most} (max_script_size)"
    ))
}

async fn largest(session: &Session) -> Result<usize, Refusal> {
    let words = ["show", "config"].map(OsString::from).to_vec();
    let said = spawn::capture(session, Start::query(Command::Scontrol, words), &[]).await?;
    let text = String::from_utf8_lossy(&said.output);
    let parameters = text
        .lines()
        .find(|line| line.starts_with("SchedulerParameters"))
        .and_then(|line| line.split_once('='))
        .map_or("", |(_, value)| value);
    let size = parameters
        .split(',')
        .find_map(|one| one.trim().strip_prefix("max_script_size="))
        .and_then(|size| size.parse().ok());
    Ok(size.unwrap_or(LARGEST_BY_DEFAULT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(content: &[u8]) -> String {
        check(content).map_or_else(|refusal| refusal.message, |()| String::new())
    }

    /// Seen with sbatch 22.05.
    #[test]
    fn scripts_that_are_none() {
        assert_eq!(said(b""), "Batch script is empty!");
        assert_eq!(said(b"\n\n"), "Batch script contains only whitespace!");
        assert_eq!(said(b"\0\0\0"), "Batch script contains only whitespace!");
        assert!(said(b"echo hi\n").starts_with("This does not look like a batch script."));
        assert!(said(b"  \n#!/bin/sh\n").starts_with("This does not look like a batch script."));
        assert!(said(b"#!/bin/sh\necho a\0b\n").contains("NULL character"));
        assert!(said(b"#!/bin/sh\r\necho\r\n").contains("DOS line breaks"));
        assert_eq!(said(b"#!/bin/sh\necho a"), "");
        assert_eq!(said(b"#!/usr/bin/env python3\nprint(1)\n"), "");
    }

    #[test]
    fn a_wrapped_command_is_the_script_that_slurm_makes() {
        assert_eq!(
            wrapped(OsStr::new("hostname; exit 3")),
            b"#!/bin/sh\n# This script was created by sbatch --wrap.\n\nhostname; exit 3\n\n"
        );
    }
}
