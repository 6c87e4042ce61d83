//! The built-in policy and the reference page name every key of the table, and nothing else.

use std::collections::BTreeSet;

use agent_sandbox::config::load::{RawLayer, parse};
use agent_sandbox::config::source::Layer;
use agent_sandbox::policy::clamp::Rule;
use agent_sandbox::policy::merge::{Additions, merge};
use agent_sandbox::policy::stated::KEYS;

const DEFAULT: &str = include_str!("../../profiles/default.toml");
const PAGE: &str = include_str!("../../docs/reference/policy.md");

/// `section.key` of every row of the table, and of every section within a section.
fn table_keys() -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for key in KEYS {
        keys.insert(key.name.to_owned());
        let (section, _) = key.name.rsplit_once('.').unwrap();
        keys.extend(section.contains('.').then(|| section.to_owned()));
    }
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
    assert_eq!(set, table_keys());
}

/// Of values. A list is empty if no layer has it.
#[test]
fn default_says_what_the_table_says() {
    let built_in = [parse(Layer::BuiltIn, "default.toml", DEFAULT).unwrap().raw];
    let merged =
        |layers: &[RawLayer]| serde_json::to_value(merge(layers, &Additions::default()).unwrap());
    let (said, table) = (merged(&built_in).unwrap(), merged(&[]).unwrap());
    let mut compared = 0;
    for key in KEYS {
        let at = format!("/{}", key.name.replace('.', "/"));
        let (said, table) = (said.pointer(&at).unwrap(), table.pointer(&at).unwrap());
        if table.is_array() {
            assert_eq!(table.as_array().unwrap().len(), 0, "{}", key.name);
            assert_ne!(key.rule, Rule::Least, "{}", key.name);
        } else {
            assert_eq!(said["value"], table["value"], "{}", key.name);
            compared += 1;
        }
    }
    assert!(compared > 25, "{compared}");
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

/// Every key has a rule of narrowing, and the page says it.
#[test]
fn page_has_the_narrowing_rule_of_every_key() {
    let heading = "\n### What an enforced layer narrows\n";
    let start = PAGE.find(heading).expect("the section on narrowing");
    let rows: Vec<&str> = PAGE[start..]
        .lines()
        .filter(|line| line.starts_with("| `"))
        .take(KEYS.len())
        .collect();
    assert_eq!(rows.len(), KEYS.len());
    for (key, row) in KEYS.iter().zip(rows) {
        let expected = format!("| `{}` | {} |", key.name, key.rule.text());
        assert!(row.starts_with(&expected), "{row}\n{expected}");
    }
}

#[test]
fn page_has_a_row_for_every_key() {
    for key in table_keys() {
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
