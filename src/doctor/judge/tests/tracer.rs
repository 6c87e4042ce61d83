//! The node's tracer, as doctor judges it.

use agent_sandbox_events::protocol::Status as Says;

use super::super::super::facts::{Answer, Tracer};
use super::*;
use crate::policy::TraceMode;

fn node(mode: TraceMode, layer: bool, answer: Answer) -> Facts {
    let mut facts = whole();
    facts.tracer = Some(Tracer {
        mode,
        rule: "trace.mode (F:1)".into(),
        layer: layer.then(|| "trace.enforce (F:2)".into()),
        socket: "/run/agent-sandbox/tracer.sock".into(),
        answer,
    });
    facts
}

fn answers(object: &str, enforces: bool) -> Answer {
    let status = Says {
        version: "0.1.0".into(),
        kernel: "6.12.0".into(),
        object: object.into(),
        enforces,
        records: "/var/lib/agent-sandbox/trails".into(),
        ..Says::default()
    };
    Answer::Answers {
        status: Box::new(status),
        uid: Some(0),
    }
}

#[test]
fn a_tracer_that_nobody_demands_is_in_nobodys_way() {
    for (answer, status, found, fix) in [
        (Answer::Nothing, Status::Ok, "none runs on this node", ""),
        (
            Answer::Unwanted,
            Status::Ok,
            "not traced: trace.mode (F:1)",
            "",
        ),
        (
            Answer::Unfit(trouble(
                "its socket cannot be trusted",
                &["ask your administrators: x"],
            )),
            Status::Degraded,
            "cannot be trusted",
            "administrators",
        ),
        (
            answers("trampolines", true),
            Status::Ok,
            "root's, at /run/agent-sandbox/tracer.sock",
            "",
        ),
        (
            answers("tracepoints", false),
            Status::Degraded,
            "tracepoints on Linux 6.12.0",
            "weaker",
        ),
    ] {
        expect(
            &node(TraceMode::On, false, answer),
            "tracer",
            status,
            found,
            fix,
        );
    }
    let weak = node(TraceMode::On, true, answers("tracepoints", false));
    expect(
        &weak,
        "tracer-layer",
        Status::Degraded,
        "trace.enforce (F:2)",
        "CONFIG_BPF_LSM",
    );
}

#[test]
fn one_that_is_demanded_and_cannot_be_had_is_in_the_way_of_every_session() {
    let none = node(TraceMode::Required, false, Answer::Nothing);
    expect(
        &none,
        "tracer",
        Status::Broken,
        "trace.mode (F:1) demands one",
        "systemctl",
    );
    let mut old = none;
    old.kernel.no_tracer = Some("the tracer needs Linux 5.13");
    let found =
        "none can run on this node (the tracer needs Linux 5.13), and trace.mode (F:1) demands one";
    expect(&old, "tracer", Status::Broken, found, "Linux 5.13 or newer");
    let unasked = Facts {
        kernel: old.kernel,
        ..node(TraceMode::On, false, Answer::Nothing)
    };
    expect(
        &unasked,
        "tracer",
        Status::Ok,
        "Linux 5.13): sessions are not",
        "",
    );
    let weak = node(TraceMode::Required, true, answers("tracepoints", false));
    expect(
        &weak,
        "tracer-layer",
        Status::Broken,
        "cannot be had here",
        "lsm=",
    );
    let whole = node(TraceMode::Required, true, answers("trampolines", true));
    expect(&whole, "tracer-layer", Status::Ok, "which was tried", "");
}

#[test]
fn what_is_lost_and_what_goes_wrong_is_said() {
    let mut answer = answers("trampolines", true);
    if let Answer::Answers { status, .. } = &mut answer {
        status.lost = 3;
        status.events = 97;
        status.trouble = vec!["the disk is full".into()];
        status.blind = vec!["names of sockets".into(), "threads".into()];
    }
    let facts = node(TraceMode::On, false, answer);
    let found = "the disk is full; 3 of 100 events";
    expect(
        &facts,
        "tracer-losses",
        Status::Degraded,
        found,
        "tracer.toml",
    );
    expect(
        &facts,
        "tracer-blind",
        Status::Ok,
        "names of sockets; threads",
        "",
    );
}
