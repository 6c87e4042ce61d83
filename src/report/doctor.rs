//! The answers of `doctor`, for a person or as JSON.

use anyhow::Result;

use super::print::{print, print_json};
use super::render::parts;
use crate::cli::Options;
use crate::doctor::{self, show};

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
