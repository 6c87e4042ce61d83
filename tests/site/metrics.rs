//! Figures of a node for Prometheus, of records that users write.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::users::{OTHER, Two, record};
use crate::world::{CANARY, USER};

/// Debian's `promtool`, where it could be had.
const PROMTOOL: &str = "AGENT_SANDBOX_TEST_PROMTOOL";

/// What Prometheus's own tool says of the text: nothing, if it is as it has to be.
fn judged(text: &str) -> String {
    let Some(promtool) = std::env::var_os(PROMTOOL) else {
        // `tests/run` says that it could not be had.
        return String::new();
    };
    let mut check = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    check
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let said = check.wait_with_output().unwrap();
    let text = [said.stdout, said.stderr].concat();
    format!(
        "{}{}",
        said.status.code().unwrap(),
        String::from_utf8(text).unwrap()
    )
    .trim_start_matches('0')
    .to_owned()
}

#[test]
fn figures_of_all_users_for_prometheus() {
    let two = Two::new();
    let node = nix::unistd::gethostname().unwrap().into_string().unwrap();
    let line = |command: &str, verdict: &str, host: &str| {
        let one = json!({"time": 1.5, "session": "a0000000", "host": host, "pid": 7, "command": command,
            "verdict": verdict, "jobs": [12, 13], "more_jobs": 5, "suppressed": 100});
        one.to_string() + "\n"
    };
    let host = |verdict: &str| {
        let one = json!({"kind": "network", "time": 1.5, "session": "a0000000", "host": node,
            "name": format!("{CANARY}.example"), "port": 443, "verdict": verdict, "reason": "x"});
        one.to_string() + "\n"
    };
    let lines = [
        line("sbatch", "allowed", &node),
        line("squeue", "allowed", &node),
        line("sbatch", "refused", &node),
        line("sbatch", "allowed", "another"),
        line("sbatch", "a\"}\nforged 1", &node),
        host("allowed"),
        host("failed"),
        "no record\n".to_owned(),
    ];
    two.write("audit/n.jsonl", lines.concat());
    let process = two.other("sleep 60");
    for id in ["one00000", "two00000"] {
        let mut one = record(id, process.0.id(), "/o");
        one["command"] = "claude".into();
        two.write(&format!("sessions/{id}.json"), one.to_string());
    }
    let second = two.other("sleep 60");
    let mut one = record("thr00000", second.0.id(), "/o");
    one["command"] = CANARY.into();
    two.write("sessions/thr00000.json", one.to_string());
    let mut roots = record("roots000", std::process::id(), "/o");
    roots["command"] = "codex".into();
    two.write("sessions/roots000.json", roots.to_string());
    let told = two.root(&["metrics", "--user", OTHER]).ok().stdout;
    let figures: Vec<&str> = told.lines().filter(|line| !line.starts_with('#')).collect();
    let of = |name: &str, label: &str, number: u64| {
        format!("agent_sandbox_{name}{{user=\"{OTHER}\"{label}}} {number}")
    };
    // Of two records of one process the second is made up.
    let expected = [
        of("sessions", ",agent=\"claude\"", 1),
        of("sessions", ",agent=\"other\"", 1),
        of("slurm_requests_total", ",verdict=\"allowed\"", 2),
        of("slurm_requests_total", ",verdict=\"refused\"", 301),
        of("slurm_jobs_submitted_total", "", 7),
        of("hosts_total", ",verdict=\"allowed\"", 1),
        of("hosts_total", ",verdict=\"failed\"", 1),
        "agent_sandbox_users_unread 0".to_owned(),
    ];
    assert_eq!(figures, expected, "{told}");
    assert!(!told.contains(CANARY), "{told}");
    assert_eq!(judged(&told), "");
    let all = two.root(&["metrics"]).ok().stdout;
    assert!(expected[..7].iter().all(|line| all.contains(line)), "{all}");
    assert_eq!(judged(&all), "");
    let own = two.call(&["metrics"]).run().ok().stdout;
    assert!(!own.contains(OTHER), "{own}");
    two.call(&["metrics", "--user", OTHER])
        .run()
        .refused(&["only root sees other users"]);
    two.honest();
    assert_eq!(
        judged(&two.call(&["metrics", "--user", USER]).run().ok().stdout),
        ""
    );
}

#[test]
fn a_user_whose_records_cannot_be_read_is_counted() {
    let two = Two::new();
    let audit = two.state().join("audit");
    std::fs::remove_dir(&audit).unwrap();
    std::os::unix::fs::symlink("/proc/1/fd", &audit).unwrap();
    let told = two.root(&["metrics"]);
    assert!(
        told.stdout.contains("agent_sandbox_users_unread 1\n"),
        "{told}"
    );
    assert!(told.stderr.contains(OTHER), "{told}");
}
