//! Ways from a visible file to one that is not: links, `/proc`, open files, the read-only system.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::backend::{assert_answers, is_as_good_as_one, is_landlock};
use crate::op;
use crate::operations::{carry_out, text};
use crate::probe::{Attack, c, tell, tell_call};
use crate::world::{World, launcher};

pub(crate) const ATTACKS: &[Attack] = &[
    ("proc-links", proc_links),
    ("own-memory", own_memory),
    ("dump-core", dump_core),
];

#[test]
fn links_lead_nowhere() {
    let world = World::new();
    let key = world.home(".ssh/id_rsa");
    symlink(&key, world.project("planted")).unwrap();
    symlink("../../.ssh", world.project("up")).unwrap();
    symlink(world.base(""), world.project("base")).unwrap();
    let climb = format!("{}..{}", "../".repeat(40), text(&key));
    let reads = |name: &str| op!("read", world.project(name));
    let operations = [
        reads("planted"),
        reads("up/id_rsa"),
        reads("base/home/.ssh/id_rsa"),
        op!("read", &climb),
        op!("symlink", &key, world.project("made")),
        reads("made"),
        op!("link", &key, world.project("hard")),
        op!("link", world.project("planted"), world.project("hard2")),
        op!("rename", &key, world.project("moved")),
    ];
    let plain = world.outside().operations(&operations[..4]);
    assert!(
        plain.iter().all(|answer| answer.starts_with("ok:secret")),
        "{plain:?}"
    );
    let answers = world.jail([]).operations(&operations);
    let expected = [
        "ENOENT", "ENOENT", "ENOENT", "ENOENT", "ok", "ENOENT", "ENOENT", "ok", "ENOENT",
    ];
    assert_answers(&answers, &expected, "links");
    // A hard link to a symbolic link is one more symbolic link, and no key.
    assert!(
        fs::symlink_metadata(world.project("hard2"))
            .unwrap()
            .is_symlink()
    );
}

/// A hard link in the project to a read-only file would be a writable name of it.
#[test]
fn a_read_only_file_gets_no_writable_name() {
    let world = World::new();
    let run = world.outside().run(&["git", "init", "-q"]);
    assert_eq!(run.code(), 0, "{run:?}");
    let data = world.home("data/file");
    world.put(&data, "data\n");
    let protected = world.project(".git/config");
    let into = |name: &str| world.project(name);
    let operations = [
        op!("link", &data, into("1")),
        op!("link", &protected, into("2")),
        op!("link-open", &data, into("3")),
        op!("link-open", &protected, into("4")),
        op!("link", world.home(".gitconfig"), into("5")),
        op!("rename", &data, into("6")),
        op!("exchange", &data, into("README")),
    ];
    let answers = world
        .jail([])
        .option("--read", data.parent().unwrap())
        .operations(&operations);
    for answer in &answers {
        assert!(
            is_as_good_as_one(answer, &["EXDEV", "EROFS", "EBUSY"]),
            "{answers:?}"
        );
    }
    let plain = world.outside().operations(&operations[..2]);
    assert_eq!(plain, ["ok", "ok"], "the same outside");
}

#[test]
fn read_only_paths_cannot_be_changed() {
    let world = World::new();
    let (dir, file) = (world.home("data"), world.home("data/file"));
    world.put(&file, "data\n");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let operations = [
        op!("append", &file, "evil"),
        op!("truncate", &file),
        op!("chmod", "666", &file),
        op!("chown", &file),
        op!("utimes", &file),
        op!("setxattr", &file),
        op!("create", dir.join("new")),
        op!("mkdir", dir.join("newdir")),
        op!("symlink", "x", dir.join("link")),
        op!("chmod", "777", &dir),
        op!("unlink", &file),
        op!("rename", &file, dir.join("other")),
    ];
    let answers = world
        .jail([])
        .option("--read", &dir)
        .operations(&operations);
    assert_answers(&answers, &["EROFS"; 12], "read-only");
    let meta = fs::metadata(&file).unwrap();
    assert_eq!((meta.permissions().mode() & 0o7777, meta.len()), (0o640, 5));
    // The jail's own executable is the launcher's: often the user's own file, and run outside.
    let own = match is_landlock() {
        true => text(&launcher()),
        false => "/run/agent-sandbox/init".to_owned(),
    };
    let system = world.jail([]).operations(&[
        op!("chmod", "777", &own),
        op!("utimes", &own),
        op!("unlink", &own),
        op!("create", "/usr/bin/new"),
        op!("create", "/etc/new"),
        op!("create", "/new"),
        op!("mkdir", "/home/new"),
        op!("append", "/etc/passwd", "evil"),
        op!("unlink", "/etc/passwd"),
        op!("rename", "/usr", "/usr2"),
    ]);
    for answer in &system {
        assert!(
            is_as_good_as_one(answer, &["EROFS", "EBUSY", "EACCES"]),
            "{system:?}"
        );
    }
    let plain = world.outside().operations(&operations);
    assert!(
        plain.iter().filter(|answer| *answer == "ok").count() >= 11,
        "{plain:?}"
    );
}

/// Names below which `/proc` leads to a root directory, a working directory, open files, memory.
/// Words: a path, and whether init of the jail is process 1 or the parent.
fn proc_links(words: &[String]) {
    let target = &words[0];
    let init = match words[1].as_str() {
        "parent" => nix::unistd::getppid().to_string(),
        _ => "1".to_owned(),
    };
    for process in ["1", "self", "thread-self"] {
        for name in ["root", "cwd", "exe"] {
            let path = format!("/proc/{process}/{name}{target}");
            tell(&format!("{process} {name}"), carry_out(&["read", &path]));
        }
        let fds = carry_out(&["list", &format!("/proc/{process}/fd")]);
        for fd in fds.strip_prefix("ok:").unwrap_or_default().split(',') {
            let path = format!("/proc/{process}/fd/{fd}/{target}");
            tell(&format!("{process} fd {fd}"), carry_out(&["read", &path]));
        }
    }
    for name in [
        "environ",
        "mem",
        "maps",
        "fd",
        "fdinfo/0",
        "auxv",
        "io",
        "stack",
        "syscall",
        "cwd",
        "root",
        "exe",
        "ns/mnt",
        "ns/user",
        "map_files",
        "pagemap",
        "smaps",
        "task/@/mem",
        "task/@/environ",
    ] {
        let path = format!("/proc/{init}/{}", name.replace('@', &init));
        let verb = if ["fd", "map_files"].contains(&name) {
            "list"
        } else {
            "read"
        };
        tell(&format!("init {name}"), carry_out(&[verb, &path]));
        if ["cwd", "root", "exe", "ns/mnt", "ns/user"].contains(&name) {
            tell(
                &format!("init {name} link"),
                carry_out(&["readlink", &path]),
            );
        }
    }
}

#[test]
fn proc_leads_nowhere() {
    let world = World::new();
    let key = text(&world.home(".ssh/id_rsa"));
    let init = if is_landlock() { "parent" } else { "1" };
    let plain = world.outside().attack("proc-links", &[&key, init]);
    assert!(plain.get("self root").starts_with("ok:secret"), "{plain:?}");
    let report = world.jail([]).attack("proc-links", &[&key, init]);
    for (place, answer) in report.all() {
        let expected: &[&str] = match place.split(' ').next() {
            Some("init" | "1") => &["EACCES", "EPERM"],
            _ => &["ENOENT", "ENOTDIR"],
        };
        assert!(is_as_good_as_one(answer, expected), "{place}: {answer}");
    }
}

/// Writes to a read-only file through a shared mapping and `/proc/self/mem`, which ignores the
/// protection of pages.
fn own_memory(words: &[String]) {
    let file = fs::File::open(&words[0]).expect("the file");
    use std::os::fd::AsRawFd;
    const PAGE: usize = 4096;
    // SAFETY: a new mapping at a place of the kernel's choice.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            PAGE,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(at, libc::MAP_FAILED, "mmap");
    // SAFETY: changes the protection of that mapping only.
    let changed = unsafe { libc::mprotect(at, PAGE, libc::PROT_READ | libc::PROT_WRITE) };
    tell_call("mprotect", changed.into());
    let memory = fs::OpenOptions::new().write(true).open("/proc/self/mem");
    let written = memory.and_then(|memory| {
        use std::os::unix::fs::FileExt;
        memory.write_at(b"evil", at as u64)
    });
    tell("memory", if written.is_ok() { "ok" } else { "refused" });
    let again = format!("/proc/self/fd/{}", file.as_raw_fd());
    tell("reopened", carry_out(&["append", &again, "evil"]));
    tell("chmod", carry_out(&["chmod", "666", &again]));
    tell("truncate", carry_out(&["truncate", &again]));
}

#[test]
fn memory_is_no_way_into_a_read_only_file() {
    let world = World::new();
    let file = world.home("data/file");
    world.put(&file, "data\n");
    let report = world
        .jail([])
        .option("--read", &file)
        .attack("own-memory", &[&file]);
    for (what, answer) in report.all() {
        assert!(
            ["EROFS", "EACCES", "refused"].contains(&answer),
            "{what}: {answer}"
        );
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "data\n");
    let plain = world.outside().attack("own-memory", &[&file]);
    assert_eq!(plain.get("reopened"), "ok");
}

fn dump_core(_: &[String]) {
    let unlimited = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    let places = ["/", "/usr", "/etc", "/home", "/tmp"];
    for place in places {
        crate::probe::in_child(|| {
            // SAFETY: a limit of this child, and a directory by its name.
            unsafe {
                libc::setrlimit(libc::RLIMIT_CORE, &unlimited);
                libc::chdir(c(place).as_ptr());
                libc::abort();
            }
        });
        tell(place, carry_out(&["list", place]));
    }
}

#[test]
fn a_core_dump_lands_in_no_other_place() {
    let world = World::new();
    let report = world.jail([]).attack::<&str>("dump-core", &[]);
    for (place, names) in report.all().filter(|(place, _)| *place != "/tmp") {
        let dumped = names
            .trim_start_matches("ok:")
            .split(',')
            .any(|name| name.starts_with("core"));
        assert!(!dumped, "{place}: {names}");
    }
}

#[test]
fn an_overlong_path_is_no_way_past_the_rules() {
    let world = World::new();
    // As deep as PATH_MAX allows and deeper, by steps.
    let name = "d".repeat(250);
    let mut operations = Vec::new();
    for _ in 0..20 {
        operations.push(op!("mkdir", &name));
        operations.push(op!("chdir", &name));
    }
    operations.push(op!("read", format!("{}.ssh/id_rsa", "../".repeat(22))));
    operations.push(op!("create", "deep"));
    let answers = world.jail([]).operations(&operations);
    if is_landlock() {
        // What the mediator cannot name it does not judge, and so does not make.
        let refused = ["ENAMETOOLONG", "ENOENT", "EACCES"];
        let good = |answer: &String| answer == "ok" || refused.contains(&answer.as_str());
        assert!(answers[..40].iter().all(good), "{answers:?}");
        assert!(
            answers[..30].iter().all(|answer| answer == "ok"),
            "{answers:?}"
        );
        assert!(refused.contains(&answers[40].as_str()), "{answers:?}");
        world.outside().operations(&operations[..40]);
    } else {
        let made = answers[..40].iter().all(|answer| answer == "ok");
        assert!(made, "{answers:?}");
        assert_eq!(answers[40..], ["ENOENT", "ok"]);
    }
    // A launch with such names is refused or runs, and shows nothing either way.
    let long = format!("{}{}", text(&world.project("")), "/x".repeat(4096));
    for options in [["--read", &long], ["--hide", &long], ["-C", &long]] {
        let output = world
            .jail(options)
            .run(&["cat", &text(&world.home(".ssh/id_rsa"))]);
        assert_ne!(output.code(), 0, "{output:?}");
    }
    // The deep directory itself, reached by steps: the launcher's current directory.
    let steps = format!(
        "for i in $(seq 20); do cd {name} || exit 9; done; exec \"$0\" \"$@\" -q cat {}",
        text(&world.home(".ssh/id_rsa"))
    );
    let mut words = ["bash", "-c", &steps].map(str::to_owned).to_vec();
    words.extend(crate::backend::launcher_words(&[]));
    let output = world.outside().run(&words);
    assert_ne!(output.code(), 0, "{output:?}");
    assert!(!output.stdout.contains(&world.marker));
}
