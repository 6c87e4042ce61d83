//! From the policy's paths to the jail's file system.

mod certificates;
mod home;
mod injected_files;
mod keeps;
mod requested;

use std::path::{Path, PathBuf};

use super::git;
use super::project::Project;
use super::tree::{Concealer, Tree};
use super::{devices, join_directories, memory, network, other_homes, slurm, ssh, users};
use crate::config::source::Sourced;
use crate::host::HostFacts;
use crate::host::files::{
    Files, Found, Kind, Look, links_as_far_as_it_exists, real_as_far_as_it_exists,
};
use crate::plan::model::bounds::SiteBounds;
use crate::plan::model::hides::Hides;
use crate::plan::model::injected_files::InjectedFiles;
use crate::plan::model::network::Trust;
use crate::plan::model::persistent::Keeping;
use crate::plan::model::protect::protected;
use crate::plan::model::{Access, INIT, INPUT, Job, Mount, Omitted, PlanError, Step, Why};
use crate::policy::{Clamped, HomeMode, NetworkMode, PathSpec, Policy};

/// Links in `/etc` that lead into directories that the jail has private; the file at their end is
/// bound alone.
const FOLLOWED: [&str; 3] = ["/etc/resolv.conf", "/etc/hosts", "/etc/localtime"];
/// bubblewrap takes 9000 arguments (`MAX_ARGS`); a step has up to six, most have three.
const MOST_STEPS: usize = 2500;
/// Each covered file needs a descriptor while the jail is built; a process may have 1024 by default.
const MOST_COVERS: usize = 500;
/// Small files that others are mounted over.
const OWN_SIZE: u64 = 64 << 10;
/// The private runtime directory and what else begins empty may hold this much.
const RUN_SIZE: u64 = 64 << 20;

/// The file system, and what could not be put into it.
pub struct Mounted {
    /// The home directory, by its real path.
    pub home: PathBuf,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// What is made, seeded and carried out for what the jail keeps.
    pub keeping: Keeping,
    /// Paths that are left out.
    pub omitted: Vec<Omitted>,
    /// Paths and devices that enforced layers do not allow as asked.
    pub clamped: Vec<Clamped>,
    /// Files that profiles give.
    pub injected_files: InjectedFiles,
    /// Certificates that are trusted, where credentials are exchanged.
    pub trust: Option<Trust>,
}

impl Mounted {
    /// The caller's current directory, by its real path, if the jail shows it.
    pub fn cwd_for(&self, cwd: &Path, files: &dyn Files) -> Option<PathBuf> {
        let Look::Found(found) = files.look(cwd) else {
            return None;
        };
        let over = self
            .steps
            .iter()
            .rev()
            .find(|step| found.real.starts_with(&step.at))?;
        let shown = matches!(over.mount, Mount::Bind { .. }) && found.kind == Kind::Directory;
        shown.then_some(found.real)
    }
}

struct Builder<'a> {
    policy: &'a Policy,
    host: &'a HostFacts,
    files: &'a dyn Files,
    hides: &'a Hides,
    site_bounds: &'a SiteBounds,
    tree: Tree,
    links: Vec<(PathBuf, PathBuf)>,
    /// Symbolic links in the path of the home directory.
    home_links: Vec<PathBuf>,
    /// Symbolic links that paths of the policy lead through, and which paths.
    followed: Vec<(PathBuf, String)>,
    omitted: Vec<Omitted>,
    clamped: Vec<Clamped>,
    keeping: Keeping,
    /// What is kept.
    keeps: Vec<keeps::Keep>,
    /// Real paths of the homes; the first is `$HOME`.
    homes: Vec<PathBuf>,
    /// Binds that `home.mode` made.
    by_mode: Vec<PathBuf>,
}

/// What else the jail has a place for.
pub(super) struct Besides<'a> {
    /// Whether its network exchanges credentials.
    pub(super) credentials: bool,
    /// Its ssh agent.
    pub(super) ssh: &'a ssh::Wanted,
}

/// Plans the file system.
///
/// # Errors
/// A path that the policy gives as writable and that would open the home directory or
/// agent-sandbox's own files; a home directory that cannot be listed where its mode needs it.
pub(super) fn build(
    policy: &Policy,
    host: &HostFacts,
    files: &dyn Files,
    (hides, site_bounds): (&Hides, &SiteBounds),
    project: Option<&Project>,
    job: Option<&Job>,
    besides: Besides<'_>,
) -> Result<Mounted, PlanError> {
    let homes: Vec<PathBuf> = host
        .homes()
        .map(|home| real_as_far_as_it_exists(files, home))
        .collect();
    let mut builder = Builder {
        policy,
        host,
        files,
        hides,
        site_bounds,
        tree: Tree::default(),
        links: Vec::new(),
        home_links: Vec::new(),
        followed: Vec::new(),
        omitted: Vec::new(),
        clamped: Vec::new(),
        keeping: Keeping::default(),
        keeps: Vec::new(),
        homes,
        by_mode: Vec::new(),
    };
    builder.skeleton(memory::automatic_shm(job));
    builder.home_by_mode()?;
    builder.keeps(project)?;
    builder.requested()?;
    builder.tree.prune();
    if let Some(project) = project {
        builder.project(project);
    }
    builder.own_links();
    builder.protect(project)?;
    // What is given stays in its place, for the next launch to find.
    for (at, _) in builder.tree.binds() {
        builder.tree.pin(files, &at, &builder.by_mode);
    }
    builder.conceal()?;
    builder.settle_keeps();
    join_directories::cover(&mut builder.tree, host, files)?;
    builder.steady_links()?;
    builder.databases();
    builder.seeds()?;
    builder.follow();
    let mode = network::mode(policy, job.is_some()).value;
    if mode == NetworkMode::Filtered {
        builder.names();
    }
    let trust = besides.credentials.then(|| builder.certificates());
    ssh::place(&mut builder.tree, besides.ssh, files, hides)?;
    builder.input();
    builder.devices(mode);
    slurm::place(
        &mut builder.tree,
        &mut builder.omitted,
        policy,
        host,
        files,
        hides,
    )?;
    if job.is_some() {
        let links = slurm::place_temporary(&mut builder.tree, policy, host, files, hides);
        builder.links.extend(links);
    }
    builder.aliases();
    let injected_files = builder.injected_files();
    builder.wanted();
    builder.shown_in_kept();
    builder.tree.name_parents();
    let home = builder.homes.first().cloned().unwrap_or_default();
    let steps = builder.tree.into_steps();
    if steps.len() > MOST_STEPS {
        let message = format!(
            "the jail would need {} mounts; {MOST_STEPS} can be",
            steps.len()
        );
        return Err(PlanError::new(message)
            .hint("each entry of the home directory is one: home.mode = \"tmpfs\" and home.read need fewer"));
    }
    Ok(Mounted {
        home,
        steps,
        keeping: builder.keeping,
        omitted: builder.omitted,
        clamped: builder.clamped,
        injected_files,
        trust,
    })
}

impl Builder<'_> {
    /// What every jail has, whatever the policy says.
    fn skeleton(&mut self, automatic_shm: u64) {
        let jail = &self.policy.jail;
        let sized = |size, mode| Mount::Tmpfs { size, mode };
        let tree = &mut self.tree;
        tree.put(
            "/proc",
            Mount::Proc,
            Why::Every("a fresh /proc of the jail's own processes"),
        );
        tree.put("/dev", Mount::Dev, Why::Every("a minimal /dev"));
        tree.put(
            "/dev/shm",
            sized(jail.shm_size.value.bytes(automatic_shm), 0o1777),
            Why::key("jail.shm_size", &jail.shm_size),
        );
        tree.put(
            "/tmp",
            sized(jail.tmp_size.value, 0o1777),
            Why::key("jail.tmp_size", &jail.tmp_size),
        );
        tree.put(
            "/var/tmp",
            sized(jail.tmp_size.value, 0o1777),
            Why::key("jail.tmp_size", &jail.tmp_size),
        );
        tree.put(
            "/run",
            Mount::Tmpfs {
                size: RUN_SIZE,
                mode: 0o755,
            },
            Why::Every("an empty /run"),
        );
        tree.put(
            crate::plan::model::OWN,
            Mount::Tmpfs {
                size: OWN_SIZE,
                mode: 0o755,
            },
            Why::Every("what is ours"),
        );
        tree.put(
            "/var/run",
            Mount::Link {
                target: PathBuf::from("../run"),
            },
            Why::Every("the usual name of /run"),
        );
        let runtime = PathBuf::from(format!("/run/user/{}", self.host.uid));
        tree.put(
            runtime,
            Mount::Directory { mode: 0o700 },
            Why::Every("a private XDG_RUNTIME_DIR"),
        );
        let executable = self.files.look(&self.host.executable);
        if let Look::Found(found) = executable {
            let mount = Mount::Bind {
                from: found.real,
                access: Access::Read,
                id: found.id,
            };
            tree.put(
                INIT,
                mount,
                Why::Every("agent-sandbox itself, the first process inside"),
            );
            let target = PathBuf::from(INIT);
            let why = Why::Every("agent-sandbox by its name, for `agent-sandbox explain`");
            let link = || Mount::Link {
                target: target.clone(),
            };
            tree.put(crate::plan::model::NAMED, link(), why);
            let why = Why::Every("tells git's user why no remote is reached over ssh");
            tree.put(crate::plan::model::GIT_SSH, link(), why);
        }
        if let Some(home) = self.homes.first() {
            tree.put(
                home,
                sized(jail.home_size.value, 0o700),
                Why::key("home.mode", &self.policy.home.mode),
            );
        }
        if let Look::Found(home) = self.files.look(&self.host.home) {
            self.home_links = home.links.iter().map(|(at, _)| at.clone()).collect();
            self.links.extend(home.links);
        }
    }

    fn project(&mut self, project: &Project) {
        self.links.extend(project.links.iter().cloned());
        let found = Found {
            real: project.real.clone(),
            kind: Kind::Directory,
            id: project.id,
            uid: self.host.uid,
            mode: 0o700,
            readable: true,
            links: Vec::new(),
        };
        self.tree
            .bind(&found, Access::Write, Why::Every("the project directory"));
        // A split by home.mode does not reach into the project.
        self.by_mode.retain(|at| !at.starts_with(&project.real));
        for entry in &project.git {
            let shown = (entry.unless_shown.as_ref()).and_then(|at| self.tree.access(at));
            if shown.is_some() || self.hides.rule_for(&entry.path).is_some() {
                continue;
            }
            let why = match entry.access {
                Access::Read => Why::key(git::KEY, &self.policy.project.git),
                Access::Write => Why::Every("git's directory of this project, kept in its place"),
            };
            let mount = Mount::Bind {
                from: entry.path.clone(),
                access: entry.access,
                id: entry.id,
            };
            self.tree.put(&entry.path, mount, why);
        }
        for entry in &project.settings {
            if self.hides.rule_for(&entry.path).is_some() {
                continue;
            }
            let mount = Mount::Bind {
                from: entry.path.clone(),
                access: entry.access,
                id: entry.id,
            };
            let why = Why::key("project.settings", &self.policy.project.settings);
            self.tree.put(&entry.path, mount, why);
        }
        for (path, reason) in &project.git_omitted {
            self.omitted.push(Omitted {
                path: path.display().to_string(),
                reason: reason.clone(),
                why: Why::key(git::KEY, &self.policy.project.git),
                loud: true,
            });
        }
    }

    /// Links on the way to the policy and the state.
    fn own_links(&mut self) {
        for own in &self.host.own_directories {
            let what = format!("agent-sandbox's own `{}`", own.display());
            self.followed.extend(
                links_as_far_as_it_exists(self.files, own)
                    .into_iter()
                    .map(|at| (at, what.clone())),
            );
        }
    }

    /// Refuses paths of the policy that lead through a symbolic link which the jail can change: it
    /// would choose what the next launch gives.
    fn steady_links(&self) -> Result<(), PlanError> {
        for (at, what) in &self.followed {
            let around = at.parent().and_then(|parent| self.tree.access(parent));
            if around == Some(Access::Write) {
                let message = format!(
                    "{what} leads through the symbolic link `{}`, which the jail could change",
                    at.display()
                );
                return Err(
                    PlanError::new(message).hint("name the path that is meant, without links")
                );
            }
        }
        Ok(())
    }

    fn conceal(&mut self) -> Result<(), PlanError> {
        let mut keep_absent: Vec<PathBuf> = Vec::new();
        if self.policy.home.mode.value == HomeMode::Write {
            for own in &self.host.own_directories {
                keep_absent.push(real_as_far_as_it_exists(self.files, own));
            }
            for path in self
                .policy
                .home
                .protect
                .iter()
                .flat_map(|rule| protected(rule, self.host, self.files))
            {
                keep_absent.push(real_as_far_as_it_exists(self.files, &path));
            }
            // In a directory that is taken apart a link is the session's own.
            keep_absent.extend(self.followed.iter().map(|(at, _)| at.clone()));
            // The name itself is a pattern or may not exist; any name in its directory will do.
            keep_absent.extend(self.hides.parents().map(|parent| parent.join("*")));
        }
        let by_mode = std::mem::take(&mut self.by_mode);
        let kept: Vec<PathBuf> = self.keeps.iter().map(|keep| keep.at.clone()).collect();
        let concealer = Concealer {
            files: self.files,
            hides: self.hides,
            homes: &self.homes,
            keep_absent: &keep_absent,
            kept: &kept,
        };
        other_homes::conceal(&mut self.tree, self.hides, self.files);
        concealer.conceal(&mut self.tree, &|at| by_mode.iter().any(|bind| bind == at));
        self.certain()
    }

    /// Refuses what cannot be hidden for certain, in this launch and in the next.
    fn certain(&self) -> Result<(), PlanError> {
        let cannot = |rule: &Sourced<PathSpec>, why: String| {
            let (path, source) = (&rule.value, &rule.source);
            PlanError::new(format!("cannot hide files.hide `{path}` ({source}): {why}"))
        };
        if let Some((at, rule)) = self.hides.stalled().next() {
            let why = format!(
                "`{}` does not answer, so that nobody knows where it leads",
                at.display()
            );
            return Err(cannot(rule, why)
                .hint("is its file system alive? files.timeout_ms says how long it may take"));
        }
        for unknown in self.hides.unknown() {
            if self.tree.access(&unknown.directory).is_some() {
                let why = format!("`{}` {}", unknown.directory.display(), unknown.reason);
                return Err(cannot(&unknown.rule, why));
            }
        }
        for (at, rule) in self.hides.links() {
            if at.parent().and_then(|parent| self.tree.access(parent)) == Some(Access::Write) {
                let why = format!(
                    "it leads through the symbolic link `{}`, which the jail could change; the next launch would not \
                     know what to hide",
                    at.display()
                );
                return Err(cannot(rule, why)
                    .hint("hide what the link leads to by its own path, and remove the link"));
            }
        }
        for hidden in self.hides.existing() {
            let shown = hidden.path.display();
            if hidden.kind == Kind::Hung && self.tree.access(&hidden.path).is_some() {
                return Err(cannot(&hidden.rule, format!("`{shown}` does not answer"))
                    .hint("is its file system alive? a narrower project or path does without it"));
            }
            let around = hidden
                .path
                .parent()
                .and_then(|parent| self.tree.access(parent));
            if hidden.kind == Kind::Link && around == Some(Access::Write) {
                let why = format!(
                    "`{shown}` is a symbolic link in a directory that the jail may write; without the link, the next \
                     launch would not know what to hide"
                );
                return Err(cannot(&hidden.rule, why)
                    .hint("hide what the link leads to by its own path, and remove the link"));
            }
        }
        let covers = self.tree.covers();
        if covers > MOST_COVERS {
            let message = format!(
                "files.hide hides {covers} files of writable directories; {MOST_COVERS} can be"
            );
            return Err(PlanError::new(message).hint("hide their directory instead"));
        }
        Ok(())
    }

    /// `jail.users = "filtered"`.
    fn databases(&mut self) {
        let rule = &self.policy.jail.users;
        for (at, content) in users::files(rule.value, self.host) {
            let exists = matches!(self.files.look(Path::new(at)), Look::Found(_));
            if exists && self.tree.access(Path::new(at)).is_some() {
                self.tree
                    .put(at, Mount::File { content }, Why::key("jail.users", rule));
            }
        }
    }

    /// Files that links in `/etc` lead to and that stand in private directories.
    fn follow(&mut self) {
        for link in FOLLOWED {
            if let Look::Found(found) = self.files.look(Path::new(link))
                && found.kind == Kind::File
                && self.tree.access(&found.real).is_none()
                && self.hides.rule_for(&found.real).is_none()
                && self
                    .site_bounds
                    .refusing(Path::new(link), Access::Read)
                    .is_none()
            {
                self.tree.bind(
                    &found,
                    Access::Read,
                    Why::Every("where a link in /etc leads"),
                );
            }
        }
    }

    /// Where names of hosts come from in a filtered network. A file that the host does not have is not needed: without it the
    /// C library asks the same name server.
    fn names(&mut self) {
        let rule = &self.policy.network.mode;
        let host = self.host.databases.nsswitch.clone();
        let nsswitch = match self.tree.over(Path::new("/etc/nsswitch.conf")) {
            Some((_, Mount::File { content })) => Some(content.clone()),
            _ => host,
        };
        for (at, content) in network::files(nsswitch.as_deref()) {
            if let Look::Found(found) = self.files.look(Path::new(at))
                && self.hides.rule_for(&found.real).is_none()
            {
                let why = Why::key("network.mode", rule);
                self.tree.put(&found.real, Mount::File { content }, why);
            }
        }
    }

    /// A file given as standard input is opened anew through a read-only mount.
    fn input(&mut self) {
        let Some(found) = &self.host.input else {
            return;
        };
        let writable = self.tree.access(&found.real) == Some(Access::Write);
        if !writable && self.hides.rule_for(&found.real).is_none() {
            let mount = Mount::Bind {
                from: found.real.clone(),
                access: Access::Read,
                id: found.id,
            };
            self.tree
                .put(INPUT, mount, Why::Every("standard input, read-only"));
        }
    }

    fn devices(&mut self, network: NetworkMode) {
        let (nodes, clamped) = devices::resolve(self.policy, self.files, self.site_bounds, network);
        self.clamped.extend(clamped);
        for (from, rule) in nodes {
            self.tree.put(
                &from,
                Mount::Device { from: from.clone() },
                Why::rule("devices.allow", rule),
            );
        }
    }

    /// Symbolic links by which the user knows the paths inside.
    fn aliases(&mut self) {
        for (at, target) in std::mem::take(&mut self.links) {
            let shown = matches!(
                self.tree.over(&at),
                Some((
                    _,
                    Mount::Bind { .. } | Mount::Kept { .. } | Mount::Link { .. }
                ))
            );
            if !shown && self.hides.rule_for(&at).is_none() {
                self.tree.put_if_free(
                    &at,
                    Mount::Link { target },
                    Why::Every("another name of something inside"),
                );
            }
        }
    }
}
