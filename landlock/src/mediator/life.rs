//! The mediator's process: how it begins, what it waits for, and how it ends.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::socket::MsgFlags;
use nix::sys::stat::Mode;
use nix::unistd::{Pid, getpid};

use super::context::Context;
use super::way_out::WayOut;
use super::{ending, serve};
use crate::access::MediatorConfig;
use crate::restrict;
use agent_sandbox_base::mediate::detach::{away_from_streams, detach};
use agent_sandbox_base::sys::process::{Change, Side, exit_now, fork, ignore_all, wait_for_any};
use agent_sandbox_base::sys::{fds, passing, privileges, process};

/// Exit code of a mediator, and of an attendant, that did not get as far as the command.
const FAILED: i32 = 125;
/// The mediator's word that the attendant runs; any other is a sentence that says why it does not.
const BEGUN: &[u8] = b"\0begun";
/// No sentence is longer: it may have a path in it.
const LONGEST_WORD: usize = 8 * 1024;

/// Starts the mediator, whose child, the attendant, stands by the command. The answer is the mediator,
/// which ends when the attendant does, with the same exit code and when nothing is left of the jail.
///
/// In the attendant only the standard streams, the descriptors `kept` and the socket that it is given
/// are open. `attend` starts the command under a filter that hands calls over, and sends the filter's
/// listener on the socket, in one message. The attendant, as the command, is held by the mediator's
/// rules, and it ends at once if the mediator does. Neither can be traced; a process that it starts
/// cannot until it executes a program. A command's process that is not traceable (`PR_SET_DUMPABLE`)
/// when it calls something that is handed over gets `EFAULT`.
///
/// The caller must be single-threaded, and is to wait for the mediator as for a child.
///
/// # Errors
/// What `fork(2)` and its kin answer; a sentence if the mediator cannot confine itself. Nothing was
/// started then.
pub fn start(
    config: MediatorConfig,
    kept: &[RawFd],
    attend: impl FnOnce(OwnedFd) -> Infallible,
) -> io::Result<Pid> {
    start_given(config, kept, Given::default(), attend)
}

/// What some mediators are given.
#[derive(Debug, Default)]
pub struct Given {
    /// The socket on which is told what each call is about, before it is answered, in a run that is watched. The filter hands over
    /// [`agent_sandbox_base::mediate::sight::calls::WATCHED`] besides then.
    pub recorder: Option<OwnedFd>,
    /// By whom connections leave the jail, where the network is filtered. The filter hands `listen(2)` over then.
    pub way_out: Option<WayOut>,
}

/// The same, with what some mediators are given.
///
/// # Errors
/// As [`start`].
pub fn start_given(
    config: MediatorConfig,
    kept: &[RawFd],
    given: Given,
    attend: impl FnOnce(OwnedFd) -> Infallible,
) -> io::Result<Pid> {
    let (ours, theirs) = passing::pair()?;
    let mediator = match fork()? {
        Side::Child => {
            drop(ours);
            live(config, kept, (theirs, given), attend)
        }
        Side::Parent(pid) => pid,
    };
    drop((theirs, given));
    let mut word = vec![0; LONGEST_WORD];
    let said = loop {
        match passing::receive(&ours, &mut word, MsgFlags::empty()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            said => break said.map(|(length, _)| length),
        }
    };
    let said = said.map(|length| word.get(..length).unwrap_or_default());
    match said {
        Ok(word) if word == BEGUN => return Ok(mediator),
        _ => {}
    }
    let _ = process::wait(mediator);
    Err(match said {
        Ok(b"") => io::Error::other("the mediator ended before it was ready"),
        Ok(word) => io::Error::other(String::from_utf8_lossy(word).into_owned()),
        Err(error) => error,
    })
}

/// The mediator's life, from the fork on.
fn live(
    config: MediatorConfig,
    kept: &[RawFd],
    (launcher, given): (OwnedFd, Given),
    attend: impl FnOnce(OwnedFd) -> Infallible,
) -> ! {
    let Given { recorder, way_out } = given;
    let ports = way_out.as_ref().map(WayOut::ports);
    let prepared = confine(&config, ports.as_deref()).and_then(|null| {
        let pair = passing::pair().map_err(|error| format!("cannot make sockets: {error}"))?;
        Ok((null, pair))
    });
    let (null, (ours, theirs)) = match prepared {
        Ok(prepared) => prepared,
        Err(sentence) => fail(&launcher, &sentence),
    };
    let mediator = getpid();
    let attendant = match fork() {
        Ok(Side::Child) => {
            let mut open = kept.to_vec();
            open.push(theirs.as_raw_fd());
            let alone = fds::close_all_but(&open)
                .and_then(|()| privileges::end_with_parent(Some(mediator)));
            if alone.is_err() {
                exit_now(FAILED);
            }
            match attend(theirs) {}
        }
        Ok(Side::Parent(pid)) => pid,
        Err(error) => fail(&launcher, &format!("cannot fork: {error}")),
    };
    // From here on the attendant, if it is there, ends with this process.
    drop(theirs);
    let mut open = vec![launcher.as_raw_fd(), ours.as_raw_fd()];
    open.extend(recorder.as_ref().map(AsRawFd::as_raw_fd));
    open.extend(way_out.iter().flat_map(WayOut::descriptors));
    if let Err(error) = detach(&null, &open) {
        fail(&launcher, &format!("cannot leave the launcher: {error}"));
    }
    if passing::send(&launcher, BEGUN, None).is_err() {
        exit_now(FAILED);
    }
    drop(launcher);
    process::release_memory();
    let context = Arc::new(Context {
        recorder,
        way_out,
        ..Context::new(config, attendant)
    });
    if let Some(listener) = wait_for_listener(ours, attendant) {
        // Without threads the calls get ENOSYS, for the listener is closed.
        let _ = serve::serve(Arc::clone(&context), listener);
    }
    let code = wait_for_end(attendant);
    ending::end_all();
    ending::remove_made(&context);
    exit_now(code)
}

/// Says why there is no mediator, and ends it.
fn fail(launcher: &OwnedFd, sentence: &str) -> ! {
    let bytes = sentence.as_bytes();
    let shown = bytes.get(..LONGEST_WORD).unwrap_or(bytes);
    let _ = passing::send(launcher, shown, None);
    exit_now(FAILED)
}

/// Takes from this process what it may not do. The answer is the null device, which the rules may not
/// give.
fn confine(config: &MediatorConfig, ports: Option<&[u16]>) -> Result<OwnedFd, String> {
    let prepare = || -> io::Result<OwnedFd> {
        // Nobody of the same user may look into it or steer it.
        prctl::set_dumpable(false)?;
        prctl::set_child_subreaper(true)?;
        // The keys of the terminal are for the command, and so is what Slurm sends.
        ignore_all();
        privileges::no_new_privileges()?;
        Ok(open(
            "/dev/null",
            OFlag::O_RDWR | OFlag::O_CLOEXEC,
            Mode::empty(),
        )?)
    };
    let null = prepare().map_err(|error| format!("cannot prepare the mediator: {error}"))?;
    // Before the fork: the attendant's and the command's domains stand below this one, or Landlock
    // would let the mediator neither look into the command nor kill it.
    restrict::restrict(&config.rules, config.abi, ports)?;
    Ok(null)
}

/// The filter's listener; `None` if the command was not started.
fn wait_for_listener(socket: OwnedFd, attendant: Pid) -> Option<OwnedFd> {
    let attendant = process::descriptor_of(attendant).ok()?;
    loop {
        let mut ready = [
            PollFd::new(socket.as_fd(), PollFlags::POLLIN),
            PollFd::new(attendant.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut ready, PollTimeout::NONE) {
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(_) => return None,
        }
        let [sent, ended] = ready.map(|one| one.any().unwrap_or(false));
        if sent {
            match passing::receive(&socket, &mut [0; 16], MsgFlags::MSG_DONTWAIT) {
                Ok((_, Some(listener))) => return away_from_streams(listener),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                    ) => {}
                // The other end is closed, or speaks nonsense.
                _ => return None,
            }
        } else if ended {
            return None;
        }
    }
}

/// Reaps what ends until the attendant does; its exit code, as a shell shows it.
fn wait_for_end(attendant: Pid) -> i32 {
    loop {
        match wait_for_any() {
            Ok((pid, Change::Exited(code))) if pid == attendant => return code,
            Ok((pid, Change::Killed(signal))) if pid == attendant => return 128 + signal,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return FAILED,
        }
    }
}
