//! Who has to be asked, what is shown, and who may answer.

#![allow(clippy::unwrap_used)] // a test: the panic is the failure

use agent_sandbox_wire::budget::Amounts;

use super::*;

fn size(gpus: u64, minutes: u64, tasks: u64) -> JobSize {
    JobSize {
        size: Amounts([8, gpus, 1]),
        minutes,
        tasks,
    }
}

#[test]
fn what_is_above_a_threshold_needs_the_user() {
    let threshold = |of, most| Threshold {
        of,
        most,
        source: "user.toml:2".into(),
    };
    let budgets = Budgets {
        thresholds: vec![
            threshold(Measure::Hours(Resource::Gpu), 8),
            threshold(Measure::Minutes, 600),
        ],
        ..Budgets::default()
    };
    let key = |size| needed(&budgets, &size).map(|one| one.of.key());
    assert_eq!(key(size(8, 60, 1)), None);
    assert_eq!(key(size(8, 61, 1)), Some("slurm.confirm.gpu_hours"));
    assert_eq!(key(size(1, 60, 9)), Some("slurm.confirm.gpu_hours"));
    assert_eq!(key(size(0, 601, 1)), Some("slurm.confirm.minutes"));
    assert_eq!(
        key(size(u64::MAX, u64::MAX, u64::MAX)),
        Some("slurm.confirm.gpu_hours")
    );
}

#[test]
fn nothing_that_a_job_is_called_ends_its_quotes_or_fills_the_line() {
    let name = format!("train` (/p/t.sh) asks for 1 CPU{}", " ".repeat(400));
    let said = shown(&name, 120);
    assert!(!said.contains('`') && !said.contains("  "), "{said}");
    assert!(
        said.starts_with("train\\u{60} (/p/t.sh) asks for 1 CPU \\u{20}"),
        "{said}"
    );
    assert!(said.chars().count() <= 140, "{said}");
    assert!(said.ends_with("… (+386 characters)"), "{said}");
    assert_eq!(
        shown("a\u{a0}\u{2003}b\n\u{1b}\\u{60}", 99),
        "a\\u{a0}\\u{2003}b\\u{a}\\u{1b}\\\\u{60}"
    );
    assert_eq!(shown(&"x".repeat(90), 4), "xxx… (+87 characters)");
    assert_eq!(shown("train.sh --lr 1", LONGEST_NAME), "train.sh --lr 1");
}

#[test]
fn a_request_is_answered_once_and_only_while_somebody_waits() {
    let state = std::env::temp_dir().join(format!("approval-{}", std::process::id()));
    let _ = fs::remove_dir_all(&state);
    let place = directory(&state);
    fs::create_dir_all(&place).unwrap();
    let number = 0x1234_5678;
    let pending = Pending {
        id: id(number),
        number,
        since: 1,
        until: 0,
        session: "s".into(),
        project: "/p".into(),
        host: "n".into(),
        command: "sbatch".into(),
        name: "x".into(),
        runs: "/p/x".into(),
        script: Some(Script::of(b"abc")),
        why: "slurm.confirm.gpu_hours".into(),
        size: size(2, 90, 3),
    };
    assert_eq!(
        pending.asks(),
        "8 CPUs, 2 GPUs, 1 node for 90 minutes, 3 tasks: at most 36 CPU-hours, 9 GPU-hours, 4.5 node-hours"
    );
    let path = place.join(&pending.id);
    let write = || {
        fs::write(&path, serde_json::to_vec(&pending).unwrap()).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        assert!(locks::try_lock(&file).unwrap());
        file
    };
    let said = |id: &str| {
        decide(&state, id, true)
            .map(|one| one.id)
            .map_err(|e| e.to_string())
    };
    for wrong in ["../x", "", "abcdef/", "ABC", "\u{1b}[2J"] {
        assert!(said(wrong).unwrap_err().contains("is no id"), "{wrong}");
    }
    assert!(!said("\u{1b}[2Jx").unwrap_err().contains('\u{1b}'));
    assert!(said("abcdef").unwrap_err().contains("no request"));
    let held = write();
    assert_eq!(all(&state).unwrap(), std::slice::from_ref(&pending));
    assert_eq!(said(&pending.id.to_uppercase()).unwrap(), pending.id);
    assert!(said(&pending.id).unwrap_err().contains("was approved"));
    assert_eq!(
        read::<Answer>(&answer_of(&path)).unwrap(),
        Answer {
            number,
            approved: true
        }
    );
    // Its chaperon is gone.
    drop(held);
    assert!(all(&state).unwrap().is_empty());
    assert!(!path.exists() && !answer_of(&path).exists());
    let held = write();
    drop(held);
    assert!(said(&pending.id).unwrap_err().contains("no request"));
    fs::remove_dir_all(&state).unwrap();
}
