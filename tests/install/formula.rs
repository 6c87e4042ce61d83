//! The Homebrew formula. Homebrew is not here: a stand-in of the part of its language that the formula
//! uses carries out `install` and `test`, with the real make.

use std::fs;

use crate::world::{Done, TestPrefix, built, has, not_checked, root, version};

#[test]
fn the_formula_installs_and_tests_what_it_installed() {
    not_checked(
        "the formula under Homebrew itself (brew audit, style, install, test)",
        "Homebrew is not installed; tests/install/formula.rb stands in for its language",
    );
    if !has("ruby", "the formula") {
        return;
    }
    let formula = root().join("Formula/agent-sandbox.rb");
    let place = TestPrefix::new();
    let mut check = place.command("ruby");
    check.args(["-wc"]).arg(&formula);
    let done = Done::of(check).ok().says("Syntax OK");
    assert_eq!(done.err, "", "{done}");
    let mut ruby = place.command("ruby");
    ruby.arg("-w")
        .arg(root().join("tests/install/formula.rb"))
        .args([&formula, &place.prefix, &place.home])
        .current_dir(root())
        // What is built is taken, and cargo must not be asked.
        .env("CARGO", "false")
        .env("PROFILE", "debug")
        .env("CARGO_TARGET_DIR", built());
    let done = Done::of(ruby).ok();
    assert_eq!(done.err, "", "{done}");
    let done = done
        .says("depends on: rust (build)")
        .says("tested: ")
        .says("/etc/agent-sandbox");
    for file in [
        "bin/agent-sandbox",
        "libexec/agent-sandbox/agent-sandbox-chaperon",
        "share/man/man1/agent-sandbox.1",
        "etc/bash_completion.d/agent-sandbox",
        "share/zsh/site-functions/_agent-sandbox",
        "share/fish/vendor_completions.d/agent-sandbox.fish",
    ] {
        assert!(place.prefix.join(file).is_file(), "{file}: {done}");
    }
}

#[test]
fn the_formula_is_of_this_version() {
    let text = fs::read_to_string(root().join("Formula/agent-sandbox.rb")).unwrap();
    assert!(text.contains(&format!("tag: \"v{}\"", version())), "{text}");
    let cargo = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    for key in ["repository", "license"] {
        let line = cargo
            .lines()
            .find(|line| line.starts_with(&format!("{key} = \"")))
            .unwrap();
        let value = line.split('"').nth(1).unwrap();
        assert!(
            text.contains(value),
            "{key} = {value} is not in the formula"
        );
    }
}
