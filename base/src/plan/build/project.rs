//! Which directory is the project, and which must never be one.

use std::path::{Path, PathBuf};

use super::git::{self, GitEntry};
use super::obeyed;
use super::refusal::Refusal;
use super::unknown::{closed, unknown};
use crate::host::HostFacts;
use crate::host::files::{Files, Kind, Look, real_as_far_as_it_exists};
use crate::host::slurm::changeable;
use crate::plan::model::PlanError;
use crate::plan::model::bounds::SiteBounds;
use crate::plan::model::hides::Hides;
use crate::plan::model::protect;
use crate::policy::{Git, Policy, Settings};

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
    for (at, _) in &project.links {
        let above = at.parent().unwrap_or(Path::new("/"));
        if let Some(reason) = changeable(above, host.uid, files) {
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
    if let Some(reason) = refusal.of(&found.real) {
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
            list => format!("projects must lie below {list}"),
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
    if !parents.is_empty() {
        let allowed = parents
            .iter()
            .filter_map(|rule| rule.value.expand(host))
            .any(|parent| {
                let parent = real_as_far_as_it_exists(files, &parent);
                found.real != parent && found.real.starts_with(parent)
            });
        if !allowed {
            let list: Vec<String> = parents
                .iter()
                .map(|rule| format!("`{}` ({})", rule.value, rule.source))
                .collect();
            return Err(PlanError::new(format!(
                "`{shown}` cannot be the project: project.parents does not hold it"
            ))
            .hint(format!("projects must lie below {}", list.join(", "))));
        }
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
