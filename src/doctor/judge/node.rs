//! The kernel and its settings.

use super::super::facts::Facts;
use super::super::line::Finding;
use super::{ask, without};
use crate::host::mediation;
use crate::launch::diagnose;
use crate::plan::LANDLOCK_SCOPES;

/// The actions of a filter that a jail needs (seccomp(2), SECCOMP_GET_ACTION_AVAIL).
const NEEDED: [&str; 3] = ["errno", "kill_process", "allow"];
/// What hands a call over to a mediator.
const HANDING_OVER: &str = "user_notif";

pub(super) fn user(facts: &Facts) -> Option<Finding> {
    facts.user.root.then(|| {
        let executable = facts.user.executable.display();
        Finding::broken(
            "root: agent-sandbox starts no session as root, and what is tried as root says little about users",
            format!("runuser -u USER -- {executable} doctor"),
        )
    })
}

pub(super) fn kernel(facts: &Facts) -> Option<Finding> {
    Some(Finding::ok(&facts.kernel.release))
}

pub(super) fn user_namespaces(facts: &Facts) -> Option<Finding> {
    let found = &facts.kernel.namespaces;
    // What root may do, users may not where a setting keeps it from them.
    let set = found.most_namespaces == Some(0)
        || found.debian_switch == Some(0)
        || (facts.user.root && found.apparmor_switch == Some(1));
    if found.user_namespace.is_none() && !set {
        return Some(Finding::ok(match found.apparmor_switch {
            Some(1) => "can be made by this program, though AppArmor keeps others from it",
            _ => "can be made",
        }));
    }
    let tried = diagnose::Findings {
        user_namespace: found.user_namespace.or(Some(libc::EPERM)),
        ..found.clone()
    };
    let cause = diagnose::cause("", &tried);
    let status = match facts.jail.bubblewrap.set_id && facts.jail.bwrap.started() {
        true => {
            return Some(Finding::ok(format!(
                "{}; bubblewrap is set-user-ID and needs none",
                cause.what
            )));
        }
        // As where a profile of AppArmor's lets bubblewrap and nobody else.
        false if !set && facts.jail.bwrap.started() => {
            return Some(Finding::ok(format!(
                "{}; bubblewrap can make them",
                cause.what
            )));
        }
        false => without(facts),
    };
    Some(Finding::new(status, cause.what, ask(&cause.admin)))
}

pub(super) fn landlock(facts: &Facts) -> Option<Finding> {
    let abi = facts.kernel.mediation.abi;
    let hides = facts.kernel.mediation.hides;
    if abi < 1 || hides {
        let alone = mediation::Findings {
            abi,
            hides,
            ..mediation::Findings::default()
        };
        let missing = alone.missing()?;
        return Some(Finding::new(
            without(facts),
            missing.what,
            ask(missing.admin),
        ));
    }
    if abi < LANDLOCK_SCOPES {
        return Some(Finding::degraded(
            format!(
                "ABI {abi}: signals and abstract sockets are not held, which needs ABI {LANDLOCK_SCOPES}"
            ),
            ask("use Linux 6.12 or newer"),
        ));
    }
    Some(Finding::ok(format!(
        "ABI {abi}: files, signals and abstract sockets are held"
    )))
}

pub(super) fn seccomp(facts: &Facts) -> Option<Finding> {
    let kernel = &facts.kernel;
    let Some(actions) = &kernel.seccomp else {
        return Some(Finding::new(
            without(facts),
            "this kernel does not say that it filters system calls",
            ask("use a kernel with CONFIG_SECCOMP_FILTER"),
        ));
    };
    let has = |action: &str| actions.split_whitespace().any(|word| word == action);
    if let Some(lacking) = NEEDED.into_iter().find(|action| !has(action)) {
        return Some(Finding::new(
            without(facts),
            format!("filters lack the action `{lacking}`"),
            ask("use a kernel with CONFIG_SECCOMP_FILTER, Linux 4.14 or newer"),
        ));
    }
    if let Some(why) = &kernel.no_mediator {
        return Some(Finding::degraded(
            format!(
                "filters work; in directories of a group `chmod g+s`, `chgrp` and `setfacl` do not: {why}"
            ),
            ask(
                "use Linux 5.6 or newer, permit these calls in containers, and kernel.yama.ptrace_scope below 3",
            ),
        ));
    }
    if let Some((call, errno)) = kernel.mediation.refused {
        let why = std::io::Error::from_raw_os_error(errno);
        return Some(Finding::degraded(
            format!(
                "filters and user notification; Landlock's mediator cannot work, as this is refused: {call}: {why}"
            ),
            ask("use Linux 5.19 or newer, and permit these calls in containers"),
        ));
    }
    Some(match has(HANDING_OVER) {
        true => Finding::ok("filters and user notification"),
        false => Finding::degraded(
            "filters, without user notification, which Landlock's jail needs",
            ask("use Linux 5.19 or newer"),
        ),
    })
}

pub(super) fn yama(facts: &Facts) -> Option<Finding> {
    let found = &facts.kernel.mediation;
    let Some(scope) = found.scope else {
        return Some(Finding::ok(
            "not there: users may trace their own processes",
        ));
    };
    let alone = mediation::Findings {
        abi: 1,
        scope: Some(scope),
        hides: false,
        refused: None,
    };
    Some(match alone.missing() {
        None => Finding::ok(format!("kernel.yama.ptrace_scope is {scope}")),
        Some(missing) => Finding::new(without(facts), missing.what, ask(missing.admin)),
    })
}

pub(super) fn cgroups(facts: &Facts) -> Option<Finding> {
    let found = facts.kernel.cgroups;
    let version = match (found.second, found.first) {
        (true, false) => "v2",
        (true, true) => "v1 and v2",
        (false, true) => "v1",
        (false, false) => "not mounted",
    };
    let delegated = match found.delegated {
        true => ", delegated to you",
        false => "",
    };
    Some(Finding::ok(format!(
        "{version}{delegated}; jails need none: Slurm limits jobs, and jail.max_processes counts by setrlimit(2)"
    )))
}
