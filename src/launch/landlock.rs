//! A jail that Landlock and a mediator make: translated from the plan, started, stood by to its end.

mod shown;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::unistd::{Pid, ttyname};

use super::backend::{Backend, Planned, Ready, Reason, Running};
use super::observed;
use super::orders::{filter, in_bytes, listed};
use super::prepared::Prepared;
use super::state::{self, StateChanges};
use super::supervisor::{self, Company, Jail, Outcome};
use crate::backend::missing::MissingFeature;
use crate::failure::Failure;
use crate::handoff::{Confinement, Run};
use crate::host::mediation;
use crate::init::{self, ConfinedBy};
use agent_sandbox_landlock::access::Permission;
use agent_sandbox_landlock::mediator::{Given, WayOut};
use agent_sandbox_landlock::restrict;
use agent_sandbox_landlock::stage::{self, KIND};
use agent_sandbox_landlock::{SHARED_MEMORY, Translated, translate};
use agent_sandbox_landlock::{handed_over, mediator, missing};

use crate::mediate::sight::calls::WATCHED;
use crate::plan::Plan;
use crate::plan::build::forward;
use crate::plan::model::stage::HOME;
use crate::session_directory::SessionDirectory;
use crate::sys::passing;

/// A jail that is about to be started.
struct Planning {
    made: Made,
    /// Why it is none of bubblewrap's, if nobody asked for it.
    instead: Option<Reason>,
    stage: SessionDirectory,
    state_changes: StateChanges,
}

/// A jail that runs.
struct Begun {
    mediator: Pid,
    /// When the mediator began, see [`mediator::ending::start_of`].
    since: u64,
    control: OwnedFd,
    stage: SessionDirectory,
    state_changes: StateChanges,
}

/// Jails that Landlock and a mediator make.
#[derive(Clone, Copy, Debug)]
pub struct Landlock;

impl Backend for Landlock {
    fn word(&self) -> &'static str {
        "landlock"
    }

    fn name(&self) -> &'static str {
        "Landlock"
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn may_lack(&self) -> Vec<MissingFeature> {
        missing::MISSING.iter().map(missing::Row::feature).collect()
    }

    fn missing(&self, prepared: &Prepared) -> Result<Vec<MissingFeature>> {
        refuse_if_impossible()?;
        let stage =
            SessionDirectory::would_be(prepared.host.uid, KIND, &prepared.invocation.session)?;
        let plan = prepared.plan();
        let plan = plan.or_else(|error| prepared.plan_without_project().map_err(|_| error))?;
        Ok(translated(prepared, plan, &stage, None)?.missing)
    }

    fn planned(&self, prepared: &Prepared, instead: Option<&Reason>) -> Result<Planned> {
        refuse_if_impossible()?;
        let stage =
            SessionDirectory::would_be(prepared.host.uid, KIND, &prepared.invocation.session)?;
        let made = translated(prepared, prepared.plan()?, &stage, None)?;
        Ok(shown::planned(made, instead))
    }

    fn prepare(&self, prepared: &mut Prepared, instead: Option<&Reason>) -> Result<Box<dyn Ready>> {
        refuse_if_impossible()?;
        let stage = SessionDirectory::new(prepared.host.uid, KIND, &prepared.invocation.session)?;
        let (plan, state_changes) = state::ready(prepared)?;
        let made = translated(prepared, plan, stage.path(), instead)?;
        prepared.make_places(&made.translated.plan)?;
        state::show(&made.translated.plan)?;
        stage::fill(stage.path(), &made.translated.staged)?;
        if prepared.invocation.job.is_some() {
            refuse_writable_program(prepared, &made.translated)?;
        }
        Ok(Box::new(Planning {
            made,
            instead: instead.cloned(),
            stage,
            state_changes,
        }))
    }
}

/// Of a job, in which the next task runs the program that this one could have replaced.
fn refuse_writable_program(prepared: &Prepared, translated: &Translated) -> Result<()> {
    let executable = &prepared.host.executable;
    if translated.config.access_map.permission(executable) != Permission::Write {
        return Ok(());
    }
    Err(Failure::new(format!(
        "the program `{}` stands where its own tasks may write",
        executable.display()
    ))
    .hint("install agent-sandbox outside of the project and of what is writable inside")
    .into())
}

/// What the jail will be.
struct Made {
    /// How it is made.
    translated: Translated,
    /// What it lacks of one of bubblewrap's.
    missing: Vec<MissingFeature>,
}

fn translated(
    prepared: &Prepared,
    plan: Plan,
    stage: &Path,
    instead: Option<&Reason>,
) -> Result<Made> {
    let mut translated = translate(plan, &prepared.host, &prepared.files, stage, &terminals())?;
    let rules = translated.rules.iter().map(|rule| rule.path().to_owned());
    let entries = translated.config.access_map.entries().iter();
    let shown = entries.filter(|entry| entry.permission != Permission::None);
    let shown = rules.chain(shown.map(|entry| entry.path().to_owned()));
    let plan = &mut translated.plan;
    // The command's own loopback would be the host's, or there is none.
    if let Some(first) = std::mem::take(&mut plan.forward).first() {
        let reason = "nothing to forward: Landlock makes no network of the jail's own".to_owned();
        plan.omitted.push(forward::nothing(first, reason, true));
    }
    plan.trace
        .forbid(&plan.hidden, shown.collect(), &prepared.files);
    let missing = missing::judge(&prepared.policy, &prepared.host, &translated)?;
    // They are about mounts; what this jail lacks is said by its own table.
    translated.plan.weaknesses.clear();
    let ids = missing.iter().map(|one| one.id.to_owned()).collect();
    translated.say_what_is_missing(instead.map(|reason| reason.what.clone()), ids);
    Ok(Made {
        translated,
        missing,
    })
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
    all.sort_unstable();
    all.dedup();
    all
}

impl Ready for Planning {
    fn plan(&self) -> &Plan {
        &self.made.translated.plan
    }

    fn home(&self) -> PathBuf {
        self.stage.path().join(HOME)
    }

    fn real(&self, inside: &Path) -> PathBuf {
        self.made.translated.places.real(inside)
    }

    fn shared(&self) -> Option<&Path> {
        Some(Path::new(SHARED_MEMORY))
    }

    fn weaker(&self, verbose: bool) -> String {
        let missing = &self.made.missing;
        let mut all = shown::weaker(missing);
        if verbose {
            all.extend(self.instead.as_ref().map(Reason::line));
            all.extend(shown::missing(missing));
        }
        all
    }

    /// Starts the mediator, and it the command. `run`'s confinement is set here.
    fn start(self: Box<Self>, mut run: Run, company: &mut Company) -> Result<Box<dyn Running>> {
        let Self {
            made: Made { mut translated, .. },
            stage,
            state_changes,
            ..
        } = *self;
        // The filter gets connections, and no network.
        run.lends_network = false;
        let listed = listed(&translated.plan, &[stage.path()]);
        translated.config.listed.clone_from(&listed);
        run.confinement = Confinement {
            max_processes: translated.plan.max_processes.value,
            least: run.confinement.least,
            listed: listed.map(in_bytes),
            watch: run.confinement.watch.take().map(observed::without_calls),
            ..Confinement::default()
        };
        // The mediator of this jail is the only one: a listener that init might send is not answered by a second.
        company.mediated = None;
        // Before anything runs inside.
        let way_out = company.network.as_mut().map(|filter| {
            for file in &mut translated.trusting {
                file.add(filter.certificate());
            }
            stage::fill(stage.path(), &translated.trusting)?;
            WayOut::new(filter.joined()?).context("cannot listen at this host's loopback")
        });
        let way_out = way_out.transpose()?;
        let mut confinement = restrict::Confinement {
            rules: translated.rules,
            abi: translated.abi,
            led: way_out.is_some(),
            filter: filter(&translated.plan)?,
            handing_over: match &company.recorder {
                Some(_) => handed_over::watching(translated.handed_over, WATCHED),
                None => handed_over::program(translated.handed_over),
            },
            mediator: -1,
        };
        for (path, serves) in [
            (&translated.socket, &mut company.chaperon),
            (&translated.ssh, &mut company.ssh),
        ] {
            if let (Some(path), Some(serves)) = (path, serves) {
                let socket = init::socket::listening(path)
                    .with_context(|| format!("cannot listen at `{}`", path.display()))?;
                serves.listening(socket);
            }
        }
        let config = translated.config;
        drop((translated.plan, translated.staged, translated.trusting));
        supervisor::hold_signals(company.by_slurm).context("cannot hold signals back")?;
        // What outlives the mediator is the launcher's to end.
        nix::sys::prctl::set_child_subreaper(true).context("cannot become a subreaper")?;
        let (ours, theirs) = passing::pair().context("cannot make a pair of sockets")?;
        let mut state = vec![theirs.as_raw_fd()];
        state.extend(run.pmi);
        let recorder = company.recorder.as_ref().map(observed::hear);
        let recorder = recorder
            .transpose()
            .context("cannot make a pair of sockets")?;
        let given = Given { recorder, way_out };
        let mediator = mediator::start_given(config, &state, given, move |listener| {
            confinement.mediator = listener.as_raw_fd();
            let confine = |parent| restrict::confine(&confinement, parent);
            init::attend(theirs, &run, ConfinedBy::Itself(&confine))
        })
        .context("cannot start the mediator")?;
        let since = mediator::ending::start_of(mediator).context("cannot look at the mediator")?;
        Ok(Box::new(Begun {
            mediator,
            since,
            control: ours,
            stage,
            state_changes,
        }))
    }
}

impl Running for Begun {
    fn supervise(self: Box<Self>, company: &mut Company) -> Result<Outcome> {
        let Self {
            mediator,
            since,
            control,
            stage,
            state_changes,
        } = *self;
        let outcome = supervisor::supervise(Jail::joined(mediator), control, company);
        // They are children as well, and none that is left over.
        company.chaperon = None;
        company.ssh = None;
        company.network = None;
        // A mediator that ends by itself leaves nothing.
        if company.killed || outcome.is_err() {
            mediator::ending::end_leftovers(since);
        }
        drop(stage);
        state_changes.end();
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
