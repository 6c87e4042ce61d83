//! Batch scripts of every kind, and their directives.

use crate::world::World;

#[test]
fn any_interpreter_runs() {
    let Some(world) = World::new() else { return };
    world.write(
        "a.sh",
        "#!/bin/sh -e\n#SBATCH -o sh.txt\necho $-\nfalse\necho not here\n",
    );
    world.write(
        "a.awk",
        "#!/usr/bin/awk -f\n#SBATCH -o awk.txt\nBEGIN { print \"awk\", ARGV[1] }\n",
    );
    world.write(
        "a.pl",
        "#!/usr/bin/env perl\n#SBATCH --output=perl.txt\nprint \"perl $0 @ARGV\\n\"; exit 4;\n",
    );
    world.write("a.bin", "#!/nowhere/interpreter\n#SBATCH -o none.txt\n");
    world.same("sbatch a.sh; sbatch a.awk one; sbatch a.pl one 'two three'");
    if std::path::Path::new("/usr/bin/python3").exists() {
        world.write(
            "a.py",
            "#!/usr/bin/python3\n#SBATCH --output=python.txt\nimport sys\nprint(sys.argv)\nsys.exit(9)\n",
        );
        world.same("sbatch a.py one 'two three'");
    }
    world.inside("sbatch a.bin").run().good();
}

#[test]
fn scripts_that_are_none_are_refused_in_slurms_words() {
    let Some(world) = World::new() else { return };
    world.write("none.sh", "echo no interpreter\n");
    world.write("crlf.sh", "#!/bin/bash\r\necho crlf\r\n");
    world.write("null.sh", b"#!/bin/bash\necho nul\0byte\n");
    world.write("empty.sh", "");
    world.write("blank.sh", " \n\n  \n");
    world.write("binary", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    for script in [
        "none.sh", "crlf.sh", "null.sh", "empty.sh", "blank.sh", "binary",
    ] {
        world.same(&format!(
            "sbatch {script}; echo $?; sbatch < {script}; echo $?"
        ));
    }
    world.same("sbatch --wrap ''; echo $?");
}

/// A backslash holds a word together over a blank; in older releases `b` of `a\ b` is a word that is no option.
fn escapes_blanks(world: &World) -> bool {
    world.cluster.release() >= (24, 5)
}

#[test]
fn directives_are_read_as_slurm_reads_them() {
    let Some(world) = World::new() else { return };
    let head = "#!/bin/bash\n";
    let body = "echo \"$SLURM_JOB_NAME $SLURM_NTASKS $SLURM_CPUS_PER_TASK $SLURM_MEM_PER_NODE\"\n\
                scontrol show job $SLURM_JOB_ID -o | grep -oE '(Comment|StdOut|Command)=[^ ]*' | cut -d= -f1\n";
    for (name, directives) in [
        ("several", "#SBATCH -J several --ntasks=2 -o several.txt\n"),
        (
            "quotes",
            "#SBATCH --job-name='two words' --output=\"quotes.txt\" # a comment\n",
        ),
        (
            "late",
            "#SBATCH -o late.txt\n\n# text\n#SBATCH -J late\ntrue\n#SBATCH -J never\n",
        ),
        ("spaced", "#SBATCH   --ntasks 2    -o   spaced.txt\n"),
        ("short", "#SBATCH -n2 -c1 -oshort.txt -Jshort\n"),
        (
            "equals",
            "#SBATCH --ntasks=1 --mem=50M --output=equals.txt\n",
        ),
        ("no-space", "#SBATCH-J wrong\n#SBATCH -o no-space.txt\n"),
        (
            "indented",
            "#SBATCH -o indented.txt\n  #SBATCH -J indented\n",
        ),
        (
            "commented",
            "##SBATCH -J wrong\n# SBATCH -J wrong\n#SBATCH -o commented.txt\n",
        ),
        (
            "abbreviated",
            "#SBATCH --outp=abbreviated.txt --job-n=short --ntasks=1\n",
        ),
        ("tabs", "#SBATCH\t-J\ttabs\t-o tabs.txt\n"),
        ("hash", "#SBATCH -J a#b -o hash.txt\n"),
        ("escaped", "#SBATCH -o escaped.txt -J a\\ b\n"),
    ] {
        if name == "escaped" && !escapes_blanks(&world) {
            continue;
        }
        world.clear();
        world.write(name, format!("{head}{directives}{body}"));
        world.same(&format!("sbatch {name}; echo $?"));
    }
}

#[test]
fn the_command_line_wins_over_variables_and_these_over_directives() {
    let Some(world) = World::new() else { return };
    world.write(
        "j.sh",
        "#!/bin/bash\n#SBATCH -J script -o script.txt\necho $SLURM_JOB_NAME\n",
    );
    world.same(
        r#"sbatch j.sh
        SBATCH_JOB_NAME=variable SBATCH_OUTPUT=variable.txt sbatch j.sh
        SBATCH_JOB_NAME=variable SBATCH_OUTPUT=wrong.txt sbatch -J line -o line.txt j.sh
        SBATCH_PARTITION=long SBATCH_HINT=nomultithread SBATCH_OUTPUT=p.txt sbatch j.sh
        SBATCH_ARRAY_INX=1-2 SBATCH_OUTPUT='%a.txt' sbatch j.sh"#,
    );
}

#[test]
fn wrong_directives_are_refused_in_slurms_words() {
    let Some(world) = World::new() else { return };
    for (name, directive) in [
        ("unknown", "--no-such-option"),
        ("value", "--time=soon"),
        ("missing", "--output"),
        ("ambiguous", "--no"),
        ("letter", "-_"),
        ("escaped", "-J a\\ b"),
    ] {
        if name == "escaped" && escapes_blanks(&world) {
            continue;
        }
        world.write(name, format!("#!/bin/bash\n#SBATCH {directive}\ntrue\n"));
        let output = world.inside(&format!("sbatch {name}")).run();
        let outside = world.outside(&format!("sbatch {name}")).run();
        assert!(
            output.code != 0 && outside.code != 0,
            "{name}: {output}\n{outside}"
        );
        assert!(output.err().starts_with("sbatch: "), "{output}");
    }
}

#[test]
fn slurm_shows_the_users_script() {
    let Some(world) = World::new() else { return };
    world.write(
        "shown.sh",
        "#!/bin/bash\n#SBATCH -o shown.txt\necho 'the user'\"'s\" script\n",
    );
    world.same(
        r#"id=$(sbatch --parsable -H shown.sh)
        scontrol write batch_script $id -
        scontrol write batch_script $id; cat slurm-$id.sh; scontrol write batch_script $id named.sh; cat named.sh
        scontrol release $id
        until sacct -X -n -j $id -o State | grep -q COMPLETED; do sleep 0.3; done
        sacct -B -j $id"#,
    );
}
