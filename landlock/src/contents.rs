//! The session's own directory: what it holds in place of what mounts would show, and which places
//! of the plan it stands for.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use agent_sandbox_wire::{SHIMS, SOCKET};

use agent_sandbox_base::host::HostFacts;
use agent_sandbox_base::plan::model::injected_files;
use agent_sandbox_base::plan::model::persistent::SHOWN;
use agent_sandbox_base::plan::model::slurm::PROGRAM;
use agent_sandbox_base::plan::model::ssh;
use agent_sandbox_base::plan::model::stage::{HOME, OWN, RUN, TMP};
use agent_sandbox_base::plan::model::{INPUT, Mount, Plan, Step};

/// The shims, and agent-sandbox under its name.
pub(super) const SHIMS_IN_OWN: &str = "own/slurm";
/// The shim that they are links to: the session's own, for a rule is about a file, and an upgrade replaces the installed one.
pub(super) const SHIM_IN_OWN: &str = "own/shim";
/// The socket on which shims reach the chaperon.
pub(super) const SOCKET_IN_OWN: &str = "own/chaperon";
/// agent-sandbox under its own name.
const NAMED_IN_OWN: &str = "own/slurm/agent-sandbox";
/// What git starts in place of ssh.
const GIT_SSH_IN_OWN: &str = "own/slurm/agent-sandbox-git-ssh";
/// What `agent-sandbox explain` answers from inside.
pub(super) const DOCUMENT_IN_OWN: &str = "own/explain";
/// Files that profiles give, the texts about the jail and others; and what ssh needs.
const INJECTED_IN_OWN: [(&str, &str); 3] = [
    (injected_files::INSTRUCTIONS, "own/instructions"),
    (injected_files::GIVEN, "own/given"),
    (ssh::DIRECTORY, "own/ssh"),
];
/// How the names begin of files of certificates that programs trust, in place of those that mounts would cover.
const CERTIFICATES_IN_OWN: &str = "own/certificates.";
/// The batch script, under the name that slurmstepd gives it: `$0` and the command in `ps` say it.
pub(super) const SCRIPT_IN_OWN: &str = "own/slurm_script";

/// Something in the session's own directory, which stands for what a mount would show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staged {
    /// Its place below the session's directory.
    pub at: PathBuf,
    /// What it is.
    pub what: Thing,
}

impl Staged {
    /// Adds to what a file holds.
    pub fn add(&mut self, content: &[u8]) {
        if let Thing::File(_, held) = &mut self.what {
            held.extend_from_slice(content);
        }
    }
}

/// What is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thing {
    /// A directory with this mode.
    Directory(u32),
    /// A symbolic link to this.
    Link(PathBuf),
    /// A file with this mode and content.
    File(u32, Vec<u8>),
    /// A copy of this program; where it cannot be read, or the file system executes nothing, a link to it.
    Program(PathBuf),
}

/// Where things of the plan really are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Places inside and where they are now, deepest first.
    moved: Vec<(PathBuf, PathBuf)>,
    /// Steps that show the host's files at their own place, and those that show nothing of it.
    shown: BTreeMap<PathBuf, bool>,
    /// Directories in which sessions have theirs.
    sessions: Vec<PathBuf>,
    stage: PathBuf,
}

impl Places {
    pub(super) fn of_plan(plan: &Plan, host: &HostFacts, stage: &Path) -> Self {
        let mut moved: Vec<(PathBuf, PathBuf)> = vec![
            (plan.home.clone(), stage.join(HOME)),
            ("/tmp".into(), stage.join(TMP)),
            ("/var/tmp".into(), stage.join(TMP)),
            (format!("/run/user/{}", host.uid).into(), stage.join(RUN)),
            (SHIMS.into(), stage.join(SHIMS_IN_OWN)),
            (SOCKET.into(), stage.join(SOCKET_IN_OWN)),
        ];
        if host.home != plan.home {
            moved.push((host.home.clone(), stage.join(HOME)));
        }
        moved.extend(INJECTED_IN_OWN.map(|(at, to)| (at.into(), stage.join(to))));
        moved.extend(bundles(plan).map(|(at, to)| (at.to_path_buf(), stage.join(to))));
        let mut shown = BTreeMap::new();
        for step in &plan.steps {
            match &step.mount {
                Mount::Bind { from, .. } if *from == step.at => {
                    shown.insert(step.at.clone(), true);
                }
                Mount::Bind { from, .. } if step.at == Path::new(INPUT) => {
                    moved.push((step.at.clone(), from.clone()));
                }
                Mount::Program { .. } => moved.push((step.at.clone(), stage.join(SCRIPT_IN_OWN))),
                // By its real path, which is the same in every session of the project.
                Mount::Kept { from, .. } => moved.push((step.at.clone(), from.clone())),
                Mount::Tmpfs { .. } | Mount::Directory { .. } => {
                    shown.insert(step.at.clone(), false);
                }
                _ => {}
            }
        }
        moved.sort_by(|one, other| other.0.cmp(&one.0));
        Self {
            moved,
            shown,
            sessions: host.join_directories.clone(),
            stage: stage.to_path_buf(),
        }
    }

    /// Where something is that the plan has at `inside`: in the session's directory if its place has
    /// moved there, else where it was. Also what a job brings from a session that it was submitted in,
    /// and that had its own directory, leads to this session's.
    #[must_use]
    pub fn real(&self, inside: &Path) -> PathBuf {
        if let Some(here) = self.of_other_session(inside) {
            return here;
        }
        let deciding = inside.ancestors().find_map(|above| self.shown.get(above));
        let program = self.moved.iter().any(|(at, _)| at == inside);
        if deciding == Some(&true) && !program {
            return inside.to_path_buf();
        }
        let moved = self
            .moved
            .iter()
            .find_map(|(at, to)| Some(joined(to, inside.strip_prefix(at).ok()?)));
        moved.unwrap_or_else(|| inside.to_path_buf())
    }

    /// What stands for a place in the directory of another session; the same place in this one's.
    fn of_other_session(&self, path: &Path) -> Option<PathBuf> {
        let below = self
            .sessions
            .iter()
            .find_map(|place| path.strip_prefix(place).ok())?;
        let mut parts = below.components();
        parts.next()?;
        let rest = parts.as_path();
        let first = rest.components().next()?;
        let ours = [HOME, TMP, RUN, OWN]
            .iter()
            .any(|name| first == Component::Normal(name.as_ref()));
        ours.then(|| self.stage.join(rest))
    }
}

/// Not `join("")`, which appends a slash.
fn joined(to: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() {
        to.to_path_buf()
    } else {
        to.join(rest)
    }
}

/// Everything in the session's directory, parents first.
pub(super) fn furnish(
    plan: &Plan,
    shim: Option<&Path>,
    own: Option<&Path>,
    stage: &Path,
) -> Vec<Staged> {
    let mut all: BTreeMap<PathBuf, Thing> = BTreeMap::new();
    for name in [HOME, TMP, RUN, OWN] {
        all.insert(name.into(), Thing::Directory(0o700));
    }
    if let Some(own) = own {
        all.insert(SHIMS_IN_OWN.into(), Thing::Directory(0o700));
        for name in [NAMED_IN_OWN, GIT_SSH_IN_OWN] {
            all.insert(name.into(), Thing::Link(own.to_path_buf()));
        }
    }
    if let Some(shim) = shim {
        all.insert(SHIM_IN_OWN.into(), Thing::Program(shim.to_path_buf()));
    }
    for step in &plan.steps {
        if let Mount::Program { content } = &step.mount {
            all.insert(SCRIPT_IN_OWN.into(), Thing::File(0o500, content.clone()));
        }
        if let Some(name) = step
            .at
            .strip_prefix(SHIMS)
            .ok()
            .filter(|name| is_name(name))
            && let Mount::Link { target } = &step.mount
            && target == Path::new(PROGRAM)
        {
            all.insert(SHIMS_IN_OWN.into(), Thing::Directory(0o700));
            let link = Thing::Link(stage.join(SHIM_IN_OWN));
            all.insert(Path::new(SHIMS_IN_OWN).join(name), link);
        }
    }
    for step in &plan.steps {
        let Mount::File { content } = &step.mount else {
            continue;
        };
        let places = INJECTED_IN_OWN.iter();
        let mut places =
            places.filter_map(|(at, to)| Some(Path::new(to).join(step.at.strip_prefix(at).ok()?)));
        if let Some(at) = places.next() {
            make_above(&at, 0o700, &mut all);
            all.insert(at, Thing::File(0o400, content.clone()));
        }
    }
    furnish_home(&plan.steps, &plan.home, stage, &mut all);
    all.into_iter()
        .map(|(at, what)| Staged { at, what })
        .collect()
}

/// Files of certificates that get the filter's, each with its place below the session's directory.
fn bundles(plan: &Plan) -> impl Iterator<Item = (&Path, PathBuf)> {
    let trust = plan.filter.iter().flat_map(|filter| &filter.trust);
    let files = trust.flat_map(|trust| &trust.bundles);
    let numbered = files.enumerate();
    numbered.map(|(number, at)| {
        (
            at.as_path(),
            format!("{CERTIFICATES_IN_OWN}{number}").into(),
        )
    })
}

/// The same as they are without the filter's certificate.
pub(super) fn trusting(plan: &Plan) -> Vec<Staged> {
    let content = |at: &Path| {
        plan.steps.iter().find_map(|step| match &step.mount {
            Mount::File { content } if step.at == at => Some(content.clone()),
            _ => None,
        })
    };
    let all = bundles(plan).filter_map(|(at, to)| {
        Some(Staged {
            at: to,
            what: Thing::File(0o400, content(at)?),
        })
    });
    all.collect()
}

fn is_name(path: &Path) -> bool {
    path.components().count() == 1
}

/// The private home: what the plan shows of the real one becomes a link to it, for a path is what
/// rules are about; what it makes there is made.
fn furnish_home(steps: &[Step], home: &Path, stage: &Path, all: &mut BTreeMap<PathBuf, Thing>) {
    // A bind shows what is below it at its real place.
    let mut shown: Option<&Path> = None;
    for step in steps {
        let Ok(below) = step.at.strip_prefix(home) else {
            continue;
        };
        let inside = shown.is_some_and(|shown| step.at.starts_with(shown));
        if below.as_os_str().is_empty() || inside {
            continue;
        }
        let at = Path::new(HOME).join(below);
        let what = match &step.mount {
            Mount::Bind { from, .. } if *from == step.at => {
                shown = Some(&step.at);
                Thing::Link(step.at.clone())
            }
            // What is shown below it is a link in the store.
            Mount::Kept { from, .. } => {
                shown = Some(&step.at);
                Thing::Link(from.clone())
            }
            Mount::Directory { mode } => Thing::Directory(*mode),
            Mount::Tmpfs { .. } => Thing::Directory(0o700),
            // The store has a directory there in its stead.
            Mount::Link { target } if target == Path::new(SHOWN) => continue,
            Mount::Link { target } => Thing::Link(led(&step.at, target, home, stage)),
            Mount::Copy { content, mode, .. } => Thing::File(*mode, content.clone()),
            Mount::File { content } => Thing::File(0o400, content.clone()),
            // The script stands with what is ours.
            Mount::Bind { .. }
            | Mount::Device { .. }
            | Mount::Program { .. }
            | Mount::HideDirectory
            | Mount::HideFile
            | Mount::Proc
            | Mount::Dev => continue,
        };
        make_above(&at, 0o755, all);
        all.insert(at, what);
    }
}

/// Makes the directories above a place that nothing makes yet.
fn make_above(at: &Path, mode: u32, all: &mut BTreeMap<PathBuf, Thing>) {
    for above in at.ancestors().skip(1) {
        if !above.as_os_str().is_empty() && !all.contains_key(above) {
            all.insert(above.to_path_buf(), Thing::Directory(mode));
        }
    }
}

/// What a link in the private home has to say, that says `target` at `at` in the real one: what is in
/// the home is meant by its private place.
fn led(at: &Path, target: &Path, home: &Path, stage: &Path) -> PathBuf {
    let mut meant = PathBuf::new();
    let from = at.parent().unwrap_or(Path::new("/"));
    for part in from.join(target).components() {
        match part {
            Component::ParentDir => {
                meant.pop();
            }
            Component::CurDir => {}
            other => meant.push(other),
        }
    }
    match meant.strip_prefix(home) {
        Ok(_) if target.is_relative() => target.to_path_buf(),
        Ok(below) => joined(&stage.join(HOME), below),
        Err(_) => meant,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_the_private_home_lead_where_they_led() {
        let (home, stage) = (Path::new("/home/ada"), Path::new("/tmp/s"));
        for (at, target, expected) in [
            ("/home/ada/a", "work/x", "work/x"),
            ("/home/ada/.config/a", "../x", "../x"),
            ("/home/ada/a", "../bob/x", "/home/bob/x"),
            ("/home/ada/a", "/home/ada", "/tmp/s/home"),
            ("/home/ada/a", "/home/ada/x/./y", "/tmp/s/home/x/y"),
            ("/home/ada/a", "/home/adam", "/home/adam"),
            ("/home/ada/a", "../../../../etc", "/etc"),
            ("/home/ada/a", "/data/../home/ada/x", "/tmp/s/home/x"),
        ] {
            let says = led(Path::new(at), Path::new(target), home, stage);
            assert_eq!(says, Path::new(expected), "{at} -> {target}");
        }
    }
}
