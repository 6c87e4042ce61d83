//! Jails on kernels other than this machine's, with an ordinary user: Linux 5.10, which has no Landlock, with bubblewrap
//! 0.4.1, as Enterprise Linux 8 and 9 have them; Linux 6.1, whose Landlock has neither scopes nor a right to truncate (ABI 2);
//! Linux 6.12 (ABI 6); Linux 7.2, with AppArmor; and one without Landlock. Each boots under qemu; `init` and `node` run
//! the stages that the tests here judge. Every attack is made without a jail too, where it has to succeed.

#![allow(clippy::disallowed_methods)] // effects: boots machines, several at a time

mod attacks;
mod launches;
mod limits;
#[path = "../machine/mod.rs"]
mod machine;
mod node;

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};
use std::thread::scope;

use machine::{Clocks, Contents, Transcript, Workshop};
pub(crate) use machine::{ended, unless};

/// More machines at a time share two processors, and none is done earlier.
const AT_A_TIME: usize = 2;

/// A machine that is booted.
pub(crate) struct Kernel {
    pub(crate) name: &'static str,
    /// Landlock's ABI there; 0: there is none.
    pub(crate) abi: i32,
    /// The part of `init` that runs.
    pub(crate) stages: &'static str,
    /// More of the kernel's command line.
    more: &'static str,
    /// Whether a short run boots it.
    short: bool,
}

/// Both jails, by all that is here.
const FULL: &str = "full";
/// bubblewrap's jail and what doctor says, which is the end of [`FULL`] as well.
const NODE: &str = "node";
/// Neither.
const REFUSED: &str = "refused";

/// `lsm=` without Landlock: its calls fail as on a kernel that was built without it.
const WITHOUT_LANDLOCK: &str = "lsm=lockdown,capability,yama";
/// With AppArmor, as Debian has it; since Linux 6.7 it judges who makes user namespaces.
const WITH_APPARMOR: &str = "lsm=landlock,lockdown,yama,apparmor,bpf apparmor=1";

/// Those that take longest come first. A short run boots one with Landlock and one without: the newer ones' Landlock does
/// all that this machine's does.
const MACHINES: [Kernel; 5] = [
    Kernel {
        name: "6.1",
        abi: 2,
        stages: FULL,
        more: "",
        short: true,
    },
    Kernel {
        name: "6.12",
        abi: 6,
        stages: FULL,
        more: "",
        short: false,
    },
    Kernel {
        name: "7.2",
        abi: 10,
        stages: NODE,
        more: WITH_APPARMOR,
        short: false,
    },
    Kernel {
        name: "5.10",
        abi: 0,
        stages: NODE,
        more: "",
        short: false,
    },
    Kernel {
        name: "6.1",
        abi: 0,
        stages: REFUSED,
        more: WITHOUT_LANDLOCK,
        short: true,
    },
];

/// In MiB.
const MEMORY: u32 = 512;

/// What only a whole run fetches is not here in a short one, and may not be to be had.
const FETCHED: [(&str, &str); 2] = [
    ("bwrap-0.4", "usr/libexec/bwrap-0.4"),
    ("apparmor.tar", "usr/lib/apparmor.tar"),
];

fn contents(fetched: &Path) -> Contents<'static> {
    let ours = ["", "-chaperon", "-shim", "-tracer"].map(|name| format!("agent-sandbox{name}"));
    let mut programs: Vec<(PathBuf, String)> = ours
        .into_iter()
        .map(|name| (machine::beside_launcher(&name), format!("usr/bin/{name}")))
        .filter(|(program, _)| program.exists())
        .collect();
    programs.push(("/usr/bin/bwrap".into(), "usr/libexec/bwrap".to_owned()));
    let mut files = vec![(
        Path::new(&machine::root()).join("tests/kernels/node"),
        "usr/libexec/node".to_owned(),
    )];
    for (name, at) in FETCHED {
        let file = fetched.join(name);
        match name.starts_with("bwrap") {
            _ if !file.exists() => {}
            true => programs.push((file, at.to_owned())),
            false => files.push((file, at.to_owned())),
        }
    }
    Contents {
        init: include_str!("init"),
        probe: "tests/kernels/probe",
        programs,
        files,
        memory: MEMORY,
    }
}

/// Why this run does not boot a machine, if it does not.
fn left_out(machine: &Kernel, fetched: &Path) -> Option<String> {
    if machine::short() && !machine.short {
        return Some("a short run does not boot it".to_owned());
    }
    let mut needed = vec![format!("linux-{}", machine.name)];
    if machine.stages == NODE {
        needed.extend(FETCHED.map(|(name, _)| name.to_owned()));
    }
    let lacking = needed.iter().find(|name| !fetched.join(name).exists())?;
    let why = std::fs::read_to_string(fetched.join("lacking")).unwrap_or_default();
    Some(format!("no {lacking}: {}", why.trim().replace('\n', "; ")))
}

struct Boots {
    /// By the place among [`MACHINES`].
    said: BTreeMap<usize, Transcript>,
    fetched: PathBuf,
}

/// What the machines said. Each boots once.
static BOOTS: LazyLock<Result<Boots, String>> = LazyLock::new(|| {
    let fetched = machine::fetched()?;
    let workshop = &Workshop::new(fetched.clone(), &contents(&fetched));
    let booted = MACHINES
        .iter()
        .enumerate()
        .filter(|(_, machine)| left_out(machine, &fetched).is_none());
    let waiting = &Mutex::new(booted);
    let next = || waiting.lock().expect("nobody panics with it").next();
    let said = scope(|threads| {
        let workers: Vec<_> = (0..AT_A_TIME)
            .map(|_| {
                threads.spawn(|| {
                    let mut said = Vec::new();
                    while let Some((place, machine)) = next() {
                        let name = format!("{} {}", machine.name, machine.stages);
                        let Kernel {
                            name: kernel,
                            stages,
                            more,
                            ..
                        } = machine;
                        let transcript = workshop.boot(&name, kernel, stages, more, Clocks::Time);
                        said.push((place, transcript));
                    }
                    said
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    });
    Ok(Boots { said, fetched })
});

/// Judges something on each machine that runs these stages and is booted here, and says on which it fails. If there is
/// none, that is said.
fn on_each(what: &str, stages: &[&str], judge: impl Fn(&Kernel, &Transcript) -> Vec<String>) {
    let boots = match &*BOOTS {
        Ok(boots) => boots,
        Err(why) => {
            println!("not checked: kernels, {what}: {why}");
            return;
        }
    };
    let meant = |machine: &Kernel| stages.contains(&machine.stages);
    let wrong: Vec<String> = boots
        .said
        .iter()
        .map(|(place, said)| (&MACHINES[*place], said))
        .filter(|(machine, _)| meant(machine))
        .flat_map(|(machine, said)| {
            judge(machine, said)
                .into_iter()
                .map(move |wrong| format!("Linux {}: {wrong}", machine.name))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Those in which Landlock makes a jail by all that is here.
pub(crate) fn on_each_kernel(what: &str, judge: impl Fn(&Kernel, &Transcript) -> Vec<String>) {
    on_each(what, &[FULL], judge);
}

/// Those in which bubblewrap can make one as well.
pub(crate) fn on_each_node(what: &str, judge: impl Fn(&Kernel, &Transcript) -> Vec<String>) {
    on_each(what, &[FULL, NODE], judge);
}

/// The complaint that a stage said anything.
pub(crate) fn silent(said: &Transcript, name: &str) -> Option<String> {
    let text = said.stage(name).text();
    unless(text.is_empty(), || format!("{name}:\n{text}"))
}

#[test]
fn the_kernels_are_those_that_are_meant() {
    if let Ok(Boots { fetched, .. }) = &*BOOTS {
        for machine in &MACHINES {
            if let Some(why) = left_out(machine, fetched) {
                println!("not checked: Linux {}: {why}", machine.name);
            }
        }
    }
    on_each_node("which they are", |kernel, said| {
        println!("Linux {}: {:.1} s", kernel.name, said.took.as_secs_f64());
        let version = format!("{}.", kernel.name);
        let stage = said.stage("facts");
        let modules = if kernel.abi > 0 {
            "landlock,lockdown,yama"
        } else {
            "lockdown,yama"
        };
        let modules = modules
            .split(',')
            .all(|module| stage.lines[1].contains(module));
        let good = stage.lines[0].starts_with(&version) && modules;
        unless(good, || stage.text()).into_iter().collect()
    });
}

#[test]
fn without_landlock_nothing_starts_and_it_is_said() {
    on_each("one without Landlock", &[REFUSED], |_, said| {
        let mut wrong = Vec::new();
        for name in ["refused", "refused-named"] {
            wrong.extend(ended(said, name, 125, &["Landlock", "hint: "]));
            let ran = said.stage(name).reports().next();
            wrong.extend(unless(ran.is_none(), || {
                format!("{name}: the command ran: {ran:?}")
            }));
        }
        wrong
    });
}
