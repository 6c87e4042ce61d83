//! What `proc_pid_mountinfo(5)` says.

use std::path::PathBuf;

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The mount's number, which no other mount of any namespace has meanwhile.
    pub id: u64,
    /// The device of its super block, which `stat(2)` does not always tell: major and minor.
    pub device: (u32, u32),
    /// What of the file system is mounted.
    pub root: String,
    /// The mount point.
    pub point: PathBuf,
    /// The file system's kind.
    pub kind: String,
}

/// The mounts of such a file; a last line that was cut off is none.
pub fn parse(text: &str) -> impl Iterator<Item = Mount> {
    text.lines().filter_map(line)
}

fn line(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ');
    let id = fields.next()?.parse().ok()?;
    let (major, minor) = fields.nth(1)?.split_once(':')?;
    Some(Mount {
        id,
        device: (major.parse().ok()?, minor.parse().ok()?),
        root: fields.next()?.to_owned(),
        point: PathBuf::from(plain(fields.next()?)),
        kind: after.split(' ').next()?.to_owned(),
    })
}

/// Spaces, tabs, newlines and backslashes are written as `\040` and so on.
fn plain(field: &str) -> String {
    let escapes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    let all = escapes.into_iter();
    all.fold(field.to_owned(), |text, (escape, byte)| {
        text.replace(escape, byte)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read() {
        let text = "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw\n\
                    29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
                    30 23 0:2";
        let mounts: Vec<Mount> = parse(text).collect();
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[0].point, PathBuf::from("/mnt 2"));
        assert_eq!((mounts[0].id, mounts[0].device), (36, (98, 0)));
        assert_eq!(
            (mounts[1].kind.as_str(), mounts[1].root.as_str()),
            ("cgroup2", "/")
        );
    }
}
