//! Slurm: what may be asked of it, and how it is asked.

pub mod cluster;
pub mod commands;
pub mod explain;
pub mod export;
pub mod format;
pub mod format_fields;
pub mod format_lines;
pub mod ids;
pub mod intents;
pub mod limits;
pub mod messages;
pub mod multi_prog;
pub mod options;
pub mod parse;
pub mod query;
pub mod queue;
pub mod records;
pub mod request;
pub mod scope;
pub mod shown;
pub mod streams;
pub mod submission;
pub mod submitted;
pub mod whole_nodes;
