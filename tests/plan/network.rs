//! A filtered network in the plan: to whom it leads, what stands inside, and what jobs get.

use std::path::Path;

use agent_sandbox::plan::{Mount, NetworkMode, Plan, check};

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
            .map(|one| format!("{}{} ({})", one.rule, one.of_set(), one.origin));
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
        allow.contains(&"a.org:22 (config.toml:3)".to_owned()),
        "{allow:?}"
    );
    assert!(
        allow.contains(&"api.a.org of @agent (config.toml:4)".to_owned()),
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
        ["x.a.org (config.toml:3)", "*.x.a.org (config.toml:3)"]
    );
    assert_eq!(private, ["x.a.org (config.toml:4)"]);
    let denied = &plan.filter.as_ref().unwrap().rules.deny;
    assert_eq!(denied.len(), 1);
    let clamped: Vec<&str> = plan
        .clamped
        .iter()
        .map(|one| one.asked.value.as_str())
        .collect();
    assert_eq!(clamped, ["*.a.org", "b.org", "c.org"]);
    // A bound without a port is for HTTP and TLS, and so is what it leaves of a rule with one.
    let named = "[network]\nmode = \"filtered\"\nallow = [\"x.a.org:443\", \"x.a.org:22\"]\n";
    let plan = scenario(named).enforced(site).plan().unwrap();
    let (allow, _) = given(&plan);
    assert_eq!(allow, ["x.a.org:443 (HTTP and TLS alone) (config.toml:3)"]);
    assert_eq!(plan.filter.unwrap().ports, [443]);
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

/// The ports that are forwarded.
fn forwarded(plan: &Plan) -> Vec<u16> {
    plan.forward.iter().map(|port| port.value).collect()
}

#[test]
fn ports_are_forwarded_from_a_network_of_the_jails_own_within_the_sites_list() {
    let policy = |mode: &str| {
        format!(
            "[network]\nmode = \"{mode}\"\nforward = [9000, 8888, 8888]\nallow = [\"a.org:7000\"]\n"
        )
    };
    for mode in ["isolated", "filtered"] {
        let asked = scenario(&policy(mode));
        assert_eq!(forwarded(&asked.plan().unwrap()), [8888, 9000], "{mode}");
        for (site, held) in [
            ("forward = [8888, 22]", &[8888][..]),
            ("forward = []", &[]),
            ("jobs = \"same\"", &[8888, 9000]),
        ] {
            let site = format!("[network]\n{site}\n");
            let plan = scenario(&policy(mode)).enforced(&site).plan().unwrap();
            assert_eq!(forwarded(&plan), held, "{mode}, {site}");
            let clamped = plan
                .clamped
                .iter()
                .filter(|one| one.key == "network.forward");
            assert!(clamped.clone().all(|one| one.is_users()));
            assert_eq!(clamped.count(), 2 - held.len(), "{mode}, {site}");
        }
    }
    let open = scenario(&policy("open")).plan().unwrap();
    assert!(open.forward.is_empty());
    let said = open
        .omitted
        .iter()
        .find(|one| one.path == "network.forward");
    let said = said.unwrap();
    assert!(
        said.loud && said.reason.contains("network.mode `open` (config.toml:2)"),
        "{said:?}"
    );
    // What nobody asks for is not said.
    let silent = scenario("[network]\nmode = \"open\"\n").plan().unwrap();
    assert!(
        silent
            .omitted
            .iter()
            .all(|one| one.path != "network.forward")
    );
}

#[test]
fn a_port_at_which_the_filter_listens_is_not_forwarded() {
    for (allow, port, why) in [
        (
            "a.org:8000-9000",
            8888,
            "for `a.org:8000-9000` (config.toml:3)",
        ),
        ("a.org", 443, "for `a.org` (config.toml:3)"),
        ("a.org", 53, "for names"),
        ("a.org:53", 53, "for names"),
    ] {
        let policy = format!("{FILTERED}allow = [\"{allow}\"]\nforward = [7999, {port}]\n");
        let refused = scenario(&policy).plan().unwrap_err().to_string();
        let named = format!("port {port} cannot be forwarded (network.forward (config.toml:4))");
        assert!(
            refused.contains(&named) && refused.contains(why),
            "{refused}"
        );
    }
    // One that is not there to listen.
    let isolated = "[network]\nmode = \"isolated\"\nallow = [\"a.org:8888\"]\nforward = [8888]\n";
    assert_eq!(forwarded(&scenario(isolated).plan().unwrap()), [8888]);
}

#[test]
fn an_unsafe_plan_of_ports_is_refused() {
    let policy = format!("{FILTERED}allow = [\"a.org:7000\"]\nforward = [8888]\n");
    let scenario = scenario(&policy);
    let plan = scenario.plan().unwrap();
    let judged = |change: &dyn Fn(&mut Plan)| {
        let mut plan = plan.clone();
        change(&mut plan);
        let checked = check::check(&plan, &scenario.merged(), &scenario.host, &scenario.tree);
        checked.map_err(|error| error.to_string())
    };
    assert_eq!(judged(&|_| {}), Ok(()));
    let to = |port: u16| move |plan: &mut Plan| plan.forward[0].value = port;
    for (refused, why) in [
        (judged(&to(7000)), "the filter listens at port 7000"),
        (judged(&to(53)), "the filter listens at port 53"),
        (
            judged(&|plan| (plan.network.value, plan.filter) = (NetworkMode::Open, None)),
            "port 8888 of the host is forwarded",
        ),
    ] {
        assert!(
            refused.clone().is_err_and(|error| error.contains(why)),
            "{refused:?}"
        );
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

const CREDENTIAL: &str = "[[credential]]\nname = \"git\"\nhosts = [\"api.a.org\", \"b.org:8443\"]\nenv = \"A_TOKEN\"\nprefix = \"ghp_\"\n";
const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

fn with_bundle(policy: &str) -> Scenario {
    let tree = host::plain().file(BUNDLE, "CERTIFICATES");
    Scenario::new(tree).policy(policy)
}

fn variable<'a>(plan: &'a Plan, name: &str) -> Option<&'a str> {
    let found = plan.variables.iter().find(|variable| variable.name == name);
    found.and_then(|variable| variable.value.to_str())
}

#[test]
fn a_credential_leaves_a_placeholder_inside() {
    let policy =
        format!("{FILTERED}{CREDENTIAL}from = \"env:REAL\"\nbase_url = {{ A_URL = \"/v1\" }}\n");
    let scenario = with_bundle(&policy)
        .variable("REAL", "the-real-value")
        .variable("A_TOKEN", "another-value")
        .variable("COPY", "x the-real-value x");
    let plan = scenario.plan().unwrap();
    let placeholder = "ghp_0123456789abcdef0123456789abcdef-git-agent-sandbox-placeholder";
    assert_eq!(variable(&plan, "A_TOKEN"), Some(placeholder));
    assert_eq!(variable(&plan, "A_URL"), Some("http://api.a.org:443/v1"));
    assert_eq!(
        (variable(&plan, "REAL"), variable(&plan, "COPY")),
        (None, None)
    );
    for name in ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"] {
        assert_eq!(variable(&plan, name), Some(BUNDLE), "{name}");
    }
    assert!(
        plan.variables
            .iter()
            .all(|one| !one.value.to_string_lossy().contains("real-value"))
    );
    let (allow, _) = given(&plan);
    for host in ["api.a.org (config.toml:3)", "b.org:8443 (config.toml:3)"] {
        assert!(allow.contains(&host.to_owned()), "{allow:?}");
    }
    assert_eq!(file(&plan, BUNDLE), "CERTIFICATES\n");
    let trust = plan.filter.unwrap().trust.unwrap();
    assert_eq!(
        (trust.trusted, trust.bundles),
        (b"CERTIFICATES".to_vec(), vec![BUNDLE.into()])
    );
}

#[test]
fn java_has_files_of_certificates_of_its_own() {
    const STORE: &str = "/etc/ssl/certs/java/cacerts";
    let policy = format!("{FILTERED}{CREDENTIAL}from = \"file:~/.token\"\n");
    let tree = host::plain()
        .file(BUNDLE, "CERTIFICATES")
        .file(STORE, "STORE");
    let own = "/opt/jdk/lib/security/cacerts";
    // Whoever is inside could have written this one.
    let planted = "/home/ada/project/jdk/lib/security/cacerts";
    let tree = tree.file(own, "OWN").file(planted, "PLANTED");
    let scenario = |home: &str| {
        let scenario = Scenario::new(tree.clone()).policy(&policy);
        scenario.variable("JAVA_HOME", home).plan().unwrap()
    };
    let plan = scenario("/opt/jdk");
    assert_eq!((file(&plan, STORE), file(&plan, own)), ("STORE", "OWN"));
    let java = &plan.filter.as_ref().unwrap().trust.as_ref().unwrap().java;
    assert_eq!(java, &[Path::new(STORE), Path::new(own)]);
    let plan = scenario("/home/ada/project/jdk");
    let java = &plan.filter.as_ref().unwrap().trust.as_ref().unwrap().java;
    assert_eq!(java, &[Path::new(STORE)]);
    let told = plan.omitted.iter().filter(|one| one.loud);
    assert!(
        told.clone().any(|one| one.path == planted),
        "{:?}",
        told.collect::<Vec<_>>()
    );
}

#[test]
fn a_file_of_certificates_is_named_also_where_the_users_variable_is_hidden() {
    let policy = format!("{FILTERED}{CREDENTIAL}from = \"env:REAL\"\n");
    let scenario = with_bundle(&policy).variable("REAL", "the-real-value");
    let plan = scenario.variable("AWS_CA_BUNDLE", "/etc/own.pem").plan();
    assert_eq!(variable(&plan.unwrap(), "AWS_CA_BUNDLE"), Some(BUNDLE));
}

#[test]
fn a_job_has_a_placeholder_at_most() {
    let policy = format!(
        "{FILTERED}jobs = \"open\"\n{CREDENTIAL}from = \"env:REAL\"\n[env]\npass = [\"A_TOKEN\"]\n"
    );
    let plan = with_bundle(&policy)
        .variable("REAL", "the-real-value")
        .job(&[("A_TOKEN", "ghp_placeholder"), ("SSL_CERT_FILE", BUNDLE)])
        .plan()
        .unwrap();
    assert_eq!(variable(&plan, "A_TOKEN"), Some("ghp_placeholder"));
    assert!(plan.filter.is_none());
    assert!(
        plan.variables
            .iter()
            .all(|one| !one.value.to_string_lossy().contains("real-value"))
    );
}

#[test]
fn a_job_exchanges_what_its_session_does_where_it_can_be_read() {
    let file = format!("{FILTERED}{CREDENTIAL}from = \"file:~/.token\"\n");
    let environment = format!("{FILTERED}{CREDENTIAL}from = \"env:REAL\"\n");
    let job = |policy: &str, brought: &str| {
        // The latter as the session set it, where a rule hides what begins so.
        let brought = [("A_TOKEN", brought), ("AWS_CA_BUNDLE", BUNDLE)];
        with_bundle(policy)
            .variable("REAL", "the-real-value")
            .job(&brought)
    };
    let plan = job(&file, "ghp_1-placeholder")
        .exchanges("git", "ghp_1-placeholder")
        .plan()
        .unwrap();
    let filter = plan.filter.as_ref().unwrap();
    assert_eq!(filter.credentials[0].placeholder, "ghp_1-placeholder");
    assert_eq!(variable(&plan, "A_TOKEN"), Some("ghp_1-placeholder"));
    for name in ["NODE_EXTRA_CA_CERTS", "AWS_CA_BUNDLE"] {
        assert_eq!(variable(&plan, name), Some(BUNDLE));
    }
    assert_eq!(self::file(&plan, BUNDLE), "CERTIFICATES\n");
    // A variable of the launch is not known here.
    let plan = job(&environment, "ghp_1-placeholder")
        .exchanges("git", "ghp_1-placeholder")
        .plan()
        .unwrap();
    let filter = plan.filter.as_ref().unwrap();
    assert!(filter.credentials.is_empty() && filter.trust.is_none());
    assert_eq!(filter.kept[0].0.name, "git");
    assert_eq!(variable(&plan, "A_TOKEN"), Some("ghp_1-placeholder"));
    assert!(filter.kept[0].1.starts_with(r#""env:REAL" is read where"#));
    // What the job brings in its place is a value like others, and hidden as such.
    let plan = job(&file, "another")
        .exchanges("git", "ghp_1-placeholder")
        .plan()
        .unwrap();
    assert_eq!(variable(&plan, "A_TOKEN"), None);
    // The session did not exchange it, for a reason of its own; or nothing may.
    let plan = job(&file, "ghp_1-placeholder").plan().unwrap();
    assert!(plan.filter.as_ref().unwrap().credentials.is_empty());
    let off = job(&file, "ghp_1-placeholder").exchanges("git", "ghp_1-placeholder");
    let plan = off
        .enforced("[network]\ncredentials = \"off\"\n")
        .plan()
        .unwrap();
    assert!(plan.filter.as_ref().unwrap().credentials.is_empty());
}

#[test]
fn a_credential_needs_a_filter_and_the_sites_leave() {
    let from = |from: &str| format!("{CREDENTIAL}from = \"{from}\"\n");
    let open = with_bundle(&from("env:REAL")).plan().unwrap_err();
    assert!(
        open.to_string()
            .contains("needs network.mode = \"filtered\""),
        "{open}"
    );
    for policy in [
        "[network]\nmode = \"isolated\"\n",
        "[network]\ncredentials = \"off\"\n",
    ] {
        let plan = with_bundle(&format!("{policy}{}", from("env:REAL")))
            .plan()
            .unwrap();
        assert_eq!(variable(&plan, "A_TOKEN"), None, "{policy}");
    }
    let filtered = format!("{FILTERED}{}", from("file:~/.token"));
    let plan = with_bundle(&filtered)
        .enforced("[network]\ncredentials = \"off\"\n")
        .plan()
        .unwrap();
    assert!(plan.filter.unwrap().credentials.is_empty());
    let plan = with_bundle(&filtered)
        .enforced("[network]\nallow = [\"api.a.org\"]\n")
        .plan()
        .unwrap();
    let hosts = &plan.filter.as_ref().unwrap().credentials[0].hosts;
    assert_eq!(hosts.len(), 1, "{hosts:?}");
    assert!(
        plan.omitted
            .iter()
            .any(|one| one.reason.contains("b.org:8443 is not reached"))
    );
    assert!(
        plan.hidden
            .rule_for(Path::new("/home/ada/.token"))
            .is_some()
    );
}

#[test]
fn a_profiles_credential_counts_where_its_variable_is_set() {
    let profile = format!(
        "[profile]\n{CREDENTIAL}from = \"env:A_TOKEN\"\nunless = [\"A_URL\"]\n[env]\npass = [\"A_TOKEN\", \"A_URL\"]\n"
    );
    let scenario = |policy: &str| with_bundle(policy).profile("agents/a.toml", &profile);
    let key = |scenario: Scenario| scenario.variable("A_TOKEN", "the-real-value");
    let passes = |plan: &Plan| variable(plan, "A_TOKEN") == Some("the-real-value");
    assert!(!passes(&key(scenario(FILTERED)).plan().unwrap()));
    assert!(
        passes(&key(scenario("")).plan().unwrap()),
        "nothing filters"
    );
    let unset = scenario(FILTERED).plan().unwrap();
    assert_eq!(variable(&unset, "A_TOKEN"), None);
    assert!(unset.filter.unwrap().trust.is_none());
    // A service of the user's own gets the key itself.
    let elsewhere = key(scenario(FILTERED))
        .variable("A_URL", "https://models.b.org")
        .plan()
        .unwrap();
    assert!(passes(&elsewhere));
    assert!(
        elsewhere
            .omitted
            .iter()
            .any(|one| one.loud && one.reason.contains("$A_URL is set"))
    );
}
