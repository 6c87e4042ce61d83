//! The manual pages, as man and mandoc read them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::world::{Done, TestPrefix, has, root};

/// The pages that are installed.
fn pages(place: &TestPrefix) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for section in ["man1", "man5", "man8"] {
        let directory = place.prefix.join("share/man").join(section);
        found.extend(
            fs::read_dir(directory)
                .unwrap()
                .map(|entry| entry.unwrap().path()),
        );
    }
    assert!(found.len() > 5, "{found:?}");
    found
}

/// What `--help` says of a subcommand, or of the program.
fn help(place: &TestPrefix, subcommand: Option<&str>) -> String {
    let words: Vec<&str> = subcommand.into_iter().chain(["--help"]).collect();
    Done::of(place.launcher(&words)).ok().out
}

fn subcommands(place: &TestPrefix) -> BTreeSet<String> {
    let help = help(place, None);
    let block = help
        .lines()
        .skip_while(|line| *line != "Subcommands:")
        .skip(1);
    let names = block
        .take_while(|line| line.starts_with("  "))
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned);
    names.collect()
}

#[test]
fn every_subcommand_has_a_page_and_every_page_a_subcommand() {
    let place = TestPrefix::installed();
    let mut named: BTreeSet<String> = subcommands(&place)
        .into_iter()
        .map(|name| format!("agent-sandbox-{name}.1"))
        .collect();
    assert!(named.contains("agent-sandbox-policy.1"), "{named:?}");
    named.insert("agent-sandbox.1".to_owned());
    named.insert("agent-sandbox.toml.5".to_owned());
    named.insert("agent-sandbox-tracer.8".to_owned());
    let there: BTreeSet<String> = pages(&place)
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(there, named);
}

#[test]
fn every_option_of_help_is_in_its_page() {
    let place = TestPrefix::installed();
    if !has("man", "what the manual pages say") {
        return;
    }
    let mut calls: Vec<Option<String>> = subcommands(&place).into_iter().map(Some).collect();
    calls.push(None);
    let mut options = 0;
    for subcommand in calls {
        let page = match &subcommand {
            Some(name) => format!("share/man/man1/agent-sandbox-{name}.1"),
            None => "share/man/man1/agent-sandbox.1".to_owned(),
        };
        let text = rendered(&place, &place.prefix.join(page));
        let help = help(&place, subcommand.as_deref());
        for word in help
            .lines()
            .filter(|line| line.trim_start().starts_with('-'))
        {
            let column = word.trim().split("  ").next().unwrap();
            let long = column
                .split([' ', ','])
                .find(|word| word.starts_with("--"))
                .unwrap();
            // Help shows one that is counted as `--verbose...`.
            let long = long.trim_end_matches("...");
            assert!(
                text.contains(long),
                "{subcommand:?}: `{long}` is not in:\n{text}"
            );
            options += 1;
        }
    }
    assert!(options > 50, "{options} options");
}

#[test]
fn every_key_of_the_policy_is_in_its_page() {
    let place = TestPrefix::installed();
    if !has("man", "what the manual pages say") {
        return;
    }
    let text = rendered(
        &place,
        &place.prefix.join("share/man/man5/agent-sandbox.toml.5"),
    );
    let policy = fs::read_to_string(root().join("profiles/default.toml")).unwrap();
    let keys: Vec<&str> = policy
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase() || c == '['))
        .map(|line| line.split(" = ").next().unwrap())
        .collect();
    assert!(keys.len() > 20, "{keys:?}");
    for key in keys {
        assert!(
            text.lines().any(|line| line.trim().starts_with(key)),
            "{key} is not in:\n{text}"
        );
    }
    assert!(text.contains("Default: \"tmpfs\""), "{text}");
}

/// A page as somebody reads it, on a wide terminal.
pub(crate) fn rendered(place: &TestPrefix, page: &Path) -> String {
    let mut man = place.command("man");
    man.env("MANWIDTH", "200")
        .args(["--nh", "--nj", "-l"])
        .arg(page);
    Done::of(man).ok().out
}

#[test]
fn pages_have_no_mistakes() {
    let place = TestPrefix::installed();
    if has("man", "warnings of groff about the manual pages") {
        for page in pages(&place) {
            let mut man = place.command("man");
            man.args(["--warnings=w", "-E", "UTF-8", "-Tutf8", "-Z", "-l"])
                .arg(&page);
            let done = Done::of(man).ok();
            assert_eq!(done.err, "", "{}", done.words);
        }
    }
    if has("mandoc", "mistakes in the manual pages that mandoc finds") {
        for page in pages(&place) {
            let mut mandoc = place.command("mandoc");
            mandoc.args(["-T", "lint", "-W", "warning"]).arg(&page);
            let done = Done::of(mandoc);
            // There is no date, so that the same source gives the same page; and clap's generator
            // breaks a line before a paragraph.
            let complaints = done.out.lines().filter(|line| {
                !line.contains("missing date") && !line.contains("skipping paragraph macro: br")
            });
            assert_eq!(complaints.collect::<Vec<_>>(), Vec::<&str>::new());
        }
    }
}

#[test]
fn man_finds_them_where_they_are_installed() {
    let place = TestPrefix::installed();
    if !has("man", "the way of man to the manual pages") {
        return;
    }
    // By the search path of programs alone, as behind `export PATH=~/.local/bin:$PATH`.
    for page in [
        "agent-sandbox",
        "agent-sandbox-explain",
        "agent-sandbox.toml",
        "agent-sandbox-tracer",
    ] {
        let mut man = place.command("man");
        let path = format!(
            "{}:{}",
            place.prefix.join("bin").display(),
            crate::world::PATH
        );
        man.env("PATH", path).args(["-w", page]);
        let found = Done::of(man).ok().out;
        assert!(
            found.starts_with(&*place.prefix.to_string_lossy()),
            "{page}: {found}"
        );
    }
}
