//! No jail sees the place where tasks of the user's jobs meet, nor can one be made in its stead.

use std::path::{Path, PathBuf};

use agent_sandbox::plan::build::join_directories::places_to_make;
use agent_sandbox::plan::{Mount, Plan};

use crate::host::plain;
use crate::scenario::Scenario;
use crate::tree::{OWNER, Tree};

fn place(directory: &str) -> String {
    format!("{directory}/agent-sandbox-{OWNER}")
}

/// The policy gives the host's directories.
fn wide(tree: Tree) -> Scenario {
    let policy = "files.write = [\"/tmp\"]\nfiles.read = [\"/var/tmp\"]";
    Scenario::new(tree.directory("/var/tmp")).policy(policy)
}

/// What stands at a path inside.
fn mount(plan: &Plan, at: &str) -> Option<Mount> {
    let mut steps = plan.steps.iter().rev();
    let step = steps.find(|step| step.at == Path::new(at));
    step.map(|step| step.mount.clone())
}

#[test]
fn the_place_is_covered_where_its_directory_is_shown() {
    let there = plain().directory(&place("/tmp"));
    for tree in [plain(), there] {
        let scenario = wide(tree);
        // Judges, too.
        scenario.text();
        let plan = scenario.plan().unwrap();
        let made = places_to_make(&plan, &scenario.host);
        for directory in ["/tmp", "/var/tmp"] {
            let at = place(directory);
            let mount = mount(&plan, &at);
            assert!(
                matches!(mount, Some(Mount::HideDirectory)),
                "{at}: {mount:?}"
            );
            assert!(made.contains(&PathBuf::from(at)), "{made:?}");
        }
    }
}

#[test]
fn a_private_directory_needs_no_cover() {
    let scenario = Scenario::new(plain());
    let plan = scenario.plan().unwrap();
    assert_eq!(
        places_to_make(&plan, &scenario.host),
        [""; 0].map(PathBuf::from)
    );
    assert!(mount(&plan, &place("/tmp")).is_none());
}

#[test]
fn a_file_in_its_stead_is_covered_and_a_link_is_refused() {
    let plan = wide(plain().file(&place("/tmp"), "")).plan().unwrap();
    let cover = mount(&plan, &place("/tmp"));
    assert!(matches!(cover, Some(Mount::HideFile)), "{cover:?}");
    let linked = wide(plain().link(&place("/tmp"), "/home/ada/project"));
    let error = linked.plan().unwrap_err();
    assert!(error.to_string().contains("symbolic link"), "{error}");
}

#[test]
fn no_list_gives_the_place_itself() {
    let tree = || plain().file(&format!("{}/7/socket", place("/tmp")), "");
    for key in ["read", "write", "unhide"] {
        for path in [place("/tmp"), format!("{}/7", place("/tmp"))] {
            let policy = format!("files.{key} = [\"{path}\"]");
            let scenario = Scenario::new(tree()).policy(&policy);
            let plan = scenario.plan().unwrap();
            scenario.text();
            let shown = plan.steps.iter().any(|step| {
                matches!(&step.mount, Mount::Bind { from, .. } if from.starts_with(place("/tmp")))
            });
            assert!(!shown, "{policy}");
        }
    }
}
