//! What a session may take of its node: by a cgroup of its own, and where it can have none by what each process takes
//! of itself, unless somebody demands the cgroup (decision 0050).

use std::time::Duration;

use anyhow::Result;

use super::cgroup::{SWAP, Taken, Wanted};
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
pub(super) fn enforce(plan: &Plan, counts: bool) -> Result<Enforced> {
    let limits = &plan.limits;
    let rows = limits.of_cgroup();
    if rows.is_empty() {
        return Ok(Enforced {
            group: counts.then(|| Wanted::counting().ok()).flatten(),
            ..Enforced::default()
        });
    }
    let mut controllers: Vec<&str> = rows.iter().map(|(_, controller, ..)| *controller).collect();
    let why = match Wanted::limiting(&controllers, settings(limits)) {
        Ok(mut group) => {
            // Processes are counted for each user namespace anyway; here for all of the session.
            controllers.push("pids");
            let mut more = settings(limits);
            more.extend(
                plan.max_processes
                    .value
                    .map(|most| ("pids.max", most.to_string())),
            );
            if let Ok(all) = Wanted::limiting(&controllers, more) {
                group = all;
            }
            return Ok(Enforced {
                group: Some(group),
                ..Enforced::default()
            });
        }
        Err(why) => why,
    };
    let keys: Vec<&str> = rows.iter().map(|(key, ..)| *key).collect();
    if let Some((key, _, source, Some(by))) = rows.iter().find(|(.., required)| required.is_some())
    {
        return Err(Failure::new(format!(
            "{key} ({source}) cannot be enforced: the session can have no cgroup of its own: {why}"
        ))
        .hint(format!("what demands it: {by}"))
        .hint("user: where `systemd --user` runs, start it by: systemd-run --user --scope -p Delegate=yes agent-sandbox …")
        .hint("user: --set limits.cgroup=degraded starts it with less, if the site does not enforce the limit")
        .hint("admin: give logins a delegated cgroup, or say limits.cgroup = \"degraded\" beside the limit")
        .into());
    }
    let mut instead = Vec::new();
    if let Some(memory) = &limits.memory {
        let most = Bytes(memory.most.value).shown();
        instead.push(format!("{most} of memory for each process alone"));
    }
    if limits.cpus.is_some() {
        instead.push("a low priority".to_owned());
    }
    if limits.io_weight.is_some() {
        instead.push("a low priority for disks".to_owned());
    }
    Ok(Enforced {
        group: None,
        least: Some(Least {
            data: limits.memory.as_ref().map(|memory| memory.most.value),
            nicer: limits.cpus.as_ref().map(|_| NICER),
            idle_disk: limits.io_weight.is_some(),
        }),
        note: format!(
            "agent-sandbox: warning: {} as far as each process can be kept to it: {}; the session has no cgroup of its own: {why}\n",
            keys.join(", "),
            instead.join(", ")
        ),
    })
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
