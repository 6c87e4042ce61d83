//! The merged policy as text and as JSON, each value with its source.

use anyhow::Result;
use serde_json::{Map, Value};

use crate::policy::Policy;

/// For a program: `{"section": {"key": {"value": …, "source": "FILE:LINE"}}}`; lists hold such
/// pairs.
///
/// # Errors
/// None in practice; the serialiser's.
pub fn json(policy: &Policy) -> Result<Value> {
    Ok(serde_json::to_value(policy)?)
}

/// For a person: a line for each value, the source behind it.
///
/// # Errors
/// As [`json`].
pub fn text(policy: &Policy) -> Result<String> {
    let mut all = String::new();
    let Value::Object(sections) = json(policy)? else {
        return Ok(all);
    };
    for (section, keys) in &sections {
        let Value::Object(keys) = keys else { continue };
        for (key, value) in keys {
            write_key(&mut all, &format!("{section}.{key}"), value);
        }
    }
    Ok(all)
}

fn write_key(all: &mut String, name: &str, value: &Value) {
    match value {
        Value::Array(entries) if entries.is_empty() => all.push_str(&format!("{name} = []\n")),
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
        all.push_str(&format!(
            "{name} {}  # {}\n",
            shown(pair),
            pair.get("source").and_then(Value::as_str).unwrap_or("")
        ));
    }
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
