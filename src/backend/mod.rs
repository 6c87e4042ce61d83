//! From a plan to the kernel. Backends translate; they decide nothing.

pub mod bwrap;
pub mod landlock;
pub mod seccomp;
