//! `agent-sandbox explain --backend`: what makes the jail, and what it lacks of one of bubblewrap's.

use anyhow::Result;
use serde_json::json;

use super::print::{print, print_json};
use crate::backend::missing::{Kind, MissingFeature};
use crate::cli::Options;
use crate::failure::one_line;
use crate::launch;
use crate::launch::backend::{Backend, with_reason};
use crate::launch::choice;
use crate::plan::explain::inside::Document;

/// The kinds of differences in the order of the answer, and what stands above them.
const KINDS: [(Kind, &str); 3] = [
    (
        Kind::Open,
        "Open here, and closed in a jail of bubblewrap's:",
    ),
    (
        Kind::Required,
        "Missing, and required by nobody (a user requires it by its key, a site by enforcing that):",
    ),
    (
        Kind::Stricter,
        "Works less or otherwise; nothing is open by it:",
    ),
];

/// What makes the jail of a launch with these options.
///
/// # Errors
/// Nothing would start: for lack of both, or of what somebody requires.
pub(super) fn outside(options: &Options) -> Result<u8> {
    let (backend, instead) = choice::chosen(options.backend.unwrap_or_default());
    let prepared = launch::prepare(options, &[])?;
    let missing = backend.missing(&prepared);
    let missing = missing.map_err(|error| with_reason(error, instead.as_ref()))?;
    let instead = instead.map(|reason| reason.what);
    show(backend, instead.as_deref(), &missing, options.json)
}

/// What made this jail.
///
/// # Errors
/// Standard output takes nothing.
pub(super) fn inside(document: &Document, json: bool) -> Result<u8> {
    let backend = choice::that_made(document.landlock);
    let mut missing = backend.may_lack();
    missing.retain(|one| document.missing.iter().any(|id| id == one.id));
    show(backend, document.instead.as_deref(), &missing, json)
}

fn show(
    backend: &dyn Backend,
    instead: Option<&str>,
    missing: &[MissingFeature],
    json: bool,
) -> Result<u8> {
    if json {
        print_json(
            &json!({ "backend": backend.word(), "instead_of_bwrap": instead, "missing": missing }),
        )?;
        return Ok(0);
    }
    let name = backend.name();
    if backend.may_lack().is_empty() {
        print(&format!("{name} makes the jail: nothing is missing\n"))?;
        return Ok(0);
    }
    let mut text = match instead {
        Some(why) => format!(
            "{name} makes the jail, for bubblewrap cannot work here ({})\n",
            one_line(why)
        ),
        None => format!("{name} makes the jail\n"),
    };
    text.push_str(&format!(
        "{} differences from a jail of bubblewrap's\n",
        missing.len()
    ));
    for (kind, title) in KINDS {
        let mut rows = missing.iter().filter(|one| one.kind == kind).peekable();
        if rows.peek().is_some() {
            text.push_str(&format!("\n{title}\n"));
        }
        for row in rows {
            text.push_str(&format!("  {}: {}\n", row.id, row.sentence));
        }
    }
    print(&text)?;
    Ok(0)
}
