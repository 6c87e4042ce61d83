//! `hide = ["/home/* but ~"]`: everybody's home but the caller's is not there, and nobody looks at it.

use agent_sandbox::plan::Plan;

use crate::host::{home, plain};
use crate::scenario::Scenario;
use crate::tree::Tree;

/// Homes of three users, one of them deep, one of them behind a link to a server's volume.
fn homes() -> Tree {
    plain()
        .file("/home/bob/secret", "bob's")
        .file("/home/bob/project/x", "bob's")
        .file("/home/shared/table", "ours")
        .file("/home/groups/g/ada/x", "a namesake's")
        .file("/vol/eve/secret", "eve's")
        .link("/home/eve", "/vol/eve")
        .file("/data/home/kim/x", "kim's")
        .file("/data/set", "public")
}

fn shows(plan: &Plan, path: &str) -> bool {
    let path = std::path::Path::new(path);
    let over = plan
        .steps
        .iter()
        .rev()
        .find(|step| path.starts_with(&step.at));
    over.is_some_and(|step| matches!(step.mount, agent_sandbox::plan::Mount::Bind { .. }))
}

const RULE: &str = "[files]\nhide = [\"/home/* but ~\"]\n";

#[test]
fn homes_of_others_are_not_there_whatever_is_read() {
    let all = "[files]\nread = [\"/home\", \"/home/bob\", \"/home/eve\", \"/home/bob/secret\", \"/usr\"]\n";
    for hides in [true, false] {
        let mut scenario = Scenario::new(homes()).policy(all);
        if hides {
            scenario = scenario.enforced(RULE);
        }
        let text = scenario.text();
        assert!(!text.starts_with("error"), "{text}");
        let plan = scenario.plan().unwrap();
        for path in [
            "/home/bob/secret",
            "/vol/eve/secret",
            "/home/groups/g/ada/x",
            "/home/shared/table",
        ] {
            assert_eq!(shows(&plan, path), !hides, "{path}: {text}");
        }
        assert!(shows(&plan, "/home/ada/project/main.c"), "{text}");
    }
}

#[test]
fn nothing_in_the_directory_is_looked_at() {
    let policy = "[files]\nread = [\"/home\", \"/data\"]\n";
    let rule = "[files]\nhide = [\"/home/* but ~\", \"/data/home/* but ~\"]\n";
    let tree = homes().hung("/home/dead").hung("/data/home/dead");
    let scenario = Scenario::new(tree).policy(policy).enforced(rule);
    let plan = scenario.plan().unwrap();
    for name in ["bob", "eve", "shared", "dead", "groups"] {
        let path = format!("/home/{name}");
        assert!(!scenario.tree.was_asked(&path), "{path}");
    }
    for path in ["/data/home/kim", "/data/home/dead"] {
        assert!(!scenario.tree.was_asked(path), "{path}");
    }
    assert!(shows(&plan, "/data/set") && !shows(&plan, "/data/home/kim/x"));
    assert!(!scenario.text().starts_with("error"), "{}", scenario.text());
}

#[test]
fn what_a_rule_leaves_out_is_there_as_it_was_given() {
    let rule = "[files]\nhide = [\"/home/* but ~, shared, bob/project, eve\"]\n";
    let policy = "[files]\nread = [\"/home\"]\n";
    let plan = Scenario::new(homes())
        .policy(policy)
        .enforced(rule)
        .plan()
        .unwrap();
    for (path, shown) in [
        ("/home/shared/table", true),
        ("/home/bob/project/x", true),
        ("/home/bob/secret", false),
        // A link is not what it leads to: that is asked for by its own name.
        ("/vol/eve/secret", false),
        ("/home/groups/g/ada/x", false),
    ] {
        assert_eq!(shows(&plan, path), shown, "{path}");
    }
    // By itself, too; and a project may be in it.
    let scenario = Scenario::new(homes())
        .enforced(rule)
        .project("/home/bob/project");
    assert!(shows(&scenario.plan().unwrap(), "/home/bob/project/x"));
    let read = "[files]\nread = [\"/home/eve\"]\n";
    let plan = Scenario::new(homes())
        .policy(read)
        .enforced(rule)
        .plan()
        .unwrap();
    assert!(shows(&plan, "/vol/eve/secret"));
}

#[test]
fn a_project_in_somebody_elses_home_is_refused_by_every_name() {
    let tree = homes()
        .directory("/vol/eve/project")
        .link("/home/ada/to-bob", "/home/bob/project")
        .link("/home/ada/to-eve", "/home/eve/project")
        .link("/h", "/home");
    for project in [
        "/home/bob/project",
        "/home/eve/project",
        "/home/ada/to-bob",
        "/home/ada/to-eve",
        "/h/bob/project",
        "/home/ada/../bob/project",
    ] {
        let text = Scenario::new(tree.clone())
            .enforced(RULE)
            .project(project)
            .text();
        let words = "the rule files.hide `/home/* but ~` (enforced.toml:2) hides it, for it is in somebody else's home";
        assert!(text.contains(words), "{project}: {text}");
    }
    let own = Scenario::new(tree).enforced(RULE).project("/h/ada/project");
    assert!(!own.text().starts_with("error"), "{}", own.text());
}

#[test]
fn a_link_leads_to_nobodys_home() {
    let tree = homes()
        .link("/home/ada/work", "/home/bob")
        .link("/home/ada/eves", "/home/eve")
        .link("/home/ada/.vimrc", "/home/bob/secret");
    for (key, path) in [
        ("read", "~/work"),
        ("write", "~/work"),
        ("read", "~/eves"),
        ("write", "~/eves"),
        ("seed", "~/.vimrc"),
        ("read", "~/.vimrc"),
    ] {
        let policy = format!("[home]\n{key} = [\"{path}\"]\n");
        let scenario = Scenario::new(tree.clone()).policy(&policy).enforced(RULE);
        let Ok(plan) = scenario.plan() else { continue };
        let text = scenario.text();
        for secret in [
            "/home/bob/secret",
            "/vol/eve/secret",
            "/home/ada/work/secret",
            "/home/ada/eves/secret",
        ] {
            assert!(!shows(&plan, secret), "{key} {path} shows {secret}: {text}");
        }
        assert!(!text.contains("copy    /home/ada/.vimrc"), "{text}");
    }
}

#[test]
fn a_second_mount_of_somebodys_home_is_hidden_where_it_is() {
    let tree = homes()
        .file("/mnt/all/bob/secret", "bob's")
        .file("/mnt/all/ada/notes.txt", "ada's")
        .file("/mnt/bobs/secret", "bob's")
        .file("/home/ada/project/from-bob/secret", "bob's")
        .mounted("/mnt/all", "/home")
        .mounted("/mnt/bobs", "/home/bob")
        .mounted("/home/ada/project/from-bob", "/home/bob");
    let policy = "[files]\nread = [\"/mnt\", \"/mnt/all/bob\", \"/mnt/bobs\"]\n";
    for hides in [true, false] {
        let mut scenario = Scenario::new(tree.clone()).policy(policy);
        if hides {
            scenario = scenario.enforced(RULE);
        }
        let plan = scenario.plan().unwrap_or_else(|error| panic!("{error}"));
        for path in [
            "/mnt/all/bob/secret",
            "/mnt/bobs/secret",
            "/home/ada/project/from-bob/secret",
        ] {
            assert_eq!(shows(&plan, path), !hides, "{path}");
        }
    }
    let refused = Scenario::new(tree).enforced(RULE).project("/mnt/bobs");
    assert!(refused.text().contains("hides it"), "{}", refused.text());
}

#[test]
fn home_is_what_the_user_database_says() {
    // HOME is the user's to set: a site's rule does not follow it, one of the user's own does.
    let elsewhere = |scenario: Scenario| {
        scenario.facts(|facts| {
            facts.passwd_home = Some("/home/ada".into());
            facts.home = "/home/bob".into();
            facts.home_reals = vec!["/home/bob".into(), "/home/ada".into()];
        })
    };
    let policy = "[home]\nmode = \"read\"\n[files]\nread = [\"/home\"]\n";
    let scenario = elsewhere(Scenario::new(homes()).policy(policy).enforced(RULE));
    let plan = scenario.plan().unwrap_or_else(|error| panic!("{error}"));
    assert!(!shows(&plan, "/home/bob/secret"), "{}", scenario.text());
    let own = format!("[home]\nmode = \"read\"\n{RULE}");
    let scenario = elsewhere(Scenario::new(homes()).policy(&own));
    let plan = scenario.plan().unwrap_or_else(|error| panic!("{error}"));
    assert!(shows(&plan, "/home/bob/secret"), "{}", scenario.text());
}

#[test]
fn a_home_behind_a_link_is_ones_own_by_both_names() {
    let tree = home(homes(), "/vol/ada").link("/home/lovelace", "/vol/ada");
    let rule = "[files]\nhide = [\"/home/* but ~\", \"/vol/* but ~\"]\n";
    let policy = "[files]\nread = [\"/vol\", \"/home\"]\n";
    let scenario = Scenario::new(tree)
        .policy(policy)
        .enforced(rule)
        .project("/home/lovelace/project")
        .facts(|facts| {
            facts.home = "/home/lovelace".into();
            facts.passwd_home = None;
            facts.home_reals = vec!["/vol/ada".into()];
            let line = "ada:x:1000:1000::/home/lovelace:/bin/bash";
            facts.databases.caller = Some(line.into());
            facts.state_directory = "/home/lovelace/.local/state/agent-sandbox".into();
            facts.own_directories = vec![facts.state_directory.clone()];
        });
    let text = scenario.text();
    assert!(!text.starts_with("error"), "{text}");
    let plan = scenario.plan().unwrap();
    assert!(
        shows(&plan, "/vol/ada/project/main.c") && !shows(&plan, "/vol/eve/secret"),
        "{text}"
    );
    assert!(
        text.contains("link    /home/lovelace -> /vol/ada"),
        "{text}"
    );
    assert!(!shows(&plan, "/home/bob/secret"), "{text}");
}

#[test]
fn exceptions_are_those_of_any_hide() {
    let policy = "[files]\nread = [\"/home\"]\nunhide = [\"/home/* but ~\"]\n";
    let own = Scenario::new(homes()).policy(&format!("{policy}hide = [\"/home/* but ~\"]\n"));
    assert!(shows(&own.plan().unwrap(), "/home/bob/secret"));
    let enforced = Scenario::new(homes()).policy(policy).enforced(RULE);
    assert!(!shows(&enforced.plan().unwrap(), "/home/bob/secret"));
}
