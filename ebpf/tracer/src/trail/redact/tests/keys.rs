//! Keys that are known by how they look.

use super::*;

/// What is left of an argument that may be `cut` off.
fn hidden(text: &str, cut: bool) -> String {
    let left = Redaction::default().arguments(&[text.as_bytes()], cut);
    String::from_utf8(left.concat()).unwrap()
}

#[test]
fn keys_are_known_by_their_shape() {
    // Each row is put together here, so that no file of ours holds what looks like a key.
    let body = "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8";
    for beginning in [
        "ghp_",
        "github_pat_",
        "glpat-",
        "sk-",
        "sk-ant-api03-",
        "sk-proj-",
        "xoxb-",
        "hf_",
        "AIza",
        "npm_",
        "pypi-",
        "eyJ",
        "gsk_",
        "sk_live_",
        "xoxc-",
        "glptt-",
        "hvb.",
        "pul-",
        "tskey-auth-",
        "glsa_",
        "sntrys_",
        "ATATT3x",
        "lin_api_",
        "figd_",
        "ntn_",
        "PMAK-",
        "nvapi-",
        "pplx-",
        "sq0csp-",
        "EAACEdEose0cBA",
        "fw_",
        "secret_",
        "FwoGZXIv",
        "IQoJb3JpZ2lu",
        "glft-",
        "shpat_",
        "ATBB",
        "1//0",
    ] {
        let text = format!("a {beginning}{body} b");
        let shown = hidden(&text, false);
        assert!(!shown.contains("C3d4"), "{shown}");
        assert!(
            shown.starts_with("a ") && shown.ends_with("[redacted] b"),
            "{shown}"
        );
    }
    let aws = format!("{}{}", "AKIA", "IOSFODNN7EXAMPLE");
    assert_eq!(hidden(&format!("id={aws};"), false), "id=AKIA[redacted];");
}

#[test]
fn other_words_stay() {
    for text in [
        "sk-learn-is-a-long-name-for-a-package",
        "task-1234567890123456789012",
        "AKIA",
        "ghp_short",
        "secret_santa_2024_list_of_the_names_1",
        "fw_update_2024",
        "/a/sl.b/1//0",
        "IQoJb3JpZ2lu",
        "/usr/lib/python3",
    ] {
        assert_eq!(hidden(text, false), text);
    }
}

#[test]
fn a_key_that_is_cut_off_is_hidden_too() {
    assert_eq!(hidden("x ghp_ab", true), "x ghp_[redacted]");
    assert_eq!(hidden("x ghp_ab y", true), "x ghp_ab y");
    assert_eq!(hidden("x ghp_ab", false), "x ghp_ab");
}

#[test]
fn a_private_key_is_hidden() {
    let begin = format!("-----BEGIN RSA {}", "PRIVATE KEY-----");
    assert_eq!(
        hidden(&format!("{begin}\nMIIE\n-----END RSA"), false),
        format!("{begin}[redacted]-----END RSA")
    );
    assert_eq!(
        hidden(&format!("{begin}\nMIIE"), false),
        format!("{begin}[redacted]")
    );
}

/// Each beginning of the table, with as many letters behind it as it says, is hidden; none begins another, which would be
/// found in its place.
#[test]
fn each_row_of_the_table_hides() {
    let keys = agent_sandbox_secrets::keys::KEYS;
    let begins = || {
        keys.iter()
            .flat_map(|key| key.begins().map(move |begins| (begins, key)))
    };
    for (begin, key) in begins() {
        let body = "A1b2C3d4".repeat(5);
        let body = &body[..key.least];
        let left = hidden(&format!("x {begin}{body}"), false);
        assert_eq!(left, format!("x {begin}{REDACTED}"));
        let others = begins().filter(|(other, _)| *other != begin);
        for (other, _) in others {
            assert!(!begin.starts_with(other), "{begin} {other}");
        }
    }
}
