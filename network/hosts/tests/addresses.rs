//! Addresses at which no session reaches anybody unless `private` says so.

#![allow(clippy::unwrap_used)] // a test: the panic is the failure

use std::net::IpAddr;

use agent_sandbox_hosts::AddressClass::{self, *};
use agent_sandbox_hosts::{Cause, Host, HostRules, Rule};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn every_special_range_is_known_to_its_edges() {
    for (address, class) in [
        ("1.1.1.1", Public),
        ("9.255.255.255", Public),
        ("11.0.0.0", Public),
        ("0.0.0.0", Unspecified),
        ("0.255.255.255", Unspecified),
        ("10.0.0.0", Private),
        ("10.255.255.255", Private),
        ("100.63.255.255", Public),
        ("100.64.0.0", Shared),
        ("100.127.255.255", Shared),
        ("100.128.0.0", Public),
        ("100.100.100.200", Metadata),
        ("127.0.0.1", Loopback),
        ("127.255.255.255", Loopback),
        ("168.63.129.16", Metadata),
        ("169.254.0.1", LinkLocal),
        ("169.254.169.254", Metadata),
        ("169.254.170.2", LinkLocal),
        ("172.15.255.255", Public),
        ("172.16.0.0", Private),
        ("172.31.255.255", Private),
        ("172.32.0.0", Public),
        ("192.0.0.192", Metadata),
        ("192.0.0.1", Reserved),
        ("192.0.2.1", Documentation),
        ("192.88.99.1", Reserved),
        ("192.168.1.1", Private),
        ("198.17.255.255", Public),
        ("198.18.0.1", Benchmark),
        ("198.19.255.255", Benchmark),
        ("198.51.100.1", Documentation),
        ("203.0.113.1", Documentation),
        ("224.0.0.1", Multicast),
        ("239.255.255.255", Multicast),
        ("240.0.0.1", Reserved),
        ("255.255.255.255", Multicast),
        ("::", Unspecified),
        ("::1", Loopback),
        ("::2", Translated),
        ("::ffff:127.0.0.1", Loopback),
        ("::ffff:10.0.0.1", Private),
        ("::ffff:1.1.1.1", Public),
        ("::127.0.0.1", Translated),
        ("::1.1.1.1", Translated),
        ("::ffff:0:127.0.0.1", Reserved),
        ("64:ff9b::127.0.0.1", Loopback),
        ("64:ff9b::a9fe:a9fe", Metadata),
        ("64:ff9b::10.1.2.3", Private),
        ("64:ff9b::1.1.1.1", Public),
        ("64:ff9b:1::1.1.1.1", Translated),
        ("64:ff9b:0:1::1", Reserved),
        ("100::1", Reserved),
        ("2001::1", Translated),
        ("2001:10::1", Reserved),
        ("2001:1ff::1", Reserved),
        ("2001:200::1", Public),
        ("2001:db8::1", Documentation),
        ("2002:7f00:1::", Translated),
        ("2606:4700::1111", Public),
        ("3fff::1", Documentation),
        ("3fff:1000::1", Public),
        ("4000::1", Reserved),
        ("5f00::1", Reserved),
        ("fc00::1", UniqueLocal),
        ("fd00::1", UniqueLocal),
        ("fd00:ec2::254", Metadata),
        ("fd20:ce::254", Metadata),
        ("fe80::1", LinkLocal),
        ("fec0::1", UniqueLocal),
        ("ff02::1", Multicast),
    ] {
        assert_eq!(AddressClass::of(ip(address)), class, "{address}");
    }
}

fn rules(allow: &[&str], deny: &[&str], private: &[&str]) -> HostRules {
    let list = |texts: &[&str]| {
        let rule = |text: &&str| Rule {
            rule: text.parse().unwrap(),
            set: None,
            origin: "test:1".to_owned(),
        };
        texts.iter().map(rule).collect()
    };
    HostRules {
        allow: list(allow),
        deny: list(deny),
        private: list(private),
        closed: Vec::new(),
    }
}

#[test]
fn only_private_opens_what_is_not_public_and_only_there() {
    let host = Host::parse("a.example").unwrap();
    let rules = rules(
        &["a.example", "10.9.9.9", "*"],
        &["10.1.2.4"],
        &["a.example:8000", "10.1.2.3", "*", "10.1.2.4"],
    );
    let ask = |address, port| {
        rules
            .judge_address(&host, ip(address), port, false)
            .map(|by| by.map(|by| by.rule.to_string()))
    };
    let cause = |address, port| ask(address, port).unwrap_err().cause;
    assert_eq!(ask("1.1.1.1", 443), Ok(None));
    assert_eq!(
        ask("127.0.0.1", 8000),
        Ok(Some("a.example:8000".to_owned()))
    );
    assert_eq!(
        cause("127.0.0.1", 8001),
        Cause::NotPublic(ip("127.0.0.1"), Loopback)
    );
    assert_eq!(ask("10.1.2.3", 443), Ok(Some("10.1.2.3".to_owned())));
    assert_eq!(ask("::ffff:10.1.2.3", 443), Ok(Some("10.1.2.3".to_owned())));
    // `allow` and `*` open no private address, and neither does anything `0.0.0.0` or many hosts at once.
    assert_eq!(
        cause("10.9.9.9", 443),
        Cause::NotPublic(ip("10.9.9.9"), Private)
    );
    assert_eq!(
        cause("0.0.0.0", 8000),
        Cause::NotPublic(ip("0.0.0.0"), Unspecified)
    );
    assert_eq!(
        cause("224.0.0.1", 8000),
        Cause::NotPublic(ip("224.0.0.1"), Multicast)
    );
    assert!(matches!(cause("10.1.2.4", 443), Cause::DeniedAddress(..)));
}

#[test]
fn the_hosts_own_public_address_is_as_private_as_its_loopback() {
    let host = Host::parse("a.example").unwrap();
    let at = ip("1.2.3.4");
    let open = rules(&["a.example"], &[], &[]);
    assert_eq!(
        open.judge_address(&host, at, 443, true).unwrap_err().cause,
        Cause::NotPublic(at, OwnHost)
    );
    let named = rules(&["a.example"], &[], &["a.example"]);
    assert!(named.judge_address(&host, at, 443, true).is_ok());
}
