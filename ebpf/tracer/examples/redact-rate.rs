//! What looking for secrets costs: microseconds a command, for ordinary commands and for the worst known, and memory.
//!
//! `cargo run --release -p agent-sandbox-tracer --example redact-rate`

#![allow(clippy::disallowed_methods)]

use std::fs;
use std::time::Duration;

use agent_sandbox_tracer::trail::Redaction;
use nix::time::{ClockId, clock_gettime};

/// An ordinary command, of about a hundred bytes.
const ORDINARY: &[&str] = &[
    "/usr/bin/python3",
    "train.py",
    "--max-tokens=4096",
    "--data",
    "/scratch/ada/runs/17/in.csv",
    "--lr",
    "0.001",
    "-v",
];

/// One with a secret.
const SECRET: &[&str] = &[
    "curl",
    "-sS",
    "-H",
    "Authorization: Bearer abcdef",
    "https://example.org/api?a=1&b=2",
    "-o",
    "out.json",
];

/// Parts that are repeated to 16 KiB.
const WORST: &[&str] = &[
    " -key $(",
    " --token --token ;",
    " -u -u;",
    "sk-eyJ-1//0-",
    "\\\"\\'",
    "\"$(",
    "$(`",
    "a=a ",
    "echo a|",
    "token:\n",
    "key=\"",
    "a:b@://",
    "machine password ",
    "<token>",
    "sqlplus a/",
    "mysql -p' ",
    "docker login config ",
];

fn main() {
    let none = Redaction::default();
    let stars = vec!["*a*a*a*a*a*a*a*b".to_string(); 64];
    let own = Redaction::new(&stars).expect("the patterns are within their bounds");
    println!("resident before: {}", resident());
    println!("first command: {:.0} us", rate(&none, ORDINARY, 1));
    for (what, redaction) in [("no patterns", &none), ("64 patterns", &own)] {
        println!("{what}: ordinary {:.2} us", rate(redaction, ORDINARY, 5000));
        println!("{what}: secret {:.2} us", rate(redaction, SECRET, 5000));
        let a = "a ".repeat(8192);
        println!(
            "{what}: blanks {:.0} us",
            rate(redaction, &["sh", "-c", &a], 5)
        );
    }
    let mut worst = (0.0, "");
    for part in WORST {
        let text = part.repeat(16384 / part.len());
        let taken = rate(&none, &["sh", "-c", &text], 5);
        println!("{part:?}: {taken:.0} us");
        worst = if taken > worst.0 {
            (taken, part)
        } else {
            worst
        };
    }
    println!("worst {:?}: {:.0} us", worst.1, worst.0);
    println!("resident after: {}", resident());
}

/// Microseconds for one command.
fn rate(redaction: &Redaction, command: &[&str], times: u32) -> f64 {
    let begun = worked();
    for _ in 0..times {
        std::hint::black_box(run(redaction, command));
    }
    (worked() - begun).as_secs_f64() * 1e6 / f64::from(times)
}

fn run(redaction: &Redaction, command: &[&str]) -> Vec<Vec<u8>> {
    let words: Vec<&[u8]> = command.iter().map(|word| word.as_bytes()).collect();
    redaction.arguments(&words, false)
}

/// Time of this thread on a processor: others do not count.
fn worked() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("there is such a clock");
    Duration::from(time)
}

fn resident() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    line.unwrap_or_default().to_string()
}
