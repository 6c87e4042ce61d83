//! A file of the state directory to which chaperons on all nodes add lines of JSON, and what is locked while they do
//! (`F_OFD_SETLK`, `fcntl(2)`). The lock is another file, for the lines are written anew beside themselves.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: a file that chaperons share"
)]

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::locks;

/// How long another chaperon may hold the lock: it reads and writes a file. And how often it is tried for.
const PATIENCE: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(5);

/// How long one that is taken back waits for the lock, with all else of its chaperon.
pub const PATIENCE_BACK: Duration = Duration::from_millis(500);

/// A file of lines.
#[derive(Clone, Debug)]
pub struct LineFile {
    directory: PathBuf,
    name: &'static str,
}

/// Held while lines are counted and added. `None`: the file system has no locks.
pub type Held = Option<File>;

/// What became of an attempt at the lock.
#[derive(Debug, PartialEq, Eq)]
enum Lock {
    Held,
    Others,
    /// The file system has no locks (NFS without its lock service; Lustre without `flock`, which says `ENOSYS`).
    Unknown,
}

impl LineFile {
    /// The file of this name, which need not be there.
    pub fn new(directory: &Path, name: &'static str) -> Self {
        Self {
            directory: directory.to_owned(),
            name,
        }
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.directory.join(self.name)
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// Another holds it for too long, or its file cannot be made.
    pub async fn lock(&self) -> io::Result<Held> {
        let file = self.lock_file()?;
        let end = Instant::now() + PATIENCE;
        loop {
            match try_lock(&file)? {
                Lock::Held => return Ok(Some(file)),
                Lock::Unknown => return Ok(None),
                Lock::Others if Instant::now() >= end => return Err(io::ErrorKind::TimedOut.into()),
                Lock::Others => tokio::time::sleep(AGAIN).await,
            }
        }
    }

    /// The same where nothing else can be done meanwhile, for a short time.
    ///
    /// # Errors
    /// See [`LineFile::lock`].
    pub fn lock_now(&self) -> io::Result<Held> {
        let file = self.lock_file()?;
        let end = Instant::now() + PATIENCE_BACK;
        loop {
            match try_lock(&file)? {
                Lock::Held => return Ok(Some(file)),
                Lock::Unknown => return Ok(None),
                Lock::Others if Instant::now() >= end => return Err(io::ErrorKind::TimedOut.into()),
                Lock::Others => std::thread::sleep(AGAIN),
            }
        }
    }

    fn lock_file(&self) -> io::Result<File> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)?;
        let path = self.directory.join(format!("{}.lock", self.name));
        open(&path, |options| options.truncate(false))
    }

    /// All lines. One that was not written to its end is none.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub fn read<T: DeserializeOwned>(&self) -> io::Result<Vec<T>> {
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(self.path());
        let mut text = Vec::new();
        match opened {
            Ok(mut file) => file.read_to_end(&mut text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let lines = text.split(|&byte| byte == b'\n');
        let lines = lines.filter(|line| !line.is_empty());
        Ok(lines
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect())
    }

    /// Lines more, behind whatever stands there. NFS says only when it is synchronised that it could not be written.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn append<'a, T: Serialize + 'a>(
        &self,
        lines: impl IntoIterator<Item = &'a T>,
    ) -> io::Result<()> {
        let mut text = vec![b'\n'];
        for line in lines {
            write(&mut text, line)?;
        }
        self.add(&text)?.sync_data()
    }

    /// The same for a line that may be lost if the machine stops now.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn append_loosely<T: Serialize>(&self, line: &T) -> io::Result<()> {
        let mut text = vec![b'\n'];
        write(&mut text, line)?;
        self.add(&text).map(drop)
    }

    fn add(&self, text: &[u8]) -> io::Result<File> {
        let mut file = open(&self.path(), |options| options.append(true))?;
        file.write_all(text)?;
        Ok(file)
    }

    /// These lines in place of those that are there: all of them, or it stays as it is. Without a lock somebody may add one
    /// meanwhile, which would be lost: then it stays.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn replace<'a, T: Serialize + 'a>(
        &self,
        held: &Held,
        lines: impl IntoIterator<Item = &'a T>,
    ) -> io::Result<()> {
        if held.is_none() {
            return Ok(());
        }
        let mut text = Vec::new();
        for line in lines {
            write(&mut text, line)?;
        }
        let aside = format!(".{}.{}", self.name, std::process::id());
        let aside = self.directory.join(aside);
        let written = open(&aside, |options| options.truncate(true))
            .and_then(|mut file| {
                file.write_all(&text)?;
                file.sync_data()
            })
            .and_then(|()| fs::rename(&aside, self.path()));
        if written.is_err() {
            let _ = fs::remove_file(&aside);
        }
        written
    }
}

fn try_lock(file: &File) -> io::Result<Lock> {
    match locks::try_lock(file) {
        Ok(true) => Ok(Lock::Held),
        Ok(false) => Ok(Lock::Others),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOLCK | libc::EOPNOTSUPP | libc::ENOSYS) => Ok(Lock::Unknown),
            _ => Err(error),
        },
    }
}

fn write<T: Serialize>(text: &mut Vec<u8>, line: &T) -> io::Result<()> {
    serde_json::to_writer(&mut *text, line)?;
    text.push(b'\n');
    Ok(())
}

fn open(path: &Path, how: impl Fn(&mut OpenOptions) -> &mut OpenOptions) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    how(&mut options)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}

/// A number that nobody else has.
///
/// # Errors
/// The system gives none.
pub fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use super::*;

    /// A lock that fails for another reason than that there are none is no lock.
    #[test]
    fn only_a_file_system_without_locks_goes_without() {
        let place = std::env::temp_dir().join(format!("lines-locks-{}", std::process::id()));
        let file = LineFile::new(&place, "x");
        assert_eq!(try_lock(&file.lock_file().unwrap()).unwrap(), Lock::Held);
        // It cannot be written: fcntl(2) says EBADF.
        assert!(try_lock(&File::open(place.join("x.lock")).unwrap()).is_err());
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn lines_are_read_as_they_were_written_and_torn_ones_harm_nothing() {
        let place = std::env::temp_dir().join(format!("lines-torn-{}", std::process::id()));
        let file = LineFile::new(&place, "x");
        drop(file.lock_now().unwrap());
        assert!(file.read::<u32>().unwrap().is_empty());
        file.append(&[1, 2]).unwrap();
        let mut torn = OpenOptions::new().append(true).open(file.path()).unwrap();
        torn.write_all(b"{\"at\":17,\"id").unwrap();
        file.append(&[3]).unwrap();
        assert_eq!(file.read::<u32>().unwrap(), [1, 2, 3]);
        file.replace(&None, &[7]).unwrap();
        assert_eq!(file.read::<u32>().unwrap(), [1, 2, 3], "nobody holds it");
        file.replace(&file.lock_now().unwrap(), &[7]).unwrap();
        assert_eq!(file.read::<u32>().unwrap(), [7]);
        fs::remove_dir_all(&place).unwrap();
    }
}
