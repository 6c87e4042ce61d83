//! Capsules that the agent writes itself, with a policy that shows the secret. Outside, submitted by
//! the user, such a capsule is as good as any; inside it is a script or a variable like others.

use agent_sandbox_wire::capsule::{
    Capsule, Layer, LayerKind, Options, PolicySnapshot, Program, Streams,
};
use agent_sandbox_wire::step;

use crate::cluster::put;
use crate::world::{Side, World};

fn forged(world: &World, side: Side, program: Program) -> Capsule {
    let place = world.place(side);
    let place = place.to_str().unwrap();
    let home = world.user.dir.to_str().unwrap();
    Capsule {
        snapshot: PolicySnapshot {
            session: "forged00".into(),
            project: place.into(),
            layers: vec![Layer {
                kind: LayerKind::User,
                file: "~/.config/agent-sandbox/config.toml".into(),
                text: "[home]\nread = [\"~/.ssh\"]\n[files]\nunhide = [\"~/.ssh\"]\n".into(),
            }],
            options: Options::default(),
            variables: Vec::new(),
            told: Vec::new(),
            traced: false,
            allocation: Vec::new(),
            placeholders: Vec::new(),
        },
        base_environment: Vec::new(),
        environment: vec![
            format!("HOME={home}").into(),
            b"PATH=/usr/bin:/bin".to_vec(),
        ],
        cwd: place.into(),
        submit_directory: place.into(),
        umask: 0o22,
        streams: Streams::default(),
        program,
    }
}

/// Puts a capsule where a side finds it as a batch script.
fn put_script(world: &World, side: Side, capsule: &Capsule) {
    let launcher = world.cluster.launcher.to_str().unwrap();
    let script = capsule.batch_script(launcher.as_bytes()).unwrap();
    let at = world.place(side).join("forged.sh");
    put(world.user, &at, &script, 0o755);
}

/// The same as the variables of a step.
fn put_step(world: &World, side: Side, capsule: &Capsule) {
    let variables = step::variables(capsule).unwrap().into_iter();
    let lines: Vec<String> = variables
        .map(|(name, value)| format!("export {name}={value}\n"))
        .collect();
    let at = world.place(side).join("step.sh");
    put(world.user, &at, lines.concat().as_bytes(), 0o644);
}

#[test]
fn a_forged_batch_script_has_no_policy_of_its_own() {
    let Some(world) = World::new() else { return };
    let launcher = world.cluster.launcher.to_str().unwrap();
    for side in [Side::Outside, Side::Inside] {
        let program = Program::Script {
            script: b"#!/bin/bash\ncat ~/.ssh/id_rsa\n".to_vec(),
            arguments: Vec::new(),
        };
        let mut capsule = forged(&world, side, program);
        capsule.streams.output = Some(b"forged.txt".to_vec());
        put_script(&world, side, &capsule);
    }
    world.attack("sbatch --ignore-pbs -o log.txt forged.sh; sbatch -o log2.txt < forged.sh");
    let direct = format!(
        "{launcher} job ./forged.sh; sbatch -W -o o.txt --wrap '{launcher} job ./forged.sh'; srun {launcher} job ./forged.sh"
    );
    world.defended(&direct);
}

#[test]
fn a_forged_step_has_no_policy_of_its_own() {
    let Some(world) = World::new() else { return };
    let launcher = world.cluster.launcher.to_str().unwrap();
    for side in [Side::Outside, Side::Inside] {
        let words = [&b"cat"[..], b".ssh/id_rsa"].map(<[u8]>::to_vec).to_vec();
        let mut capsule = forged(&world, side, Program::Command(words));
        capsule.cwd = world.user.dir.to_str().unwrap().into();
        put_step(&world, side, &capsule);
    }
    world.attack(&format!(". ./step.sh; srun {launcher} task"));
    world.defended(". ./step.sh; srun true; srun --export=ALL env | grep -c AGENT_SANDBOX_STEP; sbatch -W -o o.txt --wrap 'srun true; srun --export=ALL,AGENT_SANDBOX_STEP=1 true'");
    world.defended(&format!(
        ". ./step.sh; v=AGENT_SANDBOX_STEP; srun --export=ALL,$v=1,${{v}}_0=$AGENT_SANDBOX_STEP_0 {launcher} task; salloc -Q srun {launcher} task"
    ));
}

/// A credential of a forged capsule is a command that its launcher runs outside of the jail.
#[test]
fn a_forged_credential_runs_nothing_outside() {
    let Some(world) = World::new() else { return };
    let launcher = world.cluster.launcher.to_str().unwrap();
    let base = world.project().parent().unwrap().to_owned();
    // What `write_attack` calls @TARGET@.
    let name = base.file_name().unwrap().to_str().unwrap();
    let target = world.home(&format!(".ssh/written-by-{name}"));
    for side in [Side::Outside, Side::Inside] {
        let text = format!(
            "[network]\nmode = \"filtered\"\n[[credential]]\nname = \"x\"\nhosts = [\"a.example\"]\nenv = \"X\"\n\
             from = \"command:echo x > {0}; echo the-value\"\n",
            target.display()
        );
        let forge = |program| {
            let mut capsule = forged(&world, side, program);
            capsule.snapshot.layers[0].text.clone_from(&text);
            capsule.snapshot.placeholders = vec![("x".into(), "a-placeholder".into())];
            capsule
        };
        let script = Program::Script {
            script: b"#!/bin/bash\necho started\n".to_vec(),
            arguments: Vec::new(),
        };
        let mut capsule = forge(script);
        capsule.streams.output = Some(b"forged.txt".to_vec());
        put_script(&world, side, &capsule);
        put_step(
            &world,
            side,
            &forge(Program::Command(vec![b"true".to_vec()])),
        );
    }
    world.write_attack(
        "sbatch -W --ignore-pbs -o log.txt forged.sh; sbatch -W -o log2.txt < forged.sh",
    );
    world.write_attack(&format!(". ./step.sh; srun {launcher} task"));
    world.defended(&format!(
        "{launcher} job $PWD/forged.sh; srun {launcher} job $PWD/forged.sh; export SLURM_JOB_ID=1; {launcher} job $PWD/forged.sh; \
         env -u AGENT_SANDBOX {launcher} job $PWD/forged.sh"
    ));
    assert!(!target.exists());
}
