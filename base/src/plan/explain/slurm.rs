//! The keys of `[slurm]`, as the answer to a question about a command line names them.

use agent_sandbox_wire::explain::Rule;
use agent_sandbox_wire::order::{Allocation, Queries, Scope};

use super::change::{Request, Ways};
use crate::config::source::Sourced;
use crate::policy::SlurmMode;

/// What a limit of 0 means.
const NO_LIMIT: &str = "no limit";

/// Every key that decides about Slurm's commands, with its value, its place and how to change it.
pub fn rules(ways: &Ways<'_>) -> Vec<Rule> {
    let slurm = &ways.policy.slurm;
    let limits = &slurm.limits;
    let mode = slurm.mode.clone().map(|mode| match mode {
        SlurmMode::Off => "off",
        SlurmMode::Auto => "auto",
    });
    let scope = slurm.scope.clone().map(|scope| match scope {
        Scope::Session => "session",
        Scope::Project => "project",
        Scope::User => "user",
    });
    let queries = slurm.queries.clone().map(|queries| match queries {
        Queries::None => "none",
        Queries::Counts => "counts",
        Queries::Names => "names",
    });
    let allocation = slurm.allocation.clone().map(|allocation| match allocation {
        Allocation::Off => "off",
        Allocation::Steps => "steps",
        Allocation::Control => "control",
    });
    let mut all = vec![
        rule(ways, "slurm.mode", &mode),
        rule(ways, "slurm.scope", &scope),
        rule(ways, "slurm.queries", &queries),
        rule(ways, "slurm.allocation", &allocation),
    ];
    for (key, limit) in [
        (
            "slurm.limits.queries_per_minute",
            &limits.queries_per_minute,
        ),
        ("slurm.limits.jobs", &limits.jobs),
        ("slurm.limits.nodes", &limits.nodes),
        ("slurm.limits.gpus", &limits.gpus),
        ("slurm.limits.minutes", &limits.minutes),
    ] {
        let shown = limit.clone().map(|most| match most {
            0 => NO_LIMIT.to_owned(),
            most => most.to_string(),
        });
        all.push(rule(ways, key, &shown));
    }
    all
}

fn rule<T: std::fmt::Display>(ways: &Ways<'_>, key: &str, value: &Sourced<T>) -> Rule {
    let text = format!("{key} in {}, or --set {key}=VALUE for one run", ways.config);
    Rule {
        key: key.to_owned(),
        value: value.value.to_string(),
        source: value.source.to_string(),
        change: ways.unless_forbidden(text, &[Request::Key(key)]).text,
    }
}
