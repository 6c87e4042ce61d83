//! Filters of system calls (`seccomp(2)`), as programs of classic BPF: what a policy refuses ([`compile`]), and which
//! calls are handed over to a process that answers them. [`program`] is the one place that makes instructions; who
//! hands calls over says which, under which conditions.
//!
//! A process may have several filters. Each begins with the same entry, so that calls of another ABI get ENOSYS from
//! any of them; and of their answers the kernel takes the strictest: an errno is stricter than a handing over, so what
//! the table refuses stays refused.

mod error;
pub mod notify;
pub mod numbers;
pub mod program;
mod rules;
pub mod watched;

pub use error::SeccompError;
pub use numbers::{lacking, number};
pub use program::{INSTRUCTION_BYTES, MAX_INSTRUCTIONS};
pub use rules::compile;
