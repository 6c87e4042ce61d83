//! The sessions that documents show, run in a throw-away home and compared.

use std::fs;
use std::process::Command;

use crate::transcript::{Step, book, like, sessions};
use crate::world::{CANARY, World, binary, not_checked, root};

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

/// Runs the sessions of a document that need nothing but a jail. Complaints, and how many steps ran.
fn check(document: &str) -> (Vec<String>, usize) {
    let text = fs::read_to_string(root().join(document)).unwrap();
    let world = home();
    if text.contains(CONDA) {
        let environment = format!("home/{CONDA}/align/bin/python");
        world.program(
            &environment,
            "#!/bin/sh\necho python of the environment align\n",
        );
    }
    let (mut complaints, mut ran) = (Vec::new(), 0);
    for session in sessions(&text) {
        let line = session.steps.first().map_or(0, |step| step.line);
        match session.mark.as_deref() {
            None => {
                ran += session.steps.len();
                for (path, content) in &session.files {
                    if let Some(below) = path.strip_prefix("~/") {
                        let home = world.home.display().to_string();
                        world.write(&format!("home/{below}"), content.replace(ADA, &home));
                    }
                }
                complaints.extend(run(&world, document, &session.steps));
            }
            Some(ELSEWHERE_CLUSTER | ELSEWHERE_SITE) => {}
            Some(mark) => match mark.strip_prefix("not checked: ") {
                Some(why) => not_checked(&format!("the session at {document}:{line}"), why),
                None => complaints.push(format!("{document}:{line}: what is `{mark}`?")),
            },
        }
    }
    (complaints, ran)
}

/// The home in documents.
const ADA: &str = "/home/ada";
/// Where documents have environments of conda, below the home.
const CONDA: &str = "miniconda3/envs";

/// Marks of sessions that other suites run: `slurm` and `site`.
const ELSEWHERE_CLUSTER: &str = "cluster";
const ELSEWHERE_SITE: &str = "site";

/// Runs one session, in one shell, so that `cd` and `export` last. Complaints.
fn run(world: &World, document: &str, steps: &[Step]) -> Vec<String> {
    let (home, place) = (
        world.home.display().to_string(),
        world.place.display().to_string(),
    );
    let mut script = "cd ~/work/genomes\n".to_owned();
    for step in steps {
        script.push_str(&format!(
            "{{ {}\n}} 2>&1 < /dev/null\nprintf '\\037%d\\036' $?\n",
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
    let said = String::from_utf8_lossy(&output.stdout).replace(&home, ADA);
    let said: Vec<&str> = said.split('\x1e').collect();
    if said.len() != steps.len() + 1 {
        let why = String::from_utf8_lossy(&output.stderr);
        return vec![format!("{document}: ended early: {why}")];
    }
    let wrong = |(step, said): (&Step, &str)| {
        let (said, code) = said.split_once('\x1f').unwrap_or((said, ""));
        let line = format!("{document}:{}: $ {}", step.line, step.command);
        if step.output.is_empty() {
            // Not shown: then it is not worth showing, which an error would be.
            let failed = code != "0" || said.contains("error:");
            failed.then(|| format!("{line}\n{said}-- exit code {code}"))
        } else {
            (!like(&step.output, said))
                .then(|| format!("{line}\n-- shown:\n{}-- printed:\n{said}", step.output))
        }
    };
    steps.iter().zip(said).filter_map(wrong).collect()
}

#[test]
fn sessions_of_the_readme() {
    let (complaints, ran) = check("README.md");
    assert!(ran > 0, "README.md shows no session");
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
}

#[test]
fn sessions_of_the_book() {
    let (mut complaints, mut ran) = (Vec::new(), 0);
    for document in book(&root()) {
        let (wrong, steps) = check(&document);
        complaints.extend(wrong);
        ran += steps;
    }
    // Were they no longer recognised, there would be no complaint either.
    assert!(ran > 40, "{ran} steps of sessions found in docs/");
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
}

#[test]
fn a_session_that_is_shown_wrong_is_found() {
    let world = home();
    let step = |command: &str, output: &str| Step {
        line: 1,
        command: command.into(),
        output: output.into(),
    };
    let check = |command, output| run(&world, "x.md", &[step(command, output)]);
    assert_eq!(
        check("agent-sandbox -q echo a", "a\n"),
        Vec::<String>::new()
    );
    assert_eq!(check("agent-sandbox -q echo a", "b\n").len(), 1);
    assert_eq!(check("agent-sandbox --nonsense", "").len(), 1);
    assert_eq!(check("false", "").len(), 1);
    assert_eq!(check("true", ""), Vec::<String>::new());
    assert_eq!(check("exit", "").len(), 1);
}

/// The reference names every variable that the program reads or sets.
#[test]
fn the_reference_names_every_variable() {
    let source = fs::read_to_string(root().join("base/src/env_vars.rs")).unwrap();
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
