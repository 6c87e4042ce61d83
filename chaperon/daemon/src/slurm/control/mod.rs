//! What acts on jobs that are there: each of them is in the scope, and what changes one asks whether it may.

pub(super) mod jobs;
pub(super) mod scancel;
pub(super) mod update;
