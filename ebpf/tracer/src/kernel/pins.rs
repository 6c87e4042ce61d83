//! Where everything is pinned: `<bpffs>/agent-sandbox/<16 digits>/{maps,links,programs}/NAME`, a directory
//! an object. It comes to be under another name and is renamed when it is whole, so what is there is whole.
//!
//! Only root, or the user of the tracer, may write there: whoever can put a map into the directory decides
//! what is recorded.

#![allow(clippy::disallowed_methods, reason = "effects: the BPF file system")]

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use nix::unistd::{Pid, geteuid};

use super::settings::Error;

/// The directory below the BPF file system of a tracer that serves.
const SERVICE: &str = "agent-sandbox";

/// The directory in it of one that only tries what works; its process id follows.
const CHECK: &str = "check-";

/// What a directory is called as long as it is not whole. A dot is not allowed there (kernel/bpf/inode.c).
const NEW: &str = "-new";

/// The parts of an object. In the last one nothing is pinned: its directories are the names of programs for
/// which this kernel has no place.
const PARTS: [&str; 4] = ["maps", "links", "programs", "absent"];

/// The directory of a tracer, which no other tracer uses as long as this lives.
#[derive(Debug)]
pub(crate) struct Home {
    path: PathBuf,
    _lock: Flock<File>,
}

/// What a tracer is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It serves: what it pins outlives it.
    Serve,
    /// It only tries: what it pins goes with it.
    Check,
}

impl Home {
    /// Opens the directory below `bpffs`, with the file system under it if it is not mounted.
    pub(crate) fn open(bpffs: &Path, purpose: Purpose) -> Result<Self, Error> {
        mounted(bpffs)?;
        let service = bpffs.join(SERVICE);
        let (path, directory) = match purpose {
            Purpose::Serve => (service.clone(), own(&service)?),
            Purpose::Check => {
                own(&service)?;
                let path = service.join(format!("{CHECK}{}", Pid::this()));
                let directory = own(&path)?;
                (path, directory)
            }
        };
        sweep_out(&service);
        match Flock::lock(directory, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Self { path, _lock: lock }),
            Err((_, _)) => Err(Error::Running { path }),
        }
    }

    /// Where an object is pinned.
    pub(crate) fn of(&self, hash: &str) -> Pins {
        Pins {
            path: self.path.join(hash),
        }
    }

    /// The directories of objects other than this one.
    pub(crate) fn others(&self, hash: &str) -> Vec<Pins> {
        let Ok(entries) = fs::read_dir(&self.path) else {
            return Vec::new();
        };
        let entries = entries.flatten();
        entries
            .filter(|entry| {
                let name = entry.file_name();
                name != hash && !name.to_string_lossy().starts_with(CHECK)
            })
            .map(|entry| Pins { path: entry.path() })
            .collect()
    }

    /// Removes the directory, if nothing is in it.
    pub(crate) fn remove(self) {
        // With something in it, it stays: that is another object's.
        let _ = fs::remove_dir(&self.path);
    }
}

/// The pins of one object.
#[derive(Clone, Debug)]
pub(crate) struct Pins {
    path: PathBuf,
}

impl Pins {
    /// At a path that the tracer has handed to its child.
    pub(crate) fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there are any, and so all.
    pub(crate) fn exist(&self) -> bool {
        self.links().is_dir()
    }

    pub(crate) fn maps(&self) -> PathBuf {
        self.path.join(PARTS[0])
    }

    pub(crate) fn links(&self) -> PathBuf {
        self.path.join(PARTS[1])
    }

    pub(crate) fn programs(&self) -> PathBuf {
        self.path.join(PARTS[2])
    }

    fn absent_programs(&self) -> PathBuf {
        self.path.join(PARTS[3])
    }

    /// Notes that this kernel has no place for a program, for whoever takes the pins over.
    pub(crate) fn note_absent(&self, name: &str) -> io::Result<()> {
        make(&self.absent_programs().join(name))
    }

    /// Whether it never came to be whole.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.path.to_string_lossy().ends_with(NEW)
    }

    /// The names of the programs that are attached.
    pub(crate) fn attached(&self) -> io::Result<BTreeSet<String>> {
        names(&self.links())
    }

    /// The names of the programs for which this kernel has no place.
    pub(crate) fn absent(&self) -> io::Result<BTreeSet<String>> {
        names(&self.absent_programs())
    }

    /// An empty place to pin to; [`Pins::settle`] gives it its name.
    pub(crate) fn prepare(&self) -> io::Result<Pins> {
        let mut name = self.path.clone().into_os_string();
        name.push(NEW);
        let new = Pins { path: name.into() };
        new.remove()?;
        make(&new.path)?;
        for part in PARTS {
            make(&new.path.join(part))?;
        }
        Ok(new)
    }

    /// What was prepared is whole.
    pub(crate) fn settle(&self, new: &Pins) -> io::Result<()> {
        fs::rename(&new.path, &self.path)
    }

    /// Removes all of it: programs are detached, maps go when nobody has them open. The links go first, so
    /// that no program runs any more when its maps go.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let parts = [
            self.links(),
            self.programs(),
            self.maps(),
            self.absent_programs(),
        ];
        for part in parts {
            absent_is_fine(fs::remove_dir_all(part))?;
        }
        absent_is_fine(fs::remove_dir_all(&self.path))
    }
}

fn names(directory: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(directory)? {
        names.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn make(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(0o700)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Opens a directory that only the tracer may write, and makes it if it is not there.
fn own(path: &Path) -> Result<File, Error> {
    let failed = |error| Error::Pins {
        path: path.to_owned(),
        error,
    };
    make(path).map_err(failed)?;
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let directory = File::options()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .map_err(failed)?;
    let about = directory.metadata().map_err(failed)?;
    if about.uid() != geteuid().as_raw() || about.mode() & 0o077 != 0 {
        return Err(Error::Foreign {
            path: path.to_owned(),
        });
    }
    Ok(directory)
}

/// Mounts the BPF file system, if it is not there.
fn mounted(bpffs: &Path) -> Result<(), Error> {
    let is_there = || statfs(bpffs).is_ok_and(|about| about.filesystem_type() == BPF_FS_MAGIC);
    if is_there() {
        return Ok(());
    }
    let failed = |error| Error::NoBpffs {
        path: bpffs.to_owned(),
        error,
    };
    // At its usual place there is always a directory.
    fs::create_dir_all(bpffs).map_err(failed)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("bpf"), bpffs, Some("bpf"), flags, Some("mode=0700"))
        .map_err(|error| failed(error.into()))
}

/// Removes what a check has left behind that was killed.
fn sweep_out(service: &Path) {
    let Ok(entries) = fs::read_dir(service) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(CHECK));
        let dead = process.is_some_and(|process| {
            process.bytes().all(|byte| byte.is_ascii_digit())
                && !Path::new("/proc").join(process).exists()
        });
        if dead {
            let home = entry.path();
            for object in fs::read_dir(&home).into_iter().flatten().flatten() {
                let _ = Pins::at(&object.path()).remove();
            }
            // What stays is tried again the next time.
            let _ = fs::remove_dir(&home);
        }
    }
}
