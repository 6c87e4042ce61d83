//! Sections that hold for some users, hosts and partitions.

use std::process::Command;

use crate::world::{Call, SITE, USER, World, own_group};

/// Names no group.
const NAMELESS: u32 = 64_998;
/// Has a name only by a line of the test's.
const STUDENTS: u32 = 64_999;

/// A file with this condition, under which jobs are limited.
fn under(condition: &str) -> String {
    format!("[slurm.limits]\njobs = 50\n\n[[when]]\n{condition}\n\n[when.slurm.limits]\njobs = 5\n")
}

/// A world in which it is enforced.
fn enforcing(condition: &str) -> World {
    let world = World::new();
    world.enforced(&under(condition));
    world
}

/// The limit that holds for this call, and the line of its source.
#[track_caller]
fn jobs(call: Call<'_>) -> (u64, u64) {
    let policy = call.run().json();
    let jobs = &policy["slurm"]["limits"]["jobs"];
    let source = jobs["source"].as_str().unwrap();
    let line = source
        .strip_prefix(SITE)
        .and_then(|rest| rest.rsplit_once(':'));
    let line = line.unwrap_or_else(|| panic!("{source}")).1;
    (jobs["value"].as_u64().unwrap(), line.parse().unwrap())
}

#[track_caller]
fn met(world: &World, change: impl Fn(Call<'_>) -> Call<'_>, expected: bool) {
    // The condition has one line; each source is the line of the value.
    let expected = if expected { (5, 8) } else { (50, 2) };
    assert_eq!(jobs(change(world.call(&["policy", "--json"]))), expected);
}

#[test]
fn by_user() {
    met(&enforcing(&format!("user = \"{USER}\"")), |call| call, true);
    met(&enforcing("user = \"agentsandbox-*\""), |call| call, true);
    met(&enforcing("user = [\"ada\", \"root\"]"), |call| call, false);
    // The name is the user database's, not the environment's.
    let world = enforcing("user = \"ada\"");
    met(
        &world,
        |call| call.variable("USER", "ada").variable("LOGNAME", "ada"),
        false,
    );
    let world = enforcing(&format!("user = \"{USER}\""));
    met(
        &world,
        |call| call.variable("USER", "ada").variable("LOGNAME", "ada"),
        true,
    );
}

#[test]
fn by_group() {
    let world = World::new();
    let own = own_group(&world);
    met(&enforcing(&format!("group = \"{own}\"")), |call| call, true);
    let world = enforcing("group = \"as-students\"");
    met(&world, |call| call, false);
    // The user database has the user in it, the process does not.
    let listed = format!("as-students:x:{STUDENTS}:{USER}");
    met(&world, |call| call.groups(&[]).group_line(&listed), true);
    // The process is in it, the user database says nothing of the user.
    let unlisted = format!("as-students:x:{STUDENTS}:");
    met(
        &world,
        |call| call.groups(&[STUDENTS]).group_line(&unlisted),
        true,
    );
    met(&world, |call| call.groups(&[]).group_line(&unlisted), false);
}

/// Where a group's name cannot be found, it may be the one that a condition names.
#[test]
fn a_group_without_a_name() {
    let world = enforcing("group = \"as-students\"");
    let nameless = |call: Call<'_>| call.groups(&[NAMELESS]).run();
    nameless(world.call(&["--", "true"])).refused(&[
        "whether this holds cannot be told: the user database has no name for your group 64998",
        &format!("--> {SITE}/enforced.toml:4:1"),
        "hint: ask your administrators",
    ]);
    // No condition asks for groups, or the answer does not depend on it.
    met(
        &enforcing(&format!("user = \"{USER}\"")),
        |call| call.groups(&[NAMELESS]),
        true,
    );
    let own = own_group(&world);
    met(
        &enforcing(&format!("group = \"{own}\"")),
        |call| call.groups(&[NAMELESS]),
        true,
    );
}

#[test]
fn by_host() {
    for (host, condition, expected) in [
        ("login3.cluster.example.org", "login*", true),
        ("login3.cluster.example.org", "login3", true),
        ("login3.cluster.example.org", "*.cluster.example.org", true),
        ("login3.cluster.example.org", "cluster", false),
        ("login3.cluster.example.org", "gpu*", false),
        ("gpu1", "gpu*", true),
        ("gpu1", "gpu1.*", false),
    ] {
        let world = enforcing(&format!("host = \"{condition}\""));
        // The name is the kernel's, not the environment's.
        met(
            &world,
            |call| call.host(host).variable("HOSTNAME", "gpu1"),
            expected,
        );
    }
    let node = Command::new("hostname").output().unwrap().stdout;
    let node = String::from_utf8(node).unwrap();
    let world = enforcing(&format!("host = \"{}\"", node.trim()));
    met(&world, |call| call, true);
}

#[test]
fn by_partition() {
    let name = "SLURM_JOB_PARTITION";
    let world = enforcing("partition = \"gpu*\"");
    met(&world, |call| call, false);
    met(&world, |call| call.variable(name, "gpu-long"), true);
    met(&world, |call| call.variable(name, "cpu"), false);
    met(&enforcing("partition = \"*\""), |call| call, false);
}

#[test]
fn every_condition_has_to_be_met_and_every_section_that_is_counts() {
    let world = World::new();
    let both = format!("user = \"{USER}\", host = \"gpu*\"");
    world.enforced(&format!(
        "when = [\n{{ {both}, slurm.limits.jobs = 7 }},\n\
         {{ host = \"gpu*\", slurm.limits.jobs = 3 }},\n\
         {{ host = \"*\", slurm.limits.jobs = 9 }},\n]\n"
    ));
    met_as(&world, "login1", (9, 4));
    // The narrowest of all, not the last.
    met_as(&world, "gpu1", (3, 3));
}

#[track_caller]
fn met_as(world: &World, host: &str, expected: (u64, u64)) {
    assert_eq!(jobs(world.call(&["policy", "--json"]).host(host)), expected);
}

#[test]
fn in_defaults_a_section_gives_way_as_the_file_does() {
    let world = World::new();
    world.defaults(&under("host = \"gpu*\""));
    met(&world, |call| call.host("login1"), false);
    met(&world, |call| call.host("gpu1"), true);
    world.user_config("[slurm.limits]\njobs = 70\n");
    let policy = world.call(&["policy", "--json"]).host("gpu1").run().json();
    assert_eq!(policy["slurm"]["limits"]["jobs"]["value"], 70);
    // What is enforced holds over both.
    world.enforced(&under("host = \"gpu*\""));
    met(&world, |call| call.host("gpu1"), true);
}

#[test]
fn conditions_are_the_sites_alone() {
    let world = World::new();
    world.user_config("[[when]]\nhost = \"*\"\n[when.jail]\nnested = true\n");
    world.run(&["--", "true"]).refused(&[
        "`[[when]]` has a meaning only in the site's files",
        "--> ~/.config/agent-sandbox/config.toml:1:1",
        "hint: write the sections without it",
    ]);
}
