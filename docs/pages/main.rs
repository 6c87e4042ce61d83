//! Writes what is installed beside the programs and comes from their own tables: the manual pages
//! and the completions for bash, zsh and fish. `make build` runs it.
//!
//!     cargo run --example pages -- DIRECTORY
//!
//! makes `DIRECTORY/man/man1`, `man5` and `man8`, `DIRECTORY/bash`, `DIRECTORY/zsh` and `DIRECTORY/fish`.

#![allow(
    clippy::disallowed_methods,
    reason = "writes files: that is all it does"
)]

mod completions;
mod manual;
mod markdown;
mod policy;
/// The tracer's command line. The file, not its crate: nothing of ours depends on the tracer.
#[allow(dead_code, unreachable_pub)] // the fields, and who sees them, are the tracer's
#[path = "../../ebpf/tracer/src/cli.rs"]
mod tracer;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The name of the program that all of it is about.
const PROGRAM: &str = "agent-sandbox";

fn main() -> Result<()> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [directory] = arguments.as_slice() else {
        bail!("usage: pages DIRECTORY");
    };
    let command = agent_sandbox::cli::command();
    let mut pages = manual::pages(&command)?;
    pages.push(manual::service(
        tracer::command(),
        command.get_version().unwrap_or_default(),
    )?);
    for (name, text) in pages {
        let section = name.rsplit('.').next().unwrap_or("1");
        write(
            &directory.join("man").join(format!("man{section}")),
            &name,
            &text,
        )?;
    }
    for (shell, name, text) in completions::scripts(&command)? {
        write(&directory.join(shell), &name, &text)?;
    }
    Ok(())
}

fn write(directory: &Path, name: &str, text: &str) -> Result<()> {
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot make `{}`", directory.display()))?;
    let path = directory.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write `{}`", path.display()))
}
