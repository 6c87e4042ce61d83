//! A command inside the jail: started, and stood by.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::sys::signalfd::SignalFd;
use nix::sys::socket::MsgFlags;
use nix::unistd::Pid;

use super::attend::Attendance;
use super::confine::ConfinedBy;
use super::control::{Control, FAILED};
use super::{confine, execute, gone, streams, watched};
use crate::handoff::{ErrorStream, Mediated, Report, Request, Run};
use crate::sys::namespaces::{self, Kind};
use crate::sys::{fds, passing, privileges, process};

/// What the child and the process that stands by it say to each other, of a command that is held.
const WORD: &[u8] = b"h";

/// The longest path that is told of, in bytes (`PATH_MAX`); the agent may have written any.
const LONGEST_PATH: usize = 4096;

/// Starts the command and stands by it to its end; the exit code.
///
/// # Errors
/// A sentence: what kept it from being started.
pub(super) fn attend(
    control: &Control,
    signals: &SignalFd,
    run: &Run,
    by: ConfinedBy<'_>,
) -> Result<i32, String> {
    // On this pair the child passes the standard error that it opened.
    let (ours, theirs) =
        passing::pair().map_err(|error| format!("cannot make a pair of sockets: {error}"))?;
    if !run.held {
        control.send(&Report::Ready);
    }
    let parent = nix::unistd::getpid();
    match process::fork().map_err(|error| format!("cannot fork: {error}"))? {
        process::Side::Child => {
            drop(ours);
            become_command(control, run, theirs, (parent, by))
        }
        process::Side::Parent(command) => {
            drop(theirs);
            let early = match run.held {
                true => hold(control, &ours, run.lends_network)?,
                false => Some(Vec::new()),
            };
            // The launcher does not want it any more, or is gone: so will be whoever waits.
            let Some(early) = early else {
                return Ok(FAILED);
            };
            let opens = run.streams.error != ErrorStream::AsItComes;
            let code = Attendance::new(control, signals, command, run.by_slurm)
                .without_pid_namespace(matches!(by, ConfinedBy::Itself(_)))
                .with_errors(opens.then_some(ours))
                .with_early(early)
                .run();
            if let Some(watch) = &run.confinement.watch {
                watched::tell_what_is_left(control, watch);
            }
            if let Some(home) = &run.home {
                let places = gone::of(Path::new(OsStr::from_bytes(home)));
                if !places.is_empty() {
                    control.send(&Report::Gone(places));
                }
            }
            Ok(code)
        }
    }
}

/// Holds the child where it has confined itself, until the launcher lets it go on. The answer is what the launcher
/// asked before that, which is then for the command; `None` if it does not let it go on.
///
/// # Errors
/// A sentence: the network cannot be lent.
fn hold(
    control: &Control,
    child: &OwnedFd,
    lends_network: bool,
) -> Result<Option<Vec<Request>>, String> {
    let mut word = [0; 1];
    match passing::receive(child, &mut word, MsgFlags::empty()) {
        Ok((1.., _)) => {}
        // It has said why, and ends.
        _ => return Ok(Some(Vec::new())),
    }
    match lends_network {
        false => control.send(&Report::Held),
        true => {
            let network = namespaces::own(Kind::Network)
                .map_err(|error| format!("cannot open the jail's network namespace: {error}"))?;
            control.send_with(&Report::Held, Some(network.as_fd()));
        }
    }
    let mut early = Vec::new();
    loop {
        match control.receive() {
            None => return Ok(None),
            Some(Request::Go) => break,
            Some(other) => early.push(other),
        }
    }
    control.send(&Report::Ready);
    // Without it the child ends, which is seen.
    let _ = passing::send(child, WORD, None);
    Ok(Some(early))
}

/// In the child: waits until it may go on.
fn wait_to_go(init: &OwnedFd) {
    let mut word = [0; 1];
    let told = passing::send(init, WORD, None)
        .and_then(|()| passing::receive(init, &mut word, MsgFlags::empty()));
    if !matches!(told, Ok((1.., _))) {
        process::exit_now(FAILED);
    }
}

/// Installs the filter that hands calls over, and passes its listener to the launcher. Where the kernel,
/// or a container around the jail, has no such filter, those calls are refused that the kernel must not
/// judge.
///
/// # Errors
/// Neither filter can be installed.
fn hand_over(control: &Control, mediated: &Mediated) -> std::io::Result<()> {
    match privileges::filter_with_listener(&mediated.handing_over) {
        Ok(listener) => {
            // By a call that the filter lets through.
            control.send_with(&Report::Mediated, Some(listener.as_fd()));
            Ok(())
        }
        Err(_) => privileges::filter(&mediated.refusing),
    }
}

/// The child: becomes the command.
fn become_command(
    control: &Control,
    run: &Run,
    init: OwnedFd,
    (parent, by): (Pid, ConfinedBy<'_>),
) -> ! {
    let cwd = match confine::confine(run, parent, by) {
        Ok(cwd) => cwd,
        Err(reason) => {
            control.send(&Report::Refused(reason));
            process::exit_now(FAILED);
        }
    };
    // Nobody need hear of a jail in which the command is not.
    if run.held && !run.by_slurm && !execute::is_there(run) {
        control.send(&Report::NotExecuted {
            errno: libc::ENOENT,
        });
        process::exit_now(FAILED);
    }
    // From here on whatever is opened was chosen inside.
    if run.held {
        wait_to_go(&init);
    }
    if let Err(unopened) = streams::open(&run.streams) {
        let shown = unopened.path.len().min(LONGEST_PATH);
        control.send(&Report::NoStream {
            stream: unopened.stream,
            path: unopened.path[..shown].to_vec(),
            errno: unopened.error.raw_os_error().unwrap_or(libc::EIO),
        });
        process::exit_now(FAILED);
    }
    if run.streams.error != ErrorStream::AsItComes {
        // Without it Slurm's messages are not shown; the command can run all the same.
        let _ = passing::send(&init, b"2", Some(std::io::stderr().as_fd()));
    }
    drop(init);
    if cwd != run.cwd {
        execute::tell_directory(run, cwd);
    }
    if let Some(number) = run.pmi
        && let Err(error) = fds::pass_on(number)
    {
        control.send(&Report::Refused(format!(
            "cannot pass the socket of PMI on: {error}"
        )));
        process::exit_now(FAILED);
    }
    if let Some(watch) = &run.confinement.watch {
        watched::begin(control, watch);
    }
    if let Some(mediated) = &run.confinement.mediated
        && let Err(error) = hand_over(control, mediated)
    {
        control.send(&Report::Refused(format!(
            "cannot install the filter of set-group-ID bits: {error}"
        )));
        process::exit_now(FAILED);
    }
    let error = execute::execute(run, cwd);
    if run.by_slurm {
        process::exit_now(execute::complain(run, &error));
    }
    control.send(&Report::NotExecuted {
        errno: error.raw_os_error().unwrap_or(libc::EIO),
    });
    process::exit_now(FAILED)
}
