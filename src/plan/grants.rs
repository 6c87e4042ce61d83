//! The plan for a jail that Landlock makes: from the steps of a [`Plan`] to the rules that the kernel
//! keeps and the territory by which the mediator decides. Pure but for the questions that it asks
//! through [`Files`].

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{Plan, PlanError};
use crate::fence::{Charge, HandedOver, Rule};
use crate::host::HostFacts;
use crate::host::files::Files;

/// Something in the session's own directory, which stands for what a mount would show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staged {
    /// Its place below the session's directory.
    pub at: PathBuf,
    /// What it is.
    pub what: Thing,
}

/// What is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thing {
    /// A directory with this mode.
    Directory(u32),
    /// A symbolic link to this.
    Link(PathBuf),
    /// A file with this mode and content.
    File(u32, Vec<u8>),
}

/// A plan that Landlock and the mediator can carry out.
#[derive(Clone, Debug)]
pub struct Fenced {
    /// The plan: environment, filter and weaknesses as they are under Landlock.
    pub plan: Plan,
    /// Landlock's rules for the command.
    pub rules: Vec<Rule>,
    /// What the mediator is told.
    pub charge: Charge,
    /// Which calls are handed over to it.
    pub handed_over: HandedOver,
    /// What is made in the session's directory, parents first.
    pub staged: Vec<Staged>,
    /// Where the socket to the chaperon is made, if there is one.
    pub socket: Option<PathBuf>,
    /// The kernel's Landlock ABI.
    pub abi: i32,
}

/// Translates a plan.
///
/// `stage` is the session's own directory, of which nothing exists yet.
///
/// # Errors
/// Landlock cannot give what the policy demands, and the policy does not say that less will do; or
/// it would need more rules than there may be.
pub fn translate(
    _plan: Plan,
    _host: &HostFacts,
    _files: &dyn Files,
    _stage: &Path,
    _terminals: &[OsString],
) -> Result<Fenced, PlanError> {
    Err(PlanError::new("not there yet"))
}
