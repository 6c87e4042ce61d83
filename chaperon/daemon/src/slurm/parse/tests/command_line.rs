//! Words, as `getopt_long(3)` reads them.

use super::*;

#[test]
fn names_are_found_whole_short_bundled_and_abbreviated() {
    for words in [
        &["--nodes=2", "--hold"][..],
        &["--nodes", "2", "--hold"],
        &["-N2", "-H"],
        &["-N", "2", "-H"],
        &["-HN2"],
        &["-HN", "2"],
        &["--hol", "--nodes", "2"],
    ] {
        let mut options = passed(Command::Sbatch, words).0;
        options.sort();
        assert_eq!(options, ["--hold", "--nodes=2"], "{words:?}");
    }
}

#[test]
fn an_abbreviation_of_an_alias_means_its_option() {
    assert_eq!(
        passed(Command::Srun, &["--tasks=2"]).0,
        ["--ntasks-per-node=2"]
    );
    assert_eq!(
        passed(Command::Srun, &["--cpu_b=none"]).0,
        ["--cpu-bind=none"]
    );
}

#[test]
fn a_whole_name_wins_over_longer_ones() {
    assert_eq!(
        passed(Command::Sbatch, &["--mem=1G", "--time", "5"]).0,
        ["--mem=1G", "--time=5"]
    );
    assert_eq!(passed(Command::Srun, &["--ntasks=3"]).0, ["--ntasks=3"]);
}

#[test]
fn an_ambiguous_name_is_told_with_what_it_can_mean() {
    let told = refusal(Command::Sbatch, &["--mem-per=5"]);
    assert!(
        told.starts_with("option '--mem-per=5' is ambiguous"),
        "{told}"
    );
    assert!(told.contains("'--mem-per-cpu' '--mem-per-gpu'"), "{told}");
    assert!(refusal(Command::Sbatch, &["--="]).contains("ambiguous"));
}

#[test]
fn abbreviations_do_not_hide_what_is_refused() {
    for words in [
        &["--ui=0"][..],
        &["--get", "job.sh"],
        &["--export=NONE", "--export-f=/tmp/x"],
        &["-HF/tmp/nodes"],
        &["--container", "/tmp/bundle"],
    ] {
        let refused = read(Command::Sbatch, words).unwrap_err();
        assert!(refused.by_rule, "{words:?}: {refused}");
    }
}

#[test]
fn an_optional_value_is_in_the_same_word() {
    assert_eq!(
        passed(Command::Srun, &["--nice", "5"]),
        (vec!["--nice".into()], vec!["5".into()])
    );
    assert_eq!(passed(Command::Srun, &["--nice=5", "x"]).0, ["--nice=5"]);
    assert_eq!(
        passed(Command::Srun, &["-K0", "x"]).0,
        ["--kill-on-bad-exit=0"]
    );
    assert_eq!(
        passed(Command::Srun, &["-K", "0"]),
        (vec!["--kill-on-bad-exit".into()], vec!["0".into()])
    );
    assert_eq!(passed(Command::Srun, &["--pty", "bash"]).1, ["bash"]);
}

#[test]
fn a_value_can_look_like_an_option() {
    assert_eq!(
        passed(Command::Sbatch, &["--comment", "--uid=0"]).0,
        ["--comment=--uid=0"]
    );
    assert_eq!(passed(Command::Sbatch, &["-J", "-x"]).0, ["--job-name=-x"]);
}

#[test]
fn sbatch_stops_at_the_script_and_squeue_does_not() {
    assert_eq!(
        passed(Command::Sbatch, &["-N2", "job.sh", "--uid=0", "-N3"]),
        (
            vec!["--nodes=2".into()],
            vec!["job.sh".into(), "--uid=0".into(), "-N3".into()]
        )
    );
    assert_eq!(
        passed(Command::Scancel, &["12", "-b", "13", "--", "-f"]),
        (
            vec!["--batch".into()],
            vec!["12".into(), "13".into(), "-f".into()]
        )
    );
    assert_eq!(passed(Command::Srun, &["--", "-N"]).1, ["-N"]);
    assert_eq!(passed(Command::Srun, &["-", "-N2"]).1, ["-", "-N2"]);
}

#[test]
fn values_are_missing_or_too_many() {
    assert_eq!(
        refusal(Command::Sbatch, &["--nodes"]),
        "option '--nodes' requires an argument"
    );
    assert_eq!(
        refusal(Command::Sbatch, &["-HN"]),
        "option '-N' requires an argument"
    );
    assert_eq!(
        refusal(Command::Sbatch, &["--hold=1"]),
        "option '--hold' doesn't allow an argument"
    );
    assert_eq!(refusal(Command::Sbatch, &["-HY"]), "invalid option -- 'Y'");
}

#[test]
fn the_nearest_name_is_proposed() {
    let refused = read(Command::Sbatch, &["--ouptut=x"]).unwrap_err();
    assert_eq!(refused.message, "unrecognized option '--ouptut'");
    assert_eq!(refused.hints, ["did you mean --output?"]);
    assert!(!refused.by_rule);
}

#[test]
fn components_of_heterogeneous_jobs_are_refused() {
    assert!(refusal(Command::Sbatch, &["-N1", ":", "-N2", "x"]).contains("heterogeneous"));
    assert!(refusal(Command::Salloc, &["-N1", ":", "-N2"]).contains("heterogeneous"));
    assert!(refusal(Command::Srun, &["a", ":", "b"]).contains("heterogeneous"));
    assert_eq!(passed(Command::Sbatch, &["x", "a", ":"]).1, ["x", "a", ":"]);
}

#[test]
fn values_are_checked() {
    for words in [
        ["--nodes", "1 2"],
        ["--nodelist", "/home/alice/.ssh/id_rsa"],
        ["--exclude", "./nodes"],
        ["--ntasks", "two"],
        ["--time", "soon"],
        ["--job-name", "a\nb"],
        ["--open-mode", "read"],
        ["--partition", "../debug"],
    ] {
        let refused = read(Command::Sbatch, &words).unwrap_err();
        assert!(refused.message.starts_with("invalid value"), "{refused}");
        assert!(!refused.by_rule);
    }
    let words = [
        "--dependency=afterok:1:2?afternotok:3",
        "--gres=gpu:a100:2,shard:1",
        "--constraint=[rack1*2&rack2*4]",
        "--licenses=a@b:2;c",
        "--begin=now + 1 hour",
        "--time=1-12:30",
        "--array=0-15%4",
        "--signal=B:USR1@60",
        "--nodelist=node[01-03],x-y.z_1",
        "--job-name=größer als",
        "--partition=",
    ];
    assert_eq!(passed(Command::Sbatch, &words).0, words);
}

#[test]
fn a_refusal_says_what_why_and_where() {
    assert_eq!(
        refusal(Command::Sbatch, &["--uid=0"]),
        "--uid=0 is refused: jobs run as the user who started the session; leave it out"
    );
    let told = parse(
        Command::Sbatch,
        None,
        &[],
        &environment(&[("SBATCH_GET_USER_ENV", "")]),
    );
    let told = told.unwrap_err().message;
    assert!(
        told.starts_with(
            "the variable SBATCH_GET_USER_ENV: it stands for --get-user-env, which is refused: "
        ),
        "{told}"
    );
    assert!(
        read(Command::Strigger, &[])
            .unwrap_err()
            .message
            .starts_with("strigger is refused: it would")
    );
}
