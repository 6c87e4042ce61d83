//! The structure of the house, checked: what was decided about modules, files and
//! documents holds for the tree as it is. Each check is a function over text, and has a unit test
//! that shows it can fail.

#![allow(clippy::disallowed_methods)] // a test: reads the tree, runs the binary

mod arrows;
mod book;
mod docs;
mod layers;
mod lex;
mod text;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Directories that hold nothing written by hand.
const SKIPPED: &[&str] = &["target", ".git"];

/// The root of the tree: a staged copy when `tests/run` says so.
fn root() -> PathBuf {
    let staged = env::var_os("AGENT_SANDBOX_ROOT");
    staged.map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from)
}

/// Every text file of the tree, by its path from the root.
fn tree() -> BTreeMap<String, String> {
    fn walk(dir: &Path, prefix: &str, found: &mut BTreeMap<String, String>) {
        let entries =
            fs::read_dir(dir).unwrap_or_else(|e| panic!("cannot list {}: {e}", dir.display()));
        for entry in entries {
            let entry = entry.expect("a directory entry");
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type().expect("a file type");
            if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
                walk(&entry.path(), &format!("{path}/"), found);
            } else if kind.is_file() {
                // What is not UTF-8 is data, and no check reads it.
                if let Ok(text) = fs::read_to_string(entry.path()) {
                    found.insert(path, text);
                }
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(&root(), "", &mut found);
    assert!(
        found.contains_key("Cargo.toml"),
        "no Cargo.toml in {}",
        root().display()
    );
    found
}

/// The text of one file that must exist.
fn read(file: &str) -> String {
    let path = root().join(file);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()))
}

/// Fails with the list of complaints, if there is one.
#[track_caller]
fn settle(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n  {}\n", complaints.join("\n  "));
}

/// Runs a check on each file of the tree that is wanted.
fn each(wanted: impl Fn(&str) -> bool, check: impl Fn(&str, &str) -> Vec<String>) -> Vec<String> {
    let tree = tree();
    let files = tree.iter().filter(|(file, _)| wanted(file));
    files.flat_map(|(file, text)| check(file, text)).collect()
}

fn is_rust(file: &str) -> bool {
    file.ends_with(".rs")
}

/// Directories of crates, one below each.
const CRATES: &[&str] = &["chaperon/", "ebpf/", "network/"];

/// Whether it is source of ours that ships: the launcher's, with what it builds on, or that of a crate beside it.
fn is_source(file: &str) -> bool {
    let of_a_crate = CRATES
        .iter()
        .find_map(|below| file.strip_prefix(below))
        .and_then(|rest| rest.split_once('/'))
        .is_some_and(|(_, rest)| rest.starts_with("src/"));
    let beside = ["src/", "base/src/", "landlock/src/"];
    let of_the_launcher = beside.iter().any(|below| file.starts_with(below));
    (of_the_launcher || of_a_crate) && is_rust(file)
}

/// Whether it is code of ours: source that ships, and tests.
fn is_ours(file: &str) -> bool {
    [
        "src/",
        "base/",
        "landlock/",
        "tests/",
        "chaperon/",
        "ebpf/",
        "network/",
    ]
    .iter()
    .any(|below| file.starts_with(below))
}

#[test]
fn modules_use_only_what_stands_left_of_them() {
    let tree = tree();
    let houses = layers::HOUSES.iter();
    settle(
        houses
            .flat_map(|house| arrows::layers(&tree, house))
            .collect(),
    );
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let tree = tree();
    let houses = layers::HOUSES
        .iter()
        .filter(|house| house.within.is_empty());
    settle(
        houses
            .flat_map(|house| arrows::circles(&tree, house.root, house.krate))
            .collect(),
    );
}

#[test]
fn files_fit_on_a_few_screens() {
    let wanted = |f: &str| is_ours(f) && !f.ends_with(".snap");
    settle(each(wanted, |file, text| {
        text::size(file, text, text::TABLES)
    }));
}

#[test]
fn names_say_what_is_inside() {
    settle(each(is_ours, |file, _| text::name(file)));
}

#[test]
fn unsafe_code_is_in_sys_alone() {
    let in_a_crate = |f: &str| CRATES.iter().any(|below| f.starts_with(below));
    let wanted = |f: &str| is_source(f) || (in_a_crate(f) && is_rust(f));
    let mut complaints = each(wanted, text::unsafe_code);
    for root in text::ROOTS {
        complaints.extend(text::refuses_unsafe(root, &read(root)));
    }
    settle(complaints);
}

#[test]
fn effects_are_in_the_effect_modules_alone() {
    settle(each(is_source, |file, text| {
        text::effect_fence(file, text, text::EFFECTS)
    }));
}

#[test]
fn what_listens_asks_the_kernel_how_many_may_wait() {
    let in_a_crate = |f: &str| CRATES.iter().any(|below| f.starts_with(below));
    let wanted = |f: &str| is_source(f) || (in_a_crate(f) && is_rust(f));
    settle(each(wanted, text::backlog));
}

#[test]
fn the_tree_promises_nothing_and_stands_alone() {
    settle(each(|_| true, text::words));
}

#[test]
fn every_threat_and_every_behaviour_of_slurms_names_a_test_that_exists() {
    let tree = tree();
    let sources = tree.iter().filter(|(file, _)| is_rust(file));
    let defined: Vec<_> = sources
        .map(|(file, text)| (file, docs::functions(text)))
        .collect();
    let exists = |suite: &str, test: &str| {
        let places = docs::places(suite);
        let in_suite = |file: &str| places.iter().any(|place| file.starts_with(place));
        let mut files = defined.iter().filter(|(file, _)| in_suite(file));
        files.any(|(_, functions)| functions.contains(test))
    };
    for ledger in ["docs/threats.md", "docs/reference/slurm-behaviour.md"] {
        settle(docs::threats(ledger, &read(ledger), exists));
    }
}

#[test]
fn every_option_is_in_the_reference() {
    let binary = env::var_os("AGENT_SANDBOX_BIN")
        .unwrap_or_else(|| env!("CARGO_BIN_EXE_agent-sandbox").into());
    let help = |words: &[&str]| {
        let output = Command::new(&binary).args(words).arg("--help").output();
        let output = output.unwrap_or_else(|e| panic!("cannot run {}: {e}", binary.display()));
        assert!(
            output.status.success(),
            "{words:?} --help: {}",
            output.status
        );
        String::from_utf8(output.stdout).expect("help in UTF-8")
    };
    let (file, reference) = ("docs/reference/cli.md", read("docs/reference/cli.md"));
    let top = help(&[]);
    assert!(
        docs::options(&top).contains("--project"),
        "no options found in: {top}"
    );
    let mut complaints = docs::option_reference("agent-sandbox", &top, file, &reference);
    // Behind `run` stands the command, `--help` included.
    let subcommands = docs::subcommands(&top);
    assert!(!subcommands.is_empty(), "no subcommands found in: {top}");
    for command in subcommands.iter().filter(|name| *name != "run") {
        let name = format!("agent-sandbox {command}");
        if !reference.contains(&name)
            && !reference.contains(&format!("`{command} "))
            && !reference.contains(&format!("`{command}`"))
        {
            complaints.push(format!("{file}: says nothing about `{name}`"));
        }
        let help = help(&[command]);
        complaints.extend(docs::option_reference(&name, &help, file, &reference));
        let own = &docs::options(&help) - &docs::options(&top);
        complaints.extend(docs::own_options(command, &own, file, &reference));
    }
    settle(complaints);
}

#[test]
fn every_policy_key_is_in_the_reference_and_in_the_default_policy() {
    let table = "base/src/config/keys.rs";
    let mut keys = docs::keys(&read(table));
    assert!(keys.len() > 50, "too few keys found in {table}: {keys:?}");
    let conditions = docs::conditions(&read("base/src/config/schema.rs"));
    assert!(!conditions.is_empty(), "no conditions found");
    keys.extend(conditions);
    let file = "docs/reference/policy.md";
    let mut complaints = docs::key_reference(&keys, file, &read(file));
    // [profile] describes a profile file, [[when]] a site's; the default policy is neither.
    let policy: Vec<_> = keys
        .into_iter()
        .filter(|key| !matches!(key.section.as_str(), "profile" | "when"))
        .collect();
    let file = "profiles/default.toml";
    complaints.extend(docs::key_defaults(&policy, file, &read(file)));
    settle(complaints);
}

#[test]
fn links_in_documents_lead_somewhere() {
    let tree = tree();
    let there = |path: &str| root().join(path).exists();
    let text = |path: &str| tree.get(path).map(String::as_str);
    settle(each(
        |f| f.ends_with(".md"),
        |file, markdown| book::links(file, markdown, there, text),
    ));
}

#[test]
fn files_that_pages_name_are_there() {
    // Decisions tell how it was when they were made.
    let page = |file: &str| file.ends_with(".md") && !file.starts_with("docs/decisions/");
    let below = [
        "src/",
        "base/",
        "landlock/",
        "tests/",
        "chaperon/",
        "ebpf/",
        "profiles/",
        "lmod/",
        ".ci/",
    ];
    let there = |path: &str| root().join(path).exists();
    settle(each(page, |file, markdown| {
        book::named_files(file, markdown, &below, there)
    }));
}

#[test]
fn the_book_lists_every_page_once_and_leads_nowhere_else() {
    let page = |file: &str| file.starts_with("docs/") && file.ends_with(".md");
    let tree = tree();
    let pages = tree.keys().map(String::as_str).filter(|file| page(file));
    let file = "docs/SUMMARY.md";
    let mut complaints = book::summary(file, &read(file), pages);
    let other = |name: &str| page(name) && name != file;
    complaints.extend(each(other, |file, text| book::stays(file, text, "docs/")));
    settle(complaints);
}

#[test]
fn what_make_offers_is_in_the_page_about_installing() {
    let (targets, _) = book::offers(&read("Makefile"));
    assert!(targets.contains("install"), "{targets:?}");
    let file = "docs/install.md";
    settle(book::make_reference(&read("Makefile"), file, &read(file)));
}
