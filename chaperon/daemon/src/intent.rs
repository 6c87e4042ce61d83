//! The file of an intent, held: what is about to be submitted ([`crate::slurm::intents`]).

#![allow(clippy::disallowed_methods, reason = "effects: removes its file")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// An intent of this chaperon's. Its file is removed with it, unless its command was started.
#[derive(Debug)]
pub struct Intent {
    file: File,
    path: PathBuf,
    started: bool,
}

impl Intent {
    /// One whose command is not started yet. `file` holds its lock.
    pub fn new(file: File, path: PathBuf) -> Self {
        Self {
            file,
            path,
            started: false,
        }
    }

    /// The file, for the command that writes its process id into it and keeps it open.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// From now on the file stays until [`Intent::over`].
    pub fn start(&mut self) {
        self.started = true;
    }

    /// The job has its record, or there will be none.
    pub fn over(mut self) {
        self.started = false;
    }
}

impl Drop for Intent {
    fn drop(&mut self) {
        if !self.started {
            let _ = fs::remove_file(&self.path);
        }
    }
}
