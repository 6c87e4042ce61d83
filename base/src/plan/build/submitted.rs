//! What a job brings from a session that Landlock jailed: paths in that session's own directory,
//! which is gone or of no use on the job's node. They become what they stood for.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::host::HostFacts;
use crate::plan::model::stage;

/// An environment with such paths replaced, also in lists like `PATH`; what led to our own things is
/// left out.
pub fn environment(host: &HostFacts, given: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let each = given.iter().filter_map(|(name, value)| {
        let parts = value.as_bytes().split(|&byte| byte == b':');
        let parts: Vec<Stood> = parts.map(|part| stood_for(&Here::of(host), part)).collect();
        if parts.iter().all(|part| matches!(part, Stood::AsItIs(_))) {
            return Some((name.clone(), value.clone()));
        }
        let left: Vec<Vec<u8>> = parts.into_iter().filter_map(Stood::left).collect();
        let value = OsString::from_vec(left.join(&b':'));
        (!left.is_empty()).then(|| (name.clone(), value))
    });
    each.collect()
}

/// A path with the same done to it; as it is if nothing stands for it here.
pub fn path(host: &HostFacts, given: &Path) -> PathBuf {
    let part = stood_for(&Here::of(host), given.as_os_str().as_bytes()).left();
    part.map_or_else(
        || given.to_path_buf(),
        |part| PathBuf::from(OsString::from_vec(part)),
    )
}

/// What of the host it takes.
struct Here<'a> {
    uid: u32,
    home: &'a Path,
    /// Where sessions have their directories.
    places: &'a [PathBuf],
}

impl<'a> Here<'a> {
    fn of(host: &'a HostFacts) -> Self {
        Self {
            uid: host.uid,
            home: &host.home,
            places: &host.join_directories,
        }
    }
}

/// What a text stands for.
enum Stood {
    AsItIs(Vec<u8>),
    For(PathBuf),
    Ours,
}

impl Stood {
    fn left(self) -> Option<Vec<u8>> {
        match self {
            Self::AsItIs(text) => Some(text),
            Self::For(path) => Some(path.into_os_string().into_vec()),
            Self::Ours => None,
        }
    }
}

fn stood_for(here: &Here<'_>, text: &[u8]) -> Stood {
    let given = Path::new(OsStr::from_bytes(text));
    let places = here.places.iter();
    let Some(below) = places
        .filter_map(|place| given.strip_prefix(place).ok())
        .next()
    else {
        return Stood::AsItIs(text.to_vec());
    };
    // The session, then what of its directory.
    let rest: PathBuf = below.components().skip(1).collect();
    let joined = |to: &Path, part: &str| {
        let rest = rest.strip_prefix(part).ok()?;
        Some(match rest.as_os_str().is_empty() {
            true => to.to_path_buf(),
            false => to.join(rest),
        })
    };
    let found = joined(here.home, stage::HOME)
        .or_else(|| joined(Path::new("/tmp"), stage::TMP))
        .or_else(|| {
            let runtime = format!("/run/user/{}", here.uid);
            joined(Path::new(&runtime), stage::RUN)
        });
    match found {
        Some(path) => Stood::For(path),
        None if rest.starts_with(stage::OWN) => Stood::Ours,
        None => Stood::AsItIs(text.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_another_session_become_what_they_stood_for() {
        let places = [PathBuf::from("/tmp/agent-sandbox-7")];
        let here = Here {
            uid: 7,
            home: Path::new("/home/ada"),
            places: &places,
        };
        for (given, expected) in [
            ("/tmp/agent-sandbox-7/landlock+a.b/home", "/home/ada"),
            (
                "/tmp/agent-sandbox-7/landlock+a.b/home/x/y",
                "/home/ada/x/y",
            ),
            ("/tmp/agent-sandbox-7/landlock+a.b/tmp/x", "/tmp/x"),
            ("/tmp/agent-sandbox-7/landlock+a.b/run", "/run/user/7"),
            ("/tmp/agent-sandbox-7/landlock+a.b/own/chaperon", ""),
            (
                "/tmp/agent-sandbox-7/landlock+a.b",
                "/tmp/agent-sandbox-7/landlock+a.b",
            ),
            (
                "/tmp/agent-sandbox-77/x/home",
                "/tmp/agent-sandbox-77/x/home",
            ),
            ("home", "home"),
            ("", ""),
        ] {
            let left = stood_for(&here, given.as_bytes()).left();
            let left = left.unwrap_or_default();
            assert_eq!(String::from_utf8_lossy(&left), expected, "{given}");
        }
    }
}
