//! "To change this: …": the key, the user's file, the option for one run; that nothing changes it; or
//! that the site forbids it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;

use crate::config::source::{Layer, Source, Sourced};
use crate::host::files::Files;
use crate::plan::model::bounds::{Refusing, SiteBounds};
use crate::plan::model::{Access, Why};
use crate::policy::clamp::Single;
use crate::policy::paths::quote;
use crate::policy::stated::{SlurmBounds, Stated};
use crate::policy::values::Limit;
use crate::policy::{PathSpec, Policy};

/// How to get another verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What to do, or that nothing can be done.
    #[serde(rename = "change")]
    pub text: String,
    /// Whether something can be done by the user.
    pub possible: bool,
    /// The key and the place of the site's that forbid it.
    #[serde(rename = "forbidden_by")]
    pub site: Option<String>,
}

impl Change {
    /// This does it.
    pub fn by(text: String) -> Self {
        Self {
            text,
            possible: true,
            site: None,
        }
    }

    /// Nothing does; the reason.
    pub fn never(reason: impl Into<String>) -> Self {
        Self {
            text: reason.into(),
            possible: false,
            site: None,
        }
    }

    /// The site forbids it by a key of its enforced policy.
    pub fn forbidden(key: &str, source: &Source) -> Self {
        Self {
            text: format!("the site forbids it: {key} ({source}); ask your administrators"),
            possible: false,
            site: Some(format!("{key} ({source})")),
        }
    }
}

/// Something that the user's policy would have to do.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// Give this real path.
    Give(&'a Path, Access),
    /// Make an exception from this rule of `files.hide`, which hides this real path.
    Unhide(&'a Sourced<PathSpec>, &'a Path),
    /// Pass a variable, which this hides.
    Pass(&'a OsStr, &'a Why),
    /// Set a variable otherwise, which this sets.
    Set(&'a Why),
    /// Show a device node.
    Device(&'a Path),
    /// Widen the value of this key.
    Key(&'a str),
}

/// By what a verdict can be changed.
#[derive(Clone, Copy)]
pub struct Ways<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// The user's policy file, as a person would name it.
    pub config: &'a str,
    /// Where the site's bounds are on this host, for questions about places.
    pub places: Option<(&'a SiteBounds, &'a dyn Files)>,
}

impl Ways<'_> {
    /// What to do, unless the site forbids one of these.
    pub fn unless_forbidden(&self, text: String, requests: &[Request<'_>]) -> Change {
        let forbidden = requests.iter().find_map(|request| self.forbidden(request));
        forbidden.unwrap_or_else(|| Change::by(text))
    }

    /// That the site forbids it, if it does.
    pub fn forbidden(&self, request: &Request<'_>) -> Option<Change> {
        let by = |refusing: Refusing| Change::forbidden(refusing.key, &refusing.list.source);
        let bounds = &self.policy.bounds;
        match *request {
            Request::Give(real, access) => Some(by(self.places?.0.refusing(real, access)?)),
            Request::Unhide(rule, _) if rule.source.layer == Layer::SiteEnforced => {
                let key = format!("files.hide `{}`", rule.value);
                Some(Change::forbidden(&key, &rule.source))
            }
            Request::Unhide(_, real) => {
                let (site_bounds, files) = self.places?;
                Some(by(site_bounds.refusing_exception(real, files)?))
            }
            Request::Pass(name, why) => enforced(why).or_else(|| {
                let list = bounds.unpassable(name.as_bytes())?;
                Some(Change::forbidden("env.pass", &list.source))
            }),
            Request::Set(why) => enforced(why),
            Request::Device(real) => Some(by(self.places?.0.refusing_device(real)?)),
            Request::Key(key) => {
                let source = bounds
                    .layers
                    .iter()
                    .find_map(|layer| self.at_bound(layer, key))?;
                Some(Change::forbidden(key, source))
            }
        }
    }

    /// Where an enforced layer states a key, if the value that holds is the widest which it allows.
    fn at_bound<'s>(&self, layer: &'s Stated, key: &str) -> Option<&'s Source> {
        let slurm = &self.policy.slurm;
        match key {
            "network.mode" => stated(&layer.network.mode, &self.policy.network.mode.value),
            "home.mode" => stated(&layer.home.mode, &self.policy.home.mode.value),
            "jail.users" => stated(&layer.jail.users, &self.policy.jail.users.value),
            "project.git" => stated(&layer.project.git, &self.policy.project.git.value),
            "project.settings" => {
                stated(&layer.project.settings, &self.policy.project.settings.value)
            }
            "slurm.mode" => stated(&layer.slurm.mode, &slurm.mode.value),
            "slurm.scope" => stated(&layer.slurm.scope, &slurm.scope.value),
            "agents.state" => stated(&layer.agents.state, &self.policy.agents.state.value),
            "slurm.queries" => stated(&layer.slurm.queries, &slurm.queries.value),
            "slurm.allocation" => stated(&layer.slurm.allocation, &slurm.allocation.value),
            "slurm.bounds.memory" => {
                let memory = slurm.bounds.memory.value;
                memory.bytes()?;
                stated(&layer.slurm.bounds.memory, &memory)
            }
            _ => {
                let (bounds, limits) = (&layer.slurm.bounds, &layer.slurm.limits);
                let now = (&slurm.bounds, &slurm.limits);
                let (bound, now) = match key {
                    "slurm.limits.queries_per_minute" => {
                        (&limits.queries_per_minute, &now.1.queries_per_minute)
                    }
                    "slurm.limits.jobs" => (&limits.jobs, &now.1.jobs),
                    "slurm.limits.submissions_per_minute" => (
                        &limits.submissions_per_minute,
                        &now.1.submissions_per_minute,
                    ),
                    "slurm.limits.submissions_per_day" => {
                        (&limits.submissions_per_day, &now.1.submissions_per_day)
                    }
                    "slurm.bounds.nodes" => (&bounds.nodes, &now.0.nodes),
                    "slurm.bounds.gpus" => (&bounds.gpus, &now.0.gpus),
                    "slurm.bounds.cpus" => (&bounds.cpus, &now.0.cpus),
                    "slurm.bounds.minutes" => (&bounds.minutes, &now.0.minutes),
                    "slurm.bounds.array" => (&bounds.array, &now.0.array),
                    _ => match hours_of(layer, self.policy, key) {
                        Some(found) => found,
                        None => return names_of(bounds, key),
                    },
                };
                // There is nothing wider than no limit.
                let limited = now.value > 0;
                limited.then(|| stated(bound, &Limit::new(now.value.into())))?
            }
        }
    }
}

/// What an enforced layer says of hours, and what holds.
fn hours_of<'s, 'p>(
    layer: &'s Stated,
    policy: &'p Policy,
    key: &str,
) -> Option<(&'s Single<Limit>, &'p Sourced<u32>)> {
    let (budget, confirm) = (&layer.slurm.budget, &layer.slurm.confirm);
    let (now_budget, now_confirm) = (&policy.slurm.budget, &policy.slurm.confirm);
    Some(match key {
        "slurm.budget.cpu_hours" => (&budget.cpu_hours, &now_budget.cpu_hours),
        "slurm.budget.gpu_hours" => (&budget.gpu_hours, &now_budget.gpu_hours),
        "slurm.budget.node_hours" => (&budget.node_hours, &now_budget.node_hours),
        "slurm.budget.project_cpu_hours" => {
            (&budget.project_cpu_hours, &now_budget.project_cpu_hours)
        }
        "slurm.budget.project_gpu_hours" => {
            (&budget.project_gpu_hours, &now_budget.project_gpu_hours)
        }
        "slurm.budget.project_node_hours" => {
            (&budget.project_node_hours, &now_budget.project_node_hours)
        }
        "slurm.budget.session_cpu_hours" => {
            (&budget.session_cpu_hours, &now_budget.session_cpu_hours)
        }
        "slurm.budget.session_gpu_hours" => {
            (&budget.session_gpu_hours, &now_budget.session_gpu_hours)
        }
        "slurm.budget.session_node_hours" => {
            (&budget.session_node_hours, &now_budget.session_node_hours)
        }
        "slurm.confirm.cpu_hours" => (&confirm.cpu_hours, &now_confirm.cpu_hours),
        "slurm.confirm.gpu_hours" => (&confirm.gpu_hours, &now_confirm.gpu_hours),
        "slurm.confirm.node_hours" => (&confirm.node_hours, &now_confirm.node_hours),
        "slurm.confirm.minutes" => (&confirm.minutes, &now_confirm.minutes),
        _ => return None,
    })
}

/// Where an enforced layer says which names a job may use.
fn names_of<'s>(bounds: &'s SlurmBounds, key: &str) -> Option<&'s Source> {
    let names = match key {
        "slurm.bounds.partitions" => &bounds.partitions,
        "slurm.bounds.accounts" => &bounds.accounts,
        "slurm.bounds.qos" => &bounds.qos,
        "slurm.bounds.reservations" => &bounds.reservations,
        "slurm.bounds.constraints" => &bounds.constraints,
        "slurm.bounds.licenses" => &bounds.licenses,
        "slurm.bounds.options" => &bounds.options,
        "slurm.bounds.deny_options" => {
            let denied = bounds.deny_options.entries().first();
            return denied.map(|one| &one.source);
        }
        _ => return None,
    };
    names.lists().next().map(|list| &list.source)
}

/// A word as a shell takes it, with quotes where it needs them.
pub fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_@%+=:,./-".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// The option that adds an entry to a list for one run, as it is typed in a shell.
pub fn set_list(key: &str, entry: &str) -> String {
    format!("--set {}", shell_word(&format!("{key}=[{}]", quote(entry))))
}

fn stated<'s, T: PartialEq>(bound: &'s Single<T>, now: &T) -> Option<&'s Source> {
    let bound = bound.get().filter(|bound| bound.value == *now)?;
    Some(&bound.source)
}

/// A rule of an enforced layer: no other takes it back.
fn enforced(why: &Why) -> Option<Change> {
    match why {
        Why::Rule { key, source } if source.layer == Layer::SiteEnforced => {
            Some(Change::forbidden(key, source))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_proposed_can_be_typed_in_a_shell() {
        assert_eq!(shell_word("HOME"), "HOME");
        assert_eq!(shell_word("*TOKEN"), "'*TOKEN'");
        assert_eq!(shell_word("a b's"), r"'a b'\''s'");
        assert_eq!(shell_word(""), "''");
        assert_eq!(set_list("env.hide", "A"), "--set 'env.hide=[\"A\"]'");
        assert_eq!(
            set_list("files.unhide", "/a\"b"),
            r#"--set 'files.unhide=["/a\"b"]'"#
        );
    }
}
