//! `[ssh]`: which hosts count, and what stands inside for them.

use agent_sandbox::host::HostFacts;
use agent_sandbox::plan::model::ssh::{AGENT, KNOWN_HOSTS};
use agent_sandbox::plan::{Mount, Plan};

use crate::host;
use crate::scenario::Scenario;

const KEY: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";
const HOSTS: &str = "[ssh]\nhosts = [\"git@a.org\", \"b.org:2222\", \"c.org\"]\n";
const USERS: &str = "/tmp/ssh-a/agent.1";

/// Ada knows a.org and b.org, has an agent, and a configuration of ssh is there for all.
fn scenario(policy: &str) -> Scenario {
    let known = format!("a.org,c.org ssh-ed25519 {KEY}\n@revoked c.org ssh-ed25519 {KEY}\n");
    let tree = host::plain()
        .file("/home/ada/.ssh/known_hosts", known)
        .file(
            "/etc/ssh/ssh_known_hosts",
            format!("[b.org]:2222 ssh-ed25519 {KEY}\n"),
        )
        .file(
            "/etc/ssh/ssh_config",
            "Include /etc/ssh/ssh_config.d/*.conf\n",
        )
        .file(
            "/home/ada/project/one.pub",
            format!("ssh-ed25519 {KEY} one\n"),
        )
        .socket(USERS);
    Scenario::new(tree)
        .policy(policy)
        .facts(|facts| set(facts, USERS))
}

fn set(facts: &mut HostFacts, socket: &str) {
    let environment = &mut facts.environment;
    environment.retain(|(name, _)| name != "SSH_AUTH_SOCK");
    environment.push(("SSH_AUTH_SOCK".into(), socket.into()));
}

fn hosts(plan: &Plan) -> Vec<String> {
    let hosts = plan.ssh.iter().flat_map(|agent| &agent.hosts);
    hosts.map(|host| host.value.to_string()).collect()
}

fn variable<'a>(plan: &'a Plan, name: &str) -> Option<&'a str> {
    let found = plan.variables.iter().find(|variable| variable.name == name);
    found.and_then(|variable| variable.value.to_str())
}

fn left_out(plan: &Plan, path: &str) -> String {
    let found = plan.omitted.iter().find(|omitted| omitted.path == path);
    found
        .map(|omitted| omitted.reason.clone())
        .unwrap_or_default()
}

fn file(plan: &Plan, at: &str) -> String {
    let step = plan.steps.iter().find(|step| step.at.to_str() == Some(at));
    match step.map(|step| &step.mount) {
        Some(Mount::File { content }) => String::from_utf8(content.clone()).unwrap(),
        other => panic!("{at}: {other:?}"),
    }
}

#[test]
fn hosts_with_a_known_key_have_an_agent_inside() {
    let plan = scenario(HOSTS).plan().unwrap();
    assert_eq!(hosts(&plan), ["git@a.org", "b.org:2222"]);
    assert_eq!(variable(&plan, "SSH_AUTH_SOCK"), Some(AGENT));
    assert_eq!(
        file(&plan, KNOWN_HOSTS),
        format!("a.org ssh-ed25519 {KEY}\n[b.org]:2222 ssh-ed25519 {KEY}\n")
    );
    assert_eq!(
        file(&plan, "/etc/ssh/ssh_config"),
        format!("UserKnownHostsFile {KNOWN_HOSTS}\n")
    );
    assert!(left_out(&plan, "c.org").contains("connect to it once outside"));
    // Nothing of it without a host, and none of the user's own socket.
    let plan = scenario("").plan().unwrap();
    assert!(plan.ssh.is_none());
    assert_eq!(variable(&plan, "SSH_AUTH_SOCK"), None);
}

#[test]
fn without_an_agent_the_session_starts_and_says_so() {
    for path in ["", "agent", "/tmp/ssh-a/gone", "/etc/ssh/ssh_config"] {
        let plan = scenario(HOSTS)
            .facts(|facts| set(facts, path))
            .plan()
            .unwrap();
        assert!(plan.ssh.is_none());
        assert!(left_out(&plan, "git@a.org").contains("ssh-agent"), "{path}");
        assert_eq!(variable(&plan, "SSH_AUTH_SOCK"), None, "{path}");
    }
}

#[test]
fn jobs_and_isolated_sessions_have_none() {
    let job = scenario(HOSTS)
        .job(&[("SSH_AUTH_SOCK", USERS)])
        .plan()
        .unwrap();
    assert!(job.ssh.is_none());
    assert_eq!(variable(&job, "SSH_AUTH_SOCK"), None);
    let isolated = format!("{HOSTS}[network]\nmode = \"isolated\"\n");
    assert!(scenario(&isolated).plan().unwrap().ssh.is_none());
}

#[test]
fn in_a_filtered_network_the_port_of_a_host_is_open() {
    let filtered = format!("{HOSTS}[network]\nmode = \"filtered\"\nallow = []\n");
    let plan = scenario(&filtered).plan().unwrap();
    let rules: Vec<String> = plan
        .filter
        .as_ref()
        .unwrap()
        .rules
        .allow
        .iter()
        .map(|rule| rule.rule.to_string())
        .collect();
    for rule in ["a.org:22", "b.org:2222"] {
        assert!(rules.contains(&rule.to_owned()), "{rules:?}");
    }
    let denied = format!("{filtered}deny = [\"a.org\"]\n");
    let plan = scenario(&denied).plan().unwrap();
    assert_eq!(hosts(&plan), ["b.org:2222"]);
    assert!(
        left_out(&plan, "git@a.org").contains("network.deny"),
        "{:?}",
        plan.omitted
    );
}

#[test]
fn a_site_bounds_hosts_and_keys() {
    let allowed = |enforced: &str| {
        let filtered = format!("{HOSTS}[network]\nmode = \"filtered\"\n");
        let plan = scenario(&filtered).enforced(enforced).plan().unwrap();
        let rules = plan.filter.as_ref().unwrap().rules.allow.iter();
        let open = rules
            .filter(|rule| rule.rule.to_string().starts_with("a.org:22"))
            .count();
        (
            hosts(&plan),
            open,
            plan.clamped.iter().any(|one| one.key == "ssh.hosts"),
        )
    };
    assert_eq!(allowed("[ssh]\nhosts = []\n"), (vec![], 0, true));
    assert_eq!(
        allowed("[ssh]\nhosts = [\"a.org\"]\n"),
        (vec!["git@a.org".into()], 1, true)
    );
    assert_eq!(
        allowed("[ssh]\nhosts = [\"root@a.org\"]\n"),
        (vec![], 0, true)
    );
    // Nor does it go past what the site says of the network.
    let (hosts, open, _) = allowed("[network]\nallow = [\"b.org:2222\"]\n");
    assert_eq!((hosts, open), (vec!["b.org:2222".into()], 0));
    let keys = scenario(HOSTS)
        .enforced("[ssh]\nkeys = []\n")
        .plan()
        .unwrap();
    assert!(keys.ssh.is_none());
}

#[test]
fn what_decides_is_not_the_jails_to_change() {
    let named = format!("{HOSTS}keys = [\"~/project/one.pub\"]\n");
    let error = scenario(&named).plan().map(drop).unwrap_err().to_string();
    assert!(error.contains("/home/ada/project/one.pub"), "{error}");
    let shown = format!("{HOSTS}[files]\nread = [\"{USERS}\"]\n");
    let error = scenario(&shown).plan().map(drop).unwrap_err().to_string();
    assert!(error.contains("can be reached inside"), "{error}");
}
