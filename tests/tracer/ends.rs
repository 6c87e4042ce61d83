//! Without a tracer, and with one that ends and comes back while somebody works.

use agent_sandbox_events::record::What;
use nix::sys::signal::Signal;

use crate::jobs::number;
use crate::service::Service;
use crate::site::{Site, WITH_FORKS};
use crate::world::Side;

#[test]
fn required_without_a_tracer_refuses() {
    let Some(mut site) = Site::new("") else {
        return;
    };
    site.service.end(Signal::SIGKILL);
    let world = site.alice();
    // With a tracer that is optional a session starts without one.
    world.inside("true").set("trace.mode=on").run().good();
    let refused = world
        .inside("echo started")
        .set("trace.mode=required")
        .run();
    assert!(
        refused.code != 0 && !refused.out().contains("started"),
        "{refused}"
    );
    assert!(refused.err().contains("tracer"), "{refused}");
    // What the site demands, a user's word does not take back.
    site.policy("mode = \"required\"");
    let refused = world.inside("echo started").set("trace.mode=on").run();
    assert!(
        refused.code != 0 && !refused.out().contains("started"),
        "{refused}"
    );
    // A node demands it of jobs, wherever they come from.
    site.login("mode = \"on\"");
    let output = world
        .inside("sbatch -W -o job.txt --wrap 'touch started.txt'; srun touch started.txt; true")
        .set("trace.mode=on")
        .run();
    world.settle(Side::Inside);
    assert!(!world.project().join("started.txt").exists(), "{output}");
    let log = world.launcher(&[
        "log",
        &number(output.out().lines().next().unwrap_or_default()).to_string(),
    ]);
    assert!(log.out().contains("tracer"), "{log}\n{output}");
}

#[test]
fn a_tracer_that_is_killed_goes_on_where_it_was() {
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        let Some(mut site) = Site::new("") else {
            return;
        };
        let world = site.alice();
        for name in ["before.txt", "between.txt", "after.txt"] {
            world.write(name, "text\n");
        }
        world.write(
            "job.sh",
            "#!/bin/bash\nwait_for() { until [ -e $1 ]; do sleep 0.05; done; }\n\
             cat before.txt; touch up.1; wait_for go.1; cat between.txt; touch up.2; wait_for go.2; cat after.txt\n",
        );
        let output = world
            .inside("sbatch -o job.txt job.sh")
            .set(WITH_FORKS)
            .set("trace.mode=required")
            .run()
            .good();
        let job = number(&output.out());
        let there = |name: &str| {
            let path = world.project().join(name);
            crate::world::until(name, || path.exists());
        };
        there("up.1");
        // Written: what it holds for a second, to count what is the same, dies with it.
        site.once("trail of the job", |trail| {
            trail.of.job == Some(job) && trail.has_opened("before.txt")
        });
        let code = site.service.end(signal);
        assert_eq!(code, (signal == Signal::SIGTERM).then_some(0));
        // It works on, and what it does is kept in the kernel.
        crate::cluster::put(world.user, &world.project().join("go.1"), b"", 0o644);
        there("up.2");
        site.service.again();
        crate::cluster::put(world.user, &world.project().join("go.2"), b"", 0o644);
        world.settle(Side::Inside);
        let trail = site.ended("trail of the job", |trail| trail.of.job == Some(job));
        trail.whole();
        for name in ["before.txt", "between.txt", "after.txt"] {
            assert!(
                trail.has_opened(name),
                "{signal}: {name} is not in {}",
                trail.brief()
            );
        }
        let away = trail
            .records
            .iter()
            .filter(|record| matches!(record.what, What::Away(_)));
        assert_eq!(away.count(), 1, "{signal}: {}", trail.brief());
        // New sessions are traced, too.
        world
            .inside("cat after.txt")
            .set("trace.mode=required")
            .run()
            .good();
        site.ended("second session", |trail| {
            trail.of.job.is_none() && trail.has_opened("after.txt")
        });
    }
}

#[test]
fn a_second_tracer_is_refused_while_one_runs() {
    let Some(site) = Site::new("") else { return };
    let second = site.service.command("run").output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        !second.status.success() && !said.trim().is_empty(),
        "{second:?}"
    );
    // The first one has not noticed.
    let world = site.alice();
    world.inside("true").set("trace.mode=required").run().good();
    // Nor is what it has pinned taken away below it.
    let unpin = site.service.command("unpin").output().unwrap();
    assert!(!unpin.status.success(), "{unpin:?}");
    world.inside("true").set("trace.mode=required").run().good();
}

#[test]
fn check_says_what_can_be_seen_and_leaves_nothing() {
    let Some(site) = Site::with(|| Service::places("")) else {
        return;
    };
    let check = site.service.command("check").output().unwrap();
    let said = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(check.status.success(), "{check:?}");
    assert!(
        said.contains("tracepoints") || said.contains("trampolines"),
        "{said}"
    );
}
