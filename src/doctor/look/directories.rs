//! Directories of the user's and of the node's: what stands there, on which file system, and by which
//! links they are reached.

use std::path::{Path, PathBuf};

use anyhow::Result;
use nix::unistd::{AccessFlags, Uid, User, access};

use super::super::facts::{Files, Place, Standing};
use crate::host;
use crate::host::files::{Files as _, HostFiles, Kind, Look, real_as_far_as_it_exists};
use crate::host::slurm::changeable;
use crate::own_directory;

pub(super) fn look(files: &HostFiles) -> Result<Files> {
    let (home, directories) = host::directories(None)?;
    let uid = Uid::current();
    let user = User::from_uid(uid).ok().flatten();
    let local = own_directory::would_be(uid.as_raw(), &own_directory::parents());
    Ok(Files {
        other_home: user
            .map(|user| user.dir)
            .filter(|other| *other != home && other.is_absolute() && other != Path::new("/")),
        home: place(files, home),
        state: place(files, directories.state),
        node_local: local.map(|path| place(files, path)),
        project: None,
    })
}

fn place(files: &HostFiles, path: PathBuf) -> Place {
    let uid = Uid::current().as_raw();
    let real = real_as_far_as_it_exists(files, &path);
    let kind = files.mounts().kind_of(&real);
    let (standing, links) = match files.look(&path) {
        Look::Found(found) if found.kind == Kind::Directory => {
            let standing = Standing::Directory {
                own: found.uid == uid,
                mode: found.mode,
                writable: access(&found.real, AccessFlags::W_OK | AccessFlags::X_OK).is_ok(),
            };
            (standing, found.links)
        }
        Look::Found(found) => (Standing::NoDirectory, found.links),
        Look::Missing => (makeable(&real), Vec::new()),
        Look::Denied(_) | Look::Closed(_) => (Standing::Closed, Vec::new()),
        Look::Hung => (Standing::Hung, Vec::new()),
    };
    let links = links.into_iter().map(|(at, _)| {
        let around = at.parent().unwrap_or(Path::new("/"));
        let open = changeable(around, uid, files).is_some();
        (at, open)
    });
    Place {
        links: links.collect(),
        standing,
        local: kind.as_ref().is_some_and(|(_, local)| *local),
        kind: kind.map(|(kind, _)| kind),
        real,
        path,
    }
}

/// Whether a directory that is missing could be made.
fn makeable(real: &Path) -> Standing {
    let around = real.ancestors().skip(1).find(|above| above.exists());
    match around {
        Some(above) if access(above, AccessFlags::W_OK | AccessFlags::X_OK).is_ok() => {
            Standing::Missing
        }
        _ => Standing::Unmakeable,
    }
}
