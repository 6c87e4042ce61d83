//! Layers as data, from which both their TOML and the oracle's answers are made.

use std::fmt::Write;

/// What one layer says. `None`: it does not have the key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Says {
    pub(crate) parents: Option<Vec<String>>,
    pub(crate) home_read: Option<Vec<String>>,
    pub(crate) home_write: Option<Vec<String>>,
    pub(crate) seed: Option<Vec<String>>,
    pub(crate) keep: Option<Vec<String>>,
    pub(crate) protect: Option<Vec<String>>,
    pub(crate) read: Option<Vec<String>>,
    pub(crate) write: Option<Vec<String>>,
    pub(crate) hide: Option<Vec<String>>,
    pub(crate) unhide: Option<Vec<String>>,
    pub(crate) pass: Option<Vec<String>>,
    pub(crate) env_hide: Option<Vec<String>>,
    pub(crate) hide_values: Option<Vec<String>>,
    pub(crate) set: Vec<(String, String)>,
    pub(crate) allow: Option<Vec<String>>,
    pub(crate) deny: Option<Vec<String>>,
    pub(crate) load: Option<Vec<String>>,
    pub(crate) words: Words,
}

/// Single values. Words are places in the lists below, narrowest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    pub(crate) git: Option<usize>,
    pub(crate) mode: Option<usize>,
    pub(crate) users: Option<usize>,
    pub(crate) network: Option<usize>,
    pub(crate) slurm: Option<usize>,
    pub(crate) scope: Option<usize>,
    pub(crate) queries: Option<usize>,
    pub(crate) allocation: Option<usize>,
    pub(crate) state: Option<usize>,
    pub(crate) nested: Option<bool>,
    pub(crate) keyctl: Option<bool>,
    pub(crate) settings: Option<usize>,
    /// In milliseconds.
    pub(crate) timeout: Option<u64>,
    /// Of sizes and users.
    pub(crate) demands: Option<[usize; 2]>,
    pub(crate) traced: Option<Traced>,
    /// Of the private `/tmp` and home, in MiB.
    pub(crate) sizes: Option<[u64; 2]>,
    /// In MiB; 0: `auto`.
    pub(crate) shm: Option<u64>,
    pub(crate) processes: Option<u64>,
    /// Queries a minute, jobs, nodes, GPUs, minutes.
    pub(crate) limits: Option<[u64; 5]>,
}

/// `[trace]`, every key of it but the socket's.
#[derive(Clone, Debug)]
pub(crate) struct Traced {
    pub(crate) mode: usize,
    pub(crate) events: Vec<&'static str>,
    /// Missing files, enforcing, auditing.
    pub(crate) switches: [bool; 3],
    pub(crate) every: u64,
    pub(crate) redact: Vec<&'static str>,
}

pub(crate) const SWITCHES: [&str; 3] = ["missing", "enforce", "audit"];
pub(crate) const TRACE: [&str; 3] = ["required", "on", "off"];
pub(crate) const EVENTS: [&str; 4] = ["exec", "open", "connect", "operation"];
pub(crate) const DEMANDS: [&str; 3] = ["refuse", "auto", "degraded"];
pub(crate) const GIT: [&str; 2] = ["protect", "writable"];
pub(crate) const MODES: [&str; 4] = ["tmpfs", "restricted", "read", "write"];
pub(crate) const USERS: [&str; 2] = ["filtered", "host"];
pub(crate) const NETWORK: [&str; 2] = ["isolated", "open"];
pub(crate) const SLURM: [&str; 2] = ["off", "auto"];
pub(crate) const SCOPE: [&str; 3] = ["session", "project", "user"];
pub(crate) const QUERIES: [&str; 3] = ["none", "counts", "names"];
pub(crate) const ALLOCATION: [&str; 3] = ["off", "steps", "control"];
pub(crate) const STATE: [&str; 2] = ["project", "shared"];
pub(crate) const LIMITS: [&str; 5] = ["queries_per_minute", "jobs", "nodes", "gpus", "minutes"];
/// Those of them that bound one job.
const BOUNDS: [&str; 3] = ["nodes", "gpus", "minutes"];

impl Says {
    /// As a policy file.
    pub(crate) fn toml(&self) -> String {
        let mut all = String::new();
        let words = &self.words;
        let mut section = |name: &str, entries: Vec<(&str, Option<String>)>| {
            writeln!(all, "[{name}]").unwrap();
            for (key, value) in entries {
                if let Some(value) = value {
                    writeln!(all, "{key} = {value}").unwrap();
                }
            }
        };
        let list = |entries: &Option<Vec<String>>| entries.as_ref().map(|all| format!("{all:?}"));
        let word = |words: &[&str], at: Option<usize>| at.map(|at| format!("{:?}", words[at]));
        let mib = |size: u64| format!("\"{size}M\"");
        section(
            "project",
            vec![
                ("parents", list(&self.parents)),
                ("git", word(&GIT, words.git)),
                ("settings", word(&GIT, words.settings)),
            ],
        );
        section(
            "home",
            vec![
                ("mode", word(&MODES, words.mode)),
                ("read", list(&self.home_read)),
                ("write", list(&self.home_write)),
                ("seed", list(&self.seed)),
                ("keep", list(&self.keep)),
                ("protect", list(&self.protect)),
            ],
        );
        section(
            "files",
            vec![
                ("read", list(&self.read)),
                ("write", list(&self.write)),
                ("hide", list(&self.hide)),
                ("unhide", list(&self.unhide)),
                ("timeout_ms", words.timeout.map(|most| most.to_string())),
            ],
        );
        section(
            "env",
            vec![
                ("pass", list(&self.pass)),
                ("hide", list(&self.env_hide)),
                ("hide_values", list(&self.hide_values)),
            ],
        );
        let set = self.set.iter();
        section(
            "env.set",
            set.map(|(name, value)| (name.as_str(), Some(format!("{value:?}"))))
                .collect(),
        );
        section(
            "devices",
            vec![("allow", list(&self.allow)), ("deny", list(&self.deny))],
        );
        section(
            "jail",
            vec![
                ("tmp_size", words.sizes.map(|[tmp, _]| mib(tmp))),
                ("home_size", words.sizes.map(|[_, home]| mib(home))),
                (
                    "shm_size",
                    words.shm.map(|size| match size {
                        0 => "\"auto\"".to_owned(),
                        size => mib(size),
                    }),
                ),
                (
                    "max_processes",
                    words.processes.map(|most| most.to_string()),
                ),
                ("users", word(&USERS, words.users)),
                ("nested", words.nested.map(|is| is.to_string())),
                ("keyctl", words.keyctl.map(|is| is.to_string())),
            ],
        );
        section(
            "landlock",
            vec![
                ("sizes", word(&DEMANDS, words.demands.map(|of| of[0]))),
                ("users", word(&DEMANDS, words.demands.map(|of| of[1]))),
            ],
        );
        if let Some(traced) = &words.traced {
            let mut keys = vec![
                ("mode", word(&TRACE, Some(traced.mode))),
                ("events", Some(format!("{:?}", traced.events))),
                ("every", Some(traced.every.to_string())),
                ("redact", Some(format!("{:?}", traced.redact))),
            ];
            let switches = SWITCHES.into_iter().zip(traced.switches);
            keys.extend(switches.map(|(key, on)| (key, Some(on.to_string()))));
            section("trace", keys);
        }
        section("network", vec![("mode", word(&NETWORK, words.network))]);
        section(
            "slurm",
            vec![
                ("mode", word(&SLURM, words.slurm)),
                ("scope", word(&SCOPE, words.scope)),
                ("queries", word(&QUERIES, words.queries)),
                ("allocation", word(&ALLOCATION, words.allocation)),
            ],
        );
        section("agents", vec![("state", word(&STATE, words.state))]);
        let limits = words.limits.iter().flatten().zip(LIMITS);
        let (bounds, limits): (Vec<_>, Vec<_>) = limits
            .map(|(most, key)| (key, Some(most.to_string())))
            .partition(|(key, _)| BOUNDS.contains(key));
        section("slurm.limits", limits);
        section("slurm.bounds", bounds);
        section("modules", vec![("load", list(&self.load))]);
        all
    }
}
