//! Many files, by directory: a build opens thousands, and nobody reads a list of them.

use std::collections::BTreeMap;

use super::Named;

/// More files than these are shown by directory.
const MANY: usize = 30;

/// A line of a list of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// A file, or a directory with everything below it, which ends in a slash.
    pub path: String,
    /// So many files are in it; none for a file.
    pub files: Option<usize>,
    /// So often they were opened.
    pub count: u64,
    /// What the file holds.
    pub sensitive: Option<&'static str>,
}

/// At most about [`MANY`] lines; files that hold keys and the like are always named, and come first.
#[must_use]
pub fn grouped(files: &[Named]) -> Vec<Entry> {
    let alone = |named: &Named| Entry {
        path: named.path.clone(),
        files: None,
        count: named.count,
        sensitive: named.sensitive,
    };
    let (marked, plain): (Vec<&Named>, Vec<&Named>) =
        files.iter().partition(|named| named.sensitive.is_some());
    let mut entries: Vec<Entry> = marked.into_iter().map(alone).collect();
    if plain.len() <= MANY {
        entries.extend(plain.into_iter().map(alone));
        return entries;
    }
    let mut groups: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for named in plain {
        let group = groups.entry(above(&named.path)).or_default();
        group.0 += 1;
        group.1 = group.1.saturating_add(named.count);
    }
    // The deepest directories go into those around them until the list is short.
    while groups.len() > MANY {
        let deepest = groups.keys().map(|path| depth(path)).max().unwrap_or(0);
        if deepest <= 1 {
            break;
        }
        let mut shorter: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
        for (path, (files, count)) in groups {
            let path = match depth(path) == deepest {
                true => above(path.trim_end_matches('/')),
                false => path,
            };
            let group = shorter.entry(path).or_default();
            group.0 += files;
            group.1 = group.1.saturating_add(count);
        }
        groups = shorter;
    }
    entries.extend(groups.into_iter().map(|(path, (files, count))| Entry {
        path: path.to_owned(),
        files: Some(files),
        count,
        sensitive: None,
    }));
    entries
}

/// The directory around a path, with a slash at its end; nothing around what has no slash.
fn above(path: &str) -> &str {
    path.rfind('/').map_or("", |at| &path[..=at])
}

fn depth(path: &str) -> usize {
    path.matches('/').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: String) -> Named {
        Named {
            sensitive: crate::sensitive::kind(&path).map(crate::sensitive::Kind::word),
            path,
            count: 2,
        }
    }

    #[test]
    fn few_files_are_named() {
        let files: Vec<Named> = (0..30).map(|n| named(format!("/a/{n:02}"))).collect();
        assert_eq!(grouped(&files).len(), 30);
        assert!(grouped(&files).iter().all(|entry| entry.files.is_none()));
    }

    #[test]
    fn many_files_are_directories_and_keys_are_named() {
        let mut files: Vec<Named> = (0..1000)
            .map(|n| named(format!("/usr/lib/{}/{}/{n}", n % 40, n % 7)))
            .collect();
        files.push(named("/home/ada/.ssh/id_rsa".into()));
        files.push(named("/home/ada/work/x.c".into()));
        files.push(named("memfd:x".into()));
        let entries = grouped(&files);
        assert_eq!(entries[0].path, "/home/ada/.ssh/id_rsa");
        assert_eq!(entries[0].sensitive, Some("key"));
        assert!(entries.len() <= MANY + 1, "{entries:?}");
        let lib = entries
            .iter()
            .find(|entry| entry.path == "/usr/lib/")
            .unwrap();
        assert_eq!((lib.files, lib.count), (Some(1000), 2000));
        let all: usize = entries.iter().map(|entry| entry.files.unwrap_or(1)).sum();
        assert_eq!(all, files.len());
    }

    #[test]
    fn what_has_no_directories_ends_too() {
        let files: Vec<Named> = (0..100).map(|n| named(format!("{n}"))).collect();
        assert_eq!(grouped(&files).len(), 1);
        let files: Vec<Named> = (0..100).map(|n| named(format!("/{n}/a"))).collect();
        assert_eq!(grouped(&files)[0].path, "/");
    }
}
