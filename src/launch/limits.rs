//! What a session may take of its node: by a cgroup of its own, and where it can have none by what each process takes
//! of itself, unless somebody demands the cgroup (decision 0050).

use std::time::Duration;

use super::cgroup::{self, SWAP, Taken, Wanted};
use crate::failure::Failure;
use crate::handoff::Least;
use crate::plan::Plan;
use crate::plan::model::limits::Limits;
use crate::policy::values::{Bytes, Stricter};

/// The period of `cpu.max`, in microseconds: the kernel's own.
const PERIOD: u64 = 100_000;
/// How much nicer than usual a session is whose processors cannot be limited (`nice(1)`'s own step).
const NICER: i32 = 10;

/// How the limits of a session are enforced.
#[derive(Debug, Default)]
pub(super) struct Enforced {
    /// The cgroup.
    pub(super) group: Option<Wanted>,
    /// What each process takes of itself instead.
    pub(super) least: Option<Least>,
    /// What is said of that.
    pub(super) note: String,
}

/// Finds how the limits of a session are enforced here. `counts`: somebody wants to know what the session took.
///
/// # Errors
/// Somebody demands a limit that cannot be enforced.
pub(super) fn enforce(plan: &Plan, counts: bool) -> anyhow::Result<Enforced> {
    let limits = &plan.limits;
    let rows = limits.of_cgroup();
    if rows.is_empty() {
        return Ok(Enforced {
            group: counts.then(|| Wanted::counting().ok()).flatten(),
            ..Enforced::default()
        });
    }
    // systemd delegates some controllers and not others.
    let alone = |controller: &'static str| Wanted::limiting(&[controller], Vec::new());
    let (held, missing): (Vec<_>, Vec<_>) = rows
        .into_iter()
        .partition(|(_, controller, ..)| alone(controller).is_ok());
    let mut why = missing
        .first()
        .and_then(|(_, controller, ..)| alone(controller).err())
        .unwrap_or_default();
    let controllers: Vec<&str> = held.iter().map(|(_, controller, ..)| *controller).collect();
    let group = match group(&controllers, limits, plan.max_processes.value) {
        _ if controllers.is_empty() => None,
        Ok(group) => Some(group),
        Err(none) => {
            why = none;
            None
        }
    };
    let missing = if group.is_some() {
        missing
    } else {
        [held, missing].concat()
    };
    if missing.is_empty() {
        return Ok(Enforced {
            group,
            ..Enforced::default()
        });
    }
    if let Some((key, _, source, Some(by))) =
        missing.iter().find(|(.., required)| required.is_some())
    {
        let controllers: Vec<&str> = missing.iter().map(|(_, name, ..)| *name).collect();
        return Err(Failure::new(format!(
            "{key} ({source}) cannot be enforced: the session can have no cgroup of its own for it: {why}"
        ))
        .hint(format!("what demands it: {by}"))
        .hint(match cgroup::user_manager() {
            true => "user: systemd's manager of your services runs: systemd-run --user --scope -p Delegate=yes agent-sandbox …",
            false => "admin: no manager of this user's services runs (user@UID.service), which pam_systemd starts at a login; see \"Login nodes\" in docs/admin/policy.md",
        })
        .hint("user: --set limits.cgroup=degraded starts it with less, if the site does not enforce the limit")
        .hint(format!("admin: {} has to be delegated to users (Delegate= of user@.service), or say limits.cgroup = \"degraded\" beside the limit", controllers.join(", ")))
        .into());
    }
    let lacks = |name: &str| {
        missing
            .iter()
            .any(|(_, controller, ..)| *controller == name)
    };
    let memory = limits.memory.as_ref().filter(|_| lacks("memory"));
    let mut instead = Vec::new();
    if let Some(memory) = memory {
        let most = Bytes(memory.most.value).shown();
        instead.push(format!("{most} of memory for each process alone"));
    }
    if lacks("cpu") {
        instead.push("a low priority".to_owned());
    }
    if lacks("io") {
        instead.push("a low priority for disks".to_owned());
    }
    let keys: Vec<&str> = missing.iter().map(|(key, ..)| *key).collect();
    Ok(Enforced {
        group,
        least: Some(Least {
            data: memory.map(|memory| memory.most.value),
            nicer: lacks("cpu").then_some(NICER),
            idle_disk: lacks("io"),
        }),
        note: format!(
            "agent-sandbox: warning: {} as far as each process can be kept to it: {}; the session can have no cgroup of its own for it: {why}\n",
            keys.join(", "),
            instead.join(", ")
        ),
    })
}

/// A cgroup with these controllers, and one that counts processes if it may: `jail.max_processes` holds by the jail's user
/// namespace anyway.
///
/// # Errors
/// There is none.
fn group(
    controllers: &[&'static str],
    limits: &Limits,
    processes: Option<u64>,
) -> Result<Wanted, String> {
    let mut settings = settings(limits);
    settings.retain(|(file, _)| controllers.iter().any(|name| file.starts_with(name)));
    let most = processes.map(|most| ("pids.max", most.to_string()));
    let more = settings.iter().cloned().chain(most).collect();
    Wanted::limiting(&[controllers, &["pids"]].concat(), more)
        .or_else(|_| Wanted::limiting(controllers, settings))
}

fn settings(limits: &Limits) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    if let Some(memory) = &limits.memory {
        all.push(("memory.max", memory.most.value.to_string()));
        // Else the session would take as much again there, and the node would swap.
        all.push((SWAP, "0".to_owned()));
    }
    if let Some(cpus) = &limits.cpus {
        let quota = u64::from(cpus.most.value) * PERIOD;
        all.push(("cpu.max", format!("{quota} {PERIOD}")));
    }
    if let Some(weight) = &limits.io_weight {
        all.push(("io.weight", format!("default {}", weight.most.value)));
    }
    all
}

/// How long a session may do nothing, and who says so.
pub(super) fn idle(limits: &Limits) -> Option<(Duration, String)> {
    let idle = limits.idle.as_ref()?;
    Some((idle.value, format!("limits.idle_minutes, {}", idle.source)))
}

/// The limit of a session's memory in words; empty: there is none.
pub(super) fn memory(limits: &Limits) -> String {
    limits.memory.as_ref().map_or_else(String::new, |memory| {
        let most = Bytes(memory.most.value).shown();
        format!(
            "the session may have {most} (limits.memory, {})",
            memory.most.source
        )
    })
}

/// What is said of processes that the kernel ended because there was no memory left.
pub(super) fn said_of_memory(taken: &Taken, memory: &str) -> Option<String> {
    let processes = match taken.memory_kills {
        0 => return None,
        1 => "a process".to_owned(),
        more => format!("{more} processes"),
    };
    let why = match memory {
        "" => "the node, or a limit around the session, had no memory left",
        memory => memory,
    };
    Some(format!(
        "agent-sandbox: the kernel ended {processes} of this session by SIGKILL, out of memory: {why}\n"
    ))
}
