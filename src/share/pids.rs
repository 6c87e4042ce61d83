//! The numbers of processes in a step. Steps of a job count their processes each for itself, and share
//! `/tmp` and `/dev/shm`, where programs name files after their process: so each step begins to count
//! somewhere else.

use std::fs;

/// Processes that a step may have started before it comes to the numbers of the next, where
/// numbers go on to four million (`kernel.pid_max`, `proc_sys_kernel(5)`).
const APART: u64 = 16 << 10;
/// Where they go on to 32768, the kernel's own choice.
const CLOSER: u64 = 2 << 10;
/// Numbers below are not used twice (`RESERVED_PIDS`, Linux's `kernel/pid.c`).
const RESERVED: u64 = 300;

/// The number before the first of a step, by how many steps came before it.
pub fn before(order: u64) -> u32 {
    let text = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap_or_default();
    between(order, text.trim().parse().unwrap_or(0))
}

fn between(order: u64, most: u64) -> u32 {
    let apart = if most > APART * 64 { APART } else { CLOSER };
    let steps = most.saturating_sub(RESERVED) / apart;
    if steps == 0 {
        return 0;
    }
    u32::try_from(RESERVED + order % steps * apart).unwrap_or(0)
}

/// Has the pid namespace of this process count on from `last`. For a process with rights over it.
/// Kernels without `CONFIG_CHECKPOINT_RESTORE` count from 1, as if nothing had been asked.
pub fn count_from(last: u32) {
    let _ = fs::write("/proc/sys/kernel/ns_last_pid", last.to_string());
}

#[cfg(test)]
mod tests {
    use super::between;

    #[test]
    fn rooms_begin_apart_and_below_the_limit() {
        assert_eq!(
            [0, 1, 2].map(|order| between(order, 32_768)),
            [300, 2348, 4396]
        );
        assert_eq!([0, 1].map(|order| between(order, 4_194_304)), [300, 16_684]);
        for order in 0..1000 {
            assert!(between(order, 32_768) < 32_768);
        }
        assert_eq!(between(7, 0), 0);
    }
}
