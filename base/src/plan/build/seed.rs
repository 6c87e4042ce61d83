//! `home.seed`: private, writable copies of files of the home directory.

use std::path::{Path, PathBuf};

use super::tree::Tree;
use crate::host::files::{Files, Kind, Look};
use crate::plan::model::Mount;
use crate::plan::model::hides::Hides;

/// Bytes of one seeded file. Configuration is small; data belongs into `home.read`.
const LARGEST_FILE: usize = 4 << 20;
/// Bytes of everything below one seed, held in memory while the jail is built.
const LARGEST_SEED: usize = 32 << 20;
/// Files below one seed.
const MOST_FILES: usize = 2000;
/// Levels of directories below one seed.
const DEEPEST: usize = 16;

/// Why a seed gives nothing.
pub enum Skip {
    /// Worth a word on request.
    Quiet(&'static str),
    /// Worth refusing to start: the copy would not be whole.
    Refuse(String),
}

/// The steps that copy `path`, a file or a directory.
///
/// # Errors
/// [`Skip`]: nothing there, or more than a seed may hold.
pub fn copies(
    files: &dyn Files,
    hides: &Hides,
    tree: &Tree,
    path: &Path,
) -> Result<Vec<(PathBuf, Mount)>, Skip> {
    let found = match files.look(path) {
        Look::Found(found) => found,
        Look::Missing => return Err(Skip::Quiet("it does not exist")),
        Look::Denied(_) | Look::Closed(_) => return Err(Skip::Quiet("it cannot be read")),
        Look::Hung => return Err(Skip::Refuse("does not answer in time".into())),
    };
    if hides.rule_for_found(&found).is_some() {
        return Err(Skip::Refuse("is hidden by files.hide".into()));
    }
    if tree.access(&found.real).is_some() {
        return Err(Skip::Refuse(
            "is given as a real path, too; choose one".into(),
        ));
    }
    let mut copied = Copied {
        files,
        hides,
        steps: Vec::new(),
        bytes: 0,
    };
    copied.copy(&found.real, found.kind, 0)?;
    Ok(copied.steps)
}

struct Copied<'a> {
    files: &'a dyn Files,
    hides: &'a Hides,
    steps: Vec<(PathBuf, Mount)>,
    bytes: usize,
}

impl Copied<'_> {
    fn copy(&mut self, path: &Path, kind: Kind, depth: usize) -> Result<(), Skip> {
        if self.hides.rule_for(path).is_some() {
            return Ok(());
        }
        match kind {
            Kind::File => {
                let content = self.files.small_file(path, LARGEST_FILE).ok_or_else(|| {
                    Skip::Refuse(format!(
                        "cannot be copied: `{}` is unreadable or above 4 MiB",
                        path.display()
                    ))
                })?;
                self.bytes += content.len();
                let mount = Mount::Copy {
                    from: path.to_path_buf(),
                    content,
                    mode: 0o600,
                };
                self.steps.push((path.to_path_buf(), mount));
            }
            Kind::Directory => {
                if depth == DEEPEST {
                    return Err(Skip::Refuse(format!(
                        "is deeper than {DEEPEST} directories"
                    )));
                }
                self.steps
                    .push((path.to_path_buf(), Mount::Directory { mode: 0o700 }));
                let entries = self.files.entries(path).ok_or_else(|| {
                    Skip::Refuse(format!(
                        "cannot be copied: `{}` cannot be listed",
                        path.display()
                    ))
                })?;
                for entry in entries.iter() {
                    let child = path.join(&entry.name);
                    match (entry.kind, entry.target.clone()) {
                        (Kind::Link, Some(target)) => {
                            self.steps.push((child, Mount::Link { target }))
                        }
                        (kind, _) => self.copy(&child, kind, depth + 1)?,
                    }
                }
            }
            Kind::Link | Kind::Device | Kind::Other | Kind::Hung => {}
        }
        if self.steps.len() > MOST_FILES || self.bytes > LARGEST_SEED {
            let limit = LARGEST_SEED >> 20;
            return Err(Skip::Refuse(format!(
                "is larger than {MOST_FILES} files or {limit} MiB"
            )));
        }
        Ok(())
    }
}
