//! The sessions that the book shows under a site's policy, run with the files that stand above them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use crate::transcript::{Session, book, like, sessions};
use crate::world::{SITE, World};

/// What stands above a session that needs a site; the suite `cli` leaves these to this one.
const MARK: &str = "site";
/// The home in documents.
const ADA: &str = "/home/ada";

#[test]
fn sessions_of_the_book_about_a_site() {
    let root = std::env::var_os("AGENT_SANDBOX_ROOT")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let (mut complaints, mut ran) = (Vec::new(), 0);
    for document in book(&root) {
        let text = fs::read_to_string(root.join(&document)).unwrap();
        // The files of a page stay until it shows others.
        let world = World::new();
        world.write("work/genomes/align.c", "int main(void) { return 0; }\n");
        for session in sessions(&text) {
            for (path, content) in &session.files {
                if let Some(name) = path.strip_prefix(SITE) {
                    world.site_file(name.trim_start_matches('/'), content);
                } else if let Some(below) = path.strip_prefix("~/") {
                    world.write(below, content);
                }
            }
            if session.mark.as_deref() == Some(MARK) {
                complaints.extend(check(&world, &document, &session));
                ran += 1;
            }
        }
    }
    assert!(ran > 0, "the book shows no session marked `{MARK}`");
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
}

/// Runs one session in one shell, as an ordinary user. Complaints.
fn check(world: &World, document: &str, session: &Session) -> Vec<String> {
    let bin = world.base().join("bin");
    if fs::create_dir(&bin).is_ok() {
        symlink(world.launcher(), bin.join("agent-sandbox")).unwrap();
    }
    let mut script = String::new();
    for step in &session.steps {
        script.push_str(&format!(
            "{{ {}\n}} 2>&1 < /dev/null\nprintf '\\036'\n",
            step.command
        ));
    }
    let output = world
        .outside(&script)
        .cwd(world.seen_home().join("work/genomes"))
        .variable("PATH", format!("{}:/usr/bin:/bin", bin.display()))
        .run();
    let home = world.seen_home().display().to_string();
    let said = output.stdout.replace(&home, ADA);
    let said: Vec<&str> = said.split('\x1e').collect();
    if said.len() != session.steps.len() + 1 {
        return vec![format!("{document}: ended early: {}", output.stderr)];
    }
    let steps = session.steps.iter().zip(said);
    let wrong = steps.filter(|(step, said)| !like(&step.output, said));
    wrong
        .map(|(step, said)| {
            format!(
                "{document}:{}: $ {}\n-- shown:\n{}-- printed:\n{said}",
                step.line, step.command, step.output
            )
        })
        .collect()
}
