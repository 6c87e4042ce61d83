//! Values that try to become something else on the way: an option, a second command, a new line.

use crate::world::{Side, World};

#[test]
fn odd_values_stay_values() {
    let Some(world) = World::new() else { return };
    // As real sbatch takes them, byte for byte.
    for value in [
        "--uid=0",
        "-J x",
        "a;id",
        "$(id)",
        "`id`",
        "a b",
        "'quoted'",
        "\"double\"",
        "a,b",
        "a=b",
        "*",
        "%j%u",
        "a\\b",
        "#x",
        "-",
        "ä",
        "x --output=/tmp/x",
        "|cat",
        "&",
        "a:b",
        "~",
        "..",
        "{}",
    ] {
        let quoted = value.replace('\'', "'\\''");
        world.same(&format!(
            r#"v='{quoted}'; id=$(sbatch --parsable -H --job-name="$v" --comment="$v" --wrap true); echo $?
            squeue -h -j $id -o '%j|%k'; scancel $id
            id=$(sbatch --parsable -H -J "$v" --wrap true); squeue -h -j $id -o '%j'; scancel $id"#
        ));
    }
}

#[test]
fn control_characters_do_not_pass() {
    let Some(world) = World::new() else { return };
    let output = world.defended(
        r#"for v in $'a\nb' $'a\n--uid=0' $'a\tb' $'a\x1b[2J' $'a\x01b'; do
            id=$(sbatch --parsable -H -J "$v" --comment="$v" --wrap true) && { squeue -h -j $id -o '%i|%j|%k'; scontrol show job $id | grep -c UserId; }
        done; sbatch -H -o $'x\ny' --wrap true; printf '#!/bin/bash\n#SBATCH -H -J a\r\ntrue\n' | sbatch"#,
    );
    assert!(!output.out().contains("UserId=root"), "{output}");
    // Nothing ran as somebody else, and no option came out of a value.
    for states in world.jobs(Side::Inside).values() {
        assert!(states.iter().all(|state| state == "HELD"), "{states:?}");
    }
}

#[test]
fn arguments_of_jobs_are_never_options() {
    let Some(world) = World::new() else { return };
    world.write("arguments.sh", "#!/bin/bash\n#SBATCH -o arguments.txt\nprintf '<%s>' \"$@\"\nsrun -n1 printf '{%s}' \"$@\"\n");
    world.same(
        "sbatch arguments.sh --uid=0 -o /etc/x --wrap=x '' $'new\\nline' '$(id)' -- -n9 '\"'",
    );
    world.same("srun printf '<%s>' --uid=0 -o x '' '$(id)' -- $'a\\nb'");
    world.same("srun -n1 -- printf '<%s>' -n2; srun -n 1 printf %s --bcast");
}

#[test]
fn queries_take_no_other_meaning() {
    let Some(world) = World::new() else { return };
    world.defended("squeue -o '%i --json'; squeue -j '1 -u root'; squeue -j --user=root; squeue -n '-u root'; scancel -n --user=bob; sacct -j -a; sacct --name=-a; sacct -u 0 -j '1,-a'");
    world.defended("scontrol show job '1 -d'; scontrol show 'job 1'; scontrol show job $'1\ntoken'; scontrol $'show\njob'; scontrol 'update job=1 UserId=0'");
}
