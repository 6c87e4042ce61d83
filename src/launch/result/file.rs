//! The file of a result: where it stands is found before anything runs inside, held by a descriptor, and nothing
//! inside can change the way to it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, SFlag, fstat, fstatat};
use nix::unistd::{AccessFlags, UnlinkatFlags, access, unlinkat};

use crate::failure::Failure;
use crate::host::files::{Files, HostFiles, Kind, Look};
use crate::host::mount_table::MountTable;
use crate::launch::backend::Ready;
use crate::launch::options::current_directory;
use crate::launch::prepared::FIRST_TIMEOUT;
use crate::launch::ways::{self, Missing};
use crate::plan::{Access, Mount};
use crate::session;
use crate::sys::paths::by_descriptor;

/// Where a result goes.
#[derive(Debug)]
pub(super) struct ResultFile {
    /// As the caller named it.
    asked: PathBuf,
    directory: OwnedFd,
    /// The directory's path, without links.
    real: PathBuf,
    name: OsString,
    /// Where links stand that led there.
    links: Vec<PathBuf>,
}

impl ResultFile {
    /// # Errors
    /// There can be no such file.
    pub(super) fn new(asked: &Path) -> Result<Self> {
        let shown = asked.display();
        let whole = current_directory()?.join(asked);
        let (Some(name), Some(above)) = (whole.file_name(), whole.parent()) else {
            return Err(Failure::new(format!("--result `{shown}` names no file")).into());
        };
        let found = match HostFiles::new(FIRST_TIMEOUT).look(above) {
            Look::Found(found) if found.kind == Kind::Directory => found,
            Look::Hung => return Err(cannot(asked, "its directory does not answer")),
            Look::Denied(number) => return Err(cannot(asked, Errno::from_raw(number).desc())),
            _ => return Err(cannot(asked, "its directory does not exist")),
        };
        let directory = ways::directory(&found.real, Missing::Stays, |_| false)
            .map_err(|blocked| cannot(asked, &blocked.to_string()))?;
        let opened = fstat(&directory).context("cannot look at the directory of --result")?;
        if (opened.st_dev, opened.st_ino) != found.id {
            return Err(cannot(asked, "somebody is changing its directory"));
        }
        let may = AccessFlags::W_OK | AccessFlags::X_OK;
        access(by_descriptor(&directory).as_str(), may)
            .map_err(|errno| cannot(asked, &format!("its directory: {}", errno.desc())))?;
        let file = Self {
            asked: asked.to_owned(),
            directory,
            real: found.real,
            name: name.to_owned(),
            links: found.links.into_iter().map(|(at, _)| at).collect(),
        };
        file.is_there()?;
        Ok(file)
    }

    /// Whether there is such a file.
    fn is_there(&self) -> Result<bool> {
        match fstatat(&self.directory, self.name(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(cannot(&self.asked, errno.desc())),
            Ok(found) if found.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits() => Ok(true),
            Ok(_) => Err(cannot(
                &self.asked,
                "something stands there that is no regular file",
            )),
        }
    }

    fn name(&self) -> &OsStr {
        &self.name
    }

    /// Makes sure that the jail cannot write it, nor bend the way to it, and removes one that is there: what stands
    /// there later is of this run.
    ///
    /// # Errors
    /// It can; the file cannot be removed.
    pub(super) fn clear(&self, ready: &dyn Ready) -> Result<()> {
        let mut names = self.links.clone();
        names.push(self.real.join(&self.name));
        // The same place through another mount.
        let mounts = MountTable::read();
        let others = names.iter().flat_map(|at| mounts.other_names(at));
        let others: Vec<PathBuf> = others.map(|alias| alias.at).collect();
        names.extend(others);
        for place in writable(ready) {
            if names.iter().any(|at| at.starts_with(&place)) {
                return Err(Failure::new(format!(
                    "cannot write the result into `{}`: the jail can write in `{}`, and so could change it",
                    self.asked.display(),
                    place.display()
                ))
                .hint("name a file outside of the project and of what is writable inside")
                .into());
            }
        }
        if self.is_there()? {
            unlinkat(&self.directory, self.name(), UnlinkatFlags::NoRemoveDir).map_err(
                |errno| {
                    cannot(
                        &self.asked,
                        &format!("the one that is there cannot be removed: {}", errno.desc()),
                    )
                },
            )?;
        }
        Ok(())
    }

    /// Puts the file there, whole.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write(&self, content: &[u8]) -> Result<()> {
        let failed = || format!("cannot write the result into `{}`", self.asked.display());
        let mut temporary = OsString::from(".");
        temporary.push(&self.name);
        temporary.push(format!(".{}", session::new_id()?));
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(0o666);
        let name = temporary.as_os_str();
        let file = openat(&self.directory, name, flags, mode).with_context(failed)?;
        let written = File::from(file).write_all(content).and_then(|()| {
            Ok(renameat(
                &self.directory,
                name,
                &self.directory,
                self.name(),
            )?)
        });
        if written.is_err() {
            // It says nothing, and may be what there was no room for.
            let _ = unlinkat(&self.directory, name, UnlinkatFlags::NoRemoveDir);
        }
        written.with_context(failed)
    }
}

fn cannot(asked: &Path, why: &str) -> anyhow::Error {
    Failure::new(format!(
        "cannot write the result into `{}`: {why}",
        asked.display()
    ))
    .into()
}

/// The places outside in which the jail can write, by their real paths.
fn writable(ready: &dyn Ready) -> Vec<PathBuf> {
    let steps = ready.plan().steps.iter();
    let places = steps.filter_map(|step| match &step.mount {
        Mount::Bind { from, access, .. } => (*access != Access::Read).then(|| from.clone()),
        Mount::Kept { from, .. } => Some(from.clone()),
        // What is the jail's own is nowhere outside, but where Landlock makes it.
        mount if mount.is_writable() => Some(ready.real(&step.at)).filter(|real| *real != step.at),
        _ => None,
    });
    places.chain(ready.shared().map(Path::to_owned)).collect()
}
