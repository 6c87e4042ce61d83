//! A process beside a session whose network is filtered. It gives the filter other rules when the user's policy changes, or when
//! the user gives the session a host. It sleeps until one of its descriptors is ready.
//!
//! Policy is read here and not in the filter, which speaks with what is inside.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_sandbox_hosts::{HostRules, MOST_PORTS};
use agent_sandbox_wire::network::{AllowRequest, LONGEST_WORDS, RULES, UNCHANGED};
use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::prctl;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, accept4, bind, socket,
};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};
use nix::unistd::{Pid, getpid, setsid};

use super::policy_now::PolicyNow;
use super::{hand_over_more, heard, in_jail};
use crate::failure::{self, Failure};
use crate::host::peer::same_user;
use crate::plan::model::network::FilteredNetwork;
use crate::session;
use crate::sys::process::{self, Side};
use crate::sys::{fds, passing, privileges, sockets};

/// How long somebody who has connected may take to say what it wants, in milliseconds.
const PATIENCE_MS: u16 = 2000;
/// The longest request, in bytes: a thousand hosts.
const LONGEST_REQUEST: usize = 64 * 1024;
/// Requests that may wait.
const WAITING: i32 = 8;

/// Editors that keep the old file rename it and write a new one: for so long the policy is not taken as gone.
const REPLACING: Duration = Duration::from_millis(300);

/// What has happened in a directory; of several the last counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum News {
    /// Nothing about the policy.
    Other,
    /// A file of the policy is there, or has changed, or there is no telling.
    Written,
    /// One is not there any more.
    Gone,
}

/// Who gives a filter other rules.
#[derive(Debug)]
pub(super) struct Keeper {
    now: PolicyNow,
    /// Hosts that the user has given, as they were written.
    given: Vec<String>,
    /// The rules that the filter has.
    rules: HostRules,
    /// Ports at which it listens.
    ports: BTreeSet<u16>,
    /// The jail's, if it has one of its own.
    network: Option<OwnedFd>,
    filter: OwnedFd,
    log: PathBuf,
    changes: Inotify,
    listener: Option<OwnedFd>,
    /// What was said last of a change that was not made.
    said: String,
}

impl Keeper {
    /// Listens and watches already, so that nothing is missed that happens once the command runs. `filter` is the socket to the
    /// filter, which has these rules.
    ///
    /// # Errors
    /// What `inotify_init1(2)` or `dup(2)` answer.
    pub(super) fn new(
        now: PolicyNow,
        has: FilteredNetwork,
        filter: &OwnedFd,
        log: &Path,
    ) -> io::Result<Self> {
        let listener = listen(&now).map_err(|error| {
            tracing::warn!(target: "network", %error, "nobody can give this session a host");
        });
        let keeper = Self {
            given: Vec::new(),
            rules: has.rules,
            ports: has.ports.into_iter().collect(),
            network: None,
            filter: filter.try_clone()?,
            log: log.to_owned(),
            changes: Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?,
            listener: listener.ok(),
            said: String::new(),
            now,
        };
        keeper.watch();
        Ok(keeper)
    }

    /// Lets it go on in a process of its own, with the jail's network.
    ///
    /// # Errors
    /// What `fork(2)` answers.
    pub(super) fn start(mut self, network: Option<OwnedFd>) -> io::Result<Pid> {
        self.network = network;
        let parent = getpid();
        match process::fork()? {
            Side::Parent(keeper) => Ok(keeper),
            Side::Child => {
                let begin = || -> io::Result<()> {
                    // What it has in memory is in no core file, which would be written into the project.
                    prctl::set_dumpable(false)?;
                    privileges::end_with_parent(Some(parent))?;
                    // Away from the terminal, whose keys are for the command inside.
                    setsid()?;
                    let own = self.network.iter().chain([&self.filter]);
                    let own = own.chain(&self.listener).map(AsRawFd::as_raw_fd);
                    let changes = self.changes.as_fd().as_raw_fd();
                    fds::close_all_but(&own.chain([changes]).collect::<Vec<_>>())
                };
                let kept = begin().and_then(|()| self.keep());
                process::exit_now(i32::from(kept.is_err()))
            }
        }
    }

    /// Until the filter is gone.
    fn keep(&mut self) -> io::Result<()> {
        loop {
            let changes = self.changes.as_fd();
            let listener = self.listener.as_ref().map_or(changes, AsFd::as_fd);
            let mut ready = [self.filter.as_fd(), changes, listener]
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            match poll(&mut ready, PollTimeout::NONE) {
                Ok(_) => {}
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            let [gone, changed, asked] = ready.map(|one| one.any().unwrap_or(false));
            if gone {
                // It says nothing unasked.
                failure::say(&format!(
                    "agent-sandbox: the network's filter has ended, so that this session has no network any more (see `{}`)\n",
                    self.log.display()
                ));
                return Ok(());
            }
            if changed {
                match self.news() {
                    News::Other => {}
                    News::Written => self.follow(),
                    News::Gone => {
                        std::thread::sleep(REPLACING);
                        self.news();
                        self.follow();
                    }
                }
            }
            if asked && self.listener.is_some() {
                self.answer();
            }
        }
    }

    /// Watches the directories of the user's policy; of one that does not exist, the nearest above it. What the session can write
    /// is not watched.
    fn watch(&self) {
        let about = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_ONLYDIR;
        let Ok(directories) = self.now.directories() else {
            return;
        };
        // A link may lead to a file in another directory.
        let [_, config] = &directories;
        let real = std::fs::canonicalize(config.join("config.toml"));
        let beside = real.ok().and_then(|real| Some(real.parent()?.to_owned()));
        for directory in directories.into_iter().chain(beside) {
            let mut there = directory.ancestors().filter(|at| at.is_dir());
            if let Some(at) = there.next().filter(|at| !self.now.can_write(at)) {
                // What cannot be watched is not followed.
                let _ = self.changes.add_watch(at, about);
            }
        }
    }

    /// Takes what has happened in the directories that are watched. A file that was made and not written yet is none of the policy.
    fn news(&self) -> News {
        let mut news = News::Other;
        while let Ok(events) = self.changes.read_events() {
            for event in &events {
                let has = |flags| event.mask.intersects(flags);
                let name = event.name.as_deref().map(Path::new);
                let end = name.and_then(Path::extension);
                let gone = has(AddWatchFlags::IN_DELETE | AddWatchFlags::IN_MOVED_FROM);
                let is_policy = end.is_some_and(|end| end == "toml");
                // Of those that were dropped nobody knows what they were.
                let one = match has(AddWatchFlags::IN_Q_OVERFLOW | AddWatchFlags::IN_ISDIR) {
                    true => News::Written,
                    false if is_policy && gone => News::Gone,
                    false if is_policy && !has(AddWatchFlags::IN_CREATE) => News::Written,
                    false => News::Other,
                };
                news = news.max(one);
            }
        }
        self.watch();
        news
    }

    /// Takes the policy as it is now. What it takes away holds even where a port that it gives cannot be had: a program in the jail
    /// may hold every one.
    fn follow(&mut self) {
        let network = self.now.network(&self.given);
        let changed = network.and_then(|network| {
            self.keep_to(network.rules, "the policy in the user's files has changed")?;
            Ok(network.ports)
        });
        let why = match changed {
            Err(error) => format!("stay as they are: {}", in_words(&error)),
            Ok(ports) => match self.listen_at(&ports) {
                Ok(()) => return self.said.clear(),
                Err(error) => format!("hold, but for new ports: {}", in_words(&error)),
            },
        };
        if why != self.said {
            failure::say(&format!("agent-sandbox: the network's rules {why}\n"));
            // A filter that is gone is seen next.
            let _ = self.tell(UNCHANGED, &format!("they {why}"), None);
            self.said = why;
        }
    }

    /// Answers somebody who has connected.
    fn answer(&mut self) {
        let Some(listener) = &self.listener else {
            return;
        };
        let accepted = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC);
        let Ok(connection) = accepted.map_err(io::Error::from).and_then(fds::inherited) else {
            return;
        };
        let answer = self.asked(&connection).map_err(|error| in_words(&error));
        if let Ok(text) = postcard::to_allocvec(&answer) {
            // Who does not wait for it does not want it.
            let _ = passing::send_now(&connection, &text, None);
        }
    }

    fn asked(&mut self, connection: &OwnedFd) -> Result<()> {
        same_user(connection, self.now.uid).context("this process cannot give hosts")?;
        let mut ready = [PollFd::new(connection.as_fd(), PollFlags::POLLIN)];
        poll(&mut ready, PollTimeout::from(PATIENCE_MS))?;
        let mut text = vec![0; LONGEST_REQUEST];
        let (length, _) = passing::receive(connection, &mut text, MsgFlags::MSG_DONTWAIT)?;
        let request: AllowRequest = postcard::from_bytes(&text[..length])?;
        let mut given = self.given.clone();
        given.extend(request.hosts.iter().cloned());
        given.sort_unstable();
        given.dedup();
        let network = self.now.network(&given)?;
        let hosts = request.hosts.join(", ");
        self.listen_at(&network.ports)?;
        self.keep_to(
            network.rules,
            &format!("{hosts} given with `agent-sandbox allow`"),
        )?;
        self.given = given;
        Ok(())
    }

    /// Has the filter listen at ports, where it does not yet. Without a network of the jail's own all ports lead to it.
    fn listen_at(&mut self, ports: &[u16]) -> Result<()> {
        let Some(network) = &self.network else {
            return Ok(());
        };
        let wanted = ports.iter().copied();
        let more: Vec<u16> = wanted.filter(|port| !self.ports.contains(port)).collect();
        if let Some(port) = more.iter().find(|port| self.now.forward.contains(port)) {
            bail!("port {port} of this session is forwarded, so that no filter can listen there");
        }
        if self.ports.len() + more.len() > MOST_PORTS {
            bail!(
                "the session would have more than {MOST_PORTS} ports, with those of rules that it had before"
            );
        }
        if !more.is_empty() {
            let made = in_jail(network.as_fd(), || hand_over_more(&more, &self.filter));
            made.map_err(anyhow::Error::msg)?;
            self.ports.extend(more);
        }
        Ok(())
    }

    /// Has the filter keep to other rules, if they are others. `words` say why.
    fn keep_to(&mut self, rules: HostRules, words: &str) -> Result<()> {
        if self.rules == rules {
            return Ok(());
        }
        let text = postcard::to_allocvec(&rules)?;
        let file = fds::memory_file(c"agent-sandbox-rules", &text)?;
        self.tell(RULES, words, Some(&file))?;
        let gone = || "the filter has ended".to_owned();
        heard(&self.filter, "the filter")
            .map_err(|why| anyhow::Error::msg(why.unwrap_or_else(gone)))?;
        self.rules = rules;
        Ok(())
    }

    fn tell(&self, what: u8, words: &str, file: Option<&OwnedFd>) -> io::Result<()> {
        let words = words.as_bytes();
        let words = &words[..words.len().min(LONGEST_WORDS)];
        let message = [&[what], words].concat();
        passing::send(&self.filter, &message, file.map(AsFd::as_fd))
    }
}

/// An error with its causes and what can be done about it.
fn in_words(error: &anyhow::Error) -> String {
    let hints = error.downcast_ref::<Failure>();
    let hints = hints.map_or(&[][..], |failure| &failure.hints);
    let all = hints.iter().map(|hint| format!("; {hint}"));
    format!("{error:#}{}", all.collect::<String>())
}

/// The socket of a session, in the directory of sessions' records, which no jail has.
fn listen(now: &PolicyNow) -> Result<OwnedFd> {
    let directory = session::directory(now.uid, &now.state);
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let directory = open(&directory, flags, Mode::empty())?;
    let name = format!("{}.{}", now.session, session::SOCKET);
    let made = socket(
        AddressFamily::Unix,
        SockType::SeqPacket,
        SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
        None,
    )?;
    // By a short path: the address of a socket has 108 bytes (`unix(7)`).
    let path = format!("/proc/self/fd/{}/{name}", directory.as_raw_fd());
    bind(made.as_raw_fd(), &UnixAddr::new(path.as_str())?)?;
    // Nobody can connect before the next step.
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    fchmodat(
        &directory,
        name.as_str(),
        mode,
        FchmodatFlags::FollowSymlink,
    )?;
    sockets::listen(&made, WAITING)?;
    Ok(made)
}
