//! The whole service with a kernel of the tests and real processes, asked by hand.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub,
    reason = "tests"
)]

mod audit;
mod crowd;
mod expensive;
mod fake;
mod hostile;
mod lifetimes;
mod limits;
mod marks;
mod others;
mod reading;
mod reluctant;
mod scopes;
mod starving;
mod world;
