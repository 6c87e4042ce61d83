//! Landlock as the whole jail, where bubblewrap cannot make one: which rules the kernel keeps, by which map the mediator
//! decides ([`access`]), how a plan becomes both ([`translate`](mod@translate)), whether they give no more than the plan ([`check`]),
//! and what such a jail lacks ([`missing`]). What is started of it is `launch::landlock`'s.

pub mod access;
pub mod check;
mod contents;
mod map;
pub mod missing;
pub mod required;
pub mod restrict;
pub mod stage;
pub mod translate;
mod variables;

pub use contents::{Places, Staged, Thing};
pub use translate::{Fenced, translate};
