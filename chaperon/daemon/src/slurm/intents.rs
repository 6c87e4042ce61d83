//! Intents: what is about to be submitted, written before the real command starts. So no job is without a
//! record, whatever ends the chaperon meanwhile: who finds the intent of a chaperon that is gone asks Slurm
//! what became of it ([`super::submitted`]). And whoever counts jobs counts those that are on their way.
//!
//! One small file each, beside the records. Its lock is held by the chaperon and by the command
//! itself: as long as one of them lives, it is theirs.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: the files of intents, and their time"
)]

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_sandbox_wire::order::Scope;
use serde::{Deserialize, Serialize};

use super::cluster;
use super::records::{self, Record};
use crate::intent::Intent;
use crate::locks;
use crate::refusal::Refusal;
use crate::session::Session;
use crate::sys::PID_DIGITS;

/// Where they are, beside the records.
const DIRECTORY: &str = "intents";

/// Where locks are not to be had, an intent belongs to nobody when it is this old.
const OLD: Duration = Duration::from_secs(3600);

/// The largest file, in bytes: a record, and some words.
const LARGEST: u64 = 512 << 10;

/// What is written beside the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The node's own short name.
    pub host: String,
    /// When, in seconds since 1970-01-01 00:00 UTC.
    pub since: u64,
    /// Whether the command is `sbatch`.
    pub batch: bool,
    /// Jobs that it can make; an array counts its tasks.
    pub jobs: u64,
}

/// An intent as it is found.
#[derive(Clone, Debug)]
pub struct StoredIntent {
    /// The file's name.
    pub name: OsString,
    /// The command's process id; 0: it did not start.
    pub pid: u32,
    /// What stands beside the record.
    pub header: Header,
    /// The record that its job gets.
    pub record: Record,
    /// The same as it is written.
    pub draft: Vec<u8>,
    /// Whether its chaperon or its command lives.
    pub alive: bool,
}

impl StoredIntent {
    /// Whether its job would be in the session's scope.
    pub fn is_within(&self, session: &Session) -> bool {
        let snapshot = &session.order.snapshot;
        let of_project = self.record.project.0 == snapshot.project;
        match session.order.scope {
            Scope::Session => of_project && self.record.session == snapshot.session,
            Scope::Project => of_project,
            Scope::User => true,
        }
    }
}

/// This node's own short name.
pub fn own_host() -> String {
    let own = nix::unistd::gethostname().unwrap_or_default();
    let own = own.to_string_lossy();
    own.split('.').next().unwrap_or_default().to_owned()
}

async fn directory(session: &Session) -> Result<PathBuf, Refusal> {
    Ok(records::of_cluster(session).await?.join(DIRECTORY))
}

/// Whether there may be any, of whatever cluster.
pub fn any(session: &Session) -> bool {
    let clusters = fs::read_dir(records::of_slurm(session))
        .into_iter()
        .flatten();
    let mut all = clusters
        .flatten()
        .filter_map(|one| fs::read_dir(one.path().join(DIRECTORY)).ok());
    all.any(|mut entries| entries.next().is_some())
}

/// Writes an intent. `draft` is what [`records::draft`] gave.
///
/// # Errors
/// It cannot be written.
pub async fn write(
    session: &Session,
    draft: &[u8],
    batch: bool,
    jobs: u64,
) -> Result<Intent, Refusal> {
    let header = Header {
        host: own_host(),
        since: records::now(),
        batch,
        jobs,
    };
    // Where Slurm does not answer the command says so in its own words. sbatch was about to be told the name.
    let cluster = match batch {
        true => session.cluster.get().map(String::as_str),
        false => cluster::name(session).await.ok(),
    };
    let directory = records::of_slurm(session)
        .join(cluster.unwrap_or(cluster::NAMELESS))
        .join(DIRECTORY);
    put(&directory, &header, draft).map_err(|error| {
        let place = directory.display();
        Refusal::mistake(format!("cannot record a job in `{place}`: {error}"))
    })
}

fn put(directory: &Path, header: &Header, draft: &[u8]) -> io::Result<Intent> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let mut random = [0u8; 8];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let name = format!("{:016x}", u64::from_ne_bytes(random));
    let aside = directory.join(format!(".{name}"));
    let mut text = vec![b'0'; PID_DIGITS];
    text.push(b'\n');
    serde_json::to_writer(&mut text, header)?;
    text.push(b'\n');
    text.extend_from_slice(draft);
    let open = || {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        options.custom_flags(libc::O_NOFOLLOW);
        options
    };
    let write = || -> io::Result<Intent> {
        // Closed, so that other nodes see it (nfs(5), close-to-open).
        open()
            .create_new(true)
            .mode(0o600)
            .open(&aside)?
            .write_all(&text)?;
        let file = open().open(&aside)?;
        // It appears when it is locked: until then it would seem to be nobody's. Without locks its age
        // tells.
        let _ = locks::try_lock(&file);
        let path = directory.join(&name);
        fs::rename(&aside, &path)?;
        Ok(Intent::new(file, path))
    };
    let written = write();
    if written.is_err() {
        let _ = fs::remove_file(&aside);
    }
    written
}

/// All intents of the user's on this cluster, this chaperon's as well.
///
/// # Errors
/// They cannot be read.
pub async fn all(session: &Session) -> Result<Vec<StoredIntent>, Refusal> {
    let directory = directory(session).await?;
    read_all(&directory).map_err(|error| {
        let place = directory.display();
        Refusal::mistake(format!("cannot read `{place}`: {error}"))
    })
}

/// Those whose chaperon is gone, and the command, too.
///
/// # Errors
/// See [`all`].
pub async fn left(session: &Session) -> Result<Vec<StoredIntent>, Refusal> {
    let mut all = all(session).await?;
    all.retain(|found| !found.alive);
    Ok(all)
}

/// Removes one that was left.
pub async fn remove(session: &Session, name: &OsStr) {
    if let Ok(directory) = directory(session).await {
        let _ = fs::remove_file(directory.join(name));
    }
}

fn read_all(directory: &Path) -> io::Result<Vec<StoredIntent>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut all = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        if !name.as_encoded_bytes().starts_with(b".") {
            all.extend(read(directory, name));
        }
    }
    Ok(all)
}

fn read(directory: &Path, name: OsString) -> Option<StoredIntent> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(directory.join(&name))
        .ok()?;
    let alive = locks::is_locked(&file).unwrap_or_else(|_| {
        let written = file.metadata().and_then(|data| data.modified());
        written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < OLD))
    });
    let mut text = Vec::new();
    (&file).take(LARGEST).read_to_end(&mut text).ok()?;
    let mut parts = text.splitn(3, |&byte| byte == b'\n');
    let pid = str::from_utf8(parts.next()?).ok()?.parse().ok()?;
    let header = serde_json::from_slice(parts.next()?).ok()?;
    let draft = parts.next()?.to_vec();
    Some(StoredIntent {
        name,
        pid,
        header,
        record: serde_json::from_slice(&draft).ok()?,
        draft,
        alive,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use super::*;
    use crate::slurm::records::{Kind, Text};

    fn draft() -> Vec<u8> {
        records::draft(&Record {
            session: "s".to_owned(),
            project: Text::from("/p"),
            submitted: 1,
            kind: Kind::Batch,
            command: Text::from("/p/a\nb"),
            cwd: Text::from("/p"),
            output: Some(Text::from(&b"\xff\n"[..])),
            error: None,
            input: None,
            array: false,
            hours: None,
        })
        .unwrap()
    }

    #[test]
    fn an_intent_is_somebodys_until_it_is_closed_and_stays_if_its_command_was_started() {
        let place = std::env::temp_dir().join(format!("intents-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        let header = Header {
            host: "n1".into(),
            since: 7,
            batch: true,
            jobs: 3,
        };
        assert!(read_all(&place).unwrap().is_empty());
        let mut one = put(&place, &header, &draft()).unwrap();
        let two = put(&place, &header, &draft()).unwrap();
        let all = read_all(&place).unwrap();
        assert_eq!(all.len(), 2);
        for found in all {
            assert!(found.alive && found.pid == 0 && found.header == header);
            assert_eq!(found.record.command, Text::from("/p/a\nb"));
            assert_eq!(found.draft, draft());
        }
        drop(two);
        // What inherits the file keeps it.
        let inherited = one.file().try_clone().unwrap();
        one.start();
        drop(one);
        assert!(read_all(&place).unwrap()[0].alive);
        drop(inherited);
        let left = read_all(&place).unwrap();
        assert!(left.len() == 1 && !left[0].alive);
        fs::remove_dir_all(&place).unwrap();
    }
}
