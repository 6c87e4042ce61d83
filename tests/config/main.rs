//! The loader of policy files: what it finds, what it refuses, and how it says so.
#![allow(clippy::unwrap_used)] // a test that panics has failed
#![allow(clippy::disallowed_methods)] // effects: a home and a site in a temporary directory

mod agents;
mod documents;
mod errors;
mod files;
mod forms;
mod fuzz;
mod keys;
mod layers;
mod reference;
mod site;
mod support;
