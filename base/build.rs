//! An index of the built-in policy and of the built-in profiles, made when the program is built, so that a launch
//! parses no TOML for them (`src/config/index`).

#![allow(
    clippy::disallowed_methods,
    reason = "a build script: cargo tells it about the target by its environment, and it reads and writes files"
)]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use toml::de::DeTable;

#[path = "src/config/index/format.rs"]
mod format;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/config/index/format.rs");
    built_in()
}

/// Writes the tables that `src/config/built_in.rs` includes: for each file of `profiles` its text
/// and its index, and for each profile the commands that choose it.
fn built_in() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=../profiles");
    let profiles = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../profiles");
    let made = PathBuf::from(env::var("OUT_DIR")?);
    let entry = |name: &str, file: &Path| -> Result<String, Box<dyn Error>> {
        println!("cargo:rerun-if-changed={}", file.display());
        let text = fs::read_to_string(file)?;
        let table =
            DeTable::parse(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        let index = made.join(format!("{name}.index"));
        let nodes = format::write(&text, &table)
            .map_err(|(limit, span)| format!("{}: {limit:?}: {}", file.display(), &text[span]))?;
        fs::write(&index, nodes)?;
        let commands = commands(table.get_ref()).unwrap_or_default();
        Ok(format!(
            "BuiltIn {{ name: {name:?}, file: {:?}, text: include_str!({file:?}), \
             index: include_bytes!({index:?}), commands: &{commands:?} }}",
            match name {
                "default" => "built-in default.toml".to_owned(),
                name => format!("built-in agents/{name}.toml"),
            }
        ))
    };
    let mut agents = Vec::new();
    for file in fs::read_dir(profiles.join("agents"))? {
        agents.push(file?.path());
    }
    agents.sort();
    let mut code = format!(
        "pub(super) const DEFAULT: BuiltIn = {};\npub(super) const PROFILES: &[BuiltIn] = &[\n",
        entry("default", &profiles.join("default.toml"))?
    );
    for file in &agents {
        let name = file.file_stem().and_then(|name| name.to_str());
        code += &entry(name.ok_or("a profile whose name is no text")?, file)?;
        code += ",\n";
    }
    code += "];\npub(crate) const SETS: &[HostSet] = &[\n";
    let mut sets = Vec::new();
    for file in fs::read_dir(profiles.join("network"))? {
        sets.push(file?.path());
    }
    sets.sort();
    for file in &sets {
        code += &host_set(file)?;
    }
    fs::write(made.join("built_in.rs"), code + "];\n")?;
    Ok(())
}

/// A named set of hosts: the file's name, and the hosts in it, each of which says where it is known from.
fn host_set(file: &Path) -> Result<String, Box<dyn Error>> {
    println!("cargo:rerun-if-changed={}", file.display());
    let wrong = |what: &str| format!("{}: {what}", file.display());
    let text = fs::read_to_string(file)?;
    let table = DeTable::parse(&text).map_err(|error| wrong(&error.to_string()))?;
    let hosts = table
        .get_ref()
        .get("host")
        .and_then(|hosts| hosts.get_ref().as_array());
    let mut names = Vec::new();
    for host in hosts.ok_or_else(|| wrong("it has no host"))? {
        let field = |key: &str| {
            host.get_ref()
                .get(key)
                .and_then(|value| value.get_ref().as_str())
        };
        match (field("name"), field("source")) {
            (Some(name), Some(source)) if !source.is_empty() => names.push(name),
            _ => return Err(wrong("a host has a name and a source").into()),
        }
    }
    let name = file.file_stem().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| wrong("a set whose name is no text"))?;
    Ok(format!("({:?}, &{names:?}),\n", format!("@{name}")))
}

/// `profile.commands`.
fn commands<'a>(table: &'a DeTable<'_>) -> Option<Vec<&'a str>> {
    let profile = table.get("profile")?.get_ref().get("commands")?;
    let commands = profile.get_ref().as_array()?.iter();
    commands.map(|one| one.get_ref().as_str()).collect()
}
