//! The ordered effects of one launch: look, plan, record the session, build the jail, wait.

#![allow(clippy::disallowed_methods, reason = "the effect module of a launch")]

pub mod announcements;
pub mod chaperon;
pub mod diagnose;
pub mod ending;
pub mod meeting;
pub mod modules;
pub mod seal;
pub mod supervisor;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use agent_sandbox_wire::capsule::Seal;
use anyhow::{Context, Result, bail};

use crate::backend::{bwrap, seccomp};
use crate::cli::{Backend, Options};
use crate::config::load::{Locations, RawLayer, Request, load};
use crate::config::source::{Source, Sourced};
use crate::env_vars;
use crate::failure::{self, Failure};
use crate::handoff::{Confinement, Expect, Order, Run, Streams};
use crate::host::files::{Files, HostFiles, Look};
use crate::host::{self, HostFacts};
use crate::plan::{self, Access, Invocation, Mount, NetworkMode, Omitted, Plan, Variable};
use crate::policy::merge::{Additions, HOME_MODES, merge};
use crate::policy::{PathSpec, Policy};
use crate::session::{self, Registered};
use crate::sys::{fds, passing, process};
use chaperon::Chaperon;
use ending::conclude;
use supervisor::{Company, Jail, Outcome};

/// Until the policy says how long a path may take to answer.
const FIRST_TIMEOUT: Duration = Duration::from_secs(2);
/// Where the site's policy stands.
const SITE_DIRECTORY: &str = "/etc/agent-sandbox";

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
        site_dir: PathBuf::from(SITE_DIRECTORY),
    })
}

/// Reads the policy and looks at the host.
///
/// # Errors
/// Whatever is wrong with the command line, the policy files or the host.
pub fn prepare(options: &Options, command: &[OsString]) -> Result<Prepared> {
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
        profile: options.profile.as_deref(),
        command: command
            .first()
            .and_then(|command| Path::new(command).file_name()),
        project: Some(real_project.as_deref().unwrap_or(&project)),
        set: &options.set,
    };
    let layers: Vec<RawLayer> = load(&request)?;
    let policy = merge(&layers, &additions(options, &cwd)?)?;
    files.set_timeout(policy.files.timeout_ms.value);
    let mut host = HostFacts::probe(&files, None)?;
    if !policy.modules.load.is_empty() {
        host.environment = modules::load(&policy.modules.load, &host.environment)?;
    }
    host.find_slurm(&policy, &files);
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
        session: session::new_id()?,
        job: None,
    };
    let real = real_project.as_deref().unwrap_or(&project);
    let seal = Seal {
        variables: seal::sealed_variables(&policy, &host.environment),
        ..seal::seal(options, &invocation.cwd, &invocation.session, real, &layers)
    };
    Ok(Prepared {
        policy,
        host,
        files,
        invocation,
        config,
        layers: names,
        seal,
    })
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
    let mut host = HostFacts::probe(&files, Some(seal::variables(&seal)))?;
    host.find_slurm(&policy, &files);
    let names = layers.iter().map(|layer| layer.file.to_string()).collect();
    let project = PathBuf::from(OsStr::from_bytes(&seal.project));
    let invocation = Invocation {
        project: Some(project),
        cwd: asked.cwd,
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
    })
}

impl Prepared {
    /// The plan.
    ///
    /// # Errors
    /// See [`plan::build`].
    pub fn plan(&self) -> Result<Plan> {
        Ok(plan::build(
            &self.policy,
            &self.host,
            &self.files,
            &self.invocation,
        )?)
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
fn current_directory() -> Result<PathBuf> {
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
pub fn refuse_unsafe_start(options: &Options) -> Result<()> {
    if options.backend == Some(Backend::Landlock) {
        return Err(Failure::new("the Landlock backend is not built yet")
            .hint("leave --backend away, or use --backend bwrap")
            .into());
    }
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

/// Runs a command in a jail.
///
/// # Errors
/// Everything but the command's own end.
pub fn run(options: &Options, prepared: Prepared) -> Result<u8> {
    let plan = prepared.plan()?;
    let bwrap = find_bwrap()?;
    prepared.make_places(&plan)?;
    announce(&plan, options);
    let company = Company {
        chaperon: Chaperon::new(&prepared, &plan, None)?,
        ..Company::default()
    };
    let command = plan.command.first().cloned().unwrap_or_default();
    let _registered = register(&prepared.host, &plan, &command)?;
    let order = Order {
        run: Some(self::command(&plan)),
        ..order(&plan)
    };
    let outcome = carry_out(&bwrap, (plan, prepared), order, company)?;
    conclude(outcome, &command)
}

/// bubblewrap.
///
/// # Errors
/// There is none that can be used, with the ways out.
pub fn find_bwrap() -> Result<PathBuf> {
    host::find_bwrap().map_err(|error| {
        Failure::new(format!("{error:#}"))
            .hint("user: this node cannot run the jail as it is; ask its administrator")
            .hint("admin: install the package `bubblewrap` (0.8 or newer)")
            .into()
    })
}

/// Builds the jail and stands by it to its end.
fn carry_out(
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
                path: bytes(step.at.as_os_str()),
                id: *id,
                read_only: *access == Access::Read,
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
            .map(|step| step.at.as_os_str().as_bytes().to_vec())
            .collect()
    };
    Confinement {
        max_processes: plan.max_processes.value,
        scoped_signals: plan.landlock_scope,
        scoped_sockets: plan.landlock_scope,
        writable: plan.landlock_writes.then(writable),
        fence: None,
    }
}

/// One line on standard error, at the start of every session.
fn banner(plan: &Plan) -> String {
    let network = match plan.network.value {
        NetworkMode::Open => "open",
        NetworkMode::Isolated => "isolated",
    };
    let project = plan.project.as_deref().unwrap_or(Path::new("/"));
    let project = failure::one_line(&project.display().to_string());
    format!(
        "agent-sandbox: jailed in {project} (writable), network {network}, session {}\n",
        plan.session
    )
}

/// The banner, unless it is not wanted, and what could not be done as asked, which is always said.
fn announce(plan: &Plan, options: &Options) {
    let mut text = String::new();
    if !options.quiet {
        text.push_str(&banner(plan));
    }
    text.push_str(&shortcomings(plan, options.verbose).concat());
    failure::say(&text);
}

/// What the jail lacks of what was asked, a line each.
pub fn shortcomings(plan: &Plan, verbose: bool) -> Vec<String> {
    let told = |omitted: &&Omitted| omitted.loud || (verbose && !omitted.is_usual());
    let omitted = plan.omitted.iter().filter(told).map(|omitted| {
        let path = failure::one_line(&omitted.path);
        let reason = failure::one_line(&omitted.reason);
        format!(
            "agent-sandbox: note: `{path}`: {reason} [{}]\n",
            omitted.why
        )
    });
    let weaknesses = plan.weaknesses.iter();
    let weaknesses = weaknesses.map(|weakness| format!("agent-sandbox: warning: {weakness}\n"));
    omitted.chain(weaknesses).collect()
}
