//! Marks of jobs: who gets one, of what, and who does not.

use std::path::PathBuf;

use agent_sandbox_events::client::{Connection, Unanswered};
use agent_sandbox_events::mark::{DIGEST, Mark, hex};
use agent_sandbox_events::protocol::{Request, Response, VERSION};
use agent_sandbox_tracer::service::mark_key::MarkKey;

use crate::world::{Victim, World, elsewhere, me, of, refused, told};

/// Nobody's uid.
const STRANGER: u32 = 54321;

const SCRIPT: [u8; DIGEST] = [7; DIGEST];

fn ask(connection: &Connection, session: &str, cluster: &str) -> Result<Response, Unanswered> {
    connection.ask(&Request::Mark {
        version: VERSION,
        session: session.to_owned(),
        cluster: cluster.to_owned(),
        script: SCRIPT,
    })
}

fn with_key() -> (World, String) {
    let mut public = String::new();
    let world = World::with(|config| {
        public = MarkKey::make(&config.mark_key).unwrap().public();
    });
    (world, public)
}

#[test]
fn a_session_that_is_traced_has_its_scripts_marked() {
    let (world, public) = with_key();
    let victim = Victim::new();
    let (_connection, _) = world.trace(&of(victim.pid()));
    let connection = world.connect();
    let Response::Marked(text) = ask(&connection, "k3v9x2m1", "alpha").unwrap() else {
        panic!("no mark");
    };
    let mark = Mark::parse(&text).unwrap();
    let claim = &mark.claim;
    assert_eq!((claim.uid, claim.node.as_str()), (me(), "node1"), "{text}");
    let named = (claim.session.as_str(), claim.cluster.as_str());
    assert_eq!(named, ("k3v9x2m1", "alpha"), "{text}");
    // It is of the key that is said in public.
    let path: PathBuf = world.config.mark_key.clone();
    let key = MarkKey::read(&path).unwrap().unwrap();
    assert_eq!(key.public(), public);
    let again = key.sign(claim.clone(), &SCRIPT);
    assert_eq!(hex(&again.signature), hex(&mark.signature));
}

#[test]
fn nothing_is_marked_without_a_trace_and_for_odd_names() {
    let (world, _) = with_key();
    let connection = world.connect();
    let why = refused(ask(&connection, "k3v9x2m1", "alpha"));
    assert!(why.contains("no session of yours"), "{why}");
    let victim = Victim::new();
    let (_connection, _) = world.trace(&of(victim.pid()));
    for (session, cluster) in [
        ("k3v9x2m2", "alpha"),
        ("k3v9x2m1", "al pha"),
        ("k3v9x2m1", "alpha\n# agent-sandbox mark"),
        ("k3v9x2m1", ""),
        ("", "alpha"),
        ("k3v9x2m1 uid=0", "alpha"),
    ] {
        let why = refused(ask(&connection, session, cluster));
        assert!(why.starts_with("no "), "{session} {cluster}: {why}");
    }
}

#[test]
fn nothing_is_marked_without_a_key() {
    let world = World::new();
    let victim = Victim::new();
    let (_connection, _) = world.trace(&of(victim.pid()));
    let why = refused(ask(&world.connect(), "k3v9x2m1", "alpha"));
    assert!(why.contains("agent-sandbox-tracer key"), "{why}");
}

#[test]
#[ignore = "runs as another user"]
fn asks_for_anothers_session() {
    let Some((connection, _)) = told() else {
        return;
    };
    let why = refused(ask(&connection, "k3v9x2m1", "alpha"));
    assert!(why.contains("no session of yours"), "{why}");
}

#[test]
fn nobody_has_a_script_marked_for_anothers_session() {
    let (world, _) = with_key();
    let victim = Victim::new();
    let (_connection, _) = world.trace(&of(victim.pid()));
    assert!(ask(&world.connect(), "k3v9x2m1", "alpha").is_ok());
    elsewhere(
        "marks::asks_for_anothers_session",
        &world,
        "",
        STRANGER,
        false,
    );
}
