//! Files and sockets of the service itself: its configuration, what it remembers, where it listens.
#![allow(
    clippy::disallowed_methods,
    reason = "effects: the service's own files and sockets"
)]

use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail, ensure};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, bind, sendto, socket,
};
use nix::unistd::geteuid;
use tracing::warn;

use super::config::Config;
use crate::logging::TARGET;
use crate::sys::socket::listen;

/// A configuration is never longer, in bytes.
const MOST_CONFIG: u64 = 1 << 20;
/// What is remembered is never longer, in bytes: 65536 forbidden things with about 25 each, and 4096 traces.
const MOST_STATE: u64 = 256 << 20;
/// Connections that wait until they are accepted (`SOMAXCONN` bounds it, too).
const BACKLOG: i32 = 256;

/// Whether nobody but root, or who runs the service, can change it.
fn is_ours(meta: &std::fs::Metadata) -> bool {
    (meta.uid() == 0 || meta.uid() == geteuid().as_raw()) && meta.mode() & 0o022 == 0
}

/// Refuses a path that somebody else can lead elsewhere: every directory above it must be root's or of who runs
/// the service, and nobody else may write there. In one that everybody may write only their own (`/tmp`), names of
/// others are safe; the last directory must not be such a one.
pub(super) fn only_ours_above(path: &Path) -> Result<()> {
    let name = path.display();
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = std::fs::canonicalize(parent.unwrap_or(Path::new(".")))
        .with_context(|| format!("cannot look above `{name}`"))?;
    for (above, directory) in parent.ancestors().enumerate() {
        let meta = std::fs::metadata(directory)
            .with_context(|| format!("cannot look at `{}`", directory.display()))?;
        let owner = meta.uid() == 0 || meta.uid() == geteuid().as_raw();
        let sticky = above > 0 && owner && meta.mode() & libc::S_ISVTX != 0;
        ensure!(
            is_ours(&meta) || sticky,
            "others than root can replace `{name}`: they can write in `{}`",
            directory.display()
        );
    }
    Ok(())
}

/// The configuration; what it is without one where there is no such file.
///
/// # Errors
/// Somebody but root could have written it, or it makes no sense.
pub fn config(path: &Path) -> Result<Config> {
    let name = path.display().to_string();
    let mut options = File::options();
    options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Config::default()),
        Err(error) => return Err(error).with_context(|| format!("cannot read `{name}`")),
    };
    let meta = file
        .metadata()
        .with_context(|| format!("cannot read `{name}`"))?;
    ensure!(meta.is_file(), "`{name}` is not a file");
    ensure!(
        is_ours(&meta),
        "others than root can change `{name}`: chown root, chmod go-w"
    );
    only_ours_above(path)?;
    let mut text = String::new();
    file.take(MOST_CONFIG)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read `{name}`"))?;
    Ok(Config::parse(&name, &text)?)
}

/// Makes a directory that everybody can look into and that nobody else can change; the directory above it
/// must be there, or be in one that is.
///
/// # Errors
/// It cannot be made, or it is there and others can change it.
pub fn directory(path: &Path) -> Result<()> {
    let make = || -> io::Result<()> {
        if let Some(parent) = path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(parent)?;
        }
        match DirBuilder::new().mode(0o755).create(path) {
            // Whatever the umask is.
            Ok(()) => std::fs::set_permissions(path, Permissions::from_mode(0o755)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    };
    make().with_context(|| format!("cannot make `{}`", path.display()))?;
    let meta = std::fs::symlink_metadata(path)
        .with_context(|| format!("cannot look at `{}`", path.display()))?;
    ensure!(meta.is_dir(), "`{}` is not a directory", path.display());
    ensure!(
        is_ours(&meta),
        "others than root can change `{}`",
        path.display()
    );
    only_ours_above(&path.join("socket"))
}

/// That no other tracer uses this state, as long as it is kept.
#[derive(Debug)]
pub struct Lock {
    file: Flock<File>,
    /// When the last tracer was there for the last time.
    pub last: SystemTime,
}

impl Lock {
    /// The tracer is there: the file's time says when it was last.
    pub fn touch(&self) {
        // Without it the next tracer only says that it was away for longer than it was.
        let _ = self.file.set_modified(SystemTime::now());
    }

    /// Another tracer may begin.
    pub fn release(&self) {
        // It is released when the process has ended, too.
        #[expect(deprecated, reason = "`Flock` releases it by being dropped alone")]
        let _ = nix::fcntl::flock(self.file.as_raw_fd(), FlockArg::Unlock);
    }
}

/// Takes the lock of a state directory.
///
/// # Errors
/// Another tracer has it.
pub fn lock(state: &Path) -> Result<Lock> {
    let path = state.join("tracer.lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&path)
        .with_context(|| format!("cannot open `{}`", path.display()))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(file) => {
            let last = file.metadata().and_then(|meta| meta.modified());
            let last = last.with_context(|| format!("cannot look at `{}`", path.display()))?;
            Ok(Lock { file, last })
        }
        Err(_) => bail!("another tracer runs: it has `{}`", path.display()),
    }
}

fn memory(state: &Path) -> PathBuf {
    state.join("tracer.state.json")
}

/// Writes what must be known after a restart, at once or not at all.
///
/// # Errors
/// It cannot be written.
pub fn remember(state: &Path, text: &[u8]) -> Result<()> {
    let path = memory(state);
    let fresh = state.join(".tracer.state.json.new");
    let write = || -> io::Result<()> {
        let mut file = File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&fresh)?;
        file.write_all(text)?;
        std::fs::rename(&fresh, &path)
    };
    write().with_context(|| format!("cannot write `{}`", path.display()))
}

/// What was written last, if it is the service's own.
///
/// # Errors
/// It cannot be read, or others could have written it.
pub fn remembered(state: &Path) -> Result<Option<String>> {
    let path = memory(state);
    let name = path.display();
    let opened = File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(&path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read `{name}`")),
    };
    let meta = file.metadata()?;
    ensure!(
        meta.is_file() && is_ours(&meta),
        "others than root can change `{name}`"
    );
    let mut text = String::new();
    file.take(MOST_STATE)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read `{name}`"))?;
    Ok(Some(text))
}

/// Listens. Everybody may connect; who it is the kernel says. What is left of a tracer that has ended is
/// removed: the lock is held.
///
/// # Errors
/// Others could listen in its place, or the socket cannot be made.
pub fn listener(path: &Path) -> Result<OwnedFd> {
    let name = path.display();
    let parent = path.parent().context("the socket has no directory")?;
    directory(parent)?;
    match std::fs::symlink_metadata(path) {
        Ok(meta) => {
            ensure!(
                meta.file_type().is_socket(),
                "`{name}` is there and is no socket"
            );
            std::fs::remove_file(path).with_context(|| format!("cannot remove `{name}`"))?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("cannot look at `{name}`")),
    }
    let failed = |call: &str| format!("cannot listen on `{name}`: {call} failed");
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)
        .with_context(|| failed("socket(2)"))?;
    bind(socket.as_raw_fd(), &UnixAddr::new(path)?).with_context(|| failed("bind(2)"))?;
    // Nobody can connect before listen(2), so that the mode comes in time.
    std::fs::set_permissions(path, Permissions::from_mode(0o666))
        .with_context(|| format!("cannot open `{name}` to everybody"))?;
    listen(&socket, BACKLOG).with_context(|| failed("listen(2)"))?;
    Ok(socket)
}

/// Tells the service manager something, if there is one (`sd_notify(3)`).
pub fn notify(message: &str) {
    let Some(address) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let tell = || -> nix::Result<()> {
        let bytes = address.as_bytes();
        let address = match bytes.strip_prefix(b"@") {
            Some(name) => UnixAddr::new_abstract(name)?,
            None => UnixAddr::new(bytes)?,
        };
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Unix, SockType::Datagram, flags, None)?;
        sendto(
            socket.as_raw_fd(),
            message.as_bytes(),
            &address,
            MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT,
        )?;
        Ok(())
    };
    if let Err(error) = tell() {
        warn!(target: TARGET, "cannot tell the service manager: {error}");
    }
}

/// The kernel's id of this boot: marks of another one are gone.
///
/// # Errors
/// `/proc` is not there.
pub fn boot_id() -> Result<String> {
    let path = "/proc/sys/kernel/random/boot_id";
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{path}`"))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str, mode: u32) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_configuration_that_others_can_write_is_refused() {
        let all = tempfile::tempdir().unwrap();
        let path = all.path().join("tracer.toml");
        assert_eq!(config(&path).unwrap(), Config::default(), "there is none");
        write(&path, "ring_bytes = 1048576", 0o644);
        assert_eq!(config(&path).unwrap().ring_bytes, 1 << 20);
        write(&path, "ring_bytes = 1048576", 0o664);
        assert!(
            config(&path)
                .unwrap_err()
                .to_string()
                .contains("can change")
        );
        write(&path, "ring_bytes = 1048577", 0o600);
        let refused = config(&path).unwrap_err().to_string();
        assert!(refused.contains("tracer.toml:1: `ring_bytes`"), "{refused}");
        let link = all.path().join("link.toml");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(config(&link).is_err(), "links are not followed");
        write(&path, "", 0o600);
        std::fs::set_permissions(all.path(), Permissions::from_mode(0o777)).unwrap();
        assert!(
            config(&path)
                .unwrap_err()
                .to_string()
                .contains("can replace")
        );
    }

    #[test]
    fn there_is_one_tracer_and_not_two() {
        let all = tempfile::tempdir().unwrap();
        let first = lock(all.path()).unwrap();
        assert!(
            lock(all.path())
                .unwrap_err()
                .to_string()
                .contains("another tracer runs")
        );
        drop(first);
        lock(all.path()).unwrap();
    }

    #[test]
    fn what_is_remembered_is_read_again() {
        let all = tempfile::tempdir().unwrap();
        assert_eq!(remembered(all.path()).unwrap(), None);
        remember(all.path(), b"one").unwrap();
        remember(all.path(), b"two").unwrap();
        assert_eq!(remembered(all.path()).unwrap().unwrap(), "two");
        let path = memory(all.path());
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        assert!(
            remembered(all.path()).is_err(),
            "somebody else can have written it"
        );
    }

    #[test]
    fn a_socket_of_an_ended_tracer_is_replaced_and_nothing_else_is() {
        let all = tempfile::tempdir().unwrap();
        let path = all.path().join("run/tracer.sock");
        drop(listener(&path).unwrap());
        let _second = listener(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o666);
        let file = all.path().join("run/file");
        write(&file, "", 0o600);
        assert!(
            listener(&file)
                .unwrap_err()
                .to_string()
                .contains("no socket")
        );
        std::fs::set_permissions(path.parent().unwrap(), Permissions::from_mode(0o777)).unwrap();
        assert!(
            listener(&path)
                .unwrap_err()
                .to_string()
                .contains("others than root")
        );
    }
}
