//! The merged policy: a field for each row of the table of keys, with its default.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use agent_sandbox_events::protocol::SOCKET;
use agent_sandbox_wire::order::{self, Allocation, Queries, Scope};
use serde::Serialize;

use super::bounds::Bounds;
use super::clamp::{Clamp, Clamped, Fixed, Gives, Loads, Sets, Single, Takes};
use super::credentials::Credential;
use super::hosts::{HostEntry, Hosts};
use super::injected_files::InjectedFile;
use super::names::Names;
use super::paths::PathSpec;
use super::ssh::{SshHosts, SshKeys};
use super::state::Wanted;
use super::stated::{self, Stated};
use super::trace::{Events, Recorded, Sampling, TraceMode};
use super::values::*;
use crate::config::keys::keys;
use crate::config::source::Sourced;

/// One section of the merged policy.
macro_rules! section {
    (
        $(#[$about:meta])*
        $name:ident [$($(#[$below:meta])* $within:ident: $Within:ident)*]
        $($(#[$line:meta])* $key:ident: $kind:ty, [$($default:expr)?];)*
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, Serialize)]
        pub struct $name {
            $($(#[$line])* pub $key: <$kind as Clamp>::Value,)*
            $($(#[$below])* pub $within: $Within,)*
        }

        impl $name {
            fn of(stated: stated::$name) -> Self {
                Self {
                    $($key: stated.$key.settle($($default)?),)*
                    $($within: $Within::of(stated.$within),)*
                }
            }

            fn variables<'a>(&'a self, all: &mut BTreeSet<&'a str>) {
                $(<$kind as Clamp>::variables(&self.$key, all);)*
                $(self.$within.variables(all);)*
            }
        }
    };
}

macro_rules! merged {
    ($(
        $(#[$about:meta])*
        $section:ident: $Section:ident {
            $(
                $(#[$line:meta])*
                $key:ident: $form:ident => $kind:ty, $read:ident($($arg:expr),*)
                    $($text:literal)? $(= $default:expr)?;
            )*
            $([
                $(#[$below:meta])*
                $within:ident: $Within:ident {
                    $(
                        $(#[$line_within:meta])*
                        $key_within:ident: $form_within:ident => $kind_within:ty, $read_within:ident($($arg_within:expr),*)
                            $($text_within:literal)? $(= $default_within:expr)?;
                    )*
                }
            ])*
        }
    )*) => {
        $(
            section! {
                $(#[$about])*
                $Section [$($(#[$below])* $within: $Within)*]
                $($(#[$line])* $key: $kind, [$($default)?];)*
            }
            $(section! {
                $(#[$below])*
                $Within []
                $($(#[$line_within])* $key_within: $kind_within, [$($default_within)?];)*
            })*
        )*

        /// The merged policy. What each key means, and its unit, stands in `profiles/default.toml`.
        #[derive(Clone, Debug, Serialize)]
        pub struct Policy {
            $($(#[$about])* pub $section: $Section,)*
            /// Values that stay outside.
            #[serde(skip)]
            pub credentials: Vec<Credential>,
            /// Files that the profiles in use give.
            #[serde(skip)]
            pub injected_files: Vec<InjectedFile>,
            /// What the state of the profiles in use needs besides the lists.
            #[serde(skip)]
            pub wanted: Wanted,
            /// What the site's enforced layers bound.
            #[serde(skip)]
            pub bounds: Bounds,
            /// What they took away of what other layers ask for, as far as the policy alone tells; the rest
            /// is judged in the plan.
            #[serde(skip)]
            pub clamped: Vec<Clamped>,
        }

        impl Policy {
            /// What holds of what all layers state.
            pub(super) fn of(stated: Stated) -> Self {
                Self {
                    $($section: $Section::of(stated.$section),)*
                    credentials: Vec::new(),
                    injected_files: Vec::new(),
                    wanted: Wanted::default(),
                    bounds: Bounds::default(),
                    clamped: Vec::new(),
                }
            }

            /// The variables that its paths begin with, each once.
            pub fn path_variables(&self) -> BTreeSet<&str> {
                let mut all = BTreeSet::new();
                $(self.$section.variables(&mut all);)*
                all
            }
        }
    };
}

keys!(merged);

impl SlurmLimits {
    /// The numbers and who set them, as the chaperon gets them.
    pub fn values(&self) -> order::Limits {
        let limit = |number: &Sourced<u32>| order::Limit {
            most: number.value,
            source: number.source.to_string(),
        };
        order::Limits {
            queries_per_minute: self.queries_per_minute.value,
            jobs: limit(&self.jobs),
            submissions_per_minute: limit(&self.submissions_per_minute),
            submissions_per_day: limit(&self.submissions_per_day),
        }
    }
}
