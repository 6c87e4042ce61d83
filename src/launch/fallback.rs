//! Whether bubblewrap cannot work on this node, found by trying, so that Landlock has to do.

use std::path::Path;
use std::process::{Command, Stdio};

use super::{bubblewrap, diagnose};
use crate::failure::Failure;
use crate::host;
use crate::plan::PlanError;

/// What every jail of bubblewrap's is made of. Where this does not work none will; where it does,
/// whatever went wrong is about one jail, and said.
const TRIAL: [&str; 13] = [
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--die-with-parent",
    "--ro-bind",
    "/",
    "/",
    "--tmpfs",
    "/tmp",
    "--proc",
    "/proc",
    "--",
];
/// The same of one that has all options.
const TRIAL_OF_LATER: [&str; 1] = ["--disable-userns"];

/// Why bubblewrap cannot work here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// A sentence without a full stop.
    pub what: String,
    /// Ways out, a sentence each.
    pub hints: Vec<String>,
}

impl Reason {
    /// It is not installed, or cannot be trusted.
    pub fn missing(error: &anyhow::Error) -> Self {
        let hints = error
            .downcast_ref::<Failure>()
            .map(|failure| failure.hints.clone());
        Self {
            what: format!("{error:#}"),
            hints: hints.unwrap_or_default(),
        }
    }

    /// Why it builds no jail at all, by trying; `None`: it does, and what it said before is about the
    /// jail that it was asked for.
    pub fn found(bwrap: &Path) -> Option<Self> {
        let words = attempt(bwrap).err()?;
        let cause = diagnose::cause(&words, &diagnose::findings());
        Some(Self {
            what: cause.what,
            hints: vec![format!("admin: {}", cause.admin)],
        })
    }

    /// The same, wherever it stands, if it does.
    pub fn tried() -> Option<Self> {
        match bubblewrap::find() {
            Err(error) => Some(Self::missing(&error)),
            Ok(bwrap) => Self::found(&bwrap),
        }
    }

    /// The error of a launch that needs Landlock for this reason, and cannot have it either.
    pub fn and(&self, error: &anyhow::Error) -> anyhow::Error {
        let mut failure = Failure::new(format!(
            "bubblewrap cannot work here ({}), and Landlock cannot make the jail: {error:#}",
            self.what
        ));
        failure.hints.clone_from(&self.hints);
        for cause in error.chain() {
            if let Some(inner) = cause.downcast_ref::<Failure>() {
                failure.hints.extend(inner.hints.iter().cloned());
            }
            let hint = cause.downcast_ref().and_then(PlanError::hint_text);
            failure.hints.extend(hint.map(str::to_owned));
        }
        failure.into()
    }

    /// What is said before the command starts, with `--verbose`.
    pub fn line(&self) -> String {
        format!(
            "agent-sandbox: bubblewrap cannot work here ({}); Landlock is the jail\n",
            self.what
        )
    }
}

/// Has bubblewrap build a jail, in which nothing happens.
///
/// # Errors
/// Its own words.
fn attempt(bwrap: &Path) -> Result<(), String> {
    // Without it nothing could have been tried before.
    let Ok(program) = host::executable() else {
        return Ok(());
    };
    let has_all = host::bubblewrap::lacks(bwrap).is_empty();
    let later = TRIAL_OF_LATER.iter().filter(|_| has_all);
    let output = Command::new(bwrap)
        .args(later)
        .args(TRIAL)
        .arg(program)
        .arg("--version")
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start `{}`: {error}", bwrap.display()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}
