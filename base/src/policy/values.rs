//! The values of policies as they are written, and which of two is the narrower.

use std::time::Duration;

use agent_sandbox_wire::order::{Allocation, Queries, Scope};
use serde::{Serialize, Serializer};

/// A value of which one of two is the narrower, or a third that is narrower than both.
pub trait Stricter: Clone + PartialEq {
    /// As the merged policy has it.
    type Plain;
    /// What allows no more than either.
    #[must_use]
    fn stricter(&self, other: &Self) -> Self;
    /// As policy files write it.
    fn shown(&self) -> String;
    /// As the merged policy has it.
    fn plain(self) -> Self::Plain;
    /// The words that stand for values, if some do.
    fn words() -> Vec<&'static str> {
        Vec::new()
    }
}

/// A number in which 0 stands for "no limit" and is therefore the widest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(u64);

impl Limit {
    /// As it is written in a policy.
    pub fn new(written: u64) -> Self {
        Self(if written == 0 { u64::MAX } else { written })
    }

    /// As a policy writes it.
    pub fn written(self) -> u64 {
        if self.0 == u64::MAX { 0 } else { self.0 }
    }

    /// Whether another is no wider.
    pub fn holds(self, other: Self) -> bool {
        other.0 <= self.0
    }
}

impl Stricter for Limit {
    type Plain = u32;

    fn stricter(&self, other: &Self) -> Self {
        Self(self.0.min(other.0))
    }

    fn shown(&self) -> String {
        match self.written() {
            0 => "no limit".to_owned(),
            most => most.to_string(),
        }
    }

    fn plain(self) -> u32 {
        u32::try_from(self.written()).unwrap_or(u32::MAX)
    }
}

/// A number of which the larger is the narrower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtLeast(pub u64);

impl Stricter for AtLeast {
    type Plain = u32;

    fn stricter(&self, other: &Self) -> Self {
        Self(self.0.max(other.0))
    }

    fn shown(&self) -> String {
        self.0.to_string()
    }

    fn plain(self) -> u32 {
        u32::try_from(self.0).unwrap_or(u32::MAX)
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl Stricter for Bytes {
    type Plain = u64;

    fn stricter(&self, other: &Self) -> Self {
        Self(self.0.min(other.0))
    }

    fn shown(&self) -> String {
        let units = [(40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')];
        let whole = units.iter().find(|(shift, _)| {
            let unit = 1_u64 << shift;
            self.0 >= unit && self.0.is_multiple_of(unit)
        });
        match whole {
            Some((shift, letter)) => format!("{}{letter}", self.0 >> shift),
            None => self.0.to_string(),
        }
    }

    fn plain(self) -> u64 {
        self.0
    }
}

/// `[limits] memory`: a number of bytes, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory(u64);

impl Memory {
    /// No limit.
    pub const NONE: Self = Self(u64::MAX);

    /// So many bytes.
    pub fn bytes(bytes: u64) -> Self {
        Self(bytes)
    }
}

impl Stricter for Memory {
    type Plain = Option<u64>;

    fn stricter(&self, other: &Self) -> Self {
        Self(self.0.min(other.0))
    }

    fn shown(&self) -> String {
        match self.plain() {
            Some(bytes) => Bytes(bytes).shown(),
            None => "none".to_owned(),
        }
    }

    fn plain(self) -> Option<u64> {
        (self != Self::NONE).then_some(self.0)
    }

    fn words() -> Vec<&'static str> {
        vec!["none"]
    }
}

/// `[jail] shm_size`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShmSize {
    /// In a job half of the job's memory on the node; in a session what is usual.
    Auto,
    /// This many bytes.
    Bytes(u64),
    /// As [`ShmSize::Auto`], and never more than this many bytes.
    AutoUpTo(u64),
}

impl ShmSize {
    /// Bytes, where `Auto` stands for `automatic`.
    pub fn bytes(self, automatic: u64) -> u64 {
        match self {
            Self::Auto => automatic,
            Self::Bytes(bytes) => bytes,
            Self::AutoUpTo(most) => automatic.min(most),
        }
    }

    /// What allows no more than either, whatever the memory is.
    #[must_use]
    pub fn clamped(self, other: Self) -> Self {
        match (self, other) {
            (Self::Bytes(one), Self::Bytes(two)) => Self::Bytes(one.min(two)),
            (Self::Auto, Self::Auto) => Self::Auto,
            (Self::Auto, Self::Bytes(most) | Self::AutoUpTo(most))
            | (Self::Bytes(most) | Self::AutoUpTo(most), Self::Auto) => Self::AutoUpTo(most),
            (Self::Bytes(one) | Self::AutoUpTo(one), Self::Bytes(two) | Self::AutoUpTo(two)) => {
                Self::AutoUpTo(one.min(two))
            }
        }
    }
}

impl Serialize for ShmSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Bytes(bytes) => serializer.serialize_u64(*bytes),
            Self::AutoUpTo(most) => serializer.collect_str(&format_args!("auto, up to {most}")),
        }
    }
}

impl Stricter for ShmSize {
    type Plain = Self;

    fn stricter(&self, other: &Self) -> Self {
        self.clamped(*other)
    }

    fn shown(&self) -> String {
        match self {
            Self::Auto => "auto".to_owned(),
            Self::Bytes(bytes) => Bytes(*bytes).shown(),
            Self::AutoUpTo(most) => format!("auto, up to {}", Bytes(*most).shown()),
        }
    }

    fn plain(self) -> Self {
        self
    }

    fn words() -> Vec<&'static str> {
        vec!["auto"]
    }
}

/// `[slurm.bounds] memory`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobMemory {
    /// As much as Slurm gives.
    Unlimited,
    /// This many bytes.
    Bytes(u64),
}

impl JobMemory {
    /// Bytes, where there is a bound.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Self::Unlimited => None,
            Self::Bytes(bytes) => Some(bytes),
        }
    }
}

impl Serialize for JobMemory {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unlimited => serializer.serialize_str("unlimited"),
            Self::Bytes(bytes) => serializer.serialize_u64(*bytes),
        }
    }
}

impl Stricter for JobMemory {
    type Plain = Self;

    fn stricter(&self, other: &Self) -> Self {
        match (self.bytes(), other.bytes()) {
            (Some(one), Some(two)) => Self::Bytes(one.min(two)),
            (Some(bytes), None) | (None, Some(bytes)) => Self::Bytes(bytes),
            (None, None) => Self::Unlimited,
        }
    }

    fn shown(&self) -> String {
        self.bytes()
            .map_or("unlimited".to_owned(), |bytes| Bytes(bytes).shown())
    }

    fn plain(self) -> Self {
        self
    }

    fn words() -> Vec<&'static str> {
        vec!["unlimited"]
    }
}

impl Stricter for Duration {
    type Plain = Self;

    fn stricter(&self, other: &Self) -> Self {
        *self.min(other)
    }

    fn shown(&self) -> String {
        self.as_millis().to_string()
    }

    fn plain(self) -> Self {
        self
    }
}

impl Stricter for bool {
    type Plain = Self;

    fn stricter(&self, other: &Self) -> Self {
        *self && *other
    }

    fn shown(&self) -> String {
        self.to_string()
    }

    fn plain(self) -> Self {
        self
    }
}

/// Values that policies write as words.
pub trait Words: Copy + PartialEq + 'static {
    /// Each word and what it means, as messages list them.
    const WORDS: &'static [(&'static str, Self)];
    /// Which end of the list is the narrowest.
    const NARROWEST: End;
}

/// An end of a list of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The first word.
    First,
    /// The last word.
    Last,
}

impl<T: Words> Stricter for T {
    type Plain = Self;

    fn stricter(&self, other: &Self) -> Self {
        let either = |(_, value): &&(&str, Self)| value == self || value == other;
        let mut both = T::WORDS.iter().filter(either);
        let found = match T::NARROWEST {
            End::First => both.next(),
            End::Last => both.next_back(),
        };
        found.map_or(*self, |(_, value)| *value)
    }

    fn shown(&self) -> String {
        let known = T::WORDS.iter().find(|(_, value)| value == self);
        known.map_or("", |(word, _)| word).to_owned()
    }

    fn plain(self) -> Self {
        self
    }

    fn words() -> Vec<&'static str> {
        T::WORDS.iter().map(|(word, _)| *word).collect()
    }
}

/// A type whose values are words, in the order in which messages list them; and which end of it is the narrowest.
macro_rules! words {
    ($(
        $(#[$about:meta])*
        $name:ident, $end:ident { $($(#[$doc:meta])* $value:ident = $word:literal,)* }
    )*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
        pub enum $name {
            $($(#[$doc])* #[serde(rename = $word)] $value,)*
        }

        impl $crate::policy::values::Words for $name {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$value)),*];
            const NARROWEST: $crate::policy::values::End = $crate::policy::values::End::$end;
        }
    )*};
}
pub(super) use words;

words! {
    /// `[project] git`
    Git, First {
        /// Hooks and configuration are read-only inside: they run code when git is used outside.
        Protect = "protect",
        /// They are writable like the rest of the project.
        Writable = "writable",
    }

    /// `[project] settings`
    Settings, First {
        /// Those that exist are read-only inside, and new ones are set aside at the end: they name programs.
        Protect = "protect",
        /// They are writable and stay. What is new or changed is said all the same.
        Writable = "writable",
    }

    /// `[home] mode`
    HomeMode, First {
        /// An empty private home with the named entries.
        Tmpfs = "tmpfs",
        /// As `Tmpfs`, and every entry that does not begin with a dot, readable.
        Restricted = "restricted",
        /// Every entry readable.
        Read = "read",
        /// Every entry writable.
        Write = "write",
    }

    /// `[jail] users`
    Users, First {
        /// System users and the caller.
        Filtered = "filtered",
        /// The host's `/etc/passwd`, `/etc/group` and `/etc/nsswitch.conf` as they are.
        Host = "host",
    }

    /// Whether a jail starts without a feature that Landlock does not have.
    Requirement, First {
        /// Never: the built-in value is required as well.
        Refuse = "refuse",
        /// Unless somebody requires it: a user by writing its key.
        Auto = "auto",
        /// Also where the user's own policy has its key.
        Degraded = "degraded",
    }

    /// `[network] mode`
    NetworkMode, Last {
        /// The host's network.
        Open = "open",
        /// A network of its own, from which a filter outside leads to the hosts that are allowed.
        Filtered = "filtered",
        /// No network but a loopback of its own.
        Isolated = "isolated",
    }

    /// `[network] jobs`
    JobsNetwork, Last {
        /// The node's network, whatever the session has.
        Open = "open",
        /// What the session has.
        Same = "same",
        /// None.
        Isolated = "isolated",
    }

    /// `[network] credentials`
    Exchange, Last {
        /// Placeholders are exchanged for values.
        On = "on",
        /// No value is read, and none goes anywhere.
        Off = "off",
    }

    /// `[slurm] mode`
    SlurmMode, Last {
        /// Slurm's commands work inside, where the host has them.
        Auto = "auto",
        /// They do not.
        Off = "off",
    }

    /// `[agents] state`
    AgentState, First {
        /// Each project has a state of its own; login and settings are the user's.
        Project = "project",
        /// The user's own state, in all projects, inside and outside.
        Shared = "shared",
    }

    /// `[agents] instructions`
    Instructions, First {
        /// An agent gets a text about its jail.
        Given = "given",
        /// It gets none.
        Off = "off",
    }
}

impl Words for Scope {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("session", Self::Session),
        ("project", Self::Project),
        ("user", Self::User),
    ];
    const NARROWEST: End = End::First;
}

impl Words for Queries {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("none", Self::None),
        ("counts", Self::Counts),
        ("names", Self::Names),
    ];
    const NARROWEST: End = End::First;
}

impl Words for Allocation {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("off", Self::Off),
        ("steps", Self::Steps),
        ("control", Self::Control),
    ];
    const NARROWEST: End = End::First;
}
