//! `agent-sandbox explain --backend`: what makes the jail, and what it lacks of one of bubblewrap's.

use anyhow::Result;
use serde_json::json;

use super::print::{print, print_json};
use crate::backend::landlock::missing::{Kind, LACKS, Lack};
use crate::cli::{Backend, Options};
use crate::failure::one_line;
use crate::launch;
use crate::launch::fallback::Reason;
use crate::launch::landlock;
use crate::plan::explain::inside::Document;

/// The kinds of differences in the order of the answer, and what stands above them.
const KINDS: [(Kind, &str); 3] = [
    (
        Kind::Open,
        "Open here, and closed in a jail of bubblewrap's:",
    ),
    (
        Kind::Demand,
        "Missing, and required by nobody (a user requires it by its key, a site by enforcing that):",
    ),
    (
        Kind::Narrower,
        "Works less or otherwise; nothing is open by it:",
    ),
];

/// What makes the jail of a launch with these options.
///
/// # Errors
/// Nothing would start: for lack of both, or of what somebody requires.
pub(super) fn outside(options: &Options) -> Result<u8> {
    let instead = match options.backend.unwrap_or_default() {
        Backend::Auto => Reason::tried(),
        Backend::Bwrap | Backend::Landlock => None,
    };
    let prepared = launch::prepare(options, &[])?;
    if instead.is_none() && options.backend != Some(Backend::Landlock) {
        return show(&Made::ByBubblewrap, options.json);
    }
    let lacks = landlock::differences(&prepared).map_err(|error| match &instead {
        Some(reason) => reason.and(&error),
        None => error,
    })?;
    let instead = instead.map(|reason| reason.what);
    show(&Made::ByLandlock { instead, lacks }, options.json)
}

/// What made this jail.
///
/// # Errors
/// Standard output takes nothing.
pub(super) fn inside(document: &Document, json: bool) -> Result<u8> {
    let made = match document.landlock {
        false => Made::ByBubblewrap,
        true => Made::ByLandlock {
            instead: document.instead.clone(),
            lacks: LACKS
                .iter()
                .filter(|lack| document.missing.iter().any(|id| id == lack.id))
                .copied()
                .collect(),
        },
    };
    show(&made, json)
}

enum Made {
    ByBubblewrap,
    ByLandlock {
        instead: Option<String>,
        lacks: Vec<Lack>,
    },
}

fn show(made: &Made, json: bool) -> Result<u8> {
    let (backend, instead, lacks) = match made {
        Made::ByBubblewrap => ("bwrap", None, [].as_slice()),
        Made::ByLandlock { instead, lacks } => ("landlock", instead.as_deref(), lacks.as_slice()),
    };
    if json {
        print_json(&json!({ "backend": backend, "instead_of_bwrap": instead, "lacks": lacks }))?;
        return Ok(0);
    }
    if let Made::ByBubblewrap = made {
        print("bubblewrap makes the jail: nothing is missing\n")?;
        return Ok(0);
    }
    let mut text = match instead {
        Some(why) => format!(
            "Landlock makes the jail, for bubblewrap cannot work here ({})\n",
            one_line(why)
        ),
        None => "Landlock makes the jail\n".to_owned(),
    };
    text.push_str(&format!(
        "{} differences from a jail of bubblewrap's\n",
        lacks.len()
    ));
    for (kind, title) in KINDS {
        let mut rows = lacks.iter().filter(|lack| lack.kind == kind).peekable();
        if rows.peek().is_some() {
            text.push_str(&format!("\n{title}\n"));
        }
        for lack in rows {
            text.push_str(&format!("  {}: {}\n", lack.id, lack.sentence));
        }
    }
    print(&text)?;
    Ok(0)
}
