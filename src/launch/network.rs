//! The filter of a session's network, which runs beside the jail, and the sockets that it gets: they are made inside of the
//! jail's network namespace and held outside.
//!
//! bubblewrap makes the namespace below a user namespace that it owns. Nobody inside has a right over that, but who made it has
//! (user_namespaces(7)), and that is the user. So a child of the launcher enters both, makes every address local to the namespace, and
//! listens there; what connects to any address inside is accepted outside.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use agent_sandbox_hosts::{Credential, Secret};
use agent_sandbox_wire::network::{
    AUTHORITY, CERTIFICATE, COMPLETE, KeptCredential, NetworkOrder, READY, SiteProxies, SocketOf,
};
use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket, sockopt,
};
use nix::unistd::Pid;

mod keeper;
mod policy_now;

use zeroize::Zeroizing;

use super::chaperon::{self, LOG};
use super::companion::{Companion, Program};
use super::credentials;
use super::finish::owner_of_jail;
use super::prepared::Prepared;
use crate::cli::Options;
use crate::failure::Failure;
use crate::host::FILTER;
use crate::plan::Plan;
use crate::plan::model::network::{FilteredNetwork, NAMES};
use crate::sys::namespaces::{self, Kind};
use crate::sys::process::{self, Side};
use crate::sys::{fds, passing, routes, sockets};
use keeper::Keeper;
use policy_now::PolicyNow;

/// Connections to one port that may wait to be accepted.
const WAITING: i32 = 1024;
/// How long the filter, and who listens for it, may take to answer, in milliseconds.
const PATIENCE_MS: u16 = 20_000;
/// The longest certificate of a filter, in bytes: it names the hosts of all credentials.
const LONGEST_CERTIFICATE: usize = 64 << 10;
/// The longest reason, in bytes.
const LONGEST_REASON: usize = 4096;
/// An address of the jail's that is none of loopback: the last of the filter's range, which no name gets.
const OWN: Ipv4Addr = Ipv4Addr::new(198, 19, 255, 254);

/// By what programs in a job's jail know its filter where it exchanges credentials.
#[derive(Debug)]
pub enum KnownBy {
    /// By a certificate of its own: the jail is made with it.
    Itself,
    /// By that of the filter with which the jail was made; the key behind it, if that one exchanges any.
    Jail(Option<Secret>),
}

/// What a job's filter is told besides.
#[derive(Default)]
struct InJob {
    authority: Option<Secret>,
    kept: Vec<KeptCredential>,
}

/// A filter.
#[derive(Debug)]
pub struct Filter {
    program: Program,
    order: Option<OwnedFd>,
    /// Where it says what it refuses.
    errors: OwnedFd,
    log: PathBuf,
    network: FilteredNetwork,
    in_job: bool,
    /// What other rules come from while the session runs.
    now: Option<PolicyNow>,
    running: Option<Companion>,
    /// Whether it has said that it filters.
    filters: bool,
    /// Whether it exchanges credentials.
    brokers: bool,
    /// By which programs inside know it where it does, as PEM.
    certificate: Vec<u8>,
    /// The key behind it, of a job.
    authority: Option<Secret>,
    /// Who will follow the policy, made while the jail is.
    standby: Option<io::Result<Keeper>>,
    keeper: Option<Pid>,
}

impl Filter {
    /// What a session's launch needs of it; `None` if the plan's network is not filtered. It exchanges `credentials`. Unless the options
    /// say `--quiet` it says on standard error what it refuses, once for each host.
    ///
    /// # Errors
    /// Its program is not installed; the order cannot be written.
    pub fn new(
        prepared: &Prepared,
        plan: &Plan,
        credentials: &[Credential],
        options: &Options,
    ) -> Result<Option<Self>> {
        let errors = io::stderr().as_fd().try_clone_to_owned()?;
        let mut filter = Self::waiting(
            prepared,
            plan,
            (credentials, None),
            (errors, !options.quiet),
        )?;
        if let (Some(filter), Some(network)) = (&mut filter, &plan.filter) {
            filter.now = Some(PolicyNow::new(prepared, plan, network, options));
        }
        Ok(filter)
    }

    fn waiting(
        prepared: &Prepared,
        plan: &Plan,
        (credentials, job): (&[Credential], Option<InJob>),
        (errors, tells): (OwnedFd, bool),
    ) -> Result<Option<Self>> {
        let Some(filter) = &plan.filter else {
            return Ok(None);
        };
        let host = &prepared.host;
        let InJob { authority, kept } = job.unwrap_or_default();
        let hosts = filter.credentials.iter().flat_map(|one| &one.hosts);
        let order = NetworkOrder {
            session: plan.session.clone(),
            state: host.state_directory.as_os_str().as_bytes().to_vec(),
            tracer: plan.trace.keeps_audit(),
            rules: filter.rules.clone(),
            credentials: credentials.to_vec(),
            vouches: hosts.map(|(name, _)| name.clone()).collect(),
            authority: authority.clone(),
            trusted: filter
                .trust
                .iter()
                .flat_map(|trust| trust.trusted.clone())
                .collect(),
            proxies: site_proxies(),
            tells,
            step: prepared
                .invocation
                .job
                .as_ref()
                .and_then(|job| job.step.clone()),
            kept,
        };
        let text =
            agent_sandbox_wire::order::encode(&order).context("cannot write the filter's order")?;
        let text = Zeroizing::new(text);
        Ok(Some(Self {
            program: Program::hold(chaperon::program(FILTER)?)?,
            order: Some(fds::memory_file(c"agent-sandbox-network", &text)?),
            errors,
            log: host.state_directory.join(LOG),
            network: filter.clone(),
            in_job: prepared.invocation.job.is_some(),
            now: None,
            running: None,
            filters: false,
            brokers: !credentials.is_empty(),
            certificate: Vec::new(),
            authority,
            standby: None,
            keeper: None,
        }))
    }

    /// The same of a job, started. What it refuses it says to `errors`, from where a task hands it on. It exchanges what can be read here, if
    /// programs of its jail know it.
    ///
    /// # Errors
    /// As [`Self::new`] and [`Self::start`].
    pub fn of_job(
        prepared: &Prepared,
        plan: &Plan,
        errors: OwnedFd,
        known: KnownBy,
    ) -> Result<Option<Self>> {
        if plan.filter.is_none() {
            return Ok(None);
        }
        // What is inside can have Slurm send a signal to this process: while it has values, that makes no core file, which would be
        // written into the project.
        let is_dumpable = prctl::get_dumpable().unwrap_or(true);
        let _ = prctl::set_dumpable(false);
        let (credentials, mut kept) = credentials::read_in_job(prepared, plan);
        let (credentials, authority) = match known {
            KnownBy::Itself => (credentials, None),
            KnownBy::Jail(Some(authority)) => (credentials, Some(authority)),
            KnownBy::Jail(None) => {
                kept.extend(credentials.iter().map(credentials::unknown));
                (Vec::new(), None)
            }
        };
        let job = InJob { authority, kept };
        let mut filter = Self::waiting(prepared, plan, (&credentials, Some(job)), (errors, true))?;
        if let Some(filter) = &mut filter {
            let started = filter.start();
            started.context("cannot start the network's filter")?;
        }
        drop(credentials);
        let _ = prctl::set_dumpable(is_dumpable);
        Ok(filter)
    }

    /// The key behind the certificate that is known in a job's jail, for the filters of other steps.
    pub fn authority(&self) -> Option<&Secret> {
        self.authority.as_ref()
    }

    /// Starts it. It waits for its sockets, and where it exchanges credentials it has said by which certificate it is known.
    ///
    /// # Errors
    /// What `socketpair(2)` or `fork(2)` answer; what keeps it from exchanging credentials.
    pub fn start(&mut self) -> io::Result<()> {
        let (life, theirs) = passing::pair()?;
        // It holds the values of credentials, and is the filter's alone from here on.
        let order = self.order.take().ok_or(io::ErrorKind::AlreadyExists)?;
        let given = [&order, &self.errors, &theirs];
        let running = Companion::start(&self.program, "serve", &given, life, &self.log, || Ok(()))?;
        if self.brokers {
            drop(theirs);
            self.certificate = said(running.life(), CERTIFICATE)?;
            if self.in_job {
                let key = Zeroizing::new(said(running.life(), AUTHORITY)?);
                let key = std::str::from_utf8(&key).map_err(io::Error::other)?;
                self.authority = Some(key.to_owned().into());
            }
        }
        self.running = Some(running);
        Ok(())
    }

    /// By which programs inside know it where it exchanges credentials, as PEM; empty where it does not.
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// Gives it sockets in the network of a jail in which nothing has run yet, unless a mediator leads connections to it already. When
    /// this returns the network is filtered.
    ///
    /// # Errors
    /// It is not.
    pub fn attach(&mut self, network: Option<BorrowedFd<'_>>) -> std::result::Result<(), Failure> {
        if self.filters {
            return Ok(());
        }
        let (Some(network), Some(running)) = (network, &self.running) else {
            return Err(failed("the jail's network is not there".to_owned()));
        };
        let life = running.life();
        in_jail(network, || {
            hand_over(&self.network.ports, self.in_job, life)
        })
        .map_err(failed)?;
        let copy = network
            .try_clone_to_owned()
            .map_err(|error| failed(error.to_string()))?;
        self.begin(Some(copy)).map_err(failed)
    }

    /// Joins it with a mediator that leads connections of a jail to it, for want of a network of the jail's own: the mediator's end of
    /// their socket. When this returns the filter waits for them.
    ///
    /// # Errors
    /// It does not.
    pub fn joined(&mut self) -> std::result::Result<OwnedFd, Failure> {
        let Some(running) = &self.running else {
            return Err(failed("its filter does not run".to_owned()));
        };
        let life = running.life();
        let (ours, theirs) = passing::pair().map_err(|error| failed(error.to_string()))?;
        give(life, SocketOf::Led, &theirs)
            .and_then(|()| passing::send(life, &[COMPLETE], None).map_err(takes_none))
            .map_err(failed)?;
        drop(theirs);
        self.begin(None).map_err(failed)?;
        Ok(ours)
    }

    /// Waits until it filters, and has somebody stand by it. `network` is the jail's, if it has one of its own.
    fn begin(&mut self, network: Option<OwnedFd>) -> std::result::Result<(), String> {
        let running = self.running.as_ref().ok_or("its filter does not run")?;
        let life = running.life();
        heard(life, "the filter").map_err(|why| {
            why.unwrap_or_else(|| format!("its filter ended (see `{}`)", self.log.display()))
        })?;
        self.filters = true;
        self.make_ready();
        if let Some(keeper) = self.standby.take() {
            let started = keeper.and_then(|keeper| keeper.start(network));
            let started = started.map_err(|error| format!("nobody can stand by it: {error}"))?;
            self.keeper = Some(started);
        }
        Ok(())
    }

    /// While the jail is built: makes what need not wait for its network.
    pub fn make_ready(&mut self) {
        if let (Some(now), Some(running)) = (self.now.take(), &self.running) {
            let keeper = Keeper::new(now, self.network.clone(), running.life(), &self.log);
            self.standby = Some(keeper);
        }
    }

    /// Nothing runs inside any more: tells it to end, which it does while the launcher waits for the rest of the jail.
    pub fn leave(&mut self) {
        // It would say that the filter is gone. It runs no further, and is not waited for: the kernel takes 10 to 20 ms to end
        // whoever watches files (inotify(7)).
        if let Some(keeper) = self.keeper.take() {
            let _ = kill(keeper, Signal::SIGKILL);
        }
        if let Some(running) = &self.running {
            running.leave();
        }
    }
}

/// A network that cannot be filtered.
fn failed(why: String) -> Failure {
    Failure::new(format!("the network cannot be filtered: {why}"))
        .hint("nothing was started; --set network.mode=isolated runs without a network")
}

/// The site's proxies, by the variables that most programs know: in small letters, or else in large ones.
fn site_proxies() -> SiteProxies {
    let value = |name: &str| {
        let names = [name.to_owned(), name.to_ascii_uppercase()];
        let set = names.iter().filter_map(|name| std::env::var(name).ok());
        set.into_iter()
            .find(|value| !value.is_empty())
            .unwrap_or_default()
    };
    SiteProxies {
        http: value("http_proxy"),
        https: value("https_proxy"),
        all: value("all_proxy"),
        none: value("no_proxy"),
    }
}

/// Has a child do something in the jail's network, for whoever enters the jail's namespaces does not come back.
fn in_jail(
    network: BorrowedFd<'_>,
    task: impl FnOnce() -> std::result::Result<(), String>,
) -> std::result::Result<(), String> {
    let owner = owner_of_jail(network, Kind::Network)
        .map_err(|error| format!("the jail's network namespace is not the user's own: {error}"))?;
    let (ours, theirs) = passing::pair().map_err(|error| error.to_string())?;
    match process::fork().map_err(|error| format!("cannot fork: {error}"))? {
        Side::Child => {
            let entered = namespaces::enter(&owner, Kind::User)
                .and_then(|()| namespaces::enter(network, Kind::Network))
                .map_err(|error| format!("cannot enter the jail's network: {error}"));
            let said = match entered.and_then(|()| task()) {
                Ok(()) => vec![READY],
                Err(why) => why.into_bytes(),
            };
            let said = &said[..said.len().min(LONGEST_REASON)];
            process::exit_now(i32::from(passing::send(&theirs, said, None).is_err()))
        }
        Side::Parent(child) => {
            drop(theirs);
            let said = heard(&ours, "the process that listens in the jail");
            if said.is_err() {
                // It may hang.
                let _ = kill(child, Signal::SIGKILL);
            }
            // It may have been reaped with others; the answer tells all.
            let _ = process::wait(child);
            said.map_err(|why| {
                why.unwrap_or_else(|| "the process that listens in the jail was killed".to_owned())
            })
        }
    }
}

/// Waits for what the filter says of its certificate, for a bounded time.
fn said(life: &OwnedFd, what: u8) -> io::Result<Vec<u8>> {
    let mut ready = [PollFd::new(life.as_fd(), PollFlags::POLLIN)];
    while let Err(Errno::EINTR) = poll(&mut ready, PollTimeout::from(PATIENCE_MS)) {}
    let mut said = Zeroizing::new(vec![0; LONGEST_CERTIFICATE]);
    let (length, _) = passing::receive(life, &mut said, MsgFlags::MSG_DONTWAIT)?;
    match said[..length].split_first() {
        Some((first, text)) if *first == what => Ok(text.to_vec()),
        _ => Err(io::Error::other(
            String::from_utf8_lossy(&said[..length]).into_owned(),
        )),
    }
}

/// Waits for somebody's word that all is well, for a bounded time.
///
/// # Errors
/// Why it is not; none if who should say it is gone.
pub(super) fn heard(socket: &OwnedFd, who: &str) -> std::result::Result<(), Option<String>> {
    let mut ready = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    let ready = loop {
        match poll(&mut ready, PollTimeout::from(PATIENCE_MS)) {
            Err(Errno::EINTR) => {}
            ready => break ready,
        }
    };
    if ready != Ok(1) {
        return Err(Some(format!("{who} does not answer")));
    }
    let mut said = [0; LONGEST_REASON];
    match passing::receive(socket, &mut said, MsgFlags::empty()) {
        Ok((1, _)) if said[0] == READY => Ok(()),
        Ok((0, _)) => Err(None),
        Ok((length, _)) => Err(Some(String::from_utf8_lossy(&said[..length]).into_owned())),
        Err(error) => Err(Some(error.to_string())),
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        self.leave();
        if let Some(running) = self.running.take() {
            running.end();
        }
    }
}

/// In the child: makes all sockets in the jail's network, and passes each to the filter.
fn hand_over(ports: &[u16], in_job: bool, filter: &OwnedFd) -> std::result::Result<(), String> {
    routes::start_loopback()
        .and_then(|()| routes::make_all_local(AddressFamily::Inet))
        .map_err(|error| format!("cannot set a route in the jail: {error}"))?;
    // Programs that ask for addresses of the families that a host has (`AI_ADDRCONFIG`) do not count those of loopback. Without
    // this one they find nothing, and nothing else is lost. In a job more is: Open MPI's mpirun takes loopback alone if it has one
    // address, and finds no network otherwise.
    if !in_job {
        let _ = routes::add_address(OWN);
    }
    // Without it no address of IPv6 leads anywhere.
    let six = routes::make_all_local(AddressFamily::Inet6).is_ok();
    let names = SocketAddr::from((Ipv4Addr::LOCALHOST, NAMES));
    give(filter, SocketOf::Names, &made(SockType::Datagram, names)?)?;
    let by_stream = made(SockType::Stream, names)?;
    give(filter, SocketOf::NamesByStream, &by_stream)?;
    for &port in ports {
        for listener in listeners(port, six)? {
            give(filter, SocketOf::Connections, &listener)?;
        }
    }
    passing::send(filter, &[COMPLETE], None).map_err(takes_none)
}

/// In the child: makes listeners for more ports in the jail's network, and passes them to the filter. It gets all of them, or none.
fn hand_over_more(ports: &[u16], filter: &OwnedFd) -> std::result::Result<(), String> {
    let six = made(
        SockType::Stream,
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    )
    .is_ok();
    let all = ports.iter().map(|port| listeners(*port, six));
    let all = all.collect::<std::result::Result<Vec<_>, _>>()?;
    let mut all = all.iter().flatten();
    all.try_for_each(|listener| give(filter, SocketOf::Connections, listener))
}

/// What listens at a port, at every address.
fn listeners(port: u16, six: bool) -> std::result::Result<Vec<OwnedFd>, String> {
    let mut all = vec![made(
        SockType::Stream,
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
    )?];
    if six {
        let every = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        all.push(made(SockType::Stream, every)?);
    }
    Ok(all)
}

fn made(kind: SockType, address: SocketAddr) -> std::result::Result<OwnedFd, String> {
    listening(kind, address).map_err(|error| match error.raw_os_error() {
        Some(libc::EADDRINUSE) if address.port() == NAMES => {
            format!("port {NAMES} inside is the resolver's: no rule can name it")
        }
        Some(libc::EADDRINUSE) => {
            let port = address.port();
            format!("a program in the jail has port {port}, at which the filter would listen")
        }
        _ => format!("cannot listen at {address} in the jail: {error}"),
    })
}

fn give(filter: &OwnedFd, what: SocketOf, made: &OwnedFd) -> std::result::Result<(), String> {
    passing::send(filter, &[what as u8], Some(made.as_fd())).map_err(takes_none)
}

fn takes_none(error: io::Error) -> String {
    format!("the filter takes no socket: {error}")
}

/// A socket at an address: one of datagrams, or one that listens.
fn listening(kind: SockType, address: SocketAddr) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let made = socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&made, sockopt::ReuseAddr, &true)?;
    if family == AddressFamily::Inet6 {
        setsockopt(&made, sockopt::Ipv6V6Only, &true)?;
    }
    bind(made.as_raw_fd(), &SockaddrStorage::from(address))?;
    if kind == SockType::Stream {
        sockets::listen(&made, WAITING)?;
    }
    Ok(made)
}
