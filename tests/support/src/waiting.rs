//! Waiting for something that has to happen.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// What has to happen does so within this, on a machine that is busy with other things as well. A test that waits
/// longer has failed.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks at what is waited for.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until `question` has an answer. Without one within [`PATIENCE`] it is an error, which says what was waited for.
pub fn wait_for<T>(what: &str, mut question: impl FnMut() -> Option<T>) -> Result<T, String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = question() {
            return Ok(answer);
        }
        if Instant::now() >= deadline {
            // `tests/suites` reads these words.
            return Err(format!("{what} did not happen within {PATIENCE:?}"));
        }
        thread::sleep(PAUSE);
    }
}

/// The machine's processes that have to do with the sandbox or with Slurm, and where each waits in the kernel.
fn processes() -> String {
    const OURS: [&str; 6] = [
        "agent-sandbox",
        "srun",
        "salloc",
        "sbatch",
        "squeue",
        "scontrol",
    ];
    let mut ps = Command::new("ps");
    ps.args(["-eo", "pid,ppid,user,stat,etimes,wchan:24,args", "--forest"]);
    let Ok(output) = ps.env("COLUMNS", "250").output() else {
        return String::new();
    };
    let all = String::from_utf8_lossy(&output.stdout).into_owned();
    let ours = all
        .lines()
        .filter(|line| OURS.iter().any(|name| line.contains(name)));
    ours.map(|line| line.chars().take(240).collect::<String>() + "\n")
        .collect()
}

/// Waits until something holds.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    if let Err(why) = wait_for(what, || holds().then_some(())) {
        eprintln!("what runs:\n{}", processes());
        panic!("{why}");
    }
}
