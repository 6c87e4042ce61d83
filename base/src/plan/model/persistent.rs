//! What the jail keeps of its own from session to session of a project, in place of what the home
//! directory has (`home.keep`, and `[profile.state]` where `agents.state` is `"project"`).
//!
//! The store of a project is `<state directory>/kept/<project>/`, and a kept directory stands in its
//! `home/` under one name, whatever its depth below the home directory: `.local+share+tool`. Names are
//! [`flat`]: no two projects and no two places share one, and no component of a kept directory's path
//! was ever in a jail's hands. What is *in* a kept directory was written by hostile commands.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::step::Why;

/// Where the things stand that are shown below a kept directory: the directory holds links to them, so
/// that nothing is mounted at a place that another session of the same project can change.
pub const SHOWN: &str = "/run/agent-sandbox/kept";

/// All stores, below the state directory.
const STORES: &str = "kept";
/// The kept directories, in a project's store. Beside it is room for what is ours.
const HOME: &str = "home";
/// What is shown below kept directories, in a project's store. A link to [`SHOWN`] where mounts make the
/// jail.
pub const SHOWN_IN_STORE: &str = "shown";
/// The longest part of a project's name that is one directory's, in bytes; `NAME_MAX` is 255.
const LONGEST_PART: usize = 200;
/// What the further parts begin with. No flat name holds a `%` that no hexadecimal digit follows.
const FURTHER: &[u8] = b"%%";
/// In [`SHOWN`], around the places that are not in the home.
const ELSEWHERE: &str = "%elsewhere";
/// Stands for the project where there is none: nothing is launched then, and no project has this name.
const ANY_PROJECT: &str = "%PROJECT";

/// What is missing and is made at the launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Make {
    /// A directory in the home, mode 0700, with those above it.
    Directory {
        /// Its real path.
        path: PathBuf,
        /// Why.
        why: Why,
    },
    /// A file in the home, mode 0600.
    File {
        /// Its real path.
        path: PathBuf,
        /// What it holds.
        text: String,
        /// Why.
        why: Why,
    },
    /// A kept directory, mode 0700, with those above it. See `Plan::know_kept`.
    Kept {
        /// Its path in the store.
        from: PathBuf,
        /// Why.
        why: Why,
    },
}

impl Make {
    /// What is made.
    pub fn path(&self) -> &Path {
        match self {
            Self::Directory { path, .. } | Self::File { path, .. } => path,
            Self::Kept { from, .. } => from,
        }
    }

    /// Why.
    pub fn why(&self) -> &Why {
        match self {
            Self::Directory { why, .. } | Self::File { why, .. } | Self::Kept { why, .. } => why,
        }
    }

    /// Whether it stands in the home, so that the plan is made anew once it is there.
    pub fn is_in_home(&self) -> bool {
        !matches!(self, Self::Kept { .. })
    }
}

/// Keys of a JSON object that a kept file begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JsonSeed {
    /// The user's file, by its real path.
    pub from: PathBuf,
    /// The kept file, by its path in the store.
    pub to: PathBuf,
    /// The keys.
    pub keys: Vec<String>,
    /// Values that come back from the kept file: `key`, or `key.key`.
    pub back: Vec<String>,
    /// Why.
    pub why: Why,
}

/// A login file that the user has none of: one that is made inside is carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Login {
    /// Where the user would have it; nothing stands there.
    pub host: PathBuf,
    /// The kept file, by its path in the store.
    pub kept: PathBuf,
    /// Why.
    pub why: Why,
}

/// What there is to do about what is kept, besides the steps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Keeping {
    /// All stores.
    pub stores: PathBuf,
    /// The project's store; none without a project.
    pub store: Option<PathBuf>,
    /// What is made first.
    pub makes: Vec<Make>,
    /// What kept files begin with.
    pub seeds: Vec<JsonSeed>,
    /// What is carried out.
    pub logins: Vec<Login>,
}

/// The stores of all projects. `state` is the state directory.
pub fn stores(state: &Path) -> PathBuf {
    state.join(STORES)
}

/// The store of a project, by the project's real path.
pub fn store(state: &Path, project: Option<&Path>) -> PathBuf {
    let Some(project) = project else {
        return stores(state).join(ANY_PROJECT);
    };
    let name = flat(project);
    let mut parts = name.as_bytes().chunks(LONGEST_PART);
    let first = parts.next().map(OsStr::from_bytes).unwrap_or_default();
    parts.fold(stores(state).join(first), |at, part| {
        at.join(OsString::from_vec([FURTHER, part].concat()))
    })
}

/// A kept directory's path in a store; `below` is its place below the home. `None`: its name is longer
/// than a file's can be.
pub fn place_in(store: &Path, below: &Path) -> Option<PathBuf> {
    let name = flat(below);
    (name.len() <= LONGEST_PART).then(|| store.join(HOME).join(name))
}

/// How kept directories name the place of what is shown below them: the same with every backend. Where
/// bubblewrap makes the jail it is a link to [`SHOWN`].
pub fn shown_in(store: &Path) -> PathBuf {
    store.join(SHOWN_IN_STORE)
}

/// A path as one name: `/` is `+`, and `+` and `%` are escaped, so that no two paths share one.
fn flat(path: &Path) -> OsString {
    let mut name = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' if name.is_empty() => {}
            b'/' => name.push(b'+'),
            b'+' => name.extend_from_slice(b"%2B"),
            b'%' => name.extend_from_slice(b"%25"),
            byte => name.push(*byte),
        }
    }
    OsString::from_vec(name)
}

/// The name of what is shown at a place below a kept directory, in [`SHOWN`].
pub(super) fn shown_name(home: &Path, at: &Path) -> PathBuf {
    match at.strip_prefix(home) {
        Ok(below) => below.to_path_buf(),
        // A kept directory may stand out of the home, where a link of the user's leads.
        Err(_) => Path::new(ELSEWHERE).join(at.strip_prefix("/").unwrap_or(at)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const STATE: &str = "/home/ada/.local/state/agent-sandbox";

    #[test]
    fn a_path_has_one_name() {
        for (path, name) in [
            ("/home/ada/work", "home+ada+work"),
            (".local/share/tool", ".local+share+tool"),
            ("/a+b/c%2Bd", "a%2Bb+c%252Bd"),
        ] {
            assert_eq!(flat(Path::new(path)), OsStr::new(name), "{path}");
        }
    }

    #[test]
    fn no_two_projects_share_a_store() {
        let long = format!("/{}", "a".repeat(LONGEST_PART));
        let paths = [
            "/a/b",
            "/a+b",
            "/a%2Bb",
            "/a/b/c",
            "/a",
            "/a%b",
            "/home",
            "/%PROJECT",
            &long,
            &format!("{long}/home"),
            &format!("{long}%%/home"),
            &format!("{long}home"),
        ];
        let mut all: Vec<PathBuf> = paths
            .iter()
            .map(|path| store(Path::new(STATE), Some(Path::new(path))))
            .collect();
        all.push(store(Path::new(STATE), None));
        let count = all.len();
        for one in &all {
            let inside = one.join(HOME);
            assert!(
                all.iter().all(|other| !other.starts_with(&inside)),
                "{one:?}"
            );
            for part in one.strip_prefix(STATE).unwrap() {
                assert!(part.len() <= 255, "{part:?}");
            }
        }
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn kept_directories_stand_beside_each_other() {
        let store = store(Path::new(STATE), Some(Path::new("/home/ada/work")));
        let outer = place_in(&store, Path::new(".local")).unwrap();
        let inner = place_in(&store, Path::new(".local/share/tool")).unwrap();
        assert!(!inner.starts_with(&outer));
        assert_eq!(
            inner,
            Path::new(STATE).join("kept/home+ada+work/home/.local+share+tool")
        );
        assert_eq!(place_in(&store, Path::new(&"x/".repeat(101))), None);
    }
}
