//! What the probes see ([`raw`]), what the tracer makes of it ([`record`]), and how the launcher and
//! whoever reads a trail ask the tracer ([`protocol`], [`client`]), how trails are read ([`trails`]), what it signs for jobs
//! ([`mark`]), and how the launcher calls who shows trails ([`ask`]). All sides use this crate; it decides nothing.

#![deny(unsafe_code)]

pub mod ask;
pub mod client;
pub mod mark;
pub mod pattern;
pub mod protocol;
pub mod raw;
pub mod record;
pub mod sys;
pub mod text;
pub mod trails;
