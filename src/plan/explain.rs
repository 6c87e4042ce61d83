//! Why a path or a variable is visible, read-only or absent inside.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::env::Verdict;
use super::hides::OfSlurm;
use super::{Access, Mount, Plan, Why, env};
use crate::host::files::{Files, Look, real_as_far_as_it_exists};
use crate::policy::Policy;

/// What the jail makes of a path or variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Readable and writable, on the host.
    Writable,
    /// Readable.
    ReadOnly,
    /// Not there: opening it fails with ENOENT.
    Hidden,
    /// Something of the jail's own stands there.
    Private,
    /// Nothing gives it: opening it fails with ENOENT.
    Absent,
    /// A variable that exists inside as outside.
    Passes,
}

/// The answer to `agent-sandbox explain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// What was asked about.
    pub subject: String,
    /// The path without symbolic links, if it is another.
    pub real: Option<PathBuf>,
    /// Whether it exists outside.
    pub exists: bool,
    /// The verdict.
    pub standing: Standing,
    /// The rule.
    pub why: Why,
    /// How to change it.
    pub change: String,
}

/// Explains a path.
pub fn path(plan: &Plan, files: &dyn Files, asked: &Path, config: &str) -> Explanation {
    let look = files.look(asked);
    let real = match &look {
        Look::Found(found) => found.real.clone(),
        _ => real_as_far_as_it_exists(files, asked),
    };
    let shown = real.display();
    let (standing, why, change) = judge(plan, &real, config, &shown.to_string());
    Explanation {
        subject: asked.display().to_string(),
        real: (real != asked).then_some(real),
        exists: matches!(look, Look::Found(_)),
        standing,
        why,
        change,
    }
}

fn judge(plan: &Plan, real: &Path, config: &str, shown: &str) -> (Standing, Why, String) {
    if let Some(rule) = plan.hidden.rule_for(real) {
        if plan.hidden.is_own(rule) {
            let why = Why::Every("where tasks of your jobs meet");
            let change =
                "it cannot be given: whoever reaches it reaches the jails of your other jobs";
            return (Standing::Hidden, why, change.to_owned());
        }
        if let Some(what) = plan.hidden.of_slurm(rule) {
            let (name, change) = match what {
                OfSlurm::Authority => (
                    "the socket of Slurm's authority",
                    "it cannot be given: whoever reaches it starts jobs outside of every jail",
                ),
                OfSlurm::Spool => (
                    "the directory of Slurm's daemon",
                    "it cannot be given: whoever reaches it signals and attaches to all of your jobs",
                ),
            };
            return (Standing::Hidden, Why::rule(name, rule), change.to_owned());
        }
        let change = format!(
            "if the jail must have it: add `{}` to files.unhide in {config}, and give it with files.read",
            rule.value
        );
        return (Standing::Hidden, Why::rule("files.hide", rule), change);
    }
    let over = plan
        .steps
        .iter()
        .rev()
        .find(|step| real.starts_with(&step.at));
    let give = || {
        let list = if real.starts_with(&plan.home) {
            "home"
        } else {
            "files"
        };
        format!(
            "add `{shown}` to {list}.read or {list}.write in {config}, or use --read / --write for one run"
        )
    };
    let Some(step) = over else {
        return (
            Standing::Absent,
            Why::Every("nothing gives it: the jail shows only what is named"),
            give(),
        );
    };
    let why = step.why.clone();
    match &step.mount {
        _ if is_of_slurm(&why) => (
            Standing::Private,
            why,
            format!(
                "what stands there passes each call on to be checked outside; to switch Slurm off inside: \
                 slurm.mode = \"off\" in {config}, or --set slurm.mode=off"
            ),
        ),
        Mount::Bind {
            access: Access::Write,
            ..
        } => (
            Standing::Writable,
            why,
            format!("to hide it: add `{shown}` to files.hide in {config}, or use --hide"),
        ),
        Mount::Bind {
            access: Access::Read,
            ..
        } => (
            Standing::ReadOnly,
            why,
            format!(
                "to make it writable: add `{shown}` to files.write in {config}, or use --write for one run"
            ),
        ),
        Mount::HideDirectory | Mount::HideFile => (Standing::Hidden, why, give()),
        Mount::Tmpfs { .. } | Mount::Directory { .. } if step.at != real => (
            Standing::Absent,
            Why::Every("nothing gives it: the directory around it is the jail's own"),
            give(),
        ),
        _ => (
            Standing::Private,
            why,
            "this is the same in every jail".to_owned(),
        ),
    }
}

/// Whether something stands where it does because Slurm can be asked from inside.
fn is_of_slurm(why: &Why) -> bool {
    matches!(why, Why::Rule { key, .. } if key == "slurm.mode")
}

/// Explains a variable.
pub fn variable(plan: &Plan, policy: &Policy, name: &OsStr, config: &str) -> Explanation {
    let shown = name.display();
    let inside = plan.variables.iter().find(|variable| variable.name == name);
    let hidden = plan
        .hidden_variables
        .iter()
        .find(|variable| variable.name == name);
    let (standing, why) = match (inside, hidden) {
        (Some(variable), _) => (Standing::Passes, variable.why.clone()),
        (None, Some(variable)) => (Standing::Hidden, variable.why.clone()),
        (None, None) => match env::verdict(&policy.env, name, None) {
            Verdict::Passes(why) => (Standing::Passes, why),
            Verdict::Hidden(why) => (Standing::Hidden, why),
        },
    };
    let change = match standing {
        Standing::Hidden => {
            format!("to pass it: add `{shown}` to env.pass in {config}, or use --env {shown}")
        }
        _ => format!("to hide it: add `{shown}` to env.hide in {config}"),
    };
    Explanation {
        subject: shown.to_string(),
        real: None,
        exists: inside.is_some() || hidden.is_some(),
        standing,
        why,
        change,
    }
}
