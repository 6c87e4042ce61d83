//! A jail that Landlock and a mediator make: translated from the plan, started, stood by to its end.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::unistd::{Pid, ttyname};

use super::absent;
use super::chaperon::Chaperon;
use super::ending::conclude;
use super::fallback::Reason;
use super::kept::{self, Standing};
use super::observed;
use super::orders::{command, filter, register};
use super::prepared::Prepared;
use super::said;
use super::supervisor::{self, Company, Jail, Outcome};
use crate::backend::landlock::access::{Fence, Reach};
use crate::backend::landlock::missing::{self, Lack};
use crate::backend::landlock::stage::Stage;
use crate::backend::landlock::{Fenced, translate};
use crate::backend::seccomp::mediated;
use crate::cli::Options;
use crate::failure::Failure;
use crate::handoff::{Confinement, Run};
use crate::host::mediation;
use crate::init;
use crate::mediate;
use crate::mediate::sight::calls::WATCHED;
use crate::plan::Plan;
use crate::plan::model::stage::HOME;
use crate::session::Registered;
use crate::sys::{passing, process};

/// A jail that is about to be started.
#[derive(Debug)]
pub struct Ready {
    /// What it is.
    pub planned: Planned,
    /// Why it is none of bubblewrap's, if nobody asked for it.
    instead: Option<Reason>,
    stage: Stage,
    standing: Standing,
}

/// A jail that runs.
#[derive(Debug)]
pub struct Running {
    mediator: Pid,
    /// When the mediator began, see [`mediate::ending::start_of`].
    since: u64,
    control: OwnedFd,
    stage: Stage,
    standing: Standing,
}

/// Runs a command in such a jail. `instead` is why it is not one of bubblewrap's, if nobody asked
/// for it.
///
/// # Errors
/// Everything but the command's own end.
pub(super) fn run(options: &Options, prepared: Prepared, instead: Option<&Reason>) -> Result<u8> {
    let started = start(options, prepared, instead);
    let (running, mut company, _registered, name) = started.map_err(|error| match instead {
        Some(reason) => reason.and(&error),
        None => error,
    })?;
    conclude(running.supervise(&mut company)?, &name)
}

fn start(
    options: &Options,
    prepared: Prepared,
    instead: Option<&Reason>,
) -> Result<(Running, Company, Registered, OsString)> {
    let mut prepared = prepared;
    let ready = Ready::new(&mut prepared, instead)?;
    let plan = &ready.planned.fenced.plan;
    let tracer = prepared.tracer(plan, true)?;
    let mut text = String::new();
    if !options.quiet {
        text.push_str(&said::banner(plan));
        text.push_str(&said::narrowed(plan).concat());
        text.push_str(&prepared.login_hint(plan));
        text.push_str(&absent::note(&prepared, plan));
        text.push_str(&prepared.shell_hint());
        text.push_str(&ready.weaker(options.verbose));
    }
    text.push_str(&said::shortcomings(plan, options.verbose).concat());
    text.push_str(&prepared.said_of_allocation(options.quiet));
    let name = plan.command.first().cloned().unwrap_or_default();
    let mut company = Company {
        chaperon: Chaperon::new(&prepared, plan, ready.told(), None)?,
        witness: prepared.witness.clone(),
        announcement: text,
        ..Company::default()
    };
    let registered = register(&prepared.host, plan, &name)?;
    let mut run = command(plan);
    run.confinement.watch = observed::watch(&prepared, plan, &ready.home());
    run.home = (!options.quiet).then(|| ready.home().into_os_string().into_vec());
    company.hold(&mut run, tracer);
    // The launcher stays for as long as the command runs; what it knew need not stay with it.
    drop(prepared);
    let running = ready.start(run, &mut company)?;
    Ok((running, company, registered, name))
}

/// What the jail will be.
#[derive(Clone, Debug)]
pub struct Planned {
    /// How it is made.
    pub fenced: Fenced,
    /// What it lacks of one of bubblewrap's.
    pub lacks: Vec<Lack>,
}

/// The jail as it would be, for who only asks.
///
/// # Errors
/// As [`Ready::new`].
pub fn planned(prepared: &Prepared) -> Result<Planned> {
    refuse_if_impossible()?;
    let stage = Stage::would_be(prepared.host.uid, &prepared.invocation.session)?;
    translated(prepared, prepared.plan()?, &stage, None)
}

/// What the jail of a launch would lack; also of one from a directory that could be no project.
///
/// # Errors
/// As [`Ready::new`].
pub fn differences(prepared: &Prepared) -> Result<Vec<Lack>> {
    refuse_if_impossible()?;
    let stage = Stage::would_be(prepared.host.uid, &prepared.invocation.session)?;
    let plan = prepared.plan();
    let plan = plan.or_else(|error| prepared.plan_without_project().map_err(|_| error))?;
    Ok(translated(prepared, plan, &stage, None)?.lacks)
}

fn translated(
    prepared: &Prepared,
    plan: Plan,
    stage: &Path,
    instead: Option<&Reason>,
) -> Result<Planned> {
    let mut fenced = translate(plan, &prepared.host, &prepared.files, stage, &terminals())?;
    let rules = fenced.rules.iter().map(|rule| rule.path().to_owned());
    let regions = fenced.charge.territory.regions().iter();
    let shown = regions.filter(|region| region.reach != Reach::None);
    let shown = rules.chain(shown.map(|region| region.path().to_owned()));
    let plan = &mut fenced.plan;
    plan.trace
        .forbid(&plan.hidden, shown.collect(), &prepared.files);
    let lacks = missing::judge(&prepared.policy, &prepared.host, &fenced)?;
    // They are about mounts; what this jail lacks is said by its own table.
    fenced.plan.weaknesses.clear();
    let ids = lacks.iter().map(|lack| lack.id.to_owned()).collect();
    fenced.say_what_is_missing(instead.map(|reason| reason.what.clone()), ids);
    Ok(Planned { fenced, lacks })
}

/// Refuses a host on which Landlock and a mediator would be no jail.
fn refuse_if_impossible() -> Result<()> {
    match mediation::findings().missing() {
        None => Ok(()),
        Some(missing) => Err(Failure::new(missing.what)
            .hint("user: this node cannot run the jail by Landlock; use --backend bwrap where bubblewrap works, or ask its administrator")
            .hint(format!("admin: {}", missing.admin))
            .into()),
    }
}

/// The terminals among the standard streams.
fn terminals() -> Vec<OsString> {
    let (input, output, error) = (io::stdin(), io::stdout(), io::stderr());
    let streams = [input.as_fd(), output.as_fd(), error.as_fd()];
    let names = streams.into_iter().filter_map(|one| ttyname(one).ok());
    let mut all: Vec<OsString> = names.map(Into::into).collect();
    all.sort();
    all.dedup();
    all
}

impl Ready {
    /// Makes everything ready: the plan, translated, and the session's directory. `instead` is why
    /// the jail is none of bubblewrap's, if nobody asked for it.
    ///
    /// # Errors
    /// This host cannot have such a jail; the plan demands what it cannot give; there is no place
    /// for the session's directory.
    pub fn new(prepared: &mut Prepared, instead: Option<&Reason>) -> Result<Self> {
        refuse_if_impossible()?;
        let stage = Stage::new(prepared.host.uid, &prepared.invocation.session)?;
        let (plan, standing) = kept::ready(prepared)?;
        let planned = translated(prepared, plan, stage.path(), instead)?;
        prepared.make_places(&planned.fenced.plan)?;
        kept::show(&planned.fenced.plan)?;
        stage.fill(&planned.fenced.staged)?;
        Ok(Self {
            planned,
            instead: instead.cloned(),
            stage,
            standing,
        })
    }

    /// That the jail is weaker than one of bubblewrap's; with `verbose` also why, and each difference.
    pub fn weaker(&self, verbose: bool) -> String {
        let lacks = &self.planned.lacks;
        let mut all = said::weaker(lacks);
        if verbose {
            all.extend(self.instead.as_ref().map(Reason::line));
            all.extend(said::lacks(lacks));
        }
        all
    }

    /// What the user is told of the jail, or could have been with `--quiet`, a line each: a job of the
    /// session does not repeat it.
    pub fn told(&self) -> Vec<String> {
        let weaker = said::weaker(&self.planned.lacks);
        let plan = &self.planned.fenced.plan;
        std::iter::once(weaker)
            .chain(said::shortcomings(plan, false))
            .collect()
    }

    /// Where the private home stands.
    fn home(&self) -> PathBuf {
        self.stage.path().join(HOME)
    }

    /// Starts the mediator, and it the command. `run`'s confinement is set here.
    ///
    /// # Errors
    /// A filter cannot be compiled, a socket not be made, or a process not be forked.
    pub fn start(self, mut run: Run, company: &mut Company) -> Result<Running> {
        let Self {
            planned: Planned { fenced, .. },
            stage,
            standing,
            ..
        } = self;
        run.confinement = Confinement {
            max_processes: fenced.plan.max_processes.value,
            watch: run.confinement.watch.take().map(observed::without_calls),
            ..Confinement::default()
        };
        let mut fence = Fence {
            rules: fenced.rules,
            abi: fenced.abi,
            filter: filter(&fenced.plan)?,
            handing_over: match &company.witness {
                Some(_) => mediated::watching(fenced.handed_over, WATCHED),
                None => mediated::program(fenced.handed_over),
            },
            mediator: -1,
        };
        if let (Some(path), Some(chaperon)) = (&fenced.socket, &mut company.chaperon) {
            let socket = init::socket::listening(path)
                .with_context(|| format!("cannot listen at `{}`", path.display()))?;
            chaperon.listening(socket);
        }
        let charge = fenced.charge;
        drop((fenced.plan, fenced.staged));
        supervisor::hold_signals(company.by_slurm).context("cannot hold signals back")?;
        // What outlives the mediator is the launcher's to end.
        nix::sys::prctl::set_child_subreaper(true).context("cannot become a subreaper")?;
        let (ours, theirs) = passing::pair().context("cannot make a pair of sockets")?;
        let mut kept = vec![theirs.as_raw_fd()];
        kept.extend(run.pmi);
        let witness = company.witness.as_ref().map(observed::hear);
        let witness = witness
            .transpose()
            .context("cannot make a pair of sockets")?;
        let mediator = mediate::start_watched(charge, &kept, witness, move |listener| {
            fence.mediator = listener.as_raw_fd();
            run.confinement.fence = Some(Box::new(fence));
            init::attend(theirs, &run)
        })
        .context("cannot start the mediator")?;
        let since = mediate::ending::start_of(mediator).context("cannot look at the mediator")?;
        process::release_memory();
        Ok(Running {
            mediator,
            since,
            control: ours,
            stage,
            standing,
        })
    }
}

impl Running {
    /// Waits until the jail is over, and ends whatever is left of it.
    ///
    /// # Errors
    /// What `signalfd(2)`, `poll(2)` or `waitpid(2)` answer; or the jail ended before the command
    /// was started.
    pub fn supervise(self, company: &mut Company) -> Result<Outcome> {
        let Self {
            mediator,
            since,
            control,
            stage,
            standing,
        } = self;
        let outcome = supervisor::supervise(Jail::Joined(mediator), control, company);
        // The chaperon is a child as well, and none that is left over.
        company.chaperon = None;
        // A mediator that ends by itself leaves nothing.
        if company.killed || outcome.is_err() {
            mediate::ending::end_leftovers(since);
        }
        drop(stage);
        standing.end();
        match outcome? {
            Outcome::NoJail(_) => Err(Failure::new(
                "the jail ended before the command was started: its mediator was killed, or failed",
            )
            .hint("user: try again; nothing was started")
            .into()),
            outcome => Ok(outcome),
        }
    }
}
