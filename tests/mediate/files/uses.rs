//! What works in a guarded directory.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use nix::sys::stat::{Mode, umask};

use super::world::*;

fn write_to(fd: OwnedFd, text: &str) {
    File::from(fd).write_all(text.as_bytes()).expect("write");
}

#[test]
fn files_are_made_written_and_read() {
    let world = World::new();
    world.jailed(|| {
        fs::write("new", "one").expect("make");
        assert_eq!(fs::read_to_string("new").expect("read"), "one");
        write_to(
            open("new", libc::O_WRONLY | libc::O_APPEND).expect("append"),
            " two",
        );
        assert_eq!(fs::read_to_string("./src/../new").expect("read"), "one two");
        fs::write("new", "x").expect("shorten");
        assert_eq!(fs::read_to_string("new").expect("read"), "x");
        let exclusive = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
        assert_eq!(number(open("new", exclusive)), libc::EEXIST);
        assert_eq!(number(open("never", libc::O_RDWR)), libc::ENOENT);
        assert_eq!(number(open("new/", libc::O_RDONLY)), libc::ENOTDIR);
        assert_eq!(
            number(open("none/", libc::O_CREAT | libc::O_RDWR)),
            libc::EISDIR
        );
        assert_eq!(number(open("src", libc::O_RDWR)), libc::EISDIR);
        assert_eq!(number(open("new", libc::O_DIRECTORY)), libc::ENOTDIR);
        assert_eq!(number(open("", libc::O_RDONLY)), libc::ENOENT);
        assert_eq!(
            number(open("new/x", libc::O_CREAT | libc::O_RDWR)),
            libc::ENOTDIR
        );
        let long = "x".repeat(300);
        assert_eq!(
            number(open(long, libc::O_CREAT | libc::O_RDWR)),
            libc::ENAMETOOLONG
        );
        // Where Landlock gives it, and what it does not hide.
        fs::write("src/new", "y").expect("make");
        fs::write("file", "z").expect("write");
        fs::read_to_string(".git/config").expect("read what is closed");
        let mut names = Vec::new();
        for entry in fs::read_dir(".").expect("list") {
            names.push(entry.expect("an entry").file_name());
        }
        assert!(names.iter().any(|name| name == "new"), "{names:?}");
        truncate("new", 100).expect("truncate");
        assert_eq!(fs::metadata("new").expect("stat").len(), 100);
        let file = open("new", libc::O_RDWR).expect("open");
        // SAFETY: the call touches no memory.
        answer(i64::from(unsafe { libc::ftruncate(file.as_raw_fd(), 3) })).expect("ftruncate");
    });
    world.assert_closed();
    assert_eq!(fs::read_to_string(world.at("p/file")).expect("read"), "z");
}

#[test]
fn modes_are_those_of_the_caller() {
    let world = World::new();
    world.jailed(|| {
        for mask in [0o022, 0o077, 0o000] {
            umask(Mode::from_bits_truncate(mask));
            let (file, directory) = (format!("f{mask}"), format!("d{mask}"));
            drop(openat(libc::AT_FDCWD, &file, libc::O_CREAT | libc::O_RDWR, 0o666).expect("make"));
            fs::create_dir(&directory).expect("mkdir");
            let mode = |path: &str| fs::metadata(path).expect("stat").mode() & 0o7777;
            assert_eq!(mode(&file), 0o666 & !mask);
            assert_eq!(mode(&directory), 0o777 & !mask);
        }
        let set_id = openat(libc::AT_FDCWD, "s", libc::O_CREAT | libc::O_RDWR, 0o4755);
        assert_eq!(number(set_id), libc::EPERM);
        assert_eq!(number(chmod("f0", 0o4755)), libc::EPERM);
    });
}

#[test]
fn names_are_made_changed_and_removed() {
    let world = World::new();
    world.jailed(|| {
        fs::create_dir_all("a/b/c").expect("mkdir -p");
        fs::create_dir_all("a/b/c").expect("mkdir -p again");
        fs::write("a/b/c/f", "1").expect("write");
        fs::rename("a/b", "b").expect("rename");
        fs::rename("b/c/f", "b/../g").expect("rename");
        fs::hard_link("g", "b/g2").expect("link");
        assert_eq!(fs::metadata("g").expect("stat").nlink(), 2);
        symlink("g", "b/s").expect("symlink");
        assert_eq!(number(fs::read_to_string("b/s")), libc::ENOENT);
        symlink("../g", "b/t").expect("symlink");
        assert_eq!(fs::read_to_string("b/t").expect("follow"), "1");
        assert_eq!(
            number(open("b/t", libc::O_RDONLY | libc::O_NOFOLLOW)),
            libc::ELOOP
        );
        // A link that leads nowhere makes what it leads to.
        fs::write("b/s", "2").expect("write through");
        assert_eq!(fs::read_to_string("b/g").expect("read"), "2");
        symlink("loop", "loop").expect("symlink");
        assert_eq!(number(fs::read_to_string("loop")), libc::ELOOP);
        assert_eq!(number(fs::remove_dir("b")), libc::ENOTEMPTY);
        assert_eq!(number(fs::remove_file("b")), libc::EISDIR);
        fs::remove_dir_all("b").expect("rm -r");
        assert_eq!(number(fs::create_dir("a/.")), libc::EEXIST);
        assert_eq!(number(fs::remove_dir("a/.")), libc::EINVAL);
        assert_eq!(number(fs::remove_dir("a/..")), libc::ENOTEMPTY);
        assert_eq!(number(fs::rename("a/.", "x")), libc::EBUSY);
        assert_eq!(number(fs::remove_file("none")), libc::ENOENT);
        fs::create_dir("slash/").expect("mkdir with a slash");
        fs::rename("slash/", "slash2/").expect("rename with slashes");
        fs::remove_dir("slash2/").expect("rmdir with a slash");
        assert_eq!(number(fs::remove_file("g/")), libc::ENOTDIR);
        fs::write("e1", "e1").expect("write");
        fs::write("e2", "e2").expect("write");
        assert_eq!(
            number(rename2("e1", "e2", libc::RENAME_NOREPLACE)),
            libc::EEXIST
        );
        rename2("e1", "e2", libc::RENAME_EXCHANGE).expect("exchange");
        assert_eq!(fs::read_to_string("e1").expect("read"), "e2");
        assert_eq!(
            number(rename2("e1", "e2", libc::RENAME_WHITEOUT)),
            libc::EINVAL
        );
        // Across: into a directory that Landlock gives, and out of it.
        fs::rename("e1", "src/e1").expect("into");
        fs::rename("src/lib", "lib").expect("out of");
        fs::hard_link("src/e1", "e3").expect("link out of");
        fs::write("lib", "changed").expect("write");
    });
    world.assert_closed();
    assert_eq!(
        fs::read_to_string(world.at("p/lib")).expect("read"),
        "changed"
    );
}

#[test]
fn what_has_a_rule_of_its_own_can_be_replaced() {
    let world = World::new();
    world.jailed(|| {
        // As editors save.
        fs::write("file.tmp", "saved").expect("write");
        fs::rename("file.tmp", "file").expect("rename");
        fs::write("file", "again").expect("write what no rule is about");
        fs::rename("src", "lib").expect("rename");
        fs::write("lib/moved", "x").expect("write in what was renamed");
        fs::create_dir("src").expect("mkdir");
        fs::write("src/new", "y").expect("write in what no rule is about");
        fs::create_dir_all("src/a/b").expect("mkdir");
        fs::rename("lib/deep", "src/deep").expect("rename");
        fs::remove_dir_all("lib").expect("rm -r");
    });
    world.assert_closed();
    assert_eq!(
        fs::read_to_string(world.at("p/file")).expect("read"),
        "again"
    );
}

#[test]
fn what_an_editor_outside_has_replaced_can_be_written() {
    let world = World::new();
    let (go, done) = (world.at("p/src/go"), world.at("p/src/done"));
    let (file, fresh) = (world.at("p/file"), world.at("fresh"));
    let (for_editor, for_jail) = (go.clone(), done.clone());
    let editor = std::thread::spawn(move || {
        crate::jail::until("the jail runs", || for_editor.exists());
        fs::write(&fresh, "outside").expect("write");
        fs::rename(&fresh, &file).expect("rename");
        fs::write(&done, "").expect("write");
    });
    world.jailed(|| {
        fs::write(&go, "").expect("write");
        crate::jail::until("the editor has saved", || for_jail.exists());
        assert_eq!(fs::read_to_string("file").expect("read"), "outside");
        fs::write("file", "inside").expect("write");
    });
    if crate::jail::possible() {
        editor.join().expect("the editor");
        assert_eq!(
            fs::read_to_string(world.at("p/file")).expect("read"),
            "inside"
        );
    }
}

#[test]
fn files_without_a_name_get_one() {
    let world = World::new();
    world.jailed(|| {
        let unnamed = || openat(libc::AT_FDCWD, ".", libc::O_TMPFILE | libc::O_RDWR, 0o600);
        let file = unnamed().expect("O_TMPFILE");
        // SAFETY: the call touches no memory.
        answer(i64::from(unsafe { libc::fchmod(file.as_raw_fd(), 0o640) })).expect("fchmod");
        linkat(
            libc::AT_FDCWD,
            by_proc(&file),
            "named",
            libc::AT_SYMLINK_FOLLOW,
        )
        .expect("link");
        assert_eq!(fs::metadata("named").expect("stat").mode() & 0o777, 0o640);
        let file = unnamed().expect("O_TMPFILE");
        linkat(file.as_raw_fd(), "", "named2", libc::AT_EMPTY_PATH).expect("link");
        let file = unnamed().expect("O_TMPFILE");
        let follow = libc::AT_SYMLINK_FOLLOW;
        refused(
            "a hook",
            linkat(libc::AT_FDCWD, by_proc(&file), ".git/hooks/x", follow),
        );
        assert_eq!(number(open(".", libc::O_TMPFILE)), libc::EINVAL);
        refused(
            "in hooks",
            open(".git/hooks", libc::O_TMPFILE | libc::O_RDWR),
        );
    });
    world.assert_closed();
}

#[test]
fn fifos_join_two_processes() {
    let world = World::new();
    world.jailed(|| {
        mknod("fifo", libc::S_IFIFO | 0o600).expect("mkfifo");
        assert!(fs::metadata("fifo").expect("stat").file_type().is_fifo());
        let writer = std::thread::spawn(|| fs::write("fifo", "through").expect("write"));
        assert_eq!(fs::read_to_string("fifo").expect("read"), "through");
        writer.join().expect("a writer");
        assert_eq!(
            number(open("fifo", libc::O_WRONLY | libc::O_NONBLOCK)),
            libc::ENXIO
        );
        for kind in [libc::S_IFCHR, libc::S_IFBLK] {
            assert_eq!(number(mknod("device", kind | 0o600)), libc::EPERM);
        }
        mknod("plain", 0o600).expect("mknod of a file");
        mknod("socket", libc::S_IFSOCK | 0o600).expect("mknod of a socket");
        assert_eq!(number(open("socket", libc::O_RDWR)), libc::ENXIO);
    });
}

#[test]
fn a_file_that_was_closed_is_open_nowhere() {
    let world = World::new();
    world.jailed(|| {
        for _ in 0..300 {
            let made = openat(
                libc::AT_FDCWD,
                "program",
                libc::O_CREAT | libc::O_RDWR,
                0o700,
            );
            write_to(made.expect("make"), "");
            // The kernel lets nobody take a lease to write on what is open elsewhere (fcntl(2)).
            let file = open("program", libc::O_RDWR).expect("open");
            // SAFETY: the calls touch no memory.
            unsafe {
                answer(i64::from(libc::fcntl(
                    file.as_raw_fd(),
                    libc::F_SETLEASE,
                    libc::F_WRLCK,
                )))
                .expect("a lease");
            }
            fs::remove_file("program").expect("remove");
        }
    });
}

#[test]
fn fifos_whose_openers_are_gone_hold_nobody_up() {
    let world = World::new();
    world.jailed(|| {
        mknod("fifo", libc::S_IFIFO | 0o600).expect("mkfifo");
        // More than there are threads to wait.
        for _ in 0..5 {
            let waiting: Vec<_> = (0..40)
                .map(|_| crate::jail::child(|| drop(open("fifo", libc::O_RDONLY))))
                .collect();
            for one in &waiting {
                nix::sys::signal::kill(*one, nix::sys::signal::Signal::SIGKILL).expect("kill");
                let _ = nix::sys::wait::waitpid(*one, None);
            }
        }
        fs::write("new", "").expect("write");
    });
    world.assert_closed();
}

#[test]
fn modes_times_and_attributes_change_where_files_may() {
    let world = World::new();
    world.jailed(|| {
        fs::write("new", "").expect("write");
        for path in ["new", "src/lib", "file", ".git"] {
            let directory = fs::metadata(path).expect("stat").is_dir();
            let mode = if directory { 0o750 } else { 0o604 };
            chmod(path, mode).expect(path);
            assert_eq!(
                fs::metadata(path).expect("stat").mode() & 0o777,
                mode,
                "{path}"
            );
            touch(path).expect(path);
            let file = open(path, libc::O_RDONLY).expect("open");
            // SAFETY: the calls touch no memory.
            unsafe {
                answer(i64::from(libc::fchmod(file.as_raw_fd(), mode | 0o001))).expect("fchmod");
                let same = u32::MAX;
                answer(i64::from(libc::fchown(file.as_raw_fd(), same, same))).expect("fchown");
                let times = [libc::timespec {
                    tv_sec: 7,
                    tv_nsec: 9,
                }; 2];
                answer(i64::from(libc::futimens(file.as_raw_fd(), times.as_ptr())))
                    .expect("futimens");
            }
            let there = fs::metadata(path).expect("stat");
            assert_eq!((there.mtime(), there.mtime_nsec()), (7, 9), "{path}");
            chmod(by_proc(&file), mode).expect("by its descriptor");
            let times = [libc::timeval {
                tv_sec: 8,
                tv_usec: 5,
            }; 2];
            // SAFETY: the call reads a path that ends with a 0, and two times.
            answer(i64::from(unsafe {
                libc::utimes(c(path).as_ptr(), times.as_ptr())
            }))
            .expect("utimes");
            let there = fs::metadata(path).expect("stat");
            assert_eq!((there.mtime(), there.mtime_nsec()), (8, 5000), "{path}");
        }
        match mark("new") {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                eprintln!("not checked: extended attributes: this file system has none");
            }
            done => {
                done.expect("setxattr");
                let mut value = [0u8; 8];
                // SAFETY: the calls read strings that end with a 0 and write what is as long as said.
                unsafe {
                    let (path, name) = (c("new"), c"user.x");
                    let length = libc::getxattr(
                        path.as_ptr(),
                        name.as_ptr(),
                        value.as_mut_ptr().cast(),
                        value.len(),
                    );
                    assert_eq!((length, value[0]), (1, b'1'));
                    answer(i64::from(libc::removexattr(path.as_ptr(), name.as_ptr())))
                        .expect("removexattr");
                }
            }
        }
        // What has no name is the process's own.
        let (reader, _writer) = nix::unistd::pipe().expect("a pipe");
        let memory = nix::sys::memfd::memfd_create(c"m", nix::sys::memfd::MFdFlags::empty())
            .expect("a memory file");
        fs::write("gone", "").expect("write");
        let gone = open("gone", libc::O_RDWR).expect("open");
        fs::remove_file("gone").expect("remove");
        for fd in [&reader, &memory, &gone] {
            // SAFETY: the call touches no memory.
            answer(i64::from(unsafe { libc::fchmod(fd.as_raw_fd(), 0o600) })).expect("fchmod");
        }
        let held = open("new", libc::O_PATH).expect("hold");
        // SAFETY: the call touches no memory.
        let done = answer(i64::from(unsafe { libc::fchmod(held.as_raw_fd(), 0o600) }));
        assert_eq!(number(done), libc::EBADF);
        fs::set_permissions("new", fs::Permissions::from_mode(0o600)).expect("chmod");
    });
}

#[test]
fn the_jails_own_region_has_what_it_made() {
    let world = World::new();
    let (mine, other) = (world.shared("mine"), world.shared("other"));
    let (directory, foreign) = (world.shared("d"), world.shared("foreign"));
    world.jailed(|| {
        // As sem_open(3) does it.
        let exclusive = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
        write_to(open(&mine, exclusive).expect("make"), "text");
        fs::hard_link(&mine, &other).expect("link");
        fs::remove_file(&mine).expect("unlink");
        let mut text = String::new();
        File::from(open(&other, libc::O_RDWR).expect("open"))
            .read_to_string(&mut text)
            .expect("read");
        assert_eq!(text, "text");
        truncate(&other, 2).expect("truncate");
        chmod(&other, 0o600).expect("chmod");
        fs::rename(&other, &mine).expect("rename");
        // Files, and nothing else.
        refused("mkdir", fs::create_dir(&directory));
        refused("symlink", symlink(&mine, &directory));
        refused("mkfifo", mknod(&directory, libc::S_IFIFO | 0o600));
        refused("bind", UnixListener::bind(&directory));

        assert_eq!(number(open(&foreign, exclusive)), libc::EEXIST);
        for flags in [libc::O_RDONLY, libc::O_RDWR, libc::O_CREAT | libc::O_RDWR] {
            assert_eq!(number(open(&foreign, flags)), libc::EACCES, "{flags:o}");
        }
        refused("unlink", fs::remove_file(&foreign));
        refused("rename", fs::rename(&foreign, &other));
        refused("over it", fs::rename(&mine, &foreign));
        refused("exchange", rename2(&mine, &foreign, libc::RENAME_EXCHANGE));
        refused("link", fs::hard_link(&foreign, &other));
        refused("link out", fs::hard_link(&foreign, "stolen"));
        refused("rename out", fs::rename(&mine, "stolen"));
        refused("truncate", truncate(&foreign, 0));
        refused("chmod", chmod(&foreign, 0o666));
        refused("list", fs::read_dir(foreign.parent().expect("a directory")));
        fs::remove_file(&mine).expect("unlink");
        // Its inode is the jail's no more.
        assert_eq!(number(fs::read(&mine)), libc::ENOENT);
        write_to(open(&other, exclusive).expect("make"), "left");
    });
    // It goes with the jail, and what is not the jail's stays.
    assert!(!other.exists() && foreign.exists());
    world.assert_closed();
}
