//! What options of the command line and the environment mean for a launch.

use crate::cli::Options;
use crate::config::load::Locations;
use crate::config::site::Site;
use crate::config::source::{Source, Sourced};
use crate::env_vars;
use crate::host::{self};
use crate::policy::PathSpec;
use crate::policy::merge::{Additions, HOME_MODES};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// The directories in which policy files stand.
///
/// # Errors
/// There is no home directory.
pub fn locations() -> Result<Locations> {
    let (home, directories) = host::directories(None)?;
    Ok(Locations {
        home,
        config_dir: directories.config,
        site: Site::of_this_build(),
    })
}

/// The current directory by the name that the user knows, if that is true.
///
/// # Errors
/// It does not exist any more.
pub fn current_directory() -> Result<PathBuf> {
    let real = std::env::current_dir()
        .context("the current directory cannot be found; does it still exist?")?;
    let Some(named) = std::env::var_os(env_vars::PWD).map(PathBuf::from) else {
        return Ok(real);
    };
    let same = named.is_absolute() && std::fs::canonicalize(&named).is_ok_and(|path| path == real);
    Ok(if same { named } else { real })
}

pub(super) fn absolute(cwd: &Path, path: &Path) -> PathBuf {
    cwd.join(path)
}

/// Options of the command line as parts of the policy.
pub(super) fn additions(options: &Options, cwd: &Path) -> Result<Additions> {
    let paths = |name: &'static str, given: &[PathBuf]| -> Result<Vec<Sourced<PathSpec>>> {
        let each = given.iter().map(|path| {
            let whole = normal(&absolute(cwd, path));
            let spec = PathSpec::absolute(&whole)
                .map_err(|why| anyhow::anyhow!("{name} `{}` {why}", path.display()))?;
            Ok(Sourced::new(spec, Source::option(name)))
        });
        each.collect()
    };
    let mut all = Additions {
        read: paths("--read", &options.read)?,
        write: paths("--write", &options.write)?,
        hide: paths("--hide", &options.hide)?,
        ..Additions::default()
    };
    for given in &options.env {
        let Some(text) = given.to_str() else {
            bail!("--env `{}` is not UTF-8", given.display())
        };
        let source = Source::option("--env");
        match text.split_once('=') {
            Some(("", _)) | None if text.is_empty() || text.starts_with('=') => {
                bail!("--env `{text}` names no variable")
            }
            Some((name, value)) => all
                .set
                .push(Sourced::new((name.to_owned(), value.to_owned()), source)),
            None => all.pass.push(Sourced::new(text.to_owned(), source)),
        }
    }
    if let Some(given) = &options.home {
        let Some((_, mode)) = HOME_MODES.iter().find(|(word, _)| word == given) else {
            let words: Vec<&str> = HOME_MODES.iter().map(|(word, _)| *word).collect();
            bail!("--home `{given}` is none of: {}", words.join(", "));
        };
        all.home = Some(Sourced::new(*mode, Source::option("--home")));
    }
    Ok(all)
}

/// Works `.` and `..` off in the text, as shells do for `cd`.
pub fn normal(path: &Path) -> PathBuf {
    let mut all = PathBuf::from("/");
    for component in path.components() {
        match component {
            std::path::Component::Normal(name) => all.push(name),
            std::path::Component::ParentDir => {
                all.pop();
            }
            _ => {}
        }
    }
    all
}
