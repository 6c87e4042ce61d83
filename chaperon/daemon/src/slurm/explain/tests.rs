//! What is answered, as text.

use agent_sandbox_wire::bounds::{BoundSet, SizeBound, SizeKey};
use agent_sandbox_wire::order::{Limit, Limits};

use super::*;

fn asked(line: &str, nodes: u64, limits: &Limits, json: bool) -> String {
    let rule = |key: &str, value: &str| Rule {
        key: key.into(),
        value: value.into(),
        source: "config.toml:7".into(),
        change: format!("change {key}"),
    };
    let size = SizeBound {
        key: SizeKey::Nodes,
        most: nodes,
        source: "config.toml:7".into(),
    };
    let set = BoundSet {
        sizes: (nodes > 0).then_some(size).into_iter().collect(),
        ..BoundSet::default()
    };
    super::explain(&Question {
        line: line.into(),
        json,
        limits: limits.clone(),
        bounds: Bounds { sets: vec![set] },
        rules: vec![
            rule("slurm.mode", "auto"),
            rule("slurm.scope", "session"),
            rule("slurm.bounds.nodes", &nodes.to_string()),
            rule("slurm.limits.jobs", &limits.jobs.most.to_string()),
        ],
    })
}

fn explain(line: &str) -> String {
    asked(line, 0, &Limits::default(), false)
}

#[test]
fn a_refused_option_is_told_with_its_reason_and_variable() {
    let told = explain("sbatch --uid=0 --get-user-env -N2 job.sh");
    assert!(
        told.contains("--uid=0: refused: jobs run as the user"),
        "{told}"
    );
    assert!(told.contains("(so is SBATCH_GET_USER_ENV)"), "{told}");
    assert!(told.contains("--nodes=2: passes"), "{told}");
    assert!(
        told.contains("sbatch: this command line is refused\n  change: nothing changes it"),
        "{told}"
    );
}

#[test]
fn words_that_make_no_sense_are_told() {
    let told = explain("/usr/bin/squeue --fromat=%i");
    assert!(told.contains("unrecognized option '--fromat'"), "{told}");
    assert!(told.contains("did you mean --format?"), "{told}");
    assert!(explain("squeue -u 'a b'").contains("invalid value 'a b'"));
}

#[test]
fn commands_are_told_without_options() {
    assert!(explain("strigger --set").starts_with("strigger is refused: it would run"));
    let told = explain("srun");
    assert!(
        told.starts_with("srun: works inside: a stand-in asks"),
        "{told}"
    );
    assert!(told.contains("--bcast"), "{told}");
    assert!(told.contains("  change: change slurm.mode\n"), "{told}");
    assert!(
        told.contains("judged when it runs: slurm.scope = session (config.toml:7)"),
        "{told}"
    );
    assert!(explain("").contains("sbcast: refused"));
    assert!(explain("ls").starts_with("ls is none of Slurm's commands"));
}

#[test]
fn an_option_can_be_asked_about_without_its_value() {
    let told = explain("sbatch --uid");
    assert!(told.starts_with("--uid"), "{told}");
    assert!(told.contains(": refused: jobs run as the user"), "{told}");
    assert!(
        explain("sbatch -t").contains("--time"),
        "{}",
        explain("sbatch -t")
    );
    // In a whole line the value is missed as Slurm misses it.
    assert!(explain("sbatch -N1 -t").contains("requires an argument"));
}

#[test]
fn a_limit_that_stops_the_line_is_named_with_its_place() {
    let limits = &Limits {
        jobs: Limit {
            most: 10,
            source: "config.toml:8".into(),
        },
        ..Limits::default()
    };
    let told = asked("sbatch -N5 --array=1-20 job.sh", 4, limits, false);
    for part in [
        "error: 5 nodes: the policy allows 4 nodes (`slurm.bounds.nodes`, config.toml:7)\n  rule: slurm.bounds.nodes = 4 (config.toml:7)\n  change: change slurm.bounds.nodes\n",
        "error: 20 jobs in the queue: the policy allows 10 (`slurm.limits.jobs`, config.toml:8)\n",
        "sbatch: this command line is refused\n",
    ] {
        assert!(told.contains(part), "no {part:?} in\n{told}");
    }
    let told = asked("sbatch -N4 --array=1-10 job.sh", 4, limits, false);
    assert!(told.contains("sbatch: no option here is refused"), "{told}");
}

#[test]
fn the_same_as_json() {
    let told: serde_json::Value =
        serde_json::from_str(&asked("srun -N9 true", 4, &Limits::default(), true)).unwrap();
    assert_eq!(told["verdict"], "refused");
    assert_eq!(told["options"][0]["name"], "--nodes=9");
    assert_eq!(told["errors"][0]["rule"]["source"], "config.toml:7");
    for (line, verdict) in [
        ("ls", "unknown"),
        ("", "unknown"),
        ("sview", "refused"),
        ("squeue", "works"),
        ("squeue -a", "allowed"),
        ("squeue --no-such", "mistaken"),
    ] {
        let told: serde_json::Value =
            serde_json::from_str(&asked(line, 0, &Limits::default(), true)).unwrap();
        assert_eq!(told["verdict"], verdict, "{line}: {told}");
    }
}

/// A line may come from a project's script: what it holds begins no line of ours, and speaks to no terminal.
#[test]
fn odd_words_stay_words() {
    let odd = "\u{202e}\u{9b}\u{7f}\u{e0001}\n  change: forged";
    let lines = [
        format!("'{odd}'"),
        format!("sbatch --comment='{odd}' x"),
        format!("sbatch '--{odd}'"),
        format!("squeue --format='{odd}'"),
    ];
    for line in lines {
        for json in [false, true] {
            let told = asked(&line, 0, &Limits::default(), json);
            assert_eq!(text::visible(&told), told);
            assert!(
                !told
                    .lines()
                    .any(|line| line.starts_with("  change: forged")),
                "{told}"
            );
            if json {
                let told: serde_json::Value = serde_json::from_str(&told).unwrap();
                assert!(told["verdict"].is_string(), "{told}");
            }
        }
    }
    let told: serde_json::Value =
        serde_json::from_str(&asked(&format!("'{odd}'"), 0, &Limits::default(), true)).unwrap();
    assert_eq!(told["reason"], format!("{odd} is none of Slurm's commands"));
}

#[test]
fn a_line_is_split_as_a_shell_does() {
    assert_eq!(
        split(r#"sbatch --wrap 'a b' "c \"d" e\ f '' g"#),
        ["sbatch", "--wrap", "a b", "c \"d", "e f", "", "g"]
    );
}
