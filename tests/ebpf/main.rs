//! The tracer on kernels other than this machine's: Linux 6.1 and 6.12 under qemu, with the object of
//! trampolines and security hooks, which many kernels that run in containers and small machines refuse, and
//! with the one of tracepoints; without `bpf` among the security modules, and without type information.
//! `init` runs the stages, the program of `probe/` does what is to be seen or denied, `ask`
//! (`ebpf/events/examples`) speaks to the tracer. The tests here judge what the stages said.

#![allow(clippy::disallowed_methods)] // effects: boots machines, several at a time

mod actions;
mod attempts;
mod load;
#[path = "../machine/mod.rs"]
mod machine;
mod scope;
mod service;
mod trail;

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};
use std::thread::scope;

use machine::{Contents, Stage, Transcript, Workshop};

/// In MiB. Ten thousand tasks want 30 KiB each of the kernel.
const MEMORY: u32 = 1024;
/// More machines at a time share two processors, and none is done earlier.
const AT_A_TIME: usize = 2;

const KERNELS: [&str; 2] = ["6.1", "6.12"];
/// The object of fentry, fexit and LSM programs.
const TRAMPOLINES: &str = "trampolines";
/// The one that works everywhere.
const TRACEPOINTS: &str = "tracepoints";
/// `lsm=` without `bpf`: programs at security hooks attach, and are never called.
const WITHOUT_BPF: &str = "lsm=landlock,lockdown,capability,yama";
/// Debian's kernels have it among them; here it does not depend on that.
const WITH_BPF: &str = "lsm=landlock,lockdown,capability,yama,bpf";

/// A machine that is booted.
pub(crate) struct Machine {
    pub(crate) name: &'static str,
    pub(crate) kernel: &'static str,
    pub(crate) object: &'static str,
    stages: &'static str,
    modules: &'static str,
}

/// Those that take longest come first.
const MACHINES: [Machine; 6] = [
    Machine {
        name: "6.12",
        kernel: "6.12",
        object: TRAMPOLINES,
        stages: "session,profile,actions,scope,attempts,killed,speed",
        modules: WITH_BPF,
    },
    Machine {
        name: "6.1",
        kernel: "6.1",
        object: TRAMPOLINES,
        stages: "actions,scope,attempts,killed,speed",
        modules: WITH_BPF,
    },
    Machine {
        name: "6.12, many",
        kernel: "6.12",
        object: TRAMPOLINES,
        stages: "many,loss",
        modules: WITH_BPF,
    },
    Machine {
        name: "6.1, tracepoints",
        kernel: "6.1",
        object: TRACEPOINTS,
        stages: "actions,scope,loss",
        modules: WITH_BPF,
    },
    Machine {
        name: "6.12, tracepoints",
        kernel: "6.12",
        object: TRACEPOINTS,
        stages: "actions,scope",
        modules: WITH_BPF,
    },
    Machine {
        name: "6.1 without bpf",
        kernel: "6.1",
        object: "auto",
        stages: "no-btf,nowhere,no-denial",
        modules: WITHOUT_BPF,
    },
];

fn contents(fetched: &Path) -> Contents<'static> {
    let ours = ["agent-sandbox", "agent-sandbox-tracer"];
    let mut programs: Vec<(PathBuf, String)> = ours
        .iter()
        .map(|name| (machine::beside_launcher(name), format!("usr/bin/{name}")))
        .collect();
    programs.push((asking(), "usr/bin/ask".to_owned()));
    Contents {
        init: include_str!("init"),
        probe: "tests/ebpf/probe",
        programs,
        files: KERNELS
            .map(|kernel| format!("overlay-{kernel}.ko"))
            .map(|module| (fetched.join(&module), format!("usr/lib/{module}")))
            .to_vec(),
        memory: MEMORY,
    }
}

/// The example of the client: `tests/run` puts it beside the launcher, cargo into a directory of examples.
fn asking() -> PathBuf {
    let staged = machine::beside_launcher("ask");
    if staged.exists() {
        staged
    } else {
        machine::beside_launcher("examples/ask")
    }
}

type Boots = BTreeMap<&'static str, Transcript>;

/// What the machines said. Each boots once.
static BOOTS: LazyLock<Result<Boots, String>> = LazyLock::new(|| {
    let fetched = machine::fetched()?;
    let contents = contents(&fetched);
    let workshop = &Workshop::new(fetched, &contents);
    let waiting = &Mutex::new(MACHINES.iter());
    let next = || waiting.lock().expect("nobody panics with it").next();
    Ok(scope(|threads| {
        let workers: Vec<_> = (0..AT_A_TIME)
            .map(|_| {
                threads.spawn(|| {
                    let mut said = Vec::new();
                    while let Some(machine) = next() {
                        let more = format!("object={} {}", machine.object, machine.modules);
                        let transcript =
                            workshop.boot(machine.name, machine.kernel, machine.stages, &more);
                        said.push((machine.name, transcript));
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
    let ran = |machine: &&Machine| machine.stages.split(',').any(|ran| ran == stage);
    let wrong: Vec<String> = MACHINES
        .iter()
        .filter(ran)
        .flat_map(|machine| {
            let said = &boots[machine.name];
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
    assert!(MACHINES.iter().any(|machine| ran(&machine)), "no {stage}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The complaint, unless the condition holds.
pub(crate) fn unless(holds: bool, complaint: impl FnOnce() -> String) -> Option<String> {
    (!holds).then(complaint)
}

/// The complaint that a stage has not ended as it should, or has not said something.
pub(crate) fn ended(said: &Transcript, name: &str, status: i32, words: &[&str]) -> Vec<String> {
    let stage = said.stage(name);
    let text = stage.text();
    let missing: Vec<&&str> = words.iter().filter(|word| !text.contains(**word)).collect();
    let good = stage.status == status && missing.is_empty();
    unless(good, || {
        let Stage { status: got, .. } = stage;
        format!("{name}: exit code {got}, wanted {status}; not said: {missing:?}; said:\n{text}")
    })
    .into_iter()
    .collect()
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
