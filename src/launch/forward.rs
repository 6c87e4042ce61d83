//! Ports inside that the user reaches from outside: a unix socket of the user's for each, and the process that leads whoever
//! connects there to the port inside.
//!
//! A port of the host's loopback would be everybody's on a shared node, so there is none: `ssh -L` leads to a socket just as well.
//! The sockets stand in a directory that is the user's alone and that no jail has. The process enters the jail's network, as who
//! listens for the filter does, gives every right over it up, and reaches nothing but what listens there.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use agent_sandbox_wire::network::{COMPLETE, forwarded};
use anyhow::{Context, Result};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, bind, socket};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};
use std::os::fd::AsFd;

use super::chaperon::{self, LOG};
use super::companion::{Companion, Program};
use super::finish::owner_of_jail;
use super::network::heard;
use crate::env_vars;
use crate::failure::{Failure, one_line};
use crate::host::{FILTER, HostFacts};
use crate::plan::{NetworkMode, Plan};
use crate::session_directory::SessionDirectory;
use crate::sys::namespaces::{self, Kind};
use crate::sys::{passing, privileges, sockets};

/// The kind of the directories of sockets (`SessionDirectory::new`).
const KIND: &str = "forward+";
/// Connections to one port that may wait to be accepted.
const WAITING: i32 = 128;
/// The longest path of a socket, in bytes (`unix(7)`, `sun_path` without its NUL).
const LONGEST_PATH: usize = 107;

/// The ports of one network.
#[derive(Debug)]
pub struct Forward {
    program: Program,
    log: PathBuf,
    /// The sockets of the ports, until the process has them.
    waiting: Vec<(u16, OwnedFd)>,
    ports: Vec<u16>,
    in_job: bool,
    running: Option<Companion>,
    /// In which they stand; removed at the end.
    directory: SessionDirectory,
}

impl Forward {
    /// Makes the sockets of a session, or of a step of a job; `None` if no port is forwarded. Nobody answers there yet.
    ///
    /// # Errors
    /// There is no place for them on this node, or a program is not installed.
    pub fn new(
        host: &HostFacts,
        plan: &Plan,
        step: Option<&(u32, String)>,
    ) -> Result<Option<Self>> {
        if plan.forward.is_empty() {
            return Ok(None);
        }
        let of = match step {
            None => plan.session.clone(),
            Some((job, step)) => format!("{}.{job}.{step}", plan.session),
        };
        let program = Program::hold(chaperon::program(FILTER)?)?;
        let directory = SessionDirectory::new(host.uid, KIND, &of)
            .context("cannot make the sockets of ports that are forwarded")?;
        let ports: Vec<u16> = plan.forward.iter().map(|port| port.value).collect();
        let waiting = ports
            .iter()
            .map(|port| Ok((*port, listen(&directory, *port)?)));
        Ok(Some(Self {
            program,
            log: host.state_directory.join(LOG),
            waiting: waiting.collect::<Result<_>>()?,
            ports,
            in_job: step.is_some(),
            running: None,
            directory,
        }))
    }

    /// Where they stand, each with its port.
    pub fn sockets(&self) -> impl Iterator<Item = (u16, PathBuf)> {
        let at = |port: &u16| (*port, self.directory.path().join(port.to_string()));
        self.ports.iter().map(at)
    }

    /// What to type for them elsewhere, in one line.
    pub fn line(&self) -> String {
        let each = self.sockets();
        let each = each.map(|(port, at)| format!("-L {port}:{} ", at.display()));
        let name = nix::unistd::gethostname().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        let by = std::env::var(env_vars::SLURM_SUBMIT_HOST).unwrap_or_default();
        let letter = |byte: u8| byte.is_ascii_alphanumeric();
        let plain = by.bytes().next().is_some_and(letter)
            && by
                .bytes()
                .all(|byte| letter(byte) || b".-_".contains(&byte));
        let by = match self.in_job && by != name && plain {
            true => format!("-J {by} "),
            false => String::new(),
        };
        let line = format!(
            "agent-sandbox: forwarded from inside: ssh -N {by}{}{name}",
            each.collect::<String>()
        );
        one_line(&line) + "\n"
    }

    /// Starts the process that answers, in the network of a jail in which nothing has run yet.
    ///
    /// # Errors
    /// It cannot be started there.
    pub fn attach(&mut self, network: Option<BorrowedFd<'_>>) -> std::result::Result<(), Failure> {
        self.begin(network).map_err(|why| {
            Failure::new(format!("no port can be forwarded: {why}")).hint(format!(
                "nothing was started; `{}` may say more, and without network.forward no port is needed",
                self.log.display()
            ))
        })
    }

    fn begin(&mut self, network: Option<BorrowedFd<'_>>) -> std::result::Result<(), String> {
        let network = network.ok_or("the jail's network is not there")?;
        let owner = owner_of_jail(network, Kind::Network).map_err(|error| {
            format!("the jail's network namespace is not the user's own: {error}")
        })?;
        let words = |error: io::Error| error.to_string();
        let (life, theirs) = passing::pair().map_err(words)?;
        let enter = || {
            namespaces::enter(&owner, Kind::User)?;
            namespaces::enter(network, Kind::Network)?;
            privileges::drop_all()?;
            privileges::no_new_privileges()
        };
        let given = [&theirs];
        let running = Companion::start(&self.program, "forward", &given, life, &self.log, enter)
            .map_err(words)?;
        drop(theirs);
        let life = self.running.insert(running).life();
        let gone = |error: io::Error| format!("the process that forwards has ended: {error}");
        for (port, listener) in self.waiting.drain(..) {
            passing::send(life, &forwarded(port), Some(listener.as_fd())).map_err(gone)?;
        }
        passing::send(life, &[COMPLETE], None).map_err(gone)?;
        heard(life, "the process that forwards")
            .map_err(|why| why.unwrap_or_else(|| "the process that forwards has ended".to_owned()))
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.end();
        }
    }
}

/// Whether a step's network is one that was made for it, so that it has ports of its own. One that it shares has those of
/// whoever made it.
pub fn is_of_step(plan: &Plan, made_jail: bool, has_filter: bool) -> bool {
    match plan.network.value {
        NetworkMode::Open => false,
        NetworkMode::Filtered => has_filter,
        NetworkMode::Isolated => made_jail,
    }
}

/// A socket at which the user alone can connect.
fn listen(directory: &SessionDirectory, port: u16) -> Result<OwnedFd> {
    let name = port.to_string();
    let at = directory.path().join(&name);
    let length = at.as_os_str().as_bytes().len();
    if length > LONGEST_PATH {
        return Err(Failure::new(format!(
            "no port can be forwarded: the path `{}` of its socket has {length} bytes, and a socket's path has at most {LONGEST_PATH}",
            at.display()
        ))
        .hint("admin: /tmp, /var/tmp or /dev/shm of this node would give a shorter one; they lead elsewhere")
        .into());
    }
    let failed = || format!("cannot listen at `{}`", at.display());
    let flags = SockFlag::SOCK_CLOEXEC;
    let made = socket(AddressFamily::Unix, SockType::Stream, flags, None).with_context(failed)?;
    let directory = directory.directory();
    // In the directory that was looked at, wherever its name leads by now.
    let path = format!("/proc/self/fd/{}/{name}", directory.as_raw_fd());
    bind(made.as_raw_fd(), &UnixAddr::new(path.as_str())?).with_context(failed)?;
    // Nobody can connect before the next step.
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let follow = FchmodatFlags::FollowSymlink;
    fchmodat(directory, name.as_str(), mode, follow).with_context(failed)?;
    sockets::listen(&made, WAITING).with_context(failed)?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_the_users_alone_and_one_with_too_long_a_path_is_refused() {
        let uid = nix::unistd::getuid().as_raw();
        let short = SessionDirectory::new(uid, KIND, "test").unwrap();
        let _listener = listen(&short, 8123).unwrap();
        let mode = nix::sys::stat::stat(&short.path().join("8123"))
            .unwrap()
            .st_mode;
        assert_eq!(mode & 0o7777, 0o600);
        let long = SessionDirectory::new(uid, KIND, &"x".repeat(90)).unwrap();
        let refused = listen(&long, 8123).unwrap_err().to_string();
        let length = long.path().join("8123").as_os_str().len();
        let why = format!("has {length} bytes, and a socket's path has at most 107");
        assert!(refused.contains(&why), "{refused}");
    }
}
