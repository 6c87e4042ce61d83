//! Each key under an enforced layer, one row each: what a user asks for, and what becomes of it.

use std::path::Path;

use agent_sandbox::config::load::parse;
use agent_sandbox::config::source::{Layer, Source, Sourced};
use agent_sandbox::host::mount_table::Alias;
use agent_sandbox::plan::{Access, Mount, Plan};
use agent_sandbox::policy::merge::{Additions, merge};
use agent_sandbox::policy::narrowing::Rule;
use agent_sandbox::policy::stated::RULES;

use crate::host;
use crate::scenario::Scenario;
use crate::tree::Tree;

fn tree() -> Tree {
    host::plain()
        .file("/data/shared/set.csv", "1")
        .file("/data/shared/own/set.csv", "2")
        .file("/data/private/set.csv", "3")
        .file("/home/ada/data/x", "4")
}

/// What the jail can do at a path of the host.
fn access(plan: &Plan, path: &str) -> Option<Access> {
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

fn plan(enforced: &str, user: &str) -> Plan {
    Scenario::new(tree())
        .policy(user)
        .enforced(enforced)
        .plan()
        .unwrap()
}

const R: Option<Access> = Some(Access::Read);
const W: Option<Access> = Some(Access::Write);

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
fn projects_lie_below_the_parents_of_both() {
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
            "[\"/data/shared\"]",
            "[]",
            "/data/shared",
            Some("the site's project.parents"),
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
fn variables() {
    let inside = |enforced: &str, user: &str, name: &str| {
        let scenario = Scenario::new(tree())
            .variable("CI_TOKEN", "ci_0123456789abcdef")
            .variable("COPY", "holds ci_0123456789abcdef")
            .policy(user)
            .enforced(enforced);
        let plan = scenario.plan().unwrap();
        let found = plan
            .variables
            .into_iter()
            .find(|variable| variable.name == name);
        found.map(|variable| variable.value.into_string().unwrap())
    };
    let env = |text: &str| format!("[env]\n{text}\n");
    for (enforced, user, name, there) in [
        ("", "pass = [\"CI_TOKEN\"]", "CI_TOKEN", true),
        (
            "hide = [\"CI_*\"]",
            "pass = [\"CI_TOKEN\"]",
            "CI_TOKEN",
            false,
        ),
        (
            "hide = [\"CI_*\"]\npass = [\"CI_TOKEN\"]",
            "pass = [\"*\"]",
            "CI_TOKEN",
            true,
        ),
        (
            "hide = [\"CI_*\"]\npass = [\"CI_TOKEN\"]",
            "",
            "CI_TOKEN",
            false,
        ),
        ("pass = []", "pass = [\"CI_TOKEN\"]", "CI_TOKEN", false),
        ("pass = [\"GIT*\"]", "pass = [\"*\"]", "CI_TOKEN", false),
        ("pass = [\"GIT*\"]", "pass = [\"*\"]", "GITHUB_TOKEN", true),
        (
            "hide_values = [\"ci_*\"]",
            "pass = [\"*\"]",
            "CI_TOKEN",
            false,
        ),
        ("hide = [\"LANG\"]", "", "LANG", false),
        // A copy of what the site hides is the same secret, whoever asks for it.
        ("hide = [\"CI_*\"]", "pass = [\"COPY\"]", "COPY", false),
        ("hide = [\"NEW\"]", "set = { NEW = \"1\" }", "NEW", false),
        (
            "hide_values = [\"s3*\"]",
            "set = { NEW = \"s3cret\" }",
            "NEW",
            false,
        ),
        ("", "set = { NEW = \"1\" }", "NEW", true),
        (
            "hide = [\"NEW\"]\nset = { NEW = \"site\" }",
            "",
            "NEW",
            true,
        ),
    ] {
        let found = inside(&env(enforced), &env(user), name);
        assert_eq!(found.is_some(), there, "{enforced} {user} {name}");
    }
    let site = "set = { NEW = \"site\" }";
    let found = inside(&env(site), &env("set = { NEW = \"mine\" }"), "NEW");
    assert_eq!(found.as_deref(), Some("site"));
}

#[test]
fn in_a_job_its_own_environment_is_narrowed_too() {
    let plan = Scenario::new(tree())
        .policy("[env]\npass = [\"*\"]\n")
        .enforced("[env]\nhide = [\"SECRET\", \"HOME\"]\nhide_values = [\"/evil*\"]\n")
        .job(&[
            ("SECRET", "x"),
            ("HOME", "/evil"),
            ("TMPDIR", "/evil/t"),
            ("KEPT", "1"),
        ])
        .plan()
        .unwrap();
    let value = |name: &str| {
        let found = plan.variables.iter().find(|variable| variable.name == name);
        found.map(|variable| variable.value.to_str().unwrap())
    };
    assert_eq!(value("SECRET"), None);
    assert_eq!(value("HOME"), Some("/home/ada"));
    assert_eq!(value("TMPDIR"), Some("/tmp"));
    assert_eq!(value("KEPT"), Some("1"));
}

#[test]
fn devices_seeds_and_modules() {
    let tree = tree().device("/dev/nvidia0").device("/dev/nvidia1");
    let plan = |enforced: &str, user: &str| {
        let scenario = Scenario::new(tree.clone()).policy(user).enforced(enforced);
        (scenario.plan().unwrap(), scenario.merged())
    };
    let nodes = |enforced: &str| {
        let (plan, _) = plan(enforced, "[devices]\nallow = [\"/dev/nvidia*\"]\n");
        let nodes = plan.steps.into_iter().filter_map(|step| match step.mount {
            Mount::Device { from } => Some(from.display().to_string()),
            _ => None,
        });
        nodes.collect::<Vec<_>>()
    };
    assert_eq!(nodes(""), ["/dev/nvidia0", "/dev/nvidia1"]);
    assert_eq!(
        nodes("[devices]\nallow = [\"/dev/nvidia0\"]\n"),
        ["/dev/nvidia0"]
    );
    assert_eq!(
        nodes("[devices]\ndeny = [\"/dev/nvidia0\"]\n"),
        ["/dev/nvidia1"]
    );
    assert!(nodes("[devices]\nallow = []\n").is_empty());
    let copies = |enforced: &str| {
        let (plan, _) = plan(enforced, "[home]\nseed = [\"~/data\", \"~/notes.txt\"]\n");
        let copies = plan.steps.into_iter().filter_map(|step| match step.mount {
            Mount::Copy { from, .. } => Some(from.display().to_string()),
            _ => None,
        });
        copies.collect::<Vec<_>>()
    };
    let both = ["/home/ada/data/x", "/home/ada/notes.txt"];
    assert_eq!(copies(""), both);
    assert_eq!(
        copies("[home]\nseed = [\"~/data/x\"]\n"),
        ["/home/ada/data/x"]
    );
    // A copy can be read.
    assert_eq!(
        copies("[home]\nread = [\"~/notes.txt\"]\n"),
        ["/home/ada/notes.txt"]
    );
    assert_eq!(
        copies("[home]\nread = []\nseed = [\"~/data\"]\n"),
        ["/home/ada/data/x"]
    );
    let loaded = |enforced: &str| {
        let user = "[modules]\nload = [\"gcc/12\", \"gccx\", \"gcc/../x\", \"gcc\"]\n";
        let loaded = plan(enforced, user).1.modules.load.into_iter();
        loaded.map(|module| module.value).collect::<Vec<_>>()
    };
    assert_eq!(loaded("").len(), 4);
    assert_eq!(loaded("[modules]\nload = [\"gcc\"]\n"), ["gcc/12", "gcc"]);
    assert!(loaded("[modules]\nload = []\n").is_empty());
}

/// For every key with one value: a wide one, a narrow one, and how the narrow one shows in JSON.
#[test]
fn of_two_values_the_narrower_holds() {
    let rows = [
        ("project.git", "\"writable\"", "\"protect\""),
        ("home.mode", "\"write\"", "\"tmpfs\""),
        ("files.timeout_ms", "60000", "1000"),
        ("jail.tmp_size", "\"9G\"", "\"1M\""),
        ("jail.shm_size", "\"9G\"", "\"1M\""),
        ("jail.home_size", "\"9G\"", "\"1M\""),
        ("jail.max_processes", "0", "7"),
        ("jail.users", "\"host\"", "\"filtered\""),
        ("jail.nested", "true", "false"),
        ("jail.keyctl", "true", "false"),
        ("landlock.sizes", "\"degraded\"", "\"refuse\""),
        ("landlock.users", "\"degraded\"", "\"refuse\""),
        ("network.mode", "\"open\"", "\"isolated\""),
        ("slurm.mode", "\"auto\"", "\"off\""),
        ("slurm.scope", "\"user\"", "\"session\""),
        ("slurm.queries", "\"names\"", "\"none\""),
        ("slurm.limits.queries_per_minute", "0", "3"),
        ("slurm.limits.jobs", "0", "3"),
        ("slurm.limits.nodes", "9", "3"),
        ("slurm.limits.gpus", "0", "3"),
        ("slurm.limits.minutes", "9", "3"),
    ];
    let single = RULES.iter().filter(|(_, rule)| *rule == Rule::Least);
    let keys: Vec<&str> = single.map(|(key, _)| *key).collect();
    assert_eq!(keys, rows.map(|(key, ..)| key), "a key without a row");
    for (key, wide, narrow) in rows {
        let (section, name) = key.rsplit_once('.').unwrap();
        let text = |value: &str| format!("[{section}]\n{name} = {value}\n");
        let merged = |open: &str, enforced: &[&str]| {
            let mut layers = vec![parse(Layer::User, "user.toml", &text(open)).unwrap().raw];
            layers.extend(enforced.iter().map(|value| {
                parse(Layer::SiteEnforced, "site.toml", &text(value))
                    .unwrap()
                    .raw
            }));
            let policy = merge(&layers, &Additions::default()).unwrap();
            let path = format!("/{}", key.replace('.', "/"));
            let json = serde_json::to_value(&policy).unwrap();
            (json.pointer(&path).unwrap().clone(), policy.narrowed)
        };
        let (alone, _) = merged(narrow, &[]);
        for (open, enforced, file) in [
            (wide, vec![narrow], "site.toml:2"),
            (narrow, vec![wide], "user.toml:2"),
            (wide, vec![wide, narrow, wide], "site.toml:2"),
        ] {
            let (value, narrowed) = merged(open, &enforced);
            assert_eq!(value["value"], alone["value"], "{key} {open} {enforced:?}");
            assert_eq!(value["source"], file, "{key}");
            let expected = usize::from(open == wide);
            assert_eq!(narrowed.len(), expected, "{key} {narrowed:?}");
            if let Some(one) = narrowed.first() {
                assert_eq!((one.key, one.asked.source.line), (key, Some(2)));
                assert_eq!(&*one.allowed.source.file, "site.toml", "{key}");
            }
        }
    }
}

#[test]
fn no_variable_stands_in_an_enforced_path() {
    for text in [
        "[files]\nread = [\"/usr\", \"$SCRATCH/x\"]\n",
        "[files]\nhide = [\"${SCRATCH}\"]\n",
        "[files]\nunhide = [\"$SCRATCH/x\"]\n",
        "[project]\nparents = [\"$SCRATCH\"]\n",
        "[slurm]\ndirectories = [\"$SCRATCH/bin\"]\n",
    ] {
        let layer = parse(Layer::SiteEnforced, "enforced.toml", text)
            .unwrap()
            .raw;
        let error = merge(&[layer], &Additions::default())
            .unwrap_err()
            .to_string();
        let said = "`$SCRATCH` may not stand in an enforced policy";
        assert!(error.contains(said) && error.contains('^'), "{error}");
    }
}

#[test]
fn what_is_narrowed_is_noted_with_both_places() {
    let scenario = Scenario::new(tree())
        .policy("[files]\nread = [\"/data/private\"]\n[env]\npass = [\"GITHUB_TOKEN\"]\n")
        .options(Additions {
            write: vec![Sourced::new(
                agent_sandbox::policy::PathSpec::parse("/data/shared").unwrap(),
                Source::option("--write"),
            )],
            ..Additions::default()
        })
        .enforced("[files]\nread = [\"/usr\", \"/data/shared\"]\nwrite = []\n[env]\nhide = [\"*_TOKEN\"]\n");
    let plan = scenario.plan().unwrap();
    let notes: Vec<String> = plan
        .narrowed
        .iter()
        .filter(|one| one.is_users())
        .map(|one| {
            let (asked, allowed) = (&one.asked, &one.allowed);
            format!(
                "{} {} {} | {} {}",
                one.key, asked.value, asked.source, allowed.value, allowed.source
            )
        })
        .collect();
    assert_eq!(
        notes,
        [
            "files.read /data/private config.toml:2 | `/usr`, `/data/shared` enforced.toml:2",
            "files.write /data/shared --write | none enforced.toml",
            "env.pass GITHUB_TOKEN config.toml:4 | env.hide `*_TOKEN` enforced.toml:5",
        ]
    );
    // The built-in lists are narrowed, too, but nobody asked for them.
    assert!(plan.narrowed.iter().any(|one| !one.is_users()));
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
