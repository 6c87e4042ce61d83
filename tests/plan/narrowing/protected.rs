//! What a site protects in the home, by every name of the home.

use agent_sandbox::host::mount_table::Alias;
use agent_sandbox::plan::{Access, Mount, check};

use super::rows::{R, W, access, tree};
use crate::scenario::Scenario;

/// The home has another name, below `/nfs`; so has a directory in it.
fn scenario(user: &str) -> Scenario {
    let tree = tree()
        .file("/home/ada/data/bin/tool", "1")
        .file("/nfs/ada/data/bin/tool", "1")
        .file("/nfs/ada/data/x", "4")
        .file("/mnt/bin/tool", "1")
        .file("/mnt/x", "2");
    let alias = |at: &str, of: &str| Alias {
        at: at.into(),
        of: of.into(),
    };
    Scenario::new(tree).policy(user).facts(|facts| {
        facts.home_aliases = vec![
            alias("/mnt/bin", "/home/ada/data/bin"),
            alias("/nfs/ada", "/home/ada"),
        ];
    })
}

const PROTECT: &str = "[home]\nprotect = [\"~/data/bin\"]\n";

#[test]
fn what_is_protected_is_so_by_every_name_of_the_home() {
    for (asked, expected) in [
        ("/home/ada/data", W),
        ("/home/ada/data/bin", R),
        ("/nfs/ada/data", W),
        ("/nfs/ada/data/bin", R),
        ("/nfs/ada/data/bin/tool", R),
        ("/mnt", W),
        ("/mnt/bin", R),
    ] {
        let user = format!("[files]\nwrite = [\"{asked}\"]\n");
        let plan = |scenario: Scenario| scenario.plan().unwrap();
        assert_eq!(access(&plan(scenario(&user)), asked), W, "{asked}");
        let held = plan(scenario(&user).enforced(PROTECT));
        assert_eq!(access(&held, asked), expected, "{asked}");
        // The directory around it is written, and it is not.
        let tool = format!("{asked}/bin/tool");
        if expected == W {
            assert_eq!(access(&held, &tool), R, "{asked}");
        }
        // A user's own entry holds there, too.
        let own = plan(scenario(&format!("{PROTECT}{user}")));
        assert_eq!(access(&own, asked), expected, "{asked}");
    }
}

/// The check of the finished plan does not rely on the planner.
#[test]
fn a_plan_in_which_it_is_written_is_refused() {
    for asked in ["/nfs/ada/data", "/mnt/bin", "/home/ada/data/bin"] {
        let user = format!("[files]\nwrite = [\"{asked}\"]\n");
        let scenario = scenario(&user).enforced(PROTECT);
        let checked = |change: &dyn Fn(&mut Access)| {
            let mut plan = scenario.plan().unwrap();
            for step in &mut plan.steps {
                if let Mount::Bind { access, from, .. } = &mut step.mount
                    && (from.starts_with("/nfs")
                        || from.starts_with("/mnt")
                        || from.starts_with("/home/ada/data"))
                {
                    change(access);
                }
            }
            check::check(&plan, &scenario.merged(), &scenario.host, &scenario.tree)
        };
        assert!(checked(&|_| {}).is_ok());
        let error = checked(&|access| *access = Access::Write).unwrap_err();
        let said = "the site's home.protect `~/data/bin`";
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn a_project_in_what_the_site_protects_is_refused() {
    for project in ["/home/ada/data/bin", "/nfs/ada/data/bin", "/mnt/bin"] {
        // Their own is the user's to say.
        let own = scenario(PROTECT).project(project).plan().unwrap();
        assert_eq!(access(&own, project), W);
        let error = scenario("").enforced(PROTECT).project(project).plan();
        let error = error.unwrap_err().to_string();
        let said = "the site's home.protect `~/data/bin` (enforced.toml:2)";
        assert!(error.contains(said) && error.contains(project), "{error}");
    }
    let within = "[home]\nprotect = [\"~/data\"]\n";
    let inside = scenario("").enforced(within).project("/home/ada/data/bin");
    assert!(inside.plan().is_err());
    // Beside it, or around it, is no fault.
    let around = scenario("").enforced(PROTECT).project("/home/ada/data");
    let around = around.plan().unwrap();
    assert_eq!(access(&around, "/home/ada/data/x"), W);
    assert_eq!(access(&around, "/home/ada/data/bin/tool"), R);
}
