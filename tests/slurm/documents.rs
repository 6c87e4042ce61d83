//! The session that the page about Slurm shows, run in a jail and compared.

use std::fs;
use std::path::PathBuf;

use crate::cluster::put;
use crate::transcript::{like, sessions};
use crate::world::{Side, World};

#[test]
fn the_session_of_the_page_about_slurm() {
    let Some(world) = World::new() else { return };
    let root = std::env::var_os("AGENT_SANDBOX_ROOT")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let document = "docs/slurm.md";
    let text = fs::read_to_string(root.join(document)).unwrap();
    let sessions = sessions(&text);
    let [session] = sessions.as_slice() else {
        panic!("{document} shows {} sessions", sessions.len());
    };
    // The first line starts the jail; the others are typed inside.
    let (first, inner) = session.split_first().unwrap();
    assert_eq!(first.command, "agent-sandbox -q bash");
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
    let output = world.inside(&script).run();
    let said = world.without_session(&String::from_utf8_lossy(&output.stdout));
    let said: Vec<&str> = said.split('\x1e').collect();
    assert_eq!(
        said.len(),
        inner.len() + 1,
        "{}",
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
