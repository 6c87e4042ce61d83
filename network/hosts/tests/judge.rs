//! What all rules together say of a host and a port.

#![allow(clippy::unwrap_used)] // a test: the panic is the failure

use agent_sandbox_hosts::{
    Cause, Endpoint, Host, HostRules, Name, Ports, Refusal, Rule, TooManyPorts,
};

fn list(texts: &[&str]) -> Vec<Rule> {
    let rule = |(i, text): (usize, &&str)| Rule {
        rule: text.parse().unwrap(),
        set: None,
        origin: format!("test:{}", i + 1),
    };
    texts.iter().enumerate().map(rule).collect()
}

fn rules(allow: &[&str], deny: &[&str], private: &[&str]) -> HostRules {
    HostRules {
        allow: list(allow),
        deny: list(deny),
        private: list(private),
        closed: Vec::new(),
    }
}

/// The rule that lets the host be reached, or the first words of why not.
fn judge(rules: &HostRules, host: &str, port: u16) -> String {
    match rules.judge(&Host::parse(host).unwrap(), port) {
        Ok(by) => by.rule.to_string(),
        Err(Refusal { cause, .. }) => format!("{cause:?}")
            .split(['(', ' ', '{'])
            .next()
            .unwrap()
            .to_owned(),
    }
}

#[test]
fn hosts_and_ports() {
    let rules = rules(
        &[
            "example.com",
            "*.example.com",
            "git.example.com:22",
            "ssh.example.com:443",
            "*.example.org:8443",
            "lic.cluster:20-600",
            "1.1.1.1",
        ],
        &["bad.example.com", "*.bad.example.com:8443", "*:21"],
        &["localhost:11434", "10.1.2.3:8000"],
    );
    for (host, port, said) in [
        ("example.com", 443, "example.com"),
        ("example.com", 80, "example.com"),
        ("example.com", 8080, "NotAllowed"),
        ("a.example.com", 443, "*.example.com"),
        ("evilexample.com", 443, "NotAllowed"),
        ("example.com.evil.com", 443, "NotAllowed"),
        ("example.org", 8443, "NotAllowed"),
        ("a.example.org", 8443, "*.example.org:8443"),
        ("a.example.org", 443, "NotAllowed"),
        ("git.example.com", 22, "git.example.com:22"),
        // What is named by port comes first, for it is more: any protocol.
        ("ssh.example.com", 443, "ssh.example.com:443"),
        ("bad.example.com", 443, "Denied"),
        ("bad.example.com", 9, "Denied"),
        ("a.bad.example.com", 443, "*.example.com"),
        ("lic.cluster", 21, "Denied"),
        ("lic.cluster", 22, "lic.cluster:20-600"),
        ("lic.cluster", 25, "Mail"),
        ("lic.cluster", 587, "Mail"),
        ("example.com", 25, "NotAllowed"),
        ("1.1.1.1", 443, "1.1.1.1"),
        ("1.1.1.2", 443, "NotAllowed"),
        ("localhost", 11434, "localhost:11434"),
        ("localhost", 80, "NotAllowed"),
        ("10.1.2.3", 8000, "10.1.2.3:8000"),
    ] {
        assert_eq!(judge(&rules, host, port), said, "{host}:{port}");
    }
}

/// A rule by which anything passes is preferred; what a bound left of one is none of these.
#[test]
fn what_a_bound_leaves_of_a_rule_is_for_the_web_alone() {
    let mut rules = rules(
        &["a.example:443", "a.example:443", "b.example:443"],
        &[],
        &[],
    );
    for at in [0, 2] {
        rules.allow[at].rule.ports = Ports::Web(443);
    }
    let by = |host: &str, port| {
        let judged = rules.judge(&Host::parse(host).unwrap(), port);
        judged.map(|by| by.rule.ports.web_alone()).ok()
    };
    assert_eq!(by("a.example", 443), Some(false));
    assert_eq!(by("b.example", 443), Some(true));
    assert_eq!(by("b.example", 80), None);
    assert_eq!(rules.ports().unwrap(), [443].into());
}

/// The resolver has its port in every jail; a range that holds it starts all the same.
#[test]
fn a_range_leaves_mail_and_the_resolver_out() {
    let rules = rules(&["a.example:24-26", "*:52-54"], &[], &[]);
    assert_eq!(rules.ports().unwrap(), [24, 26, 52, 54].into());
}

#[test]
fn a_star_means_names_and_neither_addresses_nor_localhost() {
    let open = rules(&["*"], &[], &["*"]);
    assert_eq!(judge(&open, "a.example", 443), "*");
    for host in [
        "localhost",
        "a.localhost",
        "localhost.localdomain",
        "a.localhost.localdomain",
        "localhost4",
        "localhost4.localdomain4",
        "localhost6",
        "localhost6.localdomain6",
        "ip6-localhost",
        "ip6-loopback",
        "1.1.1.1",
        "::1",
    ] {
        assert_eq!(judge(&open, host, 443), "NotAllowed", "{host}");
    }
    for host in [
        "alocalhost",
        "localhost.example",
        "localhost5",
        "a.localdomain",
    ] {
        assert_eq!(judge(&open, host, 443), "*", "{host}");
    }
    let shut = rules(&["a.example", "1.1.1.1", "localhost:1"], &["*"], &[]);
    for (host, port) in [("a.example", 443), ("1.1.1.1", 443), ("localhost", 1)] {
        assert_eq!(judge(&shut, host, port), "Denied", "{host}");
    }
}

#[test]
fn mail_takes_a_rule_of_its_own() {
    let rules = rules(&["mx.example:1-1000", "relay.example:25"], &[], &[]);
    assert_eq!(judge(&rules, "mx.example", 25), "Mail");
    assert_eq!(judge(&rules, "relay.example", 25), "relay.example:25");
    assert!(rules.ports().unwrap().contains(&25));
    assert!(!rules.ports().unwrap().contains(&465));
}

#[test]
fn slurms_own_services_are_closed_under_every_rule() {
    let mut rules = rules(
        &["*:1-800", "ctl.cluster:6817"],
        &[],
        &["ctl.cluster:6817", "10.0.0.1:6817-6819"],
    );
    rules.closed = vec![
        Endpoint {
            address: None,
            ports: (6817, 6817),
            what: "slurmctld".to_owned(),
        },
        Endpoint {
            address: Some("10.0.0.1".parse().unwrap()),
            ports: (6819, 6819),
            what: "slurmdbd".to_owned(),
        },
    ];
    let ctl = Host::parse("ctl.cluster").unwrap();
    assert_eq!(judge(&rules, "ctl.cluster", 6817), "Closed");
    let at = |address: &str, port| rules.judge_address(&ctl, address.parse().unwrap(), port, false);
    assert!(matches!(
        at("10.0.0.1", 6819).unwrap_err().cause,
        Cause::Closed(_)
    ));
    assert!(matches!(
        at("::ffff:10.0.0.1", 6819).unwrap_err().cause,
        Cause::Closed(_)
    ));
    assert!(matches!(
        at("1.1.1.1", 6817).unwrap_err().cause,
        Cause::Closed(_)
    ));
    assert!(at("10.0.0.1", 6818).is_ok());
}

#[test]
fn a_name_is_answered_if_some_port_of_it_is_open() {
    let rules = rules(
        &["a.example:22", "b.example", "*.c.example"],
        &["b.example", "a.example:80", "d.c.example"],
        &["p.cluster"],
    );
    let ask = |name| rules.judge_lookup(&Name::parse(name).unwrap()).is_ok();
    for (name, answered) in [
        ("a.example", true),
        ("b.example", false),
        ("c.example", false),
        ("x.c.example", true),
        ("d.c.example", false),
        ("p.cluster", true),
        ("other.example", false),
    ] {
        assert_eq!(ask(name), answered, "{name}");
    }
}

#[test]
fn listeners_are_bounded() {
    assert_eq!(
        rules(&["a.example:1-1025"], &[], &[])
            .ports()
            .map(|p| p.len()),
        Ok(1021)
    );
    assert_eq!(
        rules(&["a.example:1-2000"], &[], &[]).ports(),
        Err(TooManyPorts(1996))
    );
    let some = rules(
        &["a.example", "b.example:22"],
        &["c.example:7"],
        &["p:8000"],
    );
    assert_eq!(
        some.ports().unwrap().into_iter().collect::<Vec<_>>(),
        [22, 80, 443, 8000]
    );
    assert!(HostRules::default().ports().unwrap().is_empty());
}

#[test]
fn a_refusal_says_what_would_help() {
    let rules = rules(&["a.example:1-100"], &["bad.example"], &[]);
    let said = |host: &str, port| {
        let refusal = rules.judge(&Host::parse(host).unwrap(), port).unwrap_err();
        format!("{refusal}\n{}", refusal.hint().unwrap())
    };
    assert_eq!(
        said("x.example", 443),
        "x.example:443 is not reached: nothing in network.allow names it\nadd `x.example` to network.allow"
    );
    assert_eq!(
        said("2001:db8::1", 22),
        "[2001:db8::1]:22 is not reached: nothing in network.allow names it\nadd `[2001:db8::1]:22` to network.allow"
    );
    assert_eq!(
        said("bad.example", 443),
        "bad.example:443 is not reached: `bad.example` in network.deny (test:1)\nremove `bad.example` from network.deny (test:1)"
    );
    // Of a set nothing can be removed but the set.
    let mut of_set = rules.clone();
    of_set.deny[0].set = Some("@uploads".to_owned());
    let host = Host::parse("bad.example").unwrap();
    let refusal = of_set.judge(&host, 443).unwrap_err();
    assert_eq!(
        format!("{refusal}\n{}", refusal.hint().unwrap()),
        "bad.example:443 is not reached: `bad.example` of @uploads in network.deny (test:1)\nremove `@uploads` from network.deny (test:1)"
    );
    assert_eq!(
        said("a.example", 25),
        "a.example:25 is not reached: mail is closed unless network.allow names the port by itself\nadd `a.example:25` to network.allow"
    );
    let host = Host::parse("a.example").unwrap();
    let inside = rules
        .judge_address(&host, "10.0.0.1".parse().unwrap(), 80, false)
        .unwrap_err();
    assert_eq!(
        inside.to_string(),
        "a.example:80 is not reached: 10.0.0.1 is a private address"
    );
    assert_eq!(inside.hint().unwrap(), "add `a.example` to network.private");
}

/// A gateway leads to the address that it carries.
#[test]
fn a_denied_address_is_denied_behind_nat64() {
    let rules = rules(&["a.example"], &["1.2.3.4"], &[]);
    let host = Host::parse("a.example").unwrap();
    for address in ["1.2.3.4", "::ffff:1.2.3.4", "64:ff9b::1.2.3.4"] {
        let judged = rules.judge_address(&host, address.parse().unwrap(), 443, false);
        assert!(judged.is_err(), "{address}");
    }
    let other = "64:ff9b::1.2.3.5".parse().unwrap();
    assert!(rules.judge_address(&host, other, 443, false).is_ok());
}
