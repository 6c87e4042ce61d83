//! Paths as policy files write them: absolute, below the home directory (`~/…`), or below a
//! directory that an environment variable names (`$SCRATCH/…`); `*` in the last component only,
//! so that no pattern ever walks a tree.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

pub use crate::config::parse::quote;
pub use crate::config::pattern::glob;

/// `PATH_MAX` of Linux, in bytes.
const LONGEST: usize = 4096;

/// Where a [`PathSpec`] begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Anchor {
    /// `/…`
    Root,
    /// `~` or `~/…`
    Home,
    /// `$NAME/…` or `${NAME}/…`
    Variable(String),
}

/// One path of a policy, validated but not yet expanded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathSpec {
    anchor: Anchor,
    rest: Rest,
    /// Of [`PathSpec::all_but_home`]: what is left out besides the home.
    but: Option<Arc<[PathBuf]>>,
}

/// What stands between a directory and what is left out of it: `/home/* but ~, shared`.
const BUT: &str = "/* but ";

/// A relative path, each part of which is a plain name. It is copied nowhere: what is planned names the rule that it goes back to.
#[derive(Clone, Debug)]
enum Rest {
    /// It stands in what is compiled in.
    BuiltIn(&'static Path),
    /// It is shared.
    Read(Arc<Path>),
}

impl Deref for Rest {
    type Target = Path;

    fn deref(&self) -> &Path {
        match self {
            Self::BuiltIn(path) => path,
            Self::Read(path) => path,
        }
    }
}

impl PartialEq for Rest {
    fn eq(&self, other: &Self) -> bool {
        self.as_os_str() == other.as_os_str()
    }
}

impl Eq for Rest {}

impl Hash for Rest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_os_str().hash(state);
    }
}

/// What a [`PathSpec`] is expanded with.
pub trait Expansion {
    /// The home directory.
    fn home(&self) -> &Path;
    /// The value of a variable of the launcher's own environment.
    fn variable(&self, name: &str) -> Option<&OsStr>;
    /// Another value that the variable has somewhere: what is hidden is hidden there, too.
    fn other_value(&self, _name: &str) -> Option<&OsStr> {
        None
    }
}

impl PathSpec {
    /// Reads a path as written. The error is a phrase that completes "`PATH` …".
    pub fn parse(written: &str) -> Result<Self, String> {
        Self::read(written, |rest| Rest::Read(Arc::from(rest)))
    }

    /// The same of a text that may be compiled in.
    pub fn of_text(written: Cow<'static, str>) -> Result<Self, String> {
        match written {
            Cow::Borrowed(written) => Self::read(written, Rest::BuiltIn),
            Cow::Owned(written) => Self::parse(&written),
        }
    }

    fn read<'a>(written: &'a str, keep: impl FnOnce(&'a Path) -> Rest) -> Result<Self, String> {
        if written.is_empty() {
            return Err("is empty".into());
        }
        if memchr::memchr(0, written.as_bytes()).is_some() {
            return Err("holds a NUL byte".into());
        }
        let (anchor, rest) = if let Some(rest) = written.strip_prefix('~') {
            if !rest.is_empty() && !rest.starts_with('/') {
                return Err("names another user's home; write `~/…` or an absolute path".into());
            }
            (Anchor::Home, rest)
        } else if let Some(named) = written.strip_prefix('$') {
            let (name, rest) = variable(named)?;
            if !rest.is_empty() && !rest.starts_with('/') {
                return Err("has text right after the variable; a `/` must follow it".into());
            }
            (Anchor::Variable(name.into()), rest)
        } else if written.starts_with('/') {
            (Anchor::Root, written)
        } else {
            return Err("is relative; write `/…`, `~/…` or `$NAME/…`".into());
        };
        Self::new(anchor, Path::new(rest.trim_start_matches('/')), keep)
    }

    /// Reads `DIR/* but ~`, which means all below a directory but the caller's home, with `, NAME` for each other path in
    /// the directory that is left out. `None`: it is not written so. The error is a phrase that completes "`PATH` …".
    pub fn all_but_home(written: &str) -> Option<Result<Self, String>> {
        let (directory, left_out) = written.split_once(BUT)?;
        Some(Self::read_all_but(directory, left_out))
    }

    fn read_all_but(directory: &str, left_out: &str) -> Result<Self, String> {
        let mut names = left_out.split(", ");
        if names.next() != Some("~") {
            return Err("leaves out something else than `~` first; write `DIR/* but ~`, or `DIR/* but ~, NAME`".into());
        }
        let names: Result<Vec<PathBuf>, String> = names
            .map(|name| match is_clean(name.as_bytes()) {
                true => Ok(PathBuf::from(name)),
                false => Err(format!(
                    "leaves out `{name}`, which is no plain name in the directory"
                )),
            })
            .collect();
        let spec = Self::parse(&format!("{directory}/*"))?;
        if spec.anchor != Anchor::Root {
            return Err(
                "begins with a home or a variable; name the directory in which homes are".into(),
            );
        }
        Ok(Self {
            but: Some(names?.into()),
            ..spec
        })
    }

    /// Of [`PathSpec::all_but_home`]: the directory, and what is left out besides the home.
    pub fn other_homes(&self) -> Option<(PathBuf, impl Iterator<Item = PathBuf> + use<'_>)> {
        let but = self.but.as_ref()?;
        let directory = Path::new("/").join(self.rest.parent()?);
        let names = but.iter().map({
            let directory = directory.clone();
            move |name| directory.join(name)
        });
        Some((directory, names))
    }

    /// An absolute path, taken literally but for `*` (command-line options, after the shell).
    pub fn absolute(path: &Path) -> Result<Self, String> {
        let rest = path
            .strip_prefix("/")
            .map_err(|_| "is relative".to_string())?;
        Self::new(Anchor::Root, rest, |rest| Rest::Read(Arc::from(rest)))
    }

    fn new<'a>(
        anchor: Anchor,
        rest: &'a Path,
        keep: impl FnOnce(&'a Path) -> Rest,
    ) -> Result<Self, String> {
        if rest.as_os_str().len() > LONGEST {
            return Err(format!(
                "is longer than {LONGEST} bytes, which no path can be"
            ));
        }
        // Most paths are clean as they are: checked here, rewritten below only where needed.
        let text = rest.as_os_str().as_bytes();
        if is_clean(text) {
            let rest = keep(rest);
            return Ok(Self {
                anchor,
                rest,
                but: None,
            });
        }
        let mut clean = PathBuf::new();
        let count = rest.components().count();
        for (at, component) in rest.components().enumerate() {
            match component {
                Component::Normal(name) => {
                    if name.as_bytes().contains(&b'*') && at + 1 != count {
                        return Err(
                            "has a `*` before its last component; only there may one stand".into(),
                        );
                    }
                    clean.push(name);
                }
                Component::CurDir => {}
                Component::ParentDir => {
                    return Err("contains `..`; write the path without it".into());
                }
                Component::RootDir | Component::Prefix(_) => return Err("is not a path".into()),
            }
        }
        Ok(Self {
            anchor,
            rest: Rest::Read(clean.into()),
            but: None,
        })
    }

    /// Whether it begins at the home directory.
    pub fn is_in_home(&self) -> bool {
        self.anchor == Anchor::Home && !self.rest.as_os_str().is_empty()
    }

    /// Whether it is absolute as written, and lies below this directory, whose name ends with `/`.
    pub fn is_below(&self, directory: &str) -> bool {
        let rest = self.rest.as_os_str().as_bytes();
        let inside = directory.strip_prefix('/').map(str::as_bytes);
        self.anchor == Anchor::Root && inside.is_some_and(|inside| rest.starts_with(inside))
    }

    /// Whether it is the home directory or lies below it.
    pub fn names_home(&self) -> bool {
        self.anchor == Anchor::Home
    }

    /// The variable that it begins with.
    pub fn variable(&self) -> Option<&str> {
        match &self.anchor {
            Anchor::Variable(name) => Some(name),
            Anchor::Root | Anchor::Home => None,
        }
    }

    /// Whether its last component is a pattern.
    pub fn is_pattern(&self) -> bool {
        memchr::memchr(b'*', self.rest.as_os_str().as_bytes()).is_some()
    }

    /// The absolute paths that are meant, for what is hidden: several where the whole of it is a
    /// variable that holds a list (`KUBECONFIG`), whose parts are divided by colons, or where the
    /// variable has several values.
    pub fn expand_list(&self, with: &dyn Expansion) -> impl Iterator<Item = PathBuf> + use<> {
        let (one, more) = match self.variable() {
            None => (self.expand(with), Vec::new()),
            Some(name) => {
                let values = [with.variable(name), with.other_value(name)];
                let values = values.into_iter().flatten();
                (
                    None,
                    values.flat_map(|value| self.all_behind(value)).collect(),
                )
            }
        };
        one.into_iter().chain(more)
    }

    fn all_behind(&self, value: &OsStr) -> Vec<PathBuf> {
        let text = value.as_bytes();
        if !self.rest.as_os_str().is_empty() || !text.contains(&b':') {
            return self.behind(value).into_iter().collect();
        }
        let plain = |path: &PathBuf| {
            path.is_absolute() && path.components().all(|part| part != Component::ParentDir)
        };
        text.split(|&byte| byte == b':')
            .map(|part| PathBuf::from(OsStr::from_bytes(part)))
            .filter(plain)
            .collect()
    }

    /// The absolute path; `None` if its variable is unset, empty or not absolute.
    pub fn expand(&self, with: &dyn Expansion) -> Option<PathBuf> {
        match &self.anchor {
            Anchor::Root => Some(self.below(Path::new("/"))),
            Anchor::Home => Some(self.below(with.home())),
            Anchor::Variable(name) => self.behind(with.variable(name)?),
        }
    }

    /// The path, if its variable has this value.
    fn behind(&self, value: &OsStr) -> Option<PathBuf> {
        let base = Path::new(value);
        let dotted = base.components().any(|part| part == Component::ParentDir);
        (base.is_absolute() && !dotted).then(|| self.below(base))
    }

    fn below(&self, base: &Path) -> PathBuf {
        let (base, rest) = (base.as_os_str(), self.rest.as_os_str());
        if rest.is_empty() {
            return PathBuf::from(base);
        }
        // As `Path::join` does it; the rest is never absolute.
        let mut all = OsString::with_capacity(base.len() + 1 + rest.len());
        all.push(base);
        if !base.as_bytes().ends_with(b"/") {
            all.push("/");
        }
        all.push(rest);
        all.into()
    }
}

/// Whether each part of a relative path is a plain name. An empty path has none.
fn is_clean(text: &[u8]) -> bool {
    let is_name = |part: &[u8]| !matches!(part, b"" | b"." | b"..");
    let mut from = 0;
    for slash in memchr::memchr_iter(b'/', text) {
        if !is_name(&text[from..slash]) {
            return false;
        }
        from = slash + 1;
    }
    is_name(&text[from..]) && memchr::memchr(b'*', text).is_none()
}

fn variable(named: &str) -> Result<(&str, &str), String> {
    let (name, rest) = match named.strip_prefix('{') {
        Some(braced) => braced.split_once('}').ok_or("has a `${` without its `}`")?,
        None => {
            let end = named
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .unwrap_or(named.len());
            named.split_at(end)
        }
    };
    let first = name.chars().next().ok_or("has a `$` without a name")?;
    if first.is_ascii_digit() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err("has a `$` without a valid name".into());
    }
    Ok((name, rest))
}

impl fmt::Display for PathSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.anchor {
            Anchor::Root => {}
            Anchor::Home => f.write_str("~")?,
            Anchor::Variable(name) => write!(f, "${name}")?,
        }
        if self.anchor != Anchor::Root && self.rest.as_os_str().is_empty() {
            return Ok(());
        }
        f.write_str("/")?;
        match self.rest.to_str() {
            Some(rest) => f.write_str(rest)?,
            None => write!(f, "{}", self.rest.display())?,
        }
        let Some(but) = &self.but else {
            return Ok(());
        };
        f.write_str(" but ~")?;
        but.iter()
            .try_for_each(|name| write!(f, ", {}", name.display()))
    }
}

impl Serialize for PathSpec {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn specs() {
        for bad in [
            "", "x/y", "~bob/x", "/a/../b", "/a/*/b", "$", "${X/y", "$1/x", "$Xy-z",
        ] {
            assert!(PathSpec::parse(bad).is_err(), "{bad}");
        }
        for (written, shown) in [
            ("/a//b/", "/a/b"),
            ("~", "~"),
            ("~/x", "~/x"),
            ("${S}/x", "$S/x"),
            ("/", "/"),
            ("$S", "$S"),
            ("~/./x/.", "~/x"),
            ("/a/..b/.c/...", "/a/..b/.c/..."),
        ] {
            assert_eq!(PathSpec::parse(written).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn all_but_home() {
        let read = |written: &str| PathSpec::all_but_home(written);
        for (written, shown) in [
            ("/home/* but ~", "/home/* but ~"),
            (
                "/u//a/* but ~, shared, prof/data",
                "/u/a/* but ~, shared, prof/data",
            ),
        ] {
            let spec = read(written).unwrap().unwrap();
            assert_eq!(spec.to_string(), shown);
        }
        let spec = read("/u/a/* but ~, x/y").unwrap().unwrap();
        let (directory, names) = spec.other_homes().unwrap();
        assert_eq!(directory, Path::new("/u/a"));
        assert_eq!(names.collect::<Vec<_>>(), [Path::new("/u/a/x/y")]);
        assert!(read("/home/*").is_none() && read("/home/* butter").is_none());
        for bad in [
            "/home/* but shared",
            "/home/* but ~,",
            "/home/* but ~, ",
            "/home/* but ~, ../x",
            "/home/* but ~, a*",
            "/home/* but ~, /x",
            "/home/* but ~/x",
            "~/* but ~",
            "$S/* but ~",
            "home/* but ~",
            "/h/*/* but ~",
            "/../* but ~",
        ] {
            assert!(read(bad).unwrap().is_err(), "{bad}");
        }
    }
}
