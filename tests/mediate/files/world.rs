//! A project with closed things in it, and a jail that may change the rest.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use agent_sandbox::sys::process::{Change, landlock_abi, wait};
use agent_sandbox_landlock::access::{
    AccessMap, MapEntry, MediatorConfig, Permission, Right, Rule,
};
use tempfile::TempDir;

use crate::jail;

/// What the closed files say.
pub(crate) const CONFIG: &str = "[core]\n";
/// What the hidden file says.
pub(crate) const SECRET: &str = "secret\n";

/// A directory of a test.
pub(crate) struct World {
    root: PathBuf,
    shared: PathBuf,
    _kept: [TempDir; 2],
}

/// Every call about files that can be handed over.
pub(crate) const CALLS: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    libc::SYS_openat,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_symlinkat,
    libc::SYS_linkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_truncate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    452,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    463,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    466,
    libc::SYS_inotify_add_watch,
];

impl World {
    /// A project `p` in which `.git/config`, `.git/hooks` and `missing/closed` may not be changed and
    /// `hidden` and `dark` may not be read; `p/src` and `p/file` have rules of their own. Beside it
    /// `out`, which may be read, `far`, of which nothing is given, and one in `/dev/shm`,
    /// in which `closed` is closed; and `tree`, which may be read and listed, but for `shut`, which may not be listed, and in
    /// which `hidden` is.
    pub(crate) fn new() -> Self {
        let made = tempfile::tempdir().expect("a directory");
        let shared = tempfile::tempdir_in("/dev/shm").expect("a directory");
        let world = Self {
            root: made.path().canonicalize().expect("its path"),
            shared: shared.path().canonicalize().expect("its path"),
            _kept: [made, shared],
        };
        for directory in [
            "p/.git/hooks",
            "p/src/deep",
            "p/dark",
            "out",
            "far",
            "tree/shut",
        ] {
            fs::create_dir_all(world.at(directory)).expect("a directory");
        }
        for (file, text) in [
            ("p/.git/config", CONFIG),
            ("p/.git/hooks/pre-commit", CONFIG),
            ("p/src/lib", "source\n"),
            ("p/file", "file\n"),
            ("p/hidden", SECRET),
            ("p/dark/file", SECRET),
            ("out/file", CONFIG),
            ("far/file", SECRET),
            ("tree/file", CONFIG),
            ("tree/shut/file", CONFIG),
            ("tree/shut/hidden", SECRET),
        ] {
            fs::write(world.at(file), text).expect("a file");
            let mode = fs::Permissions::from_mode(0o640);
            fs::set_permissions(world.at(file), mode).expect("a mode");
        }
        fs::write(world.shared("foreign"), SECRET).expect("a file");
        world
    }

    /// A path in it.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// A path in the shared directory.
    pub(crate) fn shared(&self, path: &str) -> PathBuf {
        self.shared.join(path)
    }

    fn access_map(&self) -> AccessMap {
        let entry = |at: PathBuf, permission, direct| MapEntry {
            at: at.as_os_str().as_bytes().to_vec(),
            permission,
            direct,
            listed: false,
        };
        let mut entries = vec![
            entry(self.at("p"), Permission::Write, false),
            entry(self.shared(""), Permission::Own, false),
            entry(self.shared("closed"), Permission::None, false),
            entry(PathBuf::from("/proc"), Permission::Read, true),
            entry(PathBuf::from("/usr"), Permission::Read, true),
            entry(PathBuf::from("/dev/null"), Permission::Write, true),
        ];
        for (path, permission, direct) in [
            ("p/.git/config", Permission::Read, true),
            ("p/.git/hooks", Permission::Read, true),
            ("p/missing/closed", Permission::Read, true),
            ("p/hidden", Permission::None, false),
            ("p/dark", Permission::None, false),
            ("p/src", Permission::Write, true),
            ("p/file", Permission::Write, true),
            ("out", Permission::Read, true),
            ("tree", Permission::Read, false),
            ("tree/shut", Permission::Read, false),
            ("tree/shut/hidden", Permission::None, false),
        ] {
            entries.push(entry(self.at(path), permission, direct));
        }
        for entry in &mut entries {
            entry.listed = entry.path() == self.at("tree");
            // No path of the kernel's ends in a slash.
            while entry.at.last() == Some(&b'/') {
                entry.at.pop();
            }
        }
        AccessMap::new(entries)
    }

    /// What the mediator is told, and what the command is.
    fn charges(&self, abi: i32) -> (MediatorConfig, MediatorConfig) {
        let rule = |path: PathBuf, right| {
            let there = fs::metadata(&path).ok();
            Rule {
                path: path.as_os_str().as_bytes().to_vec(),
                id: there.map(|there| (there.dev(), there.ino())),
                right,
            }
        };
        let mut rules = vec![
            rule(self.at("out"), Right::Read),
            rule(self.at("p/.git/config"), Right::Read),
            rule(self.at("p/.git/hooks"), Right::Read),
            rule(self.at("p/src"), Right::Write),
            rule(self.at("p/file"), Right::Write),
            rule(PathBuf::from("/proc"), Right::Read),
            rule(PathBuf::from("/usr"), Right::Read),
            rule(PathBuf::from("/dev/null"), Right::Device),
        ];
        let sorted = |mut rules: Vec<Rule>| {
            rules.sort_by(|one, other| one.path().cmp(other.path()));
            MediatorConfig {
                access_map: self.access_map(),
                rules,
                abi,
                stand_in: None,
                listed: None,
                git_config: None,
            }
        };
        let command = sorted(rules.clone());
        rules.push(rule(self.at("p"), Right::Write));
        rules.push(rule(self.shared.clone(), Right::Write));
        rules.push(rule(self.at("tree"), Right::Read));
        (sorted(rules), command)
    }

    /// Does something in a jail, whose current directory is the project.
    pub(crate) fn jailed(&self, act: impl FnOnce()) {
        self.jailed_by(landlock_abi(), act);
    }

    /// The same with no more of Landlock than this ABI has.
    pub(crate) fn jailed_by(&self, abi: i32, act: impl FnOnce()) {
        if !jail::possible() {
            return;
        }
        let abi = abi.min(landlock_abi());
        jail::in_launcher(|words| {
            std::env::set_current_dir(self.at("p")).expect("a directory");
            let (config, command) = self.charges(abi);
            let mediator = jail::start_fenced(words, config, command, CALLS, act);
            let end = wait(mediator).expect("wait");
            assert_eq!(end, Change::Exited(0), "the jail's end");
        });
    }

    /// Everything that is closed is as it was.
    pub(crate) fn assert_closed(&self) {
        for (file, text) in [
            ("p/.git/config", CONFIG),
            ("p/.git/hooks/pre-commit", CONFIG),
            ("p/hidden", SECRET),
            ("p/dark/file", SECRET),
            ("out/file", CONFIG),
            ("far/file", SECRET),
            ("tree/file", CONFIG),
            ("tree/shut/hidden", SECRET),
        ] {
            let path = self.at(file);
            assert_eq!(fs::read_to_string(&path).expect(file), text, "{file}");
            let meta = fs::symlink_metadata(&path).expect(file);
            assert_eq!((meta.mode() & 0o7777, meta.nlink()), (0o640, 1), "{file}");
        }
        for (directory, names) in [
            ("p/.git/hooks", &["pre-commit"][..]),
            ("p/dark", &["file"]),
            ("out", &["file"]),
            ("far", &["file"]),
        ] {
            assert_eq!(names_in(&self.at(directory)), names, "{directory}");
        }
        let foreign = fs::read_to_string(self.shared("foreign")).expect("a file");
        assert_eq!(foreign, SECRET);
    }
}

/// The names in a directory, sorted.
pub(crate) fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let mut names: Vec<String> = entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("a name")
        })
        .collect();
    names.sort();
    names
}

/// The number of an error; 0: there was none.
pub(crate) fn number<T>(result: io::Result<T>) -> i32 {
    result.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |_| 0)
}

/// A change is refused, with one of the errors that programs know how to take.
#[track_caller]
pub(crate) fn refused<T>(what: &str, result: io::Result<T>) {
    let errors = [
        libc::EACCES,
        libc::EPERM,
        libc::EROFS,
        libc::EBUSY,
        libc::EXDEV,
        libc::ELOOP,
        libc::EEXIST,
        libc::ENOTEMPTY,
    ];
    let number = number(result);
    assert!(errors.contains(&number), "{what}: {number}");
}

/// A path for a system call.
pub(crate) fn c(path: impl AsRef<Path>) -> CString {
    CString::new(path.as_ref().as_os_str().as_bytes()).expect("no 0 in it")
}

/// The answer of a system call.
pub(crate) fn answer(done: i64) -> io::Result<i64> {
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(done)
}

/// `openat(2)`, of whatever flags.
pub(crate) fn openat(
    directory: RawFd,
    path: impl AsRef<Path>,
    flags: i32,
    mode: u32,
) -> io::Result<OwnedFd> {
    let path = c(path);
    // SAFETY: the call reads a path that ends with a 0.
    let fd = answer(i64::from(unsafe {
        libc::openat(directory, path.as_ptr(), flags | libc::O_CLOEXEC, mode)
    }))?;
    // SAFETY: the kernel has just made it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// `open(2)`, of whatever flags.
pub(crate) fn open(path: impl AsRef<Path>, flags: i32) -> io::Result<OwnedFd> {
    openat(libc::AT_FDCWD, path, flags, 0o666)
}

/// `linkat(2)`.
pub(crate) fn linkat(
    directory: RawFd,
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    flags: i32,
) -> io::Result<i64> {
    let (from, to) = (c(from), c(to));
    // SAFETY: the call reads two paths that end with a 0.
    answer(i64::from(unsafe {
        libc::linkat(directory, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags)
    }))
}

/// `renameat2(2)`.
pub(crate) fn rename2(from: impl AsRef<Path>, to: impl AsRef<Path>, flags: u32) -> io::Result<i64> {
    let (from, to) = (c(from), c(to));
    // SAFETY: the call reads two paths that end with a 0.
    answer(i64::from(unsafe {
        libc::renameat2(
            libc::AT_FDCWD,
            from.as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            flags,
        )
    }))
}

/// `truncate(2)`.
pub(crate) fn truncate(path: impl AsRef<Path>, length: i64) -> io::Result<i64> {
    let path = c(path);
    // SAFETY: the call reads a path that ends with a 0.
    answer(i64::from(unsafe { libc::truncate(path.as_ptr(), length) }))
}

/// `chmod(2)`.
pub(crate) fn chmod(path: impl AsRef<Path>, mode: u32) -> io::Result<i64> {
    let path = c(path);
    // SAFETY: the call reads a path that ends with a 0.
    answer(i64::from(unsafe { libc::chmod(path.as_ptr(), mode) }))
}

/// `utimensat(2)`, both times now.
pub(crate) fn touch(path: impl AsRef<Path>) -> io::Result<i64> {
    let path = c(path);
    // SAFETY: the call reads a path that ends with a 0.
    answer(i64::from(unsafe {
        libc::utimensat(libc::AT_FDCWD, path.as_ptr(), std::ptr::null(), 0)
    }))
}

/// `setxattr(2)`: `user.x` is `1`.
pub(crate) fn mark(path: impl AsRef<Path>) -> io::Result<i64> {
    let path = c(path);
    // SAFETY: the call reads a path and a name that end with a 0, and one byte.
    answer(i64::from(unsafe {
        libc::setxattr(
            path.as_ptr(),
            c"user.x".as_ptr(),
            b"1".as_ptr().cast(),
            1,
            0,
        )
    }))
}

/// `mknod(2)`.
pub(crate) fn mknod(path: impl AsRef<Path>, mode: u32) -> io::Result<i64> {
    let path = c(path);
    // SAFETY: the call reads a path that ends with a 0.
    answer(i64::from(unsafe { libc::mknod(path.as_ptr(), mode, 0) }))
}

/// The path by which the process itself finds what is behind a descriptor.
pub(crate) fn by_proc(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}
