//! Which of the commands that share a table have an option, or read a variable: bits.

use super::option::Opt;

/// sbatch.
pub(super) const B: u8 = 1;
/// salloc.
pub(super) const A: u8 = 2;
/// srun.
pub(super) const R: u8 = 4;
pub(super) const BA: u8 = B | A;
pub(super) const BR: u8 = B | R;
pub(super) const AR: u8 = A | R;
pub(super) const ALL: u8 = B | A | R;
/// The one command of a table that no other shares.
pub(super) const OWN: u8 = 8;

/// An option of these commands.
pub(super) const fn of(who: u8, mut option: Opt) -> Opt {
    option.who = who;
    option
}
