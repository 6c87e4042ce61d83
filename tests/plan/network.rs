//! A filtered network in the plan: to whom it leads, what stands inside, and what jobs get.

use std::path::Path;

use agent_sandbox::plan::{Mount, NetworkMode, Plan};

use crate::host;
use crate::scenario::Scenario;

const FILTERED: &str = "[network]\nmode = \"filtered\"\n";

fn scenario(policy: &str) -> Scenario {
    Scenario::new(host::plain()).policy(policy)
}

fn file<'a>(plan: &'a Plan, at: &str) -> &'a str {
    let step = plan.steps.iter().find(|step| step.at == Path::new(at));
    match step.map(|step| &step.mount) {
        Some(Mount::File { content }) => std::str::from_utf8(content).unwrap(),
        other => panic!("{at}: {other:?}"),
    }
}

/// The rules of `allow` and `private`, and where they stand.
fn given(plan: &Plan) -> (Vec<String>, Vec<String>) {
    let rules = &plan.filter.as_ref().unwrap().rules;
    let shown = |all: &[agent_sandbox_hosts::Rule]| {
        let each = all
            .iter()
            .map(|one| format!("{} of {}", one.rule, one.origin));
        each.collect()
    };
    (shown(&rules.allow), shown(&rules.private))
}

#[test]
fn names_come_from_the_filter_alone() {
    let plan = scenario(FILTERED).plan().unwrap();
    assert_eq!(plan.network.value, NetworkMode::Filtered);
    assert!(file(&plan, "/etc/resolv.conf").contains("\nnameserver 127.0.0.1\n"));
    assert!(file(&plan, "/etc/nsswitch.conf").contains("hosts: files dns\n"));
    assert!(!file(&plan, "/etc/hosts").contains("192.0.2."));
    let open = scenario("").plan().unwrap();
    assert!(open.filter.is_none());
}

#[test]
fn a_rule_is_known_by_its_set_and_its_line() {
    let policy = format!("{FILTERED}allow = [\"a.org:22\",\n\"@agent\"]\n");
    let profile = "[profile]\nhosts = [\"api.a.org\"]\n";
    let plan = scenario(&policy)
        .profile("agents/a.toml", profile)
        .plan()
        .unwrap();
    let (allow, _) = given(&plan);
    // The built-in list has the set as well.
    assert!(
        allow.contains(&"a.org:22 of config.toml:3".to_owned()),
        "{allow:?}"
    );
    assert!(
        allow.contains(&"api.a.org of @agent in config.toml:4".to_owned()),
        "{allow:?}"
    );
    assert_eq!(plan.filter.unwrap().ports, [22, 80, 443]);
}

#[test]
fn the_site_bounds_whom_it_leads_to() {
    let policy = "[network]\nmode = \"filtered\"\nallow = [\"*.a.org\", \"b.org\"]\nprivate = [\"x.a.org\", \"c.org\"]\n";
    let site = "[network]\nallow = [\"x.a.org\", \"*.x.a.org\"]\ndeny = [\"y.x.a.org\"]\n";
    let plan = scenario(policy).enforced(site).plan().unwrap();
    let (allow, private) = given(&plan);
    assert_eq!(
        allow,
        ["x.a.org of config.toml:3", "*.x.a.org of config.toml:3"]
    );
    assert_eq!(private, ["x.a.org of config.toml:4"]);
    let denied = &plan.filter.as_ref().unwrap().rules.deny;
    assert_eq!(denied.len(), 1);
    let clamped: Vec<&str> = plan
        .clamped
        .iter()
        .map(|one| one.asked.value.as_str())
        .collect();
    assert_eq!(clamped, ["*.a.org", "b.org", "c.org"]);
    let nobody = scenario(policy)
        .enforced("[network]\nallow = []\n")
        .plan()
        .unwrap();
    assert_eq!(given(&nobody), (Vec::new(), Vec::new()));
}

#[test]
fn a_mode_is_no_wider_than_the_sites() {
    for (asked, most, held) in [
        ("open", "filtered", NetworkMode::Filtered),
        ("filtered", "isolated", NetworkMode::Isolated),
        ("isolated", "filtered", NetworkMode::Isolated),
        ("filtered", "open", NetworkMode::Filtered),
    ] {
        let mode = |word: &str| format!("[network]\nmode = \"{word}\"\n");
        let plan = scenario(&mode(asked)).enforced(&mode(most)).plan().unwrap();
        assert_eq!(plan.network.value, held, "{asked} within {most}");
    }
}

#[test]
fn a_job_has_the_network_of_its_session_or_what_is_configured_for_jobs() {
    use NetworkMode::{Filtered, Isolated, Open};
    for (mode, jobs, most, held) in [
        ("filtered", "same", "open", Filtered),
        ("filtered", "isolated", "open", Isolated),
        ("filtered", "open", "open", Open),
        ("filtered", "open", "filtered", Filtered),
        ("filtered", "open", "isolated", Isolated),
        ("open", "same", "filtered", Filtered),
        ("open", "same", "open", Open),
        ("open", "isolated", "open", Isolated),
        ("isolated", "open", "isolated", Isolated),
    ] {
        let policy = format!("[network]\nmode = \"{mode}\"\njobs = \"{jobs}\"\n");
        let site = format!("[network]\nmode = \"{most}\"\n");
        let plan = scenario(&policy).enforced(&site).job(&[]).plan().unwrap();
        assert_eq!(plan.network.value, held, "{mode}, {jobs} within {most}");
        assert_eq!(plan.filter.is_some(), held == Filtered);
    }
}

#[test]
fn more_ports_than_one_can_listen_at_are_refused() {
    let policy = format!("{FILTERED}allow = [\"a.org:1-2000\"]\n");
    let error = scenario(&policy).plan().unwrap_err();
    assert!(error.to_string().contains("ports"), "{error}");
}
