//! The mediator of a Landlock jail, with real processes under a filter that hands calls over: what it
//! reads of callers, that it answers them side by side, that nothing outlives it, and what may be
//! done to other processes.

#![allow(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "tests start processes, read files and the clock"
)]

mod callers;
mod confined;
mod connect;
mod endings;
mod files;
mod jail;
mod outside;
mod processes;
mod serving;
mod way_out;
