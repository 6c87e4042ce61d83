//! The promise about a real agent: what `agent-sandbox` adds to its start.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Context;

use crate::{Bench, RUNS, WARM_UP, median, time};

/// With this argument the benchmark measures the start of an agent alone: `tests/run --bench -- agent`.
pub(crate) const ONLY_AGENT: &str = "agent";

/// What is started: the agent says its version and ends.
const WORDS: &[&str] = &["claude", "--version"];
/// Milliseconds that the jail may add.
const ADDED_MAX: f64 = 25.0;

impl Bench {
    /// `agent-sandbox claude --version` against `claude --version`; said where claude is not installed.
    pub(crate) fn agent(&mut self) -> anyhow::Result<()> {
        let agents = std::env::var_os("AGENT_SANDBOX_TEST_AGENTS").map(PathBuf::from);
        let Some(agents) = agents.filter(|agents| agents.join("bin/claude").exists()) else {
            println!("not checked: the start of claude: tests/agents/install has not installed it");
            return Ok(());
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = [agents.join("bin")]
            .into_iter()
            .chain(std::env::split_paths(&path));
        let path: OsString = std::env::join_paths(path).context("cannot put PATH together")?;
        let command = |program: &std::ffi::OsStr| {
            let mut command = Command::new(program);
            command.env("PATH", &path).stderr(Stdio::null());
            command
        };
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for run in 0..WARM_UP + RUNS {
            let mut jailed = command(self.binary.as_os_str());
            let a = time(jailed.arg("--read").arg(&agents).args(WORDS))?;
            let b = time(command(WORDS[0].as_ref()).args(&WORDS[1..]))?;
            if run >= WARM_UP {
                ours.push(a);
                theirs.push(b);
            }
        }
        let (ours, theirs) = (median(&mut ours), median(&mut theirs));
        for (what, figure) in [
            ("agent-sandbox claude --version, median", ours),
            ("claude --version, median", theirs),
        ] {
            println!("{what:<44} {:>10} {:>10}", "", format!("{figure:.2} ms"));
        }
        self.row("added to claude --version", ADDED_MAX, ours - theirs, " ms");
        Ok(())
    }
}
