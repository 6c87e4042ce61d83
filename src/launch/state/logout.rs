//! Logging out reaches the copies that projects have of a login. What was carried over from a file of the
//! user's is noted in the store; what the user's file does not say any more goes out of the kept file at the next
//! launch. What an agent was told inside alone was never carried over, and stays.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use serde::{Deserialize, Serialize};

use super::seeds::{self, Users};
use crate::launch::left::record;
use crate::launch::ways;

/// The notes' name in the store.
const NAME: &str = "carried.json";
/// They are no larger, in bytes: some seeds with their keys.
const LARGEST: u64 = 1 << 20;

/// Keys that a kept file has from a file of the user's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Carried {
    from: PathBuf,
    to: PathBuf,
    keys: Vec<String>,
}

/// What was carried over in a project.
#[derive(Debug)]
pub(super) struct Notes {
    all: Vec<Carried>,
    changed: bool,
}

impl Notes {
    /// Reads them.
    pub(super) fn read(store: &OwnedFd) -> Self {
        let file = ways::regular(store, OsStr::new(NAME), OFlag::O_RDONLY);
        let text = match file {
            Ok(Some(file)) => file.content(LARGEST).ok().flatten(),
            _ => None,
        };
        let all = serde_json::from_slice(&text.unwrap_or_default());
        Self {
            all: all.unwrap_or_default(),
            changed: false,
        }
    }

    /// Takes out of the kept files of a directory what the user's do not say any more. `at` is its path in
    /// the store. A file that cannot be read says nothing.
    pub(super) fn forget(&mut self, kept: &OwnedFd, at: &Path) {
        for one in &mut self.all {
            let Ok(below) = one.to.strip_prefix(at) else {
                continue;
            };
            let users = seeds::users(&one.from);
            let (gone, has): (Vec<String>, Vec<String>) =
                one.keys.drain(..).partition(|key| match &users {
                    Users::Gone => true,
                    Users::Unknown => false,
                    Users::Says(object, _) => !object.contains_key(key),
                });
            one.keys = has;
            if !gone.is_empty() {
                self.changed = true;
                if seeds::remove(&gone, kept, below).is_err() {
                    // Again at the next launch.
                    one.keys.extend(gone);
                }
            }
        }
        self.all.retain(|one| !one.keys.is_empty());
    }

    /// Notes what a kept file has of the user's now.
    pub(super) fn carried(&mut self, from: &Path, to: &Path, keys: &[String]) {
        let Users::Says(object, _) = seeds::users(from) else {
            return;
        };
        let has = keys.iter().filter(|key| object.contains_key(*key));
        let now = Carried {
            from: from.to_path_buf(),
            to: to.to_path_buf(),
            keys: has.cloned().collect(),
        };
        if now.keys.is_empty() || self.all.contains(&now) {
            return;
        }
        self.all.retain(|one| one.to != to || one.from != from);
        self.all.push(now);
        self.changed = true;
    }

    /// Writes them, if they changed. That this fails makes a later logout go unnoticed here.
    pub(super) fn write(&self, store: &OwnedFd) {
        if self.changed
            && let Ok(text) = serde_json::to_vec(&self.all)
        {
            let _ = record::replace(store, OsStr::new(NAME), &text);
        }
    }
}
