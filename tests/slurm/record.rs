//! The audit record and `agent-sandbox log`.

use crate::world::{Side, World, until};

fn lines(world: &World, of: &str) -> Vec<serde_json::Value> {
    let directory = world.user.dir.join(".local/state/agent-sandbox/audit");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(&directory).unwrap().flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap();
        let lines = text
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        all.extend(lines.filter(|line| line.to_string().contains(of)));
    }
    all
}

#[test]
fn every_request_is_recorded_and_no_secret_is() {
    let Some(world) = World::new() else { return };
    let secret = format!("in-the-script-{}", world.cluster.marker);
    let output = world
        .inside(&format!(
            "export SECRET={secret}; sbatch --parsable -H -J job-{secret} --comment={secret} --export=ALL,X={secret} --wrap 'echo {secret}' -o o.txt; \
             sbatch --uid=0 --wrap 'echo {secret}'; squeue -n {secret}; srun echo {secret} > /dev/null; sbatch --wrap true {secret}; env | grep -c SECRET; \
             sbatch --time={secret} --wrap true; sbatch --no-such-{secret}; sbatch {secret}.sh; SBATCH_TIMELIMIT={secret} sbatch --wrap true; \
             squeue --format=%{secret}; squeue -j {secret}; scancel {secret}; scontrol show {secret}; scontrol {secret}; \
             scontrol update job=1 {secret}=1; sacct --format={secret}; sacctmgr show {secret}; sacctmgr {secret}; \
             printf '#!/bin/bash\\n#SBATCH --uid={secret}\\n#SBATCH --time={secret}\\n' > s.sh; sbatch s.sh; \
             sbatch --uid={secret} --wrap true; srun --multi-prog {secret}; srun -o {secret}/x true"
        ))
        .run();
    let id = output.out().lines().next().unwrap_or_default().to_owned();
    let records = world.user.dir.join(".local/state/agent-sandbox");
    let text = all_text(&records.join("audit"));
    assert!(
        !text.contains(&world.cluster.marker),
        "the audit record holds what was in a script or a variable"
    );
    let number: u32 = id.parse().unwrap_or_else(|_| panic!("{output}"));
    let submission = lines(&world, &id)
        .into_iter()
        .find(|line| line["command"] == "sbatch" && line["jobs"][0] == number);
    let submission = submission.unwrap_or_else(|| panic!("no record of job {id}: {text}"));
    assert_eq!(submission["verdict"], "allowed");
    let session = submission["session"].as_str().unwrap().to_owned();
    let of_session = lines(&world, &session);
    let refused = of_session
        .iter()
        .find(|line| line["verdict"] == "refused")
        .unwrap_or_else(|| panic!("{of_session:?}"));
    assert_eq!(refused["reason"], "option --uid", "{refused}");
    assert!(
        of_session.iter().any(|line| line["command"] == "squeue"),
        "{of_session:?}"
    );

    let log = world.launcher(&["log", "--session", &session]).good();
    assert!(
        log.out().contains("refused") && log.out().contains(&id),
        "{log}"
    );
    assert!(!log.out().contains(&world.cluster.marker), "{log}");
}

fn all_text(directory: &std::path::Path) -> String {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    entries
        .map(|entry| std::fs::read_to_string(entry.path()).unwrap_or_default())
        .collect()
}

#[test]
fn requests_of_a_job_are_recorded_with_its_session() {
    let Some(world) = World::new() else { return };
    let output = world
        .inside(
            "sbatch --parsable -o o.txt --wrap 'squeue -h > /dev/null; sbatch --uid=0 --wrap true'",
        )
        .run()
        .good();
    world.settle(Side::Inside);
    let id = output.word();
    let submission = lines(&world, &id)
        .into_iter()
        .find(|line| line["command"] == "sbatch");
    let session = submission.unwrap_or_else(|| panic!("{output}"))["session"]
        .as_str()
        .unwrap()
        .to_owned();
    // The job's last request may be answered before the line of it is written.
    until("the line of the refusal", || {
        let of_session = lines(&world, &session);
        of_session.iter().any(|line| line["verdict"] == "refused")
    });
}

#[test]
fn the_record_cannot_be_changed_from_inside() {
    let Some(world) = World::new() else { return };
    let directory = world.user.dir.join(".local/state/agent-sandbox");
    let output = world
        .inside(&format!("squeue -h > /dev/null; rm -rf {0}/audit; echo x >> {0}/audit/$(hostname).jsonl; ls {0} | wc -l; sbatch -o o.txt -W --wrap 'rm -rf {0}; ls {0} 2>&1'", directory.display()))
        .run();
    assert!(directory.join("audit").is_dir(), "{output}");
    assert!(!all_text(&directory.join("audit")).contains("\nx\n"));
}

#[test]
fn what_is_allowed_can_be_asked_for() {
    let Some(world) = World::new() else { return };
    let explain = |line: &str| world.launcher(&["explain", "--slurm", line]);
    assert!(explain("sbatch --uid=0").out().contains("uid"));
    assert!(explain("sbatch --time=5 -o x.txt").out().contains("time"));
    assert!(!explain("sbatch --no-such=1").out().is_empty());
    assert!(explain("strigger --set").out().contains("strigger"));
    // The same from inside, in a session and in a job.
    let ask = "agent-sandbox explain --slurm 'sbatch --uid=0'; agent-sandbox explain --slurm squeue | head -n 1; \
               agent-sandbox explain --host localhost | head -n 1";
    let says = |text: &str| {
        assert!(text.contains("--uid=0: refused: "), "{text}");
        assert!(text.contains("squeue: works inside: "), "{text}");
        assert!(
            text.contains("localhost: can be connected to from inside"),
            "{text}"
        );
    };
    says(&world.inside(ask).run().out());
    let job = format!("sbatch -W -o told.txt --wrap \"{ask}\" > /dev/null; cat told.txt");
    says(&world.inside(&job).run().out());
}

/// What a program is told of a session's jobs, and of what it was refused.
#[test]
fn a_result_names_the_jobs_and_their_states() {
    let Some(world) = World::new() else { return };
    let file = world.user.dir.join("result.json");
    let project = world.project();
    let script = "cd $AGENT_SANDBOX_PROJECT; sbatch --parsable -W -o /dev/null --wrap 'exit 3' > first; sbatch --parsable -H -o /dev/null --array=1-3 --wrap true > second; \
                  sbatch --uid=0 --wrap true; true";
    let words = [
        "-C",
        project.to_str().unwrap(),
        "run",
        "--result",
        file.to_str().unwrap(),
        "--",
        "bash",
        "-c",
        script,
    ];
    world.launcher(&words).good();
    let result: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let number = |name: &str| -> u32 { world.read(name).trim().parse().unwrap() };
    let jobs = result["jobs"].as_array().unwrap();
    let states = |id: u32| {
        let job = jobs.iter().find(|job| job["id"] == id);
        job.unwrap_or_else(|| panic!("no job {id}: {result:#}"))["states"].clone()
    };
    assert_eq!(states(number("first")), serde_json::json!({ "FAILED": 1 }));
    assert_eq!(
        states(number("second")),
        serde_json::json!({ "PENDING": 3 })
    );
    assert_eq!(jobs.len(), 2, "{result:#}");
    let refusals = result["refusals"].as_array().unwrap();
    assert_eq!(refusals.len(), 1, "{result:#}");
    assert_eq!(refusals[0]["reason"], "option --uid", "{result:#}");
    assert_eq!(result["project_changed_files"], 2, "{result:#}");
}
