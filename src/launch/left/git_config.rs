//! Whether the configuration of a repository can make git run a program, or write elsewhere. It was
//! written by hostile commands, so that only what is known to be harmless counts as harmless. Keys: git-config(1).

use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use nix::errno::Errno;

use crate::launch::ways;
use crate::mediate::git_config::{Entry, entries};

/// More keys that run nothing, whatever their value, than a session may change in the project's own.
const HARMLESS: &[&str] = &[
    "commit.gpgsign",
    "core.autocrlf",
    "core.bare",
    "core.compression",
    "core.eol",
    "core.filemode",
    "core.ignorecase",
    "core.logallrefupdates",
    "core.precomposeunicode",
    "core.repositoryformatversion",
    "core.safecrlf",
    "core.sharedrepository",
    "core.sparsecheckout",
    "core.sparsecheckoutcone",
    "core.symlinks",
    "core.untrackedcache",
    "extensions.compatobjectformat",
    "extensions.objectformat",
    "extensions.partialclone",
    "extensions.preciousobjects",
    "extensions.refstorage",
    "extensions.relativeworktrees",
    "extensions.worktreeconfig",
    "fetch.recursesubmodules",
    "gc.auto",
    "index.version",
    "receive.denycurrentbranch",
    "receive.denynonfastforwards",
    "submodule.active",
    "submodule.recurse",
];

/// The same, with a subsection.
const HARMLESS_BELOW: &[&str] = &[
    "branch.mergeoptions",
    "remote.mirror",
    "remote.partialclonefilter",
    "remote.promisor",
    "remote.push",
    "submodule.branch",
    "submodule.fetchrecursesubmodules",
    "submodule.ignore",
];

/// Where a configuration stands.
pub(super) struct ConfigLocation<'a> {
    pub(super) project: &'a OwnedFd,
    /// git's directory, below the project.
    pub(super) git: &'a Path,
}

/// Whether nothing in a configuration runs a program or leads elsewhere.
pub(super) fn is_harmless(text: &[u8], place: &ConfigLocation<'_>) -> bool {
    let harmless = |entry: Entry| {
        let (kind, below) = entry.kind();
        let value = entry.value.as_deref().unwrap_or_default();
        let list = if below { HARMLESS_BELOW } else { HARMLESS };
        match kind.as_str() {
            "core.worktree" if !below => is_inside(value, place),
            "submodule.update" if below => ["checkout", "rebase", "merge", "none"].contains(&value),
            kind if entry.is_free() => leads_to_no_helper(kind, value),
            kind => list.contains(&kind),
        }
    };
    entries(text).is_some_and(|all| all.into_iter().all(harmless))
}

/// Whether an address starts no helper of its own (gitremote-helpers(7), `ext::`) and is no option. Other
/// values may be what they like.
fn leads_to_no_helper(kind: &str, value: &str) -> bool {
    // The name of a remote may be an address itself.
    let keys = ["url", "pushurl", "remote", "pushremote", "pushdefault"];
    let is_address = keys.iter().any(|key| kind.ends_with(&format!(".{key}")));
    !is_address || !value.contains("::") && !value.starts_with('-')
}

/// Whether a work tree lies in the project, without a link on the way.
fn is_inside(value: &str, place: &ConfigLocation<'_>) -> bool {
    let mut at = place.git.to_path_buf();
    for part in Path::new(value).components() {
        match part {
            Component::Normal(name) => at.push(name),
            Component::ParentDir if at.pop() => {}
            Component::CurDir => {}
            _ => return false,
        }
    }
    let mut held = match place.project.try_clone() {
        Ok(held) => held,
        Err(_) => return false,
    };
    for name in at.iter() {
        held = match ways::enter(&held, name) {
            Ok(held) => held,
            Err(errno) => return errno == Errno::ENOENT,
        };
    }
    true
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    use crate::launch::ways::{Missing, directory};

    fn harmless(text: &str) -> bool {
        let top = tempfile::tempdir().unwrap();
        let at = top.path().canonicalize().unwrap();
        std::fs::create_dir_all(at.join(".git/modules/sub")).unwrap();
        std::os::unix::fs::symlink("/", at.join("link")).unwrap();
        let project = directory(&at, Missing::Stays, |_| false).unwrap();
        let place = ConfigLocation {
            project: &project,
            git: Path::new(".git/modules/sub"),
        };
        is_harmless(text.as_bytes(), &place)
    }

    #[test]
    fn what_git_itself_writes_is_harmless() {
        let text = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n\
                    \tworktree = ../../../sub\n[remote \"origin\"]\n\turl = git@github.com:samtools/samtools.git\n\
                    \tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\n\tremote = origin\n\
                    \tmerge = refs/heads/main\n[submodule \"a/b\"]\n\tactive = true\n\turl = https://example.org/b\n\
                    [user]\n\temail = ada@example.org\n# a comment\n";
        assert!(harmless(text));
        assert!(harmless(""));
    }

    #[test]
    fn what_runs_programs_or_leads_elsewhere_is_not() {
        for text in [
            "[core]\n\tfsmonitor = ./evil\n",
            "[CORE]\n\tFSMonitor = ./evil\n",
            "[core] fsmonitor = ./evil\n",
            "[core]\n\thooksPath = hooks\n",
            "[core]\n\tsshCommand = ./evil\n",
            "[core]\n\tbare = false \\\n[core]\n\tpager = evil\n",
            "[alias]\n\tst = !evil\n",
            "[include]\n\tpath = ../evil\n",
            "[includeIf \"gitdir:/\"]\n\tpath = ../evil\n",
            "[filter \"x\"]\n\tclean = evil\n",
            "[filter.x]\n\tclean = evil\n",
            "[credential]\n\thelper = !evil\n",
            "[diff \"x\"]\n\ttextconv = evil\n",
            "[remote \"x\"]\n\turl = ext::sh -c evil\n",
            "[remote \"x\"]\n\tuploadpack = evil\n",
            "[remote \"x\"]\n\tvcs = evil\n",
            "[submodule \"x\"]\n\tupdate = !evil\n",
            "[core]\n\tworktree = ../../../..\n",
            "[core]\n\tworktree = /home/ada\n",
            "[core]\n\tworktree = ../../../link/home/ada\n",
            "[remote \"a\\\"]\n\turl = x\n[core]\n\tpager = \"]\n",
            "[core]\n\tworktree = ../../../..#/a/b/c\n",
            "[core]\n\tworktree = ../../.\"\"./..\n",
            "[remote \"x\"]\n\turl = ext:\"\":sh -c evil\n",
            "[branch \"x\"]\n\tremote = ext::sh -c evil\n",
            "[remote]\n\tpushDefault = ext::sh -c evil\n",
            "fsmonitor = x\n",
            "[core]\r\n\tfsmonitor = x\n",
        ] {
            assert!(!harmless(text), "{text}");
        }
    }
}
