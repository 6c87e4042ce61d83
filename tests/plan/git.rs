//! Git in the project: hooks and configuration, worktrees, and worktrees that are forged.

use crate::host::plain;
use crate::scenario::Scenario;
use crate::tree::Tree;

fn repository(tree: Tree, at: &str) -> Tree {
    tree.file(&format!("{at}/HEAD"), "ref: refs/heads/main\n")
        .file(&format!("{at}/config"), "[core]\n")
        .file(&format!("{at}/hooks/pre-commit"), "")
        .directory(&format!("{at}/objects"))
        .directory(&format!("{at}/refs"))
}

/// The pointers between a worktree and its repository.
struct Worktree<'a> {
    dot_git: &'a str,
    gitdir: &'a str,
    commondir: &'a str,
}

const GOOD: Worktree<'_> = Worktree {
    dot_git: "gitdir: /home/ada/repo/.git/worktrees/project\n",
    gitdir: "/home/ada/project/.git\n",
    commondir: "../..\n",
};

fn worktree(tree: Tree, pointers: &Worktree<'_>) -> Tree {
    repository(tree, "/home/ada/repo/.git")
        .file("/home/ada/project/.git", pointers.dot_git)
        .file(
            "/home/ada/repo/.git/worktrees/project/gitdir",
            pointers.gitdir,
        )
        .file(
            "/home/ada/repo/.git/worktrees/project/commondir",
            pointers.commondir,
        )
}

#[test]
fn a_repository() {
    let tree = || repository(plain(), "/home/ada/project/.git");
    Scenario::new(tree()).snapshot("git_repository");
    Scenario::new(tree())
        .policy("project.git = \"writable\"")
        .snapshot("git_writable");
}

#[test]
fn a_worktree() {
    Scenario::new(worktree(plain(), &GOOD)).snapshot("git_worktree");
    let own_config =
        worktree(plain(), &GOOD).file("/home/ada/repo/.git/worktrees/project/config.worktree", "");
    Scenario::new(own_config).snapshot("git_worktree_config");
}

/// Pointer files that anybody may have planted: nothing outside the project is given, and the
/// reason is said.
#[test]
fn forged_worktrees() {
    let with = |dot_git, gitdir, commondir| {
        worktree(
            plain(),
            &Worktree {
                dot_git,
                gitdir,
                commondir,
            },
        )
    };
    let good = || worktree(plain(), &GOOD);
    let cases: [(&str, Tree); 12] = [
        (
            "into the home",
            with("gitdir: /home/ada", GOOD.gitdir, GOOD.commondir),
        ),
        (
            "into credentials",
            with(
                "gitdir: /home/ada/.ssh/worktrees/x",
                GOOD.gitdir,
                GOOD.commondir,
            )
            .file("/home/ada/.ssh/worktrees/x/gitdir", GOOD.gitdir)
            .file("/home/ada/.ssh/worktrees/x/commondir", "../..")
            .directory("/home/ada/.ssh/objects")
            .directory("/home/ada/.ssh/refs"),
        ),
        (
            "no way back",
            with(GOOD.dot_git, "/home/ada/other/.git", GOOD.commondir),
        ),
        (
            "another common directory",
            with(GOOD.dot_git, GOOD.gitdir, "/home/ada/.config/agent-sandbox"),
        ),
        (
            "the whole home as common directory",
            with("gitdir: /home/ada/worktrees/x", GOOD.gitdir, GOOD.commondir)
                .file("/home/ada/worktrees/x/gitdir", GOOD.gitdir)
                .file("/home/ada/worktrees/x/commondir", "../..")
                .directory("/home/ada/objects")
                .directory("/home/ada/refs"),
        ),
        (
            "no repository",
            good().without("/home/ada/repo/.git/objects"),
        ),
        (
            "somebody else's",
            good().owned_by("/home/ada/repo/.git", 1001),
        ),
        (
            "behind a link",
            with(
                "gitdir: /home/ada/project/l/worktrees/project",
                GOOD.gitdir,
                GOOD.commondir,
            )
            .link("/home/ada/project/l", "/home/ada/repo/.git")
            .without("/home/ada/repo/.git/objects"),
        ),
        ("no pointer", with("hello", GOOD.gitdir, GOOD.commondir)),
        (
            "two lines",
            with(
                "gitdir: /home/ada/repo/.git/worktrees/project\nx\n",
                GOOD.gitdir,
                GOOD.commondir,
            ),
        ),
        (
            "relative, out of the project",
            with(
                "gitdir: ../../../etc/worktrees/x",
                GOOD.gitdir,
                GOOD.commondir,
            ),
        ),
        (
            "into the system",
            with("gitdir: /usr/lib/worktrees/x", GOOD.gitdir, GOOD.commondir)
                .file("/usr/lib/worktrees/x/gitdir", GOOD.gitdir)
                .file("/usr/lib/worktrees/x/commondir", "../..")
                .directory("/usr/objects")
                .directory("/usr/lib/objects")
                .directory("/usr/lib/refs")
                .owned_by("/usr/lib", 0),
        ),
    ];
    let mut all = String::new();
    for (name, tree) in cases {
        let scenario = Scenario::new(tree);
        scenario.text();
        let plan = scenario.plan().unwrap();
        let left: Vec<_> = plan
            .omitted
            .iter()
            .filter(|omitted| omitted.path.ends_with(".git"))
            .collect();
        let [left] = left[..] else {
            panic!("{name}: {left:?}")
        };
        assert!(left.loud, "{name}");
        let given: Vec<_> = plan
            .steps
            .iter()
            .filter(|step| {
                step.at.starts_with("/home/ada/repo")
                    || step.why.to_string().contains("git's directory")
            })
            .collect();
        assert!(given.is_empty(), "{name}: {given:?}");
        all.push_str(&format!("{name}: {}\n", left.reason));
    }
    crate::scenario::compare("git_forged", &all);
}

/// `.git` is a link: git follows it, the plan gives nothing for it.
#[test]
fn a_link_at_dot_git() {
    let tree =
        repository(plain(), "/home/ada/repo/.git").link("/home/ada/project/.git", "../repo/.git");
    Scenario::new(tree).snapshot("git_link");
}

/// Hooks that are a link, as a planted one might be.
#[test]
fn hooks_behind_a_link() {
    let tree =
        repository(plain(), "/home/ada/project/.git").without("/home/ada/project/.git/hooks");
    let tree = tree.link("/home/ada/project/.git/hooks", "../../.config");
    Scenario::new(tree).snapshot("git_hooks_link");
}

/// An earlier session could have closed the directory, or filled it.
#[test]
fn worktrees_that_cannot_be_seen_are_not_left_open() {
    let refused = |closed: &[&str], policy: &str| {
        let mut tree = repository(plain(), "/home/ada/project/.git")
            .file(
                "/home/ada/project/.git/worktrees/w/gitdir",
                "/elsewhere/.git\n",
            )
            .file("/home/ada/project/.git/worktrees/w/commondir", "../..\n");
        for path in closed {
            tree = tree.unreadable(path);
        }
        let plan = Scenario::new(tree).policy(policy).plan();
        plan.err().map(|error| error.to_string())
    };
    assert_eq!(refused(&[], ""), None);
    for path in [
        "/home/ada/project/.git/worktrees",
        "/home/ada/project/.git/worktrees/w",
    ] {
        let error = refused(&[path], "").unwrap();
        assert!(error.contains(path), "{error}");
        assert_eq!(refused(&[path], "project.git = \"writable\""), None);
    }
}
