//! The shim against a chaperon that the tests play.

#![allow(clippy::disallowed_methods)] // a test: starts the shim, listens for it
#![allow(clippy::unwrap_used)] // a test: the panic is the failure

mod calls;
mod chaperon;
mod children;
mod ends;
mod files;
mod output;
mod signals;
mod speed;
mod sys;
mod terminal;
mod trouble;
