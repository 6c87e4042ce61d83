//! The table of checks: each makes one line of the facts, or none where it has nothing to say. Pure.

mod directories;
mod jail;
mod node;
mod policy;
mod slurm;
mod tools;
mod tracer;

use super::facts::{Answer, Facts, Trial, Trouble};
use super::line::{Examination, Finding, Group, Line, Parts, Status};
use crate::cli::Backend;

/// One check.
struct Check {
    group: Group,
    name: &'static str,
    judge: fn(&Facts) -> Option<Finding>,
}

const fn check(group: Group, name: &'static str, judge: fn(&Facts) -> Option<Finding>) -> Check {
    Check { group, name, judge }
}

/// The check of the allocation around who asks: of the one who asks, and not of the node.
pub(super) const ALLOCATION: &str = "slurm-allocation";

/// All checks, in the order in which they are shown.
const CHECKS: &[Check] = &[
    check(Group::Node, "user", node::user),
    check(Group::Node, "kernel", node::kernel),
    check(Group::Node, "user-namespaces", node::user_namespaces),
    check(Group::Node, "landlock", node::landlock),
    check(Group::Node, "seccomp", node::seccomp),
    check(Group::Node, "yama", node::yama),
    check(Group::Node, "cgroups", node::cgroups),
    check(Group::Jail, "bubblewrap", jail::bubblewrap),
    check(Group::Jail, "jail-bwrap", jail::bwrap),
    check(Group::Jail, "jail-landlock", jail::landlock),
    check(Group::Jail, "session", jail::session),
    check(Group::Jail, "filtered-network", jail::filtered_network),
    check(Group::Files, "home", directories::home),
    check(Group::Files, "state", directories::state),
    check(Group::Files, "node-local", directories::node_local),
    check(Group::Files, "project", directories::project),
    check(Group::Policy, "policy", policy::policy),
    check(Group::Policy, "site-defaults", policy::defaults),
    check(Group::Policy, "site-enforced", policy::enforced),
    check(Group::Tools, "tmux", tools::tmux),
    check(Group::Tools, "lmod", tools::lmod),
    check(Group::Slurm, "slurm-commands", slurm::commands),
    check(Group::Slurm, "slurm-programs", slurm::programs),
    check(Group::Slurm, "slurm-controller", slurm::controller),
    check(Group::Slurm, "slurm-credentials", slurm::credentials),
    check(Group::Slurm, ALLOCATION, slurm::allocation),
    check(Group::Slurm, "chaperon", slurm::chaperon),
    check(Group::Trace, "tracer", tracer::tracer),
    check(Group::Trace, "tracer-blind", tracer::blind),
    check(Group::Trace, "tracer-layer", tracer::layer),
    check(Group::Trace, "tracer-losses", tracer::losses),
];

/// What people ask about and this version does not have. It is said, and is neither ok nor broken.
const ABSENT: [&str; 1] = [
    "network: network.mode = \"filtered\" needs bubblewrap, or Landlock's ABI 4 (Linux 6.7), here and on compute nodes",
];

/// The names of all checks.
pub fn names() -> impl Iterator<Item = &'static str> {
    CHECKS.iter().map(|check| check.name)
}

/// Makes lines of the facts. `node` is the node's name.
pub fn examine(facts: &Facts, node: String) -> Examination {
    let checks: Vec<Line> = CHECKS
        .iter()
        .filter_map(|check| {
            let finding = (check.judge)(facts)?;
            Some(Line {
                group: check.group,
                name: check.name.to_owned(),
                status: finding.status,
                found: finding.found,
                fix: finding.fix,
                milliseconds: finding.took,
            })
        })
        .collect();
    let (starts, backend, why) = verdict(facts);
    Examination {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node,
        executable: facts.user.executable.display().to_string(),
        digest: facts.policy.digest.clone(),
        starts,
        backend: backend.map(str::to_owned),
        why,
        checks,
        absent: ABSENT.map(str::to_owned).to_vec(),
        parts: parts(facts),
    }
}

fn parts(facts: &Facts) -> Parts {
    // As `uname -srm` says it, and `bwrap --version`.
    let second = |text: &str| text.split_whitespace().nth(1).map(str::to_owned);
    let kernel = &facts.kernel;
    Parts {
        kernel: second(&kernel.release).unwrap_or_default(),
        bubblewrap: facts.jail.bubblewrap.version.as_deref().and_then(second),
        landlock: kernel.mediation.abi,
        user_namespaces: kernel.namespaces.user_namespace.is_none(),
        tracer: facts
            .tracer
            .as_ref()
            .and_then(|tracer| match &tracer.answer {
                Answer::Unwanted => None,
                Answer::Nothing => Some("none".to_owned()),
                Answer::Unfit(_) => Some("unfit".to_owned()),
                Answer::Answers { status, .. } => Some(status.object.clone()),
            }),
        filter: facts.jail.filtered.as_ref().and_then(|tried| {
            let reached = !matches!(tried.reached, Some(Err(_)));
            match tried.trial {
                Trial::NotTried => None,
                Trial::Started { .. } => Some(reached),
                Trial::Failed(_) | Trial::Late { .. } => Some(false),
            }
        }),
    }
}

/// Whether a session would start, what would make its jail, and why.
fn verdict(facts: &Facts) -> (bool, Option<&'static str>, String) {
    if facts.user.root {
        return (false, None, "agent-sandbox does not run as root".into());
    }
    if let Some(trouble) = &facts.policy.trouble {
        return (false, None, first_line(&trouble.message));
    }
    if let Some(Trouble { message, .. }) = unfit(facts) {
        return (false, None, message.clone());
    }
    if let Some(why) = tracer::in_the_way(facts) {
        return (false, None, why);
    }
    // The trials record elsewhere, so they would start.
    if let Some(why) = directories::in_the_way(facts) {
        return (false, None, why);
    }
    let (starts, backend, mut why) = by_trial(facts);
    if starts
        && facts
            .files
            .project
            .as_ref()
            .is_some_and(|project| project.trouble.is_some())
    {
        why.push_str(", but in another directory: this one can be no project");
    }
    (starts, backend, why)
}

/// The verdict of the session that was tried, or of what there is for one.
fn by_trial(facts: &Facts) -> (bool, Option<&'static str>, String) {
    let jail = &facts.jail;
    let reason = jail.bubblewrap.reason.as_ref();
    let chosen = match (jail.asked, reason) {
        (Backend::Landlock, _) => ("landlock", "--backend landlock asks for it".to_owned()),
        (Backend::Bwrap, _) => ("bwrap", "--backend bwrap asks for it".to_owned()),
        (Backend::Auto, None) => ("bwrap", "it works here, and is the first choice".to_owned()),
        (Backend::Auto, Some(reason)) => (
            "landlock",
            format!("bubblewrap cannot work here ({})", reason.message),
        ),
    };
    match &jail.session {
        Trial::Started { .. } => (true, Some(chosen.0), chosen.1),
        Trial::Failed(trouble) => (false, None, first_line(&trouble.message)),
        Trial::Late { seconds } => (
            false,
            None,
            format!("a session did not end within {seconds} s"),
        ),
        // Without a project nothing can be tried but the parts.
        Trial::NotTried if chosen.0 == "bwrap" => match reason {
            None => (true, Some("bwrap"), chosen.1),
            Some(reason) => (false, None, reason.message.clone()),
        },
        Trial::NotTried => match facts.kernel.mediation.missing() {
            None => (true, Some("landlock"), chosen.1),
            Some(missing) => (false, None, missing.what),
        },
    }
}

/// Why the directory that `-C` names can be no project.
fn unfit(facts: &Facts) -> Option<&Trouble> {
    let project = facts.files.project.as_ref()?;
    project.trouble.as_ref().filter(|_| project.given)
}

/// How a part stands that does not work: in the way of every session, or not.
fn without(facts: &Facts) -> Status {
    match verdict(facts).0 {
        true => Status::Degraded,
        false => Status::Broken,
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// What an administrator has to be asked, word for word.
fn ask(what: &str) -> String {
    format!("ask your administrators: {what}")
}

/// The ways out of a trouble, as one text.
fn ways_out(trouble: &Trouble) -> String {
    let each = trouble.hints.iter().filter_map(|hint| {
        if let Some(admin) = hint.strip_prefix("admin: ") {
            return Some(ask(admin));
        }
        // What is left to a user who cannot do anything is said by the others.
        let user = hint.strip_prefix("user: ").unwrap_or(hint);
        (!user.ends_with("ask its administrator")).then(|| user.to_owned())
    });
    let all: Vec<String> = each.collect();
    match all.is_empty() {
        true => "see the message; it names what is in the way".to_owned(),
        false => all.join("; "),
    }
}

#[cfg(test)]
mod tests;
