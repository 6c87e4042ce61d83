//! The sessions that documents show, run in a throw-away home and compared.

use std::fs;
use std::process::Command;

use crate::transcript::{like, sessions};
use crate::world::{CANARY, World, binary, root};

/// A home as the documents have it: `~/work/genomes` is a project, `~/.local/bin/claude` an agent.
fn home() -> World {
    let world = World::new();
    world.write(
        "home/work/genomes/align.c",
        "int main(void) { return 0; }\n",
    );
    world.write("home/.aws/credentials", CANARY);
    world.program("home/.local/bin/claude", "#!/bin/sh\necho an agent\n");
    fs::create_dir_all(world.place.join("bin")).unwrap();
    std::os::unix::fs::symlink(binary(), world.place.join("bin/agent-sandbox")).unwrap();
    world
}

fn check(document: &str) {
    let text = fs::read_to_string(root().join(document)).unwrap();
    let sessions = sessions(&text);
    assert!(!sessions.is_empty(), "{document} shows no session");
    let world = home();
    let (home, place) = (
        world.home.display().to_string(),
        world.place.display().to_string(),
    );
    for session in sessions {
        // One shell for a session, so that `cd` and `export` last.
        let mut script = "cd ~/work/genomes\n".to_owned();
        for step in &session {
            script.push_str(&format!(
                "{{ {}\n}} 2>&1 < /dev/null\nprintf '\\036'\n",
                step.command
            ));
        }
        let output = Command::new("bash")
            .args(["--noprofile", "--norc", "-c", &script])
            .env_clear()
            .envs(world.environment())
            .env(
                "PATH",
                format!("{place}/bin:{home}/.local/bin:/usr/local/bin:/usr/bin:/bin"),
            )
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).replace(&home, "/home/ada");
        let said: Vec<&str> = said.split('\x1e').collect();
        assert_eq!(
            said.len(),
            session.len() + 1,
            "{document}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        for (step, said) in session.iter().zip(said) {
            let line = format!("{document}:{}: $ {}", step.line, step.command);
            if step.output.is_empty() {
                // Not shown: then it is not worth showing, which an error would be.
                assert!(!said.contains("error:"), "{line}\n{said}");
            } else {
                assert!(
                    like(&step.output, said),
                    "{line}\n-- shown:\n{}\n-- printed:\n{said}",
                    step.output
                );
            }
        }
    }
}

#[test]
fn sessions_of_the_readme() {
    check("README.md");
}

#[test]
fn sessions_of_the_guide() {
    check("docs/guide.md");
}

/// The reference names every variable that the program reads or sets.
#[test]
fn the_reference_names_every_variable() {
    let source = fs::read_to_string(root().join("src/env_vars.rs")).unwrap();
    let reference = fs::read_to_string(root().join("docs/reference/cli.md")).unwrap();
    let names: Vec<&str> = source
        .lines()
        .filter(|line| line.starts_with("pub const ") && !line.contains("DEFAULT_"))
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    assert!(names.len() > 5, "{names:?}");
    for name in names {
        assert!(
            reference.contains(&format!("`{name}`")),
            "docs/reference/cli.md says nothing about {name}"
        );
    }
}
