//! What is asked of Slurm once for many, and what is asked each time.

#![allow(clippy::disallowed_methods)] // effects: a directory of the user's

use std::os::unix::fs::PermissionsExt;

use agent_sandbox_wire::message::End;
use agent_sandbox_wire::order::QueryCache;

use crate::side::{Chaperon, CommandLine, World};

#[test]
fn what_is_decided_by_is_asked_anew() {
    let world = World::new();
    world.does("squeue", "echo >>\"$seen.times\"\n");
    let own = std::path::PathBuf::from(world.inside()).with_file_name("own");
    std::fs::create_dir(&own).unwrap();
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o700)).unwrap();
    let directory = own.to_str().unwrap().as_bytes().to_vec();
    let chaperon = Chaperon::start(&world, |order| {
        order.query_cache = Some(QueryCache {
            directory,
            seconds: 60,
        });
    });
    let times = || {
        let text = std::fs::read_to_string(own.with_file_name("seen").join("squeue.times"));
        text.unwrap().lines().count()
    };
    // Shown: once is enough.
    for _ in 0..3 {
        let said = chaperon.ask(CommandLine::new("squeue", &["-h"]));
        assert_eq!(said.end, End::SUCCESS);
    }
    assert_eq!(times(), 1);
    // Whose job it is decides whether its script is shown.
    for count in 2..5 {
        let said = chaperon.ask(CommandLine::new("sacct", &["-B", "-j", "77"]));
        assert_eq!(said.end, End::FAILURE);
        assert_eq!(times(), count);
    }
    // That changes nothing, and a job does.
    chaperon.ask(CommandLine::new("squeue", &["-h"]));
    assert_eq!(times(), 4);
    chaperon.ask(CommandLine::new("sbatch", &["--wrap", "true"]));
    let before = times();
    chaperon.ask(CommandLine::new("squeue", &["-h"]));
    assert_eq!(times(), before + 1);
}
