//! Directories of a group: what people do there gives the same inside as outside, and nothing else can
//! be done by it.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::unistd::Group;

use crate::backend::is_landlock;
use crate::operations::{carry_out, text};
use crate::probe::{Attack, address, c, outcome, syscall, tell};
use crate::world::{World, not_checked};

pub(crate) const ATTACKS: &[Attack] = &[
    ("group-bits", bits),
    ("group-swaps", swaps),
    ("group-links", links),
];

/// `fchmodat2(2)` (Linux 6.6).
const SYS_FCHMODAT2: i64 = 452;
/// No race takes longer.
const LONGEST: Duration = Duration::from_secs(3);

/// A group that the tester is in besides the own one.
struct Lab {
    name: String,
    id: u32,
}

/// Two of them; `None` if there are not, which is said.
fn labs(what: &str) -> Option<[Lab; 2]> {
    let own = nix::unistd::getgid();
    let groups = nix::unistd::getgroups().expect("groups");
    let named = groups.into_iter().filter(|&group| group != own);
    let mut named = named.filter_map(|id| {
        let name = Group::from_gid(id).ok()??.name;
        Some(Lab {
            name,
            id: id.as_raw(),
        })
    });
    match (named.next(), named.next()) {
        (Some(one), Some(other)) => Some([one, other]),
        _ => {
            not_checked(what, "the user is in no two groups besides the own one");
            None
        }
    }
}

/// What is done, with `$LAB` and `$DATA` for the groups, in a directory of `$LAB` with `src` in it.
const DAILY: &[(&str, &str)] = &[
    ("rsync -a", "rsync -a src/ copy/"),
    ("rsync -aA", "rsync -aA src/ copy/"),
    (
        "tar xpf",
        "tar cf t.tar src && mkdir new && tar xpf t.tar -C new && rm t.tar",
    ),
    (
        "unzip",
        "python3 -c 'import shutil; shutil.make_archive(\"z\", \"zip\", \".\", \"src\")' && mkdir new && unzip -qK z.zip -d new && rm z.zip",
    ),
    ("cp -a", "cp -a src copy"),
    ("cp -rp of a file with a list", "cp -p src/listed copy"),
    ("git init", "git init -q --shared=group repository"),
    ("chmod -R", "chmod -R g+w src"),
    ("chmod 770", "chmod 770 src src/sub"),
    ("chmod g-s", "chmod g-s src/sub"),
    ("chmod g+s", "chmod g-s src/sub && chmod g+s src/sub"),
    ("chmod of a link", "ln -s src link && chmod 2750 link"),
    (
        "chmod from below",
        "cd src/sub && chmod 2775 .. ../../src/sub .",
    ),
    ("mkdir -m", "mkdir -m 2775 new"),
    ("install -d", "install -d -m 2775 new"),
    (
        "copytree",
        "python3 -c 'import shutil; shutil.copytree(\"src\", \"copy\")'",
    ),
    (
        "os.chmod",
        "python3 -c 'import os; os.chmod(\"src\", os.stat(\"src\").st_mode)'",
    ),
    (
        "os.fchmod",
        "python3 -c 'import os; f = os.open(\"src\", os.O_RDONLY); os.fchmod(f, 0o2755); os.chmod(\"sub\", 0o2755, dir_fd=f)'",
    ),
    ("chgrp", "chgrp $DATA src/a"),
    ("chgrp by number", "chgrp $DATA_ID src/a"),
    ("chgrp -R", "chgrp -R $DATA src"),
    ("chgrp -h", "ln -s src/a link && chgrp -h $DATA link"),
    ("chown :", "chown :$DATA src/a src"),
    ("chown user:", "chown $(id -un):$DATA src/a"),
    ("install -g", "install -g $DATA -m 640 src/a b"),
    ("setfacl", "setfacl -m g:$DATA:rw src/a"),
    ("setfacl of a user", "setfacl -m u:daemon:r src/a"),
    ("setfacl -x", "setfacl -x g:$LAB src/listed"),
    ("setfacl -b", "setfacl -b src/listed"),
    (
        "setfacl -d",
        "setfacl -d -m g:$DATA:rwx src && mkdir src/x && touch src/x/y",
    ),
    (
        "copy of a list",
        "getfacl src/listed | setfacl --set-file=- src/a",
    ),
    ("to a home", "rsync -a src/ ~/copied/"),
    // What is nobody's to give is refused as outside.
    ("chgrp root", "chgrp 0 src/a"),
    ("chown root", "chown 0 src/a"),
    ("chgrp nothing", "chgrp $DATA nothing"),
];

/// The directory as it is outside, by everything that these commands change.
fn shown(directory: &Path) -> String {
    let script = "find . -mindepth 1 -printf '%M %U %G %p\\n' | LC_ALL=C sort; find . -not -type l | LC_ALL=C sort | xargs -d '\\n' getfacl -n | grep -v '^$'";
    let output = Command::new("sh")
        .args(["-c", script])
        .current_dir(directory)
        .stderr(Stdio::inherit())
        .output();
    String::from_utf8(output.expect("find").stdout).expect("text")
}

fn run_outside(directory: &Path, script: &str) {
    let status = Command::new("sh")
        .args(["-ec", script])
        .current_dir(directory)
        .status();
    assert!(status.expect("sh").success(), "{script}");
}

/// A fresh directory of the group.
fn fresh(world: &World, name: &str, labs: &[Lab; 2], listed: bool) -> PathBuf {
    let directory = world.project(name);
    fs::create_dir_all(&directory).unwrap();
    let [lab, data] = [&labs[0].name, &labs[1].name];
    let lists = match listed {
        true => format!("setfacl -d -m g:{data}:rwx ."),
        false => ":".to_owned(),
    };
    run_outside(
        &directory,
        &format!(
            "umask 007; chgrp {lab} .; chmod 2770 .; {lists}
             mkdir -p src/sub; echo 1 >src/a; echo 2 >src/sub/b; echo 3 >src/listed; chmod 770 src/sub/b
             setfacl -m g:{lab}:rw,u:daemon:r src/listed"
        ),
    );
    directory
}

#[test]
fn in_a_directory_of_a_group_commands_do_what_they_do_outside() {
    let Some(labs) = labs("daily commands in a directory of a group") else {
        return;
    };
    let world = World::new();
    let mut wrong = Vec::new();
    for (listed, mask) in [(false, "007"), (true, "002")] {
        for outside in [true, false] {
            for at in 0..DAILY.len() {
                fresh(&world, &format!("{listed}/{outside}/{at}"), &labs, listed);
            }
        }
        // One launch for all: what is compared is the directories and the exit codes.
        let all: String = DAILY
            .iter()
            .enumerate()
            .map(|(at, (_, script))| {
                format!("(cd {at} && ({script}) 2>{at}.err; echo $? >code; rm -rf ~/copied*)\n")
            })
            .collect();
        let names = format!(
            "LAB={} DATA={} DATA_ID={}; umask {mask}\n",
            labs[0].name, labs[1].name, labs[1].id
        );
        let script = names + &all;
        let place = |outside: bool| world.project(&format!("{listed}/{outside}"));
        let jailed = world.jail([]).cwd(&place(false));
        let inside = jailed.run(&["sh", "-c", &script]);
        assert_eq!(inside.code(), 0, "{inside:?}");
        let plain = world
            .outside()
            .cwd(&place(true))
            .run(&["sh", "-c", &script]);
        assert_eq!(plain.code(), 0, "{plain:?}");
        for (at, (name, _)) in DAILY.iter().enumerate() {
            let at_each = |outside| place(outside).join(at.to_string());
            let code = |outside| fs::read_to_string(at_each(outside).join("code")).unwrap();
            let errors = fs::read_to_string(at_each(false).join(format!("{at}.err"))).unwrap();
            let (one, other) = (shown(&at_each(true)), shown(&at_each(false)));
            if code(true) != code(false) || one != other {
                wrong.push(format!(
                    "{name} (umask {mask}): outside {}inside {}{errors}outside\n{one}inside\n{other}",
                    code(true),
                    code(false),
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// An access control list that gives a group everything.
fn list(group: u32) -> Vec<u8> {
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, id) in [
        (1u16, u32::MAX),
        (4, u32::MAX),
        (8, group),
        (0x10, u32::MAX),
        (0x20, u32::MAX),
    ] {
        value.extend(tag.to_le_bytes());
        value.extend(7u16.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

/// Every call of the three kinds on a path, each with its answer.
fn attempts(path: &str, group: u32) -> Vec<(&'static str, String)> {
    let (name, acl, value) = (c(path), c"system.posix_acl_access", list(group));
    let p = address(name.as_c_str());
    let (here, mode, stays) = (libc::AT_FDCWD as u64, 0o2777, u64::from(u32::MAX));
    let length = value.len() as u64;
    let fd = fs::File::open(path).ok();
    let fd = fd.as_ref().map_or(u64::MAX, |file| file.as_raw_fd() as u64);
    let through = c(&format!("/proc/self/fd/{fd}"));
    let t = address(through.as_c_str());
    let group = u64::from(group);
    let mut all = vec![
        ("fchmodat", syscall(libc::SYS_fchmodat, &[here, p, mode])),
        (
            "fchmodat of a descriptor",
            syscall(libc::SYS_fchmodat, &[here, t, mode]),
        ),
        ("fchmod", syscall(libc::SYS_fchmod, &[fd, mode])),
        (
            "fchmod with high bits",
            syscall(libc::SYS_fchmod, &[fd, mode | 1 << 32]),
        ),
        ("fchmodat2", syscall(SYS_FCHMODAT2, &[here, p, mode, 0])),
        (
            "fchownat",
            syscall(libc::SYS_fchownat, &[here, p, stays, group, 0]),
        ),
        (
            "fchownat of a link",
            syscall(libc::SYS_fchownat, &[here, p, stays, group, 0x100]),
        ),
        ("fchown", syscall(libc::SYS_fchown, &[fd, stays, group])),
    ]
    .into_iter()
    .map(|(name, result)| (name, outcome(result)))
    .collect::<Vec<_>>();
    let mut set = |name, number, subject| {
        let arguments = [subject, address(acl), address(&value[..]), length, 0];
        all.push((name, outcome(syscall(number, &arguments))));
    };
    set("setxattr", libc::SYS_setxattr, p);
    set("setxattr of a descriptor", libc::SYS_setxattr, t);
    set("lsetxattr", libc::SYS_lsetxattr, p);
    set("fsetxattr", libc::SYS_fsetxattr, fd);
    all
}

/// Words: the group, and paths.
fn bits(words: &[String]) {
    let group = words[0].parse().expect("a group");
    for path in &words[1..] {
        for (name, answer) in attempts(path, group) {
            tell(&format!("{path} {name}"), answer);
        }
    }
}

fn facts(path: &Path) -> (u32, u32, Vec<u8>) {
    let meta = fs::symlink_metadata(path).unwrap();
    let output = Command::new("getfacl").arg("-np").arg(path).output();
    (meta.mode(), meta.gid(), output.expect("getfacl").stdout)
}

#[test]
fn a_file_gets_no_set_group_bit_and_what_is_read_only_or_hidden_stays_as_it_is() {
    let Some(labs) = labs("rights over files that are read-only or hidden") else {
        return;
    };
    let world = World::new();
    let read_only = world.outer("data");
    fs::create_dir_all(read_only.join("sub")).unwrap();
    world.put(&read_only.join("file"), "x");
    symlink(&read_only, world.project("link")).unwrap();
    symlink(read_only.join("file"), world.project("file-link")).unwrap();
    let hidden = [
        world.home(".ssh"),
        world.home(".ssh/id_rsa"),
        world.home(".aws"),
    ];
    let guarded = [&read_only, &read_only.join("sub"), &read_only.join("file")];
    let before = |paths: &[&PathBuf]| paths.iter().map(|path| facts(path)).collect::<Vec<_>>();
    let all: Vec<&PathBuf> = guarded.into_iter().chain(&hidden).collect();
    let were = before(&all);
    let file = world.project("program");
    world.put(&file, "x");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let group = labs[1].id.to_string();
    let links = [world.project("link"), world.project("file-link")];
    let mut words = vec![group.clone(), text(&file)];
    words.extend(all.iter().map(text));
    words.extend(links.iter().map(text));
    // By links that are no text.
    for above in [
        "/proc/self/root",
        "/proc/1/root",
        "/proc/thread-self/cwd/../../..",
    ] {
        words.extend(guarded.map(|path| format!("{above}{}", path.display())));
    }
    let run = world.jail([]).option("--read", &read_only);
    let report = run.attack("group-bits", &words);
    assert_eq!(before(&all), were, "{report:?}");
    assert_eq!(facts(&file).0 & 0o6000, 0, "{report:?}");
    for (what, answer) in report.all() {
        let path = what.split(' ').next().unwrap_or_default();
        let of_links = what.ends_with("fchownat of a link") || what.ends_with("lsetxattr");
        let good = match answer {
            "ok" => {
                (path == text(&file) && !what.contains("fchmod"))
                    || (of_links && what.contains("link"))
            }
            _ => true,
        };
        assert!(good, "{what}: {answer}");
        if path == text(&file) && what.contains("fchmod") && answer != "ENOSYS" {
            assert_eq!(answer, "EPERM", "{what}");
        }
        if path == text(&read_only) && !is_landlock() && answer != "ENOSYS" {
            assert_eq!(answer, "EROFS", "{what}");
        }
    }
    // Outside, all of it goes through.
    let plain = world
        .outside()
        .attack("group-bits", &[group.clone(), text(&file)]);
    assert_eq!(plain.get(&format!("{} fchmodat", text(&file))), "ok");
    // Its new owner took the bit away again.
    assert_eq!(facts(&file).1, labs[1].id);
}

/// Words: a directory and a file beside it, which change places while the one name gets the bit.
fn swaps(words: &[String]) {
    let [directory, file] = words else {
        panic!("two words")
    };
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = {
        let (stop, one, other) = (stop.clone(), directory.clone(), file.clone());
        std::thread::spawn(move || {
            let mut swaps = 0u32;
            while !stop.load(Ordering::Relaxed) {
                swaps += u32::from(carry_out(&["exchange", &one, &other]) == "ok");
            }
            swaps
        })
    };
    let (begun, mut won, mut given, mut tries) = (Instant::now(), 0, 0, 0);
    while begun.elapsed() < LONGEST {
        tries += 1;
        given += u32::from(carry_out(&["chmod", "2755", directory]) == "ok");
        for name in [directory, file] {
            let Ok(meta) = fs::symlink_metadata(name) else {
                continue;
            };
            won += u32::from(meta.is_file() && meta.mode() & 0o2000 != 0);
        }
    }
    stop.store(true, Ordering::Relaxed);
    tell("swaps", swapper.join().expect("the swapper"));
    tell("tries", tries);
    tell("given", given);
    tell("won", won);
}

#[test]
fn a_file_that_takes_the_place_of_a_directory_gets_no_set_group_bit() {
    let world = World::new();
    let (directory, file) = (world.project("one"), world.project("other"));
    fs::create_dir(&directory).unwrap();
    world.put(&file, "x");
    let report = world.jail([]).attack("group-swaps", &[&directory, &file]);
    assert_eq!(report.get("won"), "0", "{report:?}");
    assert_ne!(report.get("swaps"), "0", "{report:?}");
    assert_ne!(report.get("given"), "0", "a directory gets it: {report:?}");
    for path in [&directory, &file] {
        let meta = fs::symlink_metadata(path).unwrap();
        assert!(meta.is_dir() || meta.mode() & 0o6000 == 0, "{report:?}");
    }
    let plain = world.outside().attack("group-swaps", &[&directory, &file]);
    assert_ne!(plain.get("won"), "0", "{plain:?}");
}

/// Words: a group, a link, and two places that it leads to by turns.
fn links(words: &[String]) {
    let [group, link, one, other] = words else {
        panic!("four words")
    };
    let group = group.parse().expect("a group");
    let stop = Arc::new(AtomicBool::new(false));
    let flipper = {
        let (stop, link, two) = (stop.clone(), link.clone(), [one.clone(), other.clone()]);
        std::thread::spawn(move || {
            let fresh = format!("{link}.new");
            for at in (0..2).cycle() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let _ = symlink(&two[at], &fresh);
                let _ = fs::rename(&fresh, &link);
            }
        })
    };
    let (begun, mut tries) = (Instant::now(), 0);
    while begun.elapsed() < LONGEST {
        let answers = attempts(link, group);
        tries += answers.iter().filter(|(_, answer)| answer == "ok").count();
    }
    stop.store(true, Ordering::Relaxed);
    flipper.join().expect("the flipper");
    tell("done", tries);
}

#[test]
fn a_link_that_flips_leads_to_nothing_that_is_read_only_or_hidden() {
    let Some(labs) = labs("links that flip between places of a group") else {
        return;
    };
    let world = World::new();
    let read_only = world.outer("data");
    fs::create_dir_all(&read_only).unwrap();
    let own = world.project("own");
    fs::create_dir(&own).unwrap();
    for guarded in [read_only.clone(), world.home(".ssh")] {
        let was = facts(&guarded);
        let words = [
            labs[1].id.to_string(),
            text(&world.project("flipping")),
            text(&own),
            text(&guarded),
        ];
        let run = world.jail([]).option("--read", &read_only);
        let report = run.attack("group-links", &words);
        assert_eq!(facts(&guarded), was, "{report:?}");
        assert_ne!(report.get("done"), "0", "{report:?}");
    }
    assert_eq!(facts(&own).1, labs[1].id);
}
