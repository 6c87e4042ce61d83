//! A user who wants more than the site's enforced policy allows. Each way is tried without the enforced
//! file first, where it has to succeed, and then with it, under each backend.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::world::{CANARY, Call, Output, World};

/// What every jail needs of the system.
pub(crate) const SYSTEM: &str =
    r#""/bin", "/etc", "/lib", "/lib32", "/lib64", "/opt", "/sbin", "/usr""#;

/// A world with a tree that the site forbids and one that it allows, both the user's own.
pub(crate) struct Tried {
    pub(crate) world: World,
    pub(crate) backend: &'static str,
}

impl Tried {
    pub(crate) fn new(backend: &'static str) -> Self {
        let world = World::new();
        for name in ["data", "open"] {
            let directory = world.base().join(name);
            fs::create_dir(&directory).unwrap();
            world.own(&directory, 0o755);
            let file = directory.join("secret");
            let content = if name == "data" { CANARY } else { "allowed" };
            fs::write(&file, content).unwrap();
            world.own(&file, 0o644);
        }
        world.write("private/secret", CANARY);
        world.write("allowed/file", "allowed");
        Self { world, backend }
    }

    /// A path in the forbidden tree.
    pub(crate) fn data(&self, below: &str) -> String {
        self.at("data", below)
    }

    /// A path in the tree that is allowed.
    pub(crate) fn open(&self, below: &str) -> String {
        self.at("open", below)
    }

    fn at(&self, tree: &str, below: &str) -> String {
        let path = self.world.base().join(tree).join(below);
        path.to_str().unwrap().trim_end_matches('/').to_owned()
    }

    /// A path in the home, as launches see it.
    pub(crate) fn seen(&self, below: &str) -> String {
        self.world.seen_home().join(below).display().to_string()
    }

    /// A symbolic link of the user's in the home.
    pub(crate) fn link(&self, target: impl AsRef<Path>, below: &str) {
        let at = self.world.home().join(below);
        symlink(target, &at).unwrap();
        let user = self.world.user();
        std::os::unix::fs::lchown(&at, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
    }

    /// A shell script in a jail that is asked for with these options.
    pub(crate) fn jail(&self, options: &[&str], script: &str) -> Call<'_> {
        let mut words = vec!["-q", "--backend", self.backend];
        if self.backend == "landlock" {
            // Whatever a user can say in favour of a weaker jail.
            words.extend(["--set", "landlock.sizes=degraded"]);
            words.extend(["--set", "landlock.users=degraded"]);
        }
        words.extend(options);
        words.extend(["--", "sh", "-c", script]);
        self.world.call(&words)
    }

    /// The same, run.
    #[track_caller]
    pub(crate) fn run(&self, options: &[&str], script: &str) -> Output {
        self.jail(options, script).run()
    }

    /// A jail that is asked for with these options, and says what the file holds.
    #[track_caller]
    pub(crate) fn cat(&self, options: &[&str], file: &str) -> Output {
        self.run(options, &format!("cat '{file}' 2>&1; echo; echo ran"))
    }
}

/// Tries a way to the canary under each backend: without `enforced` it succeeds, with it not. A jail
/// that starts all the same says `ran`.
#[track_caller]
pub(crate) fn stops(
    what: &str,
    enforced: impl Fn(&Tried) -> String,
    way: impl Fn(&Tried) -> Output,
) {
    for backend in ["bwrap", "landlock"] {
        let control = Tried::new(backend);
        let output = way(&control);
        assert!(
            output.stdout.contains(CANARY),
            "{what}, {backend}: without a site's policy this succeeds, or the test shows nothing: {output}"
        );
        refused(what, backend, &enforced, &way);
    }
}

/// The same for a way that leads nowhere under any policy.
#[track_caller]
pub(crate) fn holds(
    what: &str,
    enforced: impl Fn(&Tried) -> String,
    way: impl Fn(&Tried) -> Output,
) {
    for backend in ["bwrap", "landlock"] {
        refused(what, backend, &enforced, &way);
    }
}

#[track_caller]
fn refused(
    what: &str,
    backend: &'static str,
    enforced: &impl Fn(&Tried) -> String,
    way: &impl Fn(&Tried) -> Output,
) {
    let tried = Tried::new(backend);
    tried.world.enforced(&enforced(&tried));
    let output = way(&tried);
    assert!(
        !output.to_string().contains(CANARY),
        "{what}, {backend}: wider than the site allows: {output}"
    );
    let refused = output.code == 125 && output.to_string().contains("error: ");
    assert!(
        refused || output.stdout.contains("ran\n"),
        "{what}, {backend}: {output}"
    );
}

/// Allows the system, one tree and one directory of the home.
fn one_tree(tried: &Tried) -> String {
    format!(
        "[files]\nread = [{SYSTEM}, \"{0}\"]\nwrite = [\"{0}\"]\n[home]\nread = [\"~/allowed\"]\nwrite = [\"~/allowed\"]\n",
        tried.open("")
    )
}

/// Hides one tree and one directory of the home.
fn hidden(tried: &Tried) -> String {
    format!("[files]\nhide = [\"{}\", \"~/private\"]\n", tried.data(""))
}

#[test]
fn paths_outside_of_the_bounds_are_not_given() {
    let bounded = |what, way: &dyn Fn(&Tried) -> Output| stops(what, one_tree, way);
    for option in ["--read", "--write"] {
        bounded(option, &|t| {
            t.cat(&[option, &t.data("")], &t.data("secret"))
        });
        bounded("one file", &|t| {
            t.cat(&[option, &t.data("secret")], &t.data("secret"))
        });
        bounded("below the home", &|t| {
            t.cat(&[option, &t.seen("private")], &t.seen("private/secret"))
        });
    }
    bounded("a directory above", &|t| {
        let above = t.world.base().display().to_string();
        t.cat(&["--read", &above], &t.data("secret"))
    });
    bounded("--set", &|t| {
        let set = format!("files.read=[\"{}\"]", t.data(""));
        t.cat(&["--set", &set], &t.data("secret"))
    });
    bounded("a pattern", &|t| {
        let set = format!("files.read=[\"{}\"]", t.at("", "d*"));
        t.cat(&["--set", &set], &t.data("secret"))
    });
    bounded("a variable", &|t| {
        let set = "files.read=[\"$WHERE/data\"]";
        t.jail(
            &["--set", set],
            &format!("cat {}; echo ran", t.data("secret")),
        )
        .variable("WHERE", t.world.base())
        .run()
    });
    for mode in ["read", "write", "restricted"] {
        bounded("--home", &|t| {
            t.cat(&["--home", mode], &t.seen("private/secret"))
        });
    }
    bounded("a private copy", &|t| {
        let shown = "cat ~/private/secret; echo ran";
        t.run(&["--set", "home.seed=[\"~/private\"]"], shown)
    });
}

#[test]
fn no_file_of_the_users_widens() {
    let bounded = |what, way: &dyn Fn(&Tried) -> Output| stops(what, one_tree, way);
    let wide = |t: &Tried| format!("[files]\nread = [\"{}\"]\n", t.data(""));
    bounded("the user's file", &|t| {
        t.world.user_config(&wide(t));
        t.cat(&[], &t.data("secret"))
    });
    bounded("a profile", &|t| {
        t.world.profile("mine", &wide(t));
        t.cat(&["--profile", "mine"], &t.data("secret"))
    });
    bounded("a profile that claims the command", &|t| {
        let claims = format!("[profile]\ncommands = [\"sh\"]\n{}", wide(t));
        t.world.profile("mine", &claims);
        t.cat(&[], &t.data("secret"))
    });
    bounded("a built-in profile's name", &|t| {
        t.world.profile("claude", &wide(t));
        t.cat(&["--profile", "claude"], &t.data("secret"))
    });
    bounded("a section of a project", &|t| {
        let text = wide(t).replace("[files]", "[projects.\"~/project\".files]");
        t.world.user_config(&text);
        t.cat(&[], &t.data("secret"))
    });
    bounded("another directory of configuration", &|t| {
        t.world
            .write("elsewhere/agent-sandbox/config.toml", wide(t));
        t.jail(&[], &format!("cat {}; echo ran", t.data("secret")))
            .variable("XDG_CONFIG_HOME", t.seen("elsewhere"))
            .run()
    });
    bounded("another home", &|t| {
        t.world
            .write("elsewhere/.config/agent-sandbox/config.toml", wide(t));
        t.jail(&[], &format!("cat {}; echo ran", t.data("secret")))
            .variable("HOME", t.seen("elsewhere"))
            .run()
    });
}

#[test]
fn links_of_the_users_move_nothing() {
    let bounded = |what, way: &dyn Fn(&Tried) -> Output| stops(what, one_tree, way);
    // A link that an agent could have made is not followed anyway.
    let held = |what, way: &dyn Fn(&Tried) -> Output| holds(what, one_tree, way);
    for option in ["--read", "--write"] {
        bounded("a link in the home", &|t| {
            t.link(t.data(""), "link");
            t.cat(&[option, &t.seen("link")], &t.data("secret"))
        });
        held("a link in the tree that is allowed", &|t| {
            symlink(t.data(""), t.open("link")).unwrap();
            t.cat(&[option, &t.open("link")], &t.data("secret"))
        });
        held("a chain of links", &|t| {
            t.link(t.data(""), "one");
            t.link("../one", "allowed/two");
            t.cat(&[option, &t.seen("allowed/two")], &t.data("secret"))
        });
        held("a link to what is private in the home", &|t| {
            t.link("../private", "allowed/link");
            t.cat(
                &[option, &t.seen("allowed/link")],
                &t.seen("private/secret"),
            )
        });
    }
    // The bound itself is the user's to replace.
    bounded("a link where the bound stands", &|t| {
        fs::rename(t.world.home().join("allowed"), t.world.home().join("old")).unwrap();
        t.link(t.data(""), "allowed");
        t.cat(&["--read", &t.seen("allowed")], &t.data("secret"))
    });
    bounded("a link where the bound stands, within the home", &|t| {
        fs::rename(t.world.home().join("allowed"), t.world.home().join("old")).unwrap();
        t.link("private", "allowed");
        t.cat(&["--read", &t.seen("allowed")], &t.seen("private/secret"))
    });
    held("a link where the other bound stands", &|t| {
        fs::rename(t.open(""), t.at("", "old")).unwrap();
        symlink(t.data(""), t.open("")).unwrap();
        let user = t.world.user();
        std::os::unix::fs::lchown(t.open(""), Some(user.uid.as_raw()), Some(user.gid.as_raw()))
            .unwrap();
        t.cat(&["--read", &t.open("")], &t.data("secret"))
    });
    held("home.mode by a link", &|t| {
        t.link(t.data(""), "link");
        t.cat(&["--home", "read"], &t.data("secret"))
    });
    held("a private copy of a link", &|t| {
        t.link(t.data(""), "allowed/link");
        t.run(
            &["--set", "home.seed=[\"~/allowed/link\"]"],
            "cat ~/allowed/link/secret; echo ran",
        )
    });
}

#[test]
fn another_home_moves_nothing() {
    let bounded = |what, way: &dyn Fn(&Tried) -> Output| stops(what, one_tree, way);
    type Home = fn(&Tried) -> String;
    let homes: [(&str, Home); 3] = [
        ("the forbidden tree", |t| t.data("")),
        ("the directory above", |t| {
            t.world.base().display().to_string()
        }),
        ("elsewhere", |t| t.open("")),
    ];
    for (what, home) in homes {
        for options in [
            &["--home", "read"][..],
            &["--home", "write"],
            &["--set", "home.read=[\"~/secret\", \"~/data\"]"],
            &["--set", "home.write=[\"~/secret\", \"~/data\"]"],
        ] {
            if what == "elsewhere" {
                continue;
            }
            bounded(what, &|t| {
                t.world.own(t.world.base(), 0o755);
                t.jail(options, &format!("cat {}; echo ran", t.data("secret")))
                    .variable("HOME", home(t))
                    .run()
            });
        }
        // What is private in the home that the database names.
        bounded(what, &|t| {
            t.world.own(t.world.base(), 0o755);
            t.jail(
                &["--read", &t.seen("private")],
                &format!("cat {}; echo ran", t.seen("private/secret")),
            )
            .variable("HOME", home(t))
            .run()
        });
    }
}

/// Only the lists of `[home]` are bounded, or only those of `[files]`: by place, and not by the name of
/// the list that asks.
#[test]
fn one_list_does_not_stand_for_the_other() {
    let home = |_: &Tried| "[home]\nread = [\"~/allowed\"]\nwrite = [\"~/allowed\"]\n".to_owned();
    let files = |t: &Tried| {
        format!(
            "[files]\nread = [{SYSTEM}, \"{0}\"]\nwrite = []\n",
            t.open("")
        )
    };
    let elsewhere = |t: &Tried, options: &[&str], home: &str, file: &str| {
        t.world.own(t.world.base(), 0o755);
        t.jail(options, &format!("cat {file}; echo ran"))
            .variable("HOME", home)
            .run()
    };
    stops("files.read of the home", home, |t| {
        let set = format!("files.read=[\"{}\"]", t.seen("private"));
        t.cat(&["--set", &set], &t.seen("private/secret"))
    });
    stops("files.read of a home that is not HOME", home, |t| {
        elsewhere(
            t,
            &["--read", &t.seen("private")],
            &t.open(""),
            &t.seen("private/secret"),
        )
    });
    stops("files.read of all homes", home, |t| {
        elsewhere(
            t,
            &["--read", "/home"],
            &t.open(""),
            &t.seen("private/secret"),
        )
    });
    stops("the home by another name", home, |t| {
        let other = t.at("home", "private");
        t.cat(&["--read", &other], &format!("{other}/secret"))
    });
    stops("home.read through HOME", files, |t| {
        elsewhere(
            t,
            &["--set", "home.read=[\"~/secret\"]"],
            &t.data(""),
            &t.data("secret"),
        )
    });
    stops("home.mode through HOME", files, |t| {
        elsewhere(t, &["--home", "read"], &t.data(""), &t.data("secret"))
    });
    stops("home.seed through HOME", files, |t| {
        let home = t.data("");
        elsewhere(
            t,
            &["--set", "home.seed=[\"~/secret\"]"],
            &home,
            "$HOME/secret",
        )
    });
}

#[test]
fn what_the_site_hides_stays_hidden() {
    let stopped = |what, way: &dyn Fn(&Tried) -> Output| stops(what, hidden, way);
    stopped("unhide", &|t| {
        // The control has to give it in the first place.
        let data = t.data("");
        let unhide = format!("files.unhide=[\"{data}\"]");
        t.cat(&["--set", &unhide, "--read", &data], &t.data("secret"))
    });
    stopped("unhide in words of the user's", &|t| {
        t.world
            .user_config("[files]\nunhide = [\"~/private\"]\n[home]\nread = [\"~/private\"]\n");
        t.cat(&[], &t.seen("private/secret"))
    });
    stopped("the parent is bound", &|t| {
        t.cat(
            &["--read", t.world.base().to_str().unwrap()],
            &t.data("secret"),
        )
    });
    stopped("bound after the hide", &|t| {
        let set = format!("files.read=[\"{0}\", \"{0}/secret\"]", t.data(""));
        t.cat(&["--set", &set], &t.data("secret"))
    });
    stopped("a link to it", &|t| {
        t.link(t.data(""), "link");
        t.cat(&["--read", &t.seen("link")], &t.data("secret"))
    });
    stopped("a link to a file of it", &|t| {
        t.link(t.seen("private/secret"), "link");
        t.cat(
            &["--read", &t.seen("link"), "--home", "read"],
            &t.seen("private/secret"),
        )
    });
    stopped("the home's other name", &|t| {
        let other = t.at("home", "private");
        t.cat(&["--read", &other], &format!("{other}/secret"))
    });
    stopped("another home", &|t| {
        t.jail(
            &["--read", &t.seen("private")],
            &format!("cat {}; echo ran", t.seen("private/secret")),
        )
        .variable("HOME", t.open(""))
        .run()
    });
    stopped("the home is the hidden tree", &|t| {
        t.jail(
            &["--home", "read"],
            &format!("cat {}; echo ran", t.data("secret")),
        )
        .variable("HOME", t.data(""))
        .run()
    });
    stopped("the project is the hidden tree", &|t| {
        t.jail(&[], &format!("cat {}; echo ran", t.data("secret")))
            .cwd(t.data(""))
            .run()
    });
    stopped("the project leads to it", &|t| {
        t.link(t.data(""), "linked");
        t.jail(
            &["-C", &t.seen("linked")],
            &format!("cat {}; echo ran", t.data("secret")),
        )
        .run()
    });
    stopped("a private copy", &|t| {
        t.run(
            &["--set", "home.seed=[\"~/private\"]"],
            "cat ~/private/secret; echo ran",
        )
    });
    // A hide of the user's that reads the same, and is excepted.
    stopped("hidden twice and excepted", &|t| {
        let data = t.data("");
        let hide = format!("files.hide=[\"{data}\"]");
        let unhide = format!("files.unhide=[\"{data}\"]");
        t.cat(
            &["--set", &hide, "--set", &unhide, "--read", &data],
            &t.data("secret"),
        )
    });
}

#[test]
fn a_project_lies_where_the_site_allows() {
    let parents = |t: &Tried| format!("[project]\nparents = [\"{}\", \"~/allowed\"]\n", t.open(""));
    let stopped = |what, way: &dyn Fn(&Tried) -> Output| stops(what, parents, way);
    let here = "pwd; cat secret; echo ran";
    stopped("elsewhere", &|t| t.jail(&[], here).cwd(t.data("")).run());
    stopped("-C", &|t| t.run(&["-C", &t.data("")], here));
    stopped("parents of the user's own", &|t| {
        let set = format!("project.parents=[\"{}\"]", t.world.base().display());
        t.jail(&["--set", &set], here).cwd(t.data("")).run()
    });
    stopped("parents of the user's own, empty", &|t| {
        t.jail(&["--set", "project.parents=[]"], here)
            .cwd(t.data(""))
            .run()
    });
    stopped("a link in what is allowed", &|t| {
        symlink(t.data(""), t.open("link")).unwrap();
        t.run(&["-C", &t.open("link")], here)
    });
    stopped("a link where a parent stands", &|t| {
        fs::remove_dir_all(t.world.home().join("allowed")).unwrap();
        t.link(t.world.base(), "allowed");
        t.run(&["-C", &t.seen("allowed/data")], here)
    });
    stopped(
        "a link where a parent stands, to the project itself",
        &|t| {
            fs::remove_dir_all(t.world.home().join("allowed")).unwrap();
            t.link(t.data(""), "allowed");
            t.run(&["-C", &t.seen("allowed")], here)
        },
    );
    stopped("`..`", &|t| {
        fs::create_dir(t.open("sub")).unwrap();
        t.run(&["-C", &t.open("sub/../../data")], here)
    });
    stopped("another home", &|t| {
        fs::create_dir(t.data("allowed")).unwrap();
        fs::write(t.data("allowed/secret"), CANARY).unwrap();
        t.world.own(Path::new(&t.data("allowed")), 0o755);
        t.jail(&[], here)
            .variable("HOME", t.data(""))
            .cwd(t.data("allowed"))
            .run()
    });
}

/// A hide below what is given for writing: the project, and a path.
#[test]
fn what_the_site_hides_is_absent_below_what_is_written() {
    let hidden = |t: &Tried| format!("[files]\nhide = [\"{}\"]\n", t.open("below"));
    let below = |t: &Tried| {
        fs::create_dir(t.open("below")).unwrap();
        fs::write(t.open("below/secret"), CANARY).unwrap();
        t.world.own(Path::new(&t.open("below")), 0o755);
    };
    let script = |t: &Tried| {
        format!(
            "mv {0} {0}.moved; cat {0}*/secret; ls {1}; echo ran",
            t.open("below"),
            t.open("")
        )
    };
    stops("the project is above", hidden, |t| {
        below(t);
        t.run(&["-C", &t.open("")], &script(t))
    });
    stops("--write above", hidden, |t| {
        below(t);
        t.run(&["--write", &t.open("")], &script(t))
    });
}

/// Where a launch looks for the repository of a worktree is written in the project.
#[test]
fn a_repository_outside_of_the_bounds_is_not_given() {
    stops("a worktree", one_tree, |t| {
        let made = t
            .world
            .outside(&format!(
                "export GIT_CONFIG_GLOBAL=/dev/null; cd {0} && git init -q r && cd r && cp ../secret . && git add . &&
                 git -c user.name=x -c user.email=x commit -q -m x && cp secret .git/secret && git worktree add -q {1}",
                t.data(""),
                t.seen("tree")
            ))
            .run();
        assert_eq!(made.code, 0, "{made}");
        t.jail(&[], &format!("cat {}; echo ran", t.data("r/.git/secret")))
            .cwd(t.seen("tree"))
            .run()
    });
}
