//! Open files that the launcher was started with.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use crate::op;
use crate::operations::carry_out;
use crate::probe::{Attack, c, tell};
use crate::world::{Run, World};

pub(crate) const ATTACKS: &[Attack] = &[("open-files", open_files)];

/// Numbers at which the test leaves something open.
const LEFT_OPEN: [i32; 3] = [3, 77, 200];

fn open_files(_: &[String]) {
    let is_open = |fd: i32| {
        // SAFETY: only asks.
        unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
    };
    const MOST: i32 = 4096;
    let open: Vec<String> = (0..MOST)
        .filter(|&fd| is_open(fd))
        .map(|fd| fd.to_string())
        .collect();
    tell("open", open.join(","));
    for fd in LEFT_OPEN {
        let path = format!("/proc/self/fd/{fd}");
        tell(&format!("list {fd}"), carry_out(&["list", &path]));
        tell(&format!("read {fd}"), carry_out(&["read", &path]));
    }
}

/// Leaves `/` (as a directory and as `O_PATH`) and a key open without close-on-exec. Done in the
/// child, for other tests of this process start processes of their own.
fn leave_open(run: &mut Run<'_>, world: &World) {
    let key = c(crate::operations::text(&world.home(".ssh/id_rsa")).as_str());
    // SAFETY: between fork and exec only system calls are made, on memory made before.
    unsafe {
        run.command.pre_exec(move || {
            let opened = [
                libc::open(c"/".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY),
                libc::open(key.as_ptr(), libc::O_RDWR),
                libc::open(c"/".as_ptr(), libc::O_PATH),
            ];
            // Upwards first, so that no number is taken over before it is moved.
            let moved: Vec<i32> = opened
                .iter()
                .map(|fd| libc::fcntl(*fd, libc::F_DUPFD, 1000))
                .collect();
            for fd in opened {
                libc::close(fd);
            }
            for (from, to) in moved.iter().zip(LEFT_OPEN) {
                if libc::dup2(*from, to) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                libc::close(*from);
            }
            Ok(())
        });
    }
}

#[test]
fn inherited_files_are_closed() {
    let world = World::new();
    let mut outside = world.outside();
    leave_open(&mut outside, &world);
    let report = outside.attack::<&str>("open-files", &[]);
    assert!(
        report.get("open").contains(",3,") && report.get("open").contains("77"),
        "{report:?}"
    );
    assert!(report.get("read 77").contains(&world.marker));
    let mut jail = world.jail([]);
    leave_open(&mut jail, &world);
    let report = jail.attack::<&str>("open-files", &[]);
    assert_eq!(report.get("open"), "0,1,2");
}

#[test]
fn a_directory_as_standard_stream_is_refused() {
    let world = World::new();
    let open = |flags| {
        std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open("/")
            .unwrap()
    };
    for flags in [libc::O_DIRECTORY, libc::O_PATH] {
        let output = world
            .jail([])
            .stdin(open(flags))
            .run(&["ls", "/proc/self/fd/0/"]);
        output.refused("directory");
        let mut run = world.jail([]);
        run.command.stdout(open(flags));
        let output = run.run(&["ls", "/proc/self/fd/1/"]);
        assert_eq!(output.code(), 125, "{output:?}");
        let mut run = world.jail([]);
        run.command.stderr(open(flags));
        let output = run.run(&["ls", "/proc/self/fd/2/"]);
        assert_eq!(output.code(), 125, "{output:?}");
    }
}

/// A standard stream that is closed does not make room for a file of the launcher's own.
#[test]
fn a_closed_standard_stream_stays_harmless() {
    let world = World::new();
    for closed in [0, 2] {
        let mut run = world.jail([]);
        // SAFETY: one system call between fork and exec.
        unsafe {
            run.command.pre_exec(move || {
                libc::close(closed);
                Ok(())
            });
        }
        let output = run.start_attack::<&str>("open-files", &[]).wait();
        if output.code() != 0 {
            continue;
        }
        for (what, answer) in output.report().all() {
            if what == "open" {
                let extra = answer
                    .split(',')
                    .any(|fd| fd.parse::<i32>().unwrap_or(0) > 2);
                assert!(!extra, "closed {closed}: {answer}");
            }
        }
    }
}

/// A socket as standard input carries no other process's descriptors or names into the jail by
/// itself; it is what the user gave, and works.
#[test]
fn a_socket_as_standard_input_works() {
    let world = World::new();
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    drop(ours);
    // SAFETY: the number comes from a socket that is given away here.
    let owned: OwnedFd = unsafe { OwnedFd::from_raw_fd(libc::dup(theirs.as_raw_fd())) };
    let answers = world
        .jail([])
        .stdin(Stdio::from(File::from(owned)))
        .operations(&[op!("list", "/proc/self/fd/0/")]);
    assert_eq!(answers, ["ENOTDIR"]);
}

/// A descriptor of a file that was opened for reading can be opened again for writing, by
/// `/proc/self/fd`: init opens the file anew through a read-only mount.
#[test]
fn a_file_as_standard_input_stays_as_it_is() {
    let world = World::new();
    let file = world.base("prompt.txt");
    world.put(&file, "first\nsecond\n");
    let script = "read line; echo \"$line\"; echo evil > /proc/self/fd/0; : > /proc/self/fd/0; cat";
    let open = || File::open(&file).unwrap();
    let output = world.jail([]).stdin(open()).run(&["bash", "-c", script]);
    assert_eq!(output.stdout, "first\nsecond\n", "{output:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "first\nsecond\n");
    // Outside the same script does change it: the attack is one.
    let output = world.outside().stdin(open()).run(&["bash", "-c", script]);
    assert_eq!(output.code(), 0, "{output:?}");
    assert_ne!(std::fs::read_to_string(&file).unwrap(), "first\nsecond\n");
}

/// The offset is kept, so that what a shell has read already does not come twice.
#[test]
fn a_file_as_standard_input_goes_on_where_it_was() {
    use std::io::Seek;
    let world = World::new();
    let file = world.base("prompt.txt");
    world.put(&file, "first\nsecond\n");
    let mut open = File::open(&file).unwrap();
    open.seek(std::io::SeekFrom::Start(6)).unwrap();
    let output = world.jail([]).stdin(open).run(&["cat"]);
    assert_eq!(output.stdout, "second\n", "{output:?}");
}

/// A file without a name cannot be opened through a mount of the jail's; Landlock keeps it from
/// being written, as it does with everything that no writable mount brings.
#[test]
fn a_deleted_file_as_standard_input_stays_as_it_is() {
    use std::io::{Read, Seek};
    if crate::world::landlock_abi() < 6 {
        return crate::world::not_checked(
            "writing confined by Landlock",
            "this kernel has no Landlock ABI 6",
        );
    }
    let world = World::new();
    let file = world.base("gone.txt");
    world.put(&file, "first\n");
    let mut open = File::open(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let script = "echo evil > /proc/self/fd/0; : > /proc/self/fd/0; echo done";
    let output = world
        .jail([])
        .stdin(open.try_clone().unwrap())
        .run(&["bash", "-c", script]);
    assert_eq!(output.stdout, "done\n", "{output:?}");
    assert!(output.stderr.contains("Permission denied"), "{output:?}");
    let mut text = String::new();
    open.rewind().unwrap();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "first\n");
}
