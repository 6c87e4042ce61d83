use agent_sandbox_events::mark::{SIGNATURE, hex};
use proptest::prelude::*;
use ring::signature::{Ed25519KeyPair, KeyPair};

use super::*;

const SCRIPT: &[u8] = b"#!/usr/bin/agent-sandbox job\n# agent-sandbox capsule 5 8\nBQAAAAAA\n";
const NOW: u64 = 1_764_000_000;

fn pair(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

fn keys() -> Keys {
    let key =
        |node: &str, seed| format!("{node} ed25519 {}\n", hex(pair(seed).public_key().as_ref()));
    // login1 has had its key replaced.
    Keys::parse(&[key("login1", 1), key("login2", 2), key("login1", 3)].concat()).unwrap()
}

fn claim() -> Claim {
    Claim {
        cluster: "alpha".to_owned(),
        uid: 1000,
        session: "s1".to_owned(),
        node: "login1".to_owned(),
        time: NOW,
    }
}

fn signed(claim: Claim, seed: u8, script: &[u8]) -> Mark {
    let mut sum = [0; DIGEST];
    sum.copy_from_slice(digest(&SHA256, script).as_ref());
    let mut signature = [0; SIGNATURE];
    signature.copy_from_slice(pair(seed).sign(&claim.signed(&sum)).as_ref());
    Mark { claim, signature }
}

fn with(script: &[u8], mark: &Mark) -> Vec<u8> {
    [script, format!("{LINE}{mark}\n").as_bytes()].concat()
}

fn marked() -> Vec<u8> {
    with(SCRIPT, &signed(claim(), 1, SCRIPT))
}

fn judged_at(script: &[u8], now: Option<u64>) -> Result<Claim, Refused> {
    let launchers = ["/usr/bin/agent-sandbox".to_owned()];
    let keys = keys();
    let demands = Demands {
        keys: &keys,
        launchers: &launchers,
        cluster: "alpha",
        uid: 1000,
        now,
    };
    verify(script, &demands)
}

fn judged(script: &[u8]) -> Result<Claim, Refused> {
    judged_at(script, Some(NOW))
}

#[test]
fn a_marked_script_is_accepted_by_each_key_of_its_node() {
    assert_eq!(judged(&marked()), Ok(claim()));
    let newer = with(SCRIPT, &signed(claim(), 3, SCRIPT));
    assert_eq!(judged(&newer), Ok(claim()));
    // What `scontrol write batch_script` makes of it.
    assert_eq!(judged(&marked()[..marked().len() - 1]), Ok(claim()));
}

#[test]
fn a_script_that_something_else_starts_is_refused() {
    for first in [
        "#!/bin/sh",
        "#!/usr/bin/agent-sandbox",
        "#!/usr/bin/agent-sandbox job ",
        "#!/usr/bin/agent-sandbox jobs",
        "#!/usr/bin/agent-sandbox  job",
        "#! /usr/bin/agent-sandbox job",
        "#!/usr/bin/agent-sandbox task",
        "#!/usr/bin/../tmp/agent-sandbox job",
        "#!/home/ada/usr/bin/agent-sandbox job",
        "#!/usr/bin/agent-sandbox\tjob",
        "#!/usr/bin/agent-sandbox job\r",
        "\n#!/usr/bin/agent-sandbox job",
        "",
    ] {
        let script = format!("{first}\n# agent-sandbox capsule 5 8\nBQAAAAAA\n").into_bytes();
        let marked = with(&script, &signed(claim(), 1, &script));
        assert_eq!(judged(&marked), Err(Refused::NoJail), "{first}");
    }
}

#[test]
fn a_mark_is_for_one_script() {
    let other = [&b"#!/usr/bin/agent-sandbox job\n"[..], b"other\n"].concat();
    let moved = with(&other, &signed(claim(), 1, SCRIPT));
    assert_eq!(judged(&moved), Err(Refused::Forged));
    // What stands before the mark is signed, and nothing stands behind it.
    let more = [&marked()[..], b"more\n"].concat();
    assert_eq!(judged(&more), Err(Refused::NoMark));
    let twice = [&marked()[..], b"\n"].concat();
    assert_eq!(judged(&twice), Err(Refused::NoMark));
    let mark = signed(claim(), 1, SCRIPT);
    let again = with(&with(SCRIPT, &mark), &mark);
    assert_eq!(judged(&again), Err(Refused::Forged));
    assert_eq!(judged(SCRIPT), Err(Refused::NoMark));
}

#[test]
fn a_mark_is_for_one_user_and_one_cluster() {
    let change = |change: fn(&mut Claim)| {
        let mut claim = claim();
        change(&mut claim);
        claim
    };
    let other = change(|claim| claim.uid = 1001);
    let theirs = with(SCRIPT, &signed(other.clone(), 1, SCRIPT));
    assert_eq!(judged(&theirs), Err(Refused::User));
    // Written over, it is not what was signed.
    let mut stolen = signed(other, 1, SCRIPT);
    stolen.claim.uid = 1000;
    assert_eq!(judged(&with(SCRIPT, &stolen)), Err(Refused::Forged));
    let beta = change(|claim| claim.cluster = "beta".to_owned());
    let refused = judged(&with(SCRIPT, &signed(beta.clone(), 1, SCRIPT)));
    let theirs = "beta".to_owned();
    assert_eq!(refused, Err(Refused::Cluster { theirs }));
    let mut moved = signed(beta, 1, SCRIPT);
    moved.claim.cluster = "alpha".to_owned();
    assert_eq!(judged(&with(SCRIPT, &moved)), Err(Refused::Forged));
}

#[test]
fn a_mark_is_of_a_node_that_the_site_knows() {
    let of = |node: &str, seed| {
        let claim = Claim {
            node: node.to_owned(),
            ..claim()
        };
        judged(&with(SCRIPT, &signed(claim, seed, SCRIPT)))
    };
    assert!(of("login2", 2).is_ok());
    assert_eq!(of("login2", 1), Err(Refused::Forged), "another node's key");
    assert_eq!(of("login1", 9), Err(Refused::Forged), "a key of nobody's");
    let node = "login3".to_owned();
    assert_eq!(of("login3", 1), Err(Refused::Unknown { node }));
}

#[test]
fn a_mark_has_its_time_for_submissions() {
    let at = |now| judged_at(&marked(), Some(now));
    assert!(at(NOW + LIFETIME).is_ok() && at(NOW - AHEAD).is_ok());
    let seconds = LIFETIME + 1;
    assert_eq!(at(NOW + seconds), Err(Refused::Expired { seconds }));
    let seconds = AHEAD + 1;
    assert_eq!(at(NOW - seconds), Err(Refused::Ahead { seconds }));
    assert!(judged_at(&marked(), None).is_ok());
    let mut younger = signed(claim(), 1, SCRIPT);
    younger.claim.time += 10;
    assert_eq!(judged(&with(SCRIPT, &younger)), Err(Refused::Forged));
}

#[test]
fn a_damaged_mark_is_refused() {
    for mark in ["", "1", "1 cluster=alpha", "\u{fffd}"] {
        let script = [SCRIPT, format!("{LINE}{mark}\n").as_bytes()].concat();
        assert_eq!(judged(&script), Err(Refused::Damaged), "{mark}");
    }
    let script = [SCRIPT, LINE.as_bytes(), b"\xff\n"].concat();
    assert_eq!(judged(&script), Err(Refused::Damaged));
}

proptest! {
    /// No byte can be changed, taken out or put in.
    #[test]
    fn nothing_that_was_changed_is_accepted(at in 0usize..400, with in any::<u8>(), how in 0u8..3) {
        let good = marked();
        let at = at % (good.len() - 1);
        let mut bad = good.clone();
        match how {
            0 => bad[at] = with,
            1 => { bad.remove(at); }
            _ => bad.insert(at, with),
        }
        if bad != good {
            prop_assert!(judged(&bad).is_err(), "{}", String::from_utf8_lossy(&bad));
        }
    }

    #[test]
    fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(judged(&bytes).is_err());
        let _ = judged(&[b"#!/usr/bin/agent-sandbox job\n", &bytes[..]].concat());
    }
}
