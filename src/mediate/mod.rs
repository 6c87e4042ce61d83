//! The mediator of a jail that Landlock makes ([`group`] is that of one that bubblewrap makes): a trusted process outside that decides those system
//! calls which Landlock lets through and which reach another process's authority, or files that may
//! not be changed. A filter hands them over (`seccomp_unotify(2)`, `backend::seccomp::mediated`).
//!
//! What it decides it carries out itself, on objects that it has resolved and holds open: the caller
//! may change its memory, its descriptors and every path meanwhile. The kernel is let go on with a
//! call ([`Answer::Kernel`]) only where Landlock, or the kernel itself, refuses whatever must not be:
//! never as a verdict.
//!
//! The mediator keeps to Landlock's rules itself: those of the command, and writing where the jail
//! has it. Everything below a launch is its descendant, since it is a subreaper (`prctl(2)`), which is
//! also what gives it access to their memory and descriptors under Yama's scope 1.

pub mod caller;
pub mod commands;
pub mod connect;
mod context;
pub mod ending;
mod family;
pub mod git_config;
pub mod group;
mod life;
pub mod modes;
pub mod open;
pub mod place;
pub mod processes;
pub mod serve;
pub mod sight;
pub mod terminals;
pub mod tree;

pub use context::{Answer, Context};
pub use life::{start, start_watched};
