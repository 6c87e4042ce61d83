//! Small operations on files, many to one probe: the vocabulary of most attacks.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;

use crate::probe::{Attack, c, name, outcome, tell};

pub(crate) const ATTACKS: &[Attack] = &[("operations", run)];

/// Between the words of one operation; occurs in no path.
pub(crate) const BETWEEN: char = '\u{1f}';

/// One operation: a verb and its words.
#[macro_export]
macro_rules! op {
    ($verb:literal $(, $word:expr)* $(,)?) => {{
        let mut text = String::from($verb);
        $(
            text.push($crate::operations::BETWEEN);
            text.push_str(&$crate::operations::text(&$word));
        )*
        text
    }};
}

/// A word of an operation.
pub(crate) fn text(word: &(impl AsRef<std::ffi::OsStr> + ?Sized)) -> String {
    word.as_ref()
        .to_str()
        .expect("test paths are UTF-8")
        .to_owned()
}

fn run(operations: &[String]) {
    for (at, operation) in operations.iter().enumerate() {
        let words: Vec<&str> = operation.split(BETWEEN).collect();
        tell(&at.to_string(), carry_out(&words));
    }
}

fn shown(result: std::io::Result<String>) -> String {
    match result {
        Ok(text) if text.is_empty() => "ok".to_owned(),
        Ok(text) => format!("ok:{text}"),
        Err(error) => name(&error),
    }
}

fn done<T>(result: std::io::Result<T>) -> String {
    shown(result.map(|_| String::new()))
}

/// Carries one operation out: `ok`, `ok:WHAT` or the error's name.
pub(crate) fn carry_out(words: &[&str]) -> String {
    // SAFETY (of every call below): strings that live across the call.
    match *words {
        ["read", path] => shown(read(path)),
        ["write", path] => done(fs::OpenOptions::new().write(true).open(path)),
        ["put", path, text] => done(fs::write(path, text)),
        ["append", path, text] => done(
            fs::OpenOptions::new()
                .append(true)
                .open(path)
                .and_then(|mut file| file.write_all(text.as_bytes())),
        ),
        ["create", path] => done(
            fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(path),
        ),
        ["truncate", path] => {
            let path = c(path);
            // SAFETY: a string that lives across the call.
            outcome(unsafe { libc::truncate(path.as_ptr(), 0) }.into())
        }
        ["mkdir", path] => done(fs::create_dir(path)),
        ["rmdir", path] => done(fs::remove_dir(path)),
        ["unlink", path] => done(fs::remove_file(path)),
        ["rename", from, to] => done(fs::rename(from, to)),
        ["exchange", one, other] => {
            let (one, other) = (c(one), c(other));
            // SAFETY: strings that live across the call.
            outcome(
                unsafe {
                    libc::renameat2(
                        libc::AT_FDCWD,
                        one.as_ptr(),
                        libc::AT_FDCWD,
                        other.as_ptr(),
                        libc::RENAME_EXCHANGE,
                    )
                }
                .into(),
            )
        }
        ["symlink", target, at] => done(std::os::unix::fs::symlink(target, at)),
        ["link", from, to] => done(fs::hard_link(from, to)),
        ["link-open", from, to] => link_open(from, to),
        ["chmod", mode, path] => {
            let mode = u32::from_str_radix(mode, 8).expect("an octal mode");
            done(fs::set_permissions(path, fs::Permissions::from_mode(mode)))
        }
        ["chown", path] => {
            let path = c(path);
            // SAFETY: a string that lives across the call.
            outcome(unsafe { libc::chown(path.as_ptr(), libc::getuid(), libc::getgid()) }.into())
        }
        ["utimes", path] => {
            let path = c(path);
            // SAFETY: as above; a null time means now.
            outcome(unsafe { libc::utimes(path.as_ptr(), std::ptr::null()) }.into())
        }
        ["setxattr", path] => {
            let path = c(path);
            // SAFETY: as above; one byte of value.
            outcome(
                unsafe {
                    libc::setxattr(
                        path.as_ptr(),
                        c"user.confine".as_ptr(),
                        c"x".as_ptr().cast(),
                        1,
                        0,
                    )
                }
                .into(),
            )
        }
        ["list", path] => shown(list(path)),
        ["stat", path] => shown(fs::symlink_metadata(path).map(|meta| sort(&meta).to_owned())),
        ["readlink", path] => shown(fs::read_link(path).map(|to| to.display().to_string())),
        ["connect", path] => done(UnixStream::connect(path)),
        ["mknod", path] => {
            let path = c(path);
            const FIRST_DISK: libc::dev_t = 8 << 8;
            // SAFETY: as above.
            outcome(unsafe { libc::mknod(path.as_ptr(), libc::S_IFBLK | 0o600, FIRST_DISK) }.into())
        }
        ["chdir", path] => done(std::env::set_current_dir(path)),
        _ => panic!("no operation {words:?}"),
    }
}

fn read(path: &str) -> std::io::Result<String> {
    /// Enough to recognise a secret by; files of the kernel may be endless.
    const MOST: u64 = 4096;
    let mut content = Vec::new();
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    file.take(MOST).read_to_end(&mut content)?;
    Ok(String::from_utf8_lossy(&content).into_owned())
}

fn list(path: &str) -> std::io::Result<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        names.push(String::from_utf8_lossy(entry?.file_name().as_bytes()).into_owned());
    }
    names.sort();
    Ok(names.join(","))
}

fn sort(meta: &fs::Metadata) -> &'static str {
    let kind = meta.file_type();
    match () {
        () if kind.is_dir() => "directory",
        () if kind.is_file() => "file",
        () if kind.is_symlink() => "link",
        () if kind.is_socket() => "socket",
        () if kind.is_block_device() || kind.is_char_device() => "device",
        () => "other",
    }
}

/// A hard link to an open file, by the kernel's own name for it.
fn link_open(from: &str, to: &str) -> String {
    let Ok(file) = fs::File::open(from) else {
        return "cannot be opened".to_owned();
    };
    use std::os::fd::AsRawFd;
    let from = c(&format!("/proc/self/fd/{}", file.as_raw_fd()));
    let to = c(to);
    // SAFETY: strings that live across the call.
    outcome(
        unsafe {
            libc::linkat(
                libc::AT_FDCWD,
                from.as_ptr(),
                libc::AT_FDCWD,
                to.as_ptr(),
                libc::AT_SYMLINK_FOLLOW,
            )
        }
        .into(),
    )
}
