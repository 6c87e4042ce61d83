//! What the site's enforced layers bound: kept beside the merged policy, because what lies within a
//! bound is known only where paths are resolved and variables have their names.

use agent_sandbox_wire::bounds::JobCondition;

use super::clamp::{Clamped, Gives, Takes};
use super::paths::glob;
use super::stated::{SlurmBounds, Stated};
use crate::config::source::Sourced;

/// The enforced layers, in order. Each bounds on its own: what one says, no other takes back.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// What each states.
    pub layers: Vec<Stated>,
    /// What they say of jobs in some partitions and accounts alone, in order.
    pub jobs: Vec<ConditionalBounds>,
}

/// What an enforced layer bounds of some jobs.
#[derive(Clone, Debug)]
pub struct ConditionalBounds {
    /// Which jobs.
    pub when: JobCondition,
    /// What it says of them.
    pub bounds: SlurmBounds,
}

/// Why an enforced layer keeps a variable out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withheld {
    /// The key.
    pub key: &'static str,
    /// The pattern that matches.
    pub rule: Sourced<String>,
}

impl Bounds {
    /// Whether there is no enforced layer.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty() && self.jobs.is_empty()
    }

    /// The rule of an enforced layer that keeps a variable out, whatever any other layer says.
    pub fn withheld(&self, name: &[u8], value: Option<&[u8]>) -> Option<Withheld> {
        self.layers
            .iter()
            .find_map(|layer| withheld_by(layer, name, value))
    }

    /// The list of an enforced layer that does not let `env.pass` name a variable.
    pub fn unpassable(&self, name: &[u8]) -> Option<Sourced<String>> {
        let mut bounds = self.layers.iter().map(|layer| &layer.env.pass);
        let refusing = bounds.find(|pass| {
            let allows = |rule: &Sourced<String>| glob(rule.value.as_bytes(), name);
            pass.bound()
                .is_some_and(|entries| !entries.iter().any(allows))
        });
        refusing.and_then(Gives::shown)
    }
}

/// As [`Bounds::withheld`], by one layer. Its own `env.pass` makes exceptions from its own rules.
fn withheld_by(layer: &Stated, name: &[u8], value: Option<&[u8]>) -> Option<Withheld> {
    let matching = |rules: &[Sourced<String>], text: &[u8]| {
        let fits = |rule: &&Sourced<String>| glob(rule.value.as_bytes(), text);
        rules.iter().rev().find(fits).cloned()
    };
    if matching(layer.env.pass.bound().unwrap_or_default(), name).is_some() {
        return None;
    }
    let found = |key, rules: &Takes<String>, text| {
        matching(rules.entries(), text).map(|rule| Withheld { key, rule })
    };
    found("env.hide", &layer.env.hide, name)
        .or_else(|| found("env.hide_values", &layer.env.hide_values, value?))
}

/// Takes away what enforced layers cannot be overruled in, before they narrow: hides that they except
/// themselves, and variables that another layer sets although an enforced one hides them.
pub(super) fn settle(open: &mut Stated, enforced: &mut [Stated], clamped: &mut Vec<Clamped>) {
    for layer in enforced.iter_mut() {
        let excepted = layer.files.unhide.bound().unwrap_or_default().to_vec();
        let hides = layer.files.hide.list();
        hides.retain(|rule| excepted.iter().all(|other| other.value != rule.value));
    }
    let all: Vec<Stated> = enforced.to_vec();
    let mut sets: Vec<(Option<usize>, &mut Stated)> = vec![(None, open)];
    sets.extend(
        enforced
            .iter_mut()
            .enumerate()
            .map(|(at, it)| (Some(at), it)),
    );
    for (own, layer) in sets {
        layer.env.set.list().retain(|pair| {
            let (name, value) = &pair.value;
            let others = all.iter().enumerate().filter(|(at, _)| Some(*at) != own);
            let mut refusing = others.filter_map(|(_, other)| {
                withheld_by(other, name.as_bytes(), Some(value.as_bytes()))
            });
            let Some(Withheld { key, rule }) = refusing.next() else {
                return true;
            };
            clamped.push(Clamped {
                key: "env.set",
                // By name alone: the value may be a secret.
                asked: Sourced::new(name.clone(), pair.source.clone()),
                allowed: rule.map(|rule| format!("none that {key} `{rule}` matches")),
            });
            false
        });
    }
}
