//! The task's side: what it asks the server, and how it becomes a process of the step.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, Shutdown, shutdown};
use nix::unistd::Pid;

use super::namespaces::Namespaces;
use super::peer;
use super::protocol::{Answer, GO, HELLO, Hello, JailTerms, LISTENER, Terms};
use crate::handoff::Run;
use crate::init::{self, ConfinedBy};
use crate::sys::{fds, passing, privileges, process};

/// How long the last task waits for the end of its step, in milliseconds.
const PATIENCE_MS: u16 = 5000;

/// A server's welcome to a task.
#[derive(Debug)]
pub struct Welcome {
    /// On what terms.
    pub terms: Terms,
    namespaces: Namespaces,
    server: OwnedFd,
}

/// Says what is wanted and waits for the answer; `None` if the server is gone.
///
/// # Errors
/// The server refuses, or its answer makes no sense.
pub fn ask(connection: &OwnedFd, hello: &Hello) -> Result<Option<Welcome>> {
    let Some((file, server, namespaces)) = answer(connection, hello)? else {
        return Ok(None);
    };
    let terms = super::protocol::read(file).context("cannot read the terms of the job's jail")?;
    Ok(Some(Welcome {
        terms,
        namespaces,
        server,
    }))
}

/// The same for a server, which gets what every process of the jail submits to.
///
/// # Errors
/// The other server refuses, or its answer makes no sense.
pub fn ask_for_jail(
    connection: &OwnedFd,
    hello: &Hello,
) -> Result<Option<(JailTerms, Namespaces)>> {
    let Some((file, _, namespaces)) = answer(connection, hello)? else {
        return Ok(None);
    };
    let terms = super::protocol::read(file).context("cannot read the terms of the job's jail")?;
    Ok(Some((terms, namespaces)))
}

fn answer(connection: &OwnedFd, hello: &Hello) -> Result<Option<(OwnedFd, OwnedFd, Namespaces)>> {
    const FAILED: &str = "cannot speak with the namespace server of the job's jail";
    // What proves to the server who arrives, as its own proves to this process who answers. Kernels
    // before 5.3 have none, and then both sides go by the number of the process alone.
    let own = process::descriptor_of(nix::unistd::getpid()).ok();
    let proof: Vec<BorrowedFd<'_>> = own.iter().map(AsFd::as_fd).collect();
    let sent = super::protocol::send(connection, &HELLO, hello, &proof);
    let received = sent.and_then(|()| {
        loop {
            match super::protocol::receive::<Answer>(connection, MsgFlags::empty()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        }
    });
    let (answer, descriptors) = match received {
        Ok(Some(all)) => all,
        Ok(None) => return Ok(None),
        Err(error) if is_gone(&error) => return Ok(None),
        Err(error) => return Err(error).context(FAILED),
    };
    if let Answer::Refused(refusal) = answer {
        return Err(refusal.into_error());
    }
    let mut descriptors = descriptors.into_iter();
    let file = descriptors.next().context(FAILED)?;
    let server = descriptors.next().context(FAILED)?;
    if own.is_some() {
        match peer::is_server(connection, &server) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            // The task that forked the server has ended before this one was answered.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).context(FAILED),
        }
    }
    let namespaces = Namespaces::take(descriptors.collect()).context(FAILED)?;
    Ok(Some((file, server, namespaces)))
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ECONNRESET | libc::EPIPE | libc::ENOTCONN)
    )
}

/// Joins the step: this process gives up everything that the jail does not allow, and a child of it
/// in the step starts the command and stands by it. The answer is that child, and the socket to it.
/// From here on every path means what it means inside. While this process lives, `connection` tells
/// the server that the step has this member.
///
/// # Errors
/// What the kernel answers to one of the steps; the command was not started then.
pub fn enter(welcome: &Welcome, connection: &OwnedFd, run: &Run) -> Result<(Pid, OwnedFd)> {
    let Welcome {
        terms, namespaces, ..
    } = welcome;
    let (ours, theirs) = passing::pair().context("cannot make a pair of sockets")?;
    // Those inside have the same uid, and must neither trace nor read what is not confined yet.
    nix::sys::prctl::set_dumpable(false).context("cannot become untraceable")?;
    namespaces
        .enter_room()
        .context("cannot join the job's jail on this node")?;
    namespaces
        .enter_user()
        .context("cannot join the user namespace of the job's jail")?;
    privileges::drop_all().context("cannot give up capabilities")?;
    privileges::no_new_privileges().context("cannot forbid new privileges")?;
    // What entering a user namespace changes to what `fs.suid_dumpable` says.
    nix::sys::prctl::set_dumpable(false).context("cannot become untraceable")?;
    if let Some(program) = &terms.sockets {
        let listener = privileges::filter_with_listener(program)
            .context("cannot install the filter of sockets")?;
        passing::send(connection, LISTENER, Some(listener.as_fd()))
            .context("cannot hand the listener of sockets over")?;
    }
    if let Some(mediated) = &terms.mediated {
        match privileges::filter_with_listener(&mediated.handing_over) {
            Ok(listener) => passing::send(connection, LISTENER, Some(listener.as_fd()))
                .context("cannot hand the listener of the mediator over")?,
            Err(_) => privileges::filter(&mediated.refusing)
                .context("cannot install the filter of set-group-ID bits")?,
        }
    }
    privileges::filter(&terms.restrictions.filter).context("cannot install the filter of calls")?;
    match process::fork().context("cannot fork")? {
        process::Side::Child => {
            drop(ours);
            // Not at the next program, but now: before it the command's process opens paths that
            // the inside chose, and one through `/proc/self/fd` leads wherever a descriptor does.
            let mut kept = vec![theirs.as_raw_fd()];
            kept.extend(run.pmi);
            let alone = fds::close_all_but(&kept).and_then(|()| privileges::end_with_parent(None));
            if alone.is_err() {
                process::exit_now(1);
            }
            init::attend(theirs, run, ConfinedBy::Jail)
        }
        process::Side::Parent(pid) => Ok((pid, ours)),
    }
}

/// Leaves the step, once the command is over. The last to leave waits, for some time, until the
/// server and everything that it kept has ended: where anything of a step is left when its last task
/// ends, slurmstepd looks again no sooner than a second later.
pub fn leave(welcome: Welcome, connection: OwnedFd) {
    // Nobody is there to be told of a connection that is gone.
    let _ = shutdown(connection.as_raw_fd(), Shutdown::Write);
    let wait = |fd: &OwnedFd| {
        let mut gone = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
        while let Err(Errno::EINTR) = poll(&mut gone, PollTimeout::from(PATIENCE_MS)) {}
    };
    wait(&connection);
    let mut word = [0; GO.len()];
    let answer = passing::receive(&connection, &mut word, MsgFlags::MSG_DONTWAIT);
    if !matches!(answer, Ok((length, _)) if length > 0) {
        wait(&welcome.server);
    }
}
