//! `[modules] load`: Lmod changes the environment before the launch, as `module load` does in the
//! user's own shell. It runs outside the jail, before the environment is filtered.
//!
//! Lmod prints shell code (<https://lmod.readthedocs.io>, "How Lmod works"), so a shell has to
//! evaluate it; the shell then prints the environment that came out.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::config::source::Sourced;
use crate::env_vars;

/// Where Lmod's program stands when the shell was not initialised for it.
const USUAL_PLACES: [&str; 4] = [
    "/usr/share/lmod/lmod/libexec/lmod",
    "/opt/ohpc/admin/lmod/lmod/libexec/lmod",
    "/opt/apps/lmod/lmod/libexec/lmod",
    "/usr/local/lmod/lmod/libexec/lmod",
];

/// How the message begins that modules are to be loaded and nothing can.
pub const NEEDED: &str = "modules.load needs Lmod";

/// What the shell runs: names come as arguments, never as text of the script.
const SCRIPT: &str = r#"
lmod=$1; shift
code=$("$lmod" bash load "$@") || exit 1
eval "$code" || exit 1
exec /usr/bin/env -0
"#;

/// The environment after the modules are loaded.
///
/// # Errors
/// Lmod is not there, or a module could not be loaded, with Lmod's own words.
pub fn load(
    modules: &[Sourced<String>],
    before: &[(OsString, OsString)],
) -> Result<Vec<(OsString, OsString)>> {
    let lmod = find(before).with_context(|| format!("{NEEDED}, and Lmod was not found"))?;
    let mut environment = before.to_vec();
    for (name, value) in &mut environment {
        // The evaluating shell must not take a program or a library from the current directory, which is the
        // project. Inside the jail such entries count for nothing either.
        if name == env_vars::PATH || name == env_vars::LD_LIBRARY_PATH {
            *value = absolute_entries(value);
        }
    }
    // One at a time: the error then belongs to one module and its line.
    for module in modules {
        environment = load_one(&lmod, module, &environment)?;
    }
    Ok(environment)
}

/// The entries of a search path that begin with a slash.
fn absolute_entries(path: &OsStr) -> OsString {
    let entries = path.as_bytes().split(|&byte| byte == b':');
    let absolute: Vec<&[u8]> = entries.filter(|entry| entry.starts_with(b"/")).collect();
    OsString::from_vec(absolute.join(&b':'))
}

/// Lmod's program: the one that the shell was initialised for, else one at a usual place.
pub fn find(environment: &[(OsString, OsString)]) -> Option<PathBuf> {
    let named = environment
        .iter()
        .find(|(name, _)| name == env_vars::LMOD_CMD)
        .map(|(_, value)| PathBuf::from(value));
    named
        .into_iter()
        .chain(USUAL_PLACES.iter().map(PathBuf::from))
        .find(|path| path.is_absolute() && path.is_file())
}

fn load_one(
    lmod: &Path,
    module: &Sourced<String>,
    before: &[(OsString, OsString)],
) -> Result<Vec<(OsString, OsString)>> {
    let output = Command::new("/bin/bash")
        .args(["--noprofile", "--norc", "-c", SCRIPT, "agent-sandbox"])
        .arg(lmod)
        .arg(&module.value)
        .env_clear()
        .envs(before.iter().map(|(name, value)| (name, value)))
        .env_remove("BASH_ENV")
        .stdin(Stdio::null())
        .output()
        .context("cannot start /bin/bash to load modules")?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!(
            "module `{}` ({}) could not be loaded: {}",
            module.value,
            module.source,
            first_lines(&words)
        );
    }
    Ok(parse(&output.stdout))
}

/// Lmod's message without the advice that follows it.
fn first_lines(words: &str) -> String {
    let lines: Vec<&str> = words
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .take(3)
        .collect();
    if lines.is_empty() {
        "Lmod gave no reason".to_owned()
    } else {
        lines.join(" ")
    }
}

/// The output of `env -0`, less what the evaluating shell itself set.
fn parse(text: &[u8]) -> Vec<(OsString, OsString)> {
    text.split(|&byte| byte == 0)
        .filter_map(|entry| {
            let at = entry.iter().position(|&byte| byte == b'=')?;
            let (name, value) = (OsStr::from_bytes(&entry[..at]), &entry[at + 1..]);
            (name != "_" && name != "SHLVL")
                .then(|| (name.to_owned(), OsString::from_vec(value.to_vec())))
        })
        .collect()
}
