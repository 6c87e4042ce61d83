//! Rules as they are written: every form that has fooled somebody's filter has one meaning here, or none.

#![allow(clippy::unwrap_used)] // a test: the panic is the failure

use agent_sandbox_hosts::{Host, HostRule, Name, NameFault, Ports, RuleError};
use proptest::prelude::*;

fn rule(text: &str) -> Result<HostRule, RuleError> {
    text.parse()
}

#[test]
fn a_rule_has_one_form() {
    for (written, canonical) in [
        ("example.org", "example.org"),
        ("EXAMPLE.Org", "example.org"),
        ("*.Example.org:8443", "*.example.org:8443"),
        ("lic1.cluster:27000-27009", "lic1.cluster:27000-27009"),
        ("lic1.cluster:7-7", "lic1.cluster:7"),
        ("localhost:11434", "localhost:11434"),
        ("my_bucket.example", "my_bucket.example"),
        ("r3---sn-x.example", "r3---sn-x.example"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("example。org", "example.org"),
        ("ｅｘａｍｐｌｅ.org", "example.org"),
        ("*", "*"),
        ("*:22", "*:22"),
        ("10.1.2.3:8000", "10.1.2.3:8000"),
        ("2001:DB8::1", "[2001:db8::1]"),
        ("[2001:db8:0::1]:443", "[2001:db8::1]:443"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("[::ffff:7f00:1]:80", "127.0.0.1:80"),
        ("1.example", "1.example"),
        ("0x7f.example", "0x7f.example"),
    ] {
        let parsed = rule(written).unwrap_or_else(|e| panic!("{written:?}: {e}"));
        assert_eq!(parsed.to_string(), canonical, "{written:?}");
        assert_eq!(
            rule(canonical),
            Ok(parsed),
            "{canonical:?} is read as it is shown"
        );
    }
}

#[test]
fn what_is_no_host_is_refused_with_its_fault() {
    use NameFault as N;
    use RuleError as R;
    let long_label = format!("{}.example", "a".repeat(64));
    let long_name = format!("{}example", "abcdefg.".repeat(31));
    for (text, fault) in [
        ("", R::Empty),
        ("a\0.example", N::Character('\0').into()),
        ("good.example\0.evil.example", N::Character('\0').into()),
        ("a.example\r\nHost: b", N::Character('\r').into()),
        ("a.example\n", N::Character('\n').into()),
        ("a b.example", N::Character(' ').into()),
        (" a.example", N::Character(' ').into()),
        ("a.example ", N::Character(' ').into()),
        ("a\u{a0}b.example", N::Character('\u{a0}').into()),
        ("fe80::1%eth0", R::Zone),
        ("a.example%eth0", R::Zone),
        ("a%2eexample", R::Zone),
        (&long_name, N::TooLong.into()),
        (&long_label, N::TooLong.into()),
        (".", N::EmptyLabel.into()),
        ("..", N::EmptyLabel.into()),
        (".example", N::EmptyLabel.into()),
        ("a..example", N::EmptyLabel.into()),
        ("a.example..", N::EmptyLabel.into()),
        ("*.", N::EmptyLabel.into()),
        ("a.example.", N::TrailingDot.into()),
        ("localhost.", N::TrailingDot.into()),
        ("127.0.0.1.", N::TrailingDot.into()),
        ("user@a.example", R::Userinfo),
        ("a.example:80@b.example", R::Userinfo),
        ("a.example:80:443", R::TwoPorts),
        ("1.2.3.4:80:443", R::TwoPorts),
        ("a.example:", R::Port),
        ("a.example:0", R::Port),
        ("a.example:65536", R::Port),
        ("a.example:+80", R::Port),
        ("a.example:-80", R::Port),
        ("a.example:80-", R::Port),
        ("a.example:90-80", R::Port),
        ("a.example:1-2-3", R::Port),
        ("a.example:https", R::Port),
        ("a.example:*", R::Port),
        ("https://a.example", R::Slash),
        ("a.example/path", R::Slash),
        ("10.0.0.0/8", R::Slash),
        ("a.example\\b", R::Slash),
        ("a.example?b", R::Slash),
        ("a.example#b", R::Slash),
        ("*example.org", R::Wildcard),
        ("a.*.example", R::Wildcard),
        ("*.*.example", R::Wildcard),
        ("a.*", R::Wildcard),
        ("**", R::Wildcard),
        ("127.1", N::Number.into()),
        ("2130706433", N::Number.into()),
        ("0x7f000001", N::Number.into()),
        ("0x7f.0x1", N::Number.into()),
        ("0177.0.0.1", N::Number.into()),
        ("127.0.0.01", N::Number.into()),
        ("1.2.3.256", N::Number.into()),
        ("1.2.3.4.5", N::Number.into()),
        ("0", N::Number.into()),
        ("*.0", N::Number.into()),
        ("*.127.0.0.1", N::Number.into()),
        ("a.example.7", N::Number.into()),
        ("a.0x", N::Number.into()),
        ("１２７.０.０.１", N::Number.into()),
        ("[127.0.0.1]", R::Brackets),
        ("[::1", R::Brackets),
        ("[::1]80", R::Brackets),
        ("[a.example]:80", R::Brackets),
        ("-a.example", N::Hyphen.into()),
        ("a-.example", N::Hyphen.into()),
        ("a,b.example", N::Character(',').into()),
        ("a;b.example", N::Character(';').into()),
        ("xn--a.example", N::Idn.into()),
        ("xn--\u{fc}.example", N::Idn.into()),
    ] {
        assert_eq!(rule(text), Err(fault), "{text:?}");
    }
}

#[test]
fn a_wildcard_means_what_is_below_and_not_what_ends_alike() {
    let name = |text| Name::parse(text).unwrap();
    let apex = name("example.com");
    for (text, below) in [
        ("a.example.com", true),
        ("a.b.example.com", true),
        ("example.com", false),
        ("evilexample.com", false),
        ("example.com.evil.com", false),
        ("com", false),
    ] {
        assert_eq!(name(text).is_below(&apex), below, "{text}");
    }
}

#[test]
fn names_from_programs_are_ascii_and_may_end_in_the_roots_dot() {
    assert_eq!(Name::from_wire("A.Example.").unwrap().as_str(), "a.example");
    for text in [
        "a.example..",
        ".",
        "",
        "a\0b",
        "bücher.example",
        "127.0.0.1",
        "127.1",
        "a b",
        "a\r\nb",
    ] {
        assert!(Name::from_wire(text).is_err(), "{text:?}");
    }
}

#[test]
fn a_host_that_is_asked_about_has_neither_port_nor_wildcard() {
    assert_eq!(Host::parse("A.example").unwrap().to_string(), "a.example");
    assert_eq!(Host::parse("::1").unwrap().to_string(), "[::1]");
    assert_eq!(Host::parse("a.example:1"), Err(RuleError::Port));
    assert_eq!(Host::parse("*.example"), Err(RuleError::Wildcard));
}

#[test]
fn rules_that_travel_are_read_as_strictly() {
    assert!(serde_json::from_str::<HostRule>("\"a.example:8443\"").is_ok());
    assert!(serde_json::from_str::<HostRule>("\"a.example\\u0000.b\"").is_err());
    assert!(serde_json::from_str::<Name>("\"a.example.\"").is_err());
    // What a bound has left of a rule: it travels, and nobody can write it.
    let left = "a.example:443 (HTTP and TLS alone)";
    let read: HostRule = serde_json::from_str(&format!("{left:?}")).unwrap();
    assert_eq!(read.ports, Ports::Web(443));
    assert_eq!(serde_json::to_string(&read).unwrap(), format!("{left:?}"));
    assert!(rule(left).is_err());
    for other in ["a.example", "a.example:22", "a.example:80-443"] {
        let text = format!("\"{other} (HTTP and TLS alone)\"");
        assert!(serde_json::from_str::<HostRule>(&text).is_err(), "{other}");
    }
}

proptest! {
    #[test]
    fn what_is_read_is_shown_and_read_again(text in "\\PC{0,40}|[a-z0-9.:*\\[\\]-]{0,30}") {
        if let Ok(first) = rule(&text) {
            prop_assert_eq!(rule(&first.to_string()), Ok(first));
        }
    }

    #[test]
    fn a_name_has_no_character_that_another_parser_minds(text in "\\PC{0,40}|.{0,20}") {
        if let Ok(name) = Name::parse(&text) {
            let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
            prop_assert!(name.as_str().bytes().all(plain), "{}", name);
            prop_assert!(name.as_str().parse::<std::net::IpAddr>().is_err());
        }
    }
}
