//! Paths that begin with a variable, on a compute node: meant as where the session was launched,
//! whatever the node's environment is and whatever a job says.

use std::path::Path;

use agent_sandbox::plan::explain::inside::DOCUMENT;
use agent_sandbox::plan::{Access, Mount, Plan};
use proptest::prelude::*;

use crate::host::plain;
use crate::random::config;
use crate::scenario::Scenario;
use crate::tree::{Tree, What};

const POLICY: &str = "[files]\nread = [\"/data\", \"$SCRATCH/in\"]\nwrite = [\"$SCRATCH/out\"]\n\
    hide = [\"$SECRETS\", \"$SCRATCH/keys\"]\n";

fn tree() -> Tree {
    let mut tree = plain();
    for place in ["/scratch/ada", "/scratch/eve", "/data/local"] {
        for name in ["in/x", "out/x", "keys/x"] {
            tree = tree.file(&format!("{place}/{name}"), "x");
        }
    }
    tree.file("/data/token", "x").file("/data/other", "x")
}

type Values<'a> = &'a [(&'a str, &'a str)];

fn launch(values: Values<'_>) -> Plan {
    let mut scenario = Scenario::new(tree()).policy(POLICY);
    for (name, value) in values {
        scenario = scenario.variable(name, value);
    }
    plan(&scenario)
}

fn node(carried: Values<'_>, own: Values<'_>, job: Values<'_>) -> Plan {
    let carried = carried.iter();
    let carried = carried.map(|(name, value)| (name.into(), value.into()));
    let mut scenario = Scenario::new(tree()).policy(POLICY).job(job);
    scenario.host.carried = Some(carried.collect());
    for (name, value) in own {
        scenario = scenario.variable(name, value);
    }
    plan(&scenario)
}

fn plan(scenario: &Scenario) -> Plan {
    // Judges, too.
    scenario.text();
    scenario.plan().unwrap()
}

fn access(plan: &Plan, at: &str) -> Option<Access> {
    let mut steps = plan.steps.iter().rev();
    let step = steps.find(|step| Path::new(at).starts_with(&step.at))?;
    match step.mount {
        Mount::Bind { access, .. } => Some(access),
        _ => None,
    }
}

fn hides(plan: &Plan, path: &str) -> bool {
    plan.hidden.rule_for(Path::new(path)).is_some()
}

#[test]
fn a_job_has_what_the_launch_has() {
    let values = [
        ("SCRATCH", "/scratch/ada"),
        ("SECRETS", "/data/token:/data/other"),
    ];
    // A node knows none of the user's variables, and a job says what it likes.
    let job = [("SCRATCH", "/home/ada/.ssh"), ("SECRETS", "/nonsense")];
    let plan = node(&values, &[], &job);
    // What it tells of itself names a job's variables.
    let steps = |plan: &Plan| {
        let mut all = plan.steps.clone();
        all.retain(|step| step.at != Path::new(DOCUMENT));
        all
    };
    assert_eq!(steps(&plan), steps(&launch(&values)));
    assert!(hides(&plan, "/data/token") && hides(&plan, "/data/other"));
    assert_eq!(access(&plan, "/data/token"), None);
    assert_eq!(access(&plan, "/scratch/ada/in/x"), Some(Access::Read));
    assert_eq!(access(&plan, "/scratch/ada/out/x"), Some(Access::Write));
}

#[test]
fn a_node_with_another_value_hides_both_and_gives_the_launchs() {
    let carried = [("SCRATCH", "/scratch/ada"), ("SECRETS", "/data/token")];
    let own = [("SCRATCH", "/data/local"), ("SECRETS", "/data/other")];
    let plan = node(&carried, &own, &[]);
    for hidden in [
        "/data/token",
        "/data/other",
        "/scratch/ada/keys",
        "/data/local/keys",
    ] {
        assert!(hides(&plan, hidden), "{hidden}");
    }
    assert_eq!(access(&plan, "/data/local/out/x"), Some(Access::Read));
}

#[test]
fn what_was_unset_is_the_nodes_matter_but_not_a_jobs() {
    let policy = "[files]\nwrite = [\"$SLURM_JOB_NAME/out\", \"$PWD/out\", \"$SLURM_TMPDIR/out\", \"$LOCAL/out\"]";
    let mut scenario = Scenario::new(tree()).policy(policy).job(&[]);
    scenario.host.carried = Some(Vec::new());
    for (name, value) in [
        ("SLURM_JOB_NAME", "/scratch/eve"),
        ("PWD", "/scratch/eve"),
        ("SLURM_TMPDIR", "/scratch/ada"),
        ("LOCAL", "/data/local"),
    ] {
        scenario = scenario.variable(name, value);
    }
    let plan = plan(&scenario);
    assert_eq!(access(&plan, "/scratch/eve/out/x"), None);
    assert_eq!(access(&plan, "/scratch/ada/out/x"), Some(Access::Write));
    assert_eq!(access(&plan, "/data/local/out/x"), Some(Access::Write));
}

fn value() -> impl Strategy<Value = Option<&'static str>> {
    prop::option::of(prop::sample::select(
        &[
            "/scratch/ada",
            "/scratch/eve",
            "/data/local",
            "/data/token",
            "/data/token:/data/other",
            "/",
            "scratch",
            "/scratch/../home/ada/.ssh",
            "",
        ][..],
    ))
}

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn nothing_that_the_launch_hides_is_seen_on_a_node(
        launched in [value(), value()],
        own in [value(), value()],
        job in [value(), value()],
    ) {
        let set = |values: [Option<&'static str>; 2]| -> Vec<(&str, &str)> {
            let pairs = ["SCRATCH", "SECRETS"].into_iter().zip(values);
            pairs.filter_map(|(name, value)| Some((name, value?))).collect()
        };
        let (launched, own, job) = (set(launched), set(own), set(job));
        let here = launch(&launched);
        let there = node(&launched, &own, &job);
        let alone = launch(&own);
        let silent = node(&launched, &own, &[]);
        let tree = tree();
        let files = tree.below(Path::new("/")).filter(|(_, node)| matches!(node.what, What::File(_)));
        for (path, _) in files {
            let path = path.to_str().unwrap();
            let hidden = hides(&here, path) || hides(&alone, path);
            prop_assert_eq!(hides(&there, path), hidden, "{}", path);
            // What the job says changes nothing.
            prop_assert_eq!(access(&there, path), access(&silent, path), "{}", path);
            if launched.len() == 2 && !hidden {
                prop_assert_eq!(access(&there, path), access(&here, path), "{}", path);
            }
        }
    }
}

/// Another session, in the directory above, puts a link where the project was while the job waits.
#[test]
fn a_project_that_became_a_link_runs_no_job() {
    let tree = || {
        plain()
            .file("/home/ada/other/x", "x")
            .link("/home/ada/work/a", "../other")
    };
    let launch = Scenario::new(tree()).project("/home/ada/work/a");
    assert!(launch.plan().is_ok(), "a person may name a link");
    let error = Scenario::new(tree())
        .project("/home/ada/work/a")
        .job(&[])
        .plan()
        .unwrap_err();
    assert!(
        error.to_string().contains("`/home/ada/work/a` now"),
        "{error}"
    );
    // A node on which an administrator has laid the homes out by a link.
    let tree = plain()
        .file("/gpfs/ada/other/x", "x")
        .link("/project", "/gpfs/ada/other");
    let job = Scenario::new(tree).project("/project").job(&[]);
    assert!(job.plan().is_ok());
}
