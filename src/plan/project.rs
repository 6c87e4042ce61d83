//! Which directory is the project, and which must never be one.

use std::path::{Path, PathBuf};

use super::PlanError;
use super::bounds::Ground;
use super::git::{self, GitEntry};
use super::hides::Hides;
use super::protect;
use crate::host::HostFacts;
use crate::host::files::{Files, Kind, Look, real_as_far_as_it_exists};
use crate::host::slurm::{Slurm, changeable};
use crate::policy::{Git, Policy};

/// Directories that no project may be or contain.
const SYSTEM: [&str; 14] = [
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/opt", "/proc", "/run", "/sbin", "/sys",
    "/tmp", "/usr", "/var/tmp",
];
/// Directories that no project may lie in.
const NEVER_INSIDE: [&str; 6] = ["/boot", "/dev", "/etc", "/proc", "/run", "/sys"];

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
    ground: &Ground,
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
        ground,
    };
    if let Some(reason) = refusal.of(&found.real) {
        return Err(
            PlanError::new(format!("`{shown}` cannot be the project: {reason}"))
                .hint("change into the directory of one project, or name it with -C DIR"),
        );
    }
    if let Some(refusing) = ground.refusing_project(&found.real) {
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
        real: found.real,
        id: found.id,
        links: found.links,
        git: git.entries,
        git_omitted: git.omitted,
    })
}

/// The error about something that is to be protected and does not answer: what stands there, nobody
/// knows.
pub fn stalled(path: &Path) -> PlanError {
    unknown(path, "it does not answer")
}

/// The same, for any reason.
fn unknown(path: &Path, why: &str) -> PlanError {
    let message = format!("cannot protect `{}`: {why}", path.display());
    PlanError::new(message).hint(
        "is its file system alive, and the directory your own and open to you? files.timeout_ms says how \
         long an answer may take",
    )
}

/// The error about a directory that a jail may have closed so that nothing in it is seen.
pub fn closed(path: &Path, directory: &Path) -> PlanError {
    let message = format!(
        "cannot look at `{}`: `{}` may not be searched, and a jail could open it again",
        path.display(),
        directory.display()
    );
    PlanError::new(message).hint(format!("chmod u+rwx '{}'", directory.display()))
}

/// Says why a directory must not be writable as a whole.
pub struct Refusal<'a> {
    /// The caller's homes and our own directories.
    pub host: &'a HostFacts,
    /// To resolve these.
    pub files: &'a dyn Files,
    /// What is hidden.
    pub hides: &'a Hides,
    /// The bounds of enforced layers.
    pub ground: &'a Ground,
}

impl Refusal<'_> {
    /// The reason why `real` (a real path) must not be given as a writable directory.
    pub fn of(&self, real: &Path) -> Option<String> {
        if real == Path::new("/") {
            return Some("it is the whole file system".into());
        }
        for home in self.host.homes() {
            let home = real_as_far_as_it_exists(self.files, home);
            if real == home {
                return Some("it is your home directory".into());
            }
            if home.starts_with(real) {
                return Some(format!(
                    "it contains your home directory `{}`",
                    home.display()
                ));
            }
        }
        if let Some(own) = self.own_directory(real) {
            return Some(own);
        }
        for system in SYSTEM {
            if Path::new(system).starts_with(real) {
                return Some(format!("it is or contains the system directory `{system}`"));
            }
        }
        for system in NEVER_INSIDE {
            if real.starts_with(system) {
                return Some(format!("it lies in the system directory `{system}`"));
            }
        }
        if real == Path::new("/dev/shm") {
            return Some("it is shared memory".into());
        }
        self.hides.rule_for(real).map(|rule| {
            format!(
                "the rule files.hide `{}` ({}) hides it",
                rule.value, rule.source
            )
        })
    }

    /// The reason, if writing `real` would reach the policy, the state or the installation.
    pub fn own_directory(&self, real: &Path) -> Option<String> {
        for own in &self.host.own_directories {
            let own = real_as_far_as_it_exists(self.files, own);
            if own.starts_with(real) || real.starts_with(&own) {
                return Some(format!(
                    "agent-sandbox keeps its policy or state in `{}`",
                    own.display()
                ));
            }
        }
        let programs = self.host.slurm.iter().flat_map(Slurm::programs);
        let mut installed = std::iter::once(&self.host.executable).chain(programs);
        installed
            .find(|program| program.starts_with(real))
            .map(|program| {
                format!(
                    "agent-sandbox itself is installed in it (`{}`)",
                    program.display()
                )
            })
    }
}
