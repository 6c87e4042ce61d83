//! What holds when, what is refused, and the page that shows the table.

use std::collections::BTreeSet;

use super::*;
use agent_sandbox_base::config::load::parse;
use agent_sandbox_base::config::parse::DEFAULT;
use agent_sandbox_base::policy::merge::{Additions, merge};

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
        .map(|row| row.id)
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
    let text = "[network]\nmode = \"filtered\"\n";
    let filtered = policy(&[(Layer::User, DEGRADED), (Layer::Project, text)]);
    let these = ids(&now(&filtered));
    let differ: BTreeSet<_> = these.symmetric_difference(&usual).copied().collect();
    let rows = MISSING
        .iter()
        .filter(|row| row.holds == Holds::FilteredNetwork);
    assert_eq!(differ, rows.map(|row| row.id).collect());
    assert!(these.contains("servers"));
}

const SIZES_AND_USERS: &str =
    "[jail]\nusers = \"filtered\"\ntmp_size = \"1G\"\nhome_size = \"1G\"\nshm_size = \"1G\"\n";

/// The keys that are named in a refusal, and its hint; nothing of a launch that starts.
fn refusal_of(layers: &[(Layer, &str)]) -> (Vec<String>, String) {
    let policy = policy(layers);
    let Err(error) = held(&now(&policy)) else {
        return (Vec::new(), String::new());
    };
    let said = error.to_string();
    let (_, by) = said.split_once("the policy demands: ").expect("the keys");
    let keys = by.split(", ").map(str::to_owned).collect();
    (keys, error.hint_text().expect("a hint").to_owned())
}

fn nothing() -> (Vec<String>, String) {
    (Vec::new(), String::new())
}

#[test]
fn what_nobody_requires_may_be_missing() {
    assert_eq!(refusal_of(&[]), nothing());
    assert_eq!(
        refusal_of(&[(Layer::SiteDefaults, SIZES_AND_USERS)]),
        nothing()
    );
    let host = "[jail]\nusers = \"host\"\n";
    assert_eq!(refusal_of(&[(Layer::User, host)]), nothing());
}

#[test]
fn what_a_user_wrote_is_required_unless_the_user_says_that_less_will_do() {
    for layer in [
        Layer::Profile,
        Layer::User,
        Layer::Project,
        Layer::CommandLine,
    ] {
        let (keys, hint) = refusal_of(&[(layer, SIZES_AND_USERS)]);
        let named = ["users", "tmp_size", "home_size", "shm_size"];
        assert_eq!(keys.len(), named.len(), "{layer:?}: {keys:?}");
        for (said, key) in keys.iter().zip(named) {
            assert!(
                said.starts_with(&format!("jail.{key} (test.toml")),
                "{said}"
            );
        }
        let both = "below `[landlock]` in ~/.config/agent-sandbox/config.toml `users = \"degraded\"` and \
                    `sizes = \"degraded\"`, or --set landlock.users=degraded --set landlock.sizes=degraded";
        assert!(hint.contains(both), "{hint}");
        let waived = refusal_of(&[(layer, SIZES_AND_USERS), (Layer::CommandLine, DEGRADED)]);
        assert_eq!(waived, nothing(), "{layer:?}");
    }
    let (keys, hint) = refusal_of(&[(
        Layer::User,
        "[landlock]\nusers = \"degraded\"\n[jail]\nusers = \"filtered\"\ntmp_size = \"1G\"\n",
    )]);
    assert_eq!(keys, ["jail.tmp_size (test.toml:5)"]);
    let one = "config.toml `sizes = \"degraded\"`, or --set landlock.sizes=degraded";
    assert!(hint.contains(one), "{hint}");
    let (keys, _) = refusal_of(&[(Layer::User, "[landlock]\nsizes = \"refuse\"\n")]);
    assert_eq!(keys.len(), 3, "{keys:?}");
}

#[test]
fn what_the_site_enforces_nobody_waives() {
    for (key, value) in [
        ("tmp_size", "\"100G\""),
        ("home_size", "\"1M\""),
        ("shm_size", "\"auto\""),
        ("users", "\"filtered\""),
    ] {
        let enforced = format!("[jail]\n{key} = {value}\n");
        for others in ["", SIZES_AND_USERS, "[jail]\ntmp_size = \"1M\"\n"] {
            let layers = [
                (Layer::User, others),
                (Layer::CommandLine, DEGRADED),
                (Layer::SiteEnforced, enforced.as_str()),
            ];
            let (keys, hint) = refusal_of(&layers);
            assert_eq!(keys, [format!("jail.{key} (test.toml:2)")], "{others}");
            let site = format!("the site does not let it do without: jail.{key} (test.toml:2);");
            assert!(hint.contains(&site), "{hint}");
            assert!(!hint.contains("--set"), "{hint}");
        }
    }
    let wide = "[jail]\nusers = \"host\"\n";
    assert_eq!(refusal_of(&[(Layer::SiteEnforced, wide)]), nothing());
}

#[test]
fn what_the_site_refuses_nobody_permits() {
    let layers = [
        (Layer::User, DEGRADED),
        (Layer::SiteEnforced, "[landlock]\nsizes = \"refuse\"\n"),
    ];
    let (_, hint) = refusal_of(&layers);
    assert!(hint.contains("landlock.sizes (test.toml:2)"), "{hint}");
    assert!(!hint.contains("--set"), "{hint}");
}

#[test]
fn rows_are_well_formed() {
    let mut seen = BTreeSet::new();
    for row in MISSING {
        let word = |c: char| c.is_ascii_lowercase() || c == '-';
        assert!(
            row.id.chars().all(word) && seen.insert(row.id),
            "{}",
            row.id
        );
        for text in [row.bubblewrap, row.sentence] {
            assert!(
                text.len() > 15 && !text.contains(['\n', '|']) && !text.contains("  "),
                "{}: {text}",
                row.id
            );
            assert!(!text.ends_with('.'), "{}", row.id);
        }
        // It is printed on a terminal.
        assert!(!row.sentence.contains('`'), "{}", row.id);
        let strict = policy(&[(
            Layer::User,
            "[landlock]\nsizes = \"refuse\"\nusers = \"refuse\"\n",
        )]);
        let demand = refused(row, &strict).is_some();
        assert_eq!(demand, row.kind == Kind::Required, "{}", row.id);
    }
}

fn documented(kind: Kind) -> String {
    let rows = MISSING.iter().filter(|row| row.kind == kind);
    rows.map(|row| format!("| `{}` | {} | {} |\n", row.id, row.bubblewrap, row.sentence))
        .collect()
}

#[test]
fn the_reference_page_shows_this_table() {
    let page = include_str!("../../../docs/reference/backends.md");
    for kind in [Kind::Open, Kind::Required, Kind::Stricter] {
        let rows = documented(kind);
        assert!(
            page.contains(&rows),
            "docs/reference/backends.md should contain:\n{rows}"
        );
    }
    let rows = page.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(
        rows,
        MISSING.len(),
        "docs/reference/backends.md has rows of its own"
    );
}
