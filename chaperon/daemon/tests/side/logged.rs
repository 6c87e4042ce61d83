//! What the chaperon logs, and the audit record beside it.

use agent_sandbox_wire::message::End;

use crate::side::{Chaperon, CommandLine, World};

/// A batch job, and a request that is refused.
fn asks(chaperon: &Chaperon, world: &World) {
    world.file("job.sh", "#!/bin/sh\n");
    let words = ["--comment=SECRET", "./job.sh", "SECRET"];
    let said = chaperon.ask(CommandLine::new("sbatch", &words).variables(&["TOKEN=SECRET"]));
    assert_eq!(said.end, End::SUCCESS);
    let said = chaperon.ask(CommandLine::new("sbatch", &["--uid=0", "./job.sh"]));
    assert_ne!(said.end, End::SUCCESS);
}

#[test]
fn each_request_is_logged_with_its_stages_and_recorded() {
    let world = World::new();
    let chaperon = Chaperon::logging(&world, Some("slurm=debug"), |_| {});
    asks(&chaperon, &world);
    chaperon.end();
    let log = world.log();
    for part in [
        "request{command=\"sbatch\"",
        "submission read options=",
        "submission judged",
        "submission recorded",
        "command started name=sbatch",
        "command ended",
        "Slurm has the job job=42",
        "answered verdict=Allowed",
        "answered verdict=Refused reason=option --uid",
        "took=",
    ] {
        assert!(log.contains(part), "no `{part}`: {log}");
    }
    assert!(!log.contains("SECRET"), "{log}");
    // Another target is not logged.
    assert!(!log.contains(" chaperon: "), "{log}");
    assert_eq!(world.audit().len(), 2);
}

#[test]
fn nothing_is_logged_unasked_and_all_is_recorded() {
    for filter in [None, Some("off"), Some("audit=off,off")] {
        let world = World::new();
        let chaperon = Chaperon::logging(&world, filter, |_| {});
        asks(&chaperon, &world);
        chaperon.end();
        assert_eq!(world.log(), "", "{filter:?}");
        let audit = world.audit();
        assert_eq!(audit.len(), 2, "{filter:?}: {audit:?}");
        assert!(audit[0].starts_with("{\"session\":\"s0000001\",\"host\":"));
        assert!(audit[0].ends_with("\"verdict\":\"allowed\",\"reason\":null,\"jobs\":[42]}"));
        assert!(audit[1].contains("\"verdict\":\"refused\",\"reason\":\"option --uid\""));
    }
}

#[test]
fn a_record_that_cannot_be_written_is_said_whatever_is_logged() {
    let world = World::new();
    world.without_audit();
    let chaperon = Chaperon::logging(&world, Some("off"), |_| {});
    asks(&chaperon, &world);
    chaperon.end();
    let said = world.log();
    assert_eq!(
        said.matches("cannot write the audit record").count(),
        2,
        "{said}"
    );
}

/// The complaint of what cannot be recorded cannot be written either.
#[test]
fn full_disks_end_no_chaperon() {
    let world = World::new();
    world.without_audit();
    world.without_log();
    let chaperon = Chaperon::logging(&world, Some("trace"), |_| {});
    asks(&chaperon, &world);
    asks(&chaperon, &world);
    chaperon.end();
}
