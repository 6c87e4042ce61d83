//! When a script is marked.

use agent_sandbox_wire::message::End;

use crate::side::{Chaperon, CommandLine, World};

/// A mark is good for an hour, and an approval or a turn may take longer.
#[test]
fn a_script_is_marked_when_nothing_is_waited_for_any_more() {
    let world = World::new();
    let signer = world.signer();
    let path = signer.path();
    let chaperon = Chaperon::start(&world, |order| {
        order.signer = Some(path);
        order.limits.submissions_per_minute.most = 1;
    });
    let asked = CommandLine::new("sbatch", &["--wrap=x"]);
    let said = chaperon.ask(asked);
    assert_eq!(said.end, End::SUCCESS, "{:?}", said.error);
    assert!(signer.is_asked(), "there is one that signs");
    let waits = chaperon.leave(&CommandLine::new("sbatch", &["--wrap=y"]));
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(!signer.is_asked(), "it waits for its turn");
    drop(waits);
}
