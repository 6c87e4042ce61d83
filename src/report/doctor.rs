//! The answers of `doctor`, for a person or as JSON.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use super::policy;
use super::print::{print, print_json};
use super::render::{parts, render};
use crate::cli::Options;
use crate::config::diagnostic::ConfigError;
use crate::doctor::draft::{self, Meaning};
use crate::doctor::{self, show};
use crate::failure::{self, one_line};
use crate::policy::Clamped;

/// No session would start: neither a failure of agent-sandbox's nor a success.
const WOULD_NOT_START: u8 = 1;

/// Examines this node, or the nodes of a partition; the exit code.
///
/// # Errors
/// Nothing can be examined.
pub(super) fn call(options: &Options, partition: Option<&str>) -> Result<u8> {
    let starts = match partition {
        None => {
            let found = doctor::examine(options, parts)?;
            match options.json {
                true => print_json(&serde_json::to_value(&found)?)?,
                false => print(&show::text(&found, options.quiet))?,
            }
            found.starts
        }
        Some(partition) => {
            let found = doctor::compare_nodes(options, partition)?;
            match options.json {
                true => print_json(&serde_json::to_value(&found)?)?,
                false => print(&show::comparison(&found, options.quiet))?,
            }
            found.starts
        }
    };
    Ok(if starts { 0 } else { WOULD_NOT_START })
}

/// A site's file has a mistake.
const HAS_MISTAKES: u8 = 1;

/// Shows what a site's file would mean; the exit code.
///
/// # Errors
/// There is no such user, or the user database cannot be asked.
pub(super) fn draft(options: &Options, file: &Path, user: Option<&str>) -> Result<u8> {
    let meaning = match draft::examine(file, user) {
        Err(error) if error.downcast_ref::<ConfigError>().is_some() => {
            failure::say(&render(&error));
            return Ok(HAS_MISTAKES);
        }
        examined => examined?,
    };
    match options.json {
        true => {
            let mut all = serde_json::to_value(&meaning)?;
            if let Value::Object(keys) = &mut all {
                let held = policy::json(&meaning.policy, meaning.clamped())?;
                keys.insert("policy".to_owned(), held);
            }
            print_json(&all)?;
        }
        false => print(&of_draft(&meaning)?)?,
    }
    Ok(0)
}

fn of_draft(meaning: &Meaning) -> Result<String> {
    let mut all = String::new();
    let mut line = |text: String| {
        all.push_str(&one_line(&text));
        all.push('\n');
    };
    let groups = meaning.groups.join(", ");
    line(format!(
        "for {} (groups {groups}) on {}",
        meaning.user, meaning.host
    ));
    if let Some(beside) = &meaning.beside {
        line(format!("with {}, which stands beside it", beside.display()));
    }
    match (&meaning.users_file, &meaning.unread) {
        (Some(own), _) => line(format!("with the user's own {}", own.display())),
        (None, Some(why)) => line(format!("without the user's own policy: {why}")),
        (None, None) => {}
    }
    for section in &meaning.sections {
        let holds = match section.holds {
            true => "holds",
            false => "does not hold",
        };
        line(format!(
            "line {:<4} {holds}: {}",
            section.line, section.conditions
        ));
    }
    let shown = meaning.file.display().to_string();
    // The lines of `policy` that come from this file, and what it narrows of what somebody chose.
    let chosen = meaning
        .clamped()
        .iter()
        .filter(|one| !one.asked.source.is_built_in());
    let chosen: Vec<Clamped> = chosen.cloned().collect();
    let text = policy::text(&meaning.policy, &chosen)?;
    for told in text.lines().filter(|told| told.contains(&shown)) {
        line(told.to_owned());
    }
    Ok(all)
}
