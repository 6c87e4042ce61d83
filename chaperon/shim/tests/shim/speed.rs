//! What a call costs.

use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use agent_sandbox_wire::message::End;

use crate::chaperon::ShimDirectory;

/// Calls in a measurement.
const CALLS: usize = 200;

/// Start to exit as the caller sees it, starting a process included, on a machine that does much else.
const BOUND: Duration = Duration::from_millis(150);

/// `AGENT_SANDBOX_SHIM=BINARY cargo test speed -- --nocapture` measures that binary.
#[test]
fn of_a_call_is_small() {
    let place = ShimDirectory::new();
    let mut command = place.shim();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut times = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..CALLS {
                place.accept().end(End::SUCCESS);
            }
        });
        for _ in 0..CALLS {
            let begun = Instant::now();
            assert!(command.status().unwrap().success());
            times.push(begun.elapsed());
        }
    });
    times.sort();
    let median = times[CALLS / 2];
    println!("start to exit: median {median:?}, best {:?}", times[0]);
    assert!(median < BOUND, "{median:?}");
}
