//! Where policy files are, and what decides which of them a launch has.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::site::Site;
use super::when::Probe;

/// Where policy files are.
#[derive(Clone, Debug)]
pub struct Locations {
    /// The user's home directory.
    pub home: PathBuf,
    /// The user's own directory for this program, `~/.config/agent-sandbox`.
    pub config_dir: PathBuf,
    /// The site's policy.
    pub site: Site,
}

impl Locations {
    /// A path as a person would write it.
    pub(super) fn shown(&self, path: &Path) -> String {
        match path.strip_prefix(&self.home) {
            Ok(below) if below.as_os_str().is_empty() => "~".to_owned(),
            Ok(below) => format!("~/{}", below.display()),
            Err(_) => path.display().to_string(),
        }
    }
}

/// What decides which layers a launch has.
#[derive(Clone)]
pub struct Request<'a> {
    /// Where to look.
    pub locations: &'a Locations,
    /// The profiles that were asked for by name, in this order.
    pub profiles: &'a [String],
    /// The command, whose name chooses the profile when none was asked for.
    pub command: Option<&'a OsStr>,
    /// The project directory, absolute.
    pub project: Option<&'a Path>,
    /// Whether the project is the path as it is: somebody who asks again, for a launch that was, does not follow links that were put
    /// there meanwhile.
    pub settled: bool,
    /// The `--set` options, as typed.
    pub set: &'a [String],
    /// What the conditions in the site's files are about.
    pub circumstances: Probe<'a>,
}
