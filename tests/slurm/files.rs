//! `--output`, `--error`, `--input`, `--open-mode`: opened inside the jail, named as Slurm names them.

use crate::world::World;

#[test]
fn patterns_are_resolved_as_slurm_resolves_them() {
    let Some(world) = World::new() else { return };
    for pattern in [
        "j-%j.txt",
        "x-%x-%u.txt",
        "n-%n-%t-%s.txt",
        "N-%N.txt",
        "J-%J.txt",
        "wide-%8j-%3n.txt",
        "percent-%%-%%j.txt",
        "a-%a.txt",
        "A-%A.txt",
        "unknown-%q-%.txt",
        "b-%b.txt",
        "back\\\\-%j",
    ] {
        world.clear();
        world.same(&format!(
            "sbatch -J name -o '{pattern}' --wrap 'echo text; echo error >&2'"
        ));
    }
    world.clear();
    world
        .same("sbatch -a 3,11 -J n -o 'array-%A-%a-%4a-%j.txt' --wrap 'echo $SLURM_ARRAY_TASK_ID'");
}

#[test]
fn output_and_error_go_where_they_are_sent() {
    let Some(world) = World::new() else { return };
    world.same(
        r#"both='echo out; echo err >&2'
        sbatch -o o.txt -e e.txt --wrap "$both"
        sbatch -e only-e.txt --wrap "$both"
        sbatch -o "$PWD/absolute.txt" --wrap "$both"
        sbatch -o /dev/null --wrap "$both"
        sbatch -o same.txt -e same.txt --wrap "$both"
        sbatch -o 'with space.txt' --wrap "$both"
        mkdir below; sbatch -o below/file.txt --wrap "$both"
        mkdir here; sbatch -D here -o relative.txt --wrap "$both""#,
    );
    world.clear();
    world.same(
        r#"echo old > a.txt; echo old > t.txt; echo old > d.txt
        sbatch --open-mode=append -o a.txt --wrap 'echo new'
        sbatch --open-mode=truncate -o t.txt --wrap 'echo new'
        sbatch -o d.txt --wrap 'echo new'"#,
    );
}

#[test]
fn standard_input_comes_from_the_file_that_is_named() {
    let Some(world) = World::new() else { return };
    world.same(
        r#"echo content > in.txt
        sbatch --input=in.txt -o out.txt --wrap 'cat'
        sbatch -i "$PWD/in.txt" -o abs.txt --wrap 'cat'
        sbatch -i /dev/null -o null.txt --wrap 'cat; echo end'
        sbatch -o none.txt --wrap 'cat; echo end'"#,
    );
}

#[test]
fn directories_of_output_files_are_made_as_slurm_makes_them() {
    let Some(world) = World::new() else { return };
    let script = r#"umask 027; run() {
            id=$(sbatch --parsable "$@" --wrap 'echo ran; echo err >&2')
            until sacct -X -n -j $id -o State | grep -qE 'FAILED|COMPLETED|CANCELLED'; do sleep 0.3; done
            sacct -X -n -P -j $id -o State
        }
        sbatch -Q -W -J name -o 'of-%j/%x.txt' --wrap true; ls of-*; rm -r of-*
        run -o later/x.txt; run -o "$PWD/none/%j/x.txt"; run -o o.txt -e also/below/e.txt
        srun -Q -o by-srun/x.txt echo step; srun -Q -n2 -o task/%t.txt echo task
        stat -c '%a %n' later none also/below by-srun task; cat */*.txt */*/*.txt"#;
    // Older ones fail outside; inside is as it is since.
    if world.cluster.release() >= (23, 2) {
        world.same(script);
    }
    let output = world.inside(script).run();
    let all = "name.txt\nCOMPLETED\nCOMPLETED\nCOMPLETED\n750 later\n750 none\n750 also/below\n750 by-srun\n750 task\n\
               step\nran\nerr\ntask\ntask\nerr\nran\nerr\n";
    assert!(output.out().starts_with(all), "{output}");
}

#[test]
fn a_file_that_cannot_be_opened_fails_the_job() {
    let Some(world) = World::new() else { return };
    world.write("file", "");
    // Whether there is a directory of the project's in time is nobody's to say before.
    let script = r#"for file in file/x.txt $PWD/file/%j/x.txt; do
            id=$(sbatch --parsable -o $file --wrap 'echo ran > ran.txt')
            until sacct -X -n -j $id -o State | grep -qE 'FAILED|COMPLETED|CANCELLED'; do sleep 0.3; done
            sacct -X -n -P -j $id -o State
        done; ls"#;
    world.same(script);
}

#[test]
fn what_slurm_shows_are_the_paths_that_were_asked_for() {
    let Some(world) = World::new() else { return };
    world.write("job.sh", "#!/bin/bash\ntrue\n");
    world.same(
        r#"mkdir below; show() {
            scontrol show job $1 | sed -E -e 's/[0-9]{4}-[0-9T:-]{14}/TIME/g' -e 's/Sid=.*/Sid=/' -e 's/Priority=[0-9]+/Priority=/'
        }
        show $(sbatch --parsable -H job.sh a b)
        show $(sbatch --parsable -H -o out-%j-%x.txt -e err.txt -i in.txt job.sh)
        show $(sbatch --parsable -H --comment 'two words' -D below --wrap hostname)
        show $(sbatch --parsable -H -a 1-4%2 -n 2 -c 1 --mem=20 -t 5 --mail-type=END < job.sh)"#,
    );
}

/// What the job's jail does not show or have could not be opened there, and nobody would be told.
#[test]
fn an_output_that_the_job_could_not_write_is_said_at_submission() {
    let Some(world) = World::new() else { return };
    let script = r#"mkdir ~/logs 2> /dev/null
        for path in ~/logs/x ~/x ~/none/x /usr/x "/usr/%j/x" ~/%j/x /nowhere/x /etc/x; do
            sbatch -o "$path" --wrap true && echo accepted $path
            sbatch -o o.txt -e "$path" --wrap true && echo accepted $path
        done
        cd /usr && sbatch -o x --wrap true"#;
    let output = world.inside(script).run();
    assert_eq!(output.out(), "", "{output}");
    let said = output.err();
    let errors = said
        .lines()
        .filter(|line| line.starts_with("sbatch: error: the job could not write --"));
    assert_eq!(errors.count(), 17, "{output}");
    assert!(said.contains("agent-sandbox explain"), "{output}");
    // What may be made until then is Slurm's to judge, and what both have is fine.
    let output = world
        .inside("sbatch -W -Q -o later/x --wrap true; sbatch -W -Q -o here-%j --wrap 'echo here'; cat here-*")
        .run();
    assert!(output.out().ends_with("here\n"), "{output}");
    assert!(!output.err().contains("could not write"), "{output}");
}
