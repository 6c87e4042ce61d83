//! A run of an agent: bounded in time, with all that is known about it afterwards.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::World;
use crate::messages_api::{MessagesApi, ToolResult};

/// How long one run of an agent may take. Real ones take two to twenty seconds, jobs included.
const RUN_LIMIT: Duration = Duration::from_secs(150);
/// Between two looks at whether an agent has ended.
const POLL: Duration = Duration::from_millis(20);

/// An agent that runs, for [`RUN_LIMIT`] at most.
pub(crate) struct Agent {
    pub(crate) child: Child,
    name: OsString,
    start: Instant,
    /// Where its output goes. Files and not pipes: a process that the agent leaves behind cannot
    /// hold up the test.
    pub(crate) stdout: PathBuf,
    stderr: PathBuf,
}

impl Agent {
    pub(crate) fn start(world: &World, mut command: Command) -> Self {
        let name = command.get_program().to_owned();
        let output = |name| {
            let path = world.root.path().join(name);
            let file = File::create(&path).expect("cannot make a file for the output");
            (path, file)
        };
        let (stdout, stdout_file) = output("stdout");
        let (stderr, stderr_file) = output("stderr");
        let child = command
            .stdout(stdout_file)
            .stderr(stderr_file)
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {name:?}: {error}"));
        Self {
            child,
            name,
            start: Instant::now(),
            stdout,
            stderr,
        }
    }

    fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("cannot wait for the agent")
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.status().is_none() && self.start.elapsed() < RUN_LIMIT
    }

    /// Waits until `condition` holds, or the agent has ended or had its time.
    pub(crate) fn wait_until(&mut self, condition: impl Fn(&Self) -> bool) {
        while self.is_running() && !condition(self) {
            thread::sleep(POLL);
        }
    }

    /// Waits for the end of the agent, and brings it about when its time is over.
    pub(crate) fn outcome(mut self, api: &MessagesApi) -> Outcome {
        self.wait_until(|_| false);
        let in_time = self.status();
        let status = in_time.unwrap_or_else(|| {
            let group = i32::try_from(self.child.id()).expect("a process id is an i32");
            killpg(Pid::from_raw(group), Signal::SIGKILL).expect("cannot kill the agent");
            self.child.wait().expect("cannot wait for the agent")
        });
        let outcome = Outcome {
            status,
            took: self.start.elapsed(),
            stdout: read_to_string(&self.stdout),
            stderr: read_to_string(&self.stderr),
            requests: api.requests(),
            results: api.results(),
        };
        let Self { name, .. } = self;
        assert!(
            in_time.is_some(),
            "{name:?} did not end within {RUN_LIMIT:?}\n{outcome}"
        );
        eprintln!("{name:?} took {:?}", outcome.took);
        outcome
    }
}

/// All that is known about a run. Displayed, it is what one wants to see of a failed one.
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) took: Duration,
    pub(crate) stdout: String,
    stderr: String,
    requests: Vec<String>,
    results: BTreeMap<String, ToolResult>,
}

impl Outcome {
    /// The result of the call of that label.
    pub(crate) fn result(&self, label: &str) -> &ToolResult {
        let result = self.results.get(label);
        result.unwrap_or_else(|| panic!("{label}: no result\n{self}"))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "--- {} after {:?}", self.status, self.took)?;
        writeln!(f, "--- stdout\n{}", self.stdout)?;
        writeln!(f, "--- stderr\n{}", self.stderr)?;
        writeln!(f, "--- requests\n{}", self.requests.join("\n"))?;
        for (label, result) in &self.results {
            let error = if result.is_error { " (error)" } else { "" };
            // An environ file has NULs, which make a log binary to grep.
            let text = result.text.replace('\0', "\n");
            writeln!(f, "--- result of {label}{error}\n{text}")?;
        }
        Ok(())
    }
}

pub(crate) fn read_to_string(path: &Path) -> String {
    let bytes =
        fs::read(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The files below `directory` that hold `needle`. Links are not followed. By grep(1): some agents keep
/// hundreds of megabytes.
pub(crate) fn files_with(directory: &Path, needle: &str) -> Vec<PathBuf> {
    let found = Command::new("grep")
        .args(["-rlaF", "--null", "-e", needle, "--"])
        .arg(directory)
        .output()
        .expect("cannot start grep");
    // grep(1): 0 is found, 1 is not found, and all else is an error.
    let searched = matches!(found.status.code(), Some(0 | 1));
    let said = String::from_utf8_lossy(&found.stderr);
    assert!(searched, "cannot search {}: {said}", directory.display());
    let names = found.stdout.split(|byte| *byte == 0);
    names
        .filter(|name| !name.is_empty())
        .map(|name| PathBuf::from(OsStr::from_bytes(name)))
        .collect()
}
