//! `make install` and `make uninstall`: what is where, with which rights, and that nothing is left.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::world::{Done, TestPrefix, built, root, same_trees, tree, version};

/// What a prefix holds, a few of each kind.
const INSTALLED: [&str; 19] = [
    "bin/agent-sandbox",
    "lib/systemd/system/agent-sandbox-tracer.service",
    "libexec/agent-sandbox/agent-sandbox-attest",
    "libexec/agent-sandbox/agent-sandbox-chaperon",
    "libexec/agent-sandbox/agent-sandbox-filter",
    "libexec/agent-sandbox/agent-sandbox-shim",
    "libexec/agent-sandbox/agent-sandbox-tracer",
    "libexec/agent-sandbox/agent-sandbox-trail",
    "share/agent-sandbox/profiles/default.toml",
    "share/agent-sandbox/profiles/agents/claude.toml",
    "share/doc/agent-sandbox/README.md",
    "share/doc/agent-sandbox/docs/admin/tracer.md",
    "share/doc/agent-sandbox/docs/install.md",
    "share/man/man1/agent-sandbox.1",
    "share/man/man5/agent-sandbox.toml.5",
    "share/man/man8/agent-sandbox-tracer.8",
    "share/bash-completion/completions/agent-sandbox",
    "share/zsh/site-functions/_agent-sandbox",
    "share/fish/vendor_completions.d/agent-sandbox.fish",
];

#[test]
fn uninstall_leaves_the_tree_as_it_was() {
    let place = TestPrefix::new();
    // A prefix that others use, too; also directories that are empty, and one with other rights.
    place.write("prefix/bin/other", "other");
    place.write("prefix/share/doc/other/README", "other");
    place.write("prefix/share/agent-sandbox-other/x", "other");
    fs::create_dir_all(place.prefix.join("share/man/man1")).unwrap();
    fs::create_dir_all(place.prefix.join("share/zsh/site-functions")).unwrap();
    fs::set_permissions(
        place.prefix.join("share/man"),
        fs::Permissions::from_mode(0o775),
    )
    .unwrap();
    let before = tree(&place.path);
    place.make("install", &[]).ok();
    for file in INSTALLED {
        assert!(place.prefix.join(file).is_file(), "{file}");
    }
    assert_eq!(tree(&place.path)["prefix/share/man"].0 & 0o777, 0o775);
    place.make("uninstall", &[]).ok();
    same_trees(&before, &tree(&place.path));
    place.make("uninstall", &[]).fails("nothing is installed");
}

#[test]
fn every_directory_can_be_another_one() {
    let place = TestPrefix::new();
    let elsewhere = |name: &str| format!("{}/else where/{name}", place.path.display());
    let variables = [
        format!("DESTDIR={}", elsewhere("stage")),
        "PREFIX=/opt/agent sandbox".to_owned(),
        "mandir=/usr/share/man".to_owned(),
        "bashdir=/etc/bash_completion.d".to_owned(),
        "zshdir=/usr/share/zsh/vendor-completions".to_owned(),
        "fishdir=/usr/share/fish/vendor_completions.d".to_owned(),
        "moduledir=/apps/modulefiles".to_owned(),
        "unitdir=/etc/systemd/system".to_owned(),
    ];
    let variables: Vec<&str> = variables.iter().map(String::as_str).collect();
    let before = tree(&place.path);
    place.make("install", &variables).ok();
    let all = tree(&place.path.join("else where/stage"));
    for file in [
        "opt/agent sandbox/bin/agent-sandbox",
        "usr/share/man/man1/agent-sandbox.1",
        "etc/bash_completion.d/agent-sandbox",
        "usr/share/zsh/vendor-completions/_agent-sandbox",
        "usr/share/fish/vendor_completions.d/agent-sandbox.fish",
        "etc/systemd/system/agent-sandbox-tracer.service",
    ] {
        assert!(all.contains_key(file), "{file} is not in {:?}", all.keys());
    }
    // What is written down has no DESTDIR in it.
    for module in ["agent-sandbox", "agent-sandbox-wrappers"] {
        let (_, text) = &all[&format!("apps/modulefiles/{module}/{}.lua", version())];
        let text = String::from_utf8_lossy(text);
        assert!(text.contains("\"/opt/agent sandbox/"), "{text}");
        for left in ["else where", "@VERSION@", "@PREFIX@", "@MANDIR@", "DIR@"] {
            assert!(!text.contains(left), "{left} is in {text}");
        }
    }
    place.make("uninstall", &variables).ok();
    fs::remove_dir_all(place.path.join("else where")).unwrap();
    same_trees(&before, &tree(&place.path));
}

/// Whoever uninstalls need not know what was given to `make install`.
#[test]
fn uninstall_finds_what_stands_in_another_directory() {
    let place = TestPrefix::new();
    let modules = place.path.join("apps of all/modulefiles");
    fs::create_dir_all(&modules).unwrap();
    let given = format!("moduledir={}", modules.display());
    let before = tree(&place.path);
    place.make("install", &[&given]).ok();
    assert!(modules.join("agent-sandbox").is_dir());
    place.make("uninstall", &[]).ok();
    same_trees(&before, &tree(&place.path));
    // An installation that puts them elsewhere moves them.
    place.make("install", &[&given]).ok();
    place.make("install", &[]).ok();
    assert!(!modules.join("agent-sandbox").exists());
    place.make("uninstall", &[]).ok();
    same_trees(&before, &tree(&place.path));
    // But nobody is sent elsewhere by what others can write.
    place.make("install", &[]).ok();
    let share = place.prefix.join("share/agent-sandbox");
    let precious = place.write("precious/file", "mine");
    let manifest = share.join("manifest");
    let mut text = fs::read_to_string(&manifest).unwrap();
    text.push_str(&format!(
        "f {}\nv {}\n",
        precious.display(),
        place.path.join("precious").display()
    ));
    fs::write(&manifest, text).unwrap();
    fs::set_permissions(&share, fs::Permissions::from_mode(0o777)).unwrap();
    place.make("uninstall", &[]).ok();
    assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
}

#[test]
fn nothing_of_a_staged_package_is_left_but_the_stage() {
    let place = TestPrefix::new();
    let stage = format!("DESTDIR={}/stage", place.path.display());
    place.make("install", &[&stage, "PREFIX=/usr"]).ok();
    place.make("uninstall", &[&stage, "PREFIX=/usr"]).ok();
    assert_eq!(tree(&place.path.join("stage")).len(), 0);
}

#[test]
fn files_are_readable_by_everybody_whatever_the_umask() {
    let place = TestPrefix::new();
    let make = place.make_command("install", &[]);
    let mut strict = place.command("sh");
    strict
        .args(["-c", "umask 077; exec \"$@\"", "sh", "make"])
        .args(make.get_args())
        .current_dir(root());
    Done::of(strict).ok();
    for (name, (mode, _)) in tree(&place.prefix) {
        let run = ["bin/", "libexec/"]
            .iter()
            .any(|below| name.starts_with(below))
            || name.ends_with(".sh")
            || place.prefix.join(&name).is_dir();
        let want = if run { 0o755 } else { 0o644 };
        assert_eq!(mode & 0o7777, want, "{name}");
    }
}

#[test]
fn installing_again_changes_nothing() {
    let place = TestPrefix::installed();
    let before = tree(&place.prefix);
    place.make("install", &[]).ok();
    same_trees(&before, &tree(&place.prefix));
}

#[test]
fn the_source_tree_is_only_read() {
    // Started by root, tests/run makes the tree another user's.
    let changes = |path: &std::path::Path| {
        let meta = fs::metadata(path).unwrap();
        meta.modified().unwrap()
    };
    let before: Vec<_> = [
        root(),
        root().join("docs"),
        root().join("lmod"),
        built().join("debug"),
    ]
    .into_iter()
    .map(|path| (changes(&path), path))
    .collect();
    let place = TestPrefix::installed();
    place.make("uninstall", &[]).ok();
    for (time, path) in before {
        assert_eq!(changes(&path), time, "{}", path.display());
    }
}

#[test]
fn directories_that_cannot_be_meant_are_refused() {
    let place = TestPrefix::new();
    let before = tree(&place.path);
    for (prefix, words) in [
        ("relative", "does not begin with a slash"),
        ("/opt/../etc", "with . or .. in it"),
        ("/opt/a|b", "in its name"),
        ("/opt/a\\b", "in its name"),
        ("/opt/a\"b", "in its name"),
    ] {
        let stage = format!("DESTDIR={}", place.path.display());
        place
            .make("install", &[&format!("PREFIX={prefix}"), &stage])
            .fails(words);
    }
    // A directory in the place of a file is somebody's own.
    fs::create_dir_all(place.prefix.join("bin/agent-sandbox")).unwrap();
    place
        .make("install", &[])
        .fails("a directory stands where a file belongs");
    fs::remove_dir_all(&place.prefix).unwrap();
    fs::create_dir(&place.prefix).unwrap();
    same_trees(&before, &tree(&place.path));
}

#[test]
fn a_link_in_the_place_of_a_program_is_replaced_and_not_followed() {
    let place = TestPrefix::new();
    let precious = place.write("precious", "mine");
    fs::create_dir_all(place.prefix.join("bin")).unwrap();
    std::os::unix::fs::symlink(&precious, place.prefix.join("bin/agent-sandbox")).unwrap();
    place.make("install", &[]).ok();
    assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
    let program = fs::symlink_metadata(place.prefix.join("bin/agent-sandbox")).unwrap();
    assert!(program.is_file());
}
