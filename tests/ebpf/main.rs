//! The tracer on kernels other than this machine's: Linux 6.1, 6.12 and 7.2 under qemu, with the object of
//! trampolines and security hooks, which many kernels that run in containers and small machines refuse, and
//! with the one of tracepoints; without `bpf` among the security modules, and without type information.
//! `init` runs the stages, the program of `probe/` does what is to be seen or denied, `ask`
//! (`ebpf/events/examples`) speaks to the tracer. The tests here judge what the stages said.

#![allow(clippy::disallowed_methods)] // effects: boots machines, several at a time

mod actions;
mod attempts;
mod jails;
mod load;
#[path = "../machine/mod.rs"]
mod machine;
mod machines;
mod scope;
mod service;
mod trail;

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::{LazyLock, Mutex};
use std::thread::scope;

use machine::{Transcript, Workshop};
pub(crate) use machine::{ended, unless};
pub(crate) use machines::{Machine, TRACEPOINTS, TRAMPOLINES};

/// More machines at a time share two processors, and none is done earlier.
const AT_A_TIME: usize = 2;

type Boots = BTreeMap<&'static str, Transcript>;

/// What the machines said. Each boots once.
static BOOTS: LazyLock<Result<Boots, String>> = LazyLock::new(|| {
    let fetched = machine::fetched()?;
    let contents = machines::contents(&fetched);
    let waiting = &Mutex::new(machines::booted(&fetched).into_iter());
    let workshop = &Workshop::new(fetched, &contents);
    let next = || waiting.lock().expect("nobody panics with it").next();
    Ok(scope(|threads| {
        let workers: Vec<_> = (0..AT_A_TIME)
            .map(|_| {
                threads.spawn(|| {
                    let mut said = Vec::new();
                    while let Some(machine) = next() {
                        said.push((machine.name, machine.boot(workshop)));
                    }
                    said
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    }))
});

/// Judges something on each machine that has run a stage, and says on which it fails.
pub(crate) fn on_each_with(
    stage: &str,
    what: &str,
    judge: impl Fn(&Machine, &Transcript) -> Vec<String>,
) {
    let boots = match &*BOOTS {
        Ok(boots) => boots,
        Err(why) => {
            println!("not checked: the tracer on other kernels, {what}: {why}");
            return;
        }
    };
    let run_it = machines::with(stage);
    assert!(!run_it.is_empty(), "no {stage}");
    if !run_it
        .iter()
        .any(|machine| boots.contains_key(machine.name))
    {
        println!(
            "not checked: the tracer on other kernels, {what}: a short run does not boot its machine"
        );
        return;
    }
    let wrong: Vec<String> = run_it
        .into_iter()
        .filter_map(|machine| Some((machine, boots.get(machine.name)?)))
        .flat_map(|(machine, said)| {
            // Without a tracer there is nothing else to say.
            let started = ended(said, "start", 0, &[]);
            let wrong = if started.is_empty() {
                judge(machine, said)
            } else {
                started
            };
            wrong
                .into_iter()
                .map(move |wrong| format!("{}: {wrong}", machine.name))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What the probe reported of its actions, and the complaint that it did not come to its end.
pub(crate) fn reports<'a>(
    said: &'a Transcript,
    stage: &str,
) -> (BTreeMap<&'a str, &'a str>, Vec<String>) {
    let stage_said = said.stage(stage);
    let wrong = unless(stage_said.complete(), || {
        format!(
            "{stage}: the probe ended early; said:\n{}",
            stage_said.text()
        )
    });
    (stage_said.reports().collect(), wrong.into_iter().collect())
}

/// A number that a stage reported.
pub(crate) fn number(said: &Transcript, stage: &str, name: &str) -> u64 {
    let mut reports = said.stage(stage).reports();
    let found = reports.find(|(reported, _)| *reported == name);
    found.map_or(0, |(_, number)| number.parse().unwrap_or(0))
}
