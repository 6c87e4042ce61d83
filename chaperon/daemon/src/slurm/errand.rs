//! `agent-sandbox budget`, inside as outside; `pending`, `approve` and `deny`, outside alone: no call from inside leads to
//! them.

use std::fmt::Write as _;
use std::rc::Rc;

use agent_sandbox_wire::budget::{Budgets, Holder, HourLimit, Hours, Resource};
use agent_sandbox_wire::errand::{Errand, What};
use serde_json::{Value, json};

use super::approval::{self, Pending, Script, Unanswered};
use super::ledger::{self, Ledger, Sum, Whose};
use super::records;
use super::settle::settle;
use crate::refusal::Refusal;
use crate::session::Session;

/// Does an errand outside of a session; what is to be printed.
///
/// # Errors
/// The state directory cannot be read or written; a request cannot be answered.
pub fn run(errand: Errand) -> Result<String, Refusal> {
    let Errand { order, what } = errand;
    let session = Rc::new(Session::new(order));
    match what {
        What::Budget { json } => {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_io()
                .enable_time()
                .build();
            let runtime = runtime.map_err(|error| Refusal::mistake(error.to_string()))?;
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, budget(&session, json))
        }
        What::Pending { json } => pending(&session, json),
        What::Decide { id, approve } => decide(&session, &id, approve),
    }
}

fn pending(session: &Session, json: bool) -> Result<String, Refusal> {
    let all = approval::all(session.state()).map_err(|error| {
        let place = session.state().display();
        Refusal::mistake(format!("cannot read what waits below `{place}`: {error}"))
    })?;
    if json {
        let all: Vec<Value> = all.iter().map(as_json).collect();
        return Ok(format!("{:#}\n", Value::from(all)));
    }
    if all.is_empty() {
        return Ok("nothing waits for your approval\n".to_owned());
    }
    let mut text = String::new();
    for one in &all {
        text.push_str(&lines(one, ledger::now()));
    }
    text.push_str("answer with: agent-sandbox approve ID, or agent-sandbox deny ID\n");
    Ok(text)
}

/// A request for people. What the job chose comes last, and between quotes.
fn lines(one: &Pending, now: u64) -> String {
    let minutes = now.saturating_sub(one.since) / 60;
    let script = one.script.as_ref().map(|script| {
        let Script { bytes, sha256 } = script;
        format!("        script of {bytes} bytes, SHA-256 {sha256}\n")
    });
    format!(
        "{}  {}\n        {} in session {} on {}; waits for {minutes} minutes (`{}`)\n{}        project `{}`\n        \
         called `{}`, runs `{}`\n",
        one.id,
        one.asks(),
        one.command,
        one.session,
        one.host,
        one.why,
        script.unwrap_or_default(),
        one.project,
        one.name,
        one.runs
    )
}

fn as_json(one: &Pending) -> Value {
    let whole = one.size.seconds();
    json!({
        "id": one.id,
        "since": one.since,
        "until": if one.until == 0 { None } else { Some(one.until) },
        "session": one.session,
        "project": one.project,
        "host": one.host,
        "command": one.command,
        "name": one.name,
        "runs": one.runs,
        "script_bytes": one.script.as_ref().map(|script| script.bytes),
        "script_sha256": one.script.as_ref().map(|script| &script.sha256),
        "why": one.why,
        "cpus": one.size.size.of(Resource::Cpu),
        "gpus": one.size.size.of(Resource::Gpu),
        "nodes": one.size.size.of(Resource::Node),
        "minutes": one.size.minutes,
        "tasks": one.size.tasks,
        "cpu_hours": hours(whole.of(Resource::Cpu)),
        "gpu_hours": hours(whole.of(Resource::Gpu)),
        "node_hours": hours(whole.of(Resource::Node)),
    })
}

fn decide(session: &Session, id: &str, approve: bool) -> Result<String, Refusal> {
    match approval::decide(session.state(), id, approve) {
        Ok(one) => {
            let said = if approve { "approved" } else { "denied" };
            Ok(format!(
                "{said}: {}, {}: `{}`\n",
                one.command,
                one.asks(),
                one.name
            ))
        }
        Err(error @ Unanswered::Failed(..)) => Err(Refusal::mistake(error.to_string())),
        Err(error) => {
            Err(Refusal::mistake(error.to_string()).hint("agent-sandbox pending lists what waits"))
        }
    }
}

/// What was used of each budget, what is held and what is left, for people or as JSON.
///
/// # Errors
/// The ledger cannot be read.
pub async fn budget(session: &Rc<Session>, json: bool) -> Result<String, Refusal> {
    let unsettled = settle(session).await.err().map(|refusal| refusal.message);
    let ledger = Ledger::new(&records::of_slurm(session));
    let entries = ledger.read().map_err(|error| {
        let place = ledger.path();
        Refusal::mistake(format!("cannot read `{}`: {error}", place.display()))
    })?;
    let snapshot = &session.order.snapshot;
    let project = String::from_utf8_lossy(&snapshot.project);
    let whose = Whose {
        session: &snapshot.session,
        project: &project,
    };
    let budgets = &session.order.budgets;
    let holders = Holder::ALL.into_iter();
    // Outside there is no session.
    let holders = holders.filter(|holder| *holder != Holder::Session || !whose.session.is_empty());
    let sums: Vec<(Holder, Sum)> = holders
        .map(|holder| (holder, ledger::sum(&entries, budgets.days, holder, &whose)))
        .collect();
    Ok(match json {
        true => format!("{:#}\n", in_json(&sums, budgets, unsettled.as_deref())),
        false => table(&sums, budgets, unsettled.as_deref()),
    })
}

fn limit_of(budgets: &Budgets, holder: Holder, resource: Resource) -> Option<&HourLimit> {
    let mut limits = budgets.limits.iter();
    limits.find(|limit| limit.holder == holder && limit.resource == resource)
}

/// What is left of a limit, in seconds.
fn left(limit: &HourLimit, sum: &Sum) -> u64 {
    let gone = sum.used.plus(sum.held).of(limit.resource);
    limit.hours.saturating_mul(3600).saturating_sub(gone)
}

fn table(sums: &[(Holder, Sum)], budgets: &Budgets, unsettled: Option<&str>) -> String {
    let mut text = format!(
        "Hours of the last {} days; held is what jobs that wait or run may still use.\n\n{:9}{:12}{:>12}{:>12}{:>12}{:>12}  set by\n",
        budgets.days, "whose", "", "used", "held", "limit", "left"
    );
    for (holder, sum) in sums {
        for resource in Resource::ALL {
            let limit = limit_of(budgets, *holder, resource);
            let (used, held) = (sum.used.of(resource), sum.held.of(resource));
            let shown =
                |seconds: Option<u64>| seconds.map_or("-".to_owned(), |all| Hours(all).to_string());
            let line = format!(
                "{:9}{:12}{:>12}{:>12}{:>12}{:>12}  {}",
                holder.name(),
                resource.hours(),
                Hours(used).to_string(),
                Hours(held).to_string(),
                limit.map_or("-".to_owned(), |limit| limit.hours.to_string()),
                // What is left is no less than it says.
                shown(limit.map(|limit| left(limit, sum) / 36 * 36)),
                limit.map_or("", |limit| limit.source.as_str())
            );
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    for threshold in &budgets.thresholds {
        let _ = write!(
            text,
            "\na job above {} = {} waits for the user's approval ({})",
            threshold.of.key(),
            threshold.most,
            threshold.source
        );
    }
    if !budgets.thresholds.is_empty() {
        text.push('\n');
    }
    if let Some(why) = unsettled {
        let _ = write!(
            text,
            "\nSlurm does not say now what was used, so jobs count as they were estimated: {why}\n"
        );
    }
    text
}

fn in_json(sums: &[(Holder, Sum)], budgets: &Budgets, unsettled: Option<&str>) -> Value {
    let mut all = Vec::new();
    for (holder, sum) in sums {
        for (resource, name) in
            Resource::ALL
                .into_iter()
                .zip(["cpu_hours", "gpu_hours", "node_hours"])
        {
            let limit = limit_of(budgets, *holder, resource);
            all.push(json!({
                "whose": holder.name(),
                "of": name,
                "used": hours(sum.used.of(resource)),
                "held": hours(sum.held.of(resource)),
                "limit": limit.map(|limit| limit.hours),
                "left": limit.map(|limit| hours(left(limit, sum))),
                "key": limit.map(HourLimit::key),
                "source": limit.map(|limit| &limit.source),
            }));
        }
    }
    let thresholds = budgets.thresholds.iter();
    let thresholds: Vec<Value> = thresholds
        .map(|one| json!({ "key": one.of.key(), "most": one.most, "source": one.source }))
        .collect();
    json!({
        "days": budgets.days,
        "budgets": all,
        "approval_above": thresholds,
        "estimated_because": unsettled,
    })
}

/// Seconds as hours.
fn hours(seconds: u64) -> f64 {
    seconds as f64 / 3600.0
}

#[cfg(test)]
mod tests {
    use agent_sandbox_wire::budget::Amounts;

    use super::super::bounds::JobSize;
    use super::*;

    /// A name that reads like a request, and a script that is not what its file has now.
    #[test]
    fn the_size_comes_first_and_what_the_job_chose_last() {
        let one = Pending {
            id: "k7fm3q".into(),
            number: 1,
            since: 0,
            until: 0,
            session: "s".into(),
            project: "/p".into(),
            host: "n".into(),
            command: "sbatch".into(),
            name: "asks for 1 CPU for 10 minutes".into(),
            runs: "/p/t.sh".into(),
            script: Some(Script::of(b"abc")),
            why: "slurm.confirm.gpu_hours".into(),
            size: JobSize {
                size: Amounts([8, 4, 1]),
                minutes: 600,
                tasks: 1,
            },
        };
        let text = lines(&one, 120);
        let all: Vec<&str> = text.lines().collect();
        assert!(
            all[0].starts_with(
                "k7fm3q  8 CPUs, 4 GPUs, 1 node for 600 minutes: at most 80 CPU-hours"
            ),
            "{text}"
        );
        let last = "called `asks for 1 CPU for 10 minutes`, runs `/p/t.sh`";
        assert_eq!(all.last().map(|line| line.trim()), Some(last));
        let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert!(
            text.contains(&format!("script of 3 bytes, SHA-256 {sum}")),
            "{text}"
        );
        assert_eq!(as_json(&one)["script_sha256"], sum);
    }

    #[test]
    fn the_table_says_what_is_left_and_by_whose_word() {
        let budgets = Budgets {
            days: 7,
            limits: vec![HourLimit {
                holder: Holder::Project,
                resource: Resource::Gpu,
                hours: 100,
                source: "enforced.toml:4".into(),
            }],
            ..Budgets::default()
        };
        let sum = Sum {
            used: Amounts([7200, 3600, 1]),
            held: Amounts([0, 1800, 0]),
        };
        let sums = [(Holder::User, sum), (Holder::Project, sum)];
        let text = table(&sums, &budgets, None);
        let line = text
            .lines()
            .find(|line| line.starts_with("project  GPU"))
            .unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(
            words,
            [
                "project",
                "GPU-hours",
                "1",
                "0.5",
                "100",
                "98.5",
                "enforced.toml:4"
            ]
        );
        assert!(text.contains("user     node-hours          0.01"), "{text}");
        let all = in_json(&sums, &budgets, Some("no answer"));
        assert_eq!(all["budgets"][4]["left"], 98.5);
        assert_eq!(all["budgets"][0]["limit"], Value::Null);
        assert_eq!(all["estimated_because"], "no answer");
    }
}
