#![allow(
    clippy::disallowed_methods,
    reason = "reads the files that were written"
)]

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use serde_json::Value;
use tempfile::TempDir;

use super::*;

fn now() -> Now {
    Now {
        boot: 100 * SECOND,
        wall: 1_800_000_000.0,
    }
}

fn sbatch(session: &str, job: u32) -> Handed {
    Handed {
        version: 3,
        session: session.to_owned(),
        time: 1_799_999_999_250_000,
        missed: 0,
        what: audit::What::Slurm {
            pid: 7,
            command: "sbatch".to_owned(),
            verdict: Verdict::Allowed,
            reason: None,
            jobs: vec![job],
            more_jobs: 0,
            suppressed: 0,
        },
    }
}

fn record(limits: StoreLimits) -> (TempDir, AuditRecord) {
    let directory = tempfile::tempdir().unwrap();
    let record = AuditRecord::open(&directory.path().join("audit"), "n1", limits);
    assert_eq!(record.trouble(), None);
    (directory, record)
}

fn lines(directory: &TempDir, uid: u32) -> Vec<Value> {
    let mut lines = Vec::new();
    let user = directory.path().join("audit").join(uid.to_string());
    for file in fs::read_dir(user).unwrap() {
        let path = file.unwrap().path();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let text = fs::read_to_string(path).unwrap();
        lines.extend(text.lines().map(|line| serde_json::from_str(line).unwrap()));
    }
    lines
}

#[test]
fn a_line_says_whose_it_is_and_what_was_asked() {
    let (directory, mut record) = record(StoreLimits::default());
    record
        .handed(1000, Some(3), &sbatch("k3v9m2qp", 12), &now())
        .unwrap();
    record
        .handed(1001, None, &sbatch("k3v9m2qp", 13), &now())
        .unwrap();
    let text = fs::read_to_string(directory.path().join("audit/1000/audit@n1-1.jsonl")).unwrap();
    assert_eq!(
        text,
        "{\"uid\":1000,\"host\":\"n1\",\"trace\":3,\"time\":1799999999.25,\"session\":\"k3v9m2qp\",\"pid\":7,\
         \"command\":\"sbatch\",\"verdict\":\"allowed\",\"reason\":null,\"jobs\":[12]}\n"
    );
    // Another user who says the same has a file and a number of their own, and no trace.
    let other = &lines(&directory, 1001)[0];
    assert_eq!(
        (&other["uid"], &other["trace"]),
        (&1001.into(), &Value::Null)
    );
}

#[test]
fn who_floods_fills_own_room_and_the_number_is_told() {
    let (directory, mut record) = record(StoreLimits {
        file_bytes: 1 << 20,
        user_bytes: 16 * (256 << 10),
        total_bytes: 16 * (1 << 20),
        days: 90,
    });
    record
        .handed(1000, None, &sbatch("mine", 1), &now())
        .unwrap();
    record.pass(&now());
    let flood = (0..20_000).filter(|job| {
        record
            .handed(1001, None, &sbatch("flood", *job), &now())
            .is_ok()
    });
    assert_eq!(flood.count(), 1000);
    // The other user is heard at once.
    record
        .handed(1000, None, &sbatch("mine", 2), &now())
        .unwrap();
    let later = Now {
        boot: now().boot + 2 * SECOND,
        ..now()
    };
    record.pass(&later);
    record
        .handed(1001, None, &sbatch("flood", 7), &later)
        .unwrap();
    let flooded = lines(&directory, 1001);
    let told: Vec<&Value> = flooded
        .iter()
        .filter(|line| line["dropped"] == 19_000)
        .collect();
    assert_eq!(told.len(), 1);
    // For as long as one likes.
    let mut time = later;
    for second in 0..600 {
        time.boot += SECOND;
        record.pass(&time);
        for job in 0..RATE as u32 {
            record
                .handed(1001, None, &sbatch("flood", second * 100 + job), &time)
                .unwrap();
        }
    }
    let bytes = |uid: &str| -> u64 {
        let files = fs::read_dir(directory.path().join("audit").join(uid)).unwrap();
        files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum()
    };
    assert!(bytes("1001") <= 256 << 10, "{}", bytes("1001"));
    assert_eq!(lines(&directory, 1000).len(), 2);
}

#[test]
fn times_are_believed_of_the_last_hour() {
    let believed = |seconds: f64| believed(audit::microseconds(seconds), &now());
    let wall = now().wall;
    assert_eq!(believed(wall - 60.5), wall - 60.5);
    for odd in [0.0, wall - 86_400.0, wall + 3600.0, f64::INFINITY] {
        assert_eq!(believed(odd), wall, "{odd}");
    }
}

#[test]
fn names_that_users_choose_stand_escaped_in_one_line() {
    let (directory, mut record) = record(StoreLimits::default());
    let odd = "\u{1b}[2J\n{\"uid\":0}\u{202e}";
    let mut handed = sbatch("s1", 1);
    handed.what = audit::What::Session {
        agent: odd.to_owned(),
        project: odd.to_owned(),
    };
    record.handed(1000, None, &handed, &now()).unwrap();
    let lines = lines(&directory, 1000);
    assert_eq!(lines.len(), 1);
    assert_eq!(
        (&lines[0]["uid"], &lines[0]["agent"]),
        (&1000.into(), &odd.into())
    );
}

#[test]
fn the_end_of_a_session_has_its_denials() {
    let (directory, mut record) = record(StoreLimits::default());
    let trail = Trail {
        node: "n1".into(),
        uid: 1000,
        session: Some("s1".into()),
        trace: 4,
        ..Trail::default()
    };
    assert!(record.ended(&trail, 5, &now()).is_some());
    let nobodys = Trail {
        session: None,
        ..trail
    };
    assert!(record.ended(&nobodys, 5, &now()).is_none());
    let lines = lines(&directory, 1000);
    assert_eq!((lines.len(), &lines[0]["denials"]), (1, &5.into()));
}

#[test]
fn a_directory_that_is_not_roots_alone_is_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let open = directory.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let link = directory.path().join("link");
    symlink(&open, &link).unwrap();
    for path in [open, link] {
        let mut record = AuditRecord::open(&path, "n1", StoreLimits::default());
        assert!(record.trouble().unwrap().contains("no audit record"));
        assert!(record.handed(1000, None, &sbatch("s1", 1), &now()).is_err());
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    }
}
