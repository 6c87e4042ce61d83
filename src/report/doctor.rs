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
use crate::doctor::lint::Level;
use crate::doctor::{self, show};
use crate::failure::{self, one_line};
use crate::policy::Clamped;

/// No session would start: neither a failure of agent-sandbox's nor a success.
const WOULD_NOT_START: u8 = 1;

/// Examines this node, or compute nodes; the exit code.
///
/// # Errors
/// Nothing can be examined.
pub(super) fn call(options: &Options, nodes: Option<&[String]>) -> Result<u8> {
    let starts = match nodes {
        None => {
            let found = doctor::examine(options, parts)?;
            match options.json {
                true => print_json(&serde_json::to_value(&found)?)?,
                false => print(&show::text(&found, options.quiet))?,
            }
            found.starts
        }
        Some(nodes) => {
            let found = doctor::compare_nodes(options, nodes)?;
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
    let meaning = match draft::examine(options, file, user, parts) {
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
    let wrong = meaning.remarks.iter().any(|one| one.level == Level::Error);
    Ok(if wrong { HAS_MISTAKES } else { 0 })
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
    let beside = meaning
        .beside
        .as_ref()
        .map(|beside| beside.display().to_string());
    let of_site = |told: &&str| {
        told.contains(&shown) || beside.as_ref().is_some_and(|beside| told.contains(beside))
    };
    for told in text.lines().filter(of_site) {
        line(told.to_owned());
    }
    for one in &meaning.remarks {
        let level = match one.level {
            Level::Error => "error",
            Level::Warning => "warning",
        };
        line(format!("{level}: {}: {}", one.at, one.what));
        line(format!("  fix: {}", one.fix));
    }
    for what in &meaning.unchecked {
        line(format!("not compared: {what}"));
    }
    Ok(all)
}
