//! Each key that gives paths, under an enforced layer: what a user asks for, and what becomes of it.

use std::path::Path;

use agent_sandbox::host::mount_table::Alias;
use agent_sandbox::plan::{Access, Mount, Plan};

use crate::host;
use crate::scenario::Scenario;
use crate::tree::Tree;

pub(super) fn tree() -> Tree {
    host::plain()
        .file("/data/shared/set.csv", "1")
        .file("/data/shared/own/set.csv", "2")
        .file("/data/private/set.csv", "3")
        .file("/home/ada/data/x", "4")
}

/// What the jail can do at a path of the host.
pub(super) fn access(plan: &Plan, path: &str) -> Option<Access> {
    let path = Path::new(path);
    let over = plan
        .steps
        .iter()
        .rev()
        .find(|step| path.starts_with(&step.at))?;
    match &over.mount {
        Mount::Bind { from, access, .. } if *from == over.at => Some(*access),
        _ => None,
    }
}

pub(super) fn plan(enforced: &str, user: &str) -> Plan {
    Scenario::new(tree())
        .policy(user)
        .enforced(enforced)
        .plan()
        .unwrap()
}

pub(super) const R: Option<Access> = Some(Access::Read);
pub(super) const W: Option<Access> = Some(Access::Write);

#[test]
fn lists_of_paths_give_no_more_than_the_enforced_lists() {
    for (enforced, user, path, expected) in [
        // A bound gives nothing itself.
        ("[files]\nread = [\"/data\"]\n", "", "/data/shared", None),
        (
            "[files]\nread = [\"/data\"]\n",
            "[files]\nread = [\"/data/shared\"]\n",
            "/data/shared",
            R,
        ),
        (
            "[files]\nread = [\"/data/shared\"]\n",
            "[files]\nread = [\"/data/private\"]\n",
            "/data/private",
            None,
        ),
        // What is wider is cut down to what lies within.
        (
            "[files]\nread = [\"/data/shared\"]\n",
            "[files]\nread = [\"/data\"]\n",
            "/data/shared/set.csv",
            R,
        ),
        (
            "[files]\nread = [\"/data/shared\"]\n",
            "[files]\nread = [\"/data\"]\n",
            "/data/private",
            None,
        ),
        (
            "[files]\nread = [\"/data/sh*\"]\n",
            "[files]\nread = [\"/data\"]\n",
            "/data/shared/set.csv",
            R,
        ),
        // An empty list allows none; no list bounds nothing.
        (
            "[files]\nread = []\n",
            "[files]\nread = [\"/data\"]\n",
            "/data",
            None,
        ),
        ("[files]\nread = []\n", "", "/usr/bin/cc", None),
        (
            "[files]\nwrite = []\n",
            "[files]\nread = [\"/data\"]\n",
            "/data",
            R,
        ),
        // What may be written may be read; what may only be read is given readable.
        (
            "[files]\nread = []\nwrite = [\"/data\"]\n",
            "[files]\nread = [\"/data\"]\n",
            "/data",
            R,
        ),
        (
            "[files]\nread = []\nwrite = [\"/data\"]\n",
            "[files]\nwrite = [\"/data\"]\n",
            "/data",
            W,
        ),
        (
            "[files]\nwrite = []\n",
            "[files]\nwrite = [\"/data\"]\n",
            "/data",
            R,
        ),
        (
            "[files]\nread = [\"/usr\"]\n",
            "[files]\nwrite = [\"/data\"]\n",
            "/data",
            None,
        ),
        (
            "[files]\nwrite = [\"/data/shared/own\"]\n",
            "[files]\nwrite = [\"/data/shared\"]\n",
            "/data/shared/own",
            W,
        ),
        (
            "[files]\nwrite = [\"/data/shared/own\"]\n",
            "[files]\nwrite = [\"/data/shared\"]\n",
            "/data/shared/set.csv",
            R,
        ),
        // By place, whatever the list is that asks.
        (
            "[home]\nread = []\n",
            "[files]\nread = [\"/home/ada/data\"]\n",
            "/home/ada/data",
            None,
        ),
        (
            "[home]\nread = [\"~/data\"]\n",
            "[files]\nread = [\"/home/ada/data\"]\n",
            "/home/ada/data",
            R,
        ),
        (
            "[home]\nread = []\n",
            "[home]\nread = [\"~/data\"]\n",
            "/home/ada/data",
            None,
        ),
        (
            "[home]\nwrite = []\n",
            "[home]\nwrite = [\"~/data\"]\n",
            "/home/ada/data",
            R,
        ),
        (
            "[files]\nread = []\n",
            "[home]\nread = [\"~/data\"]\n",
            "/home/ada/data",
            R,
        ),
        // `home.mode` is an entry of the home for each of its names.
        (
            "[home]\nread = [\"~/data\"]\n",
            "[home]\nmode = \"read\"\n",
            "/home/ada/data",
            R,
        ),
        (
            "[home]\nread = [\"~/data\"]\n",
            "[home]\nmode = \"read\"\n",
            "/home/ada/notes.txt",
            None,
        ),
        (
            "[home]\nwrite = [\"~/data\"]\n",
            "[home]\nmode = \"write\"\n",
            "/home/ada/notes.txt",
            R,
        ),
        (
            "[home]\nwrite = [\"~/data\"]\n",
            "[home]\nmode = \"write\"\n",
            "/home/ada/data/x",
            W,
        ),
        (
            "[home]\nmode = \"read\"\n",
            "[home]\nmode = \"write\"\n",
            "/home/ada/data",
            R,
        ),
        // The project is judged by `project.parents` alone.
        (
            "[home]\nread = []\nwrite = []\n",
            "",
            "/home/ada/project",
            W,
        ),
    ] {
        let found = access(&plan(enforced, user), path);
        assert_eq!(found, expected, "{enforced} {user} {path}");
    }
}

#[test]
fn each_enforced_layer_bounds() {
    let scenario = Scenario::new(tree())
        .policy("[files]\nread = [\"/data\"]\n")
        .enforced("[files]\nread = [\"/data/shared\", \"/usr\"]\n")
        .enforced("[files]\nread = [\"/data/shared/own\", \"/data/private\"]\n");
    let plan = scenario.plan().unwrap();
    assert_eq!(access(&plan, "/data/shared/own"), R);
    for path in ["/data/shared/set.csv", "/data/private", "/usr/bin/cc"] {
        assert_eq!(access(&plan, path), None, "{path}");
    }
}

#[test]
fn no_link_of_a_user_moves_a_bound() {
    let user = "[files]\nread = [\"/data/private\"]\n[home]\nread = [\"~/data\"]\n";
    let bounds = "[files]\nread = [\"/pool/ada\"]\n[home]\nread = [\"~/open\"]\n";
    let tree = || {
        tree()
            .directory("/pool")
            .link("/pool/ada", "/data/private")
            .link("/home/ada/open", "data")
    };
    // Root's link leads on, the user's own does not.
    let plan = |tree: Tree| {
        Scenario::new(tree)
            .policy(user)
            .enforced(bounds)
            .plan()
            .unwrap()
    };
    let of_root = plan(tree());
    assert_eq!(access(&of_root, "/data/private"), R);
    assert_eq!(access(&of_root, "/home/ada/data"), None);
    // In a directory that others may write, a link may be anybody's.
    let of_all = plan(tree().with_mode("/pool", 0o1777));
    assert_eq!(access(&of_all, "/data/private"), None);
}

#[test]
fn the_home_of_a_bound_is_that_of_the_user_database() {
    let scenario = |home: &str| {
        let home = home.to_owned();
        Scenario::new(tree())
            .policy("[files]\nread = [\"/data/private\"]\n[home]\nread = [\"~/private\"]\n")
            .enforced("[home]\nread = [\"~/private\"]\n[files]\nread = [\"/usr\"]\n")
            .facts(move |facts| {
                facts.passwd_home = Some(std::mem::replace(&mut facts.home, home.into()));
            })
            .plan()
            .unwrap()
    };
    assert_eq!(access(&scenario("/data"), "/data/private"), None);
    // What a site protects and hides is in that home, too.
    let plan = Scenario::new(tree())
        .policy("[files]\nwrite = [\"/home/ada/data\"]\nread = [\"/home/ada/notes.txt\"]\n")
        .enforced("[home]\nprotect = [\"~/data/x\"]\n[files]\nhide = [\"~/notes.txt\"]\n")
        .facts(|facts| {
            facts.passwd_home = Some(std::mem::replace(&mut facts.home, "/data".into()));
        })
        .plan()
        .unwrap();
    assert_eq!(access(&plan, "/home/ada/data"), W);
    assert_eq!(access(&plan, "/home/ada/data/x"), R);
    assert_eq!(access(&plan, "/home/ada/notes.txt"), None);
}

/// A user can bring it about that the name service has no answer: by a variable of its own, or by
/// waiting until it is down.
#[test]
fn without_an_answer_of_the_user_database_nothing_starts() {
    let refused = |enforced: &str| {
        let mut scenario = Scenario::new(tree());
        scenario.host.databases.caller = None;
        scenario.host.passwd_home = None;
        let plan = scenario.enforced(enforced).plan();
        plan.err().map(|error| error.to_string())
    };
    let error = refused("[files]\nhide = [\"~/.netrc\"]\n").unwrap();
    assert!(error.contains("the user database"), "{error}");
    let mut root = Scenario::new(tree());
    root.host.databases.caller = Some("ada:x:1000:1000::/:/bin/sh".into());
    root.host.passwd_home = None;
    assert!(
        root.enforced("[files]\nread = [\"/usr\"]\n")
            .plan()
            .is_err()
    );
    // Without a policy of the site's HOME is what there is.
    let mut free = Scenario::new(tree());
    free.host.databases.caller = None;
    assert!(free.plan().is_ok());
}

#[test]
fn other_names_of_the_home_are_the_home() {
    let alias = |at: &str, of: &str| Alias {
        at: at.into(),
        of: of.into(),
    };
    let plan = |bounds: &str, user: &str| {
        let tree = tree()
            .file("/nfs/ada/data/x", "4")
            .file("/nfs/other/x", "5");
        let scenario = Scenario::new(tree).policy(user).enforced(bounds);
        let scenario = scenario.facts(|facts| {
            facts.home_aliases = vec![alias("/nfs/ada", "/home/ada")];
        });
        scenario.plan().unwrap()
    };
    let bounds = "[home]\nread = [\"~/data\"]\n";
    let user = |path: &str| format!("[files]\nread = [\"{path}\"]\n");
    let data = plan(bounds, &user("/nfs/ada/data"));
    assert_eq!(access(&data, "/nfs/ada/data"), R);
    let whole = plan(bounds, &user("/nfs"));
    assert_eq!(access(&whole, "/nfs/ada/data"), None);
    assert_eq!(access(&whole, "/nfs/other"), None);
    let free = plan("", &user("/nfs"));
    assert_eq!(access(&free, "/nfs/other"), R);
}

#[test]
fn what_a_site_hides_no_exception_shows() {
    let user = "[files]\nunhide = [\"~/.netrc\", \"~/.config/gh\"]\n[home]\nread = [\"~/.netrc\", \"~/.config/gh\"]\n";
    for (enforced, netrc, gh) in [
        ("", R, R),
        ("[files]\nhide = [\"~/.netrc\"]\n", None, R),
        ("[files]\nhide = [\"/home/ada/.netrc\"]\n", None, R),
        ("[files]\nunhide = [\"~/.config\"]\n", None, R),
        ("[files]\nunhide = []\n", None, None),
        // An exception of the site's own, in the same layer.
        (
            "[files]\nhide = [\"~/.netrc\"]\nunhide = [\"~/.netrc\"]\n",
            R,
            None,
        ),
    ] {
        let plan = plan(enforced, user);
        assert_eq!(access(&plan, "/home/ada/.netrc"), netrc, "{enforced}");
        assert_eq!(access(&plan, "/home/ada/.config/gh"), gh, "{enforced}");
    }
    let other_layer = Scenario::new(tree())
        .policy(user)
        .enforced("[files]\nhide = [\"~/.netrc\"]\n")
        .enforced("[files]\nunhide = [\"~/.netrc\"]\n");
    assert_eq!(
        access(&other_layer.plan().unwrap(), "/home/ada/.netrc"),
        None
    );
    // Hidden places are no projects, nor given by options.
    let project = Scenario::new(tree()).enforced("[files]\nhide = [\"~/project\"]\n");
    let error = project.plan().unwrap_err().to_string();
    assert!(
        error.contains("files.hide `~/project` (enforced.toml:2)"),
        "{error}"
    );
}

#[test]
fn what_a_site_hides_in_the_project_is_covered() {
    let tree = tree().file("/home/ada/project/secret/key", "K");
    let plan = Scenario::new(tree)
        .policy("[files]\nunhide = [\"~/project/secret\"]\n")
        .enforced("[files]\nhide = [\"~/project/secret\"]\n")
        .plan()
        .unwrap();
    assert_eq!(access(&plan, "/home/ada/project/main.c"), W);
    assert_eq!(access(&plan, "/home/ada/project/secret/key"), None);
}

#[test]
fn projects_lie_in_the_parents_of_both() {
    let refused = |enforced: &str, user: &str, project: &str| {
        let tree = tree().link("/home/ada/way", "/data/shared");
        let scenario = Scenario::new(tree)
            .policy(user)
            .enforced(enforced)
            .project(project);
        scenario.plan().err().map(|error| error.to_string())
    };
    let parents = |list: &str| format!("[project]\nparents = {list}\n");
    for (enforced, user, project, expected) in [
        ("[\"/data\"]", "[]", "/data/shared", None),
        (
            "[\"/data\"]",
            "[]",
            "/home/ada/project",
            Some("the site's project.parents (enforced.toml:2)"),
        ),
        (
            "[\"/data\"]",
            "[\"/home\"]",
            "/home/ada/project",
            Some("the site's project.parents"),
        ),
        (
            "[\"/data\"]",
            "[\"/home\"]",
            "/data/shared",
            Some("project.parents does not hold it"),
        ),
        // None of both never means anywhere.
        (
            "[]",
            "[]",
            "/home/ada/project",
            Some("the site's project.parents (enforced.toml)"),
        ),
        (
            "[\"/data/shared/own\"]",
            "[]",
            "/data/shared",
            Some("the site's project.parents"),
        ),
        // A parent is itself one, by its name and by a pattern.
        ("[\"/data/shared\"]", "[]", "/data/shared", None),
        ("[\"/data/s*\"]", "[\"/data/*\"]", "/data/shared", None),
        (
            "[\"/data\"]",
            "[\"/data/s*/\", \"/data/x*\"]",
            "/data/shared",
            None,
        ),
        (
            "[\"/data/*\"]",
            "[]",
            "/data",
            Some("the site's project.parents"),
        ),
        (
            "[\"/data\"]",
            "[\"/data/*\"]",
            "/data",
            Some("project.parents does not hold it"),
        ),
        (
            "[\"/data\"]",
            "[\"/data/p*\"]",
            "/data/shared",
            Some("project.parents does not hold it"),
        ),
        // By the real place.
        (
            "[\"~\"]",
            "[]",
            "/home/ada/way",
            Some("the site's project.parents"),
        ),
        ("[\"/data\"]", "[]", "/home/ada/way", None),
        ("[\"/data/*\"]", "[]", "/data/shared/own", None),
        (
            "[\"/data/p*\"]",
            "[]",
            "/data/shared/own",
            Some("the site's project.parents"),
        ),
    ] {
        let found = refused(&parents(enforced), &parents(user), project);
        match (&found, expected) {
            (None, None) => {}
            (Some(found), Some(expected)) if found.contains(expected) => {}
            _ => panic!("{enforced} {user} {project}: {found:?}"),
        }
    }
}

#[test]
fn a_worktrees_repository_is_judged_like_a_project() {
    let tree = || {
        let git = "/data/shared/repo/.git";
        tree()
            .file(
                "/home/ada/project/.git",
                format!("gitdir: {git}/worktrees/p\n"),
            )
            .file(
                &format!("{git}/worktrees/p/gitdir"),
                "/home/ada/project/.git\n",
            )
            .file(&format!("{git}/worktrees/p/commondir"), "../..\n")
            .directory(&format!("{git}/objects"))
            .directory(&format!("{git}/refs"))
    };
    for (enforced, expected) in [
        ("", W),
        (
            "[project]\nparents = [\"/home\", \"/data\"]\n[files]\nread = []\nwrite = []\n",
            W,
        ),
        (
            "[project]\nparents = [\"/home\"]\n[files]\nread = [\"/usr\"]\n",
            None,
        ),
        ("[files]\nwrite = []\n", None),
        ("[files]\nread = [\"/usr\"]\n", None),
        ("[files]\nwrite = [\"/data/shared\"]\n", W),
        ("[home]\nwrite = []\n", W),
    ] {
        let plan = Scenario::new(tree()).enforced(enforced).plan().unwrap();
        let found = access(&plan, "/data/shared/repo/.git/objects");
        assert_eq!(found, expected, "{enforced}");
        let told = plan
            .omitted
            .iter()
            .any(|one| one.loud && one.reason.contains("the site's"));
        assert_eq!(told, expected.is_none(), "{enforced}");
    }
}
