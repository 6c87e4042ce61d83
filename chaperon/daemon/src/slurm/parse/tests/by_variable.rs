//! Variables that stand for options.

use super::*;

#[test]
fn arguments_win() {
    let parsed = parse(
        Command::Sbatch,
        None,
        &os(&["-p", "long"]),
        &environment(&[("SBATCH_PARTITION", "debug"), ("SBATCH_QOS", "high")]),
    )
    .unwrap();
    assert_eq!(parsed.value("partition").unwrap(), "long");
    assert_eq!(
        canonical(&parsed.given),
        os(&["--qos=high", "--partition=long"])
    );
    let written = written(Command::Sbatch, &parsed.given);
    assert_eq!(written.words, os(&["--partition=long"]));
    assert_eq!(written.variables, environment(&[("SBATCH_QOS", "high")]));
}

#[test]
fn flags_are_switched_as_slurm_does() {
    let on = |command, name: &str, value: &str, long| {
        parse(command, None, &[], &environment(&[(name, value)]))
            .unwrap()
            .has(long)
    };
    for (value, expected) in [
        ("", true),
        ("yes", true),
        ("YES", true),
        ("1", true),
        ("-3", true),
        ("0", false),
        ("no", false),
        ("true", false),
    ] {
        assert_eq!(
            on(Command::Sbatch, "SBATCH_WAIT", value, "wait"),
            expected,
            "{value}"
        );
    }
    for (value, expected) in [("true", true), ("T", true), ("false", false), ("1", false)] {
        assert_eq!(
            on(Command::Scancel, "SCANCEL_FULL", value, "full"),
            expected,
            "{value}"
        );
    }
    assert!(on(Command::Scancel, "SCANCEL_HURRY", "", "hurry"));
    assert!(on(Command::Squeue, "SQUEUE_ALL", "0", "all"));
}

#[test]
fn levels_are_numbers() {
    let parsed = parse(
        Command::Srun,
        None,
        &[],
        &environment(&[("SLURM_DEBUG", "3")]),
    )
    .unwrap();
    assert_eq!(parsed.all("verbose").count(), 3);
    let scancel = environment(&[("SCANCEL_VERBOSE", "true")]);
    let parsed = parse(Command::Scancel, None, &os(&["-v"]), &scancel).unwrap();
    let written = written(Command::Scancel, &parsed.given);
    assert_eq!(written.words, os(&["--verbose"]));
    assert_eq!(written.variables, scancel);
}

#[test]
fn the_stronger_of_two_variables_wins() {
    let both = environment(&[("SRUN_EXPORT_ENV", "NONE"), ("SLURM_EXPORT_ENV", "ALL")]);
    let parsed = parse(Command::Srun, None, &[], &both).unwrap();
    assert_eq!(parsed.value("export").unwrap(), "NONE");
}

#[test]
fn lists_come_from_the_variable_where_no_argument_gives_one() {
    let format = environment(&[("SACCT_FORMAT", "JobID")]);
    let parsed = parse(Command::Sacct, None, &[], &format).unwrap();
    assert_eq!(parsed.all("format").count(), 1);
    let parsed = parse(Command::Sacct, None, &os(&["-oState", "-oUser"]), &format).unwrap();
    assert_eq!(parsed.all("format").count(), 2);
}

#[test]
fn what_is_dropped_does_no_harm_and_what_is_kept_is_checked() {
    let parsed = parse(
        Command::Srun,
        None,
        &[],
        &environment(&[
            ("SLURM_CONF", "/tmp/evil.conf"),
            ("SLURM_JWT", "x"),
            ("SLURM_CLUSTERS", "other"),
            ("SLURM_EXIT_ERROR", "7"),
            ("LD_PRELOAD", "/tmp/x.so"),
        ]),
    )
    .unwrap();
    assert_eq!(parsed.given, []);
    assert_eq!(parsed.kept, environment(&[("SLURM_EXIT_ERROR", "7")]));
    let wrong = environment(&[("SLURM_EXIT_ERROR", "x")]);
    assert!(parse(Command::Srun, None, &[], &wrong).is_err());
}

#[test]
fn a_refused_variable_without_a_value_asks_for_nothing() {
    let empty = environment(&[("SLURM_PROLOG", ""), ("SRUN_CONTAINER", "")]);
    assert_eq!(parse(Command::Srun, None, &[], &empty).unwrap().given, []);
    let set = environment(&[("SLURM_PROLOG", "/tmp/x")]);
    assert!(parse(Command::Srun, None, &[], &set).unwrap_err().by_rule);
    let hosts = environment(&[("SLURM_HOSTFILE", "/home/alice/.ssh/id_rsa")]);
    assert!(
        parse(Command::Sbatch, None, &[], &hosts)
            .unwrap_err()
            .by_rule
    );
}

/// The environment of a step on Slurm 22.05, as `srun env` in a job printed it.
const IN_A_STEP: &[(&str, &str)] = &[
    ("SLURMD_NODENAME", "node01"),
    ("SLURM_CLUSTER_NAME", "testcluster"),
    ("SLURM_CONF", "/etc/slurm/slurm.conf"),
    ("SLURM_CPUS_ON_NODE", "2"),
    ("SLURM_CPU_BIND", "quiet,mask_cpu:0x00000001,0x00000002"),
    ("SLURM_CPU_BIND_LIST", "0x00000001,0x00000002"),
    ("SLURM_DISTRIBUTION", "cyclic"),
    ("SLURM_EXPORT_ENV", "ALL"),
    ("SLURM_GET_USER_ENV", "1"),
    ("SLURM_GTIDS", "0"),
    ("SLURM_JOBID", "2"),
    ("SLURM_JOB_CPUS_PER_NODE", "2"),
    ("SLURM_JOB_ID", "2"),
    ("SLURM_JOB_NAME", "a b"),
    ("SLURM_JOB_NODELIST", "node01"),
    ("SLURM_JOB_NUM_NODES", "1"),
    ("SLURM_JOB_PARTITION", "debug"),
    ("SLURM_JOB_QOS", "normal"),
    ("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"),
    ("SLURM_MEM_PER_NODE", "100"),
    ("SLURM_NNODES", "1"),
    ("SLURM_NODELIST", "node01"),
    ("SLURM_NODE_ALIASES", "(null)"),
    ("SLURM_NPROCS", "1"),
    ("SLURM_NTASKS", "1"),
    ("SLURM_OPEN_MODE", "a"),
    ("SLURM_PRIO_PROCESS", "0"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_TASKS_PER_NODE", "1"),
    ("SLURM_TOPOLOGY_ADDR_PATTERN", "node"),
    ("SLURM_UMASK", "0022"),
    (
        "SLURM_WORKING_CLUSTER",
        "testcluster:127.0.0.1:16817:9728:109",
    ),
    ("SLURMD_DEBUG", "2"),
    ("SRUN_DEBUG", "3"),
];

#[test]
fn what_slurm_sets_in_jobs_stops_no_command() {
    let inside = environment(IN_A_STEP);
    for command in Command::ALL {
        if options::table(command).is_some() {
            parse(command, None, &[], &inside).unwrap();
        }
    }
    let parsed = parse(
        Command::Srun,
        None,
        &os(&["--mem-per-cpu=50", "-n1"]),
        &inside,
    )
    .unwrap();
    assert_eq!(parsed.value("jobid").unwrap(), "2");
    let written = written(Command::Srun, &parsed.given);
    assert_eq!(written.words, os(&["--mem-per-cpu=50", "--ntasks=1"]));
    assert!(
        written
            .variables
            .contains(&("SLURM_MEM_PER_NODE".into(), "100".into()))
    );
    assert!(
        !written
            .variables
            .iter()
            .any(|(name, _)| name == "SLURM_NTASKS")
    );
}
