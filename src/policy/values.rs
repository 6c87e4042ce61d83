//! The values of policies as they are written, and which of two is the narrower.

use std::time::Duration;

use agent_sandbox_wire::order::{Allocation, Queries, Scope};

use super::{
    AgentState, Demand, Git, HomeMode, Instructions, NetworkMode, Settings, ShmSize, SlurmMode,
    TraceMode, Users,
};

/// A value of which one of two is the narrower, or a third that is narrower than both.
pub trait Narrower: Clone + PartialEq {
    /// What allows no more than either.
    #[must_use]
    fn narrower(&self, other: &Self) -> Self;
    /// As policy files write it.
    fn shown(&self) -> String;
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

    pub(super) fn written_short(self) -> u32 {
        u32::try_from(self.written()).unwrap_or(u32::MAX)
    }

    /// Whether another is no wider.
    pub fn holds(self, other: Self) -> bool {
        other.0 <= self.0
    }
}

impl Narrower for Limit {
    fn narrower(&self, other: &Self) -> Self {
        Self(self.0.min(other.0))
    }

    fn shown(&self) -> String {
        match self.written() {
            0 => "no limit".to_owned(),
            most => most.to_string(),
        }
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl Narrower for Bytes {
    fn narrower(&self, other: &Self) -> Self {
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
}

impl Narrower for ShmSize {
    fn narrower(&self, other: &Self) -> Self {
        self.narrowed(*other)
    }

    fn shown(&self) -> String {
        match self {
            Self::Auto => "auto".to_owned(),
            Self::Bytes(bytes) => Bytes(*bytes).shown(),
            Self::AutoUpTo(most) => format!("auto, up to {}", Bytes(*most).shown()),
        }
    }
}

impl Narrower for Duration {
    fn narrower(&self, other: &Self) -> Self {
        *self.min(other)
    }

    fn shown(&self) -> String {
        self.as_millis().to_string()
    }
}

impl Narrower for bool {
    fn narrower(&self, other: &Self) -> Self {
        *self && *other
    }

    fn shown(&self) -> String {
        self.to_string()
    }
}

/// Words whose order is that of their width, narrowest first.
macro_rules! words {
    ($($word:ty),*) => {$(
        impl Narrower for $word {
            fn narrower(&self, other: &Self) -> Self {
                *self.min(other)
            }

            fn shown(&self) -> String {
                let known = Self::WORDS.iter().find(|(_, value)| value == self);
                known.map_or("", |(word, _)| word).to_owned()
            }
        }
    )*};
}

words!(
    Git,
    Settings,
    HomeMode,
    Users,
    Demand,
    NetworkMode,
    SlurmMode,
    Scope,
    Queries,
    Allocation,
    TraceMode,
    AgentState,
    Instructions
);

/// Values that policies write as words.
pub trait Words: Sized + 'static {
    /// Each word and what it means.
    const WORDS: &'static [(&'static str, Self)];
}

impl Words for Settings {
    const WORDS: &'static [(&'static str, Self)] =
        &[("protect", Self::Protect), ("writable", Self::Writable)];
}

impl Words for Git {
    const WORDS: &'static [(&'static str, Self)] =
        &[("protect", Self::Protect), ("writable", Self::Writable)];
}

impl Words for HomeMode {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("tmpfs", Self::Tmpfs),
        ("restricted", Self::Restricted),
        ("read", Self::Read),
        ("write", Self::Write),
    ];
}

impl Words for Users {
    const WORDS: &'static [(&'static str, Self)] =
        &[("filtered", Self::Filtered), ("host", Self::Host)];
}

impl Words for Demand {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("refuse", Self::Refuse),
        ("auto", Self::Auto),
        ("degraded", Self::Degraded),
    ];
}

impl Words for NetworkMode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("open", Self::Open), ("isolated", Self::Isolated)];
}

impl Words for SlurmMode {
    const WORDS: &'static [(&'static str, Self)] = &[("auto", Self::Auto), ("off", Self::Off)];
}

impl Words for Scope {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("session", Self::Session),
        ("project", Self::Project),
        ("user", Self::User),
    ];
}

impl Words for Queries {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("none", Self::None),
        ("counts", Self::Counts),
        ("names", Self::Names),
    ];
}

impl Words for Allocation {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("off", Self::Off),
        ("steps", Self::Steps),
        ("control", Self::Control),
    ];
}

impl Words for TraceMode {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("off", Self::Off),
        ("on", Self::On),
        ("required", Self::Required),
    ];
}

impl Words for AgentState {
    const WORDS: &'static [(&'static str, Self)] =
        &[("project", Self::Project), ("shared", Self::Shared)];
}

impl Words for Instructions {
    const WORDS: &'static [(&'static str, Self)] = &[("given", Self::Given), ("off", Self::Off)];
}
