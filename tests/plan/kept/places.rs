//! Where something is kept, and what stands beside it and below it.

use std::path::Path;

use agent_sandbox::plan::model::persistent::Make;
use agent_sandbox::plan::{Access, Mount, Plan};

use crate::host;
use crate::scenario::Scenario;
use crate::tree::Tree;

pub(super) const STORE: &str = "/home/ada/.local/state/agent-sandbox/kept/home+ada+project";

fn tree() -> Tree {
    host::plain()
        .file("/home/ada/.cache/pip/x", "1")
        .file("/home/ada/.tool/notes", "2")
}

pub(super) fn at<'p>(plan: &'p Plan, path: &str) -> Option<&'p Mount> {
    let step = plan.steps.iter().find(|step| step.at == Path::new(path));
    step.map(|step| &step.mount)
}

fn kept(plan: &Plan) -> Vec<(String, String)> {
    let shown = |path: &Path| path.display().to_string();
    plan.kept()
        .map(|(at, from)| (shown(at), shown(from)))
        .collect()
}

fn places(plan: &Plan) -> Vec<String> {
    kept(plan).into_iter().map(|(at, _)| at).collect()
}

fn omitted(plan: &Plan, path: &str) -> Option<(String, bool)> {
    let found = plan.omitted.iter().find(|omitted| omitted.path == path)?;
    Some((found.reason.clone(), found.loud))
}

fn planned(tree: Tree, policy: &str) -> Plan {
    let scenario = Scenario::new(tree).only_policy(policy);
    // Judged as well.
    scenario.text();
    scenario.plan().unwrap()
}

#[test]
fn as_text() {
    Scenario::new(tree())
        .policy("[home]\nkeep = [\"~/.tool\", \"~/.config/other\"]\nread = [\"~/.tool/notes\"]\n")
        .snapshot("kept");
}

#[test]
fn a_kept_place_is_in_the_store_of_its_project() {
    let policy = "[home]\nkeep = [\"~/.tool\", \"~/.local/share/other\"]\n";
    let plan = planned(tree(), policy);
    assert_eq!(
        kept(&plan),
        [
            (
                "/home/ada/.local/share/other".to_owned(),
                format!("{STORE}/home/.local+share+other")
            ),
            ("/home/ada/.tool".to_owned(), format!("{STORE}/home/.tool")),
        ]
    );
    let other = Scenario::new(tree().file("/home/ada/project/sub/x", ""))
        .only_policy(policy)
        .project("/home/ada/project/sub")
        .plan()
        .unwrap();
    let store = STORE.replace("project", "project+sub");
    assert_eq!(kept(&other)[1].1, format!("{store}/home/.tool"));
    // Nothing is made for a question, and no project's is named.
    let asked = Scenario::new(tree()).only_policy(policy).without_project();
    assert_eq!(asked.keeping.store, None);
    assert_eq!(asked.keeping.makes, []);
    assert_eq!(places(&asked), places(&plan));
    assert!(
        kept(&asked)
            .iter()
            .all(|(_, from)| from.contains("/kept/%PROJECT/"))
    );
}

#[test]
fn what_is_missing_is_made_and_what_is_there_is_compared() {
    let policy = "home.keep = [\"~/.tool\"]";
    let plan = planned(tree(), policy);
    assert!(matches!(
        at(&plan, "/home/ada/.tool"),
        Some(Mount::Kept { id: None, .. })
    ));
    let made: Vec<_> = plan.keeping.makes.iter().map(Make::path).collect();
    assert_eq!(made, [Path::new(&format!("{STORE}/home/.tool"))]);
    let there = || tree().file(&format!("{STORE}/home/.tool/x"), "");
    let plan = planned(there(), policy);
    assert!(matches!(
        at(&plan, "/home/ada/.tool"),
        Some(Mount::Kept { id: Some(_), .. })
    ));
    assert_eq!(plan.keeping.makes, []);
    for (tree, says) in [
        (
            tree().link(&format!("{STORE}/home/.tool"), "/home/ada/.ssh"),
            "a symbolic link leads elsewhere",
        ),
        (
            tree().file(&format!("{STORE}/home/.tool"), ""),
            "it is no directory",
        ),
        (
            tree().hung(&format!("{STORE}/home/.tool")),
            "it does not answer",
        ),
    ] {
        let refused = Scenario::new(tree).only_policy(policy).text();
        assert!(refused.contains(says), "{refused}");
        assert!(refused.contains("hint: move it away"), "{refused}");
    }
}

#[test]
fn the_outer_of_two_counts_and_what_is_given_below_stays() {
    let plan = planned(
        tree(),
        "[home]\nkeep = [\"~/.cache/pip/wheels\", \"~/.cache\"]\nwrite = [\"~/.cache/pip\"]\n",
    );
    assert_eq!(places(&plan), ["/home/ada/.cache"]);
    let given = at(&plan, "/home/ada/.cache/pip");
    assert!(
        matches!(
            given,
            Some(Mount::Bind {
                access: Access::Write,
                ..
            })
        ),
        "{given:?}"
    );
    let links = plan.kept_links(Path::new("/home/ada/.cache"));
    let names: Vec<_> = links.iter().map(|link| link.name.as_path()).collect();
    assert_eq!(names, [Path::new("pip")]);
    let step = plan
        .steps
        .iter()
        .find(|step| step.at == Path::new("/home/ada/.cache/pip"));
    assert_eq!(
        plan.place(step.unwrap()),
        Path::new("/run/agent-sandbox/kept/.cache/pip")
    );
    assert_eq!(
        plan.shown_in_store(Path::new("/home/ada/.cache/pip"))
            .unwrap(),
        Path::new(STORE).join("shown/.cache/pip")
    );
}

/// Of what is kept and what is given at one place the later layer's holds.
#[test]
fn a_later_layer_gives_what_the_home_has() {
    let keep = "home.keep = [\"~/.cache\"]";
    let give = "home.write = [\"~/.cache\"]";
    let scenario = |profile: &str, user: &str| {
        let scenario = Scenario::new(tree()).only_policy(user);
        scenario.profile("tool.toml", profile).plan().unwrap()
    };
    let plan = scenario(keep, give);
    assert_eq!(places(&plan), [""; 0]);
    assert!(matches!(
        at(&plan, "/home/ada/.cache"),
        Some(Mount::Bind {
            access: Access::Write,
            ..
        })
    ));
    let plan = scenario(give, keep);
    assert_eq!(places(&plan), ["/home/ada/.cache"]);
    let (reason, _) = omitted(&plan, "~/.cache").unwrap();
    assert!(reason.contains("has the jail's own there"), "{reason}");
    // What does not exist takes nothing's place.
    let missing = "home.write = [\"~/.none\"]";
    let plan = scenario("home.keep = [\"~/.none\"]", missing);
    assert_eq!(places(&plan), ["/home/ada/.none"]);
}

/// A link in the home at a kept place is not followed; one above it is.
#[test]
fn links_in_the_home() {
    let tree = tree()
        .directory("/scratch/ada/cache")
        .link("/home/ada/.big", "/scratch/ada/cache")
        .file("/home/ada/dotfiles/config/git/config", "")
        .link("/home/ada/.settings", "dotfiles/config");
    let plan = planned(
        tree,
        "[home]\nkeep = [\"~/.big\", \"~/.settings/tool\"]\nread = [\"~/.settings/git\"]\n",
    );
    assert_eq!(
        places(&plan),
        ["/home/ada/.big", "/home/ada/dotfiles/config/tool"]
    );
    assert!(matches!(
        at(&plan, "/home/ada/.settings"),
        Some(Mount::Link { .. })
    ));
}

#[test]
fn places_that_nothing_is_kept_at() {
    let tree = tree()
        .directory("/scratch/ada")
        .owned_by("/usr/lib", 0)
        .link("/home/ada/project-links/out", "/scratch/ada")
        .link("/home/ada/.out", "/usr/lib");
    for (keep, says, loud) in [
        ("~/project", "stays what it is", true),
        ("~/project/cache", "stays what it is", true),
        ("~/.ssh", "the rule files.hide `~/.ssh`", true),
        ("~/.ssh/sockets", "the rule files.hide `~/.ssh`", true),
        ("~/.out/x", "out of what is yours", true),
        (
            "~/project-links/out/x",
            "an earlier session could have made",
            true,
        ),
        (&format!("~/{}", "x/".repeat(150)), "too long", true),
    ] {
        let policy = format!("[home]\nkeep = [{keep:?}]\n[files]\nhide = [\"~/.ssh\"]\n");
        let plan = planned(tree.clone(), &policy);
        assert_eq!(places(&plan), [""; 0], "{keep}");
        let (reason, shown) = omitted(&plan, keep.trim_end_matches('/')).unwrap();
        assert!(reason.contains(says) && shown == loud, "{keep}: {reason}");
    }
}

/// Nothing is mounted in a directory of the host's that others may change.
#[test]
fn other_modes_of_the_home() {
    for mode in ["restricted", "read", "write"] {
        let policy = format!(
            "[home]\nmode = {mode:?}\nkeep = [\"~/.cache\", \"~/.config/tool\"]\n[files]\n\
             hide = [\"~/.config/agent-sandbox\", \"~/.local/state/agent-sandbox\"]\n"
        );
        let plan = planned(tree().directory(STORE), &policy);
        assert_eq!(
            places(&plan),
            ["/home/ada/.cache", "/home/ada/.config/tool"],
            "{mode}"
        );
        assert!(
            !matches!(at(&plan, "/home/ada/.config"), Some(Mount::Bind { .. })),
            "{mode}"
        );
        let htop = at(&plan, "/home/ada/.config/htop");
        assert_eq!(
            mode != "restricted",
            matches!(htop, Some(Mount::Bind { .. })),
            "{mode}"
        );
    }
    let plan = planned(
        tree(),
        "[home]\nwrite = [\"~/.tool\"]\nkeep = [\"~/.tool/cache\"]\n",
    );
    assert_eq!(places(&plan), [""; 0]);
    let (reason, loud) = omitted(&plan, "~/.tool/cache").unwrap();
    assert!(
        reason.contains("given as the host has it") && loud,
        "{reason}"
    );
    assert_eq!(plan.keeping.makes, []);
}

/// The stores of all projects are out of sight, whatever is made an exception from.
#[test]
fn no_list_shows_a_store() {
    let tree = || tree().file(&format!("{STORE}/home/.tool/secret"), "");
    for policy in [
        "[home]\nread = [\"~/.local\"]\n",
        "[home]\nmode = \"read\"\n",
        "[files]\nread = [\"/home/ada/.local/state/agent-sandbox/kept\"]\n",
        "[home]\nread = [\"~/.local/state/agent-sandbox/kept/home+ada+project\"]\nkeep = [\"~/.tool\"]\n",
        "[files]\nhide = [\"~/.local/state/agent-sandbox\"]\nunhide = [\"~/.local/state/agent-sandbox\"]\n\
         [home]\nread = [\"~/.local/state\"]\nkeep = [\"~/.tool\"]\n",
    ] {
        let plan = planned(tree(), policy);
        let hidden = Path::new(STORE).join("home/.tool/secret");
        let over = plan
            .steps
            .iter()
            .rev()
            .find(|step| hidden.starts_with(&step.at));
        let over = over.map(|step| &step.mount);
        assert!(
            !matches!(over, Some(Mount::Bind { .. })),
            "{policy}\n{over:?}"
        );
    }
}

#[test]
fn nothing_is_copied_into_what_is_kept() {
    let plan = planned(
        tree(),
        "[home]\nkeep = [\"~/.cache\"]\nseed = [\"~/.cache/pip\"]\n",
    );
    assert!(
        plan.steps
            .iter()
            .all(|step| !matches!(step.mount, Mount::Copy { .. }))
    );
    let (reason, loud) = omitted(&plan, "~/.cache/pip").unwrap();
    assert!(reason.contains("nothing is copied") && loud, "{reason}");
}

#[test]
fn the_site_bounds_what_is_kept_by_place() {
    let keep = "[home]\nkeep = [\"~/.cache\", \"~/.tool\"]\n";
    for (enforced, expected) in [
        (
            "[home]\nwrite = []\nread = []\n",
            &["/home/ada/.cache", "/home/ada/.tool"][..],
        ),
        ("[home]\nkeep = []\n", &[]),
        ("[home]\nkeep = [\"~/.cache\"]\n", &["/home/ada/.cache"]),
        ("[home]\nkeep = [\"~/.t*\"]\n", &["/home/ada/.tool"]),
        (
            "[home]\nkeep = [\"~/.cache/pip\"]\n",
            &["/home/ada/.cache/pip"],
        ),
    ] {
        let plan = Scenario::new(tree())
            .policy(keep)
            .enforced(enforced)
            .plan()
            .unwrap();
        assert_eq!(places(&plan), expected, "{enforced}");
        let told = plan
            .clamped
            .iter()
            .filter(|one| one.key == "home.keep" && one.is_users());
        let whole = expected.len() == 2;
        assert_eq!(told.count() > 0, !whole, "{enforced}");
    }
}
