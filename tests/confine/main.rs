//! Attacks on the jail, made from inside it. This executable is its own probe: a test makes a
//! throw-away home with planted secrets, starts `agent-sandbox … THIS_EXECUTABLE attack NAME`, and
//! judges what the attack reports, what came out, and what became of the host. Where it makes sense
//! the same attack also runs without a jail and must succeed there, so that a test that could never
//! fail is noticed. Each row of `docs/threats.md` names its test here.
//!
//! Run by `tests/run` as an ordinary user. What a machine cannot show is printed as
//! `not checked: WHAT: WHY`.

#![allow(unsafe_code)] // a test: attacks are system calls that no safe wrapper would make
#![allow(clippy::disallowed_methods)] // a test: files, processes, threads, the clock
#![allow(clippy::unwrap_used)] // a test: the attack's own set-up either works or fails the test

mod backend;
mod chosen;
mod containers;
mod credentials;
mod daily;
mod decoys;
mod descriptors;
mod devices;
mod environment;
mod explaining;
mod files;
mod forward;
mod git;
mod git_config;
mod group;
mod home;
mod ipc;
mod kept;
mod kernel;
mod lasting;
mod left;
mod limits;
mod links;
mod multiplexer;
mod nested;
mod network;
mod notify;
mod operations;
mod planted;
mod probe;
mod processes;
mod project;
mod python;
mod races;
mod rules;
mod shown;
mod site_proxy;
mod sockets;
mod ssh_agent;
mod terminal;
mod told;
mod tools;
mod walks;
mod world;

/// Every attack that has a name; see [`probe`].
const ATTACKS: &[&[probe::Attack]] = &[
    operations::ATTACKS,
    descriptors::ATTACKS,
    environment::ATTACKS,
    files::ATTACKS,
    git_config::ATTACKS,
    group::ATTACKS,
    ipc::ATTACKS,
    kernel::ATTACKS,
    limits::ATTACKS,
    nested::ATTACKS,
    processes::ATTACKS,
    project::ATTACKS,
    sockets::ATTACKS,
    terminal::ATTACKS,
    walks::ATTACKS,
];
