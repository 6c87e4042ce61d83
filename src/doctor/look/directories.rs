//! Directories of the user's and of the node's: what stands there, on which file system, and by which
//! links they are reached.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, Uid, User, access, mkstemp};

use super::super::facts::{DirectoryFacts, DirectoryState, Files};
use crate::host;
use crate::host::files::{Files as _, HostFiles, Kind, Look, real_as_far_as_it_exists};
use crate::host::slurm::{Owners, changeable};
use crate::own_directory;
use crate::session;

/// Bytes that are written to see whether there is room: a page, more than a session's record.
const SMALL: usize = 4096;

pub(super) fn look(files: &HostFiles) -> Result<Files> {
    let (home, directories) = host::directories(None)?;
    let uid = Uid::current();
    let user = User::from_uid(uid).ok().flatten();
    let state = place(files, directories.state);
    let records = match session::directory(uid.as_raw(), &state.path) {
        at if at.starts_with(&state.path) => state.clone(),
        at => place(files, at),
    };
    let local = own_directory::would_be(uid.as_raw(), &own_directory::parents());
    Ok(Files {
        other_home: user
            .map(|user| user.dir)
            .filter(|other| *other != home && other.is_absolute() && other != Path::new("/")),
        home: place(files, home),
        state_refuses: refusal(&state),
        records_refuse: refusal(&records),
        keeps: false,
        state,
        node_local: local.map(|path| place(files, path)),
        project: None,
    })
}

/// Why a small file cannot be written in a directory, or in the one in which it would be made. The file has
/// no name: nobody sees it, and it goes with this process.
fn refusal(place: &DirectoryFacts) -> Option<String> {
    let at = match place.state {
        DirectoryState::Directory { .. } => place.real.as_path(),
        // What exists of it; in the others nothing is tried.
        DirectoryState::Missing => place.real.ancestors().find(|above| above.exists())?,
        DirectoryState::Unmakeable => return Some("it cannot be made".to_owned()),
        DirectoryState::NoDirectory => return Some("it is not a directory".to_owned()),
        DirectoryState::Closed => return Some("it cannot be looked at".to_owned()),
        DirectoryState::Hung => return Some("it does not answer".to_owned()),
    };
    let mut file = match tempfile(at) {
        Ok(file) => file,
        // Not every file system has files without a name (open(2), O_TMPFILE).
        Err(Errno::EOPNOTSUPP | Errno::EISDIR | Errno::ENOENT | Errno::EINVAL) => {
            return named(at).err().map(|errno| errno.desc().to_owned());
        }
        Err(errno) => return Some(errno.desc().to_owned()),
    };
    let written = file.write_all(&[0; SMALL]).and_then(|()| file.sync_data());
    written.err().map(|error| words(&error))
}

fn tempfile(at: &Path) -> nix::Result<File> {
    let flags = OFlag::O_TMPFILE | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    open(at, flags, Mode::S_IRUSR | Mode::S_IWUSR).map(File::from)
}

/// The same with a file that has a name for a moment.
fn named(at: &Path) -> nix::Result<()> {
    let (file, path) = mkstemp(&at.join(".agent-sandbox-doctor.XXXXXX"))?;
    let _ = std::fs::remove_file(path);
    let mut file = File::from(file);
    let written = file.write_all(&[0; SMALL]).and_then(|()| file.sync_data());
    written.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
}

fn words(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => Errno::from_raw(number).desc().to_owned(),
        None => error.to_string(),
    }
}

fn place(files: &HostFiles, path: PathBuf) -> DirectoryFacts {
    let uid = Uid::current().as_raw();
    let real = real_as_far_as_it_exists(files, &path);
    let kind = files.mounts().kind_of(&real);
    let (state, links) = match files.look(&path) {
        Look::Found(found) if found.kind == Kind::Directory => {
            let state = DirectoryState::Directory {
                own: found.uid == uid,
                mode: found.mode,
                writable: access(&found.real, AccessFlags::W_OK | AccessFlags::X_OK).is_ok(),
            };
            (state, found.links)
        }
        Look::Found(found) => (DirectoryState::NoDirectory, found.links),
        Look::Missing => (makeable(&real), Vec::new()),
        Look::Denied(_) | Look::Closed(_) => (DirectoryState::Closed, Vec::new()),
        Look::Hung => (DirectoryState::Hung, Vec::new()),
    };
    let links = links.into_iter().map(|(at, _)| {
        let around = at.parent().unwrap_or(Path::new("/"));
        let open = changeable(around, Owners::Others { uid }, files).is_some();
        (at, open)
    });
    DirectoryFacts {
        links: links.collect(),
        state,
        local: kind.as_ref().is_some_and(|(_, local)| *local),
        kind: kind.map(|(kind, _)| kind),
        real,
        path,
    }
}

/// Whether a directory that is missing could be made.
fn makeable(real: &Path) -> DirectoryState {
    let around = real.ancestors().skip(1).find(|above| above.exists());
    match around {
        Some(above) if access(above, AccessFlags::W_OK | AccessFlags::X_OK).is_ok() => {
            DirectoryState::Missing
        }
        _ => DirectoryState::Unmakeable,
    }
}
