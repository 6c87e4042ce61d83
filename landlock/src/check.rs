//! Landlock's rules and the mediator's access map, checked against the steps that they were made from:
//! they give no more, so that what [`agent_sandbox_base::plan::check`] has found of the steps holds for them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::access::{AccessMap, Permission, Right, Rule};
use agent_sandbox_base::host::HostFacts;
use agent_sandbox_base::plan::check::{DEFECT, is_plain};
use agent_sandbox_base::plan::model::{Access, Mount, Plan, PlanError, persistent};

/// Checks the translation of a plan. `stage` is the session's own directory.
///
/// # Errors
/// Names the path that is given too much: a defect of agent-sandbox, never a mistake of the user's.
pub fn check(
    plan: &Plan,
    (rules, access_map): (&[Rule], &AccessMap),
    host: &HostFacts,
    stage: &Path,
) -> Result<(), PlanError> {
    let shown = Shown::of(plan, rules, host, stage);
    let in_access_map = rules_in_access_map(&shown, rules, access_map);
    in_access_map
        .and_then(|()| access_map_in_steps(&shown, plan, access_map))
        .map_err(|what| {
            let message = format!("refusing an unsafe translation of the plan: {what}");
            PlanError::new(message).hint(DEFECT)
        })
}

/// What the steps of a plan show of the host's files at their own places.
struct Shown<'a> {
    steps: HashMap<&'a Path, &'a Mount>,
    /// Files that the jail has by another name: our own programs, and what is kept or shown below it.
    elsewhere: HashMap<PathBuf, Permission>,
    devices: Vec<&'a Path>,
    join_directories: &'a [PathBuf],
    /// The session's own directory.
    stage: &'a Path,
}

impl<'a> Shown<'a> {
    fn of(plan: &'a Plan, rules: &'a [Rule], host: &'a HostFacts, stage: &'a Path) -> Self {
        let mut elsewhere: HashMap<PathBuf, Permission> = HashMap::new();
        for step in &plan.steps {
            let (from, permission) = match &step.mount {
                Mount::Bind { from, access, .. } if *from != step.at => {
                    (from, permission_of(*access))
                }
                Mount::Kept { from, .. } => (from, Permission::Write),
                _ => continue,
            };
            let known = elsewhere.entry(from.clone()).or_insert(permission);
            *known = permission.max(*known);
        }
        if let Some(store) = &plan.keeping.store {
            elsewhere.insert(persistent::shown_in(store), Permission::Read);
        }
        let devices = rules.iter().filter(|rule| rule.right == Right::Device);
        Self {
            steps: (plan.steps.iter())
                .map(|step| (step.at.as_path(), &step.mount))
                .collect(),
            elsewhere,
            devices: devices.map(Rule::path).collect(),
            join_directories: &host.join_directories,
            stage,
        }
    }

    /// Whether a path is made by this launch.
    fn is_staged(&self, path: &Path) -> bool {
        path != self.stage && path.starts_with(self.stage)
    }

    /// Whether a path is where tasks and sessions meet.
    fn is_closed(&self, path: &Path) -> bool {
        let mut places = self.join_directories.iter();
        path == self.stage || places.any(|place| path.starts_with(place)) && !self.is_staged(path)
    }

    /// Whether one certain file of the host has to stand at a path.
    fn is_hosts(&self, path: &Path) -> bool {
        !self.is_staged(path) && !self.elsewhere.contains_key(path)
    }

    /// The most that may be given at a path.
    fn most(&self, path: &Path) -> Permission {
        if self.is_staged(path) {
            return Permission::Write;
        }
        if self.is_closed(path) {
            return Permission::None;
        }
        let device = path.starts_with("/dev") && self.devices.contains(&path);
        let elsewhere = match device {
            true => Permission::Write,
            false => self
                .elsewhere
                .get(path)
                .copied()
                .unwrap_or(Permission::None),
        };
        let mut above = path.ancestors().filter_map(|above| {
            Some(match (above, self.steps.get(above)?) {
                (at, Mount::Bind { from, access, .. }) if from == at => permission_of(*access),
                (_, Mount::Proc) => Permission::Read,
                // Rules put nothing over a file: the host's own stays in sight.
                (
                    _,
                    Mount::Bind { .. }
                    | Mount::Link { .. }
                    | Mount::File { .. }
                    | Mount::Program { .. }
                    | Mount::Copy { .. }
                    | Mount::Device { .. },
                ) => return None,
                _ => Permission::None,
            })
        });
        above.next().unwrap_or(Permission::None).max(elsewhere)
    }
}

/// Each rule is about one certain file, and gives no more than the access map does there and below.
fn rules_in_access_map(
    shown: &Shown<'_>,
    rules: &[Rule],
    access_map: &AccessMap,
) -> Result<(), String> {
    let by_path: HashMap<&Path, &Rule> = rules.iter().map(|rule| (rule.path(), rule)).collect();
    let given = |path: &Path| {
        let above = path.ancestors().filter_map(|above| by_path.get(above));
        above.map(|rule| permission_by(rule.right)).max()
    };
    for rule in rules {
        let (path, at) = (rule.path(), rule.path().display());
        if !is_plain(path) || path.parent().is_none() {
            return Err(format!("a rule on `{at}`"));
        }
        if shown.is_hosts(path) && rule.id.is_none() {
            return Err(format!("the rule on `{at}` is not about one certain file"));
        }
    }
    let entries = access_map.entries().iter().map(|entry| entry.path());
    for path in rules.iter().map(Rule::path).chain(entries) {
        let most = match access_map.permission(path) {
            // What is made there is given by the mediator, thing by thing.
            Permission::Own => Permission::None,
            permission => permission,
        };
        if given(path).is_some_and(|given| given > most) {
            return Err(format!("a rule opens `{}`", path.display()));
        }
    }
    Ok(())
}

/// The access map gives no more than the steps show. Between the places of steps and entries neither
/// changes.
fn access_map_in_steps(
    shown: &Shown<'_>,
    plan: &Plan,
    access_map: &AccessMap,
) -> Result<(), String> {
    let places = plan.steps.iter().map(|step| step.at.as_path());
    let entries = access_map.entries().iter().map(|entry| entry.path());
    for path in places.chain(entries) {
        let (given, most) = (access_map.permission(path), shown.most(path));
        // Of directories that there is one of for all, the jail has what it made there.
        let own = given == Permission::Own && !shown.is_closed(path);
        if given > most && !own {
            let path = path.display();
            return Err(format!("`{path}` is {given:?}, not {most:?}"));
        }
    }
    Ok(())
}

fn permission_of(access: Access) -> Permission {
    match access {
        Access::Read => Permission::Read,
        Access::Write => Permission::Write,
    }
}

fn permission_by(right: Right) -> Permission {
    match right {
        Right::Read | Right::ReadFiles => Permission::Read,
        Right::Write | Right::Device => Permission::Write,
    }
}
