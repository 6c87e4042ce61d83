//! Files of the jail stay without set-user-ID and set-group-ID bits, and get every other mode.

use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use agent_sandbox::plan::build::syscalls::Switches;
use agent_sandbox::seccomp::number;

use crate::harness::{
    HIGH_BIT, KEYCTL, NESTED, Outcome, STRICT, after, call, declare, errno, pointer, under,
    unsigned,
};

const HERE: u64 = libc::AT_FDCWD as u64;
/// The mode of the file that stands in the directory before the call.
const BEFORE: u32 = 0o640;

/// A directory with the file `there`; `new` is free.
struct TestDirectory(tempfile::TempDir);

impl TestDirectory {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a directory"));
        fs::write(place.path("there"), "x").expect("a file");
        set_mode(&place.path("there"), BEFORE);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("a file").permissions().mode() & 0o7777
}

fn text(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("a path")
}

/// What a call does to a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gives {
    /// Changes that of `there`.
    Changed,
    /// Makes `new`.
    Made,
    /// Makes a file without a name, whose descriptor is the result.
    Unnamed,
}

/// A call with a mode as its last argument but zeroes.
struct Way {
    name: &'static str,
    gives: Gives,
    /// The argument before the mode, or the one before that; paths and descriptors are put in.
    flags: Option<i32>,
}

const fn way(name: &'static str, gives: Gives, flags: Option<i32>) -> Way {
    Way { name, gives, flags }
}

const WAYS: &[Way] = &[
    way("chmod", Gives::Changed, None),
    way("fchmod", Gives::Changed, None),
    way("fchmodat", Gives::Changed, None),
    way("fchmodat2", Gives::Changed, None),
    way("creat", Gives::Made, None),
    way("mknod", Gives::Made, None),
    way("mknodat", Gives::Made, None),
    way("open", Gives::Made, Some(libc::O_CREAT | libc::O_WRONLY)),
    way("openat", Gives::Made, Some(libc::O_CREAT | libc::O_WRONLY)),
    way("open", Gives::Unnamed, Some(libc::O_TMPFILE | libc::O_RDWR)),
    way(
        "openat",
        Gives::Unnamed,
        Some(libc::O_TMPFILE | libc::O_RDWR),
    ),
];

/// Makes the call in a child, with `high` added to the flags and the mode: the errno negated, or the
/// mode that the file got. `None` on an architecture without the call.
fn give(
    switches: Option<Switches>,
    way: &Way,
    place: &TestDirectory,
    mode: u64,
    high: u64,
) -> Option<Outcome> {
    let number = number(way.name).expect("a known name")?;
    let there = File::open(place.path("there")).expect("a file");
    let target = match way.gives {
        Gives::Changed => place.path("there"),
        Gives::Made => place.path("new"),
        Gives::Unnamed => place.0.path().to_owned(),
    };
    let path = text(&target);
    let mut arguments = Vec::new();
    match way.name {
        "fchmod" => arguments.push(unsigned(there.as_raw_fd())),
        name if name.contains("at") && name != "creat" => {
            arguments.extend([HERE, pointer(path.as_c_str())]);
        }
        _ => arguments.push(pointer(path.as_c_str())),
    }
    arguments.extend(way.flags.map(|flags| unsigned(flags) | high));
    arguments.push(mode | high);
    let prepare = || {
        // SAFETY: sets the child's own umask.
        unsafe { libc::umask(0) }
    };
    Some(after(switches, prepare, |_| {
        let result = call(number, &arguments);
        match way.gives {
            _ if result < 0 => result,
            Gives::Unnamed => {
                // SAFETY: the descriptor that the call returned, owned by nothing else.
                let file = unsafe { File::from_raw_fd(result as i32) };
                let mode = file.metadata().expect("a file").permissions().mode();
                i64::from(mode & 0o7777)
            }
            Gives::Changed | Gives::Made => i64::from(self::mode(&target)),
        }
    }))
}

#[test]
fn no_call_gives_a_set_id_bit() {
    for way in WAYS {
        for bits in [0o4755, 0o2755, 0o6711] {
            let Some(plain) = give(None, way, &TestDirectory::new(), bits, 0) else {
                continue;
            };
            match plain {
                Outcome::Returned(given @ 0..) => {
                    assert_eq!(given, bits as i64, "{}: without the filter", way.name);
                }
                refused => declare(&format!("{} is not there by itself: {refused:?}", way.name)),
            }
            for switches in [STRICT, NESTED, KEYCTL] {
                for high in [0, HIGH_BIT, 0xffff_ffff_0000_0000] {
                    let place = TestDirectory::new();
                    let result = give(Some(switches), way, &place, bits, high);
                    let what = format!("{} {bits:o} with high bits {high:#x}", way.name);
                    assert_eq!(result, Some(errno(libc::EPERM)), "{what}");
                    assert_eq!(mode(&place.path("there")), BEFORE, "{what}");
                    assert!(!place.path("new").exists(), "{what}");
                }
            }
        }
    }
}

#[test]
fn every_other_mode_is_given() {
    for way in WAYS {
        for bits in [0o755, 0o644, 0o600, 0o1777, 0] {
            let plain = give(None, way, &TestDirectory::new(), bits, 0);
            let filtered = give(Some(STRICT), way, &TestDirectory::new(), bits, 0);
            assert_eq!(filtered, plain, "{} {bits:o}", way.name);
            if let Some(Outcome::Returned(given @ 0..)) = plain {
                assert_eq!(given, bits as i64, "{}", way.name);
            }
        }
    }
}

#[test]
fn a_file_that_is_there_opens_with_anything_for_a_mode() {
    let place = TestDirectory::new();
    let path = text(&place.path("there"));
    let open = |flags: i32, mode: u64| {
        let path = pointer(path.as_c_str());
        move || call(libc::SYS_openat, &[HERE, path, unsigned(flags), mode]).min(0)
    };
    for flags in [libc::O_RDONLY, libc::O_RDWR | libc::O_CLOEXEC] {
        for mode in [0, 0o6000, u64::MAX] {
            assert_eq!(under(STRICT, open(flags, mode)), Outcome::Returned(0));
        }
    }
    let creating = libc::O_RDWR | libc::O_CREAT;
    assert_eq!(under(STRICT, open(creating, 0o644)), Outcome::Returned(0));
    assert_eq!(under(STRICT, open(creating, 0o4644)), errno(libc::EPERM));
}

#[test]
fn openat2_is_not_there() {
    let how = [unsigned(libc::O_RDONLY), 0, 0];
    let arguments = [HERE, pointer(c"/"), pointer(&how), size_of_val(&how) as u64];
    let open = || call(libc::SYS_openat2, &arguments).min(0);
    for switches in [STRICT, NESTED, KEYCTL] {
        assert_eq!(under(switches, open), errno(libc::ENOSYS));
    }
    if under(None, open) != Outcome::Returned(0) {
        declare("this kernel has no openat2");
    }
}

/// Runs the script by `sh` in the place, under the filter: its exit code.
fn shell(switches: impl Into<Option<Switches>>, place: &TestDirectory, script: &str) -> Outcome {
    under(switches, || {
        let status = Command::new("sh")
            .args(["-e", "-c", script])
            .current_dir(place.0.path())
            .status();
        i64::from(status.expect("sh").code().expect("an exit code"))
    })
}

/// A tree as a project has it: directories, a program, a link, a file that nobody may write.
const TREE: &str =
    "mkdir -p tree/a/b; echo x >tree/a/b/file; echo y >tree/program; ln -s a tree/link
    chmod 755 tree/program; chmod 444 tree/a/b/file; chmod 700 tree/a; chmod 1777 tree/a/b";

/// Modes and names of `tree` and its copy are the same.
const SAME: &str = "
    list() { (cd $1 && find . -exec stat -c '%A %n' {} + | sort); }
    test \"$(list tree)\" = \"$(list copy)\"";

#[test]
fn ordinary_trees_are_made_copied_and_unpacked() {
    for copy in [
        "cp -a tree copy",
        "mkdir copy; tar -cf t.tar -C tree .; tar -xpf t.tar -C copy",
        "mkdir copy; tar -cf - -C tree . | tar -xpf - -C copy",
    ] {
        for switches in [None, Some(STRICT)] {
            let done = shell(
                switches,
                &TestDirectory::new(),
                &format!("{TREE}\n{copy}\n{SAME}"),
            );
            assert_eq!(done, Outcome::Returned(0), "{copy}, {switches:?}");
        }
    }
    let place = TestDirectory::new();
    let plain = "umask 022; echo x >f; mkdir d; chmod 755 f; mkdir -m 700 e; install -m 755 f g";
    assert_eq!(shell(STRICT, &place, plain), Outcome::Returned(0));
    let modes = ["f", "d", "e", "g"].map(|name| mode(&place.path(name)));
    assert_eq!(modes, [0o755, 0o755, 0o700, 0o755]);
}

#[test]
fn a_copied_shell_stays_the_callers() {
    for attempt in [
        "chmod 4755 shell",
        "chmod u+s shell",
        "chmod g+s shell",
        "chmod 6755 shell",
        "install -m 4755 shell other",
        "mkdir directory; chmod g+s directory",
    ] {
        let script = format!("cp /bin/sh shell; chmod 755 shell; {attempt}");
        let found = |switches| {
            let place = TestDirectory::new();
            let done = shell(switches, &place, &script);
            assert!(place.path("shell").exists(), "{attempt}");
            let all = fs::read_dir(place.0.path()).expect("a directory");
            let set_id = all.filter(|entry| {
                let entry = entry.as_ref().expect("an entry");
                mode(&entry.path()) & 0o6000 != 0
            });
            (done == Outcome::Returned(0), set_id.count())
        };
        assert_eq!(found(None), (true, 1), "{attempt}: without the filter");
        assert_eq!(found(Some(STRICT)), (false, 0), "{attempt}");
    }
}

/// A mode without the bits is an ordinary one, also for a file that has them.
#[test]
fn the_bit_can_be_taken_away() {
    let place = TestDirectory::new();
    set_mode(&place.path("there"), 0o4755);
    let done = shell(STRICT, &place, "chmod u-s there");
    assert_eq!(done, Outcome::Returned(0));
    assert_eq!(mode(&place.path("there")), 0o755);
}
