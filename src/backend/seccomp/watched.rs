//! The second program of a run that is watched (`agent-sandbox profile init`): it hands the calls of a
//! list over to the launcher, which looks at them and lets the kernel go on.
//!
//! It stands beside the program of [`super::compile`] and begins with the same entry, so that calls of
//! another ABI get ENOSYS from either. An errno is stricter than a handing over: what the table
//! refuses stays refused, and nobody hears of it.

use std::collections::BTreeMap;

use super::mediated::{HAND_OVER, ranges, tree};
use super::{NR_OFFSET, bytes, entry, load};

/// The program for these calls as the bytes of a `struct sock_filter` array in this machine's layout.
#[must_use]
pub fn program(numbers: &[i64]) -> Vec<u8> {
    // Every number of a call is small and above 0 (kernel/seccomp.c takes them as `int`).
    let numbers = numbers.iter().filter_map(|&one| u32::try_from(one).ok());
    let verdicts: BTreeMap<u32, _> = numbers.map(|number| (number, vec![HAND_OVER])).collect();
    let mut program = entry();
    program.push(load(NR_OFFSET));
    program.extend(tree(&ranges(&verdicts)));
    program.iter().flat_map(bytes).collect()
}
