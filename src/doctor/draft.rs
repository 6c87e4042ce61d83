//! `doctor --policy FILE --as USER`: what a site's file would mean for somebody before it is installed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use super::lint::{self, Remark};
use super::look::known::Host;
use super::look::run::Held;
use super::{Words, end_if_told};
use crate::cli::Options;
use crate::config::diagnostic::ConfigError;
use crate::config::draft::{Draft, built_in, read_draft, users_text};
use crate::config::parse::{RawLayer, parse};
use crate::config::site::SiteFile;
use crate::config::source::Layer;
use crate::config::when::Circumstances;
use crate::failure::Failure;
use crate::host::circumstances;
use crate::launch::{self, Prepared};
use crate::policy::merge::{Additions, merge};
use crate::policy::{Clamped, Policy};
use crate::users::{self, User};

/// What a file would mean. These keys are an interface: scripts read them.
#[derive(Debug, Serialize)]
pub struct Meaning {
    /// The file.
    pub file: PathBuf,
    /// The other of the site's files that stands beside it, and was taken with it.
    pub beside: Option<PathBuf>,
    /// For whom.
    pub user: String,
    /// Their groups, as the user database has them.
    pub groups: Vec<String>,
    /// Where.
    pub host: String,
    /// The file's `[[when]]` sections.
    pub sections: Vec<Section>,
    /// What is likely a mistake in the file.
    pub remarks: Vec<Remark>,
    /// What it was not compared with, and why.
    pub unchecked: Vec<String>,
    /// The user's own file, with which it was joined; `None`: there is none, or it was not read.
    pub users_file: Option<PathBuf>,
    /// Why that was not read.
    pub unread: Option<String>,
    /// The policy that would hold.
    #[serde(skip)]
    pub policy: Policy,
}

/// A `[[when]]` section.
#[derive(Debug, Serialize)]
pub struct Section {
    /// Where it begins.
    pub line: u32,
    /// Its conditions.
    pub conditions: String,
    /// Whether they are met for this user on this host, outside of jobs.
    pub holds: bool,
}

impl Meaning {
    /// What would be clamped, as far as the policy alone tells: paths are judged at a launch.
    pub fn clamped(&self) -> &[Clamped] {
        &self.policy.clamped
    }
}

/// Reads a site's file, joins it with what else would hold, and looks for what is likely a mistake.
///
/// # Errors
/// The file, or the one beside it, is no policy; a section of it could not be judged; there is no such user.
pub fn examine(
    options: &Options,
    file: &Path,
    named: Option<&str>,
    words: Words,
) -> Result<Meaning> {
    let user = user(named)?;
    let now = circumstances::of_user(&user.name)?
        .with_context(|| format!("there is no user `{}`", user.name))?;
    let draft = read_draft(file, &now)?;
    check(&draft)?;
    let (other, beside) = beside(file, draft.file, &now)?;
    // What is wrong with the user's own file is no mistake of the site's.
    let (own, unread) = match users_own(&user) {
        Ok(own) => (own, None),
        Err(why) => (None, Some(why)),
    };
    let users_file = own.as_ref().map(|_| user.config());
    let mut sections = Vec::new();
    for section in &draft.sections {
        let holds = section.holds.clone().map_err(|why| {
            Failure::new(format!(
                "{}:{}: whether this holds cannot be told: {why}",
                file.display(),
                section.line
            ))
        })?;
        sections.push(Section {
            line: section.line,
            conditions: section
                .conditions
                .iter()
                .map(|(about, names)| format!("{about} {}", names.join(" or ")))
                .collect::<Vec<_>>()
                .join(", "),
            holds,
        });
    }
    let compared = read_draft(file, &now)?;
    let again = read_draft(file, &now)?;
    let mut drafts = vec![draft];
    drafts.extend(other);
    // Weakest first: defaults, the user's own, what is enforced.
    let (enforced, defaults): (Vec<_>, Vec<_>) = drafts
        .into_iter()
        .partition(|draft| draft.file == SiteFile::Enforced);
    let mut layers = vec![built_in()?];
    layers.extend(defaults.into_iter().flat_map(holding));
    layers.extend(own);
    layers.extend(enforced.into_iter().flat_map(holding));
    let policy = merge(&layers, &Additions::default())?;
    let mut held = Held::new()?;
    // What is installed here may be what the file shall replace, and broken.
    let mut prepared = launch::prepare(options, &[]).ok();
    let host = prepared.as_ref().map(|prepared| &prepared.host);
    let known = Host::ask(host, now.hosts.clone(), &mut held);
    end_if_told(held);
    let mut remarks = lint::remarks(&compared, again, &policy, &known);
    let mut unchecked = known.unchecked;
    let own = nix::unistd::geteuid();
    match &mut prepared {
        Some(prepared) if own.as_raw() == user.uid && !own.is_root() => {
            prepared.policy = policy.clone();
            remarks.extend(launched(prepared, file, words));
        }
        _ => unchecked.push(format!(
            "whether a session starts: `--policy` as {} says so",
            user.name
        )),
    }
    Ok(Meaning {
        file: file.to_owned(),
        beside,
        groups: now.groups,
        host: now.hosts.into_iter().next().unwrap_or_default(),
        user: user.name,
        sections,
        users_file,
        unread,
        remarks,
        unchecked,
        policy,
    })
}

/// What would stop every launch of the caller's, wherever the project is: a hide over what programs need, a path that
/// cannot be hidden for certain.
fn launched(prepared: &Prepared, file: &Path, words: Words) -> Option<Remark> {
    let plan = prepared.plan_without_project();
    let judged = plan.and_then(|plan| prepared.can_start(&plan));
    let (what, hints) = words(&judged.err()?);
    Some(Remark {
        at: file.display().to_string(),
        level: lint::Level::Error,
        what: format!("no session would start: {what}"),
        fix: hints.join("; "),
    })
}

/// Who is meant; the caller, if nobody is named.
fn user(named: Option<&str>) -> Result<User> {
    match named {
        Some(name) => users::by_name(name),
        None => users::by_name(&nix::unistd::getuid().to_string()),
    }
}

/// Types everything that the file says, also what does not hold now: a mistake in it would stop others.
fn check(draft: &Draft) -> Result<()> {
    let alone = Additions::default();
    merge(std::slice::from_ref(&draft.always), &alone)?;
    for section in &draft.sections {
        merge(std::slice::from_ref(&section.layer), &alone)?;
    }
    Ok(())
}

/// The layers of a draft that hold.
fn holding(draft: Draft) -> impl Iterator<Item = RawLayer> {
    let sections = draft.sections.into_iter();
    let holding = sections.filter(|section| section.holds == Ok(true));
    std::iter::once(draft.always).chain(holding.map(|section| section.layer))
}

/// The other file of the site's, if it stands beside this one.
fn beside(
    file: &Path,
    which: SiteFile,
    now: &Circumstances,
) -> Result<(Option<Draft>, Option<PathBuf>)> {
    let other = match which {
        SiteFile::Defaults => SiteFile::Enforced,
        SiteFile::Enforced => SiteFile::Defaults,
    };
    let path = file.with_file_name(other.name());
    if !path.is_file() {
        return Ok((None, None));
    }
    let draft = read_draft(&path, now)?;
    check(&draft)?;
    Ok((Some(draft), Some(path)))
}

/// The user's own file. Root reads it as that user, for it is the user's to say what stands there.
///
/// # Errors
/// Why it was not read, or what is wrong with it.
fn users_own(user: &User) -> Result<Option<RawLayer>, String> {
    let path = user.config();
    let shown = path.display().to_string();
    // The line that says it; the picture around it is for who writes the file.
    let told = |error: ConfigError| {
        let whole = error.to_string();
        whole.lines().next().unwrap_or_default().to_owned()
    };
    let own = nix::unistd::geteuid();
    let text = if own.as_raw() == user.uid {
        users_text(&path, &shown).map_err(told)?
    } else if own.is_root() {
        let read = |_: &User| Ok(vec![users_text(&path, &shown).map_err(told)]);
        let all: Vec<Result<Option<String>, String>> = users::read(vec![user.clone()], read)
            .map_err(|error| format!("{error:#}"))?
            .into_iter()
            .flat_map(|(_, texts)| texts)
            .collect();
        all.into_iter().next().unwrap_or(Ok(None))?
    } else {
        return Err(format!("{shown} is read by root and {} alone", user.name));
    };
    let Some(text) = text else { return Ok(None) };
    let layer = parse(Layer::User, &shown, &text).map_err(told)?.raw;
    merge(std::slice::from_ref(&layer), &Additions::default()).map_err(told)?;
    Ok(Some(layer))
}
