//! Directory links that somebody put into a prefix before root installs there, or removes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::world::{TestPrefix, same_trees, tree};

#[test]
fn nothing_is_removed_through_a_directory_link() {
    for target in ["install", "uninstall"] {
        let place = TestPrefix::installed();
        let precious = place.write("victim/shadow", "mine");
        fs::create_dir(place.path.join("victim/empty")).unwrap();
        let before = tree(&place.path.join("victim"));
        let share = place.prefix.join("share/agent-sandbox");
        symlink("../../../victim", share.join("old")).unwrap();
        symlink("old", share.join("older")).unwrap();
        let manifest = share.join("manifest");
        let mut text = fs::read_to_string(&manifest).unwrap();
        for link in ["old", "older"] {
            let link = share.join(link);
            text.push_str(&format!("f {0}/shadow\nd {0}/empty\n", link.display()));
        }
        // The link itself is in the prefix, and is what the manifest says.
        text.push_str(&format!("f {}\n", share.join("older").display()));
        fs::write(&manifest, text).unwrap();
        place.make(target, &[]).ok();
        assert!(precious.exists(), "{target} removed it");
        same_trees(&before, &tree(&place.path.join("victim")));
        assert!(share.join("older").symlink_metadata().is_err(), "{target}");
    }
}

#[test]
fn a_manifest_behind_a_link_is_not_removed() {
    let place = TestPrefix::installed();
    let share = place.prefix.join("share/agent-sandbox");
    fs::rename(&share, place.path.join("victim")).unwrap();
    symlink(place.path.join("victim"), &share).unwrap();
    let before = tree(&place.path);
    place
        .make("uninstall", &[])
        .fails("a link that leads out of");
    same_trees(&before, &tree(&place.path));
}

#[test]
fn nothing_is_written_through_a_directory_link() {
    let man = |place: &TestPrefix| format!("mandir={}/man", place.path.display());
    for (link, elsewhere) in [
        ("prefix/bin", false),
        ("prefix/libexec/agent-sandbox", false),
        ("prefix/share", false),
        ("prefix/share/man", false),
        ("prefix/share/man/man1", false),
        ("prefix/share/bash-completion/completions", false),
        ("prefix/share/agent-sandbox/profiles/site", false),
        ("prefix/share/agent-sandbox/profiles/site/university", false),
        ("man/man5", true),
    ] {
        let place = TestPrefix::new();
        // What is there already, and what is not.
        place.write("victim/enforced.toml", "the site's");
        place.write("victim/agent-sandbox", "mine");
        let before = tree(&place.path.join("victim"));
        let link = place.path.join(link);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(place.path.join("victim"), &link).unwrap();
        let variables = if elsewhere { vec![man(&place)] } else { vec![] };
        let variables: Vec<&str> = variables.iter().map(String::as_str).collect();
        place
            .make("install", &variables)
            .fails("a link that leads out of");
        same_trees(&before, &tree(&place.path.join("victim")));
    }
}

#[test]
fn new_names_cannot_be_foretold() {
    let place = TestPrefix::new();
    let victim = place.path.join("victim");
    fs::create_dir(&victim).unwrap();
    fs::create_dir_all(place.prefix.join("bin")).unwrap();
    // A file's first name was made with a process's number, once.
    let highest = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap();
    for id in 1..highest.trim().parse::<u32>().unwrap().min(1 << 15) {
        let name = format!("bin/.agent-sandbox.new.{id}");
        symlink(&victim, place.prefix.join(name)).unwrap();
    }
    place.make("install", &[]).ok();
    assert_eq!(tree(&victim).len(), 0);
}

#[test]
fn links_that_the_installer_names_are_followed() {
    let place = TestPrefix::new();
    let real = place.path.join("real");
    fs::create_dir_all(real.join("data/share")).unwrap();
    // A home that is a link, and in the prefix one that stays in it.
    symlink(&real, place.path.join("link")).unwrap();
    symlink("data/share", real.join("share")).unwrap();
    fs::create_dir(place.path.join("pages")).unwrap();
    symlink("pages", place.path.join("man")).unwrap();
    let before = tree(&place.path);
    let prefix = format!("PREFIX={}/link", place.path.display());
    let man = format!("mandir={}/man", place.path.display());
    place.make("install", &[&prefix, &man]).ok();
    for file in [
        "real/bin/agent-sandbox",
        "real/data/share/agent-sandbox/manifest",
        "pages/man1/agent-sandbox.1",
    ] {
        assert!(Path::new(&place.path).join(file).is_file(), "{file}");
    }
    place.make("install", &[&prefix, &man]).ok();
    place.make("uninstall", &[&prefix, &man]).ok();
    same_trees(&before, &tree(&place.path));
}
