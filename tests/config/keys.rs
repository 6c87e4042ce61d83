//! The page that lists every key, `docs/reference/policy-keys.md`: made of the table of keys, which says what
//! may stand for each and how it narrows, and of the built-in policy with its comments. `UPDATE=1` writes it anew.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use agent_sandbox::policy::stated::{self, KEYS};

const DEFAULT: &str = include_str!("../../profiles/default.toml");
const PAGE: &str = "docs/reference/policy-keys.md";

/// Lists with more entries than this are folded.
const FEW: usize = 4;

const HEAD: &str = "# Every key

<!-- Written by the program: UPDATE=1 cargo test --test config -- keys -->

This page is generated from the built-in policy, `profiles/default.toml`, and its comments. [Policy files](policy.md)
explains layers, paths and patterns.

*Narrowing* is what a site's enforced file does to a key, whatever other layers say
([the rules](policy.md#what-an-enforced-layer-narrows)). `agent-sandbox policy` shows the effective value of each key
and its source.
";

/// A key of the built-in policy, as its text shows it.
struct Key {
    section: String,
    name: String,
    comment: Vec<String>,
    example: String,
    /// The value as it is written.
    text: String,
    value: toml::Value,
}

/// A section with the comment above it.
struct Section {
    name: String,
    comment: Vec<String>,
    keys: Vec<Key>,
}

/// The sections and keys of the built-in policy, in its order.
fn read() -> Vec<Section> {
    let table: toml::Table = toml::from_str(DEFAULT).unwrap();
    let value = |section: &str, key: &str| {
        let mut at = &table;
        for part in section.split('.') {
            at = at[part].as_table().unwrap();
        }
        at[key].clone()
    };
    let mut found: Vec<Section> = Vec::new();
    let mut comment: Vec<String> = Vec::new();
    // What stands above a section, until it begins.
    let mut above: Vec<String> = Vec::new();
    let mut lines = DEFAULT.lines();
    while let Some(line) = lines.next() {
        if let Some(text) = line.strip_prefix('#') {
            if text.starts_with(" ---") {
                comment.clear();
            } else {
                comment.push(text.strip_prefix(' ').unwrap_or(text).to_owned());
            }
        } else if line.is_empty() {
            if !comment.is_empty() {
                above = std::mem::take(&mut comment);
            }
        } else if let Some(name) = line.strip_prefix('[') {
            found.push(Section {
                name: name.trim_end_matches(']').to_owned(),
                comment: std::mem::take(&mut above),
                keys: Vec::new(),
            });
        } else if let Some((name, first)) = line.split_once(" = ") {
            let section = found.last_mut().unwrap();
            let mut text = first.to_owned();
            if first == "[" {
                for line in lines.by_ref() {
                    text.push('\n');
                    text.push_str(line);
                    if line == "]" {
                        break;
                    }
                }
            }
            let example = comment.pop().unwrap();
            section.keys.push(Key {
                section: section.name.clone(),
                name: name.to_owned(),
                comment: std::mem::take(&mut comment),
                example: example.strip_prefix("Example: ").unwrap().to_owned(),
                text,
                value: value(&section.name, name),
            });
        } else {
            panic!("not understood: {line}");
        }
    }
    found
}

/// The words that a comment lists: `"word"  what it means`.
fn words(comment: &[String]) -> Vec<&str> {
    let listed = comment.iter().filter_map(|line| line.strip_prefix("  \""));
    listed.filter_map(|line| line.split('"').next()).collect()
}

/// What may stand for a value, in words.
fn form(key: &stated::Key) -> String {
    let words: Vec<String> = key
        .words()
        .iter()
        .map(|word| format!("`\"{word}\"`"))
        .collect();
    let parts = [key.form.to_owned(), words.join(", ")];
    let said: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    assert!(!said.is_empty(), "{}: no type", key.name);
    said.join(" ")
}

/// A comment as Markdown: what it lists becomes a list, and nothing is taken for markup.
fn prose(comment: &[String]) -> String {
    let mut text = String::new();
    let mut listing = false;
    for line in comment {
        let mut escaped = String::new();
        for (i, part) in line.split('`').enumerate() {
            let part = if i % 2 == 0 {
                let part = part
                    .replace('*', "\\*")
                    .replace('<', "&lt;")
                    .replace('_', "\\_");
                part.replace('[', "\\[").replace(']', "\\]")
            } else {
                format!("`{part}`")
            };
            escaped.push_str(&part);
        }
        match line
            .strip_prefix("  \"")
            .and_then(|_| escaped.split_once("\"  "))
        {
            Some((word, meaning)) => {
                if !listing {
                    text.push('\n');
                }
                let word = word.trim_start().trim_start_matches('"').replace('\\', "");
                writeln!(text, "- `\"{word}\"`: {}", meaning.trim()).unwrap();
                listing = true;
            }
            // A word's meaning goes on.
            None if listing && line.starts_with("   ") => {
                writeln!(text, "  {}", escaped.trim()).unwrap();
            }
            None => {
                if listing && !line.is_empty() {
                    text.push('\n');
                }
                listing = false;
                writeln!(text, "{escaped}").unwrap();
            }
        }
    }
    let text = text.trim();
    // The example stands in the table.
    match text.strip_suffix(':') {
        Some(text) => format!("{text}."),
        None => text.to_owned(),
    }
}

/// The page.
fn page() -> String {
    let mut text = HEAD.to_owned();
    text.push_str("\n| key | in one line |\n|---|---|\n");
    for key in KEYS {
        writeln!(text, "| `{}` | {} |", key.name, key.line.trim()).unwrap();
    }
    for section in &read() {
        write!(
            text,
            "\n## [{}]\n\n{}\n",
            section.name,
            prose(&section.comment)
        )
        .unwrap();
        for key in &section.keys {
            let full = format!("{}.{}", key.section, key.name);
            let rows: Vec<_> = KEYS.iter().filter(|row| row.name == full).collect();
            let [row] = rows.as_slice() else {
                panic!("{full}: {} rows in the table", rows.len());
            };
            // What the comment lists is what may be written.
            let listed = words(&key.comment);
            let listed = match listed.is_empty() {
                true => words(&section.comment),
                false => listed,
            };
            let set = |words: Vec<&str>| {
                words
                    .into_iter()
                    .map(str::to_owned)
                    .collect::<BTreeSet<_>>()
            };
            assert_eq!(set(listed), set(row.words()), "{full}");
            write!(text, "\n### {full}\n\n{}\n\n", prose(&key.comment)).unwrap();
            let entries = key.value.as_array().map_or(0, Vec::len);
            let value = if entries > FEW {
                format!("{entries} entries, below")
            } else {
                format!(
                    "`{}`",
                    key.text.split_whitespace().collect::<Vec<_>>().join(" ")
                )
            };
            writeln!(
                text,
                "| type | built in | narrowing | example |\n|---|---|---|---|\n| {} | {value} | {} | `{}` |",
                form(row),
                row.rule.text(),
                key.example
            )
            .unwrap();
            if entries > FEW {
                write!(
                    text,
                    "\n<details><summary>All {entries} entries</summary>\n\n```toml\n{} = {}\n```\n\n</details>\n",
                    key.name, key.text
                )
                .unwrap();
            }
        }
    }
    text
}

#[test]
fn the_page_of_keys_is_the_built_in_policy() {
    let root = std::env::var_os("AGENT_SANDBOX_ROOT").unwrap_or(env!("CARGO_MANIFEST_DIR").into());
    let file = std::path::Path::new(&root).join(PAGE);
    let page = page();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == page,
        "{PAGE} is not what the built-in policy says: UPDATE=1 cargo test --test config -- keys"
    );
}

#[test]
fn every_rule_of_narrowing_is_of_a_key_on_the_page() {
    let page = page();
    for key in KEYS {
        assert!(
            page.contains(&format!("\n### {}\n", key.name)),
            "{}",
            key.name
        );
    }
}

#[test]
fn comments_become_markdown() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        prose(&lines(
            "Of [home] `a_*`, b_*:\n  \"x\"   one\n       more\n  \"y\"  two\nEnd."
        )),
        "Of \\[home\\] `a_*`, b\\_\\*:\n\n- `\"x\"`: one\n  more\n- `\"y\"`: two\n\nEnd."
    );
    assert_eq!(words(&lines("a\n  \"x\"   one\n")), ["x"]);
}
