//! Shows trails: live ([`watch`]), as a report ([`report`]), or of one command ([`trace`]). It runs as the
//! user, asks the tracer over its socket, and decides nothing.

#![forbid(unsafe_code)]

pub mod clock;
pub mod fault;
pub mod line;
pub mod link;
pub mod model;
pub mod names;
pub mod report;
pub mod sensitive;
pub mod text;
pub mod trace;
pub mod watch;
