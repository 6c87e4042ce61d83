//! One installation over another: what runs goes on, what is the user's stays, what is old goes.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

use crate::world::{Done, PATIENCE, TestPrefix, code, same_trees, tree, wait};

#[test]
fn an_upgrade_removes_what_is_old_and_keeps_what_is_the_users() {
    let place = TestPrefix::new();
    let kept = [
        place.write(
            "home/.config/agent-sandbox/config.toml",
            "[jail]\nnested = false\n",
        ),
        place.write(
            "home/.config/agent-sandbox/profiles/mine.toml",
            "[profile]\n",
        ),
        place.write(
            "prefix/share/agent-sandbox/profiles/agents/mine.toml",
            "[profile]\n",
        ),
        place.write("prefix/etc/agent-sandbox/enforced.toml", "[jail]\n"),
    ];
    let before = tree(&place.path);
    place.make("install", &[]).ok();
    // As if an older version had brought more than this one.
    let old = place.write(
        "prefix/share/agent-sandbox/profiles/old/gone.toml",
        "[profile]\n",
    );
    let manifest = place.prefix.join("share/agent-sandbox/manifest");
    let mut text = fs::read_to_string(&manifest).unwrap();
    let directory = old.parent().unwrap();
    text.push_str(&format!("d {}\nf {}\n", directory.display(), old.display()));
    fs::write(&manifest, text).unwrap();
    place.make("install", &[]).ok();
    assert!(!old.exists() && !directory.exists());
    for file in &kept {
        assert!(file.exists(), "{}", file.display());
    }
    place.make("uninstall", &[]).ok();
    same_trees(&before, &tree(&place.path));
}

#[test]
fn a_manifest_leads_nowhere_else() {
    let place = TestPrefix::installed();
    let precious = place.write("precious", "mine");
    let manifest = place.prefix.join("share/agent-sandbox/manifest");
    let mut text = fs::read_to_string(&manifest).unwrap();
    let (prefix, precious_path) = (place.prefix.display(), precious.display());
    text.push_str(&format!(
        "f {precious_path}\nf {prefix}/../precious\nf {prefix}/bin/../../precious\nf precious\nf \nd /\n"
    ));
    fs::write(&manifest, &text).unwrap();
    place.make("install", &[]).ok();
    assert!(precious.exists());
    fs::write(&manifest, &text).unwrap();
    place.make("uninstall", &[]).ok();
    assert!(precious.exists());
}

#[test]
fn a_running_session_survives_an_installation() {
    let place = TestPrefix::installed();
    let program = place.prefix.join("bin/agent-sandbox");
    let before = fs::metadata(&program).unwrap().ino();
    let script = "echo ready; read word; echo \"$word\"; echo written > file; exit 7";
    let mut session = place
        .launcher(&["-q", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(session.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    place.make("install", &[]).ok();
    assert_ne!(
        fs::metadata(&program).unwrap().ino(),
        before,
        "it was written in place"
    );
    let own = fs::read_link(format!("/proc/{}/exe", session.id())).unwrap();
    assert!(own.to_string_lossy().ends_with(" (deleted)"), "{own:?}");
    session
        .stdin
        .take()
        .unwrap()
        .write_all(b"still here\n")
        .unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "still here\n");
    assert_eq!(code(wait(&mut session, "the session")), 7);
    let written = fs::read_to_string(place.home.join("project/file")).unwrap();
    assert_eq!(written, "written\n");
    // And the new one starts.
    Done::of(place.launcher(&["-q", "true"])).ok();
}

#[test]
fn whoever_starts_it_meanwhile_finds_a_whole_program() {
    let place = TestPrefix::installed();
    let mut make = place.make_command("install", &[]);
    let started = std::time::Instant::now();
    let mut starts = 0;
    for _ in 0..3 {
        let mut installing = make.stdout(Stdio::null()).spawn().unwrap();
        while installing.try_wait().unwrap().is_none() {
            Done::of(place.launcher(&["--version"]))
                .ok()
                .says("agent-sandbox ");
            starts += 1;
            assert!(started.elapsed() < PATIENCE);
        }
    }
    assert!(starts > 3, "{starts} starts");
}
