//! What shows: the jobs of the scope in full, and of others what the policy lets be seen.

mod blocks;
mod format;
mod format_fields;
mod format_lines;
mod json;
pub(super) mod sacct;
pub(super) mod sacctmgr;
pub(super) mod script;
pub(super) mod sdiag;
pub(super) mod show;
mod shown;
pub(super) mod sinfo;
pub(super) mod sprio;
pub(super) mod squeue;
pub(super) mod sshare;
pub(super) mod sstat;
