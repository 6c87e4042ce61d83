//! What the process that becomes the command takes from itself before it does.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;

use super::streams;
use crate::backend::landlock::access::Fence;
use crate::backend::landlock::restrict;
use crate::handoff::Run;
use crate::sys::{fds, passing, paths, privileges, process, sockets};

/// What goes to the mediator with the listener.
const LISTENER: &[u8] = b"l";

/// Confines this process as ordered and enters the current directory, which is the answer. `parent`
/// is the process that forked this one.
///
/// # Errors
/// A sentence: what could not be done.
pub(super) fn confine(run: &Run, parent: Pid) -> Result<&[u8], String> {
    if let Some(most) = run.confinement.max_processes {
        let (_, hard) =
            getrlimit(Resource::RLIMIT_NPROC).map_err(|error| format!("getrlimit: {error}"))?;
        let most = most.min(hard);
        setrlimit(Resource::RLIMIT_NPROC, most, most)
            .map_err(|error| format!("cannot limit processes: {error}"))?;
    }
    streams::clear(&run.streams).map_err(|error| format!("cannot open `/dev/null`: {error}"))?;
    if let Some(fence) = &run.confinement.fence {
        let cwd = enter(run)?;
        set_umask(run);
        fence_in(fence, parent)?;
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
    let cwd = enter(run)?;
    set_umask(run);
    default_signals()?;
    Ok(cwd)
}

fn set_umask(run: &Run) {
    if let Some(mask) = run.umask {
        nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(mask));
    }
}

fn default_signals() -> Result<(), String> {
    process::default_signals().map_err(|error| format!("cannot reset the signals: {error}"))
}

/// Confines this process by Landlock and two filters, whose handing over begins before the first
/// path that the agent chose is opened.
fn fence_in(fence: &Fence, parent: Pid) -> Result<(), String> {
    let failed = |what: &str, error: std::io::Error| format!("cannot {what}: {error}");
    privileges::end_with_parent(Some(parent))
        .map_err(|error| failed("bind the command to its parent", error))?;
    // No mount keeps the command from what it is given as an open file.
    fds::close_on_exec_from(3).map_err(|error| failed("keep descriptors back", error))?;
    refuse_datagrams()?;
    let mediator =
        fds::inherited(fence.mediator).map_err(|error| failed("reach the mediator", error))?;
    privileges::drop_held().map_err(|error| failed("give capabilities up", error))?;
    privileges::no_new_privileges().map_err(|error| failed("set no_new_privs", error))?;
    restrict::restrict(&fence.rules, fence.abi)?;
    // What forked this process cannot be traced, and so this one cannot either: the mediator could
    // not read the paths that it opens. From here on nobody else inside can, for Landlock keeps those
    // of another domain from it, and in this domain there is nobody yet.
    nix::sys::prctl::set_dumpable(true)
        .map_err(|error| failed("make the command dumpable", error.into()))?;
    privileges::filter(&fence.filter)
        .map_err(|error| failed("install the seccomp filter", error))?;
    let listener = privileges::filter_with_listener(&fence.handing_over)
        .map_err(|error| failed("install the seccomp filter of the mediator", error))?;
    passing::send(&mediator, LISTENER, Some(listener.as_fd()))
        .map_err(|error| failed("reach the mediator", error))
}

/// A datagram socket sends to any address that it is told, past the mediator. The command can make
/// none, and must not be given one.
fn refuse_datagrams() -> Result<(), String> {
    for (number, name) in (0..).zip(["input", "output", "error"]) {
        // Only what is a socket has a domain.
        let is_local = sockets::option(number, libc::SO_DOMAIN).ok() == Some(libc::AF_UNIX);
        if is_local && sockets::option(number, libc::SO_TYPE).ok() == Some(libc::SOCK_DGRAM) {
            return Err(format!(
                "standard {name} is a local datagram socket, which reaches every service of yours; \
                 give the command a file, a pipe or a terminal"
            ));
        }
    }
    Ok(())
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
    use ::landlock::{
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
