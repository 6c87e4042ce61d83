//! The keys of the policy, one row each: what files may hold ([`super::schema`]), what a layer states and how
//! an enforced one narrows it (`policy::stated`), the merged policy with its defaults (`policy::merged`), and
//! what the reference and the completions say (`policy::stated::KEYS`) are made of these rows.
//!
//! A row is
//!
//! ```text
//! /// The key in one line.
//! NAME: FORM => KIND, READER(ARGUMENTS) "TYPE" = DEFAULT;
//! ```
//!
//! - FORM is how TOML writes it, a type of `config::schema`.
//! - KIND is how layers join and how an enforced value bounds it, a type of `policy::narrowing`: `Single` (the
//!   later layer's value; the narrower one), `Fixed` (the enforced one), `Takes` (a list that takes away: all
//!   entries), `Gives` (a list that gives: all entries, within the enforced list), `Loads`, `Sets`.
//! - READER is the function of `policy::typed` that makes the kind of the form, and refuses what means nothing.
//! - TYPE is the form in words, for the reference; words that the kind knows by itself follow it.
//! - DEFAULT is what holds if no layer says anything. A list without one is empty. The built-in policy,
//!   `profiles/default.toml`, says every key, and of every value the same (tested).
//!
//! Rows are tokens: each word means what it means where a table is made of them, so that this file uses no
//! other. A section within a section stands in brackets at the end. New words, and numbers and sizes of a new
//! meaning, are types of `policy::values`.

/// Hands the rows to a macro that makes something of them.
macro_rules! keys {
    ($then:ident) => {
        $then! {
            /// `[project]`: which directories may be projects.
            project: Project {
                /// Directories of which a project is one, or lies in one; empty: anywhere.
                parents: Strings => Gives<PathSpec>, paths() "list of paths";
                /// What happens to git's hooks and configuration.
                git: Text => Single<Git>, word() = Git::Protect;
                /// What happens to settings in it that programs outside obey.
                settings: Text => Single<Settings>, word() = Settings::Protect;
            }
            /// `[home]`: what appears of the home directory.
            home: Home {
                /// How much of the home directory appears.
                mode: Text => Single<HomeMode>, word() = HomeMode::Tmpfs;
                /// Entries that are readable.
                read: Strings => Gives<PathSpec>, home_paths() "list of paths in home";
                /// Entries that are writable.
                write: Strings => Gives<PathSpec>, home_paths() "list of paths in home";
                /// Entries of which the jail gets a private writable copy.
                seed: Strings => Gives<PathSpec>, home_paths() "list of paths in home";
                /// Entries that are the jail's own and stay for later sessions of the project.
                keep: Strings => Gives<PathSpec>, kept_places() "list of paths in home";
                /// Entries that are never writable.
                protect: Strings => Takes<PathSpec>, plain_home_paths() "list of paths in home";
            }
            /// `[files]`: what appears outside the home directory.
            files: Files {
                /// Readable paths.
                read: Strings => Gives<PathSpec>, paths() "list of paths";
                /// Writable paths.
                write: Strings => Gives<PathSpec>, paths() "list of paths";
                /// Hidden paths.
                hide: Strings => Takes<PathSpec>, hidden_paths() "list of paths";
                /// Directories that cannot be listed, nor can those above them; what is below is there by its name.
                no_walk: Strings => Takes<PathSpec>, plain_paths() "list of paths";
                /// Exact exceptions from `hide`.
                unhide: Strings => Gives<PathSpec>, unhidden_paths() "list of paths";
                /// How long one path may take to answer, in milliseconds.
                timeout_ms: Number => Single<Duration>,
                    number(1, LONGEST_TIMEOUT_MS, "milliseconds") "number" = Duration::from_secs(2);
            }
            /// `[env]`: which variables pass.
            env: Env {
                /// Patterns of names that pass although `hide` matches them.
                pass: Strings => Gives<String>, patterns() "list of patterns";
                /// Patterns of names that never pass.
                hide: Strings => Takes<String>, patterns() "list of patterns";
                /// Patterns of values that never pass, whatever their name.
                hide_values: Strings => Takes<String>, patterns() "list of patterns";
                /// Variables that are set inside.
                set: Pairs => Sets, variables() "table of strings";
            }
            /// `[devices]`: which device nodes appear.
            devices: Devices {
                /// Device nodes that appear where the host has them.
                allow: Strings => Gives<PathSpec>, devices() "list of paths in `/dev`, with patterns";
                /// Device nodes that never appear; wins over `allow`.
                deny: Strings => Takes<PathSpec>, devices() "list of paths in `/dev`, with patterns";
            }
            /// `[jail]`: its size, its users, and what works inside.
            jail: Jail {
                /// Bytes that the private `/tmp` may hold; `/var/tmp` has as much again.
                tmp_size: Text => Single<Bytes>, size() "size" = Bytes(4 << 30);
                /// What the private `/dev/shm` may hold.
                shm_size: Text => Single<ShmSize>, size_or_auto() "size, or" = ShmSize::Auto;
                /// Bytes that the private home may hold.
                home_size: Text => Single<Bytes>, size() "size" = Bytes(1 << 30);
                /// The most processes and threads; 0: no limit.
                max_processes: Number => Single<Limit>, number(0, MOST, "processes") "number" = Limit::new(4096);
                /// Who appears in the user database.
                users: Text => Single<Users>, word() = Users::Filtered;
                /// Whether user namespaces may be created inside.
                nested: Switch => Single<bool>, switch() "`true` or `false`" = false;
                /// Whether the kernel's key rings may be used inside.
                keyctl: Switch => Single<bool>, switch() "`true` or `false`" = false;
            }
            /// `[limits]`: what a session may take of its node; processes are counted by `jail.max_processes`.
            limits: SessionLimits {
                /// Memory of all processes of a session together.
                memory: Text => Single<Memory>, size_or_none() "size, or" = Memory::NONE;
                /// Processors' time that a session gets, in whole processors; 0: no limit.
                cpus: Number => Single<Limit>, number(0, MOST_CPUS, "processors") "number" = Limit::new(0);
                /// The share of disks' time, where 100 is usual; 0: as it comes.
                io_weight: Number => Single<Limit>, number(0, MOST_WEIGHT, "shares") "number" = Limit::new(0);
                /// Sessions of the user that run on one node; 0: no limit.
                sessions: Number => Single<Limit>, number(0, MOST, "sessions") "number" = Limit::new(0);
                /// Minutes without anything done after which a session ends; 0: never.
                idle_minutes: Number => Single<Limit>, number(0, MOST, "minutes") "number" = Limit::new(0);
                /// Whether a session starts where it can have no cgroup that limits it.
                cgroup: Text => Single<Requirement>, word() = Requirement::Auto;
            }
            /// `[landlock]`: whether a jail starts without what Landlock cannot give (`missing` in `landlock/`). What the site
            /// enforces is required whatever stands here (`required` there).
            landlock: Landlock {
                /// The limits of `[jail] tmp_size`, `home_size` and `shm_size`.
                sizes: Text => Single<Requirement>, word() = Requirement::Auto;
                /// `[jail] users = "filtered"`.
                users: Text => Single<Requirement>, word() = Requirement::Auto;
            }
            /// `[network]`: what the jail reaches.
            network: Network {
                /// Which network the jail sees.
                mode: Text => Single<NetworkMode>, word() = NetworkMode::Open;
                /// Hosts that a filtered network leads to.
                allow: Strings => Hosts, hosts(true) "list of hosts and named sets";
                /// Hosts that a filtered network never leads to; wins over `allow`.
                deny: Strings => Takes<HostEntry>, hosts(true) "list of hosts and named sets";
                /// Hosts that may have an address which is not public.
                private: Strings => Hosts, hosts(false) "list of hosts and named sets";
                /// Ports of servers inside that the user reaches from outside.
                forward: Numbers => Gives<u16>, ports() "list of ports";
                /// Which network jobs and steps of a session see.
                jobs: Text => Single<JobsNetwork>, word() = JobsNetwork::Same;
                /// Whether a filtered network exchanges credentials.
                credentials: Text => Single<Exchange>, word() = Exchange::On;
            }
            /// `[ssh]`: logins by the user's ssh-agent.
            ssh: Ssh {
                /// Hosts to which the user's ssh-agent logs in.
                hosts: Strings => SshHosts, ssh_hosts() "list of hosts, with user and port if need be";
                /// Keys of the user's ssh-agent that are used for them.
                keys: Whole => Single<SshKeys>,
                    ssh_keys() "list of fingerprints and files `….pub`, or `[\"*\"]`" = SshKeys::All;
            }
            /// `[slurm]`: what of Slurm can be used.
            slurm: Slurm {
                /// Whether Slurm can be used from inside.
                mode: Text => Single<SlurmMode>, word() = SlurmMode::Auto;
                /// Which jobs a session sees and touches.
                scope: Text => Single<Scope>, word() = Scope::Project;
                /// What queries show of other jobs.
                queries: Text => Single<Queries>, word() = Queries::Counts;
                /// Seconds for which an answer of Slurm's is good for all of the user's sessions on a node; 0: each asks.
                query_cache_seconds: Number => Single<AtLeast>, number(0, MOST_CACHED, "seconds") "number" = AtLeast(2);
                /// What a session may do with the allocation in which it is started.
                allocation: Text => Single<Allocation>, word() = Allocation::Steps;
                /// Directories in which Slurm's commands are looked for, outside.
                directories: Strings => Gives<PathSpec>, plain_paths() "list of paths";
                [
                    /// `[slurm.bounds]`: what one job may ask for; 0 stands for "no limit of ours".
                    bounds: SlurmBounds {
                        /// Partitions that a job may ask for; it gets the first if it names none.
                        partitions: Whole => Names, names() "list of names, with patterns";
                        /// Accounts that it may ask for; it gets the first if it names none.
                        accounts: Whole => Names, names() "list of names, with patterns";
                        /// QOS that it may ask for; it gets the first if it names none.
                        qos: Whole => Names, names() "list of names, with patterns";
                        /// Reservations that it may ask for.
                        reservations: Whole => Names, names() "list of names, with patterns";
                        /// Features of nodes that it may ask for.
                        constraints: Whole => Names, names() "list of names, with patterns";
                        /// Licenses that it may ask for.
                        licenses: Whole => Names, names() "list of names, with patterns";
                        /// Options of sbatch, srun and salloc that may be used, by their long names.
                        options: Whole => Names, names() "list of names, with patterns";
                        /// Options that may not be used, by their long names; wins over `options`.
                        deny_options: Strings => Takes<String>, patterns() "list of patterns";
                        /// Nodes of one job.
                        nodes: Number => Single<Limit>, number(0, MOST, "nodes") "number" = Limit::new(0);
                        /// GPUs of one job.
                        gpus: Number => Single<Limit>, number(0, MOST, "GPUs") "number" = Limit::new(0);
                        /// CPUs of one job.
                        cpus: Number => Single<Limit>, number(0, MOST, "CPUs") "number" = Limit::new(0);
                        /// Memory of one job, on all its nodes together.
                        memory: Text => Single<JobMemory>, memory() "size, or" = JobMemory::Unlimited;
                        /// Wall time of one job, in minutes.
                        minutes: Number => Single<Limit>, number(0, MOST, "minutes") "number" = Limit::new(0);
                        /// Tasks of one array.
                        array: Number => Single<Limit>, number(0, MOST, "tasks") "number" = Limit::new(0);
                    }
                ]
                [
                    /// `[slurm.limits]`: how much there may be together; 0 stands for "no limit of ours".
                    limits: SlurmLimits {
                        /// Queries a minute of a session; more wait.
                        queries_per_minute: Number => Single<Limit>,
                            number(0, MOST, "queries") "number" = Limit::new(240);
                        /// Jobs of a session that are pending or running at the same time.
                        jobs: Number => Single<Limit>, number(0, MOST, "jobs") "number" = Limit::new(0);
                        /// Submissions a minute of all the user's sessions; more wait.
                        submissions_per_minute: Number => Single<Limit>,
                            number(0, MOST, "submissions") "number" = Limit::new(60);
                        /// Submissions in 24 hours of all the user's sessions.
                        submissions_per_day: Number => Single<Limit>,
                            number(0, MOST, "submissions") "number" = Limit::new(2000);
                    }
                ]
                [
                    /// `[slurm.budget]`: how many hours jobs may take together; 0 stands for "no limit of ours".
                    budget: SlurmBudget {
                        /// Days whose hours count.
                        days: Number => Single<AtLeast>, number(1, MOST_DAYS, "days") "number" = AtLeast(30);
                        /// CPU-hours of jobs of all the user's sessions in `days`.
                        cpu_hours: Number => Single<Limit>, number(0, MOST, "hours") "number" = Limit::new(0);
                        /// GPU-hours of jobs of all the user's sessions in `days`.
                        gpu_hours: Number => Single<Limit>, number(0, MOST, "hours") "number" = Limit::new(0);
                        /// Node-hours of jobs of all the user's sessions in `days`.
                        node_hours: Number => Single<Limit>, number(0, MOST, "hours") "number" = Limit::new(0);
                        /// CPU-hours of jobs of the project's sessions in `days`.
                        project_cpu_hours: Number => Single<Limit>, number(0, MOST, "hours") "number" = Limit::new(0);
                        /// GPU-hours of jobs of the project's sessions in `days`.
                        project_gpu_hours: Number => Single<Limit>, number(0, MOST, "hours") "number" = Limit::new(0);
                        /// Node-hours of jobs of the project's sessions in `days`.
                        project_node_hours: Number => Single<Limit>, number(0, MOST, "hours") "number" = Limit::new(0);
                        /// CPU-hours of jobs of a session in `days`.
                        session_cpu_hours: Number => Single<Limit>, number(0, MOST, "hours") "number" = Limit::new(0);
                        /// GPU-hours of jobs of a session in `days`.
                        session_gpu_hours: Number => Single<Limit>, number(0, MOST, "hours") "number" = Limit::new(0);
                        /// Node-hours of jobs of a session in `days`.
                        session_node_hours: Number => Single<Limit>, number(0, MOST, "hours") "number" = Limit::new(0);
                    }
                ]
                [
                    /// `[slurm.confirm]`: above which a job waits for the user's approval; 0: none does.
                    confirm: SlurmConfirm {
                        /// CPU-hours of one job that need no approval.
                        cpu_hours: Number => Single<Limit>, number(0, MOST, "hours") "number" = Limit::new(0);
                        /// GPU-hours of one job that need no approval.
                        gpu_hours: Number => Single<Limit>, number(0, MOST, "hours") "number" = Limit::new(0);
                        /// Node-hours of one job that need no approval.
                        node_hours: Number => Single<Limit>, number(0, MOST, "hours") "number" = Limit::new(0);
                        /// Wall time of one job, in minutes, that needs no approval.
                        minutes: Number => Single<Limit>, number(0, MOST, "minutes") "number" = Limit::new(0);
                        /// Minutes for which a job waits for it; 0: as long as who submits it.
                        wait_minutes: Number => Single<Limit>, number(0, MOST, "minutes") "number" = Limit::new(60);
                    }
                ]
            }
            /// `[trace]`: what a tracer records of the jail, if one runs.
            trace: Trace {
                /// Whether the jail is traced.
                mode: Text => Single<TraceMode>, word() = TraceMode::On;
                /// The kinds of events that are recorded.
                events: Whole => Single<Events>, events() "list of" = Events::usual();
                /// Whether opens of what does not exist are recorded.
                missing: Switch => Single<Recorded>, switch() "`true` or `false`" = Recorded(false);
                /// Of the opens that are allowed, every Nth is recorded; at least 1.
                every: Number => Single<Sampling>, number(1, MOST_EVERY, "opens") "number" = Sampling(1);
                /// Patterns of arguments that are secrets.
                redact: Strings => Takes<String>, redactions() "list of patterns";
                /// Whether the tracer denies what the plan hides, besides.
                enforce: Switch => Single<Recorded>, switch() "`true` or `false`" = Recorded(false);
                /// Whether it records what it would deny.
                audit: Switch => Single<Recorded>, switch() "`true` or `false`" = Recorded(false);
                /// Where the tracer listens; the site's to say.
                socket: Text => Fixed<PathBuf>, tracers_socket() "path" = SOCKET.into();
            }
            /// `[modules]`: what is loaded before the launch.
            modules: Modules {
                /// Lmod modules, in this order.
                load: Strings => Loads, modules() "list of strings";
            }
            /// `[agents]`: which there may be, and what they have of their own.
            agents: Agents {
                /// Profiles of agents that may be used, by their names.
                allowed: Whole => Names, names() "list of names, with patterns";
                /// Whose an agent's state is.
                state: Text => Single<AgentState>, word() = AgentState::Project;
                /// Whether agents are told of the jail.
                instructions: Text => Single<Instructions>, word() = Instructions::Given;
                /// What the site tells each agent, at the head of its instructions.
                preamble: Text => Fixed<String>, preamble() "text" = String::new();
            }
        }
    };
}

pub(crate) use keys;
