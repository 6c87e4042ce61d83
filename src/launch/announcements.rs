//! What Slurm itself has to say about a job (cancelled, time limit): slurmstepd writes it into the
//! file that sbatch was given as the job's output. That is the launcher's own standard output, in
//! the state directory; the job's own output goes elsewhere. The launcher reads along and hands
//! the words on, for the user to find them where Slurm would have put them.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::stat::{Mode, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::env_vars;

/// Bytes that are handed on at a time: they fit into one message to init.
const MOST: usize = 8 << 10;
/// The launcher's standard output.
const OUTPUT: &str = "/proc/self/fd/1";

/// The file, and how far it was read.
#[derive(Debug)]
pub struct Announcements {
    file: File,
    path: PathBuf,
    /// Its directory, if it is one of ours.
    directory: Option<OwnedFd>,
    /// Where this run of the job begins.
    begin: u64,
    offset: u64,
}

impl Announcements {
    /// Opens it at its present end; `None` if standard output is no regular file, as in a step.
    pub fn open() -> Option<Self> {
        if !std::fs::metadata(OUTPUT).ok()?.is_file() {
            return None;
        }
        let path = std::fs::read_link(OUTPUT).ok()?;
        let file = File::open(OUTPUT).ok()?;
        let offset = file.metadata().ok()?.len();
        // What was said in an earlier run of a job that was put back into the queue was handed on then.
        let again = std::env::var_os(env_vars::SLURM_RESTART_COUNT).is_some();
        Some(Self {
            file,
            path,
            directory: None,
            begin: if again { offset } else { 0 },
            offset,
        })
    }

    /// What stood in the file when this was opened: the words of the site's task prolog.
    pub fn before(&self) -> Vec<u8> {
        let length = self.offset.saturating_sub(self.begin);
        let length = usize::try_from(length).map_or(MOST, |all| all.min(MOST));
        let mut text = vec![0; length];
        match self.file.read_at(&mut text, self.begin) {
            Ok(read) => text.truncate(read),
            Err(_) => text.clear(),
        }
        text
    }

    /// Goes to the present end: what the launcher itself said is not Slurm's.
    pub fn skip(&mut self) {
        if let Ok(meta) = self.file.metadata() {
            self.offset = meta.len();
        }
    }

    /// What was added, at most one message; empty if nothing was.
    pub fn news(&mut self) -> Vec<u8> {
        let mut text = vec![0; MOST];
        let read = self.file.read_at(&mut text, self.offset).unwrap_or(0);
        text.truncate(read);
        self.offset += read as u64;
        text
    }

    /// Takes note that the file is one of ours if it stands below `state`, while paths still mean
    /// what they mean outside of the jail.
    pub fn belongs_to(&mut self, state: &Path) {
        let ours = std::fs::canonicalize(state).is_ok_and(|state| self.path.starts_with(state));
        let directory = self.path.parent().filter(|_| ours);
        self.directory = directory.and_then(|directory| {
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            open(directory, flags, Mode::empty()).ok()
        });
    }

    /// Removes the file if nothing stands in it and it is one of ours.
    ///
    /// # Errors
    /// What `unlinkat(2)` answers.
    pub fn remove_if_empty(self) -> io::Result<()> {
        let (Some(directory), Some(name)) = (&self.directory, self.path.file_name()) else {
            return Ok(());
        };
        let open = self.file.metadata()?;
        let named = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        if open.len() == 0 && (open.dev(), open.ino()) == (named.st_dev, named.st_ino) {
            unlinkat(directory, name, UnlinkatFlags::NoRemoveDir)?;
        }
        Ok(())
    }
}
