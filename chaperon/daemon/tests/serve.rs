//! The chaperon's program, with commands that stand in for Slurm's and a shim that is one of ours:
//! what is asked for inside, and what reaches a command outside.

#[path = "side/logged.rs"]
mod logged;
#[path = "side/marked.rs"]
mod marked;
#[path = "side/shared.rs"]
mod shared;
mod side;

use std::os::fd::AsFd;

use agent_sandbox_support::waiting::until;
use agent_sandbox_wire::bounds::{BoundSet, SizeBound, SizeKey};
use agent_sandbox_wire::capsule::{Capsule, Program};
use agent_sandbox_wire::message::End;
use agent_sandbox_wire::order::JobContext;
use agent_sandbox_wire::step;

use side::{Chaperon, CommandLine, World};

/// Stands in everything that comes from inside and is no typed value.
const HOSTILE: &str = "HOSTILE";

/// Variables that would run code, choose a configuration, or mean something to Slurm.
const VARIABLES: [&str; 8] = [
    "BASH_ENV=/tmp/HOSTILE",
    "LD_PRELOAD=/tmp/HOSTILE.so",
    "SLURM_CONF=/tmp/HOSTILE.conf",
    "SLURM_JWT=HOSTILE",
    "PATH=/tmp/HOSTILE:/usr/bin:/bin",
    "HOME=/tmp/HOSTILE",
    "IFS=HOSTILE",
    "PLAIN=HOSTILE",
];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_script_reaches_slurm_as_data_alone() {
    let world = World::new();
    let script = "#!/bin/bash HOSTILE\n#SBATCH --output=HOSTILE-%j -t 5 # HOSTILE\n\
                  #PBS -o HOSTILE\n#BSUB -J HOSTILE -q lsf\necho HOSTILE\n";
    world.file("HOSTILE.sh", script);
    let chaperon = Chaperon::start(&world, |_| {});
    let words = "-n2 --error=HOSTILE -J name ./HOSTILE.sh HOSTILE";
    let words: Vec<&str> = words.split(' ').collect();
    let said = chaperon.ask(CommandLine::new("sbatch", &words).variables(&VARIABLES));
    assert_eq!(said.end, End::SUCCESS, "{}", text(&said.error));
    assert_eq!(text(&said.output), "Submitted batch job 42\n");

    let seen = world.seen("sbatch");
    let words = seen.arguments();
    let has = |word: &str| words.iter().any(|one| one == word);
    for word in [
        "--ntasks=2",
        "--time=5",
        "--partition=lsf",
        "--job-name=name",
        "--export=ALL",
        "--ignore-pbs",
        "--parsable",
        "--open-mode=append",
    ] {
        assert!(has(word), "{word}: {words:?}");
    }
    assert!(words.iter().all(|word| word.starts_with("--")), "{words:?}");
    assert!(!words.join(" ").contains(HOSTILE), "{words:?}");
    assert!(!seen.environment().join(" ").contains(HOSTILE));
    assert_eq!(seen.directory(), "/");

    let input = seen.input();
    assert!(input.starts_with(b"#!/opt/agent-sandbox job\n"));
    assert!(!text(&input).contains(HOSTILE));
    let capsule = Capsule::from_batch_script(&input).unwrap();
    assert_eq!(
        capsule.program,
        Program::Script {
            script: script.into(),
            arguments: vec![b"HOSTILE".to_vec()],
        }
    );
    assert_eq!(capsule.cwd, world.inside().as_bytes());
    assert_eq!(capsule.streams.output.as_deref(), Some(&b"HOSTILE-%j"[..]));
    assert_eq!(capsule.streams.error.as_deref(), Some(&b"HOSTILE"[..]));
    for variable in VARIABLES {
        assert!(capsule.environment.contains(&variable.as_bytes().to_vec()));
    }
    let mut base: Vec<String> = capsule
        .base_environment
        .iter()
        .map(|one| text(one))
        .collect();
    base.sort();
    assert_eq!(base, seen.environment());
    assert!(world.record(42).contains("HOSTILE.sh"));
}

#[test]
fn variables_stand_for_options_and_arguments_win() {
    let world = World::new();
    let chaperon = Chaperon::start(&world, |_| {});
    let said = chaperon.ask(
        CommandLine::new(
            "sbatch",
            &[
                "--parsable",
                "-p",
                "other",
                "--wrap",
                "#SBATCH -c4\nhostname",
            ],
        )
        .variables(&[
            "SBATCH_PARTITION=debug",
            "SBATCH_EXPORT=ONE",
            "ONE=1",
            "TWO=2",
        ]),
    );
    assert_eq!(text(&said.output), "42\n", "{}", text(&said.error));
    let seen = world.seen("sbatch");
    assert!(seen.arguments().contains(&"--partition=other".to_owned()));
    assert!(seen.arguments().contains(&"--cpus-per-task=4".to_owned()));
    assert!(
        !seen
            .environment()
            .iter()
            .any(|one| one.starts_with("SBATCH_"))
    );
    let capsule = Capsule::from_batch_script(&seen.input()).unwrap();
    assert!(capsule.environment.contains(&b"ONE=1".to_vec()));
    assert!(!capsule.environment.contains(&b"TWO=2".to_vec()));
}

#[test]
fn what_is_refused_starts_nothing() {
    let world = World::new();
    let chaperon = Chaperon::start(&world, |_| {});
    let asked: [(&str, &[&str], &[&str]); 12] = [
        ("sbatch", &["--uid=0", "--wrap=x"], &[]),
        ("sbatch", &["--export-file=x", "--wrap=x"], &[]),
        ("sbatch", &["--get-user-env", "--wrap=x"], &[]),
        ("sbatch", &["--wrap=#SBATCH -n1 --uid=0\nx"], &[]),
        ("sbatch", &["--wrap=x", "script"], &[]),
        ("sbatch", &["--wrap=x"], &["SBATCH_GET_USER_ENV=1"]),
        ("srun", &["--task-prolog=/tmp/x", "hostname"], &[]),
        ("srun", &["--bcast=/tmp/x", "hostname"], &[]),
        ("srun", &["hostname"], &["SLURM_TASK_PROLOG=/tmp/x"]),
        ("srun", &["--jobid=7", "hostname"], &[]),
        ("salloc", &["--x11"], &[]),
        ("sattach", &["42.0"], &[]),
    ];
    for (command, words, variables) in asked {
        let said = chaperon.ask(CommandLine::new(command, words).variables(variables));
        assert_eq!(said.end, End::FAILURE, "{command} {words:?}");
        assert!(!said.error.is_empty());
        assert!(
            !world.has_seen(command),
            "{command} {words:?} {variables:?}"
        );
    }
}

#[test]
fn a_program_reaches_slurm_as_data_alone() {
    let world = World::new();
    let chaperon = Chaperon::start(&world, |_| {});
    let said = chaperon.ask(
        CommandLine::new(
            "srun",
            &["-n2", "--export=ALL,X=HOSTILE", "--", "HOSTILE", "--uid=0"],
        )
        .variables(&VARIABLES),
    );
    assert_eq!(said.end, End::Code(3), "{}", text(&said.error));
    let seen = world.seen("srun");
    let words = seen.arguments();
    let behind = words.iter().position(|word| word == "--").unwrap();
    assert_eq!(words[behind + 1..], ["/opt/agent-sandbox", "task"]);
    // The name of the job is what people see of it in queues.
    let shown = words.iter().filter(|word| word.contains(HOSTILE));
    assert_eq!(shown.collect::<Vec<_>>(), ["--job-name=HOSTILE"]);
    let (parts, base): (Vec<String>, Vec<String>) = seen
        .environment()
        .into_iter()
        .partition(|entry| step::is_part(entry.split('=').next().unwrap().as_bytes()));
    assert!(!base.join(" ").contains(HOSTILE), "{base:?}");
    let capsule = step::capsule(|name| {
        let entry = parts
            .iter()
            .find_map(|part| part.strip_prefix(&format!("{name}=")));
        entry.map(|value| value.as_bytes().to_vec())
    })
    .unwrap();
    assert_eq!(
        capsule.program,
        Program::Command(vec![b"HOSTILE".to_vec(), b"--uid=0".to_vec()])
    );
    let mut sealed: Vec<String> = capsule
        .base_environment
        .iter()
        .map(|one| text(one))
        .collect();
    sealed.sort();
    assert_eq!(sealed, base);
}

#[test]
fn in_a_job_slurms_own_variables_count() {
    let world = World::new();
    let chaperon = Chaperon::start(&world, |order| {
        order.job = Some(JobContext {
            id: 12,
            environment: ["SLURM_JOB_ID=12", "SLURM_NTASKS=2", "SLURM_CONF=/x"]
                .map(Vec::from)
                .to_vec(),
        });
    });
    let said = chaperon.ask(
        CommandLine::new("srun", &["-o", "out-%j", "true"]).variables(&[
            "SLURM_JOB_ID=12",
            "SLURM_NTASKS=2",
            "SLURM_STEP_NODELIST=HOSTILE",
            "SLURM_NODELIST=HOSTILE",
        ]),
    );
    assert_eq!(said.end, End::Code(3), "{}", text(&said.error));
    let seen = world.seen("srun");
    assert!(seen.arguments().contains(&"--jobid=12".to_owned()));
    let environment = seen.environment();
    assert!(environment.contains(&"SLURM_NTASKS=2".to_owned()));
    assert!(environment.contains(&"SLURM_JOB_ID=12".to_owned()));
    assert!(!environment.contains(&"SLURM_CONF=/x".to_owned()));
    assert!(!environment.join(" ").contains(HOSTILE));
    // The file was opened inside, and srun writes to that descriptor.
    assert_eq!(world.read("out-12"), "to the file\n");
    let word = seen
        .arguments()
        .into_iter()
        .find(|word| word.starts_with("--output="));
    assert!(word.unwrap().starts_with("--output=/dev/fd/"));
}

#[test]
fn a_descriptor_that_cannot_be_written_is_not_taken() {
    let world = World::new();
    world.file("read-only", "kept\n");
    let chaperon = Chaperon::start(&world, |_| {});
    let said =
        chaperon.ask(CommandLine::new("srun", &["-o", "read-only", "true"]).opens_for_reading());
    assert_eq!(said.end, End::FAILURE);
    assert!(!world.has_seen("srun"));
    assert_eq!(world.read("read-only"), "kept\n");
}

#[test]
fn an_allocation_is_held_while_the_command_runs_inside() {
    let world = World::new();
    let chaperon = Chaperon::start(&world, |_| {});
    let asked = CommandLine::new("salloc", &["-n2", "HOSTILE", "argument"]).variables(&VARIABLES);
    let said = chaperon.ask(asked);
    assert_eq!(said.end, End::Code(5), "{}", text(&said.error));
    let [argv, environment] = said.ran.unwrap();
    assert_eq!(argv, [b"HOSTILE".to_vec(), b"argument".to_vec()]);
    let entries: Vec<String> = environment.iter().map(|one| text(one)).collect();
    assert!(
        entries.contains(&"SLURM_JOB_ID=43".to_owned()),
        "{entries:?}"
    );
    assert!(entries.contains(&format!("SLURM_SUBMIT_DIR={}", world.inside())));
    assert!(entries.iter().all(|entry| entry.starts_with("SLURM_")));
    assert!(!entries.iter().any(|entry| entry.starts_with("SLURM_CONF=")));
    let seen = world.seen("salloc");
    assert!(!seen.arguments().join(" ").contains(HOSTILE));
    assert!(!seen.environment().join(" ").contains(HOSTILE));
    assert!(world.record(43).contains("salloc"));
}

#[test]
fn limits_hold() {
    let world = World::new();
    let chaperon = Chaperon::start(&world, |order| {
        order.limits.jobs.most = 2;
        let sizes = [(SizeKey::Nodes, 2), (SizeKey::Minutes, 10)].map(|(key, most)| SizeBound {
            key,
            most,
            source: "enforced.toml:3".into(),
        });
        order.bounds.sets.push(BoundSet {
            sizes: sizes.into(),
            ..BoundSet::default()
        });
    });
    for words in [
        &["-N3", "--wrap=x"][..],
        &["-t11", "--wrap=x"],
        &["-a", "0-2", "--wrap=x"],
        &["--wrap=#SBATCH -N 3\nx"],
    ] {
        let said = chaperon.ask(CommandLine::new("sbatch", words));
        assert_eq!(said.end, End::FAILURE, "{words:?}");
        let error = text(&said.error);
        let key = error.contains("slurm.limits.jobs") || error.contains(", enforced.toml:3)");
        assert!(key, "{error}");
        assert!(!world.has_seen("sbatch"), "{words:?}");
    }
    let said = chaperon.ask(CommandLine::new("sbatch", &["--wrap=x"]));
    assert_eq!(said.end, End::SUCCESS, "{}", text(&said.error));
    assert!(
        world
            .seen("sbatch")
            .arguments()
            .contains(&"--time=10".to_owned())
    );
    // One is in the queue now; two more would be three.
    let said = chaperon.ask(CommandLine::new("sbatch", &["-a1-2", "--wrap=x"]));
    assert!(
        text(&said.error).contains("slurm.limits.jobs"),
        "{}",
        text(&said.error)
    );
}

#[test]
fn wrong_options_end_as_slurms_do() {
    let world = World::new();
    let chaperon = Chaperon::start(&world, |_| {});
    let long = format!("--output=/{}", "a".repeat(4096));
    let directory = format!("--chdir=/{}", "a".repeat(4090));
    let asked: [(&str, &[&str]); 11] = [
        ("sbatch", &["--no-such-option", "--wrap=x"]),
        ("srun", &["--no-such-option", "x"]),
        ("salloc", &["-~"]),
        ("sbatch", &["--wrap=#SBATCH --no-such-option\nx"]),
        ("sbatch", &["--mail-user=-X!/tmp/x", "--wrap=x"]),
        ("sbatch", &["--mail-user=a,-X", "--wrap=x"]),
        ("srun", &["--mail-user", "-oQ/tmp", "x"]),
        ("sbatch", &["--dependency=expand:7", "--wrap=x"]),
        ("sbatch", &["-d", "afterok:7/..", "--wrap=x"]),
        ("sbatch", &[&long, "--wrap=x"]),
        ("srun", &[&long, "x"]),
    ];
    for (command, words) in asked {
        let said = chaperon.ask(CommandLine::new(command, words));
        assert_eq!(said.end, End::Code(255), "{command} {words:?}");
        assert!(!world.has_seen(command), "{command} {words:?}");
    }
    let wrong = chaperon.ask(CommandLine::new("squeue", &["--no-such-option"]));
    assert_eq!(wrong.end, End::FAILURE);
    let script = "x".repeat(5000);
    for words in [&[&*script][..], &[&*directory, "--chdir=x/../y", "true"]] {
        let said = chaperon.ask(CommandLine::new("sbatch", words));
        assert_eq!(said.end, End::FAILURE, "{}", text(&said.error));
        assert!(!world.has_seen("sbatch"));
    }
}

#[test]
fn slurm_goes_to_no_directory_of_the_agents_choice() {
    let world = World::new();
    let chaperon = Chaperon::start(&world, |_| {});
    let project = format!("--chdir={}", world.inside());
    for (command, words) in [
        ("sbatch", &["--chdir=/HOSTILE", "--wrap=x"][..]),
        ("srun", &["--chdir=/HOSTILE", "x"]),
        ("salloc", &["--chdir=/HOSTILE", "x"]),
    ] {
        chaperon.ask(CommandLine::new(command, words));
        let seen = world.seen(command);
        let words = seen.arguments();
        assert!(!words.join(" ").contains(HOSTILE), "{command}: {words:?}");
        assert_eq!(
            words.contains(&project),
            command != "salloc",
            "{command}: {words:?}"
        );
        assert_eq!(seen.directory(), "/");
        // Nor does it leave a memory image there.
        assert_eq!(seen.core(), "0");
    }
    let capsule = Capsule::from_batch_script(&world.seen("sbatch").input()).unwrap();
    assert_eq!(capsule.cwd, b"/HOSTILE");
    assert!(world.record(42).contains("\"cwd\":\"/HOSTILE\""));
}

#[test]
fn signals_that_no_shim_gets_are_not_handed_on() {
    let world = World::new();
    let chaperon = Chaperon::start(&world, |_| {});
    let slowly = || CommandLine::new("srun", &["--comment=slowly", "x"]);
    let said = chaperon.ask(slowly().signals(&[
        libc::SIGSEGV,
        libc::SIGABRT,
        libc::SIGKILL,
        libc::SIGSTOP,
        libc::SIGPIPE,
        64,
    ]));
    assert_eq!(said.end, End::Code(3), "{}", text(&said.error));
    let said = chaperon.ask(slowly().signals(&[libc::SIGTERM]));
    assert_eq!(said.end, End::Signal(libc::SIGTERM));
}

#[test]
fn a_job_that_cannot_be_recorded_is_cancelled_again() {
    let world = World::new();
    world.without_records();
    let chaperon = Chaperon::start(&world, |_| {});
    let said = chaperon.ask(CommandLine::new("sbatch", &["--wrap=x"]));
    assert_eq!(said.end, End::FAILURE);
    assert!(
        text(&said.error).contains("cannot record job 42")
            && text(&said.error).contains("cancelled again"),
        "{}",
        text(&said.error)
    );
    assert!(said.output.is_empty(), "{}", text(&said.output));
    assert_eq!(world.seen("scancel").arguments(), ["42"]);
}

#[test]
fn a_submission_is_finished_and_recorded_before_a_signal_ends_it() {
    let world = World::new();
    world.does("sbatch", "sleep 0.3\necho 42\n");
    let chaperon = Chaperon::start(&world, |_| {});
    let asked = CommandLine::new("sbatch", &["--wrap=x"]).signalled(&world, libc::SIGTERM);
    let said = chaperon.ask(asked);
    assert_eq!(text(&said.output), "Submitted batch job 42\n");
    assert_eq!(said.end, End::Signal(libc::SIGTERM));
    assert!(world.record(42).contains("s0000001"));
    // Nothing else ends it, either.
    world.does("sbatch", "sleep 0.3\necho 44\n");
    let asked = CommandLine::new("sbatch", &["--wrap=x"]).signalled(&world, libc::SIGUSR1);
    let said = chaperon.ask(asked);
    assert_eq!(said.end, End::SUCCESS);
    assert!(world.record(44).contains("s0000001"));
}

#[test]
fn calls_of_too_many_words_are_told_so() {
    let world = World::new();
    let chaperon = Chaperon::start(&world, |_| {});
    let said = chaperon.ask(CommandLine::new("squeue", &vec!["a"; 70_000]));
    assert_eq!(said.end, End::FAILURE);
    assert!(
        text(&said.error).contains("70000 arguments"),
        "{}",
        text(&said.error)
    );
    let said = chaperon.ask(CommandLine::new("squeue", &[]).variables(&vec!["a="; 20_000]));
    assert_eq!(said.end, End::FAILURE);
    assert!(
        text(&said.error).contains("20000 variables"),
        "{}",
        text(&said.error)
    );
    assert!(!world.has_seen("squeue"));
}

#[test]
fn shims_that_do_not_read_take_bounded_memory() {
    let world = World::new();
    world.does("sinfo", "exec head -c 30000000 /dev/zero\n");
    let chaperon = Chaperon::start(&world, |order| {
        let mut bin = order.commands[0].1.clone();
        bin.truncate(bin.len() - "sbatch".len());
        bin.extend_from_slice(b"sinfo");
        order
            .commands
            .push((agent_sandbox_wire::command::Command::Sinfo, bin));
    });
    // Each asks something else, so that nobody shares an answer.
    let left: Vec<_> = (0..15)
        .map(|number| {
            chaperon.leave(&CommandLine::new(
                "sinfo",
                &["-o", &format!("%{}N", number + 1)],
            ))
        })
        .collect();
    let large = "a".repeat(100_000);
    let words: Vec<&str> = std::iter::repeat_n(&*large, 40).collect();
    let calls: Vec<_> = (0..12)
        .map(|_| chaperon.leave(&CommandLine::new("sbatch", &words)))
        .collect();
    // The most that it had, once that grows no more.
    let mut most = chaperon.memory();
    until("the end of its growth", || {
        std::thread::sleep(std::time::Duration::from_secs(2));
        let before = std::mem::replace(&mut most, chaperon.memory());
        world.has_seen("sinfo") && most == before
    });
    let memory = most >> 10;
    assert!(memory < 700, "{memory} MiB");
    // What is small is answered all the same.
    let said = chaperon.ask(CommandLine::new("squeue", &["--version"]));
    assert_eq!(said.end, End::SUCCESS, "{}", text(&said.error));
    drop((left, calls));
}

#[test]
fn a_script_is_written_to_regular_files_alone() {
    let world = World::new();
    let chaperon = Chaperon::start(&world, |_| {});
    let said = chaperon.ask(CommandLine::new("sbatch", &["--wrap=x"]));
    assert_eq!(said.end, End::SUCCESS, "{}", text(&said.error));
    let write = ["write", "batch_script", "42"];
    let said = chaperon.ask(CommandLine::new(
        "scontrol",
        &[&write[..], &["/dev/null"]].concat(),
    ));
    assert_eq!(said.end, End::FAILURE);
    assert!(
        text(&said.error).contains("not a regular file"),
        "{}",
        text(&said.error)
    );
    let said = chaperon.ask(CommandLine::new(
        "scontrol",
        &[&write[..], &["script"]].concat(),
    ));
    assert_eq!(said.end, End::SUCCESS, "{}", text(&said.error));
    assert_eq!(world.read("script"), "ClusterName = test\n");
}

#[test]
fn the_end_of_the_session_waits_for_nobody() {
    let world = World::new();
    world.does("squeue", "exec sleep 60\n");
    let chaperon = Chaperon::start(&world, |_| {});
    let left = chaperon.leave(&CommandLine::new("squeue", &[]));
    let listening = chaperon.leave(&CommandLine::new("sbatch", &[]));
    until("squeue", || world.has_seen("squeue"));
    // The preface, and the beginning of what it asks the shim for: the script, which never comes.
    let mut first = [0; agent_sandbox_wire::frame::PREFACE.len() + 1];
    std::io::Read::read_exact(&mut &listening, &mut first).unwrap();
    let end = chaperon.end();
    assert!(end < std::time::Duration::from_secs(5), "{end:?}");
    drop((left, listening));
}

#[test]
fn a_descriptor_that_takes_long_to_close_holds_nobody_up() {
    let world = World::new();
    let chaperon = Chaperon::start(&world, |_| {});
    let mut left = Vec::new();
    for words in [&["squeue", "--version"], &["nonsense", "x"], &["srun", "x"]] {
        let (listener, stream) = side::lingering(20);
        let asked = CommandLine::new(words[0], &words[1..]);
        left.push((chaperon.leave_with(&asked, stream.as_fd()), listener));
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    let before = side::now();
    let said = chaperon.ask(CommandLine::new("sbatch", &["--wrap=x"]));
    assert_eq!(said.end, End::SUCCESS, "{}", text(&said.error));
    let took = [before.elapsed(), chaperon.end()];
    let short = |took: &std::time::Duration| *took < std::time::Duration::from_secs(5);
    assert!(took.iter().all(short), "{took:?}");
    drop(left);
}

#[test]
fn an_sbatch_that_runs_at_the_end_of_the_session_gets_its_record() {
    let world = World::new();
    world.does("sbatch", "sleep 1\necho 42\n");
    let chaperon = Chaperon::start(&world, |_| {});
    let left = chaperon.leave(&CommandLine::new("sbatch", &["--wrap=x"]));
    until("sbatch", || world.has_seen("sbatch"));
    drop(left);
    chaperon.end();
    assert!(world.record(42).contains("s0000001"));
}

#[test]
fn srun_can_start_no_other_program() {
    // What Slurm's own srun does when a task asks it for more processes.
    let world = World::new();
    world.does(
        "srun",
        "{ (exec /bin/echo HOSTILE); /bin/echo HOSTILE; } >>\"$seen.arguments\" 2>&1\nexit 3\n",
    );
    let chaperon = Chaperon::start(&world, |_| {});
    let said = chaperon.ask(CommandLine::new("srun", &["x"]));
    assert_eq!(said.end, End::Code(3), "{}", text(&said.error));
    let seen = world.seen("srun").arguments();
    let refused = |line: &&String| line.ends_with("/bin/echo: Operation not permitted");
    assert_eq!(seen.iter().filter(refused).count(), 2, "{seen:?}");
    assert!(!seen.contains(&HOSTILE.to_owned()), "{seen:?}");
}
