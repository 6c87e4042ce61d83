//! Values of `[trace]`. To record more is narrower: it takes freedom
//! from nobody, but from whoever wants to do something unseen.

use std::fmt;

use agent_sandbox_events::protocol::EventKind;
use serde::{Serialize, Serializer};

use super::values::{Stricter, words};

words! {
    /// `[trace] mode`
    TraceMode, Last {
        /// The jail is not traced.
        Off = "off",
        /// It is where a tracer runs.
        On = "on",
        /// Nothing starts without a tracer.
        Required = "required",
    }
}

/// The kinds of events and their names, which are those of the records.
pub const KINDS: [(&str, EventKind); 7] = [
    ("fork", EventKind::Fork),
    ("exec", EventKind::Exec),
    ("exit", EventKind::Exit),
    ("open", EventKind::Open),
    ("connect", EventKind::Connect),
    ("listen", EventKind::Listen),
    ("operation", EventKind::Operation),
];

/// A set of [`KINDS`]: a bit for each, by its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Events(u8);

impl Events {
    /// None.
    pub fn none() -> Self {
        Self(0)
    }

    /// Every kind.
    pub fn all() -> Self {
        Self((1 << KINDS.len()) - 1)
    }

    /// Every kind but forks: what a new process does is recorded under its own number.
    pub fn usual() -> Self {
        let fork = KINDS.iter().position(|(_, kind)| *kind == EventKind::Fork);
        let fork = fork.map_or(0, |at| 1 << at);
        Self(Self::all().0 & !fork)
    }

    /// Adds a kind by its name; `None` if there is none of that name.
    #[must_use]
    pub fn with(self, name: &str) -> Option<Self> {
        let at = KINDS.iter().position(|(known, _)| *known == name)?;
        Some(Self(self.0 | 1 << at))
    }

    /// Whether these are among others.
    pub fn are_in(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// The names.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        self.each().map(|(name, _)| name)
    }

    /// The kinds.
    pub fn kinds(self) -> impl Iterator<Item = EventKind> {
        self.each().map(|(_, kind)| kind)
    }

    fn each(self) -> impl Iterator<Item = (&'static str, EventKind)> {
        let numbered = KINDS.into_iter().enumerate();
        numbered
            .filter(move |(at, _)| self.0 & 1 << at != 0)
            .map(|(_, kind)| kind)
    }
}

impl Serialize for Events {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.names())
    }
}

impl fmt::Display for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.names().collect();
        match names.is_empty() {
            true => f.write_str("none"),
            false => f.write_str(&names.join(", ")),
        }
    }
}

impl Stricter for Events {
    type Plain = Self;

    fn stricter(&self, other: &Self) -> Self {
        Self(self.0 | other.0)
    }

    fn shown(&self) -> String {
        self.to_string()
    }

    fn plain(self) -> Self {
        self
    }

    fn words() -> Vec<&'static str> {
        KINDS.iter().map(|(name, _)| *name).collect()
    }
}

/// A switch that is narrower when it is on: more is recorded, or denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded(pub bool);

impl From<bool> for Recorded {
    fn from(written: bool) -> Self {
        Self(written)
    }
}

impl Stricter for Recorded {
    type Plain = bool;

    fn stricter(&self, other: &Self) -> Self {
        Self(self.0 || other.0)
    }

    fn shown(&self) -> String {
        self.0.to_string()
    }

    fn plain(self) -> bool {
        self.0
    }
}

/// Of how many opens one is recorded; less is narrower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling(pub u64);

impl Stricter for Sampling {
    type Plain = u32;

    fn stricter(&self, other: &Self) -> Self {
        Self(self.0.min(other.0))
    }

    fn shown(&self) -> String {
        self.0.to_string()
    }

    fn plain(self) -> u32 {
        u32::try_from(self.0).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_a_set_in_one_order() {
        let none = Events::none();
        let some = none.with("open").unwrap().with("exec").unwrap();
        assert_eq!(some.to_string(), "exec, open");
        assert_eq!(none.to_string(), "none");
        assert!(some.are_in(Events::all()) && !Events::all().are_in(some));
        assert_eq!(none.with("opne"), None);
        assert_eq!(Events::all().names().count(), KINDS.len());
        let more = none.with("listen").unwrap().stricter(&some);
        assert!(some.are_in(more) && more.names().count() == 3);
    }
}
