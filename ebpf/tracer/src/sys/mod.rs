//! The only unsafe code of this crate: system calls that have no safe wrapper.

pub(crate) mod bpf;
pub(crate) mod handle;
pub(crate) mod pidfd;
pub(crate) mod socket;
