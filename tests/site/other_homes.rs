//! `hide = ["/home/* but ~"]`: ways to what stands in somebody else's home. Each succeeds without the site's file.

use std::ffi::{CString, OsStr};
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::world::{CANARY, Call, Output, World, mode};

/// A world in which the user's home stands beside that of bob, who lets others read it.
struct Homes {
    world: World,
    backend: &'static str,
}

impl Homes {
    fn new(backend: &'static str, enforced: bool) -> Self {
        let world = World::new();
        let homes = Self { world, backend };
        let beside = homes.beside();
        for directory in ["bob/project", "again"] {
            let at = match directory {
                "again" => homes.world.base().join("again"),
                _ => beside.join(directory),
            };
            fs::create_dir_all(at).unwrap();
        }
        fs::write(beside.join("bob/secret"), CANARY).unwrap();
        fs::write(beside.join("bob/project/secret"), CANARY).unwrap();
        fs::create_dir(homes.own_in(&beside)).unwrap();
        let volume = homes.world.base().join("volume/eve");
        fs::create_dir_all(&volume).unwrap();
        fs::write(volume.join("secret"), CANARY).unwrap();
        symlink(&volume, beside.join("eve")).unwrap();
        for (name, target) in [("way", homes.bob()), ("eves", homes.root().join("eve"))] {
            symlink(target, homes.world.home().join(name)).unwrap();
        }
        homes.world.write("project/inner/x", "");
        if enforced {
            let root = homes.root();
            let rule = format!("[files]\nhide = [\"{}/* but ~\"]\n", root.display());
            homes.world.enforced(&rule);
        }
        homes
    }

    /// What is mounted where homes are.
    fn beside(&self) -> PathBuf {
        self.world.base().join("beside")
    }

    fn own_in(&self, homes: &Path) -> PathBuf {
        homes.join(self.world.seen_home().file_name().unwrap())
    }

    /// Where launches see homes.
    fn root(&self) -> PathBuf {
        self.world.seen_home().parent().unwrap().to_owned()
    }

    fn bob(&self) -> PathBuf {
        self.root().join("bob")
    }

    fn dressed<'a>(&'a self, call: Call<'a>) -> Call<'a> {
        let seen = |path: &Path| path.to_str().unwrap().to_owned();
        call.bind(&self.beside(), &seen(&self.root()))
            .bind(&self.world.home(), &seen(self.world.seen_home()))
    }

    fn jail<'a>(&'a self, options: &[&str], script: &str) -> Call<'a> {
        let mut words = vec!["-q", "--backend", self.backend];
        if self.backend == "landlock" {
            words.extend(["--set", "landlock.sizes=degraded"]);
            words.extend(["--set", "landlock.users=degraded"]);
        }
        words.extend(options);
        words.extend(["--", "sh", "-c", script]);
        self.dressed(self.world.call(&words))
    }
}

type Way = fn(&Homes) -> Output;

/// Reads the file by this path, in a jail that is asked for with this option and value.
fn cat(homes: &Homes, option: &str, value: &Path, file: &Path) -> Output {
    let script = format!("cat {} 2>&1; echo; echo ran", file.display());
    homes
        .jail(&[option, value.to_str().unwrap()], &script)
        .run()
}

const WAYS: &[(&str, Way)] = &[
    ("the directory of homes", |t| {
        cat(t, "--read", &t.root(), &t.bob().join("secret"))
    }),
    ("the home", |t| {
        cat(t, "--read", &t.bob(), &t.bob().join("secret"))
    }),
    ("a file", |t| {
        let file = t.bob().join("secret");
        cat(t, "--read", &file, &file)
    }),
    ("a link in one's own home", |t| {
        let way = t.world.seen_home().join("way");
        cat(t, "--read", &way, &way.join("secret"))
    }),
    ("a home that is a link", |t| {
        let eve = t.root().join("eve");
        cat(t, "--read", &eve, &eve.join("secret"))
    }),
    ("a link to a home that is a link", |t| {
        let way = t.world.seen_home().join("eves");
        cat(t, "--read", &way, &way.join("secret"))
    }),
    ("another HOME", |t| {
        let script = format!("cat {}/secret 2>&1; echo; echo ran", t.bob().display());
        let jail = t.jail(&["--home", "read"], &script);
        let state = t.world.seen_home().join(".state");
        jail.variable("HOME", t.bob())
            .variable("XDG_STATE_HOME", state)
            .run()
    }),
    ("a second mount of the home", |t| {
        let again = t.world.base().join("again");
        let at = again.to_str().unwrap();
        let script = format!("cat {at}/secret 2>&1; echo; echo ran");
        t.jail(&["--read", at], &script)
            .bind(&t.beside().join("bob"), at)
            .run()
    }),
    ("a second mount of all homes", |t| {
        let again = t.world.base().join("again");
        let at = again.to_str().unwrap();
        let script = format!("cat {at}/bob/secret 2>&1; echo; echo ran");
        t.jail(&["--read", at], &script).bind(&t.beside(), at).run()
    }),
    ("a second mount in one's own project", |t| {
        let inner = t.world.seen_home().join("project/inner");
        let jail = t.jail(&[], "cat inner/secret 2>&1; echo; echo ran");
        jail.bind(&t.beside().join("bob"), inner.to_str().unwrap())
            .run()
    }),
    ("a project in it", |t| {
        let jail = t.jail(&[], "cat secret 2>&1; echo; echo ran");
        jail.cwd(t.bob().join("project")).run()
    }),
];

#[test]
fn somebody_elses_home_is_reached_by_no_way() {
    for backend in ["bwrap", "landlock"] {
        for (name, way) in WAYS {
            let open = way(&Homes::new(backend, false));
            assert!(
                open.stdout.contains(CANARY),
                "{name}, {backend}: without a rule this succeeds, or the test shows nothing: {open}"
            );
            let shut = way(&Homes::new(backend, true));
            assert!(!shut.stdout.contains(CANARY), "{name}, {backend}: {shut}");
            // Refused with its reason, or a jail without it.
            let told = shut.code == 125 && shut.stderr.contains("but ~` (");
            assert!(
                told || shut.stdout.ends_with("ran\n"),
                "{name}, {backend}: {shut}"
            );
        }
    }
}

/// A process of the user's outside stands in the home: `/proc` is a way to where it is.
#[test]
fn no_process_outside_leads_to_somebody_elses_home() {
    for backend in ["bwrap", "landlock"] {
        let homes = Homes::new(backend, true);
        let launcher = homes.world.launcher().display().to_string();
        let script = format!(
            "cd {bob} && sleep 60 & pid=$!; until [ \"$(readlink /proc/$pid/cwd)\" = {bob} ]; do sleep 0.05; done\n\
             cat /proc/$pid/cwd/secret; echo; cd {home}/project\n\
             {launcher} -q --backend {backend} --set landlock.sizes=degraded --set landlock.users=degraded \
             -- sh -c 'cat /proc/[0-9]*/cwd/secret /proc/[0-9]*/root{bob}/secret 2>&1; echo ran'; kill $pid",
            bob = homes.bob().display(),
            home = homes.world.seen_home().display(),
        );
        let output = homes.dressed(homes.world.outside(&script)).run();
        // Once by the shell outside.
        assert_eq!(
            output.stdout.matches(CANARY).count(),
            1,
            "{backend}: {output}"
        );
        assert!(output.stdout.ends_with("ran\n"), "{backend}: {output}");
    }
}

/// Work goes on: one's own home is there, what others have is not even a name.
#[test]
fn ones_own_home_is_there_and_others_are_no_names() {
    for backend in ["bwrap", "landlock"] {
        let homes = Homes::new(backend, true);
        let root = homes.root();
        let own = homes.world.seen_home();
        let script = format!(
            "echo x > made && cat made && ls {} 2>/dev/null; true",
            root.display()
        );
        let output = homes
            .jail(&["--read", root.to_str().unwrap()], &script)
            .run()
            .ok();
        let name = own.file_name().unwrap().to_str().unwrap();
        match backend {
            "bwrap" => assert_eq!(output.stdout, format!("x\n{name}\n"), "{output}"),
            // Landlock takes no names away; it closes the directory.
            _ => assert_eq!(output.stdout, "x\n", "{output}"),
        }
    }
    let homes = Homes::new("bwrap", true);
    let bob = homes.bob();
    let words = ["explain", bob.to_str().unwrap()];
    let output = homes.dressed(homes.world.call(&words)).run().ok();
    for word in ["hidden", "but ~` (", "the site forbids it"] {
        assert!(output.stdout.contains(word), "no {word}: {output}");
    }
}

/// An automounter that never answers: whoever looks at a name in it waits for good.
struct Automounter {
    at: CString,
    _reading: std::os::fd::OwnedFd,
}

impl Automounter {
    /// `None`: this kernel has none.
    fn at(at: &Path) -> Option<Self> {
        let (reading, writing) = nix::unistd::pipe().unwrap();
        let options = format!(
            "fd={},pgrp=1,minproto=5,maxproto=5,indirect",
            writing.as_raw_fd()
        );
        let at = CString::new(at.as_os_str().as_bytes()).unwrap();
        let mounted = nix::mount::mount(
            Some("nobody"),
            at.as_c_str(),
            Some("autofs"),
            nix::mount::MsFlags::empty(),
            Some(options.as_str()),
        );
        mounted.ok()?;
        Some(Self {
            at,
            _reading: reading,
        })
    }
}

impl Drop for Automounter {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(self.at.as_c_str(), nix::mount::MntFlags::MNT_DETACH);
    }
}

#[test]
fn an_automounter_is_asked_for_nothing() {
    let homes = Homes::new("bwrap", true);
    let users = homes.world.base().join("users");
    fs::create_dir(&users).unwrap();
    mode(&users, 0o755);
    let Some(_automounter) = Automounter::at(&users) else {
        println!("not checked: homes below an automounter: this kernel mounts no autofs here");
        return;
    };
    homes.world.enforced(&format!(
        "[files]\nhide = [\"{}/* but ~\"]\n",
        users.display()
    ));
    let base: &OsStr = homes.world.base().as_os_str();
    let read = ["--read", base.to_str().unwrap()];
    let script = format!("ls {} && echo ran", users.display());
    let output = homes.jail(&read, &script).run().ok();
    assert_eq!(output.stdout, "ran\n", "{output}");
}
