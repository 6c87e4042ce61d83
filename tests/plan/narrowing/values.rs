//! Each key that gives no paths of files, under an enforced layer: variables, devices, values; and what
//! is noted of it.

use agent_sandbox::config::load::parse;
use agent_sandbox::config::source::{Layer, Source, Sourced};
use agent_sandbox::plan::Mount;
use agent_sandbox::policy::clamp::Rule;
use agent_sandbox::policy::merge::{Additions, merge};
use agent_sandbox::policy::stated::KEYS;

use super::rows::tree;
use crate::scenario::Scenario;

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
        // A copy by value is one, too.
        (
            "hide = [\"CI_*\"]",
            "set = { NEW = \"x ci_0123456789abcdef\" }",
            "NEW",
            false,
        ),
        (
            "hide_values = [\"ci_*\"]",
            "set = { NEW = \"x ci_0123456789abcdef\" }",
            "NEW",
            false,
        ),
        (
            "hide = [\"CI_*\"]\nset = { NEW = \"ci_0123456789abcdef\" }",
            "",
            "NEW",
            true,
        ),
        (
            "",
            "hide = [\"CI_*\"]\nset = { NEW = \"ci_0123456789abcdef\" }",
            "NEW",
            true,
        ),
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
        ("project.settings", "\"writable\"", "\"protect\""),
        ("home.mode", "\"write\"", "\"tmpfs\""),
        ("files.timeout_ms", "60000", "1000"),
        ("jail.tmp_size", "\"9G\"", "\"1M\""),
        ("jail.shm_size", "\"9G\"", "\"1M\""),
        ("jail.home_size", "\"9G\"", "\"1M\""),
        ("jail.max_processes", "0", "7"),
        ("jail.users", "\"host\"", "\"filtered\""),
        ("jail.nested", "true", "false"),
        ("jail.keyctl", "true", "false"),
        ("limits.memory", "\"none\"", "\"2G\""),
        ("limits.cpus", "0", "3"),
        ("limits.io_weight", "0", "3"),
        ("limits.sessions", "9", "3"),
        ("limits.idle_minutes", "0", "3"),
        ("limits.cgroup", "\"degraded\"", "\"refuse\""),
        ("landlock.sizes", "\"degraded\"", "\"refuse\""),
        ("landlock.users", "\"degraded\"", "\"refuse\""),
        ("network.mode", "\"open\"", "\"isolated\""),
        ("network.jobs", "\"open\"", "\"isolated\""),
        ("network.credentials", "\"on\"", "\"off\""),
        ("ssh.keys", "[\"*\"]", "[\"~/.ssh/a.pub\"]"),
        ("slurm.mode", "\"auto\"", "\"off\""),
        ("slurm.scope", "\"user\"", "\"session\""),
        ("slurm.queries", "\"names\"", "\"none\""),
        ("slurm.query_cache_seconds", "0", "5"),
        ("slurm.allocation", "\"control\"", "\"steps\""),
        ("slurm.bounds.nodes", "9", "3"),
        ("slurm.bounds.gpus", "0", "3"),
        ("slurm.bounds.cpus", "0", "3"),
        ("slurm.bounds.memory", "\"unlimited\"", "\"1G\""),
        ("slurm.bounds.minutes", "9", "3"),
        ("slurm.bounds.array", "9", "3"),
        ("slurm.limits.queries_per_minute", "0", "3"),
        ("slurm.limits.jobs", "0", "3"),
        ("slurm.limits.submissions_per_minute", "0", "3"),
        ("slurm.limits.submissions_per_day", "9", "3"),
        ("slurm.budget.days", "9", "30"),
        ("slurm.budget.cpu_hours", "0", "3"),
        ("slurm.budget.gpu_hours", "0", "3"),
        ("slurm.budget.node_hours", "0", "3"),
        ("slurm.budget.project_cpu_hours", "0", "3"),
        ("slurm.budget.project_gpu_hours", "0", "3"),
        ("slurm.budget.project_node_hours", "0", "3"),
        ("slurm.budget.session_cpu_hours", "0", "3"),
        ("slurm.budget.session_gpu_hours", "0", "3"),
        ("slurm.budget.session_node_hours", "0", "3"),
        ("slurm.confirm.cpu_hours", "9", "3"),
        ("slurm.confirm.gpu_hours", "9", "3"),
        ("slurm.confirm.node_hours", "9", "3"),
        ("slurm.confirm.minutes", "9", "3"),
        ("slurm.confirm.wait_minutes", "9", "3"),
        ("trace.mode", "\"off\"", "\"required\""),
        ("trace.events", "[\"exec\"]", "[\"exec\", \"open\"]"),
        ("trace.missing", "false", "true"),
        ("trace.every", "9", "3"),
        ("trace.enforce", "false", "true"),
        ("trace.audit", "false", "true"),
        ("agents.state", "\"shared\"", "\"project\""),
        ("agents.instructions", "\"off\"", "\"given\""),
    ];
    let single = KEYS.iter().filter(|key| key.rule == Rule::Least);
    let keys: Vec<&str> = single.map(|key| key.name).collect();
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
            (json.pointer(&path).unwrap().clone(), policy.clamped)
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
        .clamped
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
    let copied = Scenario::new(tree())
        .policy("[env]\nset = { NEW = \"ghp_0123456789abcdef\" }\n")
        .enforced("[env]\nhide = [\"*_TOKEN\"]\n");
    let copied = copied.plan().unwrap().clamped;
    let note = copied.iter().find(|one| one.key == "env.set").unwrap();
    assert_eq!(note.asked.value, "NEW");
    assert_eq!(
        note.allowed.value,
        "no copy of what env.hide `*_TOKEN` hides"
    );
    // The built-in lists are narrowed, too, but nobody asked for them.
    assert!(plan.clamped.iter().any(|one| !one.is_users()));
}
