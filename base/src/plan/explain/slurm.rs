//! The keys of `[slurm]`, as the answer to a question about a command line names them.

use agent_sandbox_wire::bounds::{BoundSet, DENIED, SizeKey};
use agent_sandbox_wire::explain::Rule;
use agent_sandbox_wire::order::{Allocation, Queries, Scope};

use super::change::{Request, Ways};
use crate::config::source::Sourced;
use crate::policy::names::NameList;
use crate::policy::values::{Bytes, Stricter};
use crate::policy::{Policy, SlurmMode};

/// What a limit of 0 means.
const NO_LIMIT: &str = "no limit";

/// Every key that decides about Slurm's commands, with its value, its place and how to change it.
pub fn rules(ways: &Ways<'_>) -> Vec<Rule> {
    let slurm = &ways.policy.slurm;
    let (limits, bounds) = (&slurm.limits, &slurm.bounds);
    let (budget, confirm) = (&slurm.budget, &slurm.confirm);
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
        (
            "slurm.limits.submissions_per_minute",
            &limits.submissions_per_minute,
        ),
        (
            "slurm.limits.submissions_per_day",
            &limits.submissions_per_day,
        ),
        ("slurm.budget.cpu_hours", &budget.cpu_hours),
        ("slurm.budget.gpu_hours", &budget.gpu_hours),
        ("slurm.budget.node_hours", &budget.node_hours),
        ("slurm.budget.project_cpu_hours", &budget.project_cpu_hours),
        ("slurm.budget.project_gpu_hours", &budget.project_gpu_hours),
        (
            "slurm.budget.project_node_hours",
            &budget.project_node_hours,
        ),
        ("slurm.budget.session_cpu_hours", &budget.session_cpu_hours),
        ("slurm.budget.session_gpu_hours", &budget.session_gpu_hours),
        (
            "slurm.budget.session_node_hours",
            &budget.session_node_hours,
        ),
        ("slurm.confirm.cpu_hours", &confirm.cpu_hours),
        ("slurm.confirm.gpu_hours", &confirm.gpu_hours),
        ("slurm.confirm.node_hours", &confirm.node_hours),
        ("slurm.confirm.minutes", &confirm.minutes),
        ("slurm.bounds.nodes", &bounds.nodes),
        ("slurm.bounds.gpus", &bounds.gpus),
        ("slurm.bounds.cpus", &bounds.cpus),
        ("slurm.bounds.minutes", &bounds.minutes),
        ("slurm.bounds.array", &bounds.array),
    ] {
        let shown = limit.clone().map(|most| match most {
            0 => NO_LIMIT.to_owned(),
            most => most.to_string(),
        });
        all.push(rule(ways, key, &shown));
    }
    let memory = bounds.memory.clone().map(|memory| memory.shown());
    all.push(rule(ways, "slurm.bounds.memory", &memory));
    for (key, lists) in [
        ("slurm.bounds.partitions", &bounds.partitions),
        ("slurm.bounds.accounts", &bounds.accounts),
        ("slurm.bounds.qos", &bounds.qos),
        ("slurm.bounds.reservations", &bounds.reservations),
        ("slurm.bounds.constraints", &bounds.constraints),
        ("slurm.bounds.licenses", &bounds.licenses),
        ("slurm.bounds.options", &bounds.options),
    ] {
        // One that allows every name bounds nothing.
        let bounding = lists.iter().filter(|list| !list.value.is_any());
        all.extend(bounding.map(|list| rule(ways, key, list)));
    }
    let denied = bounds.deny_options.iter();
    all.extend(denied.map(|option| rule(ways, DENIED, option)));
    all.extend(of_some_jobs(ways.policy));
    all
}

/// What enforced layers say of jobs in some partitions and accounts alone.
pub fn of_some_jobs(policy: &Policy) -> Vec<Rule> {
    let all = policy.bounds.jobs.iter();
    all.flat_map(|one| of_jobs(&one.set())).collect()
}

fn of_jobs(set: &BoundSet) -> Vec<Rule> {
    let rule = |key: &str, value: String, source: &str| Rule {
        key: key.to_owned(),
        value: format!("{value} (jobs: {})", set.when),
        source: source.to_owned(),
        change: format!("the site forbids it: {key} ({source}); ask your administrators"),
    };
    let names = set.names.iter().map(|list| {
        let allowed = NameList::new(list.allowed.clone()).to_string();
        rule(list.key.name(), allowed, &list.source)
    });
    let denied = set.denied.iter();
    let denied = denied.map(|(option, source)| rule(DENIED, option.clone(), source));
    let sizes = set.sizes.iter().map(|size| {
        let most = match size.key {
            SizeKey::Memory => Bytes(size.most).shown(),
            _ => size.most.to_string(),
        };
        rule(size.key.name(), most, &size.source)
    });
    names.chain(denied).chain(sizes).collect()
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
