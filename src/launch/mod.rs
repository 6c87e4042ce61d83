//! The ordered effects of one launch: look, plan, record the session, build the jail, wait.

#![allow(clippy::disallowed_methods, reason = "the effect module of a launch")]

pub mod agents;
pub mod announcements;
pub mod bubblewrap;
pub mod cgroup;
pub mod chaperon;
pub mod diagnose;
pub mod ending;
pub mod fallback;
pub mod fenced;
pub mod kept;
pub mod meeting;
pub mod modules;
pub mod observed;
pub mod retold;
pub mod said;
pub mod seal;
pub mod stage;
pub mod supervisor;
pub mod traced;
pub mod trail;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_sandbox_wire::capsule::Seal;
use anyhow::{Context, Result, bail};

use crate::backend::seccomp;
use crate::cli::{Backend, Options};
use crate::config::load::{Locations, RawLayer, Request, load};
use crate::config::site::Site;
use crate::config::source::{Source, Sourced};
use crate::env_vars;
use crate::failure::Failure;
use crate::handoff::{Confinement, Order, Run, Streams};
use crate::host::files::{Files, HostFiles, Look};
use crate::host::mount_table::MountTable;
use crate::host::{self, HostFacts};
use crate::observe::witness;
use crate::plan::{self, Invocation, Plan, Variable};
use crate::policy::merge::{Additions, HOME_MODES, merge};
use crate::policy::{PathSpec, Policy};
use crate::session::{self, Registered};
use crate::sys::fds;
use chaperon::Chaperon;
use ending::conclude;
use fallback::Reason;
use supervisor::{Company, Outcome};

/// Until the policy says how long a path may take to answer.
pub const FIRST_TIMEOUT: Duration = Duration::from_secs(2);

/// Everything that is known before anything is started.
pub struct Prepared {
    /// The merged policy.
    pub policy: Policy,
    /// The host.
    pub host: HostFacts,
    /// Its files.
    pub files: HostFiles,
    /// What was asked for.
    pub invocation: Invocation,
    /// The user's policy file, as a person would name it.
    pub config: String,
    /// Files and options that took part, weakest first.
    pub layers: Vec<String>,
    /// What the jobs of this session carry.
    pub seal: Seal,
    /// What watches the run, of one that is watched.
    pub witness: Option<witness::Shared>,
    /// How one logs in to the agents of this launch.
    pub logins: Vec<agents::Login>,
    /// The node's tracer, as far as the policy wants it.
    pub tracer: traced::Found,
    /// Whether the tracer was made ready for the jail.
    pub is_traced: bool,
}

/// The directories in which policy files stand.
///
/// # Errors
/// There is no home directory.
pub fn locations() -> Result<Locations> {
    let (home, directories) = host::directories(None)?;
    Ok(Locations {
        home,
        config_dir: directories.config,
        site: Site::of_this_build(),
    })
}

/// Reads the policy and looks at the host, for a new session.
///
/// # Errors
/// Whatever is wrong with the command line, the policy files or the host.
pub fn prepare(options: &Options, command: &[OsString]) -> Result<Prepared> {
    prepare_session(options, command, session::new_id()?, None)
}

fn prepare_session(
    options: &Options,
    command: &[OsString],
    session: String,
    witness: Option<witness::Shared>,
) -> Result<Prepared> {
    let locations = locations()?;
    let cwd = current_directory()?;
    let project = match &options.project {
        Some(project) => absolute(&cwd, project),
        None => cwd.clone(),
    };
    let files = HostFiles::new(FIRST_TIMEOUT);
    let real_project = match files.look(&project) {
        Look::Found(found) => Some(found.real),
        _ => None,
    };
    let request = Request {
        locations: &locations,
        profiles: &options.profile,
        command: command
            .first()
            .filter(|_| witness.is_none())
            .and_then(|command| Path::new(command).file_name()),
        project: Some(real_project.as_deref().unwrap_or(&project)),
        set: &options.set,
        circumstances: &host::circumstances::probe,
    };
    let mut layers: Vec<RawLayer> = load(&request)?;
    if witness.is_some() {
        observed::without_what_is_given(&mut layers);
    }
    let mut policy = merge(&layers, &additions(options, &cwd)?)?;
    if witness.is_some() {
        observed::make_private(&mut policy);
    }
    files.set_timeout(policy.files.timeout_ms.value);
    let named = [project.clone(), cwd.clone()];
    let (files, mut host) = host::settled::probe(files, None, &policy, &named)?;
    if !policy.modules.load.is_empty() {
        host.environment = modules::load(&policy.modules.load, &host.environment)?;
    }
    host.find_slurm(&policy, &files);
    let tracer = look_for_tracer(&policy, &mut host);
    let config = match locations.config_dir.strip_prefix(&locations.home) {
        Ok(below) => format!("~/{}/config.toml", below.display()),
        Err(_) => locations
            .config_dir
            .join("config.toml")
            .display()
            .to_string(),
    };
    let names = layers.iter().map(|layer| layer.file.to_string()).collect();
    let invocation = Invocation {
        project: Some(project.clone()),
        cwd,
        command: command.to_vec(),
        session,
        job: None,
    };
    let real = real_project.as_deref().unwrap_or(&project);
    let node = nix::unistd::gethostname().unwrap_or_default();
    let node = node.to_string_lossy();
    let (cwd, session) = (&invocation.cwd, &invocation.session);
    let seal = Seal {
        variables: seal::sealed_variables(&policy, &host.environment),
        ..seal::seal(options, cwd, session, real, &layers, &node)
    };
    Ok(Prepared {
        policy,
        host,
        files,
        invocation,
        config,
        layers: names,
        seal,
        witness,
        logins: agents::logins(&layers),
        tracer,
        is_traced: false,
    })
}

fn look_for_tracer(policy: &Policy, host: &mut HostFacts) -> traced::Found {
    let found = traced::find(&policy.trace);
    host.traced = matches!(found, traced::Found::Listens(_));
    found
}

/// What a capsule asks for, as far as it decides nothing.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The current directory.
    pub cwd: PathBuf,
    /// The command and its arguments.
    pub command: Vec<OsString>,
    /// What the jail gets of the job.
    pub job: plan::Job,
}

/// Reads the policy that a job brought, as far as this node allows it, and looks at the node.
///
/// # Errors
/// This version does not understand the policy, or something is wrong with the node.
pub fn prepare_sealed(seal: Seal, asked: Asked) -> Result<Prepared> {
    let (layers, additions) = seal::unseal(&seal)?;
    let policy = merge(&layers, &additions)?;
    let files = HostFiles::new(policy.files.timeout_ms.value);
    let project = PathBuf::from(OsStr::from_bytes(&seal.project));
    let (sealed, named) = (seal::variables(&seal), std::slice::from_ref(&project));
    let (files, mut host) = host::settled::probe(files, Some(&sealed), &policy, named)?;
    host.find_slurm(&policy, &files);
    let tracer = look_for_tracer(&policy, &mut host);
    let names = layers.iter().map(|layer| layer.file.to_string()).collect();
    let invocation = Invocation {
        project: Some(project),
        cwd: plan::submitted::path(&host, &asked.cwd),
        command: asked.command,
        session: seal.session.clone(),
        job: Some(asked.job),
    };
    Ok(Prepared {
        policy,
        host,
        files,
        invocation,
        config: "config.toml".to_owned(),
        layers: names,
        seal,
        witness: None,
        logins: Vec::new(),
        tracer,
        is_traced: false,
    })
}

impl Prepared {
    /// The plan.
    ///
    /// # Errors
    /// See [`plan::build`], [`plan::arrivals::check`] and [`Prepared::can_start`].
    pub fn plan(&self) -> Result<Plan> {
        let plan = plan::build(&self.policy, &self.host, &self.files, &self.invocation)?;
        self.can_start(&plan)?;
        plan::arrivals::check(&plan, &self.host, self.files.mounts(), &MountTable::read())?;
        Ok(plan)
    }

    /// Whether a program can start in the jail at all.
    ///
    /// # Errors
    /// See [`plan::needs::check`].
    pub fn can_start(&self, plan: &Plan) -> Result<()> {
        Ok(plan::needs::check(plan, &self.host, &self.files)?)
    }

    /// Makes the directories that the plan covers and that have to stand there for it.
    ///
    /// # Errors
    /// One cannot be made.
    pub fn make_places(&self, plan: &Plan) -> Result<()> {
        meeting::make_places(&plan::meeting::places_to_make(plan, &self.host))
    }

    /// A plan without a project, for questions about the rules alone.
    ///
    /// # Errors
    /// See [`plan::build`].
    pub fn plan_without_project(&self) -> Result<Plan> {
        let invocation = Invocation {
            project: None,
            ..self.invocation.clone()
        };
        Ok(plan::build(
            &self.policy,
            &self.host,
            &self.files,
            &invocation,
        )?)
    }
}

/// The current directory by the name that the user knows, if that is true.
///
/// # Errors
/// It does not exist any more.
pub fn current_directory() -> Result<PathBuf> {
    let real = std::env::current_dir()
        .context("the current directory cannot be found; does it still exist?")?;
    let Some(named) = std::env::var_os(env_vars::PWD).map(PathBuf::from) else {
        return Ok(real);
    };
    let same = named.is_absolute() && std::fs::canonicalize(&named).is_ok_and(|path| path == real);
    Ok(if same { named } else { real })
}

fn absolute(cwd: &Path, path: &Path) -> PathBuf {
    cwd.join(path)
}

/// Options of the command line as parts of the policy.
fn additions(options: &Options, cwd: &Path) -> Result<Additions> {
    let paths = |name: &'static str, given: &[PathBuf]| -> Result<Vec<Sourced<PathSpec>>> {
        let each = given.iter().map(|path| {
            let whole = normal(&absolute(cwd, path));
            let spec = PathSpec::absolute(&whole)
                .map_err(|why| anyhow::anyhow!("{name} `{}` {why}", path.display()))?;
            Ok(Sourced::new(spec, Source::option(name)))
        });
        each.collect()
    };
    let mut all = Additions {
        read: paths("--read", &options.read)?,
        write: paths("--write", &options.write)?,
        hide: paths("--hide", &options.hide)?,
        ..Additions::default()
    };
    for given in &options.env {
        let Some(text) = given.to_str() else {
            bail!("--env `{}` is not UTF-8", given.display())
        };
        let source = Source::option("--env");
        match text.split_once('=') {
            Some(("", _)) | None if text.is_empty() || text.starts_with('=') => {
                bail!("--env `{text}` names no variable")
            }
            Some((name, value)) => all
                .set
                .push(Sourced::new((name.to_owned(), value.to_owned()), source)),
            None => all.pass.push(Sourced::new(text.to_owned(), source)),
        }
    }
    if let Some(given) = &options.home {
        let Some((_, mode)) = HOME_MODES.iter().find(|(word, _)| word == given) else {
            let words: Vec<&str> = HOME_MODES.iter().map(|(word, _)| *word).collect();
            bail!("--home `{given}` is none of: {}", words.join(", "));
        };
        all.home = Some(Sourced::new(*mode, Source::option("--home")));
    }
    Ok(all)
}

/// Works `.` and `..` off in the text, as shells do for `cd`.
pub fn normal(path: &Path) -> PathBuf {
    let mut all = PathBuf::from("/");
    for component in path.components() {
        match component {
            std::path::Component::Normal(name) => all.push(name),
            std::path::Component::ParentDir => {
                all.pop();
            }
            _ => {}
        }
    }
    all
}

/// Refuses circumstances in which a jail would not be one. Before anything else of a launch.
///
/// # Errors
/// The circumstance and the way out.
pub fn refuse_unsafe_start() -> Result<()> {
    if std::env::var_os(env_vars::INSIDE).is_some() {
        return Err(
            Failure::new("this is already the inside of a jail (AGENT_SANDBOX is set)")
                .hint("a jail cannot hold another; leave it first")
                .into(),
        );
    }
    if nix::unistd::Uid::effective().is_root() || nix::unistd::Uid::current().is_root() {
        return Err(Failure::new("agent-sandbox does not run as root: root's files are not protected by a jail of root's own")
            .hint("run it as an ordinary user")
            .into());
    }
    fds::close_on_exec_from(3).context("cannot keep open files from the jail")?;
    for (number, name) in [(0, "input"), (1, "output"), (2, "error")] {
        let meta = std::fs::metadata(format!("/proc/self/fd/{number}"));
        if meta.is_ok_and(|meta| meta.is_dir()) {
            return Err(Failure::new(format!(
                "standard {name} is a directory, which would be open inside the jail"
            ))
            .hint("redirect it from or to a file")
            .into());
        }
    }
    Ok(())
}

/// Runs a command in a jail. `prepared` was made of the same options and command.
///
/// # Errors
/// Everything but the command's own end.
pub fn run(options: &Options, command: &[OsString], prepared: Prepared) -> Result<u8> {
    let backend = options.backend.unwrap_or_default();
    if backend == Backend::Landlock {
        return fenced::run(options, prepared, None);
    }
    let bwrap = match (bubblewrap::find(), backend) {
        (Ok(bwrap), Backend::Auto) if diagnose::is_switched_off() => {
            // Before a jail is announced that cannot come up.
            if let Some(reason) = Reason::found(&bwrap) {
                return fenced::run(options, prepared, Some(&reason));
            }
            bwrap
        }
        (Ok(bwrap), _) => bwrap,
        (Err(error), Backend::Auto) => {
            return fenced::run(options, prepared, Some(&Reason::missing(&error)));
        }
        (Err(error), _) => return Err(error),
    };
    let session = prepared.invocation.session.clone();
    let witness = prepared.witness.clone();
    let (outcome, name) = with_bubblewrap(options, prepared, &bwrap)?;
    if let (Outcome::NoJail(_), Backend::Auto) = (&outcome, backend)
        && let Some(reason) = Reason::found(&bwrap)
    {
        // What the launcher knew of the host is gone, for it does not stay with a jail that works.
        let again = prepare_session(options, command, session, witness)?;
        // The session was announced already.
        let options = Options {
            quiet: true,
            ..options.clone()
        };
        return fenced::run(&options, again, Some(&reason));
    }
    conclude(outcome, &name)
}

/// How it went with bubblewrap, and the command's name.
fn with_bubblewrap(
    options: &Options,
    prepared: Prepared,
    bwrap: &Path,
) -> Result<(Outcome, OsString)> {
    let mut prepared = prepared;
    let (plan, standing) = kept::ready(&mut prepared)?;
    let tracer = prepared.tracer(&plan, true)?;
    prepared.make_places(&plan)?;
    said::announce(&plan, options, || prepared.login_hint(&plan));
    let told = said::shortcomings(&plan, false);
    let mut company = Company {
        chaperon: Chaperon::new(&prepared, &plan, told, None)?,
        witness: prepared.witness.clone(),
        ..Company::default()
    };
    let command = plan.command.first().cloned().unwrap_or_default();
    let _registered = register(&prepared.host, &plan, &command)?;
    let mut run = self::command(&plan);
    run.confinement.watch = observed::watch(&prepared, &plan, &plan.home);
    company.hold(&mut run, tracer);
    let order = Order {
        run: Some(run),
        ..bubblewrap::order(&plan)
    };
    let outcome = bubblewrap::carry_out(bwrap, (plan, prepared), order, company);
    standing.end();
    Ok((outcome?, command))
}

/// The compiled filter of the plan's system calls.
///
/// # Errors
/// The rules cannot be compiled.
pub fn filter(plan: &Plan) -> Result<Vec<u8>> {
    seccomp::compile(&plan.syscalls).context("cannot compile the system call filter")
}

/// Records the session for as long as the answer lives.
fn register(host: &HostFacts, plan: &Plan, command: &OsStr) -> Result<Registered> {
    let name = Path::new(command).file_name().unwrap_or(command);
    let project = plan
        .project
        .as_deref()
        .context("a launch needs a project")?;
    let records = session::directory(host.uid, &host.state_directory);
    Registered::new(&records, &plan.session, project, &name.to_string_lossy())
}

/// The plan's command.
fn command(plan: &Plan) -> Run {
    let bytes = |text: &OsStr| text.as_bytes().to_vec();
    Run {
        cwd: bytes(plan.cwd.as_os_str()),
        cwd_else: None,
        argv: plan.command.iter().map(|word| bytes(word)).collect(),
        environment: environment(&plan.variables),
        search: search_path(&plan.variables),
        confinement: confinement(plan),
        umask: None,
        streams: Streams::default(),
        by_slurm: false,
        pmi: None,
        held: false,
    }
}

/// Variables as entries of `environ(7)`.
pub fn environment(variables: &[Variable]) -> Vec<Vec<u8>> {
    variables
        .iter()
        .map(|variable| [variable.name.as_bytes(), b"=", variable.value.as_bytes()].concat())
        .collect()
}

/// Where a command is looked for among these variables.
pub fn search_path(variables: &[Variable]) -> Vec<u8> {
    let path = variables
        .iter()
        .find(|variable| variable.name == env_vars::PATH);
    path.map_or_else(
        || env_vars::DEFAULT_PATH.into(),
        |variable| variable.value.as_bytes().to_vec(),
    )
}

/// What the plan's command takes from itself.
pub fn confinement(plan: &Plan) -> Confinement {
    let writable = || {
        let steps = plan.steps.iter().filter(|step| step.mount.is_writable());
        steps
            .map(|step| plan.place(step).into_os_string().into_encoded_bytes())
            .collect()
    };
    Confinement {
        max_processes: plan.max_processes.value,
        scoped_signals: plan.landlock_scope,
        scoped_sockets: plan.landlock_scope,
        writable: plan.landlock_writes.then(writable),
        fence: None,
        watch: None,
    }
}
