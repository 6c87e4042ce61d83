//! The plan for a jail that Landlock makes: from the steps of a [`Plan`] to the rules that the kernel
//! enforces and the access map by which the mediator decides. Pure but for the questions that it asks
//! through [`Files`].
//!
//! What mounts show at its own place gets rules ([`map`]). What they put elsewhere, or make, stands
//! in the session's own directory, and the environment leads there ([`contents`]). What mounts put over
//! the host's files cannot be given: the host's own stays in sight, and the table of
//! [`super::missing`] says so.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use agent_sandbox_wire::command::Command;

use super::access::{
    AccessMap, HandedOver, MapEntry, MediatorConfig, NETWORK, Permission, Right, Rule, StandIn,
};
use super::check;
use super::contents::{self, Places, Staged, Thing};
use super::map::{self, rule};
use super::refused;
use super::variables;
use agent_sandbox_base::host::HostFacts;
use agent_sandbox_base::host::files::{Files, Kind, Look};
use agent_sandbox_base::plan::build::syscalls::{self, Switches};
use agent_sandbox_base::plan::build::{git, injected_files};
use agent_sandbox_base::plan::explain::inside::{DOCUMENT, Document};
use agent_sandbox_base::plan::model::slurm::{CHAPERON_INSIDE, PROGRAM};
use agent_sandbox_base::plan::model::ssh;
use agent_sandbox_base::plan::model::stage::{HOME, OWN, RUN, TMP};
use agent_sandbox_base::plan::model::{
    Access, INIT, INPUT, Mount, Omitted, Plan, PlanError, Step, Why, persistent,
};

/// A plan that Landlock and the mediator can carry out.
#[derive(Clone, Debug)]
pub struct Translated {
    /// The plan. Environment, command and filter are as they are under Landlock; the steps still say
    /// what mounts would show, and the weaknesses are the caller's to replace.
    pub plan: Plan,
    /// Landlock's rules for the command, sorted by path.
    pub rules: Vec<Rule>,
    /// What the mediator is told.
    pub config: MediatorConfig,
    /// Which calls are handed over to it.
    pub handed_over: HandedOver,
    /// What is made in the session's directory, parents first.
    pub staged: Vec<Staged>,
    /// Where things of the plan really are.
    pub places: Places,
    /// Where the socket to the chaperon is made, if there is one.
    pub socket: Option<PathBuf>,
    /// Files that come into the session's directory when the filter's certificate is known, which each of them gets.
    pub trusting: Vec<Staged>,
    /// Where that of the ssh agent is.
    pub ssh: Option<PathBuf>,
    /// The kernel's Landlock ABI.
    pub abi: i32,
}

/// Device nodes that every jail has, as bubblewrap makes them.
const DEVICES: [&str; 7] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
];

/// Directories that all jails share, in which each may use what it made itself: shared
/// memory, and terminals. No rule can give a new terminal: `TIOCGPTPEER`, too, asks Landlock for its
/// path. The mediator needs the right to open what it hands out.
const SHARED: [(&str, Right); 2] = [(SHARED_MEMORY, Right::Write), ("/dev/pts", Right::Device)];
/// That of them in which there can be files.
pub const SHARED_MEMORY: &str = "/dev/shm";

/// The oldest ABI that knows moving files between directories (`LANDLOCK_ACCESS_FS_REFER`, Linux
/// 5.19). Before it every such move fails, and no program expects that.
const OLDEST_ABI: i32 = 2;
/// The oldest ABI that knows `truncate(2)` (Linux 6.2).
const TRUNCATES: i32 = 3;
/// The oldest ABI that scopes signals (Linux 6.12).
const SCOPES: i32 = 6;

/// Translates a plan.
///
/// `stage` is the session's own directory, of which nothing exists yet. `terminals` are the launcher's
/// own, by their paths.
///
/// # Errors
/// The kernel has no Landlock, or one that is too old; it would need more rules than there may be; a
/// directory cannot be taken apart; an invariant does not hold.
pub fn translate(
    mut plan: Plan,
    host: &HostFacts,
    files: &dyn Files,
    stage: &Path,
    terminals: &[OsString],
) -> Result<Translated, PlanError> {
    let abi = host.landlock_abi;
    if abi < OLDEST_ABI {
        return Err(PlanError::new(format!(
            "this kernel has no Landlock that could be a jail: its ABI is {abi}, and {OLDEST_ABI} is needed (Linux \
             5.19)"
        ))
        .hint("only bubblewrap can make a jail here: --backend bwrap"));
    }
    if plan.filter.is_some() && abi < NETWORK {
        return Err(PlanError::new(format!(
            "the network cannot be filtered ({}): this kernel's Landlock has no rights about the network: its ABI is {abi}, and \
             {NETWORK} is needed (Linux 6.7)",
            Why::key("network.mode", &plan.network)
        ))
        .hint(
            "use --backend bwrap where bubblewrap works, or --set network.mode=isolated for a run without a network",
        ));
    }
    let places = Places::of_plan(&plan, host, stage);
    injected_files::moved(&mut plan, files, &|inside| places.real(inside));
    let surveyed = map::survey(&plan.steps, &plan.home, files)?;
    let mut given = Collected {
        rules: surveyed.rules,
        entries: surveyed.entries,
    };
    let shim = bound(&plan.steps, PROGRAM);
    let own = bound(&plan.steps, INIT);
    let socket = plan
        .wants_chaperon()
        .then(|| stage.join(contents::SOCKET_IN_OWN));
    let ssh = plan
        .ssh
        .as_ref()
        .map(|_| places.real(Path::new(ssh::AGENT)));
    given.of_steps(&plan.steps);
    given.devices(&plan.steps, terminals, files);
    let shared = given.shared(files);
    given.stage(stage, host, &[socket.as_deref(), ssh.as_deref()]);
    given.kept(&plan);

    let mut for_mediator = given.rules.clone();
    for_mediator.extend(surveyed.for_mediator);
    let handed_shared = !shared.is_empty();
    for_mediator.extend(shared);
    let git_config = git::protected(&plan.steps);
    let stand_in = stand_in(&plan.steps, shim, stage, files);
    let handed_over = HandedOver {
        executions: stand_in.is_some(),
        listens: plan.filter.is_some(),
        changes: surveyed.guarded || handed_shared,
        listings: surveyed.listings,
        opens: surveyed.opens,
        signals: abi < SCOPES,
        truncations: abi < TRUNCATES,
    };
    let mut staged = contents::furnish(&plan, shim, own, stage);
    let trusting = contents::trusting(&plan);
    let has_shims = shim.is_some();
    plan.variables = variables::moved(&plan, &places, stage, has_shims, socket.is_some());
    staged.extend(document(&plan, &given.entries));
    staged.sort_by(|one, other| one.at.cmp(&other.at));
    leave_out_copies(&mut plan);
    let script = plan.steps.iter().find_map(|step| match step.mount {
        Mount::Program { .. } => Some(&step.at),
        _ => None,
    });
    if let (Some(program), Some(script)) = (plan.command.first_mut(), script)
        && Path::new(program) == script
    {
        *program = stage.join(contents::SCRIPT_IN_OWN).into();
    }
    plan.syscalls = syscalls::rules(Switches {
        // Landlock forbids every mount inside a namespace, so that they would be of no use.
        nested: false,
        keyctl: !plan.syscalls.iter().any(|rule| rule.name == "keyctl"),
        mediated: true,
        besides: refused::besides(plan.network.value),
    });
    plan.mediated = false;
    let translated = Translated {
        plan,
        rules: widest(given.rules),
        config: MediatorConfig {
            access_map: AccessMap::new(given.entries),
            rules: widest(for_mediator),
            abi,
            stand_in,
            // With the jail's own places, which the launcher knows.
            listed: None,
            git_config,
        },
        handed_over,
        staged,
        places,
        socket,
        trusting,
        ssh,
        abi,
    };
    let given = (translated.rules.as_slice(), &translated.config.access_map);
    check::check(&translated.plan, given, host, stage)?;
    Ok(translated)
}

impl Translated {
    /// Puts into the document that `agent-sandbox explain` reads inside what this jail lacks, by the ids
    /// of [`super::missing`], and why bubblewrap does not make it.
    pub fn say_what_is_missing(&mut self, instead: Option<String>, missing: Vec<String>) {
        let at = Path::new(contents::DOCUMENT_IN_OWN);
        for staged in self.staged.iter_mut().filter(|staged| staged.at == at) {
            if let Thing::File(_, content) = &mut staged.what
                && let Some(mut document) = Document::read(content)
            {
                document.instead.clone_from(&instead);
                document.missing.clone_from(&missing);
                *content = document.text();
            }
        }
    }
}

/// The shim, where mounts would put it over Slurm's own commands.
fn stand_in(
    steps: &[Step],
    shim: Option<&Path>,
    stage: &Path,
    files: &dyn Files,
) -> Option<StandIn> {
    let shim = shim?;
    let covers = steps.iter().filter(|step| {
        let over = |from: &PathBuf| from == shim && step.at != Path::new(PROGRAM);
        matches!(&step.mount, Mount::Bind { from, .. } if over(from))
    });
    let ids = covers.filter_map(|step| match files.look(&step.at) {
        Look::Found(found) => Some(found.id),
        _ => None,
    });
    let mut commands: Vec<(u64, u64)> = ids.collect();
    commands.sort_unstable();
    let names = Command::ALL.iter().map(|command| command.name().into());
    let mut names: Vec<Vec<u8>> = names.collect();
    names.sort_unstable();
    (!commands.is_empty()).then(|| StandIn {
        names,
        commands,
        program: stage
            .join(contents::SHIM_IN_OWN)
            .into_os_string()
            .into_vec(),
    })
}

/// The real path of what the plan shows at a place of ours.
fn bound<'a>(steps: &'a [Step], at: &str) -> Option<&'a Path> {
    steps.iter().find_map(|step| match &step.mount {
        Mount::Bind { from, .. } if step.at == Path::new(at) => Some(from.as_path()),
        _ => None,
    })
}

/// What `agent-sandbox explain` answers from inside, for what this jail shows.
fn document(plan: &Plan, entries: &[MapEntry]) -> Option<Staged> {
    let step = plan
        .steps
        .iter()
        .find(|step| step.at == Path::new(DOCUMENT))?;
    let Mount::File { content } = &step.mount else {
        return None;
    };
    let program = bound(&plan.steps, CHAPERON_INSIDE).is_some();
    let given = entries.iter().filter_map(|entry| {
        let access = match entry.permission {
            Permission::None => return None,
            Permission::Read => Access::Read,
            Permission::Write | Permission::Own => Access::Write,
        };
        Some((entry.path(), access))
    });
    let document = Document::read(content)?.by_landlock(plan, given, program);
    Some(Staged {
        at: contents::DOCUMENT_IN_OWN.into(),
        what: Thing::File(0o400, document.text()),
    })
}

/// Private copies have a place in the private home alone.
fn leave_out_copies(plan: &mut Plan) {
    let elsewhere = plan.steps.iter().filter(|step| {
        matches!(step.mount, Mount::Copy { .. }) && !step.at.starts_with(&plan.home)
    });
    let omitted: Vec<Omitted> = elsewhere
        .map(|step| Omitted {
            path: step.at.display().to_string(),
            reason: "Landlock cannot put a private copy outside the home directory".to_owned(),
            why: step.why.clone(),
            loud: true,
        })
        .collect();
    plan.omitted.extend(omitted);
}

/// One rule for each path, sorted. Of two the wider counts; `Right`'s order is not that of what is
/// given, so it is written out.
fn widest(rules: Vec<Rule>) -> Vec<Rule> {
    let width = |right| match right {
        Right::ReadFiles => 0,
        Right::Read => 1,
        Right::Write => 2,
        Right::Device => 3,
    };
    let mut all: BTreeMap<PathBuf, Rule> = BTreeMap::new();
    for rule in rules {
        let known = all.get(rule.path()).map(|known| width(known.right));
        if known.is_none_or(|known| known < width(rule.right)) {
            all.insert(rule.path().to_path_buf(), rule);
        }
    }
    all.into_values().collect()
}

/// Rules and entries.
struct Collected {
    rules: Vec<Rule>,
    entries: Vec<MapEntry>,
}

impl Collected {
    fn entry(&mut self, at: &Path, permission: Permission, direct: bool) {
        self.entries.push(MapEntry {
            at: at.as_os_str().as_bytes().to_vec(),
            permission,
            direct,
            listed: direct,
        });
    }

    /// Files that mounts show elsewhere: our own programs, and standard input, which programs open
    /// anew by `/dev/stdin`.
    fn of_steps(&mut self, steps: &[Step]) {
        for step in steps {
            let Mount::Bind { from, id, .. } = &step.mount else {
                continue;
            };
            let ours = [PROGRAM, INPUT, INIT, CHAPERON_INSIDE];
            if ours.iter().any(|at| step.at == Path::new(at)) {
                self.rules.push(rule(from, Some(*id), Right::ReadFiles));
                self.entry(from, Permission::Read, true);
            }
        }
    }

    fn devices(&mut self, steps: &[Step], terminals: &[OsString], files: &dyn Files) {
        let allowed = steps.iter().filter_map(|step| match &step.mount {
            Mount::Device { from } => Some(from.clone()),
            _ => None,
        });
        let every = DEVICES.iter().map(PathBuf::from);
        for path in every
            .chain(terminals.iter().map(PathBuf::from))
            .chain(allowed)
        {
            let Look::Found(found) = files.look(&path) else {
                continue;
            };
            // `/dev/ptmx` may be a link to `/dev/pts/ptmx`.
            if found.kind == Kind::Device && found.real.starts_with("/dev") {
                self.rules
                    .push(rule(&found.real, Some(found.id), Right::Device));
                self.entry(&found.real, Permission::Write, true);
            }
        }
    }

    /// Regions for what is shared by all, and the mediator's rules.
    fn shared(&mut self, files: &dyn Files) -> Vec<Rule> {
        let mut rules = Vec::new();
        for (path, right) in SHARED {
            if let Look::Found(found) = files.look(Path::new(path))
                && found.kind == Kind::Directory
            {
                self.entry(&found.real, Permission::Own, false);
                rules.push(rule(&found.real, Some(found.id), right));
            }
        }
        rules
    }

    /// What links in kept directories lead to. The directories themselves are surveyed ([`map`]).
    fn kept(&mut self, plan: &Plan) {
        if let (Some(_), Some(store)) = (plan.kept().next(), &plan.keeping.store) {
            let shown = persistent::shown_in(store);
            self.rules.push(rule(&shown, None, Right::Read));
            self.entry(&shown, Permission::Read, true);
        }
    }

    /// The session's own directory, and where those of others are: a jail could make one in shared
    /// memory.
    fn stage(&mut self, stage: &Path, host: &HostFacts, sockets: &[Option<&Path>]) {
        for place in &host.join_directories {
            self.entry(place, Permission::None, false);
        }
        self.entry(stage, Permission::None, false);
        for name in [HOME, TMP, RUN] {
            self.rules.push(rule(&stage.join(name), None, Right::Write));
            self.entry(&stage.join(name), Permission::Write, true);
        }
        self.rules.push(rule(&stage.join(OWN), None, Right::Read));
        self.entry(&stage.join(OWN), Permission::Read, true);
        for socket in sockets.iter().copied().flatten() {
            // To connect to it is writing; for all else the kernel has no rule, and refuses.
            self.entry(socket, Permission::Write, true);
        }
    }
}
