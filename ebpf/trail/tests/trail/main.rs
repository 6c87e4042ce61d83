//! What shows trails, from outside: the program on a real terminal, its output, and its tracer, which is
//! played here ([`fake`]): what it is shown must not depend on a kernel that takes eBPF programs.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // tests: they start programs and read files

mod fake;
mod following;
mod hostile;
mod odd;
mod output;
mod records;
mod terminal;
mod tracing;
mod viewed;
mod watching;
