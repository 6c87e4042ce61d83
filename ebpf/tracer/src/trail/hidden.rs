//! What the policy of a session hides, to tell attempts on it from others: in a jail a hidden file does not exist, so that
//! opening it fails as opening any missing file does.

use std::collections::{HashMap, HashSet};

use agent_sandbox_events::pattern::glob;
use agent_sandbox_events::protocol::HiddenNames;

/// Hidden paths, by the directory that they are in.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Hidden(HashMap<Vec<u8>, Names>);

/// Names in one directory.
#[derive(Debug, Default, PartialEq, Eq)]
struct Names {
    exact: HashSet<Vec<u8>>,
    /// With `*` for any run of bytes.
    patterns: Vec<Vec<u8>>,
}

impl Hidden {
    /// As the launcher sends them.
    pub(super) fn new(all: &[HiddenNames]) -> Self {
        let mut hidden = Self::default();
        for one in all {
            let names = hidden.0.entry(one.directory.clone().into_bytes());
            let names = names.or_default();
            for name in &one.names {
                let name = name.clone().into_bytes();
                if name.contains(&b'*') {
                    names.patterns.push(name);
                } else {
                    names.exact.insert(name);
                }
            }
        }
        hidden
    }

    /// Whether the path is one of them, or lies below one. Of a relative path, as of a failed open, the directory is not
    /// known: it counts where a hidden name that begins with a dot stands in it (`.ssh/id_rsa`).
    pub(super) fn holds(&self, path: &[u8]) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let parts = components(path);
        if !path.starts_with(b"/") {
            let dotted = |part: &&[u8]| part.starts_with(b".");
            let known = |part: &[u8]| self.0.values().any(|names| names.exact.contains(part));
            return parts.into_iter().filter(dotted).any(known);
        }
        let mut directory = Vec::with_capacity(path.len());
        for part in parts {
            let above: &[u8] = if directory.is_empty() {
                b"/"
            } else {
                &directory
            };
            if self.0.get(above).is_some_and(|names| names.has(part)) {
                return true;
            }
            directory.push(b'/');
            directory.extend_from_slice(part);
        }
        false
    }
}

impl Names {
    fn has(&self, name: &[u8]) -> bool {
        self.exact.contains(name) || self.patterns.iter().any(|pattern| glob(pattern, name))
    }
}

/// The components of a path by their text: `.` is none, and `..` takes the one before it away.
fn components(path: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden() -> Hidden {
        let one = |directory: &str, names: &[&str]| HiddenNames {
            directory: directory.to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        Hidden::new(&[
            one("/home/ada", &[".ssh", "*_history", "keys"]),
            one("/home/ada/.config", &["gh"]),
            one("/", &["secrets"]),
        ])
    }

    #[test]
    fn what_is_hidden_and_what_lies_below_it_is_told() {
        for path in [
            "/home/ada/.ssh",
            "/home/ada/.ssh/id_rsa",
            "/home/ada//./x/../.ssh/id_rsa",
            "/home/ada/.bash_history",
            "/home/ada/.config/gh/hosts.yml",
            "/secrets/x",
            ".ssh/id_rsa",
            "../ada/.ssh/config",
        ] {
            assert!(hidden().holds(path.as_bytes()), "{path}");
        }
        for path in [
            "",
            "/",
            "/home/ada",
            "/home/ada/.sshx",
            "/home/ada/.ssh/../x",
            "/home/bob/.ssh",
            "/home/ada/.config/g",
            "/x/secrets",
            "keys",
            "gh/x",
        ] {
            assert!(!hidden().holds(path.as_bytes()), "{path}");
        }
        assert!(!Hidden::default().holds(b"/home/ada/.ssh"));
    }
}
