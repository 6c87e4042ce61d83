//! Names that a job of Slurm's may use (`[slurm.bounds]`), and those of agents (`[agents] allowed`): lists of which each is a value of its own. What all
//! lists allow is allowed; since they hold patterns, no one list could say that.

use std::fmt;

use serde::{Serialize, Serializer};

use super::clamp::{Clamp, Clamped, Rule};
use super::paths::glob;
use crate::config::source::Sourced;

/// Stands for every name.
const ANY: &str = "*";

/// Names, and patterns with `*`. An empty list allows none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameList(Vec<String>);

impl NameList {
    /// These.
    pub fn new(entries: Vec<String>) -> Self {
        Self(entries)
    }

    /// As written.
    pub fn entries(&self) -> &[String] {
        &self.0
    }

    /// Whether every name is allowed.
    pub fn is_any(&self) -> bool {
        self.0.iter().any(|entry| entry == ANY)
    }

    /// Whether an entry matches the name.
    pub(super) fn allows(&self, name: &str) -> bool {
        let fits = |entry: &String| glob(entry.as_bytes(), name.as_bytes());
        self.0.iter().any(fits)
    }
}

impl fmt::Display for NameList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.is_empty() {
            true => f.write_str("none"),
            false => f.write_str(&self.0.join(", ")),
        }
    }
}

impl Serialize for NameList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The list of one layer, or those that hold together: the one that counts of the layers that anybody may
/// override, and behind it one of each enforced layer that has one.
#[derive(Clone, Debug, Default)]
pub struct Names(Vec<Sourced<NameList>>);

impl Names {
    /// One layer's list.
    pub(super) fn new(list: Option<Sourced<NameList>>) -> Self {
        Self(list.into_iter().collect())
    }

    /// The lists that bound something.
    pub fn lists(&self) -> impl Iterator<Item = &Sourced<NameList>> {
        self.0.iter().filter(|list| !list.value.is_any())
    }

    /// What holds: the lists that bound something, or one that does not.
    pub(super) fn settle(self) -> Vec<Sourced<NameList>> {
        let bounding: Vec<_> = self.lists().cloned().collect();
        match bounding.is_empty() {
            true => self.0.into_iter().take(1).collect(),
            false => bounding,
        }
    }
}

impl Clamp for Names {
    type Value = Vec<Sourced<NameList>>;

    const RULE: Rule = Rule::Common;

    fn prefer(&mut self, later: Self) {
        if !later.0.is_empty() {
            *self = later;
        }
    }

    fn clamp_to(&mut self, key: &'static str, enforced: &Self, clamped: &mut Vec<Clamped>) {
        for list in enforced.lists() {
            let asked = self.0.first();
            let refused = |asked: &&Sourced<NameList>| {
                let mut entries = asked.value.0.iter();
                entries.any(|entry| !list.value.allows(entry))
            };
            clamped.extend(asked.filter(refused).map(|asked| Clamped {
                key,
                asked: asked.clone().map(|list| list.to_string()),
                allowed: list.clone().map(|list| list.to_string()),
            }));
            self.0.push(list.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::source::Source;

    fn names(file: &str, entries: &[&str]) -> Names {
        let entries = entries.iter().map(|&entry| entry.to_owned()).collect();
        let source = Source::option(file);
        Names::new(Some(Sourced::new(NameList::new(entries), source)))
    }

    fn settled(layers: &[Names], enforced: &[Names]) -> (Vec<String>, Vec<String>) {
        let (mut all, mut clamped) = (Names::default(), Vec::new());
        for layer in layers {
            all.prefer(layer.clone());
        }
        for layer in enforced {
            all.clamp_to("k", layer, &mut clamped);
        }
        let shown = |one: Sourced<NameList>| format!("{} {}", one.source, one.value);
        let clamped = clamped.iter().map(|one| one.asked.value.clone()).collect();
        (all.settle().into_iter().map(shown).collect(), clamped)
    }

    #[test]
    fn a_later_list_replaces_and_an_enforced_one_holds_besides() {
        let any = names("built-in", &["*"]);
        let user = names("user", &["gpu-long", "cpu"]);
        let site = names("site", &["gpu*"]);
        let none = names("none", &[]);
        let just = |text: &str| vec![text.to_owned()];
        assert_eq!(
            settled(std::slice::from_ref(&any), &[]),
            (just("built-in *"), vec![])
        );
        assert_eq!(
            settled(&[any.clone(), user.clone()], std::slice::from_ref(&any)),
            (just("user gpu-long, cpu"), vec![])
        );
        assert_eq!(
            settled(&[any.clone(), user], std::slice::from_ref(&site)),
            (
                vec!["user gpu-long, cpu".into(), "site gpu*".into()],
                just("gpu-long, cpu")
            )
        );
        // Whoever asks for any gets what the site allows; an empty list allows none.
        assert_eq!(
            settled(std::slice::from_ref(&any), &[site]).0,
            ["site gpu*"]
        );
        assert_eq!(settled(&[any], &[none]).0, ["none none"]);
    }
}
