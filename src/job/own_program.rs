//! What a task stands on. It is started on the host, and its process becomes the command without a
//! program of ours in between. So `/proc/self/exe` leads to our program on the mount from which it
//! was started, and a program that belongs to the user could be changed there, from inside.

use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, Result, bail};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, access, getuid};

use crate::failure::Failure;
use crate::sys::{mounts, process};

const PROGRAM: &str = "/proc/self/exe";

/// Runs the program again from a read-only mount of its own, if its user could change it otherwise.
/// Returns once it is out of reach.
///
/// # Errors
/// There can be no such mount; nothing may be started then.
pub fn make_sure() -> Result<()> {
    let out_of_reach = statvfs(PROGRAM)?.flags().contains(FsFlags::ST_RDONLY);
    let others = std::fs::metadata(PROGRAM)?.uid() != getuid().as_raw()
        && access(PROGRAM, AccessFlags::W_OK).is_err();
    if out_of_reach || others {
        return Ok(());
    }
    again().map_err(|error| {
        Failure::new(format!(
            "the program belongs to you, and cannot be kept from its own tasks: {error:#}"
        ))
        .hint(
            "admin: install agent-sandbox as root, or run Linux 5.12 or newer with user namespaces",
        )
        .into()
    })
}

fn again() -> Result<()> {
    let named = std::env::current_exe().context("cannot find it")?;
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    let program: OwnedFd = open(&named, flags, Mode::empty()).context("cannot open it")?;
    let clone = mounts::detached(program.as_fd(), mounts::Lets::Read)
        .context("cannot mount it read-only")?;
    let word = |text: OsString| CString::new(text.into_vec());
    let arguments = std::env::args_os().skip(1);
    // A program without a name finds its own in its first argument.
    let argv: Vec<CString> = std::iter::once(named.into_os_string())
        .chain(arguments)
        .map(word)
        .collect::<Result<_, _>>()?;
    let environment: Vec<CString> = std::env::vars_os()
        .map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()))
        .collect::<Result<_, _>>()?;
    let error = process::exec_descriptor(&clone, &argv, &environment);
    bail!("cannot run it from there: {error}")
}
