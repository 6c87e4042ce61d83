//! What the probes see ([`raw`]), what the tracer makes of it ([`record`]), and how the launcher and
//! whoever reads a trail ask the tracer ([`protocol`], [`client`]), how trails are read ([`trails`]), how the launcher
//! calls who shows them ([`ask`]), what the tracer signs for jobs ([`mark`]), what is handed to root's audit record
//! ([`audit`], [`handover`]), and which job a cgroup is of ([`sluid`]). All sides use this crate; it decides nothing.

#![deny(unsafe_code)]

pub mod ask;
pub mod audit;
pub mod client;
pub mod handover;
pub mod mark;
pub mod pattern;
pub mod protocol;
pub mod raw;
pub mod record;
pub mod sluid;

pub mod sys;
pub mod text;
pub mod trails;
