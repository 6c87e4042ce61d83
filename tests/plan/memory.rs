//! What a job has of its node's memory.

use std::path::Path;

use agent_sandbox::plan::{Mount, Plan};

use crate::host::plain;
use crate::scenario::Scenario;

#[test]
fn shared_memory_of_a_job_is_half_of_its_memory() {
    let size = |plan: Plan| {
        let at = Path::new("/dev/shm");
        let step = plan.steps.into_iter().find(|step| step.at == at);
        match step.unwrap().mount {
            Mount::Tmpfs { size, .. } => size >> 20,
            other => panic!("{other:?}"),
        }
    };
    let job = |memory: Option<u64>, policy: &str| {
        let scenario = Scenario::new(plain()).job(&[]).memory(memory);
        size(scenario.policy(policy).plan().unwrap())
    };
    assert_eq!(size(Scenario::new(plain()).plan().unwrap()), 4096);
    assert_eq!(job(None, ""), 4096);
    assert_eq!(job(Some(64 << 30), ""), 32 << 10);
    assert_eq!(job(Some(1 << 20), ""), 64);
    assert_eq!(job(Some(64 << 30), "jail.shm_size = \"3M\""), 3);
    assert_eq!(job(Some(64 << 30), "jail.shm_size = \"auto\""), 32 << 10);
}
