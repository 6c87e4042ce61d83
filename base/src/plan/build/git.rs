//! Git in the project: the common directory of a worktree is found and verified, hooks and
//! configuration become read-only, because they run code when somebody uses git outside.
//!
//! Everything read here may have been planted by a jail that ran earlier in the same project.
//! File formats: gitrepository-layout(5), git-worktree(1).

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::refusal::Refusal;
use crate::host::files::{Files, Found, Kind, Look};
use crate::plan::model::git::GitConfig;
use crate::plan::model::{Access, Mount, Step, Why};
use bstr::ByteSlice;

/// The key of the policy by which something of git's is read-only.
pub(super) const KEY: &str = "project.git";

/// `gitdir:` files, back-pointers and `commondir` hold one path each (`PATH_MAX`, with room).
const LONGEST_POINTER: usize = 8192;
/// A larger configuration of a repository is not looked through.
const LARGEST_CONFIG: usize = 1 << 20;

/// One path of git's with the access that it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitEntry {
    /// Its real path.
    pub path: PathBuf,
    /// Its device and inode.
    pub id: (u64, u64),
    /// `Write` for directories that must stay in place, `Read` for what must not change.
    pub access: Access,
    /// Left out where the jail shows this: the entry is one of a worktree that stands there.
    pub unless_shown: Option<PathBuf>,
}

/// What was found.
#[derive(Debug, Default)]
pub struct GitEntries {
    /// Paths to bind over the project, outermost first.
    pub entries: Vec<GitEntry>,
    /// What is not given or not protected, and why.
    pub omitted: Vec<(PathBuf, String)>,
    /// Something of git's in a directory (the second path) that a jail may have closed to hide it.
    pub closed: Option<(PathBuf, PathBuf)>,
    /// Something of git's that cannot be protected, and why.
    pub unknown: Option<(PathBuf, &'static str)>,
}

/// Looks at `.git` in the project `project`, which belongs to `owner`.
pub fn resolve(
    files: &dyn Files,
    project: &Path,
    owner: u32,
    protect: bool,
    refusal: &Refusal<'_>,
) -> GitEntries {
    let mut all = GitEntries::default();
    let dot_git = project.join(".git");
    let Some(found) = plain(files, &dot_git) else {
        match files.look(&dot_git) {
            Look::Found(_) if protect => all.omitted.push((dot_git, LINK.into())),
            Look::Closed(directory) => all.closed = Some((dot_git, directory)),
            Look::Hung if protect => all.unknown = Some((dot_git, STALLED)),
            _ => {}
        }
        return all;
    };
    match found.kind {
        Kind::Directory if protect => all.protect(files, &found, &found.real),
        Kind::File => match worktree(files, project, &dot_git, owner, refusal) {
            Ok(Worktree { common, own }) => {
                push(&mut all.entries, &common, Access::Write);
                if protect {
                    // Pinned, so that they cannot be moved away from above a file in them.
                    for directory in [&common.real.join("worktrees"), &own] {
                        if let Some(found) = plain(files, directory) {
                            push(&mut all.entries, &found, Access::Write);
                        }
                    }
                    all.protect(files, &common, &own);
                    // What leads from the project to the repository and back.
                    for pointer in [dot_git, own.join("gitdir"), own.join("commondir")] {
                        if let Some(found) = plain(files, &pointer) {
                            push(&mut all.entries, &found, Access::Read);
                        }
                    }
                }
            }
            Err(reason) => all.omitted.push((dot_git, reason)),
        },
        _ => {}
    }
    all
}

/// The repository's configuration, where a jail has it read-only.
#[must_use]
pub fn protected(steps: &[Step]) -> Option<GitConfig> {
    steps
        .iter()
        .find_map(|step| match (&step.mount, &step.why) {
            (Mount::Bind { from, access, id }, Why::Rule { key, .. })
                if key == KEY && *access == Access::Read && from.ends_with("config") =>
            {
                let at = from.as_os_str().as_bytes().to_vec();
                Some(GitConfig { at, id: *id })
            }
            _ => None,
        })
}

const STALLED: &str = "it does not answer";
const UNLISTED: &str = "it cannot be listed, or holds too many entries";
const LINK: &str = "it is a symbolic link, which cannot be protected: the jail can replace it";

impl GitEntries {
    /// The pointers of every worktree: `commondir` chooses the configuration that git obeys there.
    fn worktrees(&mut self, files: &dyn Files, all: &Path) {
        let Some(found) = self
            .open(files, all)
            .filter(|found| found.kind == Kind::Directory)
        else {
            return;
        };
        push(&mut self.entries, &found, Access::Write);
        // A session could have closed it, or filled it, so that the next one sees nothing to protect.
        let Some(entries) = files.entries(all) else {
            self.unknown = Some((all.to_path_buf(), UNLISTED));
            return;
        };
        for entry in entries.iter() {
            let own = all.join(&entry.name);
            let Some(found) = self
                .open(files, &own)
                .filter(|found| found.kind == Kind::Directory)
            else {
                continue;
            };
            push(&mut self.entries, &found, Access::Write);
            for name in ["gitdir", "commondir", "config.worktree"] {
                if let Some(found) = self.open(files, &own.join(name)) {
                    push(&mut self.entries, &found, Access::Read);
                }
            }
            self.keep_worktree(files, &own);
        }
    }

    /// Keeps what git knows of a worktree that the jail does not show. To git it looks as if somebody had
    /// removed it, and `git worktree prune`, which `git gc` calls, would forget which branch and which
    /// changes it has.
    fn keep_worktree(&mut self, files: &dyn Files, own: &Path) {
        let back = pointer(files, &own.join("gitdir"));
        let Some(Ok(back)) = back.map(|text| absolute(own, &text)) else {
            return;
        };
        for name in ["HEAD", "index"] {
            if let Some(found) = plain(files, &own.join(name))
                && push(&mut self.entries, &found, Access::Read)
                && let Some(entry) = self.entries.last_mut()
            {
                entry.unless_shown = Some(back.clone());
            }
        }
    }

    /// What stands at `path`, unless a symbolic link leads there. Notes what keeps it from being known.
    fn open(&mut self, files: &dyn Files, path: &Path) -> Option<Found> {
        match files.look(path) {
            Look::Found(found) if found.real == path => return Some(found),
            Look::Closed(directory) => self.closed = Some((path.to_path_buf(), directory)),
            Look::Hung => self.unknown = Some((path.to_path_buf(), STALLED)),
            _ => {}
        }
        None
    }

    /// Makes hooks and configuration of the repository `common` read-only. `own` is the directory
    /// of the worktree, or the same.
    ///
    /// The repository itself becomes a mount point, for a directory that is none can be renamed
    /// together with the mounts below it, and another put in its place.
    fn protect(&mut self, files: &dyn Files, common: &Found, own: &Path) {
        push(&mut self.entries, common, Access::Write);
        self.worktrees(files, &common.real.join("worktrees"));
        let config = common.real.join("config");
        for path in [
            common.real.join("hooks"),
            config.clone(),
            own.join("config.worktree"),
        ] {
            match files.look(&path) {
                Look::Found(found) if found.real == path => {
                    push(&mut self.entries, &found, Access::Read);
                }
                Look::Found(_) => self.omitted.push((path, LINK.into())),
                Look::Closed(directory) => self.closed = Some((path, directory)),
                Look::Hung => self.unknown = Some((path, STALLED)),
                _ if path.ends_with("config.worktree") && !uses_worktree_config(files, &config) => {}
                _ => self.omitted.push((
                    path,
                    "it does not exist, so it cannot be protected: the jail can make one; create it to have it \
                     protected"
                        .into(),
                )),
            }
        }
    }
}

/// Whether git would read `config.worktree` (git-config(1), `extensions.worktreeConfig`). The text
/// alone is enough: to be told once too often does no harm.
fn uses_worktree_config(files: &dyn Files, config: &Path) -> bool {
    let text = files.small_file(config, LARGEST_CONFIG).unwrap_or_default();
    text.to_ascii_lowercase().contains_str("worktreeconfig")
}

/// Adds an entry, unless its path has one; whether it did.
fn push(entries: &mut Vec<GitEntry>, found: &Found, access: Access) -> bool {
    let new = entries.iter().all(|entry| entry.path != found.real);
    if new {
        entries.push(GitEntry {
            path: found.real.clone(),
            id: found.id,
            access,
            unless_shown: None,
        });
    }
    new
}

/// What stands at `path`, unless a symbolic link leads there.
fn plain(files: &dyn Files, path: &Path) -> Option<Found> {
    match files.look(path) {
        Look::Found(found) if found.real == path => Some(found),
        _ => None,
    }
}

struct Worktree {
    common: Found,
    own: PathBuf,
}

/// Follows `.git` → `COMMON/worktrees/NAME` and demands that it points back here. The project's
/// file alone proves nothing: anybody could have written it.
fn worktree(
    files: &dyn Files,
    project: &Path,
    dot_git: &Path,
    owner: u32,
    refusal: &Refusal<'_>,
) -> Result<Worktree, String> {
    let text = pointer(files, dot_git).ok_or("`.git` is not a readable pointer file")?;
    let written = text
        .strip_prefix(b"gitdir: ")
        .ok_or("`.git` does not begin with `gitdir: `")?;
    let own = absolute(project, written)?;
    let Look::Found(own) = files.look(&own) else {
        return Err(format!(
            "`.git` points to `{}`, which cannot be used",
            own.display()
        ));
    };
    let shown = own.real.display();
    if own.kind != Kind::Directory {
        return Err(format!(
            "`.git` points to `{shown}`, which is not a directory"
        ));
    }
    let worktrees = own
        .real
        .parent()
        .filter(|parent| parent.ends_with("worktrees"));
    let Some(common) = worktrees.and_then(Path::parent) else {
        return Err(format!(
            "`.git` points to `{shown}`, which is not `…/worktrees/NAME`"
        ));
    };
    let back = pointer(files, &own.real.join("gitdir"))
        .ok_or("the worktree's `gitdir` file cannot be read")?;
    let back = absolute(&own.real, &back)?;
    if back != dot_git && !matches!(files.look(&back), Look::Found(found) if found.real == dot_git)
    {
        return Err(format!("`{shown}` does not point back to this project"));
    }
    let text = pointer(files, &own.real.join("commondir"))
        .ok_or("the worktree's `commondir` file cannot be read")?;
    let said = absolute(&own.real, &text)?;
    if said != common && !matches!(files.look(&said), Look::Found(found) if found.real == common) {
        return Err(format!(
            "`{shown}/commondir` names another directory than `{}`",
            common.display()
        ));
    }
    let Some(common) = plain(files, common).filter(|found| found.kind == Kind::Directory) else {
        return Err(format!("`{}` is not a directory", common.display()));
    };
    for part in ["objects", "refs"] {
        if !plain(files, &common.real.join(part)).is_some_and(|found| found.kind == Kind::Directory)
        {
            return Err(format!(
                "`{}` is not a git repository: no `{part}`",
                common.real.display()
            ));
        }
    }
    if common.uid != owner {
        return Err(format!(
            "`{}` belongs to another user than the project",
            common.real.display()
        ));
    }
    let by_site = refusal.site_bounds.refusing_repository(&common.real);
    let by_site = by_site.map(|refusing| {
        let (key, source) = (refusing.key, refusing.list.source);
        format!("the site's {key} ({source}) does not hold it")
    });
    if let Some(reason) = refusal.of(&common).or(by_site) {
        return Err(format!(
            "`{}` cannot be given: {reason}",
            common.real.display()
        ));
    }
    Ok(Worktree {
        common,
        own: own.real,
    })
}

fn pointer(files: &dyn Files, path: &Path) -> Option<Vec<u8>> {
    let mut text = files.small_file(path, LONGEST_POINTER)?;
    while text
        .last()
        .is_some_and(|&byte| byte == b'\n' || byte == b'\r')
    {
        text.pop();
    }
    (!text.is_empty() && !text.contains(&b'\n') && !text.contains(&0)).then_some(text)
}

/// The path that a pointer in `base` names, `.` and `..` worked off in the text alone.
fn absolute(base: &Path, written: &[u8]) -> Result<PathBuf, String> {
    let written = Path::new(std::ffi::OsStr::from_bytes(written));
    let mut path = PathBuf::from("/");
    let whole = if written.is_absolute() {
        written.to_path_buf()
    } else {
        base.join(written)
    };
    for component in whole.components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir | Component::RootDir => {}
            Component::Prefix(_) => return Err("a pointer file does not hold a path".into()),
        }
    }
    Ok(path)
}
