//! Slurm: what may be asked of it, and how it is asked.
//!
//! `commands` hands each request to one of three parts: `submit` makes jobs and steps, `control` acts on
//! jobs that are there, `query` shows. What they share stands beside them and uses none of them.

pub mod answers;
pub mod approval;
pub mod ask;
pub mod bounds;
pub mod cluster;
pub mod commands;
mod control;
pub mod errand;
pub mod explain;
pub mod hours;
pub mod ids;
pub mod intents;
mod keywords;
pub mod ledger;
pub mod limits;
pub mod lines;
pub mod messages;
pub mod options;
pub mod parse;
mod query;
pub mod queue;
pub mod rates;
pub mod records;
pub mod request;
mod scontrol;
pub mod scope;
pub mod settle;
mod sluid;
mod submit;
pub mod submitted;
