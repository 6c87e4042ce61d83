//! A job on several nodes, each with a tracer of its own, and one directory of records for all.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::jobs::number;
use crate::service::Service;
use crate::site::Site;
use crate::world::Side;

#[test]
fn a_report_of_a_job_covers_its_nodes() {
    let records = tempfile::Builder::new()
        .prefix("agent-sandbox-trails.")
        .tempdir_in("/run")
        .unwrap();
    fs::set_permissions(records.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let login = || {
        let mut service = Service::places("").on_node("login", records.path());
        service.again();
        service
    };
    let Some(site) = Site::with(login) else {
        return;
    };
    let services: Vec<Service> = site
        .nodes()
        .iter()
        .enumerate()
        .map(|(number, name)| {
            let mut service = Service::places("").on_node(name, records.path());
            service.again();
            site.node(number, &service, "mode = \"required\"");
            service
        })
        .collect();
    let world = site.alice();
    for node in site.nodes() {
        world.write(&format!("of.{node}.txt"), "text\n");
    }
    let output = world
        .inside("sbatch -W -N2 -o job.txt --wrap 'srun -N2 -n2 sh -c \"cat of.\\$SLURMD_NODENAME.txt\"'")
        .set("trace.mode=required")
        .run()
        .good();
    world.settle(Side::Inside);
    let job = number(&output.out());
    let nodes: BTreeSet<&str> = site.nodes().iter().map(String::as_str).collect();
    for node in site.nodes() {
        let trail = site.ended(&format!("trail on {node}"), |trail| {
            trail.of.job == Some(job)
                && trail.of.step.as_deref() == Some("0")
                && trail.of.node == *node
        });
        trail.whole();
        for other in &nodes {
            let opened = trail.has_opened(&format!("of.{other}.txt"));
            assert_eq!(opened, other == node, "{}", trail.brief());
        }
    }
    // Asked where the user is, which is none of them.
    let word = job.to_string();
    let report = world.launcher(&["report", &word]).good().out();
    for node in &nodes {
        assert!(report.contains(&format!("of.{node}.txt")), "{report}");
    }
    // The session was on the login node.
    let session = site.ended("session", |trail| trail.of.job.is_none());
    assert_eq!(session.of.node, "login");
    drop(services);
}

/// On a node without a tracer the steps of a traced session run all the same, and the session's report says which.
#[test]
fn steps_on_a_node_without_a_tracer_are_in_the_report() {
    let Some(site) = Site::new("") else { return };
    let nobody = Service::places("");
    for number in 0..site.nodes().len() {
        site.node(number, &nobody, "mode = \"on\"");
    }
    let world = site.alice();
    let output = world
        .inside("sbatch -W -o job.txt --wrap 'srun true'")
        .run();
    world.settle(Side::Inside);
    let job = number(&output.good().out());
    let session = site.ended("session", |trail| trail.of.job.is_none());
    let session = session.of.session.clone().unwrap();
    let report = world.launcher(&["report", &session]).good().out();
    for step in ["batch", "0"] {
        let line = format!("  step {step} of job {job} ran untraced on ");
        assert_eq!(report.matches(&line).count(), 1, "{report}");
    }
}
