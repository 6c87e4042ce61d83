//! A host's files, in memory: directories, files, links, devices, sockets, paths that hang.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use agent_sandbox::host::files::{Entry, Files, Found, Kind, Look};
use agent_sandbox::host::mount_table::Alias;

/// Owner of everything that no test gives to somebody else.
pub(crate) const OWNER: u32 = 1000;
/// As many links as the kernel follows in one path.
const MOST_LINKS: usize = 40;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Directory,
    File(Vec<u8>),
    Link(PathBuf),
    Device,
    Socket,
    /// Answers nothing, neither itself nor below.
    Hung,
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) what: What,
    pub(crate) readable: bool,
    uid: u32,
    mode: u32,
    number: u64,
}

/// The whole file system, by real paths.
#[derive(Debug)]
pub(crate) struct Tree {
    nodes: BTreeMap<PathBuf, Node>,
    /// Directories that stand elsewhere as well.
    aliases: Vec<Alias>,
    /// Every path that was ever asked about, for tests of what is never looked at.
    asked: RefCell<Vec<PathBuf>>,
}

impl Clone for Tree {
    fn clone(&self) -> Self {
        Self {
            nodes: self.nodes.clone(),
            aliases: self.aliases.clone(),
            asked: RefCell::default(),
        }
    }
}

impl Default for Tree {
    fn default() -> Self {
        let mut tree = Self {
            nodes: BTreeMap::new(),
            aliases: Vec::new(),
            asked: RefCell::default(),
        };
        assert!(tree.put("/", What::Directory));
        tree
    }
}

impl Tree {
    /// Puts something somewhere and makes the directories above it. Refuses, by `false`, to change
    /// what is there and to put anything below what is no directory.
    pub(crate) fn put(&mut self, path: impl AsRef<Path>, what: What) -> bool {
        let path = path.as_ref();
        assert!(path.is_absolute(), "{}", path.display());
        if self.nodes.contains_key(path) {
            return false;
        }
        if let Some(parent) = path.parent() {
            if !self.nodes.contains_key(parent) && !self.put(parent, What::Directory) {
                return false;
            }
            if self.nodes[parent].what != What::Directory {
                return false;
            }
        }
        let node = Node {
            what,
            readable: true,
            uid: OWNER,
            mode: 0o755,
            number: self.nodes.len() as u64 + 1,
        };
        self.nodes.insert(path.to_owned(), node);
        true
    }

    #[track_caller]
    fn with(mut self, path: &str, what: What) -> Self {
        assert!(self.put(path, what), "{path} cannot be put there");
        self
    }

    /// What stands at `of` is mounted at `at` as well.
    pub(crate) fn mounted(mut self, at: &str, of: &str) -> Self {
        let (at, of) = (at.into(), of.into());
        self.aliases.push(Alias { at, of });
        self
    }

    pub(crate) fn directory(self, path: &str) -> Self {
        self.with(path, What::Directory)
    }

    pub(crate) fn file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        let content = content.as_ref().to_vec();
        self.with(path, What::File(content))
    }

    pub(crate) fn link(self, path: &str, target: &str) -> Self {
        self.with(path, What::Link(target.into()))
    }

    pub(crate) fn device(self, path: &str) -> Self {
        self.with(path, What::Device)
    }

    pub(crate) fn socket(self, path: &str) -> Self {
        self.with(path, What::Socket)
    }

    pub(crate) fn hung(self, path: &str) -> Self {
        self.with(path, What::Hung)
    }

    /// A directory may not be searched, a file not be read.
    #[track_caller]
    pub(crate) fn unreadable(mut self, path: &str) -> Self {
        self.nodes.get_mut(Path::new(path)).unwrap().readable = false;
        self
    }

    pub(crate) fn make_unreadable(&mut self, path: &Path) {
        if let Some(node) = self.nodes.get_mut(path) {
            node.readable = false;
        }
    }

    pub(crate) fn owned_by(mut self, path: &str, uid: u32) -> Self {
        self.nodes.get_mut(Path::new(path)).unwrap().uid = uid;
        self
    }

    pub(crate) fn with_mode(mut self, path: &str, mode: u32) -> Self {
        self.nodes.get_mut(Path::new(path)).unwrap().mode = mode;
        self
    }

    /// Takes something away, with all that is below.
    pub(crate) fn without(mut self, path: &str) -> Self {
        self.nodes.retain(|at, _| !at.starts_with(path));
        self
    }

    pub(crate) fn get(&self, real: &Path) -> Option<&Node> {
        self.nodes.get(real)
    }

    /// Whether root alone can have made what stands in a directory.
    pub(crate) fn is_roots(&self, directory: &Path) -> bool {
        directory.ancestors().all(|at| {
            let node = self.nodes.get(at);
            node.is_some_and(|node| owner(at, node) == 0 && node.mode & 0o022 == 0)
        })
    }

    /// Everything at and below a real path.
    pub(crate) fn below<'a>(
        &'a self,
        real: &'a Path,
    ) -> impl Iterator<Item = (&'a PathBuf, &'a Node)> {
        self.nodes
            .iter()
            .filter(move |(at, _)| at.starts_with(real))
    }

    pub(crate) fn was_asked(&self, path: &str) -> bool {
        self.asked
            .borrow()
            .iter()
            .any(|asked| asked == Path::new(path))
    }

    /// The real path and the links on the way, or why there is none.
    fn walk(&self, path: &Path) -> Result<(PathBuf, Vec<(PathBuf, PathBuf)>), Look> {
        let mut here = PathBuf::from("/");
        let mut links = Vec::new();
        let mut ahead: VecDeque<OsString> = VecDeque::new();
        let names = |path: &Path| -> Vec<OsString> {
            path.components()
                .filter_map(|part| match part {
                    Component::Normal(name) => Some(name.to_owned()),
                    Component::ParentDir => Some("..".into()),
                    _ => None,
                })
                .collect()
        };
        ahead.extend(names(path));
        loop {
            let node = self.nodes.get(&here).ok_or(Look::Missing)?;
            match &node.what {
                What::Hung => return Err(Look::Hung),
                What::Directory if !ahead.is_empty() && !node.readable => {
                    // The owner could open it again.
                    let own = node.uid == OWNER && here.components().count() > 2;
                    return Err(if own {
                        Look::Closed(here)
                    } else {
                        Look::Denied(libc::EACCES)
                    });
                }
                What::Directory => {}
                What::Link(target) => {
                    if links.len() == MOST_LINKS {
                        return Err(Look::Denied(libc::ELOOP));
                    }
                    links.push((here.clone(), target.clone()));
                    here.pop();
                    if target.is_absolute() {
                        here = PathBuf::from("/");
                    }
                    for name in names(target).into_iter().rev() {
                        ahead.push_front(name);
                    }
                }
                _ if !ahead.is_empty() => return Err(Look::Missing),
                _ => {}
            }
            match ahead.pop_front() {
                None => return Ok((here, links)),
                Some(name) if name == ".." => drop(here.pop()),
                Some(name) => here.push(name),
            }
        }
    }

    /// The real path of something that can be looked at.
    pub(crate) fn resolve(&self, path: &Path) -> Option<PathBuf> {
        self.walk(path).ok().map(|(real, _)| real)
    }

    /// The real path of something, existing or not: what exists of it, with links followed, and the
    /// rest as it is.
    pub(crate) fn real(&self, path: &Path) -> PathBuf {
        for above in path.ancestors() {
            if let Ok((real, _)) = self.walk(above) {
                let rest = path.strip_prefix(above).unwrap();
                // Not `join("")`, which appends a slash.
                return rest.components().fold(real, |real, part| real.join(part));
            }
        }
        path.to_owned()
    }
}

/// The root and what stands in it is root's.
fn owner(real: &Path, node: &Node) -> u32 {
    match real.components().count() {
        0..=2 => 0,
        _ => node.uid,
    }
}

fn kind(what: &What) -> Kind {
    match what {
        What::Directory | What::Hung => Kind::Directory,
        What::File(_) => Kind::File,
        What::Link(_) => Kind::Link,
        What::Device => Kind::Device,
        What::Socket => Kind::Other,
    }
}

impl Files for Tree {
    fn prefetch(&self, _: &[PathBuf]) {}

    fn look(&self, path: &Path) -> Look {
        self.asked.borrow_mut().push(path.to_owned());
        match self.walk(path) {
            Err(look) => look,
            Ok((real, links)) => {
                let node = &self.nodes[&real];
                Look::Found(Found {
                    kind: kind(&node.what),
                    id: (1, node.number),
                    uid: owner(&real, node),
                    mode: node.mode,
                    readable: node.readable,
                    real,
                    links,
                })
            }
        }
    }

    fn entries(&self, directory: &Path) -> Option<Rc<[Entry]>> {
        self.asked.borrow_mut().push(directory.to_owned());
        let (real, _) = self.walk(directory).ok()?;
        let node = &self.nodes[&real];
        if node.what != What::Directory || !node.readable {
            return None;
        }
        // `BTreeMap<PathBuf, _>` sorts by components, so names come out sorted.
        let children = self
            .below(&real)
            .filter(|(at, _)| at.parent() == Some(&real));
        Some(
            children
                .map(|(at, node)| Entry {
                    name: at.file_name().unwrap().to_owned(),
                    kind: kind(&node.what),
                    target: match &node.what {
                        What::Link(target) => Some(target.clone()),
                        _ => None,
                    },
                })
                .collect(),
        )
    }

    fn small_file(&self, path: &Path, most: usize) -> Option<Vec<u8>> {
        self.asked.borrow_mut().push(path.to_owned());
        match self.walk(path) {
            Ok((real, links)) if real == path && links.is_empty() => {
                let node = &self.nodes[&real];
                match &node.what {
                    What::File(content) if node.readable && content.len() <= most => {
                        Some(content.clone())
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn mounted_elsewhere(&self, real: &Path, _: &[PathBuf]) -> Vec<Alias> {
        let all = self.aliases.iter();
        all.filter(|alias| alias.of.starts_with(real))
            .cloned()
            .collect()
    }
}
