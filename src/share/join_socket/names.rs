//! The names of join sockets and of their directories.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Result, bail};

/// The longest name of a job's directory, in bytes; file systems end at 255 (`NAME_MAX`).
const LONGEST_NAME: usize = 240;

/// One job on one node. Two nodes may be one machine. The cluster has no part in it: a step that was
/// started from outside of the job is not told its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeJob {
    /// The node's name (`SLURMD_NODENAME`).
    pub node: OsString,
    /// The job's id; a component of a heterogeneous job has its own.
    pub job: u32,
}

impl NodeJob {
    /// The name of its directory; no two places have the same.
    ///
    /// # Errors
    /// It would be longer than a file's name can be.
    pub(super) fn name(&self) -> Result<String> {
        // The last dot separates; a node may have some of its own.
        let mut node = escaped(self.node.as_bytes(), b"-_.");
        if node.starts_with('.') {
            node.replace_range(..1, "=2e");
        }
        let name = format!("{node}.{}", self.job);
        if name.len() > LONGEST_NAME {
            bail!("the node's name is too long for a directory's name: `{name}`");
        }
        Ok(name)
    }
}

/// Letters, digits and what is `plain` stand for themselves, all other bytes as `=` and two
/// digits. Nothing is `=` alone.
fn escaped(text: &[u8], plain: &[u8]) -> String {
    if text.is_empty() {
        return "=".to_owned();
    }
    let each = text.iter().map(|&byte| {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("={byte:02x}")
        }
    });
    each.collect()
}

/// Whose tasks share a pid namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StepId {
    /// The batch script's.
    Batch,
    /// A step's, by its id; Slurm gives ids above 4294967200 to special steps (`slurm.h`).
    Step(u32),
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Batch => f.write_str("batch"),
            Self::Step(id) => write!(f, "step-{id}"),
        }
    }
}

impl StepId {
    fn from_name(name: &str) -> Option<Self> {
        match name.strip_prefix("step-") {
            Some(id) => id.parse().ok().map(Self::Step),
            None => (name == "batch").then_some(Self::Batch),
        }
    }
}

/// A socket in a job's directory. Its name is `ORDER.ROOM`: whoever comes later has the higher
/// number, which no clock and no file system's time stamps could say as certainly.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Door {
    pub(super) order: u64,
    pub(super) step: StepId,
}

impl Door {
    pub(super) fn name(&self) -> String {
        format!("{:010}.{}", self.order, self.step)
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        let (order, step) = name.split_once('.')?;
        let door = Self {
            order: order.parse().ok()?,
            step: StepId::from_name(step)?,
        };
        // Another spelling is another file, and none of ours.
        (door.name() == name).then_some(door)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(node: &str, job: u32) -> String {
        let node = node.into();
        NodeJob { node, job }.name().unwrap()
    }

    #[test]
    fn places_have_names_of_their_own() {
        assert_eq!(name("n1", 7), "n1.7");
        assert_eq!(name("n1.example.org", 7), "n1.example.org.7");
        let odd = [
            "", "=", "b.c", ".", "..", "=2e", ".x", "b/../c", "b c", "b=20c", "b\n", "\u{e4}",
        ];
        let mut all: Vec<String> = odd.iter().map(|node| name(node, 1)).collect();
        assert!(
            all.iter()
                .all(|name| !name.contains(['/', ' ', '\n']) && name.is_ascii())
        );
        assert!(
            all.iter()
                .all(|name| !name.starts_with('.') && name.ends_with(".1"))
        );
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), odd.len(), "{all:?}");
        let node = "n".repeat(300).into();
        assert!(NodeJob { node, job: 1 }.name().is_err());
    }

    #[test]
    fn only_our_spelling_of_a_socket_counts() {
        for step in [StepId::Batch, StepId::Step(0), StepId::Step(4_294_967_290)] {
            let door = Door { order: 12, step };
            assert_eq!(Door::from_name(&door.name()), Some(door));
        }
        for name in [
            "lock",
            "1.batch",
            "0000000001.step-01",
            "0000000001.step-",
            "0000000001.step--1",
            ".batch",
        ] {
            assert_eq!(Door::from_name(name), None, "{name}");
        }
    }
}
