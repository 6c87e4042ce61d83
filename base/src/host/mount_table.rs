//! The mounts of this process (`proc_pid_mountinfo(5)`): which of them may not answer, and under
//! which other names a directory appears.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use bstr::ByteSlice;

use super::found::is_plain;
use super::unsized_file;

/// File systems of this machine alone, which always answer (`filesystems(5)`). Any other may wait
/// for a server, or for a daemon.
const LOCAL: [&str; 27] = [
    "bpf",
    "btrfs",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "erofs",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "hugetlbfs",
    "mqueue",
    "overlay",
    "proc",
    "pstore",
    "ramfs",
    "securityfs",
    "squashfs",
    "sysfs",
    "tmpfs",
    "tracefs",
    "xfs",
    "zfs",
];

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Mounted {
    /// `MAJOR:MINOR` of the file system, or its name on a server.
    device: Vec<u8>,
    /// The directory of the file system that is mounted.
    root: PathBuf,
    /// The mount point.
    at: PathBuf,
    /// The type of the file system.
    kind: Vec<u8>,
}

/// All mounts, in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountTable(Option<Vec<Mounted>>);

impl MountTable {
    /// Reads `/proc/self/mountinfo`.
    pub fn read() -> Self {
        let text = unsized_file::read("/proc/self/mountinfo", u64::MAX);
        Self(text.ok().map(|text| parse(&text)))
    }

    /// The table of this text of a `mountinfo` file.
    pub fn of(text: &[u8]) -> Self {
        Self(Some(parse(text)))
    }

    /// Where something is mounted that another table does not have; everywhere, if this one could not
    /// be read.
    pub fn missing_in(&self, other: &Self) -> Vec<PathBuf> {
        let Some(all) = &self.0 else {
            return vec![PathBuf::from("/")];
        };
        let known: HashSet<&Mounted> = other.0.iter().flatten().collect();
        let new = all.iter().filter(|mount| !known.contains(mount));
        new.map(|mount| mount.at.clone()).collect()
    }

    /// The mount points of file systems that may not answer; where the table could not be read,
    /// the root.
    pub fn may_hang(&self) -> HashSet<PathBuf> {
        let Some(all) = &self.0 else {
            return HashSet::from([PathBuf::from("/")]);
        };
        let local = |mount: &&Mounted| !LOCAL.iter().any(|local| local.as_bytes() == mount.kind);
        all.iter()
            .filter(local)
            .map(|mount| mount.at.clone())
            .collect()
    }

    /// Where an automounter makes directories when they are asked for (autofs(5)).
    pub fn automounts(&self) -> HashSet<PathBuf> {
        let all = self.0.iter().flatten();
        all.filter(|mount| mount.kind == b"autofs")
            .map(|mount| mount.at.clone())
            .collect()
    }

    /// The type of the file system on which a path lies, and whether it is one of this machine alone.
    /// `real` is a path without symbolic links.
    pub fn kind_of(&self, real: &Path) -> Option<(String, bool)> {
        let all = self.0.as_deref().unwrap_or_default();
        let over = all.iter().filter(|mount| real.starts_with(&mount.at));
        // Of several mounts on one place the last covers the others.
        let own = over.max_by_key(|mount| mount.at.components().count())?;
        let local = LOCAL.iter().any(|local| local.as_bytes() == own.kind);
        Some((String::from_utf8_lossy(&own.kind).into_owned(), local))
    }

    /// Where a directory, or something that is below it, is mounted elsewhere, or below one of the directories `besides` in it.
    /// An automounter may have mounted a thousand homes in it, so that what is elsewhere is compared with each, and not each
    /// with all.
    pub fn elsewhere(&self, real: &Path, besides: &[PathBuf]) -> Vec<Alias> {
        let is_besides = |at: &Path| {
            besides
                .iter()
                .any(|directory| at != directory && at.starts_with(directory))
        };
        let is_elsewhere = |at: &Path| !at.starts_with(real) || is_besides(at);
        let all = self.0.as_deref().unwrap_or_default();
        // Of several mounts on one place the last covers the others.
        let over = all.iter().filter(|mount| real.starts_with(&mount.at));
        let own = over.max_by_key(|mount| mount.at.components().count());
        let own = own.and_then(|own| {
            let root = own.root.join(real.strip_prefix(&own.at).ok()?);
            Some((&own.device, root, real))
        });
        let inside = all.iter().filter(|mount| mount.at.starts_with(real));
        let inside = inside.filter(|mount| mount.at != real);
        let inside = inside.map(|mount| (&mount.device, mount.root.clone(), mount.at.as_path()));
        let parts: Vec<(&Vec<u8>, PathBuf, &Path)> = own.into_iter().chain(inside).collect();
        let mut names: Vec<Alias> = Vec::new();
        for mount in all.iter().filter(|mount| is_elsewhere(&mount.at)) {
            for (_, root, at) in parts.iter().filter(|(device, ..)| **device == mount.device) {
                let alias = match root.strip_prefix(&mount.root) {
                    Ok(rest) => (mount.at.join(rest), at.to_path_buf()),
                    Err(_) => match mount.root.strip_prefix(root) {
                        Ok(rest) => (mount.at.clone(), at.join(rest)),
                        Err(_) => continue,
                    },
                };
                // Without the trailing slash that joining nothing leaves.
                let (at, of): (PathBuf, PathBuf) = (
                    alias.0.components().collect(),
                    alias.1.components().collect(),
                );
                names.push(Alias { at, of });
            }
        }
        names.retain(|alias| alias.at != alias.of && is_elsewhere(&alias.at));
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Other paths at which a directory, or some directory below it, appears: a home directory that
    /// is mounted at `/home/ada` and reachable below `/nfs/home`, too. `real` is a path without
    /// symbolic links.
    pub fn other_names(&self, real: &Path) -> Vec<Alias> {
        let all = self.0.as_deref().unwrap_or_default();
        // Of several mounts on one place the last covers the others.
        let over = all.iter().filter(|mount| real.starts_with(&mount.at));
        let Some(own) = over.max_by_key(|mount| mount.at.components().count()) else {
            return Vec::new();
        };
        let Ok(below) = real.strip_prefix(&own.at) else {
            return Vec::new();
        };
        let inside = own.root.join(below);
        let mut names: Vec<Alias> = all
            .iter()
            .filter(|mount| mount.device == own.device)
            .filter_map(|mount| {
                let (at, of) = match inside.strip_prefix(&mount.root) {
                    Ok(rest) => (mount.at.join(rest), real.to_path_buf()),
                    Err(_) => (
                        mount.at.clone(),
                        real.join(mount.root.strip_prefix(&inside).ok()?),
                    ),
                };
                // Without the trailing slash that joining nothing leaves.
                let (at, of): (PathBuf, PathBuf) =
                    (at.components().collect(), of.components().collect());
                Some(Alias { at, of })
            })
            .filter(|alias| alias.at != alias.of)
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// Another path of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alias {
    /// The other path.
    pub at: PathBuf,
    /// The path that it stands for.
    pub of: PathBuf,
}

impl Alias {
    /// The other path of something: `None` if it has none by this alias.
    pub fn name_of(&self, path: &Path) -> Option<PathBuf> {
        if self.of.starts_with(path) {
            return Some(self.at.clone());
        }
        let named = self.at.join(path.strip_prefix(&self.of).ok()?);
        // Most paths are written plainly, and a plan asks of a thousand.
        match is_plain(&named) {
            true => Some(named),
            false => Some(named.components().collect()),
        }
    }
}

/// Where something is mounted, by the text of a `mountinfo` file.
pub fn places(text: &[u8]) -> Vec<PathBuf> {
    parse(text).into_iter().map(|mount| mount.at).collect()
}

/// Where a file system of this type is mounted as a whole, by the text of a `mountinfo` file.
pub fn place_of(text: &[u8], kind: &str) -> Option<PathBuf> {
    let mut all = parse(text).into_iter();
    let found = all.find(|one| one.kind == kind.as_bytes() && one.root == Path::new("/"))?;
    Some(found.at)
}

fn parse(text: &[u8]) -> Vec<Mounted> {
    text.split(|&byte| byte == b'\n').filter_map(line).collect()
}

/// A line that cannot be read counts for nothing: the kernel writes none.
fn line(line: &[u8]) -> Option<Mounted> {
    let separator = line.find(" - ")?;
    let mut after = line[separator + 3..].split(|&byte| byte == b' ');
    let kind = after.next()?;
    let source = unescape(after.next().unwrap_or_default());
    let mut fields = line[..separator].split(|&byte| byte == b' ');
    let device = fields.nth(2)?.to_vec();
    let root = path(fields.next()?);
    let at = path(fields.next()?);
    let (device, root) = on_server(kind, &source, &root).unwrap_or((device, root));
    Some(Mounted {
        device,
        root,
        at,
        kind: kind.to_vec(),
    })
}

/// Which file system of a server is mounted, and which directory of it, where the number and the root do not say so. Of each mount
/// of NFS, a bind too, the root is `/`, and the source names the directory (`nfs_show_path` and `nfs_show_devname`,
/// fs/nfs/super.c); what is mounted once read-only and once not has two numbers. Each mount of Lustre has a number of its own, and
/// its source may name a directory (mount.lustre(8), `MGS:/FSNAME/DIRECTORY`).
fn on_server(kind: &[u8], source: &[u8], root: &Path) -> Option<(Vec<u8>, PathBuf)> {
    let (server, path) = source.split_once_str(":/")?;
    let directory =
        |bytes: &[u8]| Path::new("/").join(PathBuf::from(OsString::from_vec(bytes.to_vec())));
    match kind {
        b"nfs" | b"nfs4" => Some((server.to_vec(), directory(path))),
        b"lustre" => {
            let (name, below) = path.split_once_str("/").unwrap_or((path, b""));
            let root = root.strip_prefix("/").ok()?;
            Some(([server, b":/", name].concat(), directory(below).join(root)))
        }
        _ => None,
    }
}

fn path(escaped: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(escaped)))
}

/// Undoes the octal escapes of blanks and backslashes.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) => {
                all.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            _ => {
                all.push(*first);
                rest = tail;
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw
36 22 0:40 / /nfs/home rw shared:1 - nfs4 server:/export/home rw
37 22 0:42 / /home/ada ro shared:1 - nfs4 server:/export/home/ada ro
38 22 0:41 / /mnt/with\\040blank rw - fuse.sshfs x rw
";

    #[test]
    fn mounts_that_may_hang() {
        let table = MountTable(Some(parse(TABLE)));
        let expected = ["/nfs/home", "/home/ada", "/mnt/with blank"].map(PathBuf::from);
        assert_eq!(table.may_hang(), HashSet::from(expected));
        assert_eq!(
            MountTable(None).may_hang(),
            HashSet::from([PathBuf::from("/")])
        );
    }

    #[test]
    fn the_type_of_a_file_system_is_that_of_the_nearest_mount() {
        let table = MountTable(Some(parse(TABLE)));
        let kind = |path: &str| table.kind_of(Path::new(path));
        assert_eq!(kind("/home/ada/x"), Some(("nfs4".to_owned(), false)));
        assert_eq!(kind("/home/bob"), Some(("ext4".to_owned(), true)));
        assert_eq!(MountTable(None).kind_of(Path::new("/")), None);
    }

    #[test]
    fn other_names_of_a_home() {
        let table = MountTable(Some(parse(TABLE)));
        let names = |path: &str| table.other_names(Path::new(path));
        let alias = |at: &str, of: &str| Alias {
            at: at.into(),
            of: of.into(),
        };
        assert_eq!(names("/home/ada"), [alias("/nfs/home/ada", "/home/ada")]);
        // A directory below the home, mounted elsewhere by itself.
        let keys = b"39 22 0:40 / /mnt/keys rw - nfs4 server:/export/home/ada/.ssh rw\n";
        let table = MountTable(Some(parse(&[TABLE, keys].concat())));
        let names = table.other_names(Path::new("/home/ada"));
        assert_eq!(
            names,
            [
                alias("/mnt/keys", "/home/ada/.ssh"),
                alias("/nfs/home/ada", "/home/ada")
            ]
        );
        let key = Path::new("/home/ada/.ssh/id");
        assert_eq!(names[0].name_of(key), Some("/mnt/keys/id".into()));
        assert_eq!(
            names[0].name_of(Path::new("/home/ada/.ssh")),
            Some("/mnt/keys".into())
        );
        assert_eq!(names[0].name_of(Path::new("/home/ada/x")), None);
        assert!(table.other_names(Path::new("/usr")).is_empty());
        // Homes that are mounted one by one are no names of each other, though each is the root of what it is.
        let homes = b"40 22 0:40 / /home/bob rw - nfs4 server:/export/home/bob rw
41 22 0:40 / /home/eve rw - nfs server:/export/home/eve rw
42 22 0:40 / /home/kim rw - nfs [fe80::1]:/export/home/bob rw\n";
        let table = MountTable(Some(parse(homes)));
        assert!(table.other_names(Path::new("/home/bob")).is_empty());
    }

    #[test]
    fn what_is_in_a_directory_is_found_where_else_it_is_mounted() {
        let text = b"20 1 8:1 / / rw - ext4 /dev/sda1 rw
21 20 0:30 / /home rw - autofs auto.home rw
22 21 0:40 / /home/ada rw - nfs4 server:/export/home/ada rw
23 21 0:40 / /home/bob rw - nfs4 server:/export/home/bob rw
24 20 0:40 / /mnt/all rw - nfs4 server:/export rw
25 20 0:40 / /mnt/bobs rw - nfs4 server:/export/home/bob/data rw
26 22 0:40 / /home/ada/from-bob rw - nfs4 server:/export/home/bob rw
27 20 8:1 /srv/x /data rw - ext4 /dev/sda1 rw\n";
        let table = MountTable(Some(parse(text)));
        let names = |path: &str| {
            let all = table
                .elsewhere(Path::new(path), &["/home/ada".into()])
                .into_iter();
            all.map(|alias| format!("{} = {}", alias.at.display(), alias.of.display()))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names("/home"),
            [
                "/home/ada/from-bob = /home/bob",
                "/mnt/all/home/ada = /home/ada",
                "/mnt/all/home/bob = /home/ada/from-bob",
                "/mnt/all/home/bob = /home/bob",
                "/mnt/bobs = /home/ada/from-bob/data",
                "/mnt/bobs = /home/bob/data",
            ]
        );
        assert_eq!(names("/srv"), ["/data = /srv/x"]);
        assert!(names("/usr").is_empty());
    }

    #[test]
    fn other_names_on_lustre() {
        let text = b"40 22 0:50 / /lustre rw - lustre 10.0.0.1@o2ib:10.0.0.2@o2ib:/work rw
41 22 0:51 / /project/p1 rw - lustre 10.0.0.1@o2ib:10.0.0.2@o2ib:/work/projects/p1 rw
42 22 0:50 /scratch /scratch rw - lustre 10.0.0.1@o2ib:10.0.0.2@o2ib:/work rw
43 22 0:52 / /other rw - lustre 10.0.0.1@o2ib:10.0.0.2@o2ib:/home rw\n";
        let table = MountTable(Some(parse(text)));
        let names = |path: &str| {
            let all = table.other_names(Path::new(path)).into_iter();
            all.map(|alias| {
                (
                    alias.at.display().to_string(),
                    alias.of.display().to_string(),
                )
            })
            .collect::<Vec<_>>()
        };
        let pair = |at: &str, of: &str| (at.to_owned(), of.to_owned());
        assert_eq!(
            names("/project/p1/data"),
            [pair("/lustre/projects/p1/data", "/project/p1/data")]
        );
        assert_eq!(
            names("/lustre"),
            [
                pair("/project/p1", "/lustre/projects/p1"),
                pair("/scratch", "/lustre/scratch")
            ]
        );
        assert!(names("/other").is_empty());
    }
}
