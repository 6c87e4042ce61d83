//! What one layer states, typed: a field for each row of the table of keys, of its kind.

use std::path::PathBuf;
use std::time::Duration;

use agent_sandbox_wire::order::{Allocation, Queries, Scope};

use super::clamp::{Clamp, Clamped, Fixed, Gives, Loads, Rule, Sets, Single, Takes};
use super::hosts::{HostEntry, Hosts};
use super::names::Names;
use super::paths::PathSpec;
use super::ssh::{SshHosts, SshKeys};
use super::trace::{Events, Recorded, Sampling, TraceMode};
use super::typed::Reader;
use super::values::*;
use crate::config::diagnostic::ConfigError;
use crate::config::keys::keys;
use crate::config::load::RawLayer;
use crate::config::schema;
use crate::config::source::Sourced;

/// The longest that one path may be allowed to take to answer.
const LONGEST_TIMEOUT_MS: i64 = 60_000;
/// Of more opens than this, one is no record of what a program opens.
const MOST_EVERY: i64 = 1_000_000;
/// No machine has more processors (`CONFIG_NR_CPUS` of Linux is 8192 at most).
const MOST_CPUS: i64 = 8192;
/// Who is told something older takes it for wrong, in seconds.
const MOST_CACHED: i64 = 60;
/// Hours of more days than a year's are nobody's budget.
const MOST_DAYS: i64 = 366;
/// The greatest `io.weight` (cgroup-v2.rst of the kernel's documentation).
const MOST_WEIGHT: i64 = 10_000;
/// What a number of the merged policy can hold.
const MOST: i64 = u32::MAX as i64;

/// A row of the table of keys, for the reference and the completions.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The key with its section: `files.hide`.
    pub name: &'static str,
    /// The key in one line.
    pub line: &'static str,
    /// What may stand for a value; [`Key::words`] follow, if there are any.
    pub form: &'static str,
    /// How an enforced layer narrows it.
    pub rule: Rule,
    words: fn() -> Vec<&'static str>,
}

impl Key {
    /// The words that stand for values, if some do.
    pub fn words(&self) -> Vec<&'static str> {
        (self.words)()
    }
}

/// What a layer states in one section. Every row has a field, a way to read it and a rule, or it does not
/// compile.
macro_rules! section {
    (
        $name:ident $prefix:tt [$($within:ident: $Within:ident)*]
        $($key:ident: $kind:ty, $read:ident($($arg:expr),*);)*
    ) => {
        #[derive(Clone, Debug, Default)]
        #[allow(missing_docs, reason = "the keys are explained in the table")]
        pub struct $name {
            $(pub $key: $kind,)*
            $(pub $within: $Within,)*
        }

        impl $name {
            fn read(read: &Reader<'_>, written: &schema::$name) -> Result<Self, ConfigError> {
                Ok(Self {
                    $($key: read.$read(&written.$key $(, $arg)*)?,)*
                    $($within: match &written.$within {
                        Some(section) => $Within::read(read, section)?,
                        None => $Within::default(),
                    },)*
                })
            }

            fn prefer(&mut self, later: Self) {
                $(self.$key.prefer(later.$key);)*
                $(self.$within.prefer(later.$within);)*
            }

            fn bounds(&self, all: &mut Vec<(&'static str, Sourced<String>)>) {
                let each = [$((name!($prefix $key), self.$key.bounds())),*];
                all.extend(each.into_iter().filter_map(|(key, list)| Some((key, list?))));
                $(self.$within.bounds(all);)*
            }

            fn clamp_to(&mut self, enforced: &Self, clamped: &mut Vec<Clamped>) {
                $(self.$key.clamp_to(name!($prefix $key), &enforced.$key, clamped);)*
                $(self.$within.clamp_to(&enforced.$within, clamped);)*
            }
        }
    };
}

/// A key with its section.
macro_rules! name {
    ([$($part:ident)+] $key:ident) => {
        concat!($(stringify!($part), ".",)+ stringify!($key))
    };
}

/// A row of [`KEYS`].
macro_rules! key {
    ($prefix:tt $key:ident: $kind:ty, [$($line:literal)*] [$($text:literal)?]) => {
        Key {
            name: name!($prefix $key),
            line: concat!($($line),*),
            form: concat!($($text)?),
            rule: <$kind as Clamp>::RULE,
            words: <$kind as Clamp>::words,
        }
    };
}

macro_rules! stated {
    ($(
        $(#[doc = $about:literal])*
        $section:ident: $Section:ident {
            $(
                $(#[doc = $line:literal])*
                $key:ident: $form:ident => $kind:ty, $read:ident($($arg:expr),*)
                    $($text:literal)? $(= $default:expr)?;
            )*
            $([
                $(#[doc = $below:literal])*
                $within:ident: $Within:ident {
                    $(
                        $(#[doc = $line_within:literal])*
                        $key_within:ident: $form_within:ident => $kind_within:ty, $read_within:ident($($arg_within:expr),*)
                            $($text_within:literal)? $(= $default_within:expr)?;
                    )*
                }
            ])*
        }
    )*) => {
        $(
            section! {
                $Section [$section] [$($within: $Within)*]
                $($key: $kind, $read($($arg),*);)*
            }
            $(section! {
                $Within [$section $within] []
                $($key_within: $kind_within, $read_within($($arg_within),*);)*
            })*
        )*

        /// What one layer states, or several that were merged: a field for each section.
        #[derive(Clone, Debug, Default)]
        #[allow(missing_docs, reason = "the sections are explained in the table")]
        pub struct Stated {
            $(pub $section: $Section,)*
        }

        /// Every key, in the order of the table.
        pub const KEYS: &[Key] = &[$(
            $(key!([$section] $key: $kind, [$($line)*] [$($text)?]),)*
            $($(key!([$section $within] $key_within: $kind_within, [$($line_within)*] [$($text_within)?]),)*)*
        )*];

        impl Stated {
            /// Types one layer.
            ///
            /// # Errors
            /// A value that does not mean anything, with its file, line and the nearest valid word.
            pub fn read(layer: &RawLayer) -> Result<Self, ConfigError> {
                let read = Reader::new(layer);
                let mut all = Self::default();
                $(if let Some(section) = &layer.sections.$section {
                    all.$section = $Section::read(&read, section)?;
                })*
                Ok(all)
            }

            /// Takes over what a later layer states.
            pub(super) fn prefer(&mut self, later: Self) {
                $(self.$section.prefer(later.$section);)*
            }

            /// Of an enforced layer the lists that bound, by their keys.
            pub fn bounds(&self) -> Vec<(&'static str, Sourced<String>)> {
                let mut all = Vec::new();
                $(self.$section.bounds(&mut all);)*
                all
            }

            /// Allows no more than an enforced layer does.
            pub(super) fn clamp_to(&mut self, enforced: &Self, clamped: &mut Vec<Clamped>) {
                $(self.$section.clamp_to(&enforced.$section, clamped);)*
            }
        }
    };
}

keys!(stated);
