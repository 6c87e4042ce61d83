//! What a command did, as far as somebody who only looks can tell (`mediate::sight`).
//! `agent-sandbox profile init` writes a profile of it. It decides nothing, and is bounded, for the command
//! may make calls without end.

pub mod recorder;
pub mod seen;
pub mod trail;
