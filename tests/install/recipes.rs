//! What builds packages elsewhere: recipes for Spack and EasyBuild, and the workflow of a release. What can be said of them without
//! making a package; `make packages` makes them all.

use std::fs;
use std::process::Command;

use crate::world::{Done, TestPrefix, built, has, not_checked, root};

fn recipe(place: &TestPrefix, words: &[&str]) -> Command {
    let mut python = place.command("python3");
    python
        .arg(root().join("tests/install/spack.py"))
        .args(words)
        .current_dir(root())
        // What is built is taken, and cargo must not be asked.
        .env("CARGO", "false")
        .env("PROFILE", "debug")
        .env("CARGO_TARGET_DIR", built());
    python
}

#[test]
fn the_recipe_for_spack_builds_and_installs() {
    not_checked(
        "the recipe under Spack itself (spack audit, install, test)",
        "Spack is in no registry of packages; tests/install/spack.py stands in for its language",
    );
    if !has("python3", "the recipe for Spack") {
        return;
    }
    let place = TestPrefix::new();
    let prefix = place.prefix.display().to_string();
    let words = ["spack", "packaging/spack/package.py", &prefix];
    let done = Done::of(recipe(&place, &words)).ok();
    let toolchain = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let toolchain: toml::Table = toolchain.parse().unwrap();
    let rust = toolchain["workspace"]["package"]["rust-version"]
        .as_str()
        .unwrap();
    done.says(&format!("depends on: c, gmake, rust@{rust}:"));
}

#[test]
fn the_recipe_for_easybuild_names_what_is_installed() {
    if !has("python3", "the recipe for EasyBuild") {
        return;
    }
    let place = TestPrefix::installed();
    let done = Done::of(recipe(
        &place,
        &["easybuild", "packaging/easybuild/agent-sandbox.eb"],
    ));
    let done = done.ok().says("needs: bin/agent-sandbox");
    let named: Vec<&str> = done.out.split_whitespace().skip(1).collect();
    for file in &named {
        assert!(place.prefix.join(file).is_file(), "{file}: {done}");
    }
    for program in fs::read_dir(place.prefix.join("libexec/agent-sandbox")).unwrap() {
        let program = program.unwrap();
        let name = format!(
            "libexec/agent-sandbox/{}",
            program.file_name().to_string_lossy()
        );
        assert!(
            program.path().is_dir() || named.contains(&name.as_str()),
            "{name}: {done}"
        );
    }
}

/// What a step runs is a target of make, a script of ours, or a command of the machine that runs it.
#[test]
fn the_workflow_of_a_release_runs_what_is_here() {
    if !has("ruby", "the workflow of a release, which ruby reads") {
        return;
    }
    let place = TestPrefix::new();
    let mut ruby = place.command("ruby");
    ruby.args(["-ryaml", "-rjson", "-e"])
        .arg("puts JSON.dump(YAML.safe_load(File.read(ARGV[0])))")
        .arg(root().join(".github/workflows/release.yml"));
    let done = Done::of(ruby).ok();
    let workflow: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    // YAML 1.1 takes a bare `on` for a boolean.
    assert!(workflow["true"]["push"]["tags"].is_array(), "{done}");
    assert_eq!(workflow["permissions"]["contents"], "read", "{done}");
    let targets = fs::read_to_string(root().join("Makefile")).unwrap();
    let mut run = 0;
    for (name, job) in workflow["jobs"].as_object().unwrap() {
        for step in job["steps"].as_array().unwrap() {
            let Some(script) = step["run"].as_str() else {
                assert!(step["uses"].is_string(), "{name}: {step}");
                continue;
            };
            run += 1;
            let mut bash = place.command("bash");
            bash.args(["-n", "-c", script]);
            Done::of(bash).ok();
            let words: Vec<&str> = script.split_whitespace().collect();
            for pair in words.windows(2) {
                if pair[0] == "make" {
                    let target = format!("\n{}: ## ", pair[1]);
                    assert!(targets.contains(&target), "make has no {}", pair[1]);
                }
            }
            for word in words.iter().filter(|word| word.starts_with("packaging/")) {
                assert!(root().join(word).is_file(), "{word} is not there");
            }
        }
    }
    assert!(run >= 4, "{done}");
}

/// Each release is made by the same scripts, which read one version.
#[test]
fn a_tag_is_of_the_version_that_is_here_or_refused() {
    let place = TestPrefix::new();
    let mut tagged = place.command(root().join("packaging/tagged"));
    tagged.arg("v99.0.0").env("SOURCE_DATE_EPOCH", "0");
    Done::of(tagged).fails("the tag is v99.0.0, and Cargo.toml has ");
}
