//! The merged policy as text and as JSON, each value with its source; what the site's enforced layers
//! bound, and what they clamped: both values with both sources.

use anyhow::Result;
use serde_json::{Map, Value, json};

use crate::failure::one_line;
use crate::plan::explain;
use crate::policy::stated::Stated;
use crate::policy::{Clamped, Policy};

/// For a program: `{"section": {"key": {"value": …, "source": "FILE:LINE"}}}`; lists hold such
/// pairs. Where the site enforces something, `"site"` holds what it bounds, a list for each enforced
/// layer, and what it clamped.
///
/// # Errors
/// None in practice; the serialiser's.
pub fn json(policy: &Policy, clamped: &[Clamped]) -> Result<Value> {
    let mut all = serde_json::to_value(policy)?;
    if let (Value::Object(sections), false) = (&mut all, policy.bounds.is_empty()) {
        let bounds = policy.bounds.layers.iter().flat_map(Stated::bounds);
        let bounds: Vec<Value> = bounds
            .map(|(key, list)| json!({ "key": key, "allows": list.value, "source": list.source }))
            .collect();
        let of_jobs = explain::slurm::of_some_jobs(policy);
        let of_jobs: Vec<Value> = of_jobs
            .iter()
            .map(|rule| json!({ "key": rule.key, "value": rule.value, "source": rule.source }))
            .collect();
        let site = json!({ "bounds": bounds, "jobs": of_jobs, "clamped": clamped_json(clamped) });
        sections.insert("site".to_owned(), site);
    }
    Ok(all)
}

/// What was clamped, for a program.
pub fn clamped_json(clamped: &[Clamped]) -> Vec<Value> {
    let each = clamped.iter().map(|one| {
        json!({ "key": one.key, "asked": one.asked, "allowed": one.allowed,
                "asked_by_user": one.is_users() })
    });
    each.collect()
}

/// What was clamped, for a person.
pub fn clamped_line(one: &Clamped) -> String {
    let (asked, allowed) = (&one.asked, &one.allowed);
    format!(
        "{}: asked `{}` ({}); allowed: {} ({})",
        one.key, asked.value, asked.source, allowed.value, allowed.source
    )
}

/// For a person: a line for each value, the source behind it.
///
/// # Errors
/// As [`json`].
pub fn text(policy: &Policy, clamped: &[Clamped]) -> Result<String> {
    let mut all = String::new();
    let Value::Object(sections) = serde_json::to_value(policy)? else {
        return Ok(all);
    };
    for (section, keys) in &sections {
        let Value::Object(keys) = keys else { continue };
        for (key, value) in keys {
            write_key(&mut all, &format!("{section}.{key}"), value);
        }
    }
    let bounds = policy.bounds.layers.iter().flat_map(Stated::bounds);
    for (key, list) in bounds {
        let line = format!("{key} within {}  # {}", list.value, list.source);
        write_line(&mut all, &line);
    }
    for rule in explain::slurm::of_some_jobs(policy) {
        write_line(
            &mut all,
            &format!("{} = {}  # {}", rule.key, rule.value, rule.source),
        );
    }
    for one in clamped {
        write_line(&mut all, &format!("clamped {}", clamped_line(one)));
    }
    Ok(all)
}

fn write_key(all: &mut String, name: &str, value: &Value) {
    match value {
        Value::Array(entries) if entries.is_empty() => write_line(all, &format!("{name} = []")),
        Value::Array(entries) => {
            for entry in entries {
                write_value(all, &format!("{name} +="), entry);
            }
        }
        // A section within a section.
        Value::Object(keys) if !keys.contains_key("source") => {
            for (key, value) in keys {
                write_key(all, &format!("{name}.{key}"), value);
            }
        }
        value => write_value(all, &format!("{name} ="), value),
    }
}

fn write_value(all: &mut String, name: &str, value: &Value) {
    if let Value::Object(pair) = value {
        let source = pair.get("source").and_then(Value::as_str).unwrap_or("");
        write_line(all, &format!("{name} {}  # {source}", shown(pair)));
    }
}

/// One line, whatever the names in it are.
fn write_line(all: &mut String, line: &str) {
    all.push_str(&one_line(line));
    all.push('\n');
}

fn shown(pair: &Map<String, Value>) -> String {
    match pair.get("value") {
        // A variable that is set: its name and value.
        Some(Value::Array(parts)) => {
            let parts: Vec<&str> = parts.iter().filter_map(Value::as_str).collect();
            format!("{:?}", parts.join("="))
        }
        // A time: serde writes seconds and nanoseconds.
        Some(Value::Object(time)) if time.contains_key("nanos") => {
            let part = |name: &str| time.get(name).and_then(Value::as_u64).unwrap_or(0);
            (part("secs") * 1000 + part("nanos") / 1_000_000).to_string()
        }
        Some(value) => value.to_string(),
        None => String::new(),
    }
}
