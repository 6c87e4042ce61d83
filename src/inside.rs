//! The inside of the jail, as agent-sandbox sees it when it is called there: the document that the launch
//! put in, and looks with the eyes of the process that asks. Nothing here decides about access; who is
//! misled reads another text, and has the same rights as before.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: reads the jail's document, its own status and the paths that are asked about"
)]

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, access};

use crate::env_vars;
use crate::plan::explain::inside::{DOCUMENT, Document, LONGEST, Seen};

/// What this process is told of the jail around it.
#[derive(Debug)]
pub enum Around {
    /// There is none.
    Outside,
    /// A jail, and its document.
    Jail(Box<Document>),
    /// A jail with a document of another version of agent-sandbox's.
    Unknown,
}

/// Whether this is the inside of a jail. The document stands where only root could put it outside.
/// Where Landlock makes the jail no place can be fixed, and a variable names it; it counts only where
/// the kernel says that this process is confined (`proc_pid_status(5)`).
pub fn around() -> Around {
    let named = || {
        let named = std::env::var_os(env_vars::DOCUMENT).map(PathBuf::from)?;
        is_confined().then(|| read(&named))?
    };
    let Some(text) = read(Path::new(DOCUMENT)).or_else(named) else {
        return Around::Outside;
    };
    Document::read(&text).map_or(Around::Unknown, |document| Around::Jail(document.into()))
}

/// Whether the kernel keeps this process from gaining rights, and filters its calls.
fn is_confined() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let says = |name: &str, value: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.is_some_and(|rest| rest.trim() == value)
    };
    says("NoNewPrivs:", "1") && says("Seccomp:", "2")
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let file = open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).ok()?;
    Some(text)
}

/// Opens something for reading without waiting, and without making a terminal this process's own.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW)
        .open(path)
}

/// Whether this process has a variable.
pub fn has_variable(name: &std::ffi::OsStr) -> bool {
    std::env::var_os(name).is_some()
}

/// Whether a program of this name is found here.
pub fn has_program(name: &std::ffi::OsStr) -> bool {
    let path = std::env::var_os(env_vars::PATH).unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|directory| directory.join(name));
    places.any(|program| program.is_file() && access(&program, AccessFlags::X_OK).is_ok())
}

/// The home directory as it is named here.
pub fn home() -> Option<PathBuf> {
    std::env::var_os(env_vars::HOME).map(PathBuf::from)
}

/// What this process sees at a path.
pub fn look(document: &Document, path: &Path) -> Seen {
    let Ok(real) = std::fs::canonicalize(path) else {
        return Seen::Nothing;
    };
    let Ok(meta) = std::fs::symlink_metadata(&real) else {
        return Seen::Nothing;
    };
    let may = |what| access(&real, what).is_ok();
    let readable = may(AccessFlags::R_OK);
    let kind = meta.file_type();
    // To open a device could do something; it is in the document, if it is there.
    let device = kind.is_char_device() || kind.is_block_device();
    let opened = device || readable && can_be_opened(&real);
    // Landlock lets what it keeps closed be seen to exist.
    let known = document.leads_on(&real) || document.unlisted(&real).is_some();
    let closed = !opened && !known && (readable || document.landlock);
    if closed || is_cover(document, &real, &meta) {
        return Seen::Nothing;
    }
    Seen::Something {
        readable,
        writable: may(AccessFlags::W_OK),
        real,
    }
}

/// Whether the jail lets it be opened. A socket never can be, and says so only to whom it is open.
fn can_be_opened(real: &Path) -> bool {
    match open(real) {
        Ok(_) => true,
        Err(error) => error.raw_os_error() == Some(libc::ENXIO),
    }
}

/// Whether it is the empty read-only file or directory that mounts put over something hidden.
fn is_cover(document: &Document, real: &Path, meta: &Metadata) -> bool {
    let Some(place) = document.place_around(real).filter(|place| *place != real) else {
        return false;
    };
    let elsewhere = std::fs::symlink_metadata(place).is_ok_and(|around| around.dev() != meta.dev());
    let read_only = || statvfs(real).is_ok_and(|found| found.flags().contains(FsFlags::ST_RDONLY));
    let empty = || match meta.is_dir() {
        true => std::fs::read_dir(real).is_ok_and(|mut all| all.next().is_none()),
        false => meta.len() == 0,
    };
    elsewhere && read_only() && empty()
}
