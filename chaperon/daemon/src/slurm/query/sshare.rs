//! `sshare(1)`: the user's own shares, and everybody's where names may be shown.

use std::ffi::OsString;

use agent_sandbox_wire::message::End;
use agent_sandbox_wire::order::Queries;

use crate::refusal::{Reason, Refusal};
use crate::slurm::answers::{about, fields, plain};
use crate::slurm::ask::{Stop, settle};
use crate::slurm::parse;
use crate::slurm::request::Context;

/// Carries the request out.
///
/// # Errors
/// It is refused, or Slurm cannot be asked.
pub(in crate::slurm) async fn run(context: &mut Context<'_>) -> Result<End, Refusal> {
    settle(carry_out(context).await)
}

async fn carry_out(context: &mut Context<'_>) -> Result<End, Stop> {
    let parsed = context.parsed().await?;
    if let Some(arguments) = about(&parsed) {
        return plain(context, arguments, Vec::new()).await;
    }
    let order = &context.session.order;
    let others = order.queries == Queries::Names;
    let mut arguments = parse::canonical(&parsed.given);
    if !others {
        let own = |value: &OsString| *value == *order.user;
        let users = parsed.all("users").filter_map(|given| given.value.as_ref());
        if parsed.has("all") || !users.into_iter().all(own) {
            return Err(Refusal::rule(
                "shares of other users are not shown (`slurm.queries`)",
                "leave --all and --users out",
            )
            .because(Reason::Key("slurm.queries"))
            .into());
        }
        if parsed.has("accounts") {
            return Err(Refusal::rule(
                "shares of other accounts are not shown (`slurm.queries`)",
                "leave --accounts out: those of your own accounts are shown",
            )
            .because(Reason::Key("slurm.queries"))
            .into());
        }
    } else {
        if parsed.has("all") {
            arguments.push("--all".into());
        }
        for given in parsed.all("users") {
            let mut word = OsString::from("--users=");
            word.push(given.value.as_deref().unwrap_or_default());
            arguments.push(word);
        }
    }
    for (name, word) in [
        ("long", "--long"),
        ("noheader", "--noheader"),
        // `-h`, which has no long name and means the same.
        ("h", "--noheader"),
        ("Users", "--Users"),
        ("parsable", "--parsable"),
        ("parsable2", "--parsable2"),
    ] {
        if parsed.has(name) {
            arguments.push(word.into());
        }
    }
    if let Some(format) = parsed.value("format") {
        arguments.push(format!("--format={}", fields(format)?.join(",")).into());
    }
    plain(context, arguments, parsed.kept).await
}
