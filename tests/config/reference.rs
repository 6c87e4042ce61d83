//! The built-in policy and the reference page name every key of the schema, and nothing else.

use std::collections::BTreeSet;

use agent_sandbox::config::load::parse;
use agent_sandbox::config::source::Layer;
use agent_sandbox::policy::stated::RULES;

const SCHEMA: &str = include_str!("../../src/config/schema.rs");
const DEFAULT: &str = include_str!("../../profiles/default.toml");
const PAGE: &str = include_str!("../../docs/reference/policy.md");

/// `section.key` of every field in the schema's section structs.
fn schema_keys() -> BTreeSet<String> {
    let mut section = None;
    let mut keys = BTreeSet::new();
    for line in SCHEMA.lines() {
        if let Some(name) = line.strip_prefix("pub struct ") {
            section = name.strip_suffix("Section {").map(|name| match name {
                // A section within a section.
                "SlurmLimits" => "slurm.limits".to_owned(),
                name => name.to_lowercase(),
            });
        } else if let (Some(section), Some(field)) = (&section, line.strip_prefix("    pub "))
            && let Some((key, _)) = field.split_once(':')
        {
            keys.insert(format!("{section}.{key}"));
        }
    }
    assert!(
        keys.len() > 25,
        "the schema is no longer understood: {keys:?}"
    );
    keys
}

#[test]
fn default_sets_every_key() {
    let table: toml::Table = toml::from_str(DEFAULT).unwrap();
    let mut set = BTreeSet::new();
    for (section, keys) in &table {
        for (key, value) in keys.as_table().unwrap() {
            set.insert(format!("{section}.{key}"));
            let inner = value.as_table().into_iter().flat_map(toml::Table::keys);
            set.extend(inner.map(|inner| format!("{section}.{key}.{inner}")));
        }
    }
    let keys = schema_keys()
        .into_iter()
        .filter(|key| !key.starts_with("profile."))
        .collect::<BTreeSet<_>>();
    assert_eq!(set, keys);
}

#[test]
fn default_explains_every_key_with_an_example() {
    let lines = DEFAULT.lines().collect::<Vec<_>>();
    for (at, line) in lines.iter().enumerate() {
        let Some((key, _)) = line
            .split_once(" = ")
            .filter(|(key, _)| !key.contains([' ', '#', '"']))
        else {
            continue;
        };
        let example = lines[..at]
            .iter()
            .rev()
            .take_while(|line| line.starts_with('#'))
            .last();
        assert!(example.is_some(), "nothing stands above `{key}`");
        assert!(
            lines[at - 1].starts_with(&format!("# Example: {key} = ")),
            "no example above `{key}`"
        );
        let example = lines[at - 1].trim_start_matches("# Example: ");
        let section = lines[..at]
            .iter()
            .rev()
            .find(|line| line.starts_with('['))
            .unwrap();
        parse(Layer::User, "example", &format!("{section}\n{example}\n"))
            .unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn lists_of_the_default_name_nothing_twice() {
    let table: toml::Table = toml::from_str(DEFAULT).unwrap();
    for (section, keys) in &table {
        for (key, value) in keys.as_table().unwrap() {
            let mut seen = BTreeSet::new();
            for entry in value.as_array().into_iter().flatten() {
                let entry = entry.as_str().unwrap();
                assert!(seen.insert(entry), "{section}.{key} names {entry} twice");
            }
        }
    }
}

#[test]
fn patterns_of_paths_never_walk() {
    let table: toml::Table = toml::from_str(DEFAULT).unwrap();
    for section in ["home", "files", "devices"] {
        for (key, value) in table[section].as_table().unwrap() {
            for path in value
                .as_array()
                .into_iter()
                .flatten()
                .map(|path| path.as_str().unwrap())
            {
                let (above, _) = path.rsplit_once('/').unwrap_or_default();
                assert!(!above.contains('*'), "{section}.{key}: {path}");
                assert!(
                    path.starts_with('/') || path.starts_with("~/") || path.starts_with('$'),
                    "{section}.{key}: {path}"
                );
            }
        }
    }
}

#[test]
fn nothing_of_other_people_is_readable_by_default() {
    let table: toml::Table = toml::from_str(DEFAULT).unwrap();
    let whole = [
        "/", "/home", "/scratch", "/data", "/mnt", "/srv", "/tmp", "/run", "/var", "/boot",
        "/root", "/proc", "/sys", "/dev",
    ];
    for path in table["files"]["read"].as_array().unwrap() {
        assert!(!whole.contains(&path.as_str().unwrap()), "{path:?}");
    }
}

/// Every key of the schema has a rule of narrowing, and the page says it.
#[test]
fn page_has_the_narrowing_rule_of_every_key() {
    let rules: BTreeSet<String> = RULES.iter().map(|(key, _)| (*key).to_owned()).collect();
    let keys = schema_keys().into_iter().filter(|key| {
        // A section within a section; what a profile says of itself.
        key != "slurm.limits" && !key.starts_with("profile.") && !key.starts_with("when.")
    });
    assert_eq!(rules, keys.collect());
    let heading = "\n### What an enforced layer narrows\n";
    let start = PAGE.find(heading).expect("the section on narrowing");
    let rows: Vec<&str> = PAGE[start..]
        .lines()
        .filter(|line| line.starts_with("| `"))
        .take(RULES.len())
        .collect();
    for ((key, rule), row) in RULES.iter().zip(rows) {
        let expected = format!("| `{key}` | {} |", rule.text());
        assert!(row.starts_with(&expected), "{row}\n{expected}");
    }
}

#[test]
fn page_has_a_row_for_every_key() {
    for key in schema_keys() {
        let (section, key) = key.rsplit_once('.').unwrap();
        let heading = format!("\n## [{section}]\n");
        let start = PAGE
            .find(&heading)
            .unwrap_or_else(|| panic!("no heading for [{section}]"));
        let below = &PAGE[start + heading.len()..];
        let below = &below[..below.find("\n## ").unwrap_or(below.len())];
        assert!(
            below.contains(&format!("\n| `{key}` | ")),
            "no row for {section}.{key}"
        );
    }
}
