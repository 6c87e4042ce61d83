//! The sessions that the book shows of a cluster, run in a jail and compared.

use std::fs;
use std::path::PathBuf;

use crate::cluster::put;
use crate::transcript::{Step, book, like, sessions};
use crate::world::{Side, World};

/// What stands above a session that needs Slurm; the suite `cli` leaves these to this one.
const MARK: &str = "cluster";

#[test]
fn sessions_of_the_book_about_slurm() {
    let root = std::env::var_os("AGENT_SANDBOX_ROOT")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let mut ran = 0;
    for document in book(&root) {
        let text = fs::read_to_string(root.join(&document)).unwrap();
        for session in sessions(&text) {
            if session.mark.as_deref() == Some(MARK) {
                let Some(world) = World::new() else { return };
                check(&world, &document, &session.steps);
                ran += 1;
            }
        }
    }
    assert!(ran > 0, "the book shows no session marked `{MARK}`");
}

/// One session, in a project of its own.
fn check(world: &World, document: &str, steps: &[Step]) {
    // The first line starts the jail; the others are typed inside.
    let (first, inner) = steps.split_first().unwrap();
    let words = first.command.strip_prefix("agent-sandbox -q ");
    let words = words.and_then(|words| words.strip_suffix("bash"));
    let words = words.unwrap_or_else(|| panic!("{document}: {}", first.command));
    let settings: Vec<&str> = words.split("--set ").map(str::trim).collect();
    let mut script = String::new();
    for step in inner {
        if let Some(file) = step.command.strip_prefix("cat ")
            && step.output.starts_with("#!")
        {
            // As it is shown, whichever backend makes the jail.
            put(
                world.user,
                &world.project().join(file),
                step.output.as_bytes(),
                0o755,
            );
        }
        script.push_str(&format!("{{ {}\n}} 2>&1\nprintf '\\036'\n", step.command));
    }
    let mut call = world.inside(&script);
    for setting in settings.iter().filter(|text| !text.is_empty()) {
        call = call.set(setting);
    }
    let output = call.run();
    let said = world.without_session(&String::from_utf8_lossy(&output.stdout));
    let said: Vec<&str> = said.split('\x1e').collect();
    assert_eq!(
        said.len(),
        inner.len() + 1,
        "{document}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    for (step, said) in inner.iter().zip(said) {
        assert!(
            like(&step.output, said),
            "{document}:{}: $ {}\n-- shown:\n{}\n-- printed:\n{said}",
            step.line,
            step.command,
            step.output
        );
    }
    world.settle(Side::Inside);
}
