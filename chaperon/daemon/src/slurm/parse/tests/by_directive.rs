//! `#SBATCH` lines, as sbatch reads them.

use super::*;

fn table() -> &'static Table {
    options::table(Command::Sbatch).unwrap()
}

/// The options that a script gives. That the words are those which sbatch itself finds is asked of
/// the installed one in `tests/options.rs`.
fn found(script: &str) -> Result<Vec<String>, String> {
    directives(table(), script.as_bytes(), false)
        .map(|read| {
            read.given
                .iter()
                .map(|given| {
                    let value = given
                        .value
                        .as_ref()
                        .map(|v| format!("={}", v.to_string_lossy()));
                    format!("{}{}", given.option.long, value.unwrap_or_default())
                })
                .collect()
        })
        .map_err(|refusal| refusal.message)
}

#[track_caller]
fn reads(script: &str, expected: &[&str]) {
    assert_eq!(found(script).unwrap(), expected, "{script}");
}

#[test]
fn several_options_stand_on_a_line() {
    reads(
        "#!/bin/sh\n#SBATCH -N2 --mem=1G\n#SBATCH\t--hold\n",
        &["nodes=2", "mem=1G", "hold"],
    );
    assert!(
        found("#!/bin/sh\n#SBATCH -N2 --uid=0\n")
            .unwrap_err()
            .starts_with("line 2 of the script: --uid=0 is refused")
    );
}

/// A script has megabytes for options that add to a list or say the same again: what is kept of them is small.
#[test]
fn options_of_a_script_take_little_memory() {
    let refused = |script: &str, why: &str| {
        let refusal = found(&format!("#!/bin/sh\n{script}\n")).unwrap_err();
        assert!(refusal.contains(why), "{refusal}");
    };
    let lists = "#PBS".to_owned() + &" -v a".repeat(1000);
    let list = format!("export={}", ["a"; 1000].join(","));
    reads(&format!("#!/bin/sh\n{lists}\n"), &[&list]);
    refused(
        &("#PBS".to_owned() + &" -v a".repeat(5000)),
        "more than 4096 words",
    );
    refused(
        &("#PBS -".to_owned() + &"h".repeat(5000)),
        "more than 4096 options",
    );
    refused(
        &("#SBATCH -".to_owned() + &"H".repeat(5000)),
        "more than 4096 options",
    );
    refused(
        &("#SBATCH".to_owned() + &" -H".repeat(5000)),
        "more than 4096 words",
    );
    let long = "x".repeat(128 << 10);
    refused(
        &format!("#SBATCH -J {long}"),
        "the value of --job-name has 131072 bytes",
    );
    refused(
        &format!("#PBS -l {}", "proc=a,b,".repeat(20_000)),
        "the value of -l has 180000 bytes",
    );
    let half = &long[..100_000];
    refused(
        &format!("#PBS -v {half} -v {half}"),
        "the value of --export has 200001 bytes",
    );
}

#[test]
fn the_scan_ends_at_the_first_command() {
    reads(
        "#!/bin/sh\n\n   \t\n  # indented\n#SBATCH -N2\n  #SBATCH -n3\n##SBATCH -c4\n# SBATCH -c5\necho\n#SBATCH -H\n",
        &["nodes=2"],
    );
    reads("#!/bin/sh\n : # x\n#SBATCH -N2\n", &[]);
    reads("#!/bin/sh\n#SBATCH -N2", &["nodes=2"]);
}

#[test]
fn marks_are_matched_as_they_are() {
    reads(
        "#!/bin/sh\n#sbatch -N2\n#SBATCH-N3\n#SBATCH--hold\n#Sbatch -n1\n",
        &["nodes=3", "hold"],
    );
    reads("#!/bin/sh\n#SLURM -N2\n", &["nodes=2"]);
    assert!(
        found("#!/bin/sh\n#SBATCHER -N2\n")
            .unwrap_err()
            .contains("invalid directive")
    );
}

#[test]
fn comments_and_quotes_are_slurms() {
    reads("#!/bin/sh\n#SBATCH -N2 # --uid=0\n", &["nodes=2"]);
    reads("#!/bin/sh\n#SBATCH -J a#b -N2\n", &["job-name=a"]);
    reads(
        "#!/bin/sh\n#SBATCH -J \"a # b\" -N2\n",
        &["job-name=a # b", "nodes=2"],
    );
    reads("#!/bin/sh\n#SBATCH -J a\\#b\n", &["job-name=a#b"]);
    reads(
        "#!/bin/sh\n#SBATCH --comment='it is \"so\"' -J \"it's\"\n",
        &["comment=it is \"so\"", "job-name=it's"],
    );
    reads("#!/bin/sh\n#SBATCH --comm\"ent=a\"b\n", &["comment=ab"]);
    reads(
        "#!/bin/sh\n#SBATCH --comment=\"a \\\" b\"\n",
        &["comment=a \" b"],
    );
    // Older releases end the word there.
    let blank = b"#!/bin/sh\n#SBATCH -J a\\ b -N2\n#SBATCH -J \\ a\n";
    for (month, expected) in [
        (2, &["-J", "a", "b", "-N2", "-J"][..]),
        (5, &["-J", "a b", "-N2", "-J", " a"]),
    ] {
        let words = directive_words(blank, Some(Release::new(24, month))).unwrap();
        let words: Vec<_> = words
            .iter()
            .map(|(word, _)| String::from_utf8_lossy(word))
            .collect();
        assert_eq!(words, expected);
    }
    assert!(
        found("#!/bin/sh\n#SBATCH -J \"a -N2\n")
            .unwrap_err()
            .contains("unmatched `\"`")
    );
}

#[test]
fn an_empty_word_ends_its_line_and_the_next_line_goes_on() {
    reads(
        "#!/bin/sh\n#SBATCH --comment \"\" --uid=0\n#SBATCH -N2\n",
        &["comment=-N2"],
    );
    reads("#!/bin/sh\n#SBATCH --comment\n#SBATCH x\n", &["comment=x"]);
    reads("#!/bin/sh\n#SBATCH -N2 hetjob --uid=0\n", &["nodes=2"]);
    reads(
        "#!/bin/sh\n#SBATCH -N2 \\\n#SBATCH -n3\n",
        &["nodes=2", "ntasks=3"],
    );
}

#[test]
fn what_is_no_option_is_told() {
    assert_eq!(
        found("#!/bin/sh\n#SBATCH -N2\n#SBATCH job.sh\n").unwrap_err(),
        "line 3 of the script: invalid directive found in batch script: 'job.sh'"
    );
    assert!(
        found("#!/bin/sh\n#SBATCH -N2 : -N3\n")
            .unwrap_err()
            .contains("unexpected `:`")
    );
    assert!(
        found("#!/bin/sh\n#SBATCH -N2\n#SBATCH hetjob\n")
            .unwrap_err()
            .contains("hetjob is refused")
    );
    assert!(
        found("#!/bin/sh\n#SBATCH packjob -N2\n")
            .unwrap_err()
            .contains("hetjob is refused")
    );
    assert!(
        found("#!/bin/sh\n#SBATCH -- x\n")
            .unwrap_err()
            .contains("invalid directive")
    );
    reads("#!/bin/sh\n#SBATCH -N2 --\n", &["nodes=2"]);
}

#[test]
fn what_sbatch_passes_over_is_passed_over() {
    reads(
        "#!/bin/sh\n#SBATCH --wrap=date -Qvv --version -hN2\n",
        &["nodes=2"],
    );
}

#[test]
fn line_ends_of_dos_are_blanks_and_nul_ends_a_line() {
    reads(
        "#!/bin/sh\r\n#SBATCH -N2\r\n#SBATCH --hold\r\n",
        &["nodes=2", "hold"],
    );
    reads(
        "#!/bin/sh\n#SBATCH -N2\0 --hold\n#SBATCH -n1\n",
        &["nodes=2", "ntasks=1"],
    );
}

#[test]
fn lines_of_one_other_system_are_translated() {
    // LSF's come before PBS's, wherever they stand, and both win over #SBATCH.
    reads(
        "#!/bin/sh\n#PBS -q x\n#BSUB -n 2,4 -cwd /tmp -q y\ntrue\n#BSUB -W 5 -M 100 -x\n#SBATCH -N2 -p z\n",
        &[
            "ntasks=4",
            "chdir=/tmp",
            "partition=y",
            "time=5",
            "mem-per-cpu=100K",
            "exclusive",
        ],
    );
    reads(
        "#!/bin/sh\n#SBATCH -p z\n#BSUB -q y -m 'a b' -J j -o o -e e --hostname c\n",
        &[
            "partition=z",
            "partition=y",
            "job-name=j",
            "output=o",
            "error=e",
            "nodelist=c",
        ],
    );
    reads(
        "#!/bin/sh\n#PBS -N j -l nodes=2:ppn=3:gpus=1,walltime=1:00:00,mem=4gb -m abe -M a@b -v A=1\n#PBS -v B -j oe -V -h -p 5 -t 1-3 -W depend=afterok:7\n",
        &[
            "job-name=j",
            "gpus-per-node=1",
            "nodes=2",
            "ntasks=6",
            "time=1:00:00",
            "mem=4g",
            "mail-type=BEGIN,END,FAIL",
            "mail-user=a@b",
            "export=A=1,B",
            "hold",
            "nice=5",
            "array=1-3",
            "dependency=afterok:7",
        ],
    );
    reads(
        "#!/bin/sh\n#PBS -l select=2:ncpus=8:mpiprocs=2\n#PBS -l nodes=a+b,pmem=1,accelerator=true -A acct\n",
        &[
            "nodes=2",
            "mincpus=8",
            "ntasks-per-node=2",
            "cpus-per-task=4",
            "nodelist=a,b",
            "gres=gpu:1",
            "account=acct",
        ],
    );
    let read = directives(table(), b"#!/bin/sh\n#PBS -W umask=027\n", false).unwrap();
    assert_eq!(read.umask, Some(0o027));
}

#[test]
fn lines_of_other_systems_are_left_alone_when_that_is_asked_for() {
    let script = b"#!/bin/sh\n#PBS -q x\n#SBATCH -N2\n";
    let read = directives(table(), script, true).unwrap();
    assert_eq!(read.given.len(), 1);
    reads(
        "#!/bin/sh\n#PBS -Z\n#SBATCH --ignore-pbs\n",
        &["ignore-pbs"],
    );
    // Not looked for behind a hundred commands.
    let far = format!("#!/bin/sh\n{}#PBS -q x\n", "true\n".repeat(101));
    reads(&far, &[]);
    let near = format!("#!/bin/sh\n{}#PBS -q x\n", "true\n".repeat(100));
    reads(&near, &["partition=x"]);
}

#[test]
fn what_another_system_asks_for_is_checked_as_slurms_own() {
    for (script, expected) in [
        ("#PBS -Z", "Unrecognized command line parameter"),
        ("#PBS -N a b", "Invalid argument: 'b'"),
        ("#BSUB -n 4,", "format not correct"),
        ("#BSUB -m /etc/passwd", "names of nodes"),
        ("#BSUB -q '../x y'", "--partition"),
        ("#PBS -l nodes=/etc/passwd+a/b", "names of nodes"),
        ("#PBS -M -X!/home/alice/evil", "addresses"),
        ("#PBS -W umask=9999", "Invalid -W umask= specification"),
        ("#PBS -W depend=expand:12", "expand"),
        ("#PBS -l", "Unrecognized command line parameter"),
    ] {
        let script = format!("#!/bin/sh\n{script}\n");
        let message = found(&script).unwrap_err();
        assert!(message.contains(expected), "{script}: {message}");
    }
}

#[test]
fn directives_are_the_weakest() {
    let read = directives(
        table(),
        b"#!/bin/sh\n#SBATCH -N2 -n4 --wait -p a -q a\n",
        false,
    )
    .unwrap();
    let variables = environment(&[("SBATCH_WAIT", "no"), ("SBATCH_QOS", "b")]);
    let parsed = parse(Command::Sbatch, None, &os(&["-N3"]), &variables)
        .unwrap()
        .with_directives(read);
    assert_eq!(parsed.value("nodes").unwrap(), "3");
    assert_eq!(parsed.value("qos").unwrap(), "b");
    assert_eq!(parsed.last("ntasks").unwrap().origin, Origin::Directive(2));
    assert!(!parsed.has("wait"));
    assert_eq!(
        canonical(&parsed.given),
        os(&["--ntasks=4", "--partition=a", "--qos=b", "--nodes=3"])
    );
    let written = written(Command::Sbatch, &parsed.given);
    assert_eq!(
        written.words,
        os(&["--ntasks=4", "--partition=a", "--nodes=3"])
    );
    assert_eq!(written.variables, environment(&[("SBATCH_QOS", "b")]));
}
