//! The files of the site's policy as they should not be, as the user reads it.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;

use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use crate::world::{CANARY, SITE, World, mode};

const ENFORCED: &str = "enforced.toml";
/// What every launch with a file of this text comes to.
const NARROW: &str = "[jail]\nmax_processes = 77\n";

/// Every way to start ends in this message.
#[track_caller]
fn refuses(world: &World, words: &[&str]) {
    let mut words = words.to_vec();
    words.extend(["error: ", "hint: ask your administrators"]);
    for call in [
        &["--", "true"][..],
        &["--dry-run", "--", "true"],
        &["policy"],
        &["explain", "/usr"],
    ] {
        world.run(call).refused(&words);
    }
}

/// The launch has the site's limit, so that its file was read.
#[track_caller]
fn holds(world: &World) {
    let policy = world.run(&["policy", "--json"]).json();
    let most = &policy["jail"]["max_processes"];
    assert_eq!(most["value"], 77);
    assert_eq!(most["source"], format!("{SITE}/{ENFORCED}:2"));
}

#[test]
fn no_policy_narrows_nothing() {
    let world = World::new();
    world.user_config("[jail]\nnested = true\n");
    let policy = world.run(&["policy", "--json"]).json();
    assert_eq!(policy["jail"]["nested"]["value"], true);
    world.sh("true").run().ok();
}

#[test]
fn enforced_narrows_and_defaults_give_way() {
    let world = World::new();
    world.enforced("[jail]\nnested = false\n");
    world.defaults("[jail]\nmax_processes = 77\ntmp_size = \"2G\"\n");
    world.user_config("[jail]\nnested = true\ntmp_size = \"3G\"\n");
    let policy = world
        .run(&["policy", "--json", "--set", "jail.nested=true"])
        .json();
    let jail = &policy["jail"];
    assert_eq!(jail["nested"]["value"], false);
    assert_eq!(jail["nested"]["source"], format!("{SITE}/enforced.toml:2"));
    assert_eq!(jail["max_processes"]["value"], 77);
    let source = format!("{SITE}/defaults.toml:2");
    assert_eq!(jail["max_processes"]["source"], source);
    assert_eq!(jail["tmp_size"]["value"], 3_u64 << 30);
}

#[test]
fn what_is_wrong_in_a_file_is_shown_with_its_place() {
    for name in ["enforced.toml", "defaults.toml"] {
        let world = World::new();
        let place = |line: &str| format!(" --> {SITE}/{name}:{line}");
        for (text, line, words) in [
            (
                "[jail]\nnestd = false\n",
                "2:1",
                &["2 | nestd", "  | ^^^^^", "did you mean `nested`?"][..],
            ),
            (
                "[jial]\n",
                "1:2",
                &["unknown section", "did you mean `jail`?"],
            ),
            ("# ok\n[jail\n", "2:6", &["unclosed table"]),
            (
                "[jail]\nnested = 1\n",
                "2:10",
                &["expected `true` or `false`"],
            ),
            ("[home]\nmode = \"all\"\n", "2:8", &["unknown value `all`"]),
            ("[files]\nhide = [\"x\"]\n", "2:9", &["is relative"]),
            (
                "[[when]]\n[when.jail]\nnested = false\n",
                "1:1",
                &["without a condition"],
            ),
            (
                "[[when]]\ngrup = \"x\"\n",
                "2:1",
                &["did you mean `group`?"],
            ),
        ] {
            world.site_file(name, text);
            let mut all = vec![place(line)];
            all.extend(words.iter().map(|&word| word.to_owned()));
            refuses(&world, &all.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_fifo_blocks_nobody() {
    let world = World::new();
    let bits = Mode::from_bits_truncate(0o644);
    let path = world.site().join(ENFORCED);
    mknod(&path, SFlag::S_IFIFO, bits, 0).unwrap();
    refuses(
        &world,
        &[&format!("{SITE}/{ENFORCED} is not a regular file")],
    );
}

#[test]
fn neither_directories_nor_devices_are_files() {
    let world = World::new();
    let path = world.site().join(ENFORCED);
    let expected = format!("{SITE}/{ENFORCED} is not a regular file");
    fs::create_dir(&path).unwrap();
    refuses(&world, &[&expected]);
    fs::remove_dir(&path).unwrap();
    let bits = Mode::from_bits_truncate(0o644);
    for (kind, device) in [
        // /dev/null, /dev/zero, a terminal; the first disk.
        (SFlag::S_IFCHR, makedev(1, 3)),
        (SFlag::S_IFCHR, makedev(1, 5)),
        (SFlag::S_IFCHR, makedev(4, 1)),
        (SFlag::S_IFBLK, makedev(8, 0)),
    ] {
        mknod(&path, kind, bits, device).unwrap();
        refuses(&world, &[&expected]);
        fs::remove_file(&path).unwrap();
    }
    symlink("/dev/null", &path).unwrap();
    refuses(
        &world,
        &["/dev/null, on the way to it, is not a regular file"],
    );
}

#[test]
fn large_files_and_bytes_that_are_no_text() {
    let world = World::new();
    world.site_file(ENFORCED, "#".repeat(10 << 20));
    refuses(&world, &["is larger than 1 MiB"]);
    world.site_file(ENFORCED, b"[jail]\n\n# caf\xe9\n");
    refuses(&world, &[&format!("{SITE}/{ENFORCED}:3: not UTF-8 text")]);
    // As much as is read holds.
    let comment = "#".repeat((1 << 20) - NARROW.len());
    world.site_file(ENFORCED, format!("{NARROW}{comment}"));
    holds(&world);
}

#[test]
fn only_root_may_write_the_file() {
    let world = World::new();
    let path = world.site_file(ENFORCED, NARROW);
    for (bits, who) in [
        (0o664, "its group"),
        (0o646, "other users"),
        (0o666, "its group and other users"),
    ] {
        mode(&path, bits);
        let expected = format!("{SITE}/{ENFORCED} can be changed by {who}");
        refuses(&world, &[&expected, "chmod go-w"]);
    }
    mode(&path, 0o644);
    holds(&world);
    world.own(&path, 0o644);
    let uid = world.user().uid;
    refuses(
        &world,
        &[
            &format!("does not belong to root (it is uid {uid}'s)"),
            "chown -h root",
        ],
    );
    // Somebody else's, who may be in league.
    chown(&path, Some(1), Some(0)).unwrap();
    refuses(&world, &["does not belong to root (it is uid 1's)"]);
    // The group says nothing while it may not write.
    chown(&path, Some(0), Some(world.user().gid.as_raw())).unwrap();
    holds(&world);
}

#[test]
fn only_root_may_write_the_directory() {
    let world = World::new();
    let path = world.site_file(ENFORCED, NARROW);
    for present in [true, false] {
        if !present {
            fs::remove_file(&path).unwrap();
        }
        for bits in [0o775, 0o757, 0o1777] {
            mode(&world.site(), bits);
            refuses(
                &world,
                &[&format!("{SITE}, on the way to it, can be changed by")],
            );
        }
        mode(&world.site(), 0o755);
        world.own(&world.site(), 0o755);
        refuses(
            &world,
            &[&format!(
                "{SITE}, on the way to it, does not belong to root"
            )],
        );
        chown(world.site(), Some(0), Some(0)).unwrap();
    }
}

#[test]
fn what_cannot_be_read_is_not_missing() {
    let world = World::new();
    let path = world.site_file(ENFORCED, NARROW);
    mode(&path, 0o600);
    refuses(
        &world,
        &[&format!("{SITE}/{ENFORCED} cannot be read: EACCES")],
    );
    fs::remove_file(&path).unwrap();
    mode(&world.site(), 0o700);
    refuses(&world, &["cannot be read: EACCES"]);
}

#[test]
fn links_of_roots_are_followed_over_what_is_roots() {
    let world = World::new();
    let shared = Path::new("/etc").join(format!("agent-sandbox-site.{}", std::process::id()));
    fs::create_dir(&shared).unwrap();
    let outcome = std::panic::catch_unwind(|| {
        mode(&shared, 0o755);
        fs::write(shared.join("v2.toml"), NARROW).unwrap();
        symlink("v2.toml", shared.join("current.toml")).unwrap();
        symlink(shared.join("current.toml"), world.site().join(ENFORCED)).unwrap();
        holds(&world);
        mode(&shared, 0o1777);
        refuses(
            &world,
            &["agent-sandbox-site.", "on the way to it, can be changed by"],
        );
    });
    fs::remove_dir_all(&shared).unwrap();
    outcome.unwrap();
    refuses(&world, &["on the way to it, is missing", "remove the link"]);
}

#[test]
fn a_link_to_a_users_file_is_refused() {
    let world = World::new();
    let path = world.site().join(ENFORCED);
    world.write("mine.toml", NARROW);
    symlink(world.seen_home().join("mine.toml"), &path).unwrap();
    refuses(&world, &["on the way to it, does not belong to root"]);
    fs::remove_file(&path).unwrap();
    // In a directory that everybody may write, whoever owns the file.
    symlink("/var/tmp/agent-sandbox-nothing", &path).unwrap();
    refuses(&world, &["is missing"]);
    fs::remove_file(&path).unwrap();
    let target = world.base().join("root.toml");
    fs::write(&target, NARROW).unwrap();
    symlink(&target, &path).unwrap();
    refuses(&world, &["/var/tmp, on the way to it, can be changed by"]);
    fs::remove_file(&path).unwrap();
    // A link of the user's to a file of root's.
    world.site_file("real.toml", NARROW);
    symlink("real.toml", &path).unwrap();
    holds(&world);
    std::os::unix::fs::lchown(&path, Some(world.user().uid.as_raw()), None).unwrap();
    refuses(
        &world,
        &[&format!("{SITE}/{ENFORCED} does not belong to root")],
    );
}

/// A file of the user's is shown in no message: who reads it is the user, but the launcher of
/// somebody else reads it too.
#[test]
fn a_refused_file_is_not_quoted() {
    let world = World::new();
    world.write("secret.toml", format!("[{CANARY}]\n"));
    let path = world.site().join(ENFORCED);
    symlink(world.seen_home().join("secret.toml"), &path).unwrap();
    let output = world.run(&["--", "true"]).refused(&[]);
    assert!(!output.stderr.contains(CANARY), "{output}");
}

#[test]
fn neither_options_nor_variables_move_the_directory() {
    let world = World::new();
    world.enforced(NARROW);
    world.write("site/enforced.toml", "");
    let own = world.seen_home().join("site");
    let mut call = world.call(&["policy", "--json"]);
    for name in [
        "AGENT_SANDBOX_SITE_DIR",
        "AGENT_SANDBOX_SITE",
        "AGENT_SANDBOX_ETC",
        "SITE_DIR",
        "SYSCONFDIR",
        "XDG_CONFIG_DIRS",
        "XDG_CONFIG_HOME",
    ] {
        call = call.variable(name, own.clone());
    }
    let policy = call.run().json();
    assert_eq!(policy["jail"]["max_processes"]["value"], 77);
    for option in ["--site", "--site-dir", "--config", "--config-dir"] {
        let output = world.run(&[option, "/tmp", "--", "true"]);
        assert_eq!(output.code, 125, "{output}");
        assert!(output.stderr.contains("unexpected argument"), "{output}");
    }
    for set in ["site.directory=/tmp", "site_dir=/tmp"] {
        let output = world.run(&["--set", set, "--", "true"]);
        assert_eq!(output.code, 125, "{output}");
    }
}

/// In a user namespace of the user's own, root is whom the user says: files are refused there, and
/// are not taken for missing.
#[test]
fn root_of_a_user_namespace_is_not_root() {
    let world = World::new();
    world.enforced(NARROW);
    let script = "exec unshare --user --map-current-user \"$LAUNCHER\" -- true";
    world
        .outside(script)
        .run()
        .refused(&["does not belong to root"]);
    // Where the user is root, and made another file appear; then a user again, as the launcher
    // demands.
    world.write("site/enforced.toml", "");
    let script = format!(
        "exec unshare --user --map-root-user --mount sh -c 'mount --bind ~/site {SITE} && \
         exec unshare --user --map-user=1000 --map-group=1000 \"$LAUNCHER\" -- true'"
    );
    let output = world.outside(&script).run();
    output.refused(&["on the way to it, does not belong to root"]);
}
