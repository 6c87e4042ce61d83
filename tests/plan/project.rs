//! Which directory is the project, and every reason why one is refused.

use crate::host::{self, plain};
use crate::scenario::Scenario;
use crate::tree::Tree;

#[test]
fn a_project_behind_a_link() {
    let tree = plain()
        .file("/scratch/ada/work/a.c", "")
        .link("/home/ada/work", "/scratch/ada/work");
    Scenario::new(tree)
        .project("/home/ada/work")
        .snapshot("project_symlinked");
}

#[test]
fn the_current_directory_below_the_project() {
    let tree = plain().file("/home/ada/project/src/deep/a.c", "");
    Scenario::new(tree.clone())
        .cwd("/home/ada/project/src/deep")
        .snapshot("cwd_below_project");
    let outside = Scenario::new(tree).cwd("/home/ada").plan().unwrap();
    assert_eq!(outside.cwd.to_str(), Some("/home/ada/project"));
}

/// Each refusal, by the text that the user reads.
#[test]
fn refusals() {
    let home = "/home/ada";
    let cases: [(&str, Tree, &str); 25] = [
        ("root", plain(), "/"),
        ("home", plain(), home),
        (
            "home by another name",
            plain().link("/home/ada/project/self", home),
            "/home/ada/project/self",
        ),
        ("home by ..", plain(), "/home/ada/project/.."),
        ("above home", plain(), "/home"),
        ("missing", plain(), "/home/ada/gone"),
        (
            "a dangling link",
            plain().link("/home/ada/dangling", "gone"),
            "/home/ada/dangling",
        ),
        (
            "a loop",
            plain().link("/home/ada/a", "b").link("/home/ada/b", "a"),
            "/home/ada/a",
        ),
        ("no directory", plain(), "/home/ada/notes.txt"),
        (
            "denied",
            plain()
                .directory("/data/shut/in")
                .owned_by("/data/shut", 0)
                .unreadable("/data/shut"),
            "/data/shut/in",
        ),
        (
            "closed",
            plain()
                .directory("/home/ada/shut/in")
                .unreadable("/home/ada/shut"),
            "/home/ada/shut/in",
        ),
        ("hung", plain().hung("/nfs"), "/nfs/work"),
        ("policy", plain(), "/home/ada/.config/agent-sandbox"),
        (
            "in the policy",
            plain().directory("/home/ada/.config/agent-sandbox/profiles"),
            "/home/ada/.config/agent-sandbox/profiles",
        ),
        ("around the policy", plain(), "/home/ada/.config"),
        (
            "around the state",
            plain().directory("/home/ada/.local/state/agent-sandbox"),
            "/home/ada/.local",
        ),
        ("credentials", plain(), "/home/ada/.ssh"),
        (
            "in credentials",
            plain().directory("/home/ada/.ssh/x"),
            "/home/ada/.ssh/x",
        ),
        ("installation", plain(), "/usr/bin"),
        ("usr", plain(), "/usr"),
        ("etc", plain().directory("/etc/x"), "/etc/x"),
        ("tmp", plain(), "/tmp"),
        ("proc", plain(), "/proc/1"),
        ("run", plain(), "/run/user/1000"),
        (
            "a link to usr",
            plain().link("/home/ada/u", "/usr"),
            "/home/ada/u",
        ),
    ];
    let mut all = String::new();
    for (name, tree, project) in cases {
        let text = Scenario::new(tree).project(project).text();
        assert!(text.starts_with("error: "), "{name}: {text}");
        all.push_str(&format!("# {name}: {project}\n{text}\n"));
    }
    crate::scenario::compare("project_refusals", &all);
}

/// The second home, which only the user database names, is one, too.
#[test]
fn the_home_of_the_user_database_is_no_project() {
    let tree = host::home(plain(), "/nfs/ada");
    for (project, refused) in [
        ("/nfs/ada", true),
        ("/nfs", true),
        ("/nfs/ada/project", false),
    ] {
        let scenario = Scenario::new(tree.clone())
            .facts(|facts| facts.passwd_home = Some("/nfs/ada".into()))
            .project(project);
        assert_eq!(scenario.plan().is_err(), refused, "{project}");
    }
}

#[test]
fn projects_are_their_parents_or_lie_in_them() {
    let tree = plain()
        .directory("/home/ada/work/a")
        .directory("/scratch/ada/b")
        .directory("/scratch/group-a/run")
        .directory("/scratch/other")
        .directory("/home/ada/workshop");
    let mut all = String::new();
    for project in [
        "/home/ada/work/a",
        "/scratch/ada/b",
        "/home/ada/work",
        "/home/ada/workshop",
        "/home/ada/project",
        "/scratch/ada",
        "/scratch/group-a",
        "/scratch/group-a/run",
        "/scratch/other",
    ] {
        let scenario = Scenario::new(tree.clone())
            .only_policy("project.parents = [\"~/work\", \"$SCRATCH/b\", \"/scratch/group-*\", \"/scrtch\"]\nfiles.read = [\"/usr\"]")
            .variable("SCRATCH", "/scratch/ada")
            .project(project);
        let text = scenario.text();
        let first = text.lines().take(2).collect::<Vec<_>>().join("\n");
        all.push_str(&format!("# {project}\n{first}\n"));
    }
    crate::scenario::compare("project_parents", &all);
}

/// A project that is the place of protected files is whole; elsewhere they stay protected.
#[test]
fn a_project_around_protected_files() {
    let tree = plain()
        .file("/home/ada/go/bin/tool", "")
        .file("/home/ada/go/src/a.go", "");
    Scenario::new(tree)
        .project("/home/ada/go")
        .snapshot("project_around_protected");
}

/// A project below `/tmp` stands in the private one.
#[test]
fn a_project_below_tmp() {
    let tree = plain().file("/tmp/work/a.c", "");
    Scenario::new(tree)
        .project("/tmp/work")
        .snapshot("project_below_tmp");
}
