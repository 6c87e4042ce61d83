//! Directories that cannot be listed (`files.no_walk`): by any call, name or descriptor; what is in them is there by its
//! name.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::operations::text;
use crate::probe::{Attack, name, tell};
use crate::world::World;

pub(crate) const ATTACKS: &[Attack] = &[("list", list)];

/// Lists a directory in every way that the kernel has; tells of each how many entries it gave, or the error.
fn list(words: &[String]) {
    for directory in words {
        let path = Path::new(directory);
        let ways: [(&str, io::Result<usize>); 7] = [
            ("readdir", count(path)),
            ("getdents", open(path, 0).and_then(|file| getdents(&file))),
            (
                "directory",
                open(path, libc::O_DIRECTORY).and_then(|file| getdents(&file)),
            ),
            (
                "proc",
                count(&Path::new("/proc/self/root").join(directory.trim_start_matches('/'))),
            ),
            ("descriptor", by_descriptor(path)),
            ("current", by_current(path)),
            ("glob", glob(path)),
        ];
        for (way, listed) in ways {
            let said = listed.map_or_else(|error| name(&error), |count| count.to_string());
            tell(&format!("{way} {directory}"), said);
        }
    }
}

fn count(path: &Path) -> io::Result<usize> {
    Ok(fs::read_dir(path)?.count())
}

fn open(path: &Path, flags: i32) -> io::Result<File> {
    File::options().read(true).custom_flags(flags).open(path)
}

fn getdents(file: &File) -> io::Result<usize> {
    let mut buffer = [0u8; 4096];
    // SAFETY: the buffer is as long as is said.
    let length = unsafe {
        libc::syscall(
            libc::SYS_getdents64,
            file.as_raw_fd(),
            buffer.as_mut_ptr(),
            buffer.len(),
        )
    };
    match usize::try_from(length) {
        Ok(length) => Ok(length),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Holds it by a descriptor that gives nothing, and opens that again.
fn by_descriptor(path: &Path) -> io::Result<usize> {
    let held = open(path, libc::O_PATH)?;
    getdents(&held).or_else(|_| count(Path::new(&format!("/proc/self/fd/{}", held.as_raw_fd()))))
}

fn by_current(path: &Path) -> io::Result<usize> {
    std::env::set_current_dir(path)?;
    count(Path::new("."))
}

/// As the C library's own walkers do.
fn glob(path: &Path) -> io::Result<usize> {
    let pattern = CString::new(path.join("*").as_os_str().as_bytes())?;
    // SAFETY: the pattern is a string, and the result one of glob(3)'s, freed before it goes.
    unsafe {
        let mut found: libc::glob_t = std::mem::zeroed();
        let code = libc::glob(pattern.as_ptr(), libc::GLOB_ERR, None, &mut found);
        let count = found.gl_pathc as usize;
        libc::globfree(&mut found);
        match code {
            0 => Ok(count),
            libc::GLOB_ABORTED => Err(io::ErrorKind::PermissionDenied.into()),
            _ => Ok(0),
        }
    }
}

fn shared(world: &World) -> PathBuf {
    let shared = world.base("shared");
    world.put(&shared.join("others/data"), "by its name\n");
    world.put(&shared.join("mine/notes"), "mine\n");
    shared
}

#[test]
fn a_shared_root_cannot_be_walked() {
    let world = World::new();
    let shared = shared(&world);
    let (root, mine) = (text(&shared), text(&shared.join("mine")));
    let setting = format!("files.no_walk=[{root:?}]");
    let options = ["--read", &root, "--write", &mine, "--set", &setting];
    let listed = [text(&world.project("")), mine.clone()];
    let closed = [
        root.clone(),
        text(&shared.join("others")),
        text(&world.base("")),
        "/".to_owned(),
    ];
    // Outside, each way lists.
    let plain = world.outside().attack("list", &closed[..2]);
    for way in [
        "readdir",
        "getdents",
        "directory",
        "proc",
        "descriptor",
        "current",
        "glob",
    ] {
        let said = plain.get(&format!("{way} {root}"));
        assert!(
            said.parse::<usize>().is_ok_and(|count| count > 0),
            "{way}: {said}"
        );
    }
    let report = world
        .jail(options)
        .attack("list", &[&closed[..], &listed[..]].concat());
    for directory in &closed {
        for way in [
            "readdir",
            "getdents",
            "directory",
            "proc",
            "descriptor",
            "current",
            "glob",
        ] {
            let said = report.get(&format!("{way} {directory}"));
            let refused = ["EACCES", "EBADF", "PermissionDenied", "ENOENT", "EPERM"];
            assert!(refused.contains(&said), "{way} {directory}: {said}");
        }
    }
    for directory in &listed {
        let said = report.get(&format!("readdir {directory}"));
        assert!(said.parse::<usize>().is_ok(), "{directory}: {said}");
    }
}

/// What the mediator opens in the place of the command, where Landlock cannot tell the hidden from the rest.
#[test]
fn a_shared_root_in_which_something_is_hidden_cannot_be_walked() {
    let world = World::new();
    let shared = shared(&world);
    let (root, others) = (text(&shared), shared.join("others"));
    let hidden = text(&others.join("hidden"));
    world.put(Path::new(&hidden), "hidden\n");
    let setting = format!("files.no_walk=[{root:?}]");
    let options = ["--read", &root, "--hide", &hidden, "--set", &setting];
    let closed = [root.clone(), text(&others)];
    let report = world.jail(options).attack("list", &closed);
    for directory in &closed {
        for way in ["readdir", "getdents", "directory", "proc", "current"] {
            let said = report.get(&format!("{way} {directory}"));
            assert!(said.parse::<usize>().is_err(), "{way} {directory}: {said}");
        }
    }
    let script = format!("cat {root}/others/data; cat {hidden}");
    let output = world.jail(options).run(&["sh", "-c", &script]);
    assert_eq!(output.stdout, "by its name\n", "{}", output.stderr);
}

/// What people and agents do there all the same.
#[test]
fn what_is_in_a_shared_root_is_there_by_its_name() {
    let world = World::new();
    let shared = shared(&world);
    let (root, mine) = (text(&shared), text(&shared.join("mine")));
    let setting = format!("files.no_walk=[{root:?}]");
    let options = ["--read", &root, "--write", &mine, "--set", &setting];
    let script = format!(
        "cat {root}/others/data; cd {mine} && ls; echo new > {mine}/new && cat {mine}/new; \
         ls /usr/bin/env; cd && ls -d . > /dev/null && echo home; git -C {mine} init -q . && echo git; \
         find {root} -name data 2> /dev/null; find / -name data 2> /dev/null; echo end"
    );
    let output = world.jail(options).run(&["sh", "-c", &script]);
    let expected = "by its name\nnotes\nnew\n/usr/bin/env\nhome\ngit\nend\n";
    assert_eq!(output.stdout, expected, "{}", output.stderr);
}
