//! Programs that people use with agent-sandbox.

use super::super::facts::Facts;
use super::super::line::Finding;
use super::ask;
use crate::launch::modules::NEEDED;

pub(super) fn tmux(facts: &Facts) -> Option<Finding> {
    Some(match &facts.tools.tmux {
        Some(path) => Finding::ok(path.display().to_string()),
        None => Finding::degraded(
            "not found: a session ends when your connection does",
            ask("install the package `tmux`"),
        ),
    })
}

pub(super) fn lmod(facts: &Facts) -> Option<Finding> {
    if let Some(path) = &facts.tools.lmod {
        return Some(Finding::ok(path.display().to_string()));
    }
    let needed = facts.policy.trouble.as_ref();
    Some(
        match needed.is_some_and(|why| why.message.contains(NEEDED)) {
            false => Finding::ok("not found, and not needed: modules.load is empty"),
            true => Finding::broken(
                "not found, and modules.load names modules",
                "run agent-sandbox from a shell in which `module` works, or empty modules.load",
            ),
        },
    )
}
