//! What helps where a command exists outside and the jail does not show it: the directories that have to be
//! readable for it to run, which are more than the one that it stands in. A name in the search path is often a
//! link into a package, which needs the rest of the package; and a script needs its interpreter.

#![allow(
    clippy::disallowed_methods,
    reason = "an effect module: it looks where a command stands outside"
)]

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::prepared::Prepared;
use crate::cli::Options;
use crate::env_vars;
use crate::plan::Plan;
use crate::plan::explain::change::{Ways, shell_word};
use crate::plan::explain::{self, Visibility};
use crate::policy::paths::quote;

/// Symbolic links of which the last part of a path may lead through (`MAXSYMLINKS`, path_resolution(7)).
const MOST_LINKS: usize = 40;
/// What of a script is read for its first line, in bytes (`BINPRM_BUF_SIZE`, execve(2)).
const LONGEST_LINE: u64 = 256;
/// What stands beside `bin` where the programs in it are installed with what they need.
const BESIDE_BIN: [&str; 4] = ["lib", "lib64", "libexec", "share"];

/// Ways to a command that was not found inside, a sentence each; none if it is not there outside.
pub fn hints(options: &Options, command: &OsStr) -> Vec<String> {
    let Some(found) = outside(command) else {
        return Vec::new();
    };
    let real = std::fs::canonicalize(&found).unwrap_or_else(|_| found.clone());
    let mut hints = vec![format!(
        "it exists outside, as `{}`, and the jail does not show it",
        real.display()
    )];
    let more = super::prepare::prepare(options, &[command.to_owned()])
        .and_then(|prepared| missing(&prepared, &found));
    match more {
        Ok(more) if !more.is_empty() => hints.extend(more),
        _ => hints.push(format!(
            "`agent-sandbox explain {}` says more",
            shell_word(&real.display().to_string())
        )),
    }
    hints
}

/// Where the command stands outside, by the name by which it is found.
fn outside(command: &OsStr) -> Option<PathBuf> {
    if command.is_empty() {
        return None;
    }
    if command.as_bytes().contains(&b'/') {
        let path = super::options::current_directory().ok()?.join(command);
        return path.exists().then(|| super::options::normal(&path));
    }
    let search = std::env::var_os(env_vars::PATH)?;
    let found = std::env::split_paths(&search).map(|directory| directory.join(command));
    found
        .filter(|path| path.is_absolute())
        .find(|path| path.exists())
}

/// What of all that the program needs the jail does not show, and how it would.
fn missing(prepared: &Prepared, found: &Path) -> Result<Vec<String>> {
    let plan = prepared.plan()?;
    let ways = Ways {
        policy: &prepared.policy,
        config: &prepared.config,
        places: Some((&plan.site_bounds, &prepared.files)),
    };
    let home = &prepared.host.home;
    let (mut refused, mut reads) = (Vec::new(), Vec::new());
    for directory in needed(&plan, prepared, found) {
        let answer = explain::path(&plan, &prepared.files, &directory, &ways);
        match answer.verdict {
            Visibility::ReadOnly | Visibility::Writable => {}
            Visibility::Absent | Visibility::Private if answer.change.possible => {
                reads.push(directory)
            }
            _ => refused.push(format!("`{}`: {}", directory.display(), answer.change.text)),
        }
    }
    if !refused.is_empty() || reads.is_empty() {
        return Ok(refused);
    }
    let options = reads
        .iter()
        .map(|at| format!("--read {}", shell_word(&at.display().to_string())));
    let options: Vec<String> = options.collect();
    let entries = |list: &str, in_home: bool| {
        let own = reads.iter().filter(|at| at.starts_with(home) == in_home);
        let names = own.map(|at| match at.strip_prefix(home) {
            Ok(below) => quote(&Path::new("~").join(below).display().to_string()),
            Err(_) => quote(&at.display().to_string()),
        });
        let names: Vec<String> = names.collect();
        (!names.is_empty()).then(|| format!("{} to {list}", names.join(", ")))
    };
    let lists = [entries("home.read", true), entries("files.read", false)];
    let lists: Vec<String> = lists.into_iter().flatten().collect();
    Ok(vec![format!(
        "{} shows it for one run; for good: add {} in {}",
        options.join(" "),
        lists.join(", and "),
        prepared.config
    )])
}

/// The directories that the program needs, none within another.
fn needed(plan: &Plan, prepared: &Prepared, found: &Path) -> Vec<PathBuf> {
    let home = &prepared.host.home;
    let mut programs = vec![found.to_owned()];
    programs.extend(interpreter(found));
    let mut all: Vec<PathBuf> = Vec::new();
    for program in programs {
        let steps = way(&program);
        let last = steps.len().saturating_sub(1);
        for (number, step) in steps.iter().enumerate() {
            let own = step.parent().unwrap_or(Path::new("/")).to_owned();
            // A link needs its directory alone, and so does what is there already.
            let whole = number == last && !(in_place(plan, &own) && package(step).is_none());
            let root = match whole {
                true => package(step).or_else(|| prefix(&own, home)).unwrap_or(own),
                false => package(step).unwrap_or(own),
            };
            all.push(root);
        }
    }
    all.retain(|root| !home.starts_with(root));
    all.sort_unstable();
    all.dedup_by(|next, before| next.starts_with(before));
    all
}

/// Whether a bind of the host's is what the jail has at a directory.
fn in_place(plan: &Plan, directory: &Path) -> bool {
    let over = plan.steps.iter().rev();
    let mut around = over.filter(|step| directory.starts_with(&step.at));
    around
        .next()
        .is_some_and(|step| matches!(step.mount, crate::plan::Mount::Bind { .. }))
}

/// The program and what its last name leads through: the first as it is named, the others by their real
/// directories.
fn way(program: &Path) -> Vec<PathBuf> {
    let mut all = vec![program.to_owned()];
    let mut at = program.to_owned();
    for _ in 0..MOST_LINKS {
        let (Ok(target), Some(parent)) = (std::fs::read_link(&at), at.parent()) else {
            break;
        };
        let next = parent.join(target);
        let (Some(parent), Some(name)) = (next.parent(), next.file_name()) else {
            break;
        };
        let Ok(real) = std::fs::canonicalize(parent) else {
            break;
        };
        at = real.join(name);
        all.push(at.clone());
    }
    all
}

/// The package that a file is of: all packages that were installed with it, or its virtual environment.
fn package(file: &Path) -> Option<PathBuf> {
    let above: Vec<&Path> = file.ancestors().skip(1).collect();
    let modules = above.iter().rev();
    let mut modules = modules.filter(|at| at.file_name() == Some(OsStr::new("node_modules")));
    if let Some(modules) = modules.next() {
        return Some((*modules).to_owned());
    }
    let environment = above.get(1)?;
    let is_one = environment.join("pyvenv.cfg").exists();
    is_one.then(|| (*environment).to_owned())
}

/// What was installed together with the programs in a directory `bin`.
fn prefix(bin: &Path, home: &Path) -> Option<PathBuf> {
    let above = bin
        .parent()
        .filter(|_| bin.file_name() == Some(OsStr::new("bin")))?;
    let one = BESIDE_BIN.iter().any(|name| above.join(name).is_dir());
    (one && !home.starts_with(above)).then(|| above.to_owned())
}

/// What runs a script, if it is one.
fn interpreter(program: &Path) -> Option<PathBuf> {
    let mut head = Vec::new();
    let file = std::fs::File::open(program).ok()?;
    file.take(LONGEST_LINE).read_to_end(&mut head).ok()?;
    let line = head
        .strip_prefix(b"#!")?
        .split(|&byte| byte == b'\n')
        .next()?;
    let mut words = line
        .split(|&byte| byte == b' ' || byte == b'\t')
        .filter(|word| !word.is_empty());
    let first = OsStr::from_bytes(words.next()?);
    if Path::new(first).file_name() != Some(OsStr::new("env")) {
        return outside(first);
    }
    let name = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='))?;
    outside(&OsString::from(OsStr::from_bytes(name)))
}
