//! Files of records, of whoever may have put them there: no link is followed, nothing but regular files is opened, and of each
//! so much is read.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use bstr::ByteSlice;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{Mode, SFlag, fstat, fstatat};
use serde::{Deserialize, Serialize};

use super::LARGEST_FILE;

/// `DIR/HOST/UID/FILE`: so many directories below each other, with the first.
const DEEPEST: u32 = 3;
/// Of more files nothing is read.
const MOST_FILES: u64 = 50_000;
/// Of all files of a place so much is read, in bytes: some seconds' work. Where there is more, nothing is answered from it.
const MOST_BYTES: u64 = 1 << 30;
/// A longer line is no record, in bytes. One with a project's path is the longest.
const LONGEST_LINE: usize = 32 << 10;

/// What was not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unread {
    /// Lines that have no end: somebody writes them, or died over it.
    pub torn: u64,
    /// Lines that are no record.
    pub odd: u64,
    /// What has the name of a file of records and is none, or cannot be read.
    pub files: u64,
    /// Files that are longer than what was read of them.
    pub long: u64,
}

impl Unread {
    /// In words; none if all was read.
    pub fn told(&self) -> Option<String> {
        let parts = [
            (self.torn, "torn lines"),
            (self.odd, "lines that are no record"),
            (self.files, "names that are no readable file"),
            (self.long, "ends of very long files"),
        ];
        let parts = parts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<String> = parts
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        (!parts.is_empty()).then(|| format!("left out: {}", parts.join(", ")))
    }
}

/// Gives each line of all files of records in a directory, and below it, to `take`, which says whether it is a record. A directory
/// that is not there, or whose place has something else, has none.
///
/// # Errors
/// The directory cannot be read.
pub fn lines(directory: &Path, mut take: impl FnMut(&str) -> bool) -> Result<Unread> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
    let failed = || format!("cannot read `{}`", directory.display());
    let opened = match open(directory, flags, Mode::empty()) {
        Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(Unread::default()),
        opened => opened.with_context(failed)?,
    };
    let mut reading = Reading {
        unread: Unread::default(),
        files: 0,
        bytes: 0,
        text: Vec::new(),
    };
    reading
        .directory(&opened, DEEPEST, &mut take)
        .with_context(failed)?;
    ensure!(
        reading.bytes < MOST_BYTES,
        "there is more than 1 GiB of records in `{}`: name directories below it one by one",
        directory.display()
    );
    Ok(reading.unread)
}

struct Reading {
    unread: Unread,
    files: u64,
    bytes: u64,
    text: Vec<u8>,
}

impl Reading {
    fn directory(
        &mut self,
        directory: &OwnedFd,
        deep: u32,
        take: &mut impl FnMut(&str) -> bool,
    ) -> nix::Result<()> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut listed = Dir::openat(directory.as_fd(), ".", flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in listed.iter() {
            names.push(entry?.file_name().to_owned());
        }
        names.sort_unstable();
        for name in names {
            let bytes = name.to_bytes();
            if bytes.starts_with(b".") {
                continue;
            }
            let there = fstatat(directory, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
            let Ok(there) = there else { continue };
            let records = bytes.ends_with(b".jsonl");
            match kind(there.st_mode) {
                SFlag::S_IFDIR if deep > 1 => {
                    let flags = flags | OFlag::O_NOFOLLOW;
                    match openat(directory, name.as_c_str(), flags, Mode::empty()) {
                        Ok(below) => {
                            if self.directory(&below, deep - 1, take).is_err() {
                                self.unread.files += 1;
                            }
                        }
                        Err(_) => self.unread.files += 1,
                    }
                }
                SFlag::S_IFREG if self.bytes >= MOST_BYTES => {}
                SFlag::S_IFREG if records && self.files < MOST_FILES => {
                    self.files += 1;
                    if self.file(directory, &name, take).is_err() {
                        self.unread.files += 1;
                    }
                }
                _ if records => self.unread.files += 1,
                _ => {}
            }
        }
        Ok(())
    }

    fn file(
        &mut self,
        directory: &OwnedFd,
        name: &std::ffi::CStr,
        take: &mut impl FnMut(&str) -> bool,
    ) -> std::io::Result<()> {
        // What has come to stand there meanwhile does not block either.
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = openat(directory, name, flags, Mode::empty())?;
        if kind(fstat(&file)?.st_mode) != SFlag::S_IFREG {
            return Err(std::io::ErrorKind::InvalidInput.into());
        }
        self.text.clear();
        let mut file = File::from(file);
        (&mut file).take(LARGEST_FILE).read_to_end(&mut self.text)?;
        self.bytes += self.text.len() as u64;
        let is_cut = self.text.len() as u64 >= LARGEST_FILE;
        self.unread.long += u64::from(is_cut);
        // Looked at once, a line costs its reader a fifth less than where each of its texts is looked at.
        let mut take = |line| std::str::from_utf8(line).is_ok_and(&mut *take);
        let mut rest = self.text.as_slice();
        while let Some(end) = rest.find_byte(b'\n') {
            let line = &rest[..end];
            rest = &rest[end + 1..];
            if line.is_empty() {
                continue;
            }
            if line.len() > LONGEST_LINE || !take(line) {
                self.unread.odd += 1;
            }
        }
        // The last line may lack its end and be whole all the same.
        let torn = !rest.is_empty() && !is_cut && (rest.len() > LONGEST_LINE || !take(rest));
        self.unread.torn += u64::from(torn);
        Ok(())
    }
}

fn kind(mode: libc::mode_t) -> SFlag {
    SFlag::from_bits_truncate(mode & libc::S_IFMT)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_regular_files_are_read_and_the_rest_is_told() {
        let place = tempfile::tempdir().unwrap();
        let node = place.path().join("collected/n1/1000");
        fs::create_dir_all(&node).unwrap();
        let secret = place.path().join("secret.jsonl");
        fs::write(&secret, "secret\n").unwrap();
        fs::write(node.join("audit@n1-1.jsonl"), "one\n\ntwo\ntor").unwrap();
        fs::write(node.join("other.txt"), "no\n").unwrap();
        fs::write(node.join(".hidden.jsonl"), "no\n").unwrap();
        symlink(&secret, node.join("link.jsonl")).unwrap();
        symlink(place.path(), node.join("up")).unwrap();
        nix::unistd::mkfifo(&node.join("fifo.jsonl"), Mode::S_IRWXU).unwrap();
        // A file of no end has no room on any disk, and none in memory.
        let huge = fs::File::create(node.join("huge.jsonl")).unwrap();
        huge.set_len(1 << 40).unwrap();
        let mut found = Vec::new();
        let unread = lines(&place.path().join("collected"), |line| {
            found.push(line.to_owned());
            line != "two" && line != "tor"
        });
        assert_eq!(found, ["one", "two", "tor"]);
        let unread = unread.unwrap();
        assert_eq!(
            unread,
            Unread {
                torn: 1,
                odd: 1,
                files: 2,
                long: 1
            }
        );
        assert_eq!(
            unread.told().unwrap(),
            "left out: 1 torn lines, 1 lines that are no record, 2 names that are no readable file, 1 ends of very long files"
        );
        let none = lines(&place.path().join("none"), |_| true).unwrap();
        assert_eq!((none, none.told()), (Unread::default(), None));
    }
}
