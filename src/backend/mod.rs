//! From a plan to the kernel. Backends translate; they decide nothing.

pub mod bubblewrap;

pub use agent_sandbox_base::missing;
