//! How much memory a job has on its node, and with it how much its `/dev/shm` may hold: room in which
//! the processes of a parallel program meet. Pure.

use std::ffi::OsString;

use crate::plan::model::Job;

/// Room in the `/dev/shm` of a session with `jail.shm_size = "auto"`, and of a job whose memory is
/// unknown.
const SESSION_SHM: u64 = 4 << 30;
/// A job's `/dev/shm` with `"auto"` has at least this much: Open MPI takes 4 MiB for each rank.
const LEAST_SHM: u64 = 64 << 20;
/// Bytes of the `/dev/shm` with `jail.shm_size = "auto"`: in a job half of the job's memory.
pub fn automatic_shm(job: Option<&Job>) -> u64 {
    job.and_then(|job| job.memory)
        .map_or(SESSION_SHM, |memory| (memory / 2).max(LEAST_SHM))
}

/// Bytes of memory that a job has on this node, from the environment in which slurmstepd started the
/// launcher (`sbatch(1)`, "OUTPUT ENVIRONMENT VARIABLES"; megabytes there are of 2^20 bytes) and the
/// memory of the whole node, `total`. A job that asked for none, or for all, has all.
pub fn of_job(environment: &[(OsString, OsString)], total: u64) -> u64 {
    let number = |name: &str| text(environment, name)?.parse::<u64>().ok();
    let per = |name: &str, count: Option<u64>| Some(number(name)?.saturating_mul(count?));
    let megabytes = number("SLURM_MEM_PER_NODE")
        .or_else(|| per("SLURM_MEM_PER_CPU", processors(environment)))
        .or_else(|| per("SLURM_MEM_PER_GPU", number("SLURM_GPUS_ON_NODE")));
    match megabytes {
        None | Some(0) => total,
        Some(megabytes) => megabytes.saturating_mul(1 << 20).min(total),
    }
}

/// Processors of the job on this node. In a step `SLURM_CPUS_ON_NODE` counts the step's; every node
/// of the job has as many as the smallest number in `SLURM_JOB_CPUS_PER_NODE` (`72(x2),36`).
fn processors(environment: &[(OsString, OsString)]) -> Option<u64> {
    let here = text(environment, "SLURM_CPUS_ON_NODE").and_then(|count| count.parse().ok());
    let smallest = text(environment, "SLURM_JOB_CPUS_PER_NODE").and_then(|all| {
        let counts = all
            .split(',')
            .map(|part| part.split('(').next().unwrap_or(part).parse::<u64>());
        counts
            .collect::<Result<Vec<_>, _>>()
            .ok()?
            .into_iter()
            .min()
    });
    here.max(smallest)
}

/// Bytes of memory of this node, from the text of `/proc/meminfo` (`proc_meminfo(5)`, `MemTotal`).
pub fn of_node(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1 << 10)
}

fn text<'a>(environment: &'a [(OsString, OsString)], name: &str) -> Option<&'a str> {
    let found = environment.iter().find(|(given, _)| given == name);
    found.and_then(|(_, value)| value.to_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(entries: &[&str]) -> Vec<(OsString, OsString)> {
        let pairs = entries.iter().filter_map(|entry| entry.split_once('='));
        pairs
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn memory_of_a_job() {
        let total = 64_000 * MIB;
        for (entries, expected) in [
            (&[][..], 64_000),
            (&["SLURM_MEM_PER_NODE=0"], 64_000),
            (&["SLURM_MEM_PER_NODE=2000"], 2000),
            (&["SLURM_MEM_PER_NODE=2000000"], 64_000),
            (&["SLURM_MEM_PER_NODE=18446744073709551615"], 64_000),
            (&["SLURM_MEM_PER_NODE=2G"], 64_000),
            (&["SLURM_MEM_PER_CPU=100"], 64_000),
            (&["SLURM_MEM_PER_CPU=100", "SLURM_CPUS_ON_NODE=8"], 800),
            // A step of two processors in a job of eight and more.
            (
                &[
                    "SLURM_MEM_PER_CPU=100",
                    "SLURM_CPUS_ON_NODE=2",
                    "SLURM_JOB_CPUS_PER_NODE=72(x2),8",
                ],
                800,
            ),
            (
                &[
                    "SLURM_MEM_PER_CPU=100",
                    "SLURM_CPUS_ON_NODE=2",
                    "SLURM_JOB_CPUS_PER_NODE=odd",
                ],
                200,
            ),
            (&["SLURM_MEM_PER_GPU=500", "SLURM_GPUS_ON_NODE=4"], 2000),
        ] {
            let memory = of_job(&environment(entries), total);
            assert_eq!(memory, expected * MIB, "{entries:?}");
        }
    }

    #[test]
    fn memory_of_the_node() {
        let text = "MemFree: 1 kB\nMemTotal:       16384 kB\n";
        assert_eq!(of_node(text), Some(16 * MIB));
        for odd in ["", "MemTotal: many kB\n", "MemTotal: 16384\n"] {
            assert_eq!(of_node(odd), None);
        }
    }

    #[test]
    fn half_of_the_memory_is_room_in_shared_memory() {
        let job = |memory| Job {
            memory,
            ..Job::default()
        };
        assert_eq!(automatic_shm(None), 4096 * MIB);
        assert_eq!(automatic_shm(Some(&job(None))), 4096 * MIB);
        assert_eq!(automatic_shm(Some(&job(Some(1000 * MIB)))), 500 * MIB);
        assert_eq!(automatic_shm(Some(&job(Some(MIB)))), 64 * MIB);
    }
}
