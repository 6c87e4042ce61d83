//! How a row for several of sbatch, salloc and srun is written down.

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

/// One row for some of the three commands, with the variables of each.
#[derive(Clone, Copy)]
pub(super) struct Shared {
    pub(super) who: u8,
    pub(super) option: Opt,
    pub(super) sbatch: &'static [&'static str],
    pub(super) salloc: &'static [&'static str],
    pub(super) srun: &'static [&'static str],
}

pub(super) const fn of(who: u8, option: Opt) -> Shared {
    Shared {
        who,
        option,
        sbatch: &[],
        salloc: &[],
        srun: &[],
    }
}

impl Shared {
    pub(super) const fn sbatch(mut self, variables: &'static [&'static str]) -> Self {
        self.sbatch = variables;
        self
    }

    pub(super) const fn salloc(mut self, variables: &'static [&'static str]) -> Self {
        self.salloc = variables;
        self
    }

    pub(super) const fn srun(mut self, variables: &'static [&'static str]) -> Self {
        self.srun = variables;
        self
    }
}
