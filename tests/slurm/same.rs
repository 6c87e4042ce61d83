//! A table of calls that people make of Slurm's own: the same words inside and outside print the same,
//! on both streams, and end the same way.

use std::time::{Duration, Instant};

use crate::world::{Side, World};

/// What differs from run to run: ports, threads, processes, dates, and how many jobs there are. Lines of
/// several threads come in any order, and so do the two streams of a busy machine where both are one pipe: the
/// number of the job is put at the end.
const PLAIN: &str = r"plain() { sed -uE \
    -e 's/(port|thread|pid|socket|from|pgid)( from net_stream_listen is)?[ =(,]+[0-9.]+.*/\1/' \
    -e 's/^(Mon|Tue|Wed|Thu|Fri|Sat|Sun) .*/DATE/' -e 's/task 0 \([0-9]+\)/task 0/' \
    -e 's/last_update_time=.*/COUNT/' -e 's/\[job [0-9]+\]/[job]/'; }
    last() { plain | sed -n '/^Submitted/H; //!p; ${ g; s/^\n//p }'; }
    sorted() { plain | grep -vE 'debug2: |Sending launch|slurmstepd_task|signaling|step_terminate' | sort; }
";

#[track_caller]
fn same(world: &World, script: &str) {
    world.same(&format!("{PLAIN}{script}"));
}

#[test]
fn what_slurm_says_of_itself_is_about_the_users_job() {
    let Some(world) = World::new() else { return };
    world.write(
        "s.sh",
        "#!/bin/sh\n#SBATCH -J 'in script' -t 5\n#SBATCH --open-mode=truncate\ntrue\n",
    );
    world.write("mp", "0 true\n");
    world.write("in.txt", "");
    same(
        &world,
        r#"mkdir -p sub; touch sub/in.txt
        sbatch -v --wrap true -o /dev/null 2>&1 | last
        sbatch -vv --comment 'a b' --export=A=1,B -o x.out -J nm --wrap true 2>&1 | last
        SBATCH_DEBUG=1 sbatch --wrap true -o /dev/null
        sbatch -v -D sub -e err.txt -i /dev/null -o 'out-%%.txt' --open-mode=append --ignore-pbs --export=ALL s.sh a b
        sbatch -vvv -o /dev/null s.sh 2>&1 | last
        SBATCH_OUTPUT=v.txt SBATCH_EXPORT=NONE SBATCH_TIMELIMIT=7 SBATCH_DEBUG=1 sbatch -v s.sh
        sbatch -v -Q s.sh; echo $?
        srun -v -n1 -o none true; SLURM_DEBUG=1 srun -n1 true
        srun -vv -n1 true 2>&1 | sorted
        srun -v -D sub -e err.txt -i in.txt -o out-%j.txt --open-mode=a --export=ALL,A=1 -J nm true
        SLURM_STDOUTMODE=w.txt SLURM_LABELIO=1 srun -v -E --mpi=none -n1 true
        srun -v --multi-prog mp; srun -Qv true; echo $?; srun -v sh -c 'echo out; echo srun: err >&2; exit 3' 2>&1 | sort; echo ${PIPESTATUS[0]}
        salloc -v -D sub -n1 --mem=10 true; SALLOC_DEBUG=1 salloc sh -c 'kill -9 $$'; echo $?
        salloc -v --no-shell -J ns; scancel -v -n ns; salloc -Qv true; echo $?"#,
    );
    world.write(
        "inner.sh",
        "#!/bin/sh\nsrun -v -n1 -J stepname true\nsrun -vv -n1 true 2> two.txt\n\
         echo a > f.txt; srun -n1 -o f.txt echo b\n",
    );
    same(
        &world,
        r"sbatch -W -o inner.txt -n2 inner.sh; sorted < two.txt; rm two.txt
        sbatch -W -o /dev/null --open-mode=append -n2 inner.sh; rm two.txt",
    );
}

/// At any level, in any stream, and in the files of a step.
#[test]
fn what_slurm_says_of_itself_tells_nothing_of_the_jail() {
    let Some(world) = World::new() else { return };
    world.write("b.sh", "#!/bin/sh\nsrun -vvvvvvvvv true\n");
    let output = world
        .inside(
            "for v in -v -vv -vvv -vvvv -vvvvv -vvvvvvvvv; do
                sbatch $v --wrap true -o /dev/null; srun $v true; salloc $v true; squeue $v; squeue $v -o '%j'
                squeue $v -h -O name; scancel $v 99999999; scancel $v -n nosuch
            done; sbatch -W -o batch.txt b.sh
            for l in 2 3 4 9 debug5; do
                srun --slurmd-debug=$l true; SLURMD_DEBUG=$l srun -e err-$l.txt -o out-$l.txt true
                srun --slurmd-debug=$l -e err-%t.txt true; srun --slurmd-debug=$l no-such-command
            done; cat *.txt",
        )
        .run();
    let shown = format!("{}{}", output.out(), output.err());
    assert!(
        shown.contains("srun: debug3: ")
            && (shown.contains("slurmstepd-") || shown.contains("--slurmd-debug is allowed only")),
        "{output}"
    );
    let own = world.cluster.launcher.to_str().unwrap();
    for word in [
        own,
        "AGENT_SANDBOX_",
        "/dev/fd/",
        ".local/state",
        "\u{1e}",
        "no-job-",
    ] {
        assert!(!shown.contains(word), "{word}: {output}");
    }
    let said = ["agent-sandbox task", "4294901760", "hold"];
    for line in shown.lines().filter(|line| !line.contains(": error: ")) {
        assert!(!said.iter().any(|word| line.contains(word)), "{line}");
    }
}

#[test]
fn squeue_tells_what_it_was_asked_for() {
    let Some(world) = World::new() else { return };
    same(
        &world,
        r#"a=$(sbatch --parsable -H -J held --wrap true)
        squeue -v -j $a 2> /dev/null | plain; squeue -vv -h -j $a -o '%j' -u $USER 2> /dev/null | plain
        squeue -v -j $a -l 2> /dev/null | plain; squeue -v -j $a -O name -a -r -p debug -n held -t PD -S i 2> /dev/null | plain
        SQUEUE_FORMAT='%T' squeue -v -j $a 2> /dev/null | plain; squeue -v -s -j $a 2> /dev/null | plain
        squeue -v -h -j 99999999; echo $?
        timeout 9 stdbuf -oL squeue -i 1 -j $a -o %j | plain | head -n 5; timeout 9 stdbuf -oL squeue -h --iterate=1 -j $a -o %j | head -n 3
        timeout 9 stdbuf -oL squeue -l --iterate=1 -j $a | plain | head -n 5; squeue -i 0 2>&1 | grep .; squeue -i x 2>&1 | grep ."#,
    );
}

/// At the policy's pace, which the first twenty queries of a session are free of.
#[test]
fn squeue_goes_on_no_faster_than_the_policy_lets_it() {
    let Some(world) = World::new() else { return };
    let begun = Instant::now();
    let output = world
        .inside("for i in $(seq 20); do squeue -h -j 99999$i 2> /dev/null; done; timeout 9 squeue -i 1 -h --me -o again; date +%s")
        .set("slurm.limits.queries_per_minute=20")
        .run();
    let listed = begun.elapsed();
    let lines = output.out().lines().filter(|line| line.is_empty()).count();
    assert!(lines >= 1, "{output}");
    // Every three seconds, and at once when it begins and the other side of it is asked, too.
    let most = usize::try_from(listed.as_secs() / 3).unwrap() + 2;
    assert!(
        lines <= most && lines < 8,
        "{lines} in {listed:?}: {output}"
    );
    assert!(listed > Duration::from_secs(8), "{output}");
}

#[test]
fn jobs_that_are_not_there_are_cancelled_as_outside() {
    let Some(world) = World::new() else { return };
    same(
        &world,
        r#"t() { echo "--- $*"; "$@"; echo "rc=$?"; }
        t scancel 99999999; t scancel 99999999_3; t scancel 99999999.2; t scancel -Q 99999999; t scancel -f 99999999
        t scancel -v 99999999; t scancel -v 99999999 -s USR1; t scancel -s USR1 99999999; t scancel -b 99999999
        t scancel abc; t scancel; t scancel -i; t scancel '1;2'
        t scancel -n nosuch; t scancel -v -n nosuch; t scancel -v -n nosuch -A acct -p debug --wckey=w -q normal -R res
        t scancel -t PD -n nosuch; t scancel -u nobodyx; t scancel -p nopart; t scancel -t NOSTATE; t scancel -vvv -n nosuch
        a=$(sbatch --parsable -H -J first --wrap true); n=second-$$; b=$(sbatch --parsable -H -J $n --wrap true)
        t scancel -v -n nosuch; t scancel -v -t RUNNING -n $n 2>&1 | sed s/second-[0-9]*/second/
        t scancel -v $a 99999999 99999998_4 -n first; t scancel $a; t scancel -v $a; t scancel -v $b 99999999 2>&1 | sort; t scancel -v -n $n 2>&1 | sed s/second-[0-9]*/second/"#,
    );
}

#[test]
fn scancel_asks_before_it_cancels() {
    let Some(world) = World::new() else { return };
    same(
        &world,
        r#"t() { echo "--- $*"; "$@"; echo "rc=$?"; }
        n=two-$$; a=$(sbatch --parsable -H -J one --wrap true); b=$(sbatch --parsable -H -J $n --wrap true)
        show() { squeue -h -j $a,$b -t all -o '%t' | sort; }
        named() { sed -E 's/two-[0-9]+/two/g'; }
        # Later ones ask for all jobs, and for ever where nobody answers.
        yes n | t scancel -i $a | named; show; yes | t scancel -i $a | named; show
        yes n | t scancel --interactive -n $n | named; yes | SCANCEL_INTERACTIVE=true t scancel -v -n $n | named; show
        yes | t scancel -i 99999999; yes | t scancel -vi -n nosuch
        case $(scancel --version) in *' 22.'*) t scancel -i $b < /dev/null ;; esac"#,
    );
}

#[test]
fn a_job_of_another_project_is_not_asked_about() {
    let (Some(world), Some(other)) = (World::new(), World::new()) else {
        return;
    };
    let place = other.place(Side::Outside);
    let words = [
        "sbatch",
        "--parsable",
        "-H",
        "-D",
        place.to_str().unwrap(),
        "-J",
        "foreign",
        "--wrap",
        "true",
    ];
    let id = other.real(&words).good().word();
    let output = world
        .inside(&format!("yes | scancel -i {id}; yes | scancel -i -n foreign; yes | scancel -i -u $USER; yes | scancel -i 99999999 {id}"))
        .run();
    assert!(!output.out().contains("Cancel"), "{output}");
    assert!(
        output.err().contains("is not one of this project's jobs"),
        "{output}"
    );
    let state = other.real(&["squeue", "-h", "-j", &id, "-o", "%T"]).word();
    assert_eq!(state, "PENDING", "{output}");
    other.real(&["scancel", &id]).good();
}

#[test]
fn streams_of_single_tasks_are_srun_s() {
    let Some(world) = World::new() else { return };
    same(
        &world,
        r#"t() { "$@" 2>&1 | sort; echo "rc=${PIPESTATUS[0]}"; }
        echo in | t srun -n3 -l --input=1 cat; echo in | t srun -n2 -l --input=5 cat
        t srun -n2 -l --output=1 sh -c 'echo $SLURM_PROCID; echo e$SLURM_PROCID >&2'
        t srun -n2 -l --error=1 sh -c 'echo $SLURM_PROCID; echo e$SLURM_PROCID >&2'
        t srun -n2 -l --output=0 --error=none sh -c 'echo $SLURM_PROCID; echo e$SLURM_PROCID >&2'
        t srun -n1 --output=7 echo x; SLURM_STDOUTMODE=1 t srun -n2 -l sh -c 'echo $SLURM_PROCID'
        echo in | SLURM_STDINMODE=0 t srun -n2 -l cat; SLURM_STDERRMODE=none t srun -n2 -l sh -c 'echo $SLURM_PROCID >&2'
        t srun --slurmd-debug=2 true 2>&1 | plain; SLURMD_DEBUG=2 t srun true 2>&1 | plain
        srun --slurmd-debug=9 true 2>&1 | grep -oE "Using srun's max.*|starting 1 tasks" | sort"#,
    );
}

/// The nodes are taken by a job of the test's own, whose first node both sides ask for.
#[test]
fn who_does_not_wait_is_told_so() {
    let Some(world) = World::new() else { return };
    let node = &world.cluster.nodes[0];
    let script = r#"t() { "$@" 2>&1 | grep -v revoked; echo "rc=${PIPESTATUS[0]}"; }
        t srun -w NODE --exclusive --immediate=1 true; t srun -w NODE -I --exclusive true
        t salloc -w NODE --exclusive --immediate=1 true; t salloc -w NODE --exclusive -I true
        SLURM_EXIT_IMMEDIATE=77 t srun -w NODE --exclusive --immediate=1 true
        SALLOC_IMMEDIATE=1 SLURM_EXIT_IMMEDIATE=78 t salloc -w NODE --exclusive true
        SALLOC_TIMELIMIT=3 salloc -Q sh -c 'squeue -h -j $SLURM_JOB_ID -o %l'"#;
    let held = world
        .real(&[
            "sbatch",
            "--parsable",
            "-w",
            node,
            "-o",
            "/dev/null",
            "-D",
            "/tmp",
            "--wrap",
            "sleep 120",
        ])
        .good()
        .word();
    crate::world::until("the job that takes the node", || {
        world
            .real(&["squeue", "-h", "-j", &held, "-o", "%T"])
            .word()
            == "RUNNING"
    });
    same(&world, &script.replace("NODE", node));
    world.real(&["scancel", &held]).good();
}

/// How it ends after the second interrupt is the kill that follows it, which the step may hear first.
#[test]
fn an_interrupt_asks_and_a_second_one_ends_srun() {
    let Some(world) = World::new() else { return };
    same(
        &world,
        r#"t() { local times=$1; shift; touch begun.txt; "$@" & until grep -q begun begun.txt; do sleep 0.1; done; sleep 0.5
            for i in $(seq $times); do kill -INT %%; sleep 0.3; done; wait %1; code=$?; rm begun.txt; }
        both() { set -m
            t 1 srun -n2 sh -c 'echo begun > begun.txt; exec sleep 3'; echo $code
            t 2 srun -n2 sh -c 'echo begun > begun.txt; exec sleep 60'; [ $code -gt 125 ] && echo killed
            t 1 srun -X sh -c 'echo begun > begun.txt; exec sleep 60'; [ $code -gt 125 ] && echo interrupted
            t 1 srun -v sh -c 'echo begun > begun.txt; exec sleep 3'; echo $code; }
        both 2>&1 | grep -vE '^\[1\]|environment: line|CANCELLED AT'"#,
    );
}

#[test]
fn steps_get_what_the_job_was_given() {
    let Some(world) = World::new() else { return };
    world.write(
        "e.sh",
        "#!/bin/bash\nshow() { grep -E '^(A|B|C|SLURM_EXPORT_ENV|SLURM_GET_USER_ENV|SLURM_OPEN_MODE)=' | sort; }\n\
         env | show\necho -- step; srun /usr/bin/env | show\nexport A=9\necho -- again; srun /usr/bin/env | show\n\
         echo -- all; srun --export=ALL /usr/bin/env | show; true\n",
    );
    same(
        &world,
        r#"export A=1 C=3
        for list in NONE ALL A A,B=2 ALL,B=2 NIL; do sbatch -Q -o "e-$list.txt" --export=$list e.sh; done
        sbatch -Q -o e.txt e.sh; SBATCH_EXPORT=C sbatch -Q -o e-variable.txt e.sh
        SLURM_EXPORT_ENV=A sbatch -Q -o e-set.txt --export=C e.sh; sbatch -Q --open-mode=append -o e-mode.txt e.sh
        SLURM_EXPORT_ENV=A srun /usr/bin/env | grep -E '^(A|B|C)=' | sort; SRUN_EXPORT_ENV=C SLURM_EXPORT_ENV=A srun /usr/bin/env | grep -E '^(A|B|C)=' | sort
        srun -v /usr/bin/env 2> /dev/null | grep -E '^(SRUN|SLURM)_DEBUG'"#,
    );
}

#[test]
fn lines_of_other_systems_are_translated() {
    let Some(world) = World::new() else { return };
    let body = "scontrol show job $SLURM_JOB_ID | grep -oE '(JobName|NumTasks|TimeLimit|Partition|MinMemoryCPU)=[^ ]*'\numask; touch made-$1\n";
    for (name, lines) in [
        (
            "pbs",
            "#PBS -N fromPBS\n#PBS -l nodes=1:ppn=2,walltime=3:00 -q long\n#PBS -o pbs.txt -j oe -W umask=027\n",
        ),
        (
            "bsub",
            "#BSUB -J fromLSF -o bsub.txt -n 1,2 -W 4 -M 51200\ntrue\n#BSUB -q long\n",
        ),
        (
            "both",
            "#PBS -N fromPBS\n#BSUB -J fromLSF\n#SBATCH -J ours -o both.txt\n",
        ),
        (
            "long",
            "#BSUB --job_name named --output_file long.txt --time=6\n",
        ),
    ] {
        world.clear();
        world.write("s.sh", format!("#!/bin/bash\n{lines}{body}"));
        same(
            &world,
            &format!(
                "sbatch s.sh {name}; sbatch -vvv -H s.sh 2>&1 | last; sbatch --ignore-pbs -o i.txt s.sh i; SBATCH_IGNORE_PBS=1 sbatch -J line -o v.txt s.sh v"
            ),
        );
    }
    for lines in [
        "#PBS -Z\n",
        "#PBS -N a b\n",
        "#BSUB -n 4,\n",
        "#BSUB -W nonsense\n",
        "#PBS -m\n",
        "#PBS -W umask=9999\n",
    ] {
        world.write("bad.sh", format!("#!/bin/bash\n{lines}true\n"));
        let inside = world.inside("sbatch bad.sh").run();
        let outside = world.outside("sbatch bad.sh").run();
        assert!(
            inside.code != 0 && outside.code != 0,
            "{lines}: {inside}\n{outside}"
        );
    }
}

#[test]
fn options_and_their_variables_are_those_of_this_slurm() {
    let Some(world) = World::new() else { return };
    // New in 23.02, 24.05 and 26.05: each Slurm says itself what it has not.
    world.same(
        r#"first() { "$@" 2>&1 | sed -n "1{s/error: //; s/=.*//; s/'//g; p}"; }
        for option in --segment=1 --tres-per-task=cpu=1 --mem-update=1 --no-such-option; do
            first sbatch -H $option --wrap true
        done
        export SBATCH_SEGMENT_SIZE=x SBATCH_TRES_PER_TASK=cpu=1
        first sbatch -H --wrap true; unset ${!SBATCH_*}
        first sbatch -H --tres-per=cpu=1 --wrap true; first sbatch -H --pref=x -C x --wrap true
        # Until 22.05 it is short for --extra-node-info.
        first sbatch -H --extra=9:9:9 --wrap true"#,
    );
}
