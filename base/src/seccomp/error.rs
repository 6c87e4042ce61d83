//! What is wrong with a table.

use super::program::MAX_INSTRUCTIONS;
use crate::plan::model::syscalls::When;

/// Rules that cannot be compiled. All of them are mistakes in the table, none depends on the host.
#[derive(Debug, thiserror::Error)]
pub enum SeccompError {
    /// The name is neither a call of this architecture nor in the list of those it lacks.
    #[error("`{0}` is no system call that this program knows")]
    UnknownSyscall(&'static str),
    /// The call has a rule without a condition beside others.
    #[error("`{0}` is refused always, its other rules never count")]
    NeverCounts(&'static str),
    /// A condition that holds never, or only by mistake.
    #[error("a condition for `{0}` makes no sense: {1:?}")]
    Condition(&'static str, When),
    /// More instructions than the kernel takes.
    #[error("the seccomp program has {0} instructions, the kernel takes {MAX_INSTRUCTIONS}")]
    TooLong(usize),
}
