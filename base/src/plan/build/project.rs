//! Which directory is the project, and which must never be one.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::git::{self, GitEntry};
use super::obeyed;
use super::refusal::Refusal;
use super::unknown::{closed, unknown};
use crate::config::source::Sourced;
use crate::host::HostFacts;
use crate::host::files::{Files, Kind, Look, real_as_far_as_it_exists};
use crate::host::slurm::{Owners, changeable};
use crate::plan::model::PlanError;
use crate::plan::model::bounds::SiteBounds;
use crate::plan::model::hides::Hides;
use crate::plan::model::protect;
use crate::policy::paths::glob;
use crate::policy::{Git, PathSpec, Policy, Settings};

/// The project directory of one launch.
#[derive(Clone, Debug)]
pub struct Project {
    /// Its real path.
    pub real: PathBuf,
    /// Its device and inode.
    pub id: (u64, u64),
    /// Symbolic links in the path by which the user named it.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// What git needs beside it, and what of git's is read-only.
    pub git: Vec<GitEntry>,
    /// What of git's could not be given or protected, and why.
    pub git_omitted: Vec<(PathBuf, String)>,
    /// Settings that are read-only, see [`obeyed`].
    pub settings: Vec<GitEntry>,
}

/// Refuses a job's project that an agent could have turned into another directory since the job was
/// submitted: the path was without links then. Links that only administrators can have made, on a
/// node that is laid out differently, are none of an agent's.
///
/// # Errors
/// The link.
pub fn unmoved(
    project: &Project,
    host: &HostFacts,
    files: &dyn Files,
    named: &Path,
) -> Result<(), PlanError> {
    let owners = Owners::Others { uid: host.uid };
    for (at, _) in &project.links {
        let above = at.parent().unwrap_or(Path::new("/"));
        if let Some(reason) = changeable(above, owners, files) {
            let message = format!(
                "the project `{}` of this job leads through the symbolic link `{}` now, which {reason}",
                named.display(),
                at.display()
            );
            return Err(PlanError::new(message)
                .hint("submit the job again from the directory that is meant"));
        }
    }
    Ok(())
}

/// Resolves the project and refuses those that would open more than a project.
///
/// # Errors
/// Names the directory, the reason and the way out.
pub fn resolve(
    policy: &Policy,
    host: &HostFacts,
    files: &dyn Files,
    hides: &Hides,
    site_bounds: &SiteBounds,
    named: &Path,
) -> Result<Project, PlanError> {
    let shown = named.display();
    let found = match files.look(named) {
        Look::Found(found) => found,
        Look::Missing => {
            return Err(
                PlanError::new(format!("the project directory `{shown}` does not exist"))
                    .hint("create it first, or name another with -C DIR"),
            );
        }
        Look::Closed(directory) => return Err(closed(named, &directory)),
        Look::Denied(errno) => {
            let why = std::io::Error::from_raw_os_error(errno);
            return Err(PlanError::new(format!(
                "cannot use the project directory `{shown}`: {why}"
            )));
        }
        Look::Hung => {
            let limit = policy.files.timeout_ms.value.as_millis();
            let message =
                format!("the project directory `{shown}` does not answer within {limit} ms");
            return Err(PlanError::new(message)
                .hint("is its file system (NFS, automount) alive? `ls` it first"));
        }
    };
    if found.kind != Kind::Directory {
        return Err(PlanError::new(format!(
            "the project `{shown}` is not a directory"
        )));
    }
    let refusal = Refusal {
        host,
        files,
        hides,
        site_bounds,
    };
    if let Some(reason) = refusal.of(&found) {
        return Err(
            PlanError::new(format!("`{shown}` cannot be the project: {reason}"))
                .hint("change into the directory of one project, or name it with -C DIR"),
        );
    }
    if let Some(refusing) = site_bounds.refusing_project(&found.real) {
        let (list, source) = (&refusing.list.value, &refusing.list.source);
        return Err(PlanError::new(format!(
            "`{shown}` cannot be the project: the site's project.parents ({source}) does not hold it"
        ))
        .hint(match list.as_str() {
            "none" => "the site allows no project on this host; ask its administrators".to_owned(),
            list => format!("a project is, or lies in, one of {list}"),
        }));
    }
    if let Some(rule) = protect::forbidding(policy, host, files, &found.real) {
        let (path, source) = (&rule.value, &rule.source);
        return Err(PlanError::new(format!(
            "`{shown}` cannot be the project: the site's home.protect `{path}` ({source}) lets nothing in it be written"
        ))
        .hint("change into another directory, or name one with -C DIR"));
    }
    let parents = &policy.project.parents;
    let held = |rule: &Sourced<PathSpec>| holds(&rule.value, host, files, &found.real);
    if !parents.is_empty() && !parents.iter().any(held) {
        let list: Vec<String> = parents
            .iter()
            .map(|rule| {
                let means_nothing = match means(&rule.value, host) {
                    Some((at, _)) if matches!(files.look(&at), Look::Found(_)) => "",
                    _ => ", which does not exist here",
                };
                format!("`{}` ({}{means_nothing})", rule.value, rule.source)
            })
            .collect();
        return Err(PlanError::new(format!(
            "`{shown}` cannot be the project: project.parents does not hold it"
        ))
        .hint(format!(
            "a project is, or lies in, one of {}",
            list.join(", ")
        )));
    }
    let git = git::resolve(
        files,
        &found.real,
        found.uid,
        policy.project.git.value == Git::Protect,
        &refusal,
    );
    if let Some((path, why)) = git.unknown {
        return Err(unknown(&path, why));
    }
    if let Some((path, directory)) = git.closed {
        return Err(closed(&path, &directory));
    }
    Ok(Project {
        id: found.id,
        links: found.links,
        git: git.entries,
        git_omitted: git.omitted,
        settings: match policy.project.settings.value {
            Settings::Protect => obeyed::read_only(files, &found.real),
            Settings::Writable => Vec::new(),
        },
        real: found.real,
    })
}

/// The directory that an entry of `project.parents` means, or the one in which its pattern stands, with that.
fn means(spec: &PathSpec, host: &HostFacts) -> Option<(PathBuf, Option<OsString>)> {
    let path = spec.expand(host)?;
    match (path.parent(), path.file_name(), spec.is_pattern()) {
        (Some(parent), Some(name), true) => Some((parent.to_owned(), Some(name.to_owned()))),
        _ => Some((path, None)),
    }
}

/// Whether a real path is a directory that an entry of `project.parents` means, or lies in one.
fn holds(spec: &PathSpec, host: &HostFacts, files: &dyn Files, real: &Path) -> bool {
    let Some((at, pattern)) = means(spec, host) else {
        return false;
    };
    let Ok(below) = real.strip_prefix(real_as_far_as_it_exists(files, &at)) else {
        return false;
    };
    let first = below.components().next();
    pattern.is_none_or(|pattern| {
        first.is_some_and(|name| glob(pattern.as_bytes(), name.as_os_str().as_bytes()))
    })
}
