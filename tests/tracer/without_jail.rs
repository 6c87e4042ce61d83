//! What no jail holds, traced by its user: a command, and a job by its number.

use agent_sandbox_events::record::What;

use crate::jobs::number;
use crate::site::Site;
use crate::world::Side;

/// `agent-sandbox trace --job`, of a job that no jail holds: its cgroup on this node.
#[test]
fn a_job_without_a_jail_can_be_traced_by_its_number() {
    let Some(site) = Site::new("") else { return };
    let world = site.alice();
    world.write("traced.txt", "text\n");
    let output = world
        .outside("sbatch -o job.txt --wrap 'touch up; until [ -e go ]; do sleep 0.05; done; cat traced.txt; sleep 1'")
        .run()
        .good();
    let job = number(&output.out()).to_string();
    let up = world.place(Side::Outside).join("up");
    crate::world::until("the job", || up.exists());
    let tracing = world
        .outside("")
        .words([
            world.cluster.launcher.to_str().unwrap(),
            "trace",
            "--job",
            &job,
        ])
        .start();
    let trail = site.once("trace of the job", |trail| trail.of.session.is_none());
    crate::cluster::put(
        world.user,
        &world.place(Side::Outside).join("go"),
        b"",
        0o644,
    );
    world.settle(Side::Outside);
    let own = trail.of.clone();
    crate::world::until("what it opened", || {
        site.trails()
            .iter()
            .any(|trail| trail.of == own && trail.has_opened("traced.txt"))
    });
    tracing.signal(nix::sys::signal::Signal::SIGINT);
    tracing.end();
    let trail = site.ended("trace of the job", move |trail| trail.of == own);
    let strangers = trail.records.iter().filter(|record| match &record.what {
        What::Exec(exec) => exec.path.ends_with("/agent-sandbox"),
        _ => false,
    });
    assert_eq!(strangers.count(), 0, "{}", trail.brief());
}

/// `agent-sandbox trace -- COMMAND`: what other tools of this kind do.
#[test]
fn a_command_without_a_jail_can_be_traced() {
    let Some(site) = Site::new("") else { return };
    let world = site.alice();
    world.write("traced.txt", "text\n");
    let launcher = world.cluster.launcher.to_str().unwrap().to_owned();
    let output = world
        .outside("")
        .words([
            &launcher,
            "trace",
            "--",
            "/bin/sh",
            "-c",
            "cat traced.txt; exit 3",
        ])
        .run();
    assert_eq!(output.code, 3, "{output}");
    assert!(
        output.out() == "text\n" && output.err().contains("traced.txt"),
        "{output}"
    );
    let trail = site.ended("trace", |trail| trail.of.session.is_none());
    trail.whole();
    assert!(trail.has_opened("traced.txt"), "{}", trail.brief());
}
