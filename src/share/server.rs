//! The namespace server of a step: a process that the step's first task forks and that stays as long as the
//! step has members. It makes the step, answers whoever arrives, and starts the chaperon at the
//! first call from inside. It is in the step's cgroup, as Slurm wants it: what Slurm kills at the
//! end of a step, it kills with the step.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use agent_sandbox_wire::capsule::PolicySnapshot;
use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::SigSet;
use nix::sys::socket::MsgFlags;

use super::join_socket::{self, Claim, StepId};
use super::protocol::{
    Answer, GO, Hello, LISTENER, Refusal, Restrictions, Terms, VERSION, Wanted, Wants,
};
use super::step::{self, Jail, OfStep, StepNamespaces};
use super::{join, peer};
use crate::env_vars;
use crate::failure::{self, Failure};
use crate::host::HostFacts;
use crate::host::allocation::JobId;
use crate::host::files::HostFiles;
use crate::launch::forward::Forward;
use crate::launch::on_call::OnCall;
use crate::launch::{self, Prepared, start_messages, state, tracer};
use crate::plan::{self, NetworkMode, Plan};
use crate::policy::Policy;
use crate::sys::{fds, passing, process};

/// A step's join socket, and the right to it.
pub struct JoinPoint {
    /// The listening socket.
    pub listener: OwnedFd,
    /// The right to it.
    pub claim: Claim,
    /// Rooms that the job has on this node already.
    pub earlier: Vec<StepId>,
    /// slurmstepd, with whose end everything of the step ends. Tasks watch it as well, but those
    /// inside may be able to stop them; never the server.
    pub parent: Option<OwnedFd>,
    /// Where the first task reads what the filter of the network refuses.
    pub errors: OwnedFd,
}

/// Forks the server. It is nobody's child for long, and says nothing: what goes wrong it tells those
/// who arrive.
///
/// # Errors
/// What `fork(2)` answers.
pub fn start(join_point: JoinPoint, wanted: &Wanted) -> io::Result<()> {
    match process::fork()? {
        process::Side::Parent(_) => Ok(()),
        process::Side::Child => {
            let done =
                stand_alone(&join_point).and_then(|terminal| keep(join_point, wanted, terminal));
            process::exit_now(i32::from(done.is_err()))
        }
    }
}

/// Leaves everything that is the task's: its streams, whose readers wait for their end, its
/// terminal, its descriptors. No signal reaches the server: Slurm sends them to each process of a
/// step, and means the commands. The answer is the task's terminal, if it has one.
fn stand_alone(join_point: &JoinPoint) -> Result<Option<OwnedFd>> {
    SigSet::all().thread_block()?;
    process::ignore_all();
    // The leader of a session has nowhere to go; nothing depends on it.
    let _ = nix::unistd::setsid();
    let terminal = fds::terminal()?;
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    for number in [0, 1, 2] {
        fds::become_standard(&null, number)?;
    }
    drop(null);
    let mut kept = vec![
        join_point.listener.as_raw_fd(),
        join_point.errors.as_raw_fd(),
    ];
    kept.extend(join_point.claim.descriptors());
    kept.extend(
        terminal
            .iter()
            .chain(&join_point.parent)
            .map(AsRawFd::as_raw_fd),
    );
    fds::close_all_but(&kept)?;
    join_point.claim.keep(&join_point.listener)?;
    std::env::set_current_dir("/")?;
    Ok(terminal)
}

fn keep(join_point: JoinPoint, wanted: &Wanted, terminal: Option<OwnedFd>) -> Result<()> {
    let JoinPoint {
        listener,
        claim,
        earlier,
        parent,
        errors,
    } = join_point;
    let of_step = OfStep {
        order: claim.order(),
        terminal,
        errors,
    };
    let (made, refusal) = match make(&earlier, wanted, of_step) {
        Ok(made) => (Some(made), None),
        Err(error) => (None, Some(Refusal::of(&error))),
    };
    let own = process::descriptor_of(nix::unistd::getpid());
    let mut server = Server {
        listener,
        claim,
        proves: own.is_ok(),
        // Without one nobody waits.
        process: own.or_else(|_| File::open("/dev/null").map(Into::into))?,
        snapshot: wanted.snapshot.clone(),
        job: wanted.job.id,
        made,
        refusal,
        parent,
        members: Vec::new(),
        has_answered: false,
        last: None,
        own_job: peer::job_of_cgroup("self"),
    };
    server.serve()?;
    if let Some(made) = server.made {
        let Made {
            step,
            policy,
            host,
            plan,
            ..
        } = made;
        step.end();
        // The last task waits for the end of this process, which gives all memory back at once.
        std::mem::forget((policy, host, plan));
    }
    drop(server.last);
    Ok(())
}

/// A step with what was planned for it.
struct Made {
    policy: Policy,
    host: HostFacts,
    plan: Plan,
    /// What was known of files, until somebody has been answered.
    files: Option<HostFiles>,
    step: StepNamespaces,
    lacking: Vec<String>,
    ranks: bool,
}

fn make(earlier: &[StepId], wanted: &Wanted, of_its_own: OfStep) -> Result<Made> {
    let jail = existing(earlier, wanted)?;
    let mut prepared =
        launch::prepare_from_snapshot(wanted.snapshot.clone(), wanted.asked.clone())?;
    let (mut plan, _) = state::ready(&mut prepared)?;
    // Tasks ask the tracer themselves: each of them begins outside of the step.
    prepared.tracer = tracer::TracerState::Unwanted;
    let mut lacking = start_messages::shortcomings(&plan, false);
    lacking.retain(|line| !prepared.snapshot.told.contains(line));
    lacking.extend(of_network(&plan, wanted.step));
    let step = step::make(&prepared, &mut plan, wanted, of_its_own, jail)?;
    lacking.extend(step.forward.as_ref().map(Forward::line));
    let Prepared {
        policy,
        host,
        files,
        ..
    } = prepared;
    Ok(Made {
        policy,
        host,
        plan,
        files: Some(files),
        step,
        lacking,
        ranks: wanted.ranks,
    })
}

/// What a network of its own takes from a step that it would have outside.
pub fn of_network(plan: &Plan, step: StepId) -> Vec<String> {
    let network = &plan.network;
    let mut lacking = Vec::new();
    let mode = match network.value {
        NetworkMode::Open => return lacking,
        NetworkMode::Filtered => "filtered",
        NetworkMode::Isolated => "isolated",
    };
    if std::env::var_os(env_vars::PMIX).is_some() {
        lacking.push(format!(
            "agent-sandbox: warning: PMIx does not work in this step: its server is on the host's \
             network, and network.mode is \"{mode}\" ({})\n",
            network.source
        ));
    }
    let nodes = std::env::var(env_vars::SLURM_STEP_NUM_NODES).ok();
    let nodes: u32 = nodes.and_then(|count| count.parse().ok()).unwrap_or(1);
    if step != StepId::Batch && nodes > 1 {
        lacking.push(format!(
            "agent-sandbox: note: the {nodes} nodes of this step do not reach each other, for the network is {mode} ({}): if \
             they must, network.jobs = \"open\" gives jobs the nodes' network (a site: for one partition, by [[when]] \
             partition)\n",
            network.source
        ));
    }
    lacking
}

/// The jail that the job has on this node, from one of the steps that were there before this one.
/// None of them waits for this one, so that nobody waits in a circle.
fn existing(earlier: &[StepId], wanted: &Wanted) -> Result<Option<Jail>> {
    if wanted.step == StepId::Batch {
        // Its script is among the mounts that bubblewrap makes.
        return Ok(None);
    }
    let uid = nix::unistd::getuid().as_raw();
    for step in earlier {
        let Some(connection) = join_socket::ask(uid, &wanted.place, *step)? else {
            continue;
        };
        let hello = Hello {
            version: VERSION.to_owned(),
            job: wanted.job.id,
            snapshot: wanted.snapshot.clone(),
            wants: Wants::Step,
        };
        if let Some(jail) = join::ask_for_jail(&connection, &hello)? {
            return Ok(Some(jail));
        }
    }
    Ok(None)
}

struct Server {
    listener: OwnedFd,
    claim: Claim,
    /// This process.
    process: OwnedFd,
    /// Whether there are descriptors of processes on this kernel, so that each can prove itself.
    proves: bool,
    snapshot: PolicySnapshot,
    job: u32,
    /// The job in whose cgroup this process is.
    own_job: Option<JobId>,
    made: Option<Made>,
    /// Why there is no step.
    refusal: Option<Refusal>,
    /// slurmstepd.
    parent: Option<OwnedFd>,
    members: Vec<OwnedFd>,
    /// Whether a task was answered since it was last looked.
    has_answered: bool,
    /// The member that left last, which waits for the end of the step.
    last: Option<OwnedFd>,
}

/// What woke the server.
struct Woken {
    arrived: bool,
    init_gone: bool,
    called: bool,
    orphaned: bool,
    /// For each of the step's mediators that waits, whether there is something for it to do.
    handed_over: Vec<bool>,
    members: Vec<bool>,
}

impl Server {
    fn serve(&mut self) -> Result<()> {
        // Whoever forked the server has connected already.
        self.accept()?;
        loop {
            if self.members.is_empty() {
                match self.claim.retire(&self.listener)? {
                    Some(connection) => self.members.push(connection),
                    None => return Ok(()),
                }
            }
            self.dismiss();
            if std::mem::take(&mut self.has_answered) {
                self.release();
            }
            let woken = self.wait()?;
            if woken.orphaned {
                return Ok(());
            }
            if woken.init_gone {
                // Everything in the step was killed with it; the tasks see it.
                self.made = None;
                self.refusal = Some(Refusal::of(&anyhow::anyhow!(
                    "the jail of this job's step was killed on this node"
                )));
            }
            if woken.called {
                self.start_chaperon();
            }
            if let Some(made) = &mut self.made {
                made.step.begin_mediators(&woken.handed_over);
            }
            for at in (0..woken.members.len()).rev() {
                if woken.members[at] && !self.attend(at) {
                    // Slurm calls a step over when nothing of it is left, so its last task waits
                    // for the step's end.
                    self.dismiss();
                    self.last = Some(self.members.swap_remove(at));
                }
            }
            if woken.arrived {
                self.accept()?;
            }
        }
    }

    /// Gives back what making the step took. The first task does not wait for that.
    fn release(&mut self) {
        let files = self.made.as_mut().and_then(|made| made.files.take());
        if files.is_some() {
            drop(files);
            process::release_memory();
        }
    }

    /// Lets the member go that left last: it is not the last any more.
    fn dismiss(&mut self) {
        if let Some(member) = self.last.take() {
            let _ = passing::send(&member, GO, None);
        }
    }

    fn wait(&self) -> Result<Woken> {
        let step = self.made.as_ref().map(|made| &made.step);
        let called = step
            .and_then(|step| step.chaperon.as_ref())
            .and_then(OnCall::waiting);
        let control = step.map(|step| step.control.as_fd());
        let parent = self.parent.as_ref().map(AsFd::as_fd);
        let fixed = [Some(self.listener.as_fd()), control, called, parent];
        let mut ready: Vec<PollFd<'_>> = fixed
            .into_iter()
            // The listener stands in for what there is not.
            .map(|fd| fd.unwrap_or(self.listener.as_fd()))
            .chain(self.members.iter().map(AsFd::as_fd))
            .chain(step.iter().flat_map(|step| step.waiting_mediators()))
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        loop {
            match poll(&mut ready, PollTimeout::NONE) {
                Ok(_) => break,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let any: Vec<bool> = ready.iter().map(|one| one.any().unwrap_or(false)).collect();
        Ok(Woken {
            arrived: any[0],
            init_gone: control.is_some() && any[1],
            called: called.is_some() && any[2],
            orphaned: parent.is_some() && any[3],
            members: any[4..4 + self.members.len()].to_vec(),
            handed_over: any[4 + self.members.len()..].to_vec(),
        })
    }

    fn accept(&mut self) -> Result<()> {
        loop {
            match join_socket::accept(&self.listener) {
                Ok(Some(connection)) => self.members.push(connection),
                Ok(None) => return Ok(()),
                // More members than a process may have files: only now, for programs started from
                // here inherit the limit, and Slurm hands it on to jobs.
                Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
                    if soft >= hard {
                        return Err(error.into());
                    }
                    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Hears a member; `false` if it has left, or must.
    fn attend(&mut self, at: usize) -> bool {
        let mut buffer = [0; 64];
        let connection = &self.members[at];
        let received = passing::receive_many(connection, &mut buffer, MsgFlags::MSG_DONTWAIT);
        let (length, mut descriptors) = match received {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
            Err(_) | Ok((0, _)) => return false,
            Ok(received) => received,
        };
        if descriptors.is_empty() {
            return false;
        }
        let file = descriptors.remove(0);
        if &buffer[..length] == LISTENER {
            let step = self.made.as_ref().map(|made| &made.step);
            let maker = step.and_then(|step| step.sockets.as_ref());
            return match maker {
                Some((maker, _)) => maker.serve(file).is_ok(),
                None => {
                    let step = self.made.as_mut().map(|made| &mut made.step);
                    step.is_some_and(|step| step.mediate(file))
                }
            };
        }
        let answered = super::protocol::read::<Hello>(file)
            .context("cannot understand who arrives")
            .and_then(|hello| self.answer(connection, descriptors.pop(), hello));
        match answered {
            Ok(()) => {
                self.has_answered = true;
                true
            }
            Err(error) => {
                let refused = Answer::Refused(Refusal::of(&error));
                let _ = super::protocol::send(connection, &refused, &(), &[]);
                // It stays a member until it has read the answer and left.
                true
            }
        }
    }

    fn answer(&self, connection: &OwnedFd, from: Option<OwnedFd>, hello: Hello) -> Result<()> {
        self.judge(connection, from, &hello)?;
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone().into_error());
        }
        let made = self.made.as_ref().context("there is no step")?;
        let mut lent = vec![self.process.as_fd()];
        lent.extend(made.step.namespaces.lent());
        let welcome = Answer::Welcome;
        match hello.wants {
            Wants::Task { environment } => {
                super::protocol::send(connection, &welcome, &made.terms(environment), &lent)?;
            }
            Wants::Step => super::protocol::send(connection, &welcome, &made.step.jail, &lent)?,
        }
        Ok(())
    }

    /// Whether who arrives belongs here.
    fn judge(&self, connection: &OwnedFd, from: Option<OwnedFd>, hello: &Hello) -> Result<()> {
        if hello.version != VERSION {
            return Err(Failure::new(format!(
                "agent-sandbox {} made the jail of this job on this node, and this is {}",
                VERSION, hello.version
            ))
            .hint("start the step again when the job is over, or submit the job again")
            .into());
        }
        // Whoever is on this kernel has a descriptor of itself, or nobody has.
        if self.proves && from.is_none() {
            bail!("who arrives does not prove which process it is");
        }
        peer::judge(connection, from.as_ref(), self.own_job.as_ref())?;
        if hello.job != self.job {
            return Err(Failure::new(format!(
                "this is the jail of job {}, not of job {}",
                self.job, hello.job
            ))
            .into());
        }
        super::protocol::same_policy(&self.snapshot, &hello.snapshot).map_err(|what| {
            Failure::new(format!(
                "job {} has a jail on this node under another policy: {what} differ",
                self.job
            ))
            .hint("start the step from the session that submitted the job, or with the same options and policy files")
            .into()
        })
    }

    /// Somebody inside asks for Slurm for the first time.
    fn start_chaperon(&mut self) {
        let step = self.made.as_mut().map(|made| &mut made.step);
        if let Some(chaperon) = step.and_then(|step| step.chaperon.as_mut())
            && let Err(error) = chaperon.start()
        {
            failure::say(&format!(
                "agent-sandbox: error: cannot start the chaperon: {error}\n"
            ));
            // Closes the socket: calls fail instead of waiting.
            chaperon.end();
        }
    }
}

impl Made {
    /// On what terms a task with this environment joins.
    fn terms(&self, environment: Vec<Vec<u8>>) -> Terms {
        let variables =
            plan::environment_of_task(&self.policy, &self.host, &self.plan, &environment);
        let StepNamespaces { jail, sockets, .. } = &self.step;
        let mut restrictions: Restrictions = jail.restrictions.clone();
        if self.ranks {
            // Processes in Landlock domains of their own do not see each other's memory
            // (process_vm_readv(2)), which is how ranks on a node talk.
            restrictions.confinement.scoped_signals = false;
            restrictions.confinement.scoped_sockets = false;
            restrictions.confinement.writable = None;
            restrictions.confinement.listed = None;
        }
        if sockets.is_some() {
            restrictions.confinement.scoped_sockets = false;
        }
        let mediated = restrictions.confinement.mediated.take();
        Terms {
            environment: launch::environment(&variables),
            search: launch::search_path(&variables),
            cwd_else: bytes(self.plan.cwd.as_os_str()),
            restrictions,
            sockets: sockets.as_ref().map(|(_, program)| program.clone()),
            mediated: mediated.filter(|_| sockets.is_none()),
            lacking: self.lacking.clone(),
            state: bytes(self.host.state_directory.as_os_str()),
            trace_request: self.plan.trace.request.clone(),
        }
    }
}

fn bytes(text: &std::ffi::OsStr) -> Vec<u8> {
    std::os::unix::ffi::OsStrExt::as_bytes(text).to_vec()
}
