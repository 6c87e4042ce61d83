#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::sync::mpsc;
use std::time::Duration;

use super::*;
use crate::config::diagnostic::ASK;

/// A tree with the directory `site`, of whoever runs the tests.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        tree.directory("site");
        tree
    }

    fn at(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }

    fn mode(&self, below: &str, mode: u32) {
        fs::set_permissions(self.at(below), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn directory(&self, below: &str) {
        fs::create_dir(self.at(below)).unwrap();
        self.mode(below, 0o755);
    }

    fn file(&self, below: &str, text: impl AsRef<[u8]>) {
        fs::write(self.at(below), text).unwrap();
        self.mode(below, 0o644);
    }

    fn link(&self, below: &str, target: &str) {
        symlink(target, self.at(below)).unwrap();
    }

    fn site(&self) -> Site {
        Site::of_tree(self.0.path(), nix::unistd::getuid().as_raw())
    }

    fn read(&self) -> Result<Option<String>, ConfigError> {
        self.site().read(SiteFile::Enforced)
    }

    #[track_caller]
    fn reads(&self, expected: &str) {
        assert_eq!(self.read().unwrap().as_deref(), Some(expected));
    }

    /// The message and the hint.
    #[track_caller]
    fn refused(&self, words: &[&str]) {
        let error = self.read().expect_err("is read");
        let said = format!("{error}\n{}", error.hint().unwrap_or_default());
        for word in words.iter().chain(&["/site/enforced.toml", ASK]) {
            assert!(said.contains(word), "no {word:?} in: {said}");
        }
    }
}

const FILE: &str = "site/enforced.toml";

#[test]
fn what_is_missing_says_nothing() {
    let tree = Tree::new();
    assert_eq!(tree.read().unwrap(), None);
    fs::remove_dir(tree.at("site")).unwrap();
    assert_eq!(tree.read().unwrap(), None);
}

#[test]
fn each_file_has_its_name() {
    let tree = Tree::new();
    tree.file(FILE, "enforced");
    tree.file("site/defaults.toml", "defaults");
    tree.reads("enforced");
    let defaults = tree.site().read(SiteFile::Defaults).unwrap();
    assert_eq!(defaults.as_deref(), Some("defaults"));
}

#[test]
fn what_is_no_regular_file_blocks_nobody() {
    let (done, waiting) = mpsc::channel();
    let tests = std::thread::spawn(move || {
        let tree = Tree::new();
        nix::unistd::mkfifo(&tree.at(FILE), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        tree.refused(&["/site/enforced.toml is not a regular file"]);
        fs::remove_file(tree.at(FILE)).unwrap();
        tree.link(FILE, "fifo");
        nix::unistd::mkfifo(&tree.at("site/fifo"), Mode::S_IRUSR).unwrap();
        tree.refused(&["/site/fifo, on the way to it, is not a regular file"]);
        done.send(()).unwrap();
    });
    waiting
        .recv_timeout(Duration::from_secs(20))
        .expect("a FIFO blocks, or see above");
    tests.join().unwrap();

    let tree = Tree::new();
    tree.directory(FILE);
    tree.refused(&["is not a regular file"]);
    let tree = Tree::new();
    let _socket = UnixListener::bind(tree.at(FILE)).unwrap();
    tree.refused(&["is not a regular file"]);
    let tree = Tree::new();
    fs::remove_dir(tree.at("site")).unwrap();
    tree.file("site", "");
    tree.refused(&["/site, on the way to it, is not a directory"]);
}

#[test]
fn sizes() {
    let tree = Tree::new();
    tree.file(FILE, "#".repeat(1 << 20));
    assert!(tree.read().is_ok());
    tree.file(FILE, "#".repeat((1 << 20) + 1));
    tree.refused(&["is larger than 1 MiB"]);
    tree.file(FILE, "#".repeat(10 << 20));
    tree.refused(&["is larger than 1 MiB"]);
}

#[test]
fn bytes_that_are_no_text() {
    let tree = Tree::new();
    tree.file(FILE, b"[jail]\n# \xff\n");
    tree.refused(&["/site/enforced.toml:2: not UTF-8 text"]);
}

#[test]
fn a_file_that_others_may_write() {
    let tree = Tree::new();
    tree.file(FILE, "");
    for (bits, who) in [
        (0o664, "its group"),
        (0o646, "other users"),
        (0o666, "its group and other users"),
    ] {
        tree.mode(FILE, bits);
        tree.refused(&[
            &format!("can be changed by {who}"),
            "chmod go-w /site/enforced.toml",
        ]);
    }
}

#[test]
fn directories_that_others_may_write() {
    let tree = Tree::new();
    tree.file(FILE, "");
    for (directory, shown) in [("site", "/site"), ("", "/")] {
        // A sticky bit keeps others from removing files, not from making them.
        for bits in [0o775, 0o757, 0o777, 0o1777] {
            tree.mode(directory, bits);
            tree.refused(&[
                &format!("{shown}, on the way to it, can be changed by"),
                &format!("chmod go-w {shown}"),
            ]);
        }
        tree.mode(directory, 0o755);
    }
    tree.reads("");
}

#[test]
fn that_nothing_is_there_is_believed_where_root_alone_decides() {
    let tree = Tree::new();
    tree.mode("site", 0o777);
    tree.refused(&["can be changed by", "says nothing"]);
    fs::remove_dir(tree.at("site")).unwrap();
    assert_eq!(tree.read().unwrap(), None);
    tree.mode("", 0o1777);
    tree.refused(&["/, on the way to it, can be changed by"]);
}

#[test]
fn what_belongs_to_somebody_else() {
    let tree = Tree::new();
    tree.file(FILE, "");
    let me = nix::unistd::getuid().as_raw();
    let error = Site::of_tree(tree.0.path(), me + 1)
        .read(SiteFile::Enforced)
        .unwrap_err();
    let expected = format!("does not belong to root (it is uid {me}'s)");
    assert!(error.to_string().contains(&expected), "{error}");
    assert!(error.hint().unwrap().contains("chown -h root /"));
}

#[test]
fn what_may_not_be_read() {
    let tree = Tree::new();
    tree.file(FILE, "");
    // Root may read everything.
    if nix::unistd::geteuid().is_root() {
        return tree.reads("");
    }
    tree.mode(FILE, 0);
    tree.refused(&["cannot be read: EACCES"]);
    tree.mode(FILE, 0o644);
    tree.mode("site", 0o600);
    tree.refused(&["cannot be read: EACCES"]);
    // Not even whether there is a file can be told.
    tree.mode("site", 0o755);
    fs::remove_file(tree.at(FILE)).unwrap();
    tree.mode("site", 0);
    tree.refused(&["cannot be read: EACCES"]);
    tree.mode("site", 0o755);
}

#[test]
fn links_of_roots_lead_on() {
    let tree = Tree::new();
    tree.directory("common");
    tree.directory("common/policy");
    tree.file("common/policy/v2.toml", "two");
    for (below, target) in [
        (FILE, "/common/policy/v2.toml"),
        (FILE, "../common/policy/v2.toml"),
        (FILE, "../../../common/./policy/../policy/v2.toml"),
    ] {
        tree.link(below, target);
        tree.reads("two");
        fs::remove_file(tree.at(below)).unwrap();
    }
    tree.link(FILE, "current.toml");
    tree.link("site/current.toml", "/common/current");
    tree.link("common/current", "policy/v2.toml");
    tree.reads("two");
    // The directory is a link.
    tree.file("common/enforced.toml", "common");
    fs::remove_dir_all(tree.at("site")).unwrap();
    tree.link("site", "/common");
    tree.reads("common");
    fs::remove_file(tree.at("common/enforced.toml")).unwrap();
    assert_eq!(tree.read().unwrap(), None);
}

#[test]
fn links_lead_only_over_what_is_roots() {
    let tree = Tree::new();
    tree.directory("common");
    tree.file("common/enforced.toml", "");
    tree.link(FILE, "/common/enforced.toml");
    tree.mode("common", 0o1777);
    tree.refused(&["/common, on the way to it, can be changed by"]);
    tree.mode("common", 0o755);
    tree.mode("common/enforced.toml", 0o666);
    tree.refused(&["/common/enforced.toml, on the way to it, can be changed by"]);
    tree.mode("common/enforced.toml", 0o644);
    // Out of a directory and back: it could have been another one.
    tree.directory("open");
    tree.mode("open", 0o777);
    tree.link("site/around", "/open/../common/enforced.toml");
    fs::remove_file(tree.at(FILE)).unwrap();
    tree.link(FILE, "around");
    tree.refused(&["/open, on the way to it, can be changed by"]);
}

#[test]
fn links_that_lead_nowhere() {
    let tree = Tree::new();
    tree.link(FILE, "/nowhere/x");
    tree.refused(&["/nowhere, on the way to it, is missing", "remove the link"]);
    fs::remove_file(tree.at(FILE)).unwrap();
    tree.link(FILE, "enforced.toml");
    tree.refused(&["more than 40 symbolic links"]);
    fs::remove_dir_all(tree.at("site")).unwrap();
    tree.link("site", "/unmounted");
    tree.refused(&["/unmounted, on the way to it, is missing"]);
}

#[test]
fn plain_paths() {
    for (path, expected) in [
        ("/etc/agent-sandbox", true),
        ("/x", true),
        ("/.hidden/...", true),
        ("", false),
        ("/", false),
        ("etc", false),
        ("/etc/", false),
        ("//etc", false),
        ("/etc//x", false),
        ("/./x", false),
        ("/x/..", false),
        ("/../x", false),
    ] {
        assert_eq!(is_plain(path.as_bytes()), expected, "{path}");
    }
}

#[test]
fn namespaces_in_which_root_is_root() {
    assert!(is_whole("         0          0 4294967295\n"));
    for map in [
        "",
        "0 1000 1\n",
        "0 100000 65536\n",
        "0 0 65536\n",
        "1000 1000 1\n",
        "0 0 4294967295\n0 0 1\n",
    ] {
        assert!(!is_whole(map), "{map}");
    }
}
