//! A jail that bubblewrap makes: found, started, stood by.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use super::supervisor::{self, Company, Jail, Outcome};
use super::{Prepared, filter};
use crate::backend::bwrap;
use crate::failure::Failure;
use crate::handoff::{Expect, Order};
use crate::host;
use crate::plan::{self, Access, Mount, Plan};
use crate::sys::{fds, passing, process};

/// bubblewrap.
///
/// # Errors
/// There is none that can be used, with the ways out.
pub fn find() -> Result<PathBuf> {
    host::find_bwrap().map_err(|error| {
        Failure::new(format!("{error:#}"))
            .hint("user: this node cannot run the jail as it is; ask its administrator")
            .hint("admin: install the package `bubblewrap` (0.8 or newer)")
            .into()
    })
}

/// Builds the jail and stands by it to its end.
///
/// # Errors
/// What keeps bubblewrap from being started.
pub(super) fn carry_out(
    bwrap: &Path,
    (plan, prepared): (Plan, Prepared),
    order: Order,
    mut company: Company,
) -> Result<Outcome> {
    let filter = filter(&plan)?;
    let call = bwrap::call(&plan, filter);
    // The launcher stays for as long as the command runs; what it knew need not stay with it.
    drop((plan, prepared));
    supervisor::hold_signals(company.by_slurm).context("cannot hold signals back")?;
    let Started {
        bwrap,
        control,
        complaint,
    } = start(bwrap, call, order)?;
    let jail = Jail::Built { bwrap, complaint };
    Ok(supervisor::supervise(jail, control, &mut company)?)
}

/// bubblewrap, started.
pub struct Started {
    /// The process.
    pub bwrap: Child,
    /// The socket to init.
    pub control: OwnedFd,
    /// Where bubblewrap says what went wrong.
    pub complaint: UnixStream,
}

/// Starts bubblewrap.
///
/// # Errors
/// What `memfd_create(2)`, `socketpair(2)` or `execve(2)` answer.
pub fn start(bwrap: &Path, call: bwrap::Call, order: Order) -> Result<Started> {
    let text = postcard::to_allocvec(&order).context("cannot write the order")?;
    let order = fds::memory_file(c"agent-sandbox-order", &text)?;
    let mut contents: Vec<OwnedFd> = Vec::with_capacity(call.contents.len());
    for content in &call.contents {
        contents.push(fds::memory_file(c"agent-sandbox", content)?);
    }
    let mut options = Vec::new();
    for argument in &call.options {
        match argument {
            bwrap::Argument::Text(text) => options.extend_from_slice(text.as_bytes()),
            bwrap::Argument::Content(at) => {
                options.extend_from_slice(contents[*at].as_raw_fd().to_string().as_bytes())
            }
        }
        options.push(0);
    }
    let options = fds::memory_file(c"agent-sandbox-options", &options)?;
    let (ours, theirs) = passing::pair()?;
    let (complaint, complain) = UnixStream::pair()?;
    let stderr: OwnedFd = std::os::fd::AsFd::as_fd(&io::stderr()).try_clone_to_owned()?;
    for fd in contents.iter().chain([&options, &order, &theirs, &stderr]) {
        fds::inheritable(fd)?;
    }
    let child = Command::new(bwrap)
        .arg("--args")
        .arg(options.as_raw_fd().to_string())
        .arg("--")
        .arg(bwrap::COMMAND)
        .args([&stderr, &theirs, &order].map(|fd| fd.as_raw_fd().to_string()))
        .env_clear()
        .stderr(Stdio::from(OwnedFd::from(complain)))
        .spawn()
        .with_context(|| format!("cannot start `{}`", bwrap.display()))?;
    drop((call, contents, options, order, theirs, stderr, text));
    process::release_memory();
    Ok(Started {
        bwrap: child,
        control: ours,
        complaint,
    })
}

/// What init has to do before any command, by the plan.
pub fn order(plan: &Plan) -> Order {
    let bytes = |text: &OsStr| text.as_bytes().to_vec();
    // A directory of a path may be one that another session can write, and could be replaced by a
    // link while this jail is built. So every bind is compared with what was planned.
    let expect = plan
        .steps
        .iter()
        .filter_map(|step| match &step.mount {
            Mount::Bind { access, id, .. } => Some(Expect {
                path: bytes(plan.place(step).as_os_str()),
                id: *id,
                read_only: *access == Access::Read,
            }),
            Mount::Kept { id: Some(id), .. } => Some(Expect {
                path: bytes(step.at.as_os_str()),
                id: *id,
                read_only: false,
            }),
            _ => None,
        })
        .collect();
    Order {
        expect,
        input: plan
            .steps
            .iter()
            .any(|step| step.at == Path::new(plan::INPUT))
            .then(|| plan::INPUT.into()),
        socket: plan
            .wants_chaperon()
            .then(|| agent_sandbox_wire::SOCKET.into()),
        run: None,
    }
}
