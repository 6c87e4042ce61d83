//! Layers become one [`Policy`]. Two verbs, one per field and layer: *prefer* (the later layer
//! wins, lists grow) for every layer but the last, *narrow* (the result allows no more than either)
//! for the site's enforced layer.

use std::time::Duration;

use agent_sandbox_wire::order::{Queries, Scope};

use super::typed::Reader;
use super::{
    Demand, Devices, Env, Files, Git, Home, HomeMode, Jail, Landlock, Modules, Network,
    NetworkMode, Paths, Patterns, Policy, Project, ShmSize, Slurm, SlurmLimits, SlurmMode, Users,
};
use crate::config::diagnostic::ConfigError;
use crate::config::load::RawLayer;
use crate::config::schema::SlurmSection;
use crate::config::source::{Layer, Source, Sourced};

/// The longest that one path may be allowed to take to answer.
const LONGEST_TIMEOUT_MS: i64 = 60_000;

/// What options of the command line add to the layers, already typed.
#[derive(Clone, Debug, Default)]
pub struct Additions {
    /// `--read PATH`
    pub read: Paths,
    /// `--write PATH`
    pub write: Paths,
    /// `--hide PATH`
    pub hide: Paths,
    /// `--env NAME`
    pub pass: Patterns,
    /// `--env NAME=VALUE`
    pub set: Vec<Sourced<(String, String)>>,
    /// `--home MODE`
    pub home: Option<Sourced<HomeMode>>,
}

/// Merges the layers, weakest first, and the options of the command line.
///
/// # Errors
/// A value that does not mean anything, with its file, line and the nearest valid word.
pub fn merge(layers: &[RawLayer], additions: &Additions) -> Result<Policy, ConfigError> {
    let mut draft = Draft::default();
    let (enforced, open): (Vec<_>, Vec<_>) = layers
        .iter()
        .partition(|layer| layer.layer == Layer::SiteEnforced);
    for layer in open {
        draft.apply(layer)?;
    }
    draft.add(additions);
    for layer in enforced {
        draft.apply(layer)?;
    }
    Ok(draft.finish())
}

/// Values in the order in which an enforced layer may move them: towards the smaller only.
#[derive(Debug)]
struct Slot<T>(Option<Sourced<T>>);

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Slot<T> {
    fn or(self, default: T) -> Sourced<T> {
        // The built-in layer sets every key (tested); this is what holds if it did not.
        self.0
            .unwrap_or_else(|| Sourced::new(default, Source::option("built-in")))
    }
}

impl<T: PartialOrd> Slot<T> {
    fn prefer(&mut self, new: Sourced<T>) {
        self.0 = Some(new);
    }

    fn narrow(&mut self, new: Sourced<T>) {
        match &self.0 {
            Some(old) if old.value <= new.value => {}
            _ => self.0 = Some(new),
        }
    }

    fn set(&mut self, new: Sourced<T>) {
        if new.source.layer == Layer::SiteEnforced {
            self.narrow(new)
        } else {
            self.prefer(new)
        }
    }
}

/// A number in which 0 stands for "no limit" and is therefore the widest.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Limit(u64);

impl Limit {
    fn new(written: u64) -> Self {
        Self(if written == 0 { u64::MAX } else { written })
    }

    fn written(&self) -> u64 {
        if self.0 == u64::MAX { 0 } else { self.0 }
    }

    fn written_short(&self) -> u32 {
        u32::try_from(self.written()).unwrap_or(u32::MAX)
    }
}

#[derive(Default)]
struct Draft {
    parents: Paths,
    git: Slot<Git>,
    mode: Slot<HomeMode>,
    home_read: Paths,
    home_write: Paths,
    seed: Paths,
    protect: Paths,
    read: Paths,
    write: Paths,
    hide: Paths,
    unhide: Paths,
    timeout: Slot<Duration>,
    pass: Patterns,
    env_hide: Patterns,
    hide_values: Patterns,
    set: Vec<Sourced<(String, String)>>,
    allow: Paths,
    deny: Paths,
    tmp_size: Slot<u64>,
    shm_size: Option<Sourced<ShmSize>>,
    home_size: Slot<u64>,
    max_processes: Slot<Limit>,
    users: Slot<Users>,
    nested: Slot<bool>,
    keyctl: Slot<bool>,
    landlock_sizes: Slot<Demand>,
    landlock_users: Slot<Demand>,
    network: Slot<NetworkMode>,
    slurm: SlurmDraft,
    modules: Patterns,
}

#[derive(Default)]
struct SlurmDraft {
    mode: Slot<SlurmMode>,
    scope: Slot<Scope>,
    queries: Slot<Queries>,
    directories: Paths,
    queries_per_minute: Slot<Limit>,
    jobs: Slot<Limit>,
    nodes: Slot<Limit>,
    gpus: Slot<Limit>,
    minutes: Slot<Limit>,
}

impl SlurmDraft {
    fn apply(&mut self, read: &Reader<'_>, slurm: &SlurmSection) -> Result<(), ConfigError> {
        if let Some(mode) = &slurm.mode {
            let words = [("auto", SlurmMode::Auto), ("off", SlurmMode::Off)];
            self.mode.set(read.word(mode, &words)?);
        }
        if let Some(scope) = &slurm.scope {
            let words = [
                ("session", Scope::Session),
                ("project", Scope::Project),
                ("user", Scope::User),
            ];
            self.scope.set(read.word(scope, &words)?);
        }
        if let Some(queries) = &slurm.queries {
            let words = [
                ("none", Queries::None),
                ("counts", Queries::Counts),
                ("names", Queries::Names),
            ];
            self.queries.set(read.word(queries, &words)?);
        }
        read.plain_grants(&mut self.directories, &slurm.directories)?;
        let Some(limits) = &slurm.limits else {
            return Ok(());
        };
        for (slot, written, unit) in [
            (
                &mut self.queries_per_minute,
                &limits.queries_per_minute,
                "queries",
            ),
            (&mut self.jobs, &limits.jobs, "jobs"),
            (&mut self.nodes, &limits.nodes, "nodes"),
            (&mut self.gpus, &limits.gpus, "GPUs"),
            (&mut self.minutes, &limits.minutes, "minutes"),
        ] {
            if let Some(written) = written {
                let most = read.number(written, 0, i64::from(u32::MAX), unit)?;
                slot.set(most.map(Limit::new));
            }
        }
        Ok(())
    }

    fn finish(self) -> Slurm {
        let limit = |slot: Slot<Limit>, default| slot.or(default).map(|most| most.written_short());
        Slurm {
            mode: self.mode.or(SlurmMode::Auto),
            scope: self.scope.or(Scope::Project),
            queries: self.queries.or(Queries::Counts),
            directories: self.directories,
            limits: SlurmLimits {
                queries_per_minute: limit(self.queries_per_minute, Limit::new(240)),
                jobs: limit(self.jobs, Limit::new(0)),
                nodes: limit(self.nodes, Limit::new(0)),
                gpus: limit(self.gpus, Limit::new(0)),
                minutes: limit(self.minutes, Limit::new(0)),
            },
        }
    }
}

impl Draft {
    fn apply(&mut self, layer: &RawLayer) -> Result<(), ConfigError> {
        let read = Reader::new(layer);
        let sections = &layer.sections;
        if let Some(project) = &sections.project {
            read.grants(&mut self.parents, &project.parents)?;
            if let Some(git) = &project.git {
                self.git.set(read.word(
                    git,
                    &[("protect", Git::Protect), ("writable", Git::Writable)],
                )?);
            }
        }
        if let Some(home) = &sections.home {
            if let Some(mode) = &home.mode {
                self.mode.set(read.word(mode, &HOME_MODES)?);
            }
            read.home_grants(&mut self.home_read, &home.read)?;
            read.home_grants(&mut self.home_write, &home.write)?;
            read.home_grants(&mut self.seed, &home.seed)?;
            read.home_paths(&mut self.protect, &home.protect)?;
        }
        if let Some(files) = &sections.files {
            read.grants(&mut self.read, &files.read)?;
            read.grants(&mut self.write, &files.write)?;
            read.paths(&mut self.hide, &files.hide)?;
            read.grants(&mut self.unhide, &files.unhide)?;
            if let Some(timeout) = &files.timeout_ms {
                let value = read.number(timeout, 1, LONGEST_TIMEOUT_MS, "milliseconds")?;
                self.timeout.set(value.map(Duration::from_millis));
            }
        }
        if let Some(env) = &sections.env {
            read.granted_names(&mut self.pass, &env.pass)?;
            read.patterns(&mut self.env_hide, &env.hide)?;
            read.patterns(&mut self.hide_values, &env.hide_values)?;
            for (name, value) in env.set.iter().flatten() {
                let name = read.name(name)?;
                let pair = (name.value, read.text(value)?.value);
                set_variable(&mut self.set, Sourced::new(pair, name.source));
            }
        }
        if let Some(devices) = &sections.devices {
            read.device_grants(&mut self.allow, &devices.allow)?;
            read.devices(&mut self.deny, &devices.deny)?;
        }
        if let Some(jail) = &sections.jail {
            for (slot, written) in [
                (&mut self.tmp_size, &jail.tmp_size),
                (&mut self.home_size, &jail.home_size),
            ] {
                if let Some(written) = written {
                    slot.set(read.size(written)?);
                }
            }
            if let Some(written) = &jail.shm_size {
                self.set_shm_size(read.size_or_auto(written)?);
            }
            if let Some(most) = &jail.max_processes {
                let most = read.number(most, 0, i64::from(u32::MAX), "processes")?;
                self.max_processes.set(most.map(Limit::new));
            }
            if let Some(users) = &jail.users {
                self.users.set(read.word(
                    users,
                    &[("filtered", Users::Filtered), ("host", Users::Host)],
                )?);
            }
            for (slot, written) in [
                (&mut self.nested, &jail.nested),
                (&mut self.keyctl, &jail.keyctl),
            ] {
                if let Some(written) = written {
                    slot.set(Sourced::new(
                        *written.get_ref(),
                        layer.source(written.span()),
                    ));
                }
            }
        }
        if let Some(landlock) = &sections.landlock {
            let words = [("refuse", Demand::Refuse), ("degraded", Demand::Degraded)];
            for (slot, written) in [
                (&mut self.landlock_sizes, &landlock.sizes),
                (&mut self.landlock_users, &landlock.users),
            ] {
                if let Some(written) = written {
                    slot.set(read.word(written, &words)?);
                }
            }
        }
        if let Some(mode) = sections
            .network
            .as_ref()
            .and_then(|network| network.mode.as_ref())
        {
            let words = [
                ("open", NetworkMode::Open),
                ("isolated", NetworkMode::Isolated),
            ];
            self.network.set(read.word(mode, &words)?);
        }
        if let Some(slurm) = &sections.slurm {
            self.slurm.apply(&read, slurm)?;
        }
        if let Some(modules) = &sections.modules {
            read.modules(&mut self.modules, &modules.load)?;
        }
        Ok(())
    }

    /// Neither `"auto"` nor a number is the narrower of the two; an enforced layer makes it both.
    fn set_shm_size(&mut self, new: Sourced<ShmSize>) {
        self.shm_size = Some(match self.shm_size.take() {
            Some(old) if new.source.layer == Layer::SiteEnforced => {
                let narrowed = old.value.narrowed(new.value);
                if narrowed == old.value {
                    old
                } else {
                    new.map(|_| narrowed)
                }
            }
            _ => new,
        });
    }

    fn add(&mut self, additions: &Additions) {
        self.read.extend(additions.read.iter().cloned());
        self.write.extend(additions.write.iter().cloned());
        self.hide.extend(additions.hide.iter().cloned());
        self.pass.extend(additions.pass.iter().cloned());
        for pair in &additions.set {
            set_variable(&mut self.set, pair.clone());
        }
        if let Some(mode) = &additions.home {
            self.mode.set(mode.clone());
        }
    }

    fn finish(self) -> Policy {
        Policy {
            project: Project {
                parents: self.parents,
                git: self.git.or(Git::Protect),
            },
            home: Home {
                mode: self.mode.or(HomeMode::Tmpfs),
                read: self.home_read,
                write: self.home_write,
                seed: self.seed,
                protect: self.protect,
            },
            files: Files {
                read: self.read,
                write: self.write,
                hide: self.hide,
                unhide: self.unhide,
                timeout_ms: self.timeout.or(Duration::from_secs(2)),
            },
            env: Env {
                pass: self.pass,
                hide: self.env_hide,
                hide_values: self.hide_values,
                set: self.set,
            },
            devices: Devices {
                allow: self.allow,
                deny: self.deny,
            },
            jail: Jail {
                tmp_size: self.tmp_size.or(1 << 30),
                shm_size: Slot(self.shm_size).or(ShmSize::Bytes(1 << 30)),
                home_size: self.home_size.or(1 << 30),
                max_processes: self
                    .max_processes
                    .or(Limit(4096))
                    .map(|limit| limit.written()),
                users: self.users.or(Users::Filtered),
                nested: self.nested.or(false),
                keyctl: self.keyctl.or(false),
            },
            landlock: Landlock {
                sizes: self.landlock_sizes.or(Demand::Refuse),
                users: self.landlock_users.or(Demand::Refuse),
            },
            network: Network {
                mode: self.network.or(NetworkMode::Open),
            },
            slurm: self.slurm.finish(),
            modules: Modules { load: self.modules },
        }
    }
}

/// The words of `[home] mode` and `--home`.
pub const HOME_MODES: [(&str, HomeMode); 4] = [
    ("tmpfs", HomeMode::Tmpfs),
    ("restricted", HomeMode::Restricted),
    ("read", HomeMode::Read),
    ("write", HomeMode::Write),
];

fn set_variable(all: &mut Vec<Sourced<(String, String)>>, new: Sourced<(String, String)>) {
    all.retain(|old| old.value.0 != new.value.0);
    all.push(new);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::config::load::parse;

    fn layer(layer: Layer, text: &str) -> RawLayer {
        parse(layer, "test.toml", text).unwrap().raw
    }

    #[test]
    fn prefer_takes_the_later_value_and_lists_grow() {
        let policy = merge(
            &[
                layer(
                    Layer::BuiltIn,
                    "[home]\nmode = \"read\"\n[files]\nhide = [\"~/.ssh\"]\n",
                ),
                layer(
                    Layer::User,
                    "[home]\nmode = \"write\"\n[files]\nhide = [\"~/x\"]\n",
                ),
            ],
            &Additions::default(),
        )
        .unwrap();
        assert_eq!(policy.home.mode.value, HomeMode::Write);
        assert_eq!(policy.home.mode.source.line, Some(2));
        assert_eq!(policy.files.hide.len(), 2);
    }

    #[test]
    fn slurm_is_narrowed_too_and_no_limit_is_the_widest() {
        let wide = "[slurm]\nmode = \"auto\"\nscope = \"user\"\nqueries = \"names\"\n\
                    directories = [\"/a\", \"/b\"]\n[slurm.limits]\njobs = 0\ngpus = 2\n";
        let narrow = "[slurm]\nmode = \"off\"\nscope = \"session\"\nqueries = \"counts\"\n\
                      directories = [\"/b\", \"/c\"]\n[slurm.limits]\njobs = 5\ngpus = 0\n";
        let both = |open: &str, enforced: &str| {
            let layers = [
                layer(Layer::User, open),
                layer(Layer::SiteEnforced, enforced),
            ];
            merge(&layers, &Additions::default()).unwrap().slurm
        };
        for slurm in [both(wide, narrow), both(narrow, wide)] {
            assert_eq!(slurm.mode.value, SlurmMode::Off);
            assert_eq!(slurm.scope.value, Scope::Session);
            assert_eq!(slurm.queries.value, Queries::Counts);
            let directories: Vec<_> = slurm
                .directories
                .iter()
                .map(|d| d.value.to_string())
                .collect();
            assert_eq!(directories, ["/b"]);
            assert_eq!(slurm.limits.values().jobs, 5);
            assert_eq!(slurm.limits.values().gpus, 2);
        }
        let open = merge(&[layer(Layer::User, wide)], &Additions::default()).unwrap();
        assert_eq!(open.slurm.limits.values().jobs, 0);
        assert_eq!(open.slurm.limits.jobs.source.line, Some(7));
    }

    #[test]
    fn shared_memory_is_a_number_or_half_of_the_jobs_memory() {
        let text = |size: &str| format!("[jail]\nshm_size = \"{size}\"\n");
        let size = |open: &str, enforced: &str| {
            let layers = [
                layer(Layer::BuiltIn, &text("auto")),
                layer(Layer::User, &text(open)),
                layer(Layer::SiteEnforced, &text(enforced)),
            ];
            merge(&layers, &Additions::default()).unwrap().jail.shm_size
        };
        for (open, enforced, of_1g, of_9g) in [
            ("auto", "auto", 1 << 30, 9 << 30),
            ("2G", "auto", 1 << 30, 2 << 30),
            ("auto", "2G", 1 << 30, 2 << 30),
            ("3G", "2G", 2 << 30, 2 << 30),
            ("2G", "3G", 2 << 30, 2 << 30),
        ] {
            let size = size(open, enforced).value;
            assert_eq!(size.bytes(1 << 30), of_1g, "{open} {enforced}");
            assert_eq!(size.bytes(9 << 30), of_9g, "{open} {enforced}");
        }
        assert_eq!(size("2G", "3G").source.layer, Layer::User);
        assert_eq!(size("auto", "3G").source.layer, Layer::SiteEnforced);
        let layers = [
            layer(Layer::BuiltIn, &text("auto")),
            layer(Layer::User, &text("9G")),
        ];
        let open = merge(&layers, &Additions::default()).unwrap();
        assert_eq!(open.jail.shm_size.value, ShmSize::Bytes(9 << 30));
        let wrong = layer(Layer::User, &text("half"));
        let error = merge(&[wrong], &Additions::default()).unwrap_err();
        assert!(error.hint().unwrap().contains("or \"auto\""), "{error}");
    }

    #[test]
    fn what_slurm_cannot_be_set_to() {
        for (text, expected) in [
            ("[slurm]\nmode = \"on\"\n", "unknown value `on`"),
            ("[slurm]\nscope = \"all\"\n", "unknown value `all`"),
            ("[slurm]\nqueries = \"count\"\n", "did you mean \"counts\"?"),
            ("[slurm]\ndirectories = [\"/opt/*\"]\n", "holds a `*`"),
            ("[slurm]\ndirectories = [\"bin\"]\n", "is relative"),
            ("[slurm.limits]\njobs = -1\n", "out of range"),
            ("[slurm.limits]\nminutes = 4294967296\n", "out of range"),
        ] {
            let error = merge(&[layer(Layer::User, text)], &Additions::default()).unwrap_err();
            let said = format!("{error} {}", error.hint().unwrap_or_default());
            assert!(said.contains(expected), "{text}: {said}");
        }
    }

    #[test]
    fn demands_on_landlock_are_refused_unless_every_layer_lets_them_go() {
        let layers = |enforced: &str| {
            let open = "[landlock]\nsizes = \"degraded\"\n";
            let layers = [
                layer(Layer::User, open),
                layer(Layer::SiteEnforced, enforced),
            ];
            merge(&layers, &Additions::default()).unwrap().landlock
        };
        let free = layers("");
        assert_eq!(free.sizes.value, Demand::Degraded);
        assert_eq!(free.sizes.source.line, Some(2));
        assert_eq!(free.users.value, Demand::Refuse);
        let narrow = "[landlock]\nsizes = \"refuse\"\nusers = \"degraded\"\n";
        let narrowed = layers(narrow);
        assert_eq!(narrowed.sizes.value, Demand::Refuse);
        assert_eq!(narrowed.sizes.source.layer, Layer::SiteEnforced);
    }

    #[test]
    fn an_enforced_layer_only_narrows() {
        let policy = merge(
            &[
                layer(
                    Layer::SiteEnforced,
                    "[home]\nmode = \"read\"\n[jail]\nmax_processes = 100\nnested = true\n\
                     [files]\nread = [\"/usr\"]\nhide = [\"~/.ssh\"]\n",
                ),
                layer(
                    Layer::User,
                    "[home]\nmode = \"write\"\n[jail]\nmax_processes = 0\nnested = false\n\
                     [files]\nread = [\"/usr\", \"/opt\"]\n",
                ),
            ],
            &Additions {
                home: Some(Sourced::new(HomeMode::Write, Source::option("--home"))),
                ..Additions::default()
            },
        )
        .unwrap();
        assert_eq!(policy.home.mode.value, HomeMode::Read);
        assert_eq!(policy.jail.max_processes.value, 100);
        assert!(!policy.jail.nested.value);
        assert_eq!(policy.files.read.len(), 1);
        assert_eq!(policy.files.hide.len(), 1);
    }
}
