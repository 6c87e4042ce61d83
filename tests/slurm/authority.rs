//! Attacks on Slurm's own authority: munge or sackd, tokens, configuration.

use crate::world::{Side, World};

#[test]
fn what_gives_credentials_is_out_of_reach() {
    let Some(world) = World::new() else { return };
    let sockets = world.cluster.credentials();
    let list = sockets.join(" ");
    let connect = format!(
        "perl -MSocket -e 'socket(S, PF_UNIX, SOCK_STREAM, 0) or die; \
         for (@ARGV) {{ print connect(S, sockaddr_un($_)) ? \"reached\\n\" : \"no way\\n\" }}' {list}"
    );
    let outside = world.outside(&connect).run();
    assert!(outside.out().starts_with("reached\n"), "{outside}");
    let refused = "no way\n".repeat(sockets.len());
    assert_eq!(world.inside(&connect).run().out(), refused);
    if world.cluster.has_munge() {
        let call = format!("munge -S {list} -n | unmunge -S {list} && echo reached");
        assert!(!world.inside(&call).run().out().contains("reached"));
    }
    // Also in a job, and in a step of it.
    world.write(
        "look.sh",
        format!("#!/bin/bash\n#SBATCH -o look.txt\n{connect}\nsrun {connect}\n"),
    );
    world.inside("sbatch look.sh").run().good();
    world.settle(Side::Inside);
    let text = world.read("look.txt");
    assert_eq!(text.matches("no way").count(), 2 * sockets.len(), "{text}");
    assert!(!text.contains("reached"), "{text}");
}

#[test]
fn the_real_commands_do_not_work_inside() {
    let Some(world) = World::new() else { return };
    // Copies from before the session, under other names.
    let place = world.project();
    for (name, copy) in [
        ("squeue", "q"),
        ("srun", "r"),
        ("sbatch", "b"),
        ("scontrol", "c"),
    ] {
        let real = std::fs::read(format!("/usr/bin/{name}")).unwrap();
        crate::cluster::put(world.user, &place.join(copy), &real, 0o755);
        crate::cluster::put(
            world.user,
            &world.place(Side::Outside).join(copy),
            &real,
            0o755,
        );
    }
    let script = "timeout 20 ./q -h > out.txt 2>&1 && echo worked; \
                  timeout 20 ./r cat ~/.ssh/id_rsa; timeout 20 ./b -o o.txt --wrap 'cat ~/.ssh/id_rsa' && echo submitted";
    let outside = world.outside(script).run();
    assert!(outside.out().contains("worked"), "{outside}");
    let inside = world.defended(script);
    assert!(
        !inside.out().contains("worked") && !inside.out().contains("submitted"),
        "{inside}"
    );
}

#[test]
fn no_token_is_given_and_none_is_taken() {
    let Some(world) = World::new() else { return };
    let output = world
        .inside("scontrol token; scontrol token lifespan=60; scontrol tok")
        .run();
    assert!(!output.out().contains("SLURM_JWT"), "{output}");
    assert!(output.code != 0, "{output}");
    let outside = world.outside("scontrol token").run();
    let Some(token) = outside
        .out()
        .trim()
        .strip_prefix("SLURM_JWT=")
        .map(str::to_owned)
    else {
        crate::cluster::not_checked("the cluster gives no tokens");
        return;
    };
    // One that the user has in the environment does not come in, nor into jobs.
    let output = world
        .inside("env | grep -c JWT; sbatch -W -o e.txt --wrap env; grep -c JWT e.txt; srun env | grep -c JWT")
        .variable("SLURM_JWT", &token)
        .run();
    assert_eq!(
        output.out().lines().filter(|line| *line == "0").count(),
        3,
        "{output}"
    );
    // Nor does one that was found elsewhere change who asks.
    let output = world
        .inside(&format!(
            "SLURM_JWT={token} squeue -h -o %u; SLURM_JWT=nonsense sinfo -h -o %P"
        ))
        .run();
    assert!(output.out().contains("debug"), "{output}");
}

#[test]
fn another_configuration_is_not_read() {
    let Some(world) = World::new() else { return };
    let conf = world.cluster.conf.display();
    // Plug-ins are code that runs in the command that reads the configuration.
    world.write("plugins/placeholder", "");
    let make = format!(
        "sed 's,^PlugStackConfig.*,PlugStackConfig='$PWD'/plugstack.conf,' {conf} > slurm.conf; echo PluginDir=$PWD/plugins >> slurm.conf; "
    );
    let call = format!(
        "{make}SLURM_CONF=$PWD/slurm.conf squeue -h > /dev/null 2>&1 && echo used the real one || echo used the other one"
    );
    assert!(
        world
            .outside(&call)
            .run()
            .out()
            .contains("used the other one")
    );
    assert!(
        world
            .inside(&call)
            .run()
            .out()
            .contains("used the real one")
    );
    for variable in ["SLURM_CONF", "SLURM_CONF_SERVER"] {
        let call = format!(
            "{make}export {variable}=$PWD/slurm.conf; srun true && sbatch -W -o o.txt --wrap true && echo fine"
        );
        let output = world.inside(&call).run();
        assert!(output.out().contains("fine"), "{variable}: {output}");
    }
}

#[test]
fn secrets_of_the_configuration_are_not_shown() {
    let Some(world) = World::new() else { return };
    let directory = world.cluster.conf.parent().unwrap().display();
    let output = world
        .inside(&format!("cat {directory}/slurmdbd.conf /etc/slurm/slurmdbd.conf 2> /dev/null; ls /run/munge /var/run/munge /run/slurm* 2> /dev/null; echo; env | grep -E '^SLURM_(CONF|JWT)='"))
        .run();
    assert!(
        !output.out().contains("StoragePass") && !output.out().contains("socket"),
        "{output}"
    );
}

#[test]
fn what_administrators_do_is_refused() {
    let Some(world) = World::new() else { return };
    for call in [
        "scontrol reconfigure",
        "scontrol shutdown",
        "scontrol takeover",
        "scontrol update NodeName=@NODE@ State=DOWN Reason=x",
        "scontrol update PartitionName=debug State=DOWN",
        "scontrol create reservation Users=root StartTime=now Duration=1 Nodes=ALL",
        "scontrol delete reservation x",
        "scontrol setdebug 9",
        "scontrol reboot @NODE@",
        "scontrol cancel_reboot @NODE@",
        "scontrol abort",
        "scontrol !! ",
        "scontrol schedloglevel 1",
        "sacctmgr -i add account x",
        "sacctmgr -i delete user root",
        "sacctmgr -i modify user $USER set DefaultAccount=proj2",
        "sacctmgr dump sandbox file=x",
        "sacctmgr archive dump",
        "sdiag --reset",
        "sdiag -r",
        "scontrol notify 1 x",
        "scontrol bbstat",
        "scontrol fsdampeningfactor 1",
    ] {
        let call = call.replace("@NODE@", &world.cluster.nodes[0]);
        let output = world
            .inside(&format!("{call} < /dev/null || echo refused"))
            .run();
        assert!(output.out().contains("refused"), "{call}: {output}");
    }
    // scontrol and sacctmgr without a command read commands from standard input.
    let output = world.inside("echo token | scontrol; printf 'reconfigure\nquit\n' | scontrol; echo 'show account' | sacctmgr").run();
    assert!(!output.out().contains("SLURM_JWT"), "{output}");
}
