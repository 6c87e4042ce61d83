//! What one layer states, typed; and the table that says of each key how it narrows.

use std::path::PathBuf;
use std::time::Duration;

use agent_sandbox_wire::order::{Allocation, Queries, Scope};

use super::narrowing::{Fixed, Gives, Loads, Narrowed, Narrowing, Rule, Sets, Single, Takes};
use super::trace::{Events, Recorded, Sampling, TraceMode};
use super::typed::Reader;
use super::values::{Bytes, Limit};
use super::{
    AgentState, Demand, Git, HomeMode, Instructions, NetworkMode, PathSpec, Settings, ShmSize,
    SlurmMode, Users,
};
use crate::config::diagnostic::ConfigError;
use crate::config::load::RawLayer;
use crate::config::schema::{
    AgentsSection, DevicesSection, EnvSection, FilesSection, HomeSection, JailSection,
    LandlockSection, ModulesSection, NetworkSection, ProjectSection, Sections, SlurmLimitsSection,
    SlurmSection, TraceSection,
};
use crate::config::source::Sourced;

/// The longest that one path may be allowed to take to answer.
const LONGEST_TIMEOUT_MS: i64 = 60_000;
/// Of more opens than this, one is no record of what a program opens.
const MOST_EVERY: i64 = 1_000_000;

/// One line for each key: its name, its field, and its kind, which is its rule of narrowing.
macro_rules! keys {
    ($($key:literal $field:ident: $kind:ty,)*) => {
        /// What one layer states, or several that were merged. A field is a key of the policy.
        #[derive(Clone, Debug, Default)]
        #[allow(missing_docs, reason = "the keys are explained in profiles/default.toml")]
        pub struct Stated {
            $(pub $field: $kind,)*
        }

        /// Every key with its rule.
        pub const RULES: &[(&str, Rule)] = &[$(($key, <$kind as Narrowing>::RULE),)*];

        impl Stated {
            /// Takes over what a later layer states.
            pub(super) fn prefer(&mut self, later: Self) {
                $(self.$field.prefer(later.$field);)*
            }

            /// Of an enforced layer the lists that bound, by their keys.
            pub fn bounds(&self) -> Vec<(&'static str, Sourced<String>)> {
                let all = [$(($key, self.$field.bounds()),)*];
                let named = |(key, list): (_, Option<_>)| Some((key, list?));
                all.into_iter().filter_map(named).collect()
            }

            /// Allows no more than an enforced layer does.
            pub(super) fn narrow(&mut self, enforced: &Self, narrowed: &mut Vec<Narrowed>) {
                $(self.$field.narrow($key, &enforced.$field, narrowed);)*
            }
        }
    };
}

keys! {
    "project.parents" parents: Gives<PathSpec>,
    "project.git" git: Single<Git>,
    "project.settings" settings: Single<Settings>,
    "home.mode" home_mode: Single<HomeMode>,
    "home.read" home_read: Gives<PathSpec>,
    "home.write" home_write: Gives<PathSpec>,
    "home.seed" seed: Gives<PathSpec>,
    "home.keep" keep: Gives<PathSpec>,
    "home.protect" protect: Takes<PathSpec>,
    "files.read" read: Gives<PathSpec>,
    "files.write" write: Gives<PathSpec>,
    "files.hide" hide: Takes<PathSpec>,
    "files.unhide" unhide: Gives<PathSpec>,
    "files.timeout_ms" timeout: Single<Duration>,
    "env.pass" pass: Gives<String>,
    "env.hide" env_hide: Takes<String>,
    "env.hide_values" hide_values: Takes<String>,
    "env.set" set: Sets,
    "devices.allow" allow: Gives<PathSpec>,
    "devices.deny" deny: Takes<PathSpec>,
    "jail.tmp_size" tmp_size: Single<Bytes>,
    "jail.shm_size" shm_size: Single<ShmSize>,
    "jail.home_size" home_size: Single<Bytes>,
    "jail.max_processes" max_processes: Single<Limit>,
    "jail.users" users: Single<Users>,
    "jail.nested" nested: Single<bool>,
    "jail.keyctl" keyctl: Single<bool>,
    "landlock.sizes" landlock_sizes: Single<Demand>,
    "landlock.users" landlock_users: Single<Demand>,
    "network.mode" network: Single<NetworkMode>,
    "slurm.mode" slurm: Single<SlurmMode>,
    "slurm.scope" scope: Single<Scope>,
    "slurm.queries" queries: Single<Queries>,
    "slurm.allocation" allocation: Single<Allocation>,
    "slurm.directories" directories: Gives<PathSpec>,
    "slurm.limits.queries_per_minute" queries_per_minute: Single<Limit>,
    "slurm.limits.jobs" jobs: Single<Limit>,
    "slurm.limits.nodes" nodes: Single<Limit>,
    "slurm.limits.gpus" gpus: Single<Limit>,
    "slurm.limits.minutes" minutes: Single<Limit>,
    "trace.mode" trace: Single<TraceMode>,
    "trace.events" events: Single<Events>,
    "trace.missing" missing: Single<Recorded>,
    "trace.every" every: Single<Sampling>,
    "trace.redact" redact: Takes<String>,
    "trace.enforce" enforce: Single<Recorded>,
    "trace.audit" audit: Single<Recorded>,
    "trace.socket" socket: Fixed<PathBuf>,
    "modules.load" modules: Loads,
    "agents.state" agent_state: Single<AgentState>,
    "agents.instructions" instructions: Single<Instructions>,
}

impl Stated {
    /// Types one layer. Each section is taken apart by name, so that a key without a rule does not
    /// compile.
    ///
    /// # Errors
    /// A value that does not mean anything, with its file, line and the nearest valid word.
    pub fn read(layer: &RawLayer) -> Result<Self, ConfigError> {
        let read = Reader::new(layer);
        let Sections {
            project,
            home,
            files,
            env,
            devices,
            jail,
            landlock,
            network,
            slurm,
            trace,
            modules,
            agents,
        } = &layer.sections;
        let mut all = Self::default();
        if let Some(ProjectSection {
            parents,
            git,
            settings,
        }) = project
        {
            all.parents = read.grants(parents)?;
            all.git = read.word(git)?;
            all.settings = read.word(settings)?;
        }
        if let Some(section) = home {
            all.home(&read, section)?;
        }
        if let Some(section) = files {
            all.files(&read, section)?;
        }
        if let Some(section) = env {
            all.env(&read, section)?;
        }
        if let Some(DevicesSection { allow, deny }) = devices {
            all.allow = read.device_grants(allow)?;
            read.devices(all.deny.list(), deny)?;
        }
        if let Some(section) = jail {
            all.jail(&read, section)?;
        }
        if let Some(LandlockSection { sizes, users }) = landlock {
            all.landlock_sizes = read.word(sizes)?;
            all.landlock_users = read.word(users)?;
        }
        if let Some(NetworkSection { mode }) = network {
            all.network = read.word(mode)?;
        }
        if let Some(section) = slurm {
            all.slurm(&read, section)?;
        }
        if let Some(section) = trace {
            all.trace(&read, section)?;
        }
        if let Some(ModulesSection { load }) = modules {
            all.modules = Loads::new(read.modules(load)?);
        }
        if let Some(AgentsSection {
            state,
            instructions,
        }) = agents
        {
            all.agent_state = read.word(state)?;
            all.instructions = read.word(instructions)?;
        }
        Ok(all)
    }

    fn home(&mut self, read: &Reader<'_>, section: &HomeSection) -> Result<(), ConfigError> {
        let HomeSection {
            mode,
            read: readable,
            write,
            seed,
            keep,
            protect,
        } = section;
        self.home_mode = read.word(mode)?;
        self.home_read = read.home_grants(readable)?;
        self.home_write = read.home_grants(write)?;
        self.seed = read.home_grants(seed)?;
        self.keep = read.kept_places(keep)?;
        read.plain_home_paths(self.protect.list(), protect)
    }

    fn files(&mut self, read: &Reader<'_>, section: &FilesSection) -> Result<(), ConfigError> {
        let FilesSection {
            read: readable,
            write,
            hide,
            unhide,
            timeout_ms,
        } = section;
        self.read = read.grants(readable)?;
        self.write = read.grants(write)?;
        read.paths(self.hide.list(), hide)?;
        self.unhide = read.grants(unhide)?;
        if let Some(written) = timeout_ms {
            let value = read.number(written, 1, LONGEST_TIMEOUT_MS, "milliseconds")?;
            self.timeout.set(value.map(Duration::from_millis));
        }
        Ok(())
    }

    fn env(&mut self, read: &Reader<'_>, section: &EnvSection) -> Result<(), ConfigError> {
        let EnvSection {
            pass,
            hide,
            hide_values,
            set,
        } = section;
        self.pass = read.granted_names(pass)?;
        read.patterns(self.env_hide.list(), hide)?;
        read.patterns(self.hide_values.list(), hide_values)?;
        for (name, value) in set.iter().flatten() {
            let name = read.name(name)?;
            let pair = (name.value, read.text(value)?.value);
            self.set.set(Sourced::new(pair, name.source));
        }
        Ok(())
    }

    fn jail(&mut self, read: &Reader<'_>, section: &JailSection) -> Result<(), ConfigError> {
        let JailSection {
            tmp_size,
            shm_size,
            home_size,
            max_processes,
            users,
            nested,
            keyctl,
        } = section;
        for (slot, written) in [
            (&mut self.tmp_size, tmp_size),
            (&mut self.home_size, home_size),
        ] {
            if let Some(written) = written {
                slot.set(read.size(written)?.map(Bytes));
            }
        }
        if let Some(written) = shm_size {
            self.shm_size.set(read.size_or_auto(written)?);
        }
        if let Some(written) = max_processes {
            let most = read.number(written, 0, i64::from(u32::MAX), "processes")?;
            self.max_processes.set(most.map(Limit::new));
        }
        self.users = read.word(users)?;
        self.nested = read.switch(nested);
        self.keyctl = read.switch(keyctl);
        Ok(())
    }

    fn slurm(&mut self, read: &Reader<'_>, section: &SlurmSection) -> Result<(), ConfigError> {
        let SlurmSection {
            mode,
            scope,
            queries,
            allocation,
            directories,
            limits,
        } = section;
        self.slurm = read.word(mode)?;
        self.scope = read.word(scope)?;
        self.queries = read.word(queries)?;
        self.allocation = read.word(allocation)?;
        self.directories = read.plain_grants(directories)?;
        let Some(SlurmLimitsSection {
            queries_per_minute,
            jobs,
            nodes,
            gpus,
            minutes,
        }) = limits
        else {
            return Ok(());
        };
        for (slot, written, unit) in [
            (&mut self.queries_per_minute, queries_per_minute, "queries"),
            (&mut self.jobs, jobs, "jobs"),
            (&mut self.nodes, nodes, "nodes"),
            (&mut self.gpus, gpus, "GPUs"),
            (&mut self.minutes, minutes, "minutes"),
        ] {
            if let Some(written) = written {
                let most = read.number(written, 0, i64::from(u32::MAX), unit)?;
                slot.set(most.map(Limit::new));
            }
        }
        Ok(())
    }

    fn trace(&mut self, read: &Reader<'_>, section: &TraceSection) -> Result<(), ConfigError> {
        let TraceSection {
            mode,
            events,
            missing,
            every,
            redact,
            enforce,
            audit,
            socket,
        } = section;
        self.trace = read.word(mode)?;
        self.events = read.events(events)?;
        self.missing = read.recorded(missing);
        if let Some(written) = every {
            let value = read.number(written, 1, MOST_EVERY, "opens")?;
            self.every.set(value.map(Sampling));
        }
        read.redactions(self.redact.list(), redact)?;
        self.enforce = read.recorded(enforce);
        self.audit = read.recorded(audit);
        self.socket = read.tracers_socket(socket)?;
        Ok(())
    }
}
