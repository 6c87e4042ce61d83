//! The only unsafe code of the launcher: thin wrappers around system calls, each of which states
//! why it is sound. Nothing here decides anything.

#![allow(unsafe_code)]

pub mod fds;
pub mod instead;
pub mod memory;
pub mod mounts;
pub mod namespaces;
pub mod notify;
pub mod passing;
pub mod paths;
pub mod privileges;
pub mod probe;
pub mod process;
pub mod remote;
pub mod routes;
pub mod sockets;
pub mod terminals;
pub mod threads;
