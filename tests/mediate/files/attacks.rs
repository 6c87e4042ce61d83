//! Ways to what is closed.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::world::*;

/// Opens with every intent to change something; a closed file's content counts afterwards.
fn try_to_open(what: &str, path: impl AsRef<Path>) {
    let path = path.as_ref();
    for flags in [
        libc::O_WRONLY,
        libc::O_RDWR,
        libc::O_WRONLY | libc::O_TRUNC,
        libc::O_RDONLY | libc::O_TRUNC,
        libc::O_RDWR | libc::O_CREAT,
        libc::O_WRONLY | libc::O_APPEND,
        libc::O_RDWR | libc::O_CREAT | libc::O_EXCL,
    ] {
        refused(&format!("{what}, {flags:o}"), open(path, flags));
    }
    refused(&format!("{what}, truncate"), truncate(path, 0));
}

/// Changes what Landlock does not judge.
fn try_to_change(what: &str, path: impl AsRef<Path>) {
    let path = path.as_ref();
    refused(&format!("{what}, chmod"), chmod(path, 0o666));
    refused(&format!("{what}, touch"), touch(path));
    refused(&format!("{what}, setxattr"), mark(path));
    let c_path = c(path);
    // SAFETY: the calls read strings that end with a 0, or nothing for null.
    unsafe {
        let chown = libc::chown(c_path.as_ptr(), u32::MAX, u32::MAX);
        refused(&format!("{what}, chown"), answer(i64::from(chown)));
        // A link of one's own may be changed itself.
        if !path.is_symlink() || path.starts_with("/proc") {
            let chown = libc::lchown(c_path.as_ptr(), u32::MAX, u32::MAX);
            refused(&format!("{what}, lchown"), answer(i64::from(chown)));
        }
        let utimes = libc::utimes(c_path.as_ptr(), std::ptr::null());
        refused(&format!("{what}, utimes"), answer(i64::from(utimes)));
        let gone = libc::removexattr(c_path.as_ptr(), c"user.x".as_ptr());
        refused(&format!("{what}, removexattr"), answer(i64::from(gone)));
        let at = libc::fchmodat(libc::AT_FDCWD, c_path.as_ptr(), 0o666, 0);
        refused(&format!("{what}, fchmodat"), answer(i64::from(at)));
        #[cfg(target_arch = "x86_64")]
        {
            let empty = std::ptr::null::<libc::utimbuf>();
            let utime = libc::syscall(libc::SYS_utime, c_path.as_ptr(), empty);
            refused(&format!("{what}, utime"), answer(utime));
        }
    }
}

/// The descriptor's file by the calls that take one.
fn try_by_descriptor(what: &str, fd: &OwnedFd) {
    let number = fd.as_raw_fd();
    // SAFETY: the calls read strings that end with a 0, and as much as they are told.
    unsafe {
        refused(what, answer(i64::from(libc::fchmod(number, 0o666))));
        refused(
            what,
            answer(i64::from(libc::fchown(number, u32::MAX, u32::MAX))),
        );
        refused(
            what,
            answer(i64::from(libc::futimens(number, std::ptr::null()))),
        );
        let mark = libc::fsetxattr(number, c"user.x".as_ptr(), b"1".as_ptr().cast(), 1, 0);
        refused(what, answer(i64::from(mark)));
        let same = u32::MAX;
        let empty = libc::AT_EMPTY_PATH;
        let done = libc::fchownat(number, c"".as_ptr(), same, same, empty);
        refused(what, answer(i64::from(done)));
        let done = libc::syscall(452, number, c"".as_ptr(), 0o666, empty);
        match answer(done) {
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {}
            done => refused(what, done),
        }
    }
    try_to_change(what, by_proc(fd));
}

#[test]
fn a_closed_file_is_not_changed_by_any_path() {
    for abi in [2, i32::MAX] {
        let world = World::new();
        let whole = world.at("p/.git/config");
        world.jailed_by(abi, || {
            symlink(".git/config", "link").expect("symlink");
            symlink(".git", "linked").expect("symlink");
            symlink("/proc/self/cwd/.git/config", "through").expect("symlink");
            symlink("/proc/self/cwd", "src/here").expect("symlink");
            let git = open(".git", libc::O_RDONLY | libc::O_DIRECTORY).expect("open");
            let held = open(".git/config", libc::O_PATH).expect("hold");
            let read = open(".git/config", libc::O_RDONLY).expect("read");
            let me = std::process::id();
            for path in [
                PathBuf::from(".git/config"),
                whole.clone(),
                "link".into(),
                "linked/config".into(),
                "src/../.git/config".into(),
                "./src/..//.git/./config".into(),
                "through".into(),
                "src/here/.git/config".into(),
                "/proc/self/cwd/.git/config".into(),
                format!("/proc/{me}/cwd/.git/config").into(),
                format!("/proc/self/root{}", whole.display()).into(),
                by_proc(&git).join("config"),
                by_proc(&held),
                by_proc(&read),
                format!("/proc/{me}/fd/{}", held.as_raw_fd()).into(),
                format!("/proc/thread-self/fd/{}", held.as_raw_fd()).into(),
                format!("/dev/fd/{}", read.as_raw_fd()).into(),
            ] {
                let what = format!("ABI {abi}, {}", path.display());
                try_to_open(&what, &path);
                try_to_change(&what, &path);
            }
            for fd in [&held, &read] {
                // An `O_PATH` descriptor is none for some calls.
                if fd.as_raw_fd() == read.as_raw_fd() {
                    try_by_descriptor("by its descriptor", fd);
                }
                try_to_change("by /proc", by_proc(fd));
            }
            let flags = libc::O_RDWR | libc::O_TRUNC;
            refused("a directory's", openat(git.as_raw_fd(), "config", flags, 0));
        });
        world.assert_closed();
    }
}

#[test]
fn nothing_takes_the_place_of_what_is_closed() {
    let world = World::new();
    world.jailed(|| {
        fs::write("evil", "evil").expect("write");
        fs::create_dir("dir").expect("mkdir");
        fs::write("src/evil", "evil").expect("write");
        for evil in ["evil", "src/evil"] {
            refused("rename over", fs::rename(evil, ".git/config"));
            refused(
                "exchange",
                rename2(evil, ".git/config", libc::RENAME_EXCHANGE),
            );
            refused(
                "exchange",
                rename2(".git/config", evil, libc::RENAME_EXCHANGE),
            );
            refused("link over", fs::hard_link(evil, ".git/config"));
            refused("link into", fs::hard_link(evil, ".git/hooks/x"));
            refused("rename into", fs::rename(evil, ".git/hooks/x"));
        }
        for closed in [".git/config", "hidden"] {
            refused("unlink", fs::remove_file(closed));
            refused("rename away", fs::rename(closed, "away"));
            refused("rename away", fs::rename(closed, "src/away"));
            refused("link to", fs::hard_link(closed, "second"));
            refused("link to", fs::hard_link(closed, "src/second"));
            refused("symlink over", symlink("evil", closed));
            let held = open(closed, libc::O_PATH).expect("hold");
            let follow = libc::AT_SYMLINK_FOLLOW;
            refused(
                "link",
                linkat(held.as_raw_fd(), "", "second", libc::AT_EMPTY_PATH),
            );
            refused(
                "link",
                linkat(libc::AT_FDCWD, by_proc(&held), "second", follow),
            );
            refused(
                "link",
                linkat(libc::AT_FDCWD, by_proc(&held), "src/second", follow),
            );
        }
        refused(
            "exchange above",
            rename2("dir", ".git", libc::RENAME_EXCHANGE),
        );
        refused("rename above", fs::rename(".git", "git2"));
        refused("rename above", fs::rename(".git", "src/git"));
        refused("rename", fs::rename(".git/hooks", "hooks"));
        refused("rename", fs::rename("dark", "light"));
        refused("rename over", fs::rename("dir", ".git/hooks"));
        refused("rmdir", fs::remove_dir(".git/hooks"));
        refused("rm -r", fs::remove_dir_all(".git/hooks"));
        let project = std::env::current_dir().expect("a directory");
        refused("itself", fs::rename(&project, project.with_extension("2")));
        refused("outside", fs::rename("evil", "../out/evil"));
        refused("outside", fs::hard_link("../out/file", "stolen"));
        refused("outside", fs::hard_link("../far/file", "stolen"));
        refused("outside", fs::rename("../far/file", "stolen"));
        refused("outside", fs::write("../far/new", ""));
        refused("outside", fs::create_dir("../new"));
        refused("outside", symlink("x", "../out/new"));
        refused("outside", mknod("../out/new", 0o600));
        refused("outside", mknod("../far/new", libc::S_IFIFO | 0o600));
    });
    world.assert_closed();
    assert_eq!(names_in(&world.at(""))[..], ["far", "out", "p", "tree"]);
}

#[test]
fn where_something_closed_will_be_only_a_directory_comes() {
    let world = World::new();
    world.jailed(|| {
        fs::write("evil", "evil").expect("write");
        fs::create_dir_all("dir").expect("mkdir");
        fs::write("dir/closed", "evil").expect("write");
        refused("a file", fs::write("missing", ""));
        refused("a symlink", symlink("dir", "missing"));
        refused("a hard link", fs::hard_link("evil", "missing"));
        refused("a fifo", mknod("missing", libc::S_IFIFO | 0o600));
        refused("what was made elsewhere", fs::rename("dir", "missing"));
        fs::create_dir("missing").expect("mkdir");
        assert_eq!(number(fs::create_dir("missing")), libc::EEXIST);
        refused("the closed one", fs::write("missing/closed", ""));
        refused("the closed one", fs::create_dir("missing/closed"));
        refused("the closed one", fs::rename("evil", "missing/closed"));
        refused("the closed one", symlink("../evil", "missing/closed"));
        fs::write("missing/open", "").expect("write");
        refused("with it", fs::rename("missing", "other"));
    });
    assert!(!world.at("p/missing/closed").exists());
    world.assert_closed();
}

/// The place where tasks of jobs meet is such a name.
#[test]
fn no_closed_name_is_taken_in_the_jails_own_region() {
    let world = World::new();
    let (closed, own, other) = (
        world.shared("closed"),
        world.shared("own"),
        world.shared("other"),
    );
    world.jailed(|| {
        fs::write(&own, "evil").expect("write");
        fs::write(&other, "evil").expect("write");
        refused("a directory", fs::create_dir(&closed));
        refused("a file", fs::write(&closed, "evil"));
        refused("a symlink", symlink("own", &closed));
        refused("a fifo", mknod(&closed, libc::S_IFIFO | 0o600));
        refused("a hard link", fs::hard_link(&other, &closed));
        refused("what was made elsewhere", fs::rename(&own, &closed));
        refused("a directory of elsewhere", fs::rename("src", &closed));
        fs::rename(&other, world.shared("third")).expect("rename");
    });
    assert!(fs::symlink_metadata(&closed).is_err());
}

#[test]
fn a_directorys_descriptor_leads_no_further_than_its_path() {
    let world = World::new();
    let begin = world.at("p");
    world.jailed(|| {
        let create = libc::O_CREAT | libc::O_RDWR;
        for (directory, name) in [(".git/hooks", "x"), (".git", "config"), ("../out", "x")] {
            for how in [libc::O_PATH, libc::O_RDONLY] {
                let Ok(fd) = open(directory, how | libc::O_DIRECTORY) else {
                    continue;
                };
                refused("openat", openat(fd.as_raw_fd(), name, create, 0o600));
                refused("by /proc", open(by_proc(&fd).join(name), create));
                refused(
                    "by /dev",
                    open(format!("/dev/fd/{}/{name}", fd.as_raw_fd()), create),
                );
                // SAFETY: the calls touch no memory but what they are given.
                unsafe {
                    answer(i64::from(libc::fchdir(fd.as_raw_fd()))).expect("fchdir");
                    refused("here", open(name, create));
                    let path = c(name);
                    let at = libc::mkdirat(fd.as_raw_fd(), path.as_ptr(), 0o700);
                    refused("mkdirat", answer(i64::from(at)));
                    let at = libc::symlinkat(path.as_ptr(), fd.as_raw_fd(), path.as_ptr());
                    refused("symlinkat", answer(i64::from(at)));
                    let at = libc::unlinkat(fd.as_raw_fd(), c"pre-commit".as_ptr(), 0);
                    let missing = answer(i64::from(at));
                    assert_ne!(number(missing), 0);
                }
                refused(
                    "by the current one",
                    open(format!("/proc/self/cwd/{name}"), create),
                );
                std::env::set_current_dir(&begin).expect("back");
            }
        }
        // A descriptor of a directory that has moved since says where it is now.
        fs::create_dir_all("a/b").expect("mkdir");
        let inner = open("a/b", libc::O_PATH | libc::O_DIRECTORY).expect("hold");
        fs::rename("a/b", ".git/b").expect("rename");
        refused(
            "..",
            openat(inner.as_raw_fd(), "../config", libc::O_WRONLY, 0),
        );
        refused("..", openat(inner.as_raw_fd(), "../hooks/x", create, 0o600));
        drop(openat(inner.as_raw_fd(), "../fine", create, 0o600).expect("make"));
        assert!(Path::new(".git/fine").exists());
        fs::remove_dir(".git/b").expect("rmdir");
        assert_eq!(
            number(openat(inner.as_raw_fd(), "x", create, 0o600)),
            libc::ENOENT
        );
        // No descriptor, and one that is no directory.
        assert_eq!(number(openat(999, "x", create, 0o600)), libc::EBADF);
        let file = open("file", libc::O_RDONLY).expect("open");
        assert_eq!(
            number(openat(file.as_raw_fd(), "x", create, 0o600)),
            libc::ENOTDIR
        );
    });
    world.assert_closed();
}

#[test]
fn what_is_hidden_is_neither_read_nor_watched_nor_changed() {
    let world = World::new();
    world.jailed(|| {
        for hidden in ["hidden", "dark", "dark/file", "../far", "../far/file"] {
            refused(hidden, open(hidden, libc::O_RDONLY));
            try_to_change(hidden, hidden);
            // SAFETY: the calls read a path that ends with a 0.
            unsafe {
                let watcher = answer(i64::from(libc::inotify_init1(libc::IN_CLOEXEC)));
                let watcher = watcher.expect("inotify") as i32;
                let path = c(hidden);
                let watch = libc::inotify_add_watch(watcher, path.as_ptr(), libc::IN_ALL_EVENTS);
                refused(hidden, answer(i64::from(watch)));
                libc::close(watcher);
            }
            let held = open(hidden, libc::O_PATH).expect("hold");
            refused("again", open(by_proc(&held), libc::O_RDONLY));
            let name = "copy";
            symlink(std::env::current_dir().expect("cwd").join(hidden), name).expect("symlink");
            refused("by a link", fs::read(name));
            fs::remove_file(name).expect("remove");
        }
        refused("new in it", fs::write("dark/new", ""));
        // SAFETY: the calls read a path that ends with a 0.
        unsafe {
            let watcher = answer(i64::from(libc::inotify_init1(libc::IN_CLOEXEC)));
            let watcher = watcher.expect("inotify") as i32;
            for seen in [".", ".git", "src", ".git/hooks", "file", "../out"] {
                let path = c(seen);
                let watch = libc::inotify_add_watch(watcher, path.as_ptr(), libc::IN_CREATE);
                answer(i64::from(watch)).expect(seen);
            }
            fs::write("seen", "").expect("write");
            let mut events = [0u8; 256];
            let length = libc::read(watcher, events.as_mut_ptr().cast(), events.len());
            assert!(length > 16 && events[16..20] == *b"seen");
        }
    });
    world.assert_closed();
}

#[test]
fn a_directory_is_listed_where_that_shows_nothing_hidden() {
    let world = World::new();
    world.jailed(|| {
        assert_eq!(names_in(Path::new("../tree")), ["file", "shut"]);
        fs::read("../tree/file").expect("read");
        fs::read("../tree/shut/file").expect("read");
        refused(
            "list",
            open("../tree/shut", libc::O_RDONLY | libc::O_DIRECTORY),
        );
        refused("list", open("../tree/shut", libc::O_RDONLY));
        refused("hidden", fs::read("../tree/shut/hidden"));
        refused("write", fs::write("../tree/file", ""));
        refused("make", fs::write("../tree/new", ""));
        refused("remove", fs::remove_file("../tree/file"));
        try_to_change("read-only", "../tree/file");
        // SAFETY: the calls read a path that ends with a 0.
        unsafe {
            let watcher = answer(i64::from(libc::inotify_init1(libc::IN_CLOEXEC)));
            let watcher = watcher.expect("inotify") as i32;
            let watch = |path: &str| {
                let path = c(path);
                answer(i64::from(libc::inotify_add_watch(
                    watcher,
                    path.as_ptr(),
                    libc::IN_OPEN,
                )))
            };
            watch("../tree").expect("watch");
            refused("watch", watch("../tree/shut"));
        }
    });
    world.assert_closed();
}

#[test]
fn what_may_only_be_read_is_not_changed_by_calls_that_landlock_does_not_judge() {
    for abi in [2, i32::MAX] {
        let world = World::new();
        world.jailed_by(abi, || {
            for path in [
                "../out",
                "../out/file",
                ".git/hooks",
                ".git/hooks/pre-commit",
            ] {
                try_to_change(path, path);
                let fd = open(path, libc::O_RDONLY).expect("open");
                try_by_descriptor(path, &fd);
            }
            for path in ["../out/file", ".git/hooks/pre-commit"] {
                try_to_open(path, path);
            }
            try_to_change("/usr", "/usr");
            for path in ["/proc/self/comm", "/proc/self", "/proc/self/fd"] {
                let error = number(chmod(path, 0o666));
                assert!(error != 0, "{path}");
            }
            assert_eq!(number(chmod("../out/file", 0o4755)), libc::EPERM);
        });
        world.assert_closed();
    }
}

#[test]
fn what_proc_says_of_itself_is_about_the_caller() {
    let world = World::new();
    world.jailed(|| {
        // Opened by the kernel, for the caller.
        let status = fs::read_to_string("/proc/self/status").expect("read");
        assert!(status.contains(&format!("\nPid:\t{}\n", std::process::id())));
        let comm = fs::read_to_string("/proc/thread-self/comm").expect("read");
        assert!(!comm.is_empty());
        // A pipe behind a descriptor opens again, as a shell's `<(…)` needs.
        let (reader, writer) = nix::unistd::pipe().expect("a pipe");
        let again = open(format!("/dev/fd/{}", reader.as_raw_fd()), libc::O_RDONLY);
        drop(again.expect("open"));
        drop((reader, writer));
        let none: io::Result<OwnedFd> = open("/proc/self/fd/777", libc::O_RDONLY);
        assert_eq!(number(none), libc::ENOENT);
        // A descriptor with the same number elsewhere is not meant.
        let file = open("file", libc::O_RDWR).expect("open");
        chmod(by_proc(&file), 0o600).expect("chmod");
        touch(by_proc(&file)).expect("touch");
    });
    world.assert_closed();
}
