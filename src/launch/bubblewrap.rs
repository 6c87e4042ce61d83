//! A jail that bubblewrap makes: found, started, stood by.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use super::backend::{Backend, Planned, Ready, Reason, Running};
use super::finish::{Finish, NotTaken};
use super::orders::filter;
use super::prepared::Prepared;
use super::state::{self, StateChanges};
use super::supervisor::{self, Company, Jail, Outcome};
use crate::backend::bubblewrap::{self, Finisher, Rest};
use crate::backend::missing::MissingFeature;
use crate::failure::Failure;
use crate::handoff::{Expect, Order, Run, Service};
use crate::host;
use crate::plan::model::ssh;
use crate::plan::{self, Access, Mount, Plan};
use crate::sys::{fds, mounts, passing, process};

/// bubblewrap.
///
/// # Errors
/// There is none that can be used, with the ways out.
pub fn find() -> Result<PathBuf> {
    host::find_bwrap().map_err(|error| {
        Failure::new(format!("{error:#}"))
            .hint("user: this node cannot run the jail as it is; ask its administrator")
            .hint("admin: install the package `bubblewrap` (0.4 or newer)")
            .into()
    })
}

/// Jails that bubblewrap makes.
#[derive(Clone, Debug, Default)]
pub struct Bubblewrap {
    /// The program, if it was looked for already.
    pub program: Option<PathBuf>,
}

impl Bubblewrap {
    /// By this program.
    pub fn at(program: PathBuf) -> Self {
        Self {
            program: Some(program),
        }
    }
}

impl Backend for Bubblewrap {
    fn word(&self) -> &'static str {
        "bwrap"
    }

    fn name(&self) -> &'static str {
        "bubblewrap"
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn may_lack(&self) -> Vec<MissingFeature> {
        Vec::new()
    }

    fn missing(&self, _: &Prepared) -> Result<Vec<MissingFeature>> {
        Ok(Vec::new())
    }

    fn planned(&self, prepared: &Prepared, _: Option<&Reason>) -> Result<Planned> {
        Ok(Planned {
            plan: prepared.plan()?,
            parts: Vec::new(),
            text: String::new(),
        })
    }

    fn prepare(&self, prepared: &mut Prepared, _: Option<&Reason>) -> Result<Box<dyn Ready>> {
        let program = match &self.program {
            Some(program) => program.clone(),
            None => find()?,
        };
        let (plan, state_changes) = state::ready(prepared)?;
        prepared.make_places(&plan)?;
        Ok(Box::new(Planning {
            program,
            plan,
            state_changes,
        }))
    }
}

/// A jail that is about to be started.
struct Planning {
    program: PathBuf,
    plan: Plan,
    state_changes: StateChanges,
}

impl Ready for Planning {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn home(&self) -> PathBuf {
        self.plan.home.clone()
    }

    fn real(&self, inside: &Path) -> PathBuf {
        inside.to_path_buf()
    }

    fn weaker(&self, _: bool) -> String {
        String::new()
    }

    fn start(self: Box<Self>, run: Run, company: &mut Company) -> Result<Box<dyn Running>> {
        let Self {
            program,
            plan,
            state_changes,
        } = *self;
        match begin(&program, plan, run, company) {
            Ok(jail) => Ok(Box::new(Begun {
                jail,
                state_changes,
            })),
            Err(error) => {
                state_changes.end();
                Err(error)
            }
        }
    }
}

/// Starts bubblewrap for a command. The launcher stays for as long as that runs; the plan need not stay with it.
fn begin(
    program: &Path,
    mut plan: Plan,
    run: Run,
    company: &mut Company,
) -> Result<(Jail, OwnedFd)> {
    if let Some(network) = &company.network {
        plan.trust(network.certificate());
    }
    let order = Order {
        run: Some(run),
        ..order(&plan)
    };
    supervisor::hold_signals(company.by_slurm).context("cannot hold signals back")?;
    let Started {
        bwrap,
        control,
        complaint,
        finish,
    } = start(program, &plan, order)?;
    drop(plan);
    company.finish = finish;
    Ok((Jail::built(&bwrap, complaint), control))
}

/// A jail that runs.
struct Begun {
    jail: (Jail, OwnedFd),
    state_changes: StateChanges,
}

impl Running for Begun {
    fn supervise(self: Box<Self>, company: &mut Company) -> Result<Outcome> {
        let Self {
            jail: (jail, control),
            state_changes,
        } = *self;
        let outcome = supervisor::supervise(jail, control, company);
        // What stood by the command goes before its state is put away.
        company.chaperon = None;
        company.ssh = None;
        company.network = None;
        company.forward = None;
        company.tracer = None;
        company.group = None;
        state_changes.end();
        Ok(outcome?)
    }
}

/// bubblewrap before 0.5 calls `creat(2)` on the place of a mount that is neither a regular file nor a
/// directory. On a FIFO that waits for ever, and on a socket it fails.
fn refuse_what_it_waits_for(plan: &Plan) -> Result<()> {
    for step in &plan.steps {
        if !matches!(step.mount, Mount::Bind { .. } | Mount::HideFile) {
            continue;
        }
        let at = plan.place(step);
        let around = plan.steps.iter().rev();
        let mut around = around.filter(|other| other.at != step.at && at.starts_with(&other.at));
        let below = match around.next().map(|other| (&other.at, &other.mount)) {
            Some((above, Mount::Bind { from, .. } | Mount::Kept { from, .. })) => {
                at.strip_prefix(above).map(|below| from.join(below))
            }
            // Nothing is there, or what bubblewrap made itself.
            _ => continue,
        };
        let kind = below.map(std::fs::symlink_metadata);
        if let Ok(Ok(meta)) = kind
            && !(meta.is_file() || meta.is_dir() || meta.is_symlink())
        {
            return Err(Failure::new(format!(
                "the installed bubblewrap cannot mount anything over `{}`, which is neither a regular file nor a directory",
                at.display()
            ))
            .hint("user: remove it, if a program or an agent left it there")
            .hint("admin: bubblewrap 0.8 can")
            .into());
        }
    }
    Ok(())
}

/// bubblewrap, started.
pub struct Started {
    /// The process.
    pub bwrap: Child,
    /// The socket to init.
    pub control: OwnedFd,
    /// Where bubblewrap says what went wrong.
    pub complaint: UnixStream,
    /// What is to be done when init says [`crate::handoff::Report::Unfinished`].
    pub finish: Option<Finish>,
}

/// Starts bubblewrap for a plan. Mounts are taken from the host while it builds the jail; where they cannot be had, it
/// starts once more and makes them itself.
///
/// # Errors
/// The filter of system calls cannot be compiled; what `memfd_create(2)`, `socketpair(2)`, `fork(2)` or `execve(2)` answer.
pub fn start(bwrap: &Path, plan: &Plan, mut order: Order) -> Result<Started> {
    let filter = filter(plan)?;
    if !host::bubblewrap::lacks(bwrap).is_empty() {
        refuse_what_it_waits_for(plan)?;
        let call = bubblewrap::call(plan, filter, Finisher::Launcher);
        return start_by(bwrap, call, &mut order);
    }
    if mounts::can_be_cloned() {
        let needed = libraries();
        let call = bubblewrap::call(plan, filter.clone(), Finisher::Less(&needed));
        match start_by(bwrap, call, &mut order) {
            Err(error) if error.is::<NotTaken>() => {
                tracing::info!(target: "launch", %error, "bubblewrap makes all mounts");
            }
            started => return started,
        }
    }
    let call = bubblewrap::call(plan, filter, Finisher::Both);
    start_by(bwrap, call, &mut order)
}

/// The files by which init, this program, is started, by every name that leads to them.
fn libraries() -> Vec<PathBuf> {
    let mut found = process::libraries();
    let real: Vec<_> = found
        .iter()
        .filter_map(|path| path.canonicalize().ok())
        .collect();
    found.extend(real);
    found
}

fn start_by(bwrap: &Path, mut call: bubblewrap::Call, order: &mut Order) -> Result<Started> {
    let rest = std::mem::take(&mut call.rest);
    let unfinished = rest != Rest::default();
    order.unfinished = unfinished;
    let text = postcard::to_allocvec(&*order).context("cannot write the order")?;
    let order = fds::memory_file(c"agent-sandbox-order", &text)?;
    let mut contents: Vec<OwnedFd> = Vec::with_capacity(call.contents.len());
    for content in &call.contents {
        contents.push(fds::memory_file(c"agent-sandbox", content)?);
    }
    let mut options = Vec::new();
    for argument in &call.options {
        match argument {
            bubblewrap::Argument::Text(text) => options.extend_from_slice(text.as_bytes()),
            bubblewrap::Argument::Content(at) => {
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
    let mut child = Command::new(bwrap)
        .arg("--args")
        .arg(options.as_raw_fd().to_string())
        .arg("--")
        .arg(bubblewrap::COMMAND)
        .args([&stderr, &theirs, &order].map(|fd| fd.as_raw_fd().to_string()))
        .env_clear()
        .stderr(Stdio::from(OwnedFd::from(complain)))
        .spawn()
        .with_context(|| format!("cannot start `{}`", bwrap.display()))?;
    drop((call, contents, options, order, theirs, stderr, text));
    let finish = match unfinished.then(|| Finish::begin(rest)).transpose() {
        Ok(finish) => finish,
        Err(error) => {
            // Init ends where nobody speaks to it. bubblewrap itself, killed before its child is ready, would leave that waiting.
            drop(ours);
            child.wait().context("cannot wait for bubblewrap")?;
            return Err(error);
        }
    };
    Ok(Started {
        bwrap: child,
        control: ours,
        complaint,
        finish,
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
        unfinished: false,
        expect,
        input: plan
            .steps
            .iter()
            .any(|step| step.at == Path::new(plan::INPUT))
            .then(|| plan::INPUT.into()),
        sockets: sockets(plan),
        run: None,
    }
}

/// Where the jail calls what is outside.
fn sockets(plan: &Plan) -> Vec<(Service, Vec<u8>)> {
    let slurm = plan
        .wants_chaperon()
        .then(|| (Service::Slurm, agent_sandbox_wire::SOCKET.into()));
    let ssh = plan
        .ssh
        .is_some()
        .then(|| (Service::SshAgent, ssh::AGENT.into()));
    slurm.into_iter().chain(ssh).collect()
}
