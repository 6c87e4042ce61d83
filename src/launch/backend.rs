//! What makes a jail, behind one trait: bubblewrap ([`super::bubblewrap`]) or Landlock with a mediator
//! ([`super::landlock`]). Which of them makes the jail of a launch is chosen in [`super::choice`], and nothing else names one
//! of them in order to start a command.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::Value;

use super::prepared::Prepared;
use super::start_messages;
use super::supervisor::{Company, Outcome};
use crate::backend::missing::MissingFeature;
use crate::failure::Failure;
use crate::handoff::Run;
use crate::plan::{Plan, PlanError};

/// What makes jails.
pub trait Backend {
    /// The word by which options and answers call it.
    fn word(&self) -> &'static str;

    /// Its name in a sentence.
    fn name(&self) -> &'static str;

    /// Whether the tasks of a job on one node share a jail of it (`crate::share`). Else each task has one of its own.
    fn is_shared(&self) -> bool;

    /// Every feature that a jail of it may lack; empty: none ever is.
    fn may_lack(&self) -> Vec<MissingFeature>;

    /// The features that the jail of this launch would lack; also of one from a directory that could be no project.
    ///
    /// # Errors
    /// It cannot make a jail here; somebody requires a feature that it lacks.
    fn missing(&self, prepared: &Prepared) -> Result<Vec<MissingFeature>>;

    /// The jail as it would be, for who only asks. `instead` is why the other backend does not make it, if nobody asked
    /// for this one.
    ///
    /// # Errors
    /// As [`Backend::prepare`].
    fn planned(&self, prepared: &Prepared, instead: Option<&Reason>) -> Result<Planned>;

    /// Makes everything ready: plans, and makes what the jail needs. `instead` as for [`Backend::planned`].
    ///
    /// # Errors
    /// It cannot make a jail here; somebody requires a feature that it lacks; something that the jail needs cannot be
    /// made.
    fn prepare(&self, prepared: &mut Prepared, instead: Option<&Reason>) -> Result<Box<dyn Ready>>;
}

/// A jail that is about to be started.
pub trait Ready {
    /// Its plan.
    fn plan(&self) -> &Plan;

    /// Where the private home stands.
    fn home(&self) -> PathBuf;

    /// Where something is that the plan has at `inside`.
    fn real(&self, inside: &Path) -> PathBuf;

    /// A directory outside in which every jail makes files of its own.
    fn shared(&self) -> Option<&Path> {
        None
    }

    /// That it lacks features of a full jail; with `verbose` also why, and each of them. Empty: it lacks none.
    fn weaker(&self, verbose: bool) -> String;

    /// What the user is told of the jail, or could have been with `--quiet`, a line each: a job of the session does not
    /// repeat it.
    fn told(&self) -> Vec<String> {
        let weaker = Some(self.weaker(false)).filter(|line| !line.is_empty());
        let shortcomings = start_messages::shortcomings(self.plan(), false);
        weaker.into_iter().chain(shortcomings).collect()
    }

    /// Starts the command. What of `run` depends on the backend is set here.
    ///
    /// # Errors
    /// What keeps it from being started.
    fn start(self: Box<Self>, run: Run, company: &mut Company) -> Result<Box<dyn Running>>;
}

/// A jail that runs.
pub trait Running {
    /// Waits until the jail is over, and ends whatever is left of it.
    ///
    /// # Errors
    /// What keeps the launcher from standing by it; or it ended before the command was started.
    fn supervise(self: Box<Self>, company: &mut Company) -> Result<Outcome>;
}

/// A jail as it would be.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Its plan.
    pub plan: Plan,
    /// What the backend has to say beside the plan, for a program.
    pub parts: Vec<(&'static str, Value)>,
    /// The same for a person.
    pub text: String,
}

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

/// The error of a launch, with why the other backend does not make its jail.
pub fn with_reason(error: anyhow::Error, instead: Option<&Reason>) -> anyhow::Error {
    match instead {
        Some(reason) => reason.and(&error),
        None => error,
    }
}
