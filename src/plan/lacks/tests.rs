//! What holds when, what is refused, and the page that shows the table.

use std::collections::BTreeSet;

use super::*;
use crate::config::load::parse;
use crate::config::parse::DEFAULT;
use crate::policy::merge::{Additions, merge};

/// The built-in policy and these layers on it.
fn policy(layers: &[(Layer, &str)]) -> Policy {
    let layers: Vec<_> = [(Layer::BuiltIn, DEFAULT)]
        .iter()
        .chain(layers)
        .map(|(layer, text)| parse(*layer, "test.toml", text).expect("it parses").raw)
        .collect();
    merge(&layers, &Additions::default()).expect("it merges")
}

const DEGRADED: &str = "[landlock]\nusers = \"degraded\"\nsizes = \"degraded\"\n";

fn now(policy: &Policy) -> Circumstances<'_> {
    Circumstances {
        policy,
        abi: 7,
        slurm_here: false,
        slurm_works: false,
        hidden_inside: false,
    }
}

fn ids(now: &Circumstances<'_>) -> BTreeSet<&'static str> {
    held(now)
        .expect("it starts")
        .iter()
        .map(|lack| lack.id)
        .collect()
}

#[test]
fn each_condition_brings_its_rows_and_no_others() {
    let plain = policy(&[(Layer::User, DEGRADED)]);
    let usual = ids(&now(&plain));
    for id in ["processes", "metadata", "users", "sizes", "process-limit"] {
        assert!(usual.contains(id), "{id}");
    }
    let changed = |change: &dyn Fn(&mut Circumstances<'_>)| {
        let mut now = now(&plain);
        change(&mut now);
        let these = ids(&now);
        these.difference(&usual).copied().collect::<Vec<_>>()
    };
    assert_eq!(changed(&|_| {}), [""; 0]);
    assert_eq!(changed(&|now| now.abi = 5), ["abstract-sockets"]);
    assert_eq!(changed(&|now| now.slurm_here = true), ["slurm-commands"]);
    assert_eq!(changed(&|now| now.slurm_works = true), ["tasks"]);
    assert_eq!(changed(&|now| now.hidden_inside = true), ["later-files"]);
    for (text, id, comes) in [
        ("[network]\nmode = \"isolated\"\n", "network", true),
        ("[jail]\nusers = \"host\"\n", "users", false),
        ("[jail]\nmax_processes = 0\n", "process-limit", false),
    ] {
        let other = policy(&[(Layer::User, DEGRADED), (Layer::Project, text)]);
        let these = ids(&now(&other));
        let differ: Vec<_> = these.symmetric_difference(&usual).copied().collect();
        assert_eq!(differ, [id]);
        assert_eq!(these.contains(id), comes, "{id}");
    }
}

#[test]
fn a_demand_is_refused_unless_the_policy_says_that_less_will_do() {
    for (text, refused, hint) in [
        (
            "",
            [
                "jail.users (",
                "jail.tmp_size (",
                "jail.home_size (",
                "jail.shm_size (",
            ]
            .as_slice(),
            "below `[landlock]` in ~/.config/agent-sandbox/config.toml `users = \"degraded\"` and `sizes = \"degraded\"`, or \
             --set landlock.users=degraded --set landlock.sizes=degraded",
        ),
        (
            "[landlock]\nusers = \"degraded\"\n[jail]\ntmp_size = \"1G\"\n",
            ["jail.tmp_size (test.toml:4)", "jail.home_size ("].as_slice(),
            "config.toml `sizes = \"degraded\"`, or --set landlock.sizes=degraded",
        ),
        (
            "[landlock]\nsizes = \"degraded\"\n",
            ["jail.users ("].as_slice(),
            "config.toml `users = \"degraded\"`, or --set landlock.users=degraded",
        ),
    ] {
        let policy = policy(&[(Layer::User, text)]);
        let error = held(&now(&policy)).expect_err(text);
        let said = error.to_string();
        for demand in refused {
            assert!(said.contains(demand), "{text}: {said}");
        }
        assert_eq!(
            said.contains("jail.users"),
            refused.contains(&"jail.users (")
        );
        let given = error.hint_text().expect("a hint");
        assert!(given.contains(hint), "{given}");
    }
    let host = policy(&[(
        Layer::User,
        "[landlock]\nsizes = \"degraded\"\n[jail]\nusers = \"host\"\n",
    )]);
    assert!(held(&now(&host)).is_ok(), "nobody demands filtered users");
}

#[test]
fn what_the_site_refuses_nobody_permits() {
    let layers = [
        (Layer::User, DEGRADED),
        (Layer::SiteEnforced, "[landlock]\nsizes = \"refuse\"\n"),
    ];
    let policy = policy(&layers);
    let error = held(&now(&policy)).expect_err("the site refuses");
    let hint = error.hint_text().expect("a hint");
    assert!(hint.contains("landlock.sizes (test.toml:2)"), "{hint}");
    assert!(!hint.contains("--set"), "{hint}");
}

#[test]
fn rows_are_well_formed() {
    let mut seen = BTreeSet::new();
    for lack in LACKS {
        let word = |c: char| c.is_ascii_lowercase() || c == '-';
        assert!(
            lack.id.chars().all(word) && seen.insert(lack.id),
            "{}",
            lack.id
        );
        for text in [lack.bubblewrap, lack.sentence] {
            assert!(
                text.len() > 15 && !text.contains(['\n', '|']) && !text.contains("  "),
                "{}: {text}",
                lack.id
            );
            assert!(!text.ends_with('.'), "{}", lack.id);
        }
        // It is printed on a terminal.
        assert!(!lack.sentence.contains('`'), "{}", lack.id);
        let nothing = policy(&[]);
        let demand = refused(lack, &nothing).is_some();
        assert_eq!(demand, lack.kind == Kind::Demand, "{}", lack.id);
    }
}

fn documented(kind: Kind) -> String {
    let rows = LACKS.iter().filter(|lack| lack.kind == kind);
    rows.map(|lack| {
        format!(
            "| `{}` | {} | {} |\n",
            lack.id, lack.bubblewrap, lack.sentence
        )
    })
    .collect()
}

#[test]
fn the_reference_page_shows_this_table() {
    let page = include_str!("../../../docs/reference/backends.md");
    for kind in [Kind::Open, Kind::Demand, Kind::Narrower] {
        let rows = documented(kind);
        assert!(
            page.contains(&rows),
            "docs/reference/backends.md should contain:\n{rows}"
        );
    }
    let rows = page.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(
        rows,
        LACKS.len(),
        "docs/reference/backends.md has rows of its own"
    );
}
