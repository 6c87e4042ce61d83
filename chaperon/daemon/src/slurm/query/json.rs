//! Jobs as `squeue --json` and `scontrol --json show job` give them, and nodes as `sinfo --json` does.

use agent_sandbox_wire::order::Queries;
use serde_json::Value;

use crate::refusal::Refusal;
use crate::slurm::query::shown::{describe, number};
use crate::slurm::records::Reader;
use crate::slurm::scope::View;

/// Who has a node for himself (`--exclusive=user`), and who set its reason, up to Slurm 23.02; behind that the latter is `user` in
/// `reason`, and the former is not there.
const NAMES: [&str; 2] = ["owner", "reason_set_by_user"];
const WITHIN_REASON: &str = "user";

/// Nodes and partitions without the names of users.
///
/// # Errors
/// It is no JSON.
pub(super) fn nameless(text: &[u8]) -> Result<Vec<u8>, Refusal> {
    let Some(mut all) = read(text)? else {
        return Ok(Vec::new());
    };
    without_names(&mut all);
    write(&all)
}

fn without_names(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(without_names),
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if NAMES.contains(&name.as_str()) => text.clear(),
                    Value::Object(reason) if name == "reason" => {
                        if let Some(Value::String(text)) = reason.get_mut(WITHIN_REASON) {
                            text.clear();
                        }
                    }
                    _ => without_names(value),
                }
            }
        }
        _ => {}
    }
}

/// What Slurm answers; nothing where it says nothing.
fn read(text: &[u8]) -> Result<Option<Value>, Refusal> {
    if text.trim_ascii().is_empty() {
        return Ok(None);
    }
    // Names of jobs need not be text.
    let text = String::from_utf8_lossy(text);
    let mut all: Value = serde_json::from_str(&text)
        .map_err(|_| Refusal::mistake("Slurm answers in a way that is not understood"))?;
    // The command's line and the submitting client stand there since 23.11.
    if let Some(meta) = all.get_mut("meta").and_then(Value::as_object_mut) {
        meta.remove("command");
    }
    Ok(Some(all))
}

fn write(all: &Value) -> Result<Vec<u8>, Refusal> {
    let mut text = serde_json::to_vec_pretty(all)
        .map_err(|_| Refusal::mistake("the answer cannot be written"))?;
    text.push(b'\n');
    Ok(text)
}

/// Keeps the jobs that may be shown, and puts in what is recorded of them.
///
/// # Errors
/// It is no JSON.
pub(super) fn filter(
    text: &[u8],
    view: &View,
    others: Queries,
    reader: &Reader,
) -> Result<Vec<u8>, Refusal> {
    let Some(mut all) = read(text)? else {
        return Ok(Vec::new());
    };
    // Nothing but the jobs and what tells about the answer.
    if let Some(fields) = all.as_object_mut() {
        fields.retain(|name, _| {
            matches!(
                name.as_str(),
                "meta" | "errors" | "warnings" | "jobs" | "last_update" | "last_backfill"
            )
        });
    }
    if let Some(jobs) = all.get_mut("jobs").and_then(Value::as_array_mut) {
        jobs.retain_mut(|job| {
            let field = |name: &str| job.get(name).and_then(number);
            let Some(id) = field("job_id") else {
                return false;
            };
            let first = field("array_job_id").filter(|&id| id != 0).unwrap_or(id);
            let ours = field("user_id").is_some_and(|uid| view.shows(first, uid));
            if ours && let Some(record) = reader.find(first) {
                describe(job, &record);
            }
            ours || others == Queries::Names
        });
    }
    write(&all)
}
