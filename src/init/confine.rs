//! What the process that becomes the command takes from itself before it does.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;

use super::{streams, walk};
use crate::handoff::{Least, Run};
use crate::sys::{paths, process, remote};

/// What confines the command.
#[derive(Clone, Copy)]
pub enum ConfinedBy<'a> {
    /// The jail in which this process is already: bubblewrap's, or one that it has joined.
    Jail,
    /// The process that becomes the command does it, once it is in its directory. The function gets the process that
    /// forked it, and fails with a sentence.
    Itself(&'a dyn Fn(Pid) -> Result<(), String>),
}

/// Confines this process as ordered, and enters the current directory, which is the answer. `parent` is the process that
/// forked this one.
///
/// # Errors
/// A sentence: what could not be done.
pub(super) fn confine<'a>(
    run: &'a Run,
    parent: Pid,
    by: ConfinedBy<'_>,
) -> Result<&'a [u8], String> {
    if let Some(most) = run.confinement.max_processes {
        let (_, hard) =
            getrlimit(Resource::RLIMIT_NPROC).map_err(|error| format!("getrlimit: {error}"))?;
        let most = most.min(hard);
        setrlimit(Resource::RLIMIT_NPROC, most, most)
            .map_err(|error| format!("cannot limit processes: {error}"))?;
    }
    if let Some(least) = &run.confinement.least {
        take_less(least).map_err(|error| format!("cannot limit the command: {error}"))?;
    }
    streams::clear(&run.streams).map_err(|error| format!("cannot open `/dev/null`: {error}"))?;
    if let ConfinedBy::Itself(itself) = by {
        let cwd = enter(run)?;
        set_umask(run);
        if let Some(places) = &run.confinement.listed {
            walk::only(places)?;
        }
        itself(parent)?;
        default_signals()?;
        return Ok(cwd);
    }
    if run.confinement.scoped_signals {
        scope(
            run.confinement.scoped_sockets,
            run.confinement.writable.as_deref(),
        )
        .map_err(|error| format!("cannot confine the command with Landlock: {error}"))?;
    }
    if let Some(places) = &run.confinement.listed {
        walk::only(places)?;
    }
    let cwd = enter(run)?;
    set_umask(run);
    default_signals()?;
    Ok(cwd)
}

/// Takes of this process, and of all that it starts, what stands in for limits of the whole jail.
fn take_less(least: &Least) -> std::io::Result<()> {
    if let Some(most) = least.data {
        let (_, hard) = getrlimit(Resource::RLIMIT_DATA)?;
        let most = most.min(hard);
        setrlimit(Resource::RLIMIT_DATA, most, most)?;
    }
    if let Some(more) = least.nicer {
        // Nobody inside may take it back, whatever the user may.
        setrlimit(Resource::RLIMIT_NICE, 0, 0)?;
        remote::set_nice(0, (remote::nice(0)? + more).min(NICEST))?;
    }
    if least.idle_disk {
        remote::set_io_priority(0, LAST_OF_USUAL)?;
    }
    Ok(())
}

/// The highest nice value (`setpriority(2)`).
const NICEST: i32 = 19;
/// The last of the usual class: `IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, 7)`, include/uapi/linux/ioprio.h.
const LAST_OF_USUAL: i32 = (2 << 13) | 7;

fn set_umask(run: &Run) {
    if let Some(mask) = run.umask {
        nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(mask));
    }
}

fn default_signals() -> Result<(), String> {
    process::default_signals().map_err(|error| format!("cannot reset the signals: {error}"))
}

fn enter(run: &Run) -> Result<&[u8], String> {
    let change = |bytes: &[u8]| {
        let path = Path::new(OsStr::from_bytes(bytes));
        std::env::set_current_dir(path)
            .map_err(|error| format!("cannot change into `{}`: {error}", path.display()))
    };
    match (change(&run.cwd), &run.cwd_else) {
        (Ok(()), _) => Ok(&run.cwd),
        (Err(_), Some(other)) => change(other).map(|()| other.as_slice()),
        (Err(reason), None) => Err(reason),
    }
}

/// Keeps the command from processes outside and, if so ordered, from abstract unix sockets (Landlock
/// ABI 6), and from writing anywhere but below `writable`.
fn scope(sockets: bool, writable: Option<&[Vec<u8>]>) -> Result<(), Box<dyn std::error::Error>> {
    use landlock::{
        ABI, AccessFs, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
        RulesetCreatedAttr, Scope,
    };
    // Without the right on ioctl(2) of ABI 5: devices are chosen by the mounts.
    let write = AccessFs::from_write(ABI::V3);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(if sockets {
            Scope::AbstractUnixSocket | Scope::Signal
        } else {
            Scope::Signal.into()
        })?;
    if writable.is_some() {
        rules = rules.handle_access(write)?;
    }
    let mut rules = rules.create()?;
    for path in writable.unwrap_or_default() {
        let file = paths::path_only(Path::new(OsStr::from_bytes(path)), OFlag::empty())?;
        let rights = if file.metadata()?.is_dir() {
            write
        } else {
            write & AccessFs::from_file(ABI::V3)
        };
        rules = rules.add_rule(PathBeneath::new(file, rights))?;
    }
    if writable.is_some() {
        // Programs write to /dev/stdout and /dev/stderr, which open the file behind them anew.
        // Pipes and sockets need no rule.
        for stream in [0, 1, 2] {
            let behind = format!("/proc/self/fd/{stream}");
            let Ok(file) = paths::path_only(Path::new(&behind), OFlag::empty()) else {
                continue;
            };
            let kind = file.metadata()?.file_type();
            let output = stream != 0 && kind.is_file();
            if output || kind.is_char_device() {
                rules =
                    rules.add_rule(PathBeneath::new(file, write & AccessFs::from_file(ABI::V3)))?;
            }
        }
    }
    rules.restrict_self()?;
    Ok(())
}
