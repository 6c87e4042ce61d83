//! The mediator of a jail that Landlock makes: a trusted process outside that decides those system
//! calls which Landlock lets through and which reach another process's authority, or files that may
//! not be changed. A filter hands them over (`seccomp_unotify(2)`, [`super::handed_over`]).
//!
//! It carries out itself what it decides, on objects that it has resolved and holds open: the caller
//! may change its memory, its descriptors and every path meanwhile. It lets the kernel go on with a
//! call ([`Answer::Kernel`]) only where Landlock, or the kernel itself, refuses whatever must not be:
//! never as a verdict.
//!
//! The mediator keeps to Landlock's rules itself: those of the command, and writing where the jail
//! has it. Everything below a launch is its descendant, since it is a subreaper (`prctl(2)`), which is
//! also what gives it access to their memory and descriptors under Yama's scope 1.

pub mod commands;
pub mod connect;
mod context;
pub mod decide;
pub mod ending;
mod family;
mod life;
pub mod modes;
pub mod open;
pub mod processes;
pub mod serve;
pub mod terminals;
pub mod tree;
pub mod watch;
mod way_out;

pub use context::{Answer, Context};
pub use life::{Given, start, start_given};
pub use way_out::WayOut;
