//! Making the namespaces of a step: with bubblewrap, where the job has no jail on this node yet, or in the jail that
//! it has.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Child;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::socket::MsgFlags;
use nix::sys::stat::Mode;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use super::join_socket::StepId;
use super::namespaces::Namespaces;
use super::pids;
use super::protocol::{JailTerms, Restrictions, Wanted};
use super::sockets::Maker;
use crate::backend::bubblewrap::mediator::{Standby, Terms};
use crate::failure::Failure;
use crate::handoff::{Order, Report, Service};
use crate::host::mount_table;
use crate::init;
use crate::launch::chaperon;
use crate::launch::forward::{Forward, is_of_step};
use crate::launch::network::{Filter, KnownBy};
use crate::launch::on_call::OnCall;
use crate::launch::supervisor::Outcome;
use crate::launch::{self, Prepared, bubblewrap, diagnose, ending, finish, start_messages};
use crate::plan::build::slurm;
use crate::plan::{NetworkMode, Plan};
use crate::seccomp::notify;
use crate::sys::namespaces::Kind;
use crate::sys::{fds, mounts, namespaces, passing, privileges, process};

/// The namespaces of a step, with its init and what stands around them.
pub struct StepNamespaces {
    /// What every process of the jail submits to, and what another step is told of it.
    pub jail: JailTerms,
    /// Its namespaces.
    pub namespaces: Namespaces,
    /// The socket to its init.
    pub control: OwnedFd,
    /// The way to Slurm.
    pub chaperon: Option<OnCall>,
    /// The filter of the step's network, if it is filtered and not by that of the batch script.
    filter: Option<Filter>,
    /// Ports of the step's network that are forwarded, if it was made for the step.
    pub forward: Option<Forward>,
    /// Where the sockets of its tasks are made, and the filter that sees to it.
    pub sockets: Option<(Maker, Vec<u8>)>,
    mediators: Vec<Standby>,
    /// What they keep to; `None`: there are none.
    terms: Option<Terms>,
    holder: Holder,
}

/// The process between server and init.
enum Holder {
    Bwrap(Child),
    Own(Pid),
}

const NO_MAKER: &str = "cannot make a network namespace for the sockets of the job's tasks";

/// The jail that the job has on this node already.
pub type Jail = (JailTerms, Namespaces);

/// What a step has of its first task.
pub struct OfStep {
    /// Its place among the steps of the job on this node.
    pub order: u64,
    /// The terminal, if there is one.
    pub terminal: Option<OwnedFd>,
    /// Where the filter of the step's network says what it refuses.
    pub errors: OwnedFd,
}

/// Makes the namespaces of a step for one task, or for several (`ranks`), which see each other's memory.
///
/// # Errors
/// What keeps the jail from being built or joined.
pub fn make(
    prepared: &Prepared,
    plan: &mut Plan,
    wanted: &Wanted,
    OfStep {
        order,
        terminal,
        errors,
    }: OfStep,
    jail: Option<Jail>,
) -> Result<StepNamespaces> {
    let open = plan.network.value == NetworkMode::Open;
    // Made ready while the step is.
    let terms = launch::mediated_terms(plan);
    // The maker gets the calls of both kinds, and is not of the user namespace that the mediator needs.
    let relay = match open && terms.is_some() {
        true => Some(passing::pair().context("cannot make a pair of sockets")?),
        false => None,
    };
    let (relayed, relay) = relay.unzip();
    let maker = match open {
        true => Some(Maker::begin(relay).context(NO_MAKER)?),
        false => None,
    };
    let joins = jail
        .as_ref()
        .is_some_and(|(terms, _)| terms.filtered_to_the_end);
    let mut filter = match joins {
        true => None,
        false => {
            let known = match &jail {
                Some((terms, _)) => KnownBy::Jail(terms.authority.clone()),
                None => KnownBy::Itself,
            };
            Filter::of_job(prepared, plan, errors, known)?
        }
    };
    let authority = match &jail {
        Some((terms, _)) => terms.authority.clone(),
        None => filter.as_ref().and_then(Filter::authority).cloned(),
    };
    if let (Some(filter), None) = (&filter, &jail) {
        plan.trust(filter.certificate());
    }
    let plan = &*plan;
    let own = is_of_step(plan, jail.is_none(), filter.is_some());
    let mut forward = match own {
        true => Forward::new(&prepared.host, plan, wanted.asked.job.step.as_ref())?,
        false => None,
    };
    let finish = |jail: &Restrictions| Finish::new(jail, order, terminal);
    let (restrictions, mut begun, left) = match jail {
        Some((JailTerms { restrictions, .. }, namespaces)) => {
            let new = New {
                plan,
                restrictions: &restrictions,
                jail: &namespaces,
                finish: &finish(&restrictions)?,
                own_network: filter.is_some(),
            };
            let begun = new.beside()?;
            (restrictions, begun, None)
        }
        None => {
            prepared.make_places(plan)?;
            let begun = Begun::with_bwrap(plan)?;
            // While bubblewrap works. Where this fails, init ends with the socket to it.
            let restrictions = Restrictions {
                filter: launch::filter(plan)?,
                confinement: launch::confinement(plan),
            };
            let left = finish(&restrictions)?;
            (restrictions, begun, Some(left))
        }
    };
    let told = start_messages::shortcomings(plan, false);
    let mut chaperon = chaperon::on_call(prepared, plan, told, Some(wanted.job.clone()))?;
    let namespaces = begun.wait(chaperon.as_mut())?;
    if let Some(left) = left {
        left.in_child(&namespaces)
            .context("cannot finish the jail's mounts")?;
    }
    if let Some(filter) = &mut filter {
        // No task has joined yet.
        filter.attach(Some(namespaces.network()))?;
    }
    if let Some(forward) = &mut forward {
        forward.attach(Some(namespaces.network()))?;
    }
    let sockets = match maker.map(|maker| maker.wait_for_ready().map(|()| maker)) {
        None => None,
        Some(Ok(maker)) => {
            let mediated = restrictions.confinement.mediated.as_ref();
            let program = mediated.map(|mediated| mediated.with_sockets.clone());
            Some((maker, program.unwrap_or_else(notify::program)))
        }
        // A kernel without Landlock's scopes may be too old for this as well; the user knows. And
        // some sites forbid network namespaces: Landlock does where it can.
        Some(Err(_)) if !plan.landlock_scope || !wanted.ranks => None,
        Some(Err(error)) => {
            return Err(Failure::new(format!("{NO_MAKER}: {error}"))
                .hint("user: steps with one task for each node can do without")
                .hint("admin: steps with several tasks need network namespaces (sysctl user.max_net_namespaces)")
                .into());
        }
    };
    Ok(StepNamespaces {
        jail: JailTerms {
            restrictions,
            authority,
            filtered_to_the_end: joins || filter.is_some() && wanted.step == StepId::Batch,
        },
        namespaces,
        control: begun.control,
        chaperon,
        filter,
        forward,
        sockets,
        mediators: relayed
            .zip(terms.clone())
            .map(|(relay, terms)| Standby::relayed(relay, terms))
            .into_iter()
            .collect(),
        terms,
        holder: begun.holder,
    })
}

impl StepNamespaces {
    /// Has a mediator answer the calls of this listener; whether there is one.
    pub fn mediate(&mut self, listener: OwnedFd) -> bool {
        let Some(terms) = &self.terms else {
            return false;
        };
        self.mediators.push(Standby::new(listener, terms.clone()));
        true
    }

    /// What becomes readable when a mediator has something to do: those that have not begun.
    pub fn waiting_mediators(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.mediators.iter().filter_map(Standby::waiting)
    }

    /// Begins those of [`Self::waiting_mediators`] that have something to do, and forgets those that are
    /// over.
    pub fn begin_mediators(&mut self, called: &[bool]) {
        let waiting = self
            .mediators
            .iter_mut()
            .filter(|one| one.waiting().is_some());
        for (one, _) in waiting.zip(called).filter(|(_, called)| **called) {
            one.begin();
        }
        self.mediators.retain_mut(|one| !one.is_over());
    }

    /// Ends the step on this node: everything in it, and what stands around it.
    pub fn end(self) {
        let Self {
            control,
            chaperon,
            filter,
            forward,
            sockets,
            mediators,
            holder,
            ..
        } = self;
        // Init ends when its launcher is gone, and everything in its pid namespace with it.
        drop(control);
        match holder {
            Holder::Bwrap(mut bwrap) => drop(bwrap.wait()),
            Holder::Own(pid) => while let Err(Errno::EINTR) = waitpid(pid, None) {},
        }
        drop(sockets);
        drop(mediators);
        drop(chaperon);
        drop(filter);
        drop(forward);
    }
}

/// A step whose init was started.
struct Begun {
    control: OwnedFd,
    holder: Holder,
    complaint: Option<std::os::unix::net::UnixStream>,
    finish: Option<finish::Finish>,
}

impl Begun {
    fn with_bwrap(plan: &Plan) -> Result<Self> {
        let bwrap = bubblewrap::find()?;
        let started = bubblewrap::start(&bwrap, plan, bubblewrap::order(plan))?;
        process::release_memory();
        process::release_text();
        Ok(Self {
            finish: started.finish,
            control: started.control,
            holder: Holder::Bwrap(started.bwrap),
            complaint: Some(started.complaint),
        })
    }

    /// Waits until init is ready; its namespaces.
    fn wait(&mut self, mut chaperon: Option<&mut OnCall>) -> Result<Namespaces> {
        let mut namespaces = None;
        loop {
            let mut buffer = [0; crate::handoff::LONGEST_DATAGRAM];
            let (length, descriptors) =
                match passing::receive_many(&self.control, &mut buffer, MsgFlags::empty()) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) if error.raw_os_error() != Some(libc::ECONNRESET) => {
                        return Err(error).context("cannot hear the jail's init");
                    }
                    Err(_) => (0, Vec::new()),
                    Ok(received) => received,
                };
            if length == 0 {
                return Err(self.failed());
            }
            match postcard::from_bytes(&buffer[..length])? {
                Report::Unfinished => {
                    let lent = descriptors.into_iter().next();
                    finish::answer(self.finish.take(), lent, &self.control)
                        .map_err(|why| anyhow::anyhow!("cannot finish the jail's mounts: {why}"))?;
                }
                Report::Listening(Service::Slurm) => {
                    if let (Some(chaperon), Some(socket)) =
                        (&mut chaperon, descriptors.into_iter().next())
                    {
                        chaperon.listening(socket);
                    }
                }
                Report::Namespaces => namespaces = Some(Namespaces::take(descriptors)?),
                Report::Ready => {
                    return namespaces.context("the jail's init handed no namespaces out");
                }
                Report::Refused(reason) => {
                    ending::conclude(Outcome::Refused(reason), "".as_ref())?;
                    bail!("the jail is not as planned");
                }
                _ => bail!("the jail's init speaks out of turn"),
            }
        }
    }

    /// Why there is no init.
    fn failed(&mut self) -> anyhow::Error {
        match &mut self.holder {
            Holder::Bwrap(bwrap) => drop(bwrap.wait()),
            Holder::Own(pid) => while let Err(Errno::EINTR) = waitpid(*pid, None) {},
        }
        let words = self.complaint.take().map(diagnose::complaint);
        let outcome = Outcome::NoJail(words.unwrap_or_default());
        match (&self.holder, ending::conclude(outcome, "".as_ref())) {
            (Holder::Bwrap(_), Err(error)) => error,
            _ => anyhow::anyhow!("the jail of this job ended while a step was made in it"),
        }
    }
}

/// A step that is being made in a jail.
struct New<'a> {
    plan: &'a Plan,
    restrictions: &'a Restrictions,
    jail: &'a Namespaces,
    finish: &'a Finish,
    /// Whether it gets a network namespace of its own, in which nothing is there before its filter.
    own_network: bool,
}

impl New<'_> {
    /// Starts the init of a step beside others of the jail. Its file systems are the jail's, but for
    /// `/proc` and the place of the chaperon's socket.
    fn beside(&self) -> Result<Begun> {
        let order = Order {
            // They were compared when the jail was built.
            expect: Vec::new(),
            ..bubblewrap::order(self.plan)
        };
        let order = postcard::to_allocvec(&order).context("cannot write the order")?;
        let order = fds::memory_file(c"agent-sandbox-order", &order)?;
        let (ours, theirs) = passing::pair()?;
        let server = nix::unistd::getpid();
        match process::fork().context("cannot fork")? {
            process::Side::Parent(pid) => Ok(Begun {
                control: ours,
                holder: Holder::Own(pid),
                complaint: None,
                finish: None,
            }),
            process::Side::Child => {
                let Err(error) = self.hold(server, &theirs, order);
                let refused = Report::Refused(format!("{error:#}"));
                if let Ok(text) = postcard::to_allocvec(&refused) {
                    let _ = passing::send(&theirs, &text, None);
                }
                process::exit_now(1)
            }
        }
    }

    /// Enters the jail, starts init in a pid namespace of its own, and ends with it. Returns only
    /// on failure, in whichever of the two processes it is.
    fn hold(&self, server: Pid, control: &OwnedFd, order: OwnedFd) -> Result<Infallible> {
        nix::sys::prctl::set_dumpable(false)?;
        // Nothing of the server's, least of all the socket at which tasks arrive.
        let mut kept = vec![control.as_raw_fd(), order.as_raw_fd()];
        kept.extend(self.jail.descriptors());
        kept.extend(self.finish.descriptors());
        fds::close_all_but(&kept)?;
        self.jail.enter_shared().context("cannot join the jail")?;
        // A change of credentials takes both back.
        nix::sys::prctl::set_dumpable(false)?;
        privileges::end_with_parent(Some(server))?;
        let network = self.own_network.then_some(Kind::Network);
        let left: Vec<Kind> = [Kind::Mount, Kind::Pid, Kind::Cgroup]
            .into_iter()
            .chain(network)
            .collect();
        namespaces::leave(&left).context("cannot make namespaces in the jail")?;
        self.finish
            .mounts()
            .context("cannot finish the step's mounts")?;
        match process::fork().context("cannot fork")? {
            process::Side::Child => {
                self.become_part()?;
                let control = control.try_clone()?;
                init::go_on(control, order)
            }
            process::Side::Parent(pid) => {
                // The server would wait for init's end of it.
                fds::close_in_child(control)?;
                while let Err(Errno::EINTR) = waitpid(pid, None) {}
                process::exit_now(0)
            }
        }
    }

    /// Finishes the step's file systems and gives every right over them up.
    fn become_part(&self) -> Result<()> {
        mounts::proc_at(Path::new("/proc")).context("cannot mount /proc")?;
        pids::count_from(self.finish.last_pid);
        if self.plan.wants_chaperon() {
            mounts::tmpfs_at(slurm::socket_directory(), slurm::SOCKET_ROOM, 0o700)
                .context("cannot mount the place of the chaperon's socket")?;
        }
        nix::unistd::chdir("/")?;
        self.jail.enter_user().context("cannot join the jail")?;
        privileges::drop_all().context("cannot give up capabilities")?;
        privileges::no_new_privileges()?;
        privileges::end_with_parent(None)?;
        privileges::filter(&self.restrictions.filter).context("cannot install the filter of calls")
    }
}

/// What bubblewrap does not do for a step.
struct Finish {
    /// The only places below which a mount may be writable. Landlock sees to it in steps for one
    /// task; but a directory that such a task has open it can hand to a rank, which has no Landlock.
    writable: Vec<PathBuf>,
    /// The task's terminal.
    terminal: Option<OwnedFd>,
    /// The `/proc` in which this process can be found.
    proc: OwnedFd,
    /// The number after which processes of the step are counted.
    last_pid: u32,
}

impl Finish {
    fn new(jail: &Restrictions, order: u64, terminal: Option<OwnedFd>) -> Result<Self> {
        let writable = jail.confinement.writable.iter().flatten();
        let writable = writable.map(|path| PathBuf::from(OsStr::from_bytes(path)));
        let terminal = terminal.map(|terminal| {
            mounts::detached(terminal.as_fd(), mounts::Lets::Device)
                .context("cannot take the terminal along")
        });
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Self {
            writable: writable.collect(),
            terminal: terminal.transpose()?,
            proc: open("/proc", flags, Mode::empty())?,
            last_pid: pids::before(order),
        })
    }

    /// The numbers of the descriptors that it holds.
    fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let terminal = self.terminal.iter().map(AsRawFd::as_raw_fd);
        terminal.chain([self.proc.as_raw_fd()])
    }

    /// For a process with rights over the step's mounts. What the host mounts from here on does not
    /// arrive.
    fn mounts(&self) -> io::Result<()> {
        mounts::make_private()?;
        // Without a list mounts alone decide what is writable (jail.nested, kernels before 6.12).
        if !self.writable.is_empty() {
            self.close()?;
        }
        match &self.terminal {
            Some(terminal) => mounts::console(terminal),
            // It may be another step's.
            None => mounts::no_console(),
        }
    }

    /// Makes read-only what the host mounted below a readable directory while the jail was there.
    fn close(&self) -> io::Result<()> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let mut table = Vec::new();
        File::from(openat(&self.proc, "self/mountinfo", flags, Mode::empty())?)
            .read_to_end(&mut table)?;
        for place in mount_table::places(&table) {
            if self.writable.iter().any(|above| place.starts_with(above)) {
                continue;
            }
            match mounts::make_read_only(&place) {
                Ok(()) => {}
                // Nobody gets there.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // Another mount covers it.
                Err(error)
                    if error.raw_os_error() == Some(libc::EINVAL) && is_read_only(&place) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The same in a jail that this process has not joined.
    fn in_child(&self, jail: &Namespaces) -> Result<()> {
        match process::fork()? {
            process::Side::Child => {
                let done = jail.enter_shared().and_then(|()| self.mounts());
                // A child of this process is in the step, and there numbers are counted. It is waited
                // for: a step's init cannot end before all of the step have been.
                if done.is_ok() && jail.enter_pids().is_ok() {
                    match process::fork() {
                        Ok(process::Side::Child) => {
                            pids::count_from(self.last_pid);
                            process::exit_now(0);
                        }
                        Ok(process::Side::Parent(pid)) => drop(process::wait(pid)),
                        Err(_) => {}
                    }
                }
                let code = done.map_or_else(|error| error.raw_os_error().unwrap_or(1), |()| 0);
                process::exit_now(code)
            }
            process::Side::Parent(pid) => match process::wait(pid)? {
                process::Change::Exited(0) => Ok(()),
                process::Change::Exited(errno) => Err(io::Error::from_raw_os_error(errno).into()),
                _ => bail!("the process that does it was killed"),
            },
        }
    }
}

fn is_read_only(place: &Path) -> bool {
    statvfs(place).is_ok_and(|found| found.flags().contains(FsFlags::ST_RDONLY))
}
