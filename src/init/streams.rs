//! Files behind the standard streams. The agent chose their names, so nothing here runs in init:
//! the process that becomes the command opens them, confined as the command is. A name may lead to
//! `/proc`: of init nothing can be opened, for it is not dumpable. Of the opening process itself
//! only what the command gets anyway, for everything else in it is a socket, which cannot be opened;
//! but its program could be, which in a job stands on a mount of the host, and is refused.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use crate::handoff::{ErrorStream, Streams};
use crate::sys::fds;

/// Which stream could not be opened, and why.
#[derive(Debug)]
pub(super) struct Unopened<'a> {
    /// 0, 1 or 2.
    pub(super) stream: i32,
    /// The path that was asked for.
    pub(super) path: &'a [u8],
    /// The reason.
    pub(super) error: io::Error,
}

/// Puts `/dev/null` in place of the streams that will lead to files. What they led to before (a
/// file of the launcher's, outside) could be opened again through `/proc/self/fd`.
///
/// # Errors
/// What `open(2)` or `dup2(2)` answer.
pub(super) fn clear(streams: &Streams) -> io::Result<()> {
    if !streams.any() {
        return Ok(());
    }
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    let replaced = [
        streams.input.is_some(),
        streams.output.is_some(),
        streams.error != ErrorStream::AsItComes,
    ];
    for (number, replaced) in (0..).zip(replaced) {
        if replaced {
            fds::become_standard(&null, number)?;
        }
    }
    Ok(())
}

/// Opens the files and makes them the standard streams.
///
/// # Errors
/// The first that cannot be opened.
pub(super) fn open(streams: &Streams) -> Result<(), Unopened<'_>> {
    if let Some(path) = &streams.input {
        place(How(OFlag::O_RDONLY | OFlag::O_NOCTTY), 0, path)?;
    }
    // Slurm opens for appending even what it empties (slurmstepd, `io_get_file_flags`): streams and
    // steps that lead to one file do not write over each other.
    let mut output = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CREAT;
    if !streams.append {
        output |= OFlag::O_TRUNC;
    }
    // No terminal becomes the job's by being opened.
    let output = How(output | OFlag::O_NOCTTY);
    if let Some(path) = &streams.output {
        place(output, 1, path)?;
    }
    match &streams.error {
        ErrorStream::AsItComes => {}
        ErrorStream::WithOutput => {
            let unopened = |error| Unopened {
                stream: 2,
                path: streams.output.as_deref().unwrap_or_default(),
                error,
            };
            fds::become_standard(io::stdout(), 2).map_err(unopened)?;
        }
        ErrorStream::File(path) => place(output, 2, path)?,
    }
    Ok(())
}

/// How a file is opened: the flags of `open(2)` beside `O_CLOEXEC`.
#[derive(Clone, Copy)]
struct How(OFlag);

fn place(how: How, stream: i32, path: &[u8]) -> Result<(), Unopened<'_>> {
    let unopened = |error| Unopened {
        stream,
        path,
        error,
    };
    let file = open_other(how, Path::new(OsStr::from_bytes(path))).map_err(unopened)?;
    fds::become_standard(&file, stream).map_err(unopened)
}

/// Opens a file that is not this process's own program: `/proc/self/exe` leads to it, and not every
/// kernel keeps a running program from being written (`ETXTBSY` was away in Linux 6.11 and 6.12).
fn open_other(How(flags): How, path: &Path) -> io::Result<File> {
    let mode = Mode::from_bits_truncate(0o666);
    // What is emptied is looked at first.
    let open = || nix::fcntl::open(path, (flags - OFlag::O_TRUNC) | OFlag::O_CLOEXEC, mode);
    let file: File = match open() {
        // As slurmstepd does it since Slurm 23.02 (`mkdirpath` in io.c). Older ones give up here.
        Err(Errno::ENOENT) if flags.contains(OFlag::O_CREAT) => {
            let above = path.parent().unwrap_or(path);
            // Why it cannot be made, the second try says.
            let _ = DirBuilder::new().recursive(true).mode(0o755).create(above);
            open()?
        }
        opened => opened?,
    }
    .into();
    let (meta, own) = (file.metadata()?, std::fs::metadata("/proc/self/exe")?);
    if (meta.dev(), meta.ino()) == (own.dev(), own.ino()) {
        return Err(io::Error::from_raw_os_error(libc::EACCES));
    }
    if flags.contains(OFlag::O_TRUNC) && meta.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}
