//! Files that are not what a policy file should be.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::support::{World, names, said, write};

#[track_caller]
fn refused(world: &World, words: &[&str]) {
    let error = world.load(|_| ()).expect_err("is accepted");
    let said = said(&error);
    for word in words {
        assert!(said.contains(word), "no {word:?} in: {said}");
    }
    assert!(error.hint().is_some(), "no hint: {said}");
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn no_configuration_at_all() {
    let world = World::new();
    fs::remove_dir_all(&world.locations.home).unwrap();
    assert_eq!(
        names(&world.load(|_| ()).unwrap()),
        ["built-in default.toml"]
    );
    assert_eq!(
        names(&world.load_command("bash").unwrap()),
        ["built-in default.toml"]
    );
}

#[test]
fn a_mistake_names_the_file() {
    let world = World::new();
    write(&world.config(), "[files]\nraed = []\n");
    refused(
        &world,
        &[
            "--> ~/.config/agent-sandbox/config.toml:2:1",
            "2 | raed = []",
            "did you mean `read`?",
        ],
    );
}

#[test]
fn a_file_outside_home_has_its_whole_path() {
    let mut world = World::new();
    world.locations.home = "/nowhere".into();
    write(&world.config(), "[files]\nraed = []\n");
    let path = world.config();
    refused(&world, &[&format!("--> {}:2:1", path.display())]);
}

#[test]
fn a_directory() {
    let world = World::new();
    fs::create_dir(world.config()).unwrap();
    refused(
        &world,
        &["~/.config/agent-sandbox/config.toml is not a regular file"],
    );
}

#[test]
fn a_fifo_does_not_hang() {
    let world = World::new();
    nix::unistd::mkfifo(&world.config(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || send.send(world.load(|_| ()).map(|_| ())));
    let answer = receive
        .recv_timeout(std::time::Duration::from_secs(20))
        .expect("it hangs");
    assert!(said(&answer.expect_err("is accepted")).contains("is not a regular file"));
}

#[test]
fn a_socket() {
    let world = World::new();
    let _listener = UnixListener::bind(world.config()).unwrap();
    refused(&world, &["is not a regular file"]);
}

#[test]
fn a_device() {
    let world = World::new();
    symlink("/dev/zero", world.config()).unwrap();
    refused(&world, &["is not a regular file"]);
}

#[test]
fn a_link_to_a_good_file_is_followed() {
    let world = World::new();
    let file = world.locations.home.join("dotfiles.toml");
    write(&file, "[files]\nread = []\n");
    symlink(&file, world.config()).unwrap();
    assert_eq!(world.load(|_| ()).unwrap().len(), 2);
    mode(&file, 0o666);
    refused(&world, &["can be changed by"]);
}

#[test]
fn a_link_to_nothing_is_not_a_missing_file() {
    let world = World::new();
    symlink("gone.toml", world.config()).unwrap();
    refused(&world, &["is a symbolic link to a file that is missing"]);
}

#[test]
fn a_loop_of_links() {
    let world = World::new();
    symlink("config.toml", world.config()).unwrap();
    refused(&world, &["cannot read ~/.config/agent-sandbox/config.toml"]);
}

#[test]
fn a_file_without_read_permission() {
    let world = World::new();
    write(&world.config(), "");
    mode(&world.config(), 0o200);
    if nix::unistd::geteuid().is_root() {
        // Root reads everything; for root an unreadable file is the loop of links above.
        assert_eq!(world.load(|_| ()).unwrap().len(), 2);
    } else {
        refused(
            &world,
            &[
                "cannot read ~/.config/agent-sandbox/config.toml",
                "chmod u+r",
            ],
        );
    }
}

#[test]
fn a_huge_file() {
    let world = World::new();
    let mut text = vec![b'#'; 1024 * 1024];
    write(&world.config(), &text);
    assert_eq!(world.load(|_| ()).unwrap().len(), 2, "1 MiB is allowed");
    text.push(b'#');
    write(&world.config(), &text);
    refused(&world, &["is larger than 1 MiB"]);
}

#[test]
fn bytes_that_are_no_text() {
    let world = World::new();
    write(&world.config(), b"[files]\nread = [\"\xff\"]\n");
    refused(
        &world,
        &["~/.config/agent-sandbox/config.toml:2: not UTF-8 text"],
    );
}

#[test]
fn writable_by_others() {
    let world = World::new();
    write(&world.config(), "");
    for (bits, who) in [
        (0o664, "its group"),
        (0o646, "other users"),
        (0o666, "its group and other users"),
    ] {
        mode(&world.config(), bits);
        refused(
            &world,
            &[
                &format!("can be changed by {who}"),
                "chmod go-w ~/.config/agent-sandbox/config.toml",
            ],
        );
    }
}

#[test]
fn owned_by_somebody_else() {
    // Only root can give a file away; the rule itself has a unit test beside it.
    if nix::unistd::geteuid().is_root() {
        let world = World::new();
        write(&world.config(), "");
        std::os::unix::fs::chown(world.config(), Some(12_345), None).unwrap();
        refused(&world, &["belongs to another user (uid 12345)", "chown"]);
    }
}
