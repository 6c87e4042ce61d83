//! Verifies marks of jobs, where no tracer and no launcher is: on Slurm's controller, and in a Prolog.
//!
//! What keeps a job in the jail is the first line of its batch script: the kernel hands the script to the launcher,
//! which is root's, and what follows is data to it ([`verify`]). The signature says who asked for it, where and when
//! ([`agent_sandbox_events::mark`]); whose signatures count stands in a file of the site's ([`keys`]).

#![deny(unsafe_code)]

pub mod cli;
pub mod keys;
pub mod verify;
