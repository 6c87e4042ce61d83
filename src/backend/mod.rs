//! From a plan to the kernel. Backends translate; they decide nothing.

pub mod bubblewrap;
pub mod landlock;
pub mod missing;
pub mod seccomp;
