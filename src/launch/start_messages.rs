//! What a launch says before the command starts.

use std::path::Path;

use crate::cli::Options;
use crate::config::source::Layer;
use crate::failure;
use crate::plan::{NetworkMode, Omitted, Plan};
use crate::policy::Clamped;

/// The network, and how one comes to another, or gives this one a host.
fn network(plan: &Plan) -> String {
    let filtered = "(--set network.mode=filtered)";
    match (plan.network.value, plan.network.source.layer) {
        (NetworkMode::Open, _) => format!("open {filtered}"),
        (NetworkMode::Filtered, _) => {
            format!("filtered (agent-sandbox allow {} HOST)", plan.session)
        }
        // The site's word is the last.
        (NetworkMode::Isolated, Layer::SiteEnforced) => "isolated".to_owned(),
        (NetworkMode::Isolated, _) => format!("isolated {filtered}"),
    }
}

/// One line on standard error, at the start of every session.
fn banner(plan: &Plan) -> String {
    let network = network(plan);
    let project = plan.project.as_deref().unwrap_or(Path::new("/"));
    let project = failure::one_line(&project.display().to_string());
    format!(
        "agent-sandbox: jailed in {project} (writable), network {network}, session {}\n",
        plan.session
    )
}

/// The banner, unless it is not wanted, and what could not be done as asked, which is always said.
pub(super) fn announcement(
    plan: &Plan,
    options: &Options,
    logins: impl FnOnce() -> String,
) -> String {
    let mut text = String::new();
    if !options.quiet {
        text.push_str(&banner(plan));
        text.push_str(&clamped(plan).concat());
        text.push_str(&logins());
    }
    text.push_str(&shortcomings(plan, options.verbose > 0).concat());
    text
}

/// What the site does not allow of what the user asked for, a line each.
fn clamped(plan: &Plan) -> Vec<String> {
    let asked = plan.clamped.iter().filter(|one| one.is_users());
    let line = |one: &Clamped| {
        let (asked, allowed) = (&one.asked, &one.allowed);
        let value = failure::one_line(&asked.value);
        format!(
            "agent-sandbox: site: {} `{value}` ({}) is not allowed as asked; {} allows: {}\n",
            one.key, asked.source, allowed.source, allowed.value
        )
    };
    asked.map(line).collect()
}

/// What the jail lacks of what was asked, a line each.
pub fn shortcomings(plan: &Plan, verbose: bool) -> Vec<String> {
    let told = |omitted: &&Omitted| omitted.loud || (verbose && !omitted.is_usual());
    let omitted = plan.omitted.iter().filter(told).map(|omitted| {
        let path = failure::one_line(&omitted.path);
        let reason = failure::one_line(&omitted.reason);
        format!(
            "agent-sandbox: note: `{path}`: {reason} [{}]\n",
            omitted.why
        )
    });
    let weaknesses = plan.weaknesses.iter();
    let weaknesses = weaknesses.map(|weakness| format!("agent-sandbox: warning: {weakness}\n"));
    omitted.chain(weaknesses).collect()
}
