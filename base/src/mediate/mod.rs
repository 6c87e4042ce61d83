//! What mediators are made of (`seccomp_unotify(2)`): reading a caller and its call, and resolving what the call is
//! about to an object that is held open. A mediator is a trusted process outside of a jail that carries out
//! certain calls for it. Each backend has its own, `backend::bubblewrap::mediator` and the one of the crate
//! `agent-sandbox-landlock`; what may be done is decided there.

pub mod arguments;
pub mod attributes;
pub mod caller;
pub mod detach;
pub mod git_config;
pub mod resolve;
pub mod sight;
