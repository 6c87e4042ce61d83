//! The probes in the kernel, from user space: loaded once a node, pinned so that they outlive whoever loaded
//! them, tried before anyone relies on them, and talked to through their maps.

mod about;
#[cfg(test)]
mod calls;
mod demand;
mod exercise;
mod iterator;
mod load;
mod maps;
mod objects;
mod obstacles;
mod open;
mod pins;
mod probes;
mod programs;
mod prove;
mod settings;

pub use about::About;
pub use exercise::child as exercise;
pub use load::{Report, child as load};
pub use maps::{Counts, SELF_TEST, Sweep, SweepWhat, TraceEntry};
pub use objects::Kind;
pub use probes::Probes;
pub use settings::{Choice, Error, Settings};
