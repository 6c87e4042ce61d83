//! Landlock as the whole jail, where bubblewrap cannot make one: which rules the kernel enforces, by which map the mediator
//! decides ([`access`]), how a plan becomes both ([`translate`](mod@translate)), whether they give no more than the plan ([`check`]),
//! what such a jail lacks ([`missing`]), how a process confines itself ([`restrict`]), and the mediator beside it
//! ([`mediator`]). The launcher's `launch::landlock` starts it.

#![deny(unsafe_code)]

pub mod access;
pub mod check;
mod contents;
pub mod handed_over;
mod map;
pub mod mediator;
pub mod missing;
pub mod refused;
pub mod required;
pub mod restrict;
pub mod stage;
pub mod translate;
mod variables;

pub use contents::{Places, Staged, Thing};
pub use translate::{SHARED_MEMORY, Translated, translate};
