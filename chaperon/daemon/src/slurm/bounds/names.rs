//! Names that a job asks for: lists, expressions of features, licenses with counts. Each is taken apart
//! into names; what is not understood is `None`.

use std::ffi::OsStr;

use agent_sandbox_events::pattern::glob;
use agent_sandbox_wire::bounds::{NameBound, NameKey};

use super::amounts::per_task;

/// Names, as they were asked for.
pub type NameList = Vec<String>;

/// What stands between features (`sbatch(1)`, `--constraint`).
const OPERATORS: &[char] = &['&', '|', ',', '(', ')', '[', ']'];

/// What stands between licenses (`sbatch(1)`, `--licenses`).
const BETWEEN_LICENSES: &[char] = &[',', ';', '|'];

fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.+@:/".contains(c);
    !text.is_empty() && text.chars().all(plain)
}

fn each<'a>(parts: impl Iterator<Item = &'a str>) -> Option<NameList> {
    parts
        .map(|part| is_name(part).then(|| part.to_owned()))
        .collect()
}

/// Names with commas between; none of an empty text.
pub(super) fn list(text: &OsStr) -> Option<NameList> {
    match text.to_str()? {
        "" => Some(Vec::new()),
        text => each(text.split(',')),
    }
}

/// The features of an expression: `a&b|c*2`, `[rack1|rack2]`, `(a&b)*4`.
pub(super) fn features(text: &OsStr) -> Option<NameList> {
    let parts = text.to_str()?.split(OPERATORS);
    let parts = parts.filter(|part| !part.is_empty());
    let mut names = Vec::new();
    for part in parts {
        // A count stands behind a name, or behind a bracket that was split off.
        let (name, count) = part.split_once('*').unwrap_or((part, "1"));
        if count.is_empty() || !count.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        match name {
            "" => {}
            name if is_name(name) => names.push(name.to_owned()),
            _ => return None,
        }
    }
    Some(names)
}

/// The licenses of `a:4,b@server:2`.
pub(super) fn licenses(text: &OsStr) -> Option<NameList> {
    let parts = text.to_str()?.split(BETWEEN_LICENSES);
    each(parts.filter(|part| !part.is_empty()).map(without_count))
}

/// The licenses among `cpu:2,license/a:1`.
pub(super) fn licenses_of_tasks(text: &OsStr) -> Option<NameList> {
    let names = per_task(text)?.licenses;
    each(names.iter().map(String::as_str))
}

fn without_count(text: &str) -> &str {
    match text.rsplit_once([':', '=', '*']) {
        Some((name, count)) if count.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => text,
    }
}

/// Whether a list allows a name. Slurm keeps names of accounts and QOS in lower case, and compares them so.
pub(super) fn allows(list: &NameBound, name: &str) -> bool {
    let fits = |entry: &String| match list.key {
        NameKey::Accounts | NameKey::Qos => glob(
            entry.to_lowercase().as_bytes(),
            name.to_lowercase().as_bytes(),
        ),
        _ => glob(entry.as_bytes(), name.as_bytes()),
    };
    list.allowed.iter().any(fits)
}

/// A list in a message.
pub(super) fn shown(allowed: &[String]) -> String {
    match allowed {
        [] => "none".to_owned(),
        names => {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            names.join(", ")
        }
    }
}

/// The allowed name that is most like another.
pub(super) fn nearest<'a>(allowed: &'a [String], name: &str) -> Option<&'a str> {
    let mut best: Option<(f64, &str)> = None;
    for one in allowed.iter().filter(|one| !one.contains('*')) {
        let alike = strsim::jaro_winkler(&name.to_lowercase(), &one.to_lowercase());
        if best.is_none_or(|(most, _)| alike > most) {
            best = Some((alike, one));
        }
    }
    best.map(|(_, one)| one)
}
