//! What root is shown of a thousand sessions and a hundred thousand requests: `sessions`, `log`, `report`. The records are of one
//! directory, as nodes' are collected: that is the most that one process reads.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Bench, WARM_UP, median, time};

/// With this argument the benchmark measures these alone: `tests/run --bench -- view`.
pub(crate) const ONLY_VIEW: &str = "view";

/// Users, sessions and lines of the whole.
const USERS: usize = 20;
const SESSIONS: usize = 1000;
const LINES: usize = 100_000;
/// Runs of each.
const RUNS: usize = 15;
/// What each may take, in milliseconds.
const TARGET: f64 = 100.0;

impl Bench {
    /// Everything about it.
    pub(crate) fn view(&mut self) -> anyhow::Result<()> {
        let place = tempfile::tempdir()?;
        let records = place.path().join("records");
        write_records(&records)?;
        let from = records.to_string_lossy().into_owned();
        for (what, words) in [
            ("report --from, 100,000 lines", "report"),
            ("sessions --from, 1,000 sessions", "sessions"),
        ] {
            let figure = self.median_of(&[words, "--from", &from])?;
            self.row(what, TARGET, figure, " ms");
        }
        let figure = self.head_of(&["log", "--from", &from])?;
        self.row("log --from | head, 100,000 lines", TARGET, figure, " ms");
        let state = place.path().join("state");
        write_sessions(&state.join("agent-sandbox/sessions"))?;
        let mut all = Vec::new();
        for run in 0..WARM_UP + RUNS {
            // Where there is no directory of the user's in /run, as on many nodes.
            let mut command = Command::new(&self.binary);
            command.arg("sessions").env("XDG_STATE_HOME", &state);
            let taken = time(&mut command)?;
            if run >= WARM_UP {
                all.push(taken);
            }
        }
        self.row("sessions, 1,000 that run", TARGET, median(&mut all), " ms");
        Ok(())
    }

    fn median_of(&self, words: &[&str]) -> anyhow::Result<f64> {
        let mut all = Vec::new();
        for run in 0..WARM_UP + RUNS {
            let taken = time(Command::new(&self.binary).args(words).stderr(Stdio::null()))?;
            if run >= WARM_UP {
                all.push(taken);
            }
        }
        Ok(median(&mut all))
    }

    /// With a reader of ten lines.
    fn head_of(&self, words: &[&str]) -> anyhow::Result<f64> {
        let line = "\"$@\" | head > /dev/null; exit ${PIPESTATUS[0]}";
        let mut all = Vec::new();
        for run in 0..WARM_UP + RUNS {
            let mut command = Command::new("bash");
            command
                .args(["-c", line, "bash"])
                .arg(&self.binary)
                .args(words);
            let taken = time(command.stderr(Stdio::null()))?;
            if run >= WARM_UP {
                all.push(taken);
            }
        }
        Ok(median(&mut all))
    }
}

fn write_records(directory: &Path) -> anyhow::Result<()> {
    for user in 0..USERS {
        let uid = 40_000 + user;
        let mut text = String::new();
        for one in 0..SESSIONS / USERS {
            let time = 1_780_000_000 + 60 * one;
            let begins = format!(
                "{{\"uid\":{uid},\"host\":\"login1\",\"trace\":{one},\"time\":{time}.25,\"session\":\"s{user:03}{one:04}\""
            );
            writeln!(
                text,
                "{begins},\"kind\":\"session\",\"agent\":\"claude\",\"project\":\"/home/u{uid}/project{}\"}}",
                one % 5
            )?;
            for line in 1..LINES / SESSIONS {
                let rest = match line % 10 {
                    0 => "\"kind\":\"network\",\"name\":\"example.org\",\"port\":443,\"verdict\":\"allowed\",\
                          \"reason\":\"network.allow (/etc/agent-sandbox/defaults.toml:3)\"}".to_owned(),
                    1 => "\"pid\":4242,\"command\":\"sbatch\",\"verdict\":\"refused\",\"reason\":\"policy slurm.bounds\",\"jobs\":[]}".to_owned(),
                    _ => format!("\"pid\":4242,\"command\":\"sbatch\",\"verdict\":\"allowed\",\"reason\":null,\"jobs\":[{}]}}", 1000 * one + line),
                };
                writeln!(text, "{begins},{rest}")?;
            }
        }
        let user = directory.join(uid.to_string());
        std::fs::create_dir_all(&user)?;
        std::fs::write(user.join("audit@login1-1.jsonl"), text)?;
    }
    Ok(())
}

/// Sessions of this very process, as many as it takes.
fn write_sessions(directory: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory)?;
    let pid = std::process::id();
    let ticks = agent_sandbox::session::start_ticks(pid).unwrap_or_default();
    let boot = agent_sandbox::session::boot();
    for one in 0..SESSIONS {
        let record = format!(
            "{{\"id\":\"s{one:07}\",\"pid\":{pid},\"start_ticks\":{ticks},\"boot\":\"{boot}\",\"host\":\"login1\",\
             \"started\":1780000000,\"project\":\"/home/ada/project\",\"command\":\"claude\"}}"
        );
        std::fs::write(directory.join(format!("s{one:07}.json")), record)?;
    }
    Ok(())
}
