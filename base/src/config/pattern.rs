//! Patterns of names: the same in policies and for the tracer.

pub use agent_sandbox_events::pattern::glob;
