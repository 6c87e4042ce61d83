//! How values of layers combine: each kind of value has two verbs. *Prefer*: of layers that anybody
//! may override the later wins, and lists grow. *Narrow*: under an enforced layer the result allows
//! no more than either. Which key is of which kind stands in the table of keys.

use std::collections::BTreeSet;
use std::fmt::Display;

use super::paths::PathSpec;
use super::values::Stricter;
use crate::config::source::{Source, Sourced};

/// The rule by which an enforced layer narrows a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// One value: the narrower of the two holds.
    Least,
    /// A list that takes away: both lists hold.
    Union,
    /// A list that gives: what others give must lie within the enforced list.
    Within,
    /// A list of names: what both lists allow.
    Common,
    /// Values that are set: the enforced one replaces any other.
    Wins,
}

impl Rule {
    /// The rule in words, as the reference has it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Least => "the narrower value holds",
            Self::Union => "both lists hold",
            Self::Within => "a bound: others give within it",
            Self::Common => "what both lists allow",
            Self::Wins => "the enforced value holds",
        }
    }
}

/// Something that a layer asked for and that an enforced layer does not allow as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clamped {
    /// The key in which it was asked.
    pub key: &'static str,
    /// What was asked, and where.
    pub asked: Sourced<String>,
    /// What holds instead, or what bounds it, and the enforced place.
    pub allowed: Sourced<String>,
}

impl Clamped {
    /// Whether a person asked for it, and so wants to know that it does not hold: the built-in
    /// layers and the site's own ask for what some users may have.
    pub fn is_users(&self) -> bool {
        self.asked.source.is_users()
    }
}

/// What all kinds have.
pub trait Clamp {
    /// What the merged policy has of it.
    type Value;
    /// The rule that [`Clamp::narrow`] carries out, as far as it is one of the policy alone. What
    /// is bounded by place or by name is judged in the plan.
    const RULE: Rule;
    /// Takes over what a later layer says.
    fn prefer(&mut self, later: Self);
    /// Allows no more than `enforced` does, and notes what that took away.
    fn clamp_to(&mut self, key: &'static str, enforced: &Self, clamped: &mut Vec<Clamped>);
    /// As a bound of what others give, in words, if it is one.
    fn bounds(&self) -> Option<Sourced<String>> {
        None
    }
    /// Adds the variables that paths in a value begin with.
    fn variables<'a>(_: &'a Self::Value, _: &mut BTreeSet<&'a str>) {}
    /// The words that stand for values, if some do.
    fn words() -> Vec<&'static str> {
        Vec::new()
    }
}

/// An entry of a list.
pub trait Entry: Clone + Display {
    /// Of a path the variable that it begins with.
    fn variable(&self) -> Option<&str> {
        None
    }
}

impl Entry for String {}

/// A port.
impl Entry for u16 {}

impl Entry for PathSpec {
    fn variable(&self) -> Option<&str> {
        self.variable()
    }
}

fn add_variables<'a, T: Entry>(entries: &'a [Sourced<T>], all: &mut BTreeSet<&'a str>) {
    all.extend(entries.iter().filter_map(|entry| entry.value.variable()));
}

/// A list of one layer.
pub trait List<T>: Default {
    /// The list as it is written; `named` is the file of a layer that has it.
    fn of(named: Option<Source>, entries: Vec<Sourced<T>>) -> Self;
}

/// One value.
#[derive(Clone, Debug)]
pub struct Single<T>(Option<Sourced<T>>);

impl<T> Default for Single<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Single<T> {
    /// One layer's value.
    pub(super) fn new(value: Option<Sourced<T>>) -> Self {
        Self(value)
    }

    /// Sets the value.
    pub(super) fn set(&mut self, value: Sourced<T>) {
        self.0 = Some(value);
    }

    /// The value, if the layer has one.
    pub fn get(&self) -> Option<&Sourced<T>> {
        self.0.as_ref()
    }
}

/// The value, or `default`. The built-in layer sets every key (tested); this is what holds if it
/// did not.
fn or<T>(value: Option<Sourced<T>>, default: T) -> Sourced<T> {
    value.unwrap_or_else(|| Sourced::new(default, Source::option("built-in")))
}

impl<T: Stricter> Single<T> {
    /// What holds.
    pub(super) fn settle(self, default: T) -> Sourced<T::Plain> {
        or(self.0, default).map(T::plain)
    }
}

impl<T: Stricter> Clamp for Single<T> {
    type Value = Sourced<T::Plain>;

    const RULE: Rule = Rule::Least;

    fn prefer(&mut self, later: Self) {
        self.0 = later.0.or(self.0.take());
    }

    fn clamp_to(&mut self, key: &'static str, enforced: &Self, clamped: &mut Vec<Clamped>) {
        let Some(new) = &enforced.0 else { return };
        let Some(old) = &self.0 else {
            self.0 = Some(new.clone());
            return;
        };
        let value = old.value.stricter(&new.value);
        if value == old.value {
            return;
        }
        let allowed = Sourced::new(value.shown(), new.source.clone());
        // Of several enforced layers the narrowest counts; asked is what was asked before all.
        match clamped.iter_mut().find(|one| one.key == key) {
            Some(one) => one.allowed = allowed,
            None => clamped.push(Clamped {
                key,
                asked: Sourced::new(old.value.shown(), old.source.clone()),
                allowed,
            }),
        }
        self.0 = Some(Sourced::new(value, new.source.clone()));
    }

    fn words() -> Vec<&'static str> {
        T::words()
    }
}

/// One value that an enforced layer fixes: none is narrower than another.
#[derive(Clone, Debug)]
pub struct Fixed<T>(Option<Sourced<T>>);

impl<T> Default for Fixed<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Fixed<T> {
    /// One layer's value.
    pub(super) fn new(value: Option<Sourced<T>>) -> Self {
        Self(value)
    }

    /// What holds.
    pub(super) fn settle(self, default: T) -> Sourced<T> {
        or(self.0, default)
    }

    /// The value, if the layer has one.
    pub fn get(&self) -> Option<&Sourced<T>> {
        self.0.as_ref()
    }
}

impl<T: Clone> Clamp for Fixed<T> {
    type Value = Sourced<T>;

    const RULE: Rule = Rule::Wins;

    fn prefer(&mut self, later: Self) {
        self.0 = later.0.or(self.0.take());
    }

    // Only the site's layers say one, so that nobody else asked for another.
    fn clamp_to(&mut self, _: &'static str, enforced: &Self, _: &mut Vec<Clamped>) {
        self.0 = enforced.0.clone().or(self.0.take());
    }
}

/// A list that takes away.
#[derive(Clone, Debug)]
pub struct Takes<T>(Vec<Sourced<T>>);

impl<T> Default for Takes<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Takes<T> {
    /// The entries.
    pub fn entries(&self) -> &[Sourced<T>] {
        &self.0
    }

    pub(super) fn list(&mut self) -> &mut Vec<Sourced<T>> {
        &mut self.0
    }

    /// What holds.
    pub(super) fn settle(self) -> Vec<Sourced<T>> {
        self.0
    }
}

impl<T> List<T> for Takes<T> {
    fn of(_: Option<Source>, entries: Vec<Sourced<T>>) -> Self {
        Self(entries)
    }
}

impl<T: Entry> Clamp for Takes<T> {
    type Value = Vec<Sourced<T>>;

    const RULE: Rule = Rule::Union;

    fn prefer(&mut self, later: Self) {
        self.0.extend(later.0);
    }

    fn clamp_to(&mut self, _: &'static str, enforced: &Self, _: &mut Vec<Clamped>) {
        self.0.extend(enforced.0.iter().cloned());
    }

    fn variables<'a>(value: &'a Self::Value, all: &mut BTreeSet<&'a str>) {
        add_variables(value, all);
    }
}

/// A list that gives. In an enforced layer it is a bound, and gives nothing itself; what lies within
/// is judged where that can be known: in the plan, by real paths and by the names of variables.
#[derive(Clone, Debug)]
pub struct Gives<T> {
    /// The file of the layer, if the layer has the list at all.
    named: Option<Source>,
    entries: Vec<Sourced<T>>,
}

impl<T> Default for Gives<T> {
    fn default() -> Self {
        Self {
            named: None,
            entries: Vec::new(),
        }
    }
}

impl<T> Gives<T> {
    pub(super) fn list(&mut self) -> &mut Vec<Sourced<T>> {
        &mut self.entries
    }

    /// What holds.
    pub(super) fn settle(self) -> Vec<Sourced<T>> {
        self.entries
    }

    /// As a bound; `None` if the layer says nothing, which bounds nothing.
    pub fn bound(&self) -> Option<&[Sourced<T>]> {
        self.named.as_ref().map(|_| self.entries.as_slice())
    }
}

impl<T> List<T> for Gives<T> {
    fn of(named: Option<Source>, entries: Vec<Sourced<T>>) -> Self {
        Self { named, entries }
    }
}

impl<T: Display> Gives<T> {
    /// The bound as one value: its entries, and the place of the first, or the file of an empty one.
    pub fn shown(&self) -> Option<Sourced<String>> {
        let named = self.named.as_ref()?;
        let each: Vec<String> = self
            .entries
            .iter()
            .map(|entry| format!("`{}`", entry.value))
            .collect();
        let first = self.entries.first();
        let place = first.map_or(named, |entry| &entry.source).clone();
        let text = match each.is_empty() {
            true => "none".to_owned(),
            false => each.join(", "),
        };
        Some(Sourced::new(text, place))
    }
}

impl<T: Entry> Clamp for Gives<T> {
    type Value = Vec<Sourced<T>>;

    const RULE: Rule = Rule::Within;

    fn prefer(&mut self, later: Self) {
        self.named = later.named.or(self.named.take());
        self.entries.extend(later.entries);
    }

    fn clamp_to(&mut self, _: &'static str, _: &Self, _: &mut Vec<Clamped>) {}

    fn bounds(&self) -> Option<Sourced<String>> {
        self.shown()
    }

    fn variables<'a>(value: &'a Self::Value, all: &mut BTreeSet<&'a str>) {
        add_variables(value, all);
    }
}

/// Names of modules: a list that gives, whose names say all. `gcc` allows `gcc/12` as well.
#[derive(Clone, Debug, Default)]
pub struct Loads(Gives<String>);

impl Loads {
    /// As [`Gives::shown`].
    pub fn shown(&self) -> Option<Sourced<String>> {
        self.0.shown()
    }

    /// What holds.
    pub(super) fn settle(self) -> Vec<Sourced<String>> {
        self.0.settle()
    }

    /// Whether the layer lets a module be loaded.
    pub fn allows(&self, module: &str) -> bool {
        let plain = |part: &str| !matches!(part, "" | "." | "..");
        let holds = |entry: &Sourced<String>| {
            let below = module.strip_prefix(entry.value.as_str());
            below.is_some_and(|rest| {
                let version = rest.strip_prefix('/');
                rest.is_empty() || version.is_some_and(|rest| rest.split('/').all(plain))
            })
        };
        self.0
            .bound()
            .is_none_or(|entries| entries.iter().any(holds))
    }
}

impl List<String> for Loads {
    fn of(named: Option<Source>, entries: Vec<Sourced<String>>) -> Self {
        Self(Gives::of(named, entries))
    }
}

impl Clamp for Loads {
    type Value = Vec<Sourced<String>>;

    const RULE: Rule = Rule::Within;

    fn prefer(&mut self, later: Self) {
        self.0.prefer(later.0);
    }

    fn clamp_to(&mut self, key: &'static str, enforced: &Self, clamped: &mut Vec<Clamped>) {
        let Some(bound) = enforced.shown() else {
            return;
        };
        self.0.list().retain(|module| {
            let allowed = enforced.allows(&module.value);
            if !allowed {
                clamped.push(Clamped {
                    key,
                    asked: module.clone(),
                    allowed: bound.clone(),
                });
            }
            allowed
        });
    }

    fn bounds(&self) -> Option<Sourced<String>> {
        self.shown()
    }
}

/// Variables that are set.
#[derive(Clone, Debug, Default)]
pub struct Sets(Vec<Sourced<(String, String)>>);

impl Sets {
    /// Sets a variable, over what it was.
    pub(super) fn set(&mut self, new: Sourced<(String, String)>) {
        self.0.retain(|old| old.value.0 != new.value.0);
        self.0.push(new);
    }

    /// The variables.
    pub fn entries(&self) -> &[Sourced<(String, String)>] {
        &self.0
    }

    pub(super) fn list(&mut self) -> &mut Vec<Sourced<(String, String)>> {
        &mut self.0
    }

    /// What holds.
    pub(super) fn settle(self) -> Vec<Sourced<(String, String)>> {
        self.0
    }
}

impl Clamp for Sets {
    type Value = Vec<Sourced<(String, String)>>;

    const RULE: Rule = Rule::Wins;

    fn prefer(&mut self, later: Self) {
        later.0.into_iter().for_each(|pair| self.set(pair));
    }

    fn clamp_to(&mut self, key: &'static str, enforced: &Self, clamped: &mut Vec<Clamped>) {
        for pair in &enforced.0 {
            let old = self.0.iter().find(|old| old.value.0 == pair.value.0);
            if let Some(old) = old.filter(|old| old.value != pair.value) {
                // By name alone: a value may be a secret.
                clamped.push(Clamped {
                    key,
                    asked: old.clone().map(|(name, _)| name),
                    allowed: pair.clone().map(|(name, _)| format!("{name} as it is set")),
                });
            }
            self.set(pair.clone());
        }
    }
}
