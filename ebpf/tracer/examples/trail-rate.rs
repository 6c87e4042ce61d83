//! How many events a second become records, on one core: `cargo run --release --example trail-rate`.
//!
//! Raw bytes are parsed, folded, put into words and written to a directory below the one that is given
//! (default: the current one). Each line: what, how many events in a second of this process's time on a
//! processor (and of time), how many records they became.

#![allow(
    clippy::disallowed_methods,
    reason = "measures, and keeps its files where it is told"
)]

use std::path::PathBuf;
use std::time::Instant;

use agent_sandbox_events::raw::{Kind, parse};
use agent_sandbox_events::record::{Header, Trail};
use agent_sandbox_tracer::trail::{Now, Redaction, Settings, StoreLimits, Trails};

/// Events of one run.
const EVENTS: u64 = 3_000_000;

/// Nanoseconds between two events: as if a million happened in a second.
const STEP: u64 = 1000;

fn open(time: u64, pid: u32, path: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 72];
    bytes[4] = Kind::Open as u8;
    bytes[8..16].copy_from_slice(&time.to_ne_bytes());
    bytes[24..28].copy_from_slice(&1_u32.to_ne_bytes());
    bytes[28..32].copy_from_slice(&pid.to_ne_bytes());
    bytes[32..36].copy_from_slice(&pid.to_ne_bytes());
    bytes[48..51].copy_from_slice(b"cat");
    bytes.extend(77_u64.to_ne_bytes());
    bytes.extend((8_u32 << 20 | 1).to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(0o100_644_u32.to_ne_bytes());
    bytes.extend(u32::try_from(path.len() + 1).unwrap_or(0).to_ne_bytes());
    bytes.extend(path);
    bytes.push(0);
    let size = u32::try_from(bytes.len()).unwrap_or(0);
    bytes[..4].copy_from_slice(&size.to_ne_bytes());
    bytes
}

/// Memory that the process holds, in KiB (`proc_pid_status(5)`).
fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    line.map_or("?", |line| line[6..].trim()).to_string()
}

/// Seconds that this process has had a processor.
fn worked() -> f64 {
    let time =
        nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("a clock");
    time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9
}

fn main() {
    let below = std::env::args_os()
        .nth(1)
        .map_or_else(|| PathBuf::from("."), PathBuf::from);
    for (name, kinds) in [
        ("one file, again and again", 1),
        ("1,000 files", 1000),
        ("8,000 files", 8000),
        ("each file another", u64::MAX),
    ] {
        let records = below.join(format!("trail-rate-{}", std::process::id()));
        let settings = Settings {
            records: records.clone(),
            node: "n1".into(),
            limits: StoreLimits::default(),
            ..Settings::default()
        };
        let now = |time: u64| Now {
            boot: time,
            wall: 1.7e9,
        };
        let mut trails = Trails::open(&settings, now(0)).expect("the directory");
        let header = Header {
            events: vec!["open".into()],
            ..Header::default()
        };
        let trail = Trail {
            node: "n1".into(),
            uid: 1000,
            session: Some("abcdefgh".into()),
            trace: 1,
            ..Trail::default()
        };
        trails
            .begin(1, trail, header, Redaction::default(), now(0))
            .expect("a trail");
        let events: Vec<Vec<u8>> = (0..kinds.min(20_000))
            .map(|number| {
                open(
                    0,
                    4242,
                    format!("/home/alice/project/src/module_{number:06}/lib.rs").as_bytes(),
                )
            })
            .collect();
        let (begun, before) = (Instant::now(), worked());
        let mut at = 0;
        let mut buffer = Vec::new();
        for number in 0..EVENTS {
            buffer.clear();
            buffer.extend_from_slice(&events[at]);
            at = if at + 1 == events.len() { 0 } else { at + 1 };
            let time = number * STEP;
            buffer[8..16].copy_from_slice(&time.to_ne_bytes());
            let event = parse(&buffer).expect("an event");
            trails.event(&event);
            if number % 50_000 == 0 {
                trails.tick(now(time));
            }
        }
        trails
            .end(1, "measured", 0, now(EVENTS * STEP))
            .expect("an end");
        let seconds = begun.elapsed().as_secs_f64();
        let processor = worked() - before;
        let state = trails.state();
        let (mut lines, mut bytes) = (0, 0);
        for file in std::fs::read_dir(settings.records.join("1000")).expect("trails") {
            let text = std::fs::read(file.expect("a trail").path()).expect("records");
            bytes += text.len();
            lines += text.iter().filter(|byte| **byte == b'\n').count();
        }
        println!(
            "{name}: {:.2} M events/s ({:.2} M/s by the clock), {lines} records ({} MB), lost {}, most memory {}",
            EVENTS as f64 / processor / 1e6,
            EVENTS as f64 / seconds / 1e6,
            bytes / 1_000_000,
            state.lost,
            resident(),
        );
        std::fs::remove_dir_all(&records).expect("the directory");
    }
}
