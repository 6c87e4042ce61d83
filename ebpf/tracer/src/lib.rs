//! The tracer: a service that loads the probes once a node and writes what they see of the processes that
//! it is asked to trace.

#![deny(unsafe_code)]

pub mod cli;
pub mod kernel;
pub mod logging;
pub mod service;
mod sys;
pub mod trail;
