//! The jail that Landlock makes, on kernels other than this machine's: Linux 6.1, which has neither
//! scopes nor a right to truncate (Landlock's ABI 2), Linux 6.12 (ABI 6), and one without Landlock.
//! Each boots under qemu, with an ordinary user and without bubblewrap; `init` runs the stages that
//! the tests here judge. Every attack is made without a jail too, where it has to succeed.

#![allow(clippy::disallowed_methods)] // effects: boots machines, several at a time

mod attacks;
mod launches;
mod limits;
#[path = "../machine/mod.rs"]
mod machine;

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::thread::scope;

use machine::{Clocks, Contents, Transcript, Workshop};
pub(crate) use machine::{ended, unless};

/// A kernel that Debian has, with Landlock.
pub(crate) struct Kernel {
    pub(crate) name: &'static str,
    /// Landlock's ABI there.
    pub(crate) abi: i32,
}

const KERNELS: [Kernel; 2] = [
    Kernel {
        name: "6.1",
        abi: 2,
    },
    Kernel {
        name: "6.12",
        abi: 6,
    },
];

/// Those that this run boots. A short one leaves out the newer, whose Landlock does all that this machine's does.
fn booted() -> &'static [Kernel] {
    match machine::short() {
        true => &KERNELS[..1],
        false => &KERNELS,
    }
}

/// `lsm=` without Landlock: its calls fail as on a kernel that was built without it.
const WITHOUT_LANDLOCK: &str = "lsm=lockdown,capability,yama";

/// In MiB.
const MEMORY: u32 = 512;

fn contents() -> Contents<'static> {
    let ours = ["", "-chaperon", "-shim"].map(|name| format!("agent-sandbox{name}"));
    let mut programs: Vec<(PathBuf, String)> = ours
        .into_iter()
        .map(|name| (machine::beside_launcher(&name), format!("usr/bin/{name}")))
        .filter(|(program, _)| program.exists())
        .collect();
    programs.push(("/usr/bin/bwrap".into(), "usr/libexec/bwrap".to_owned()));
    Contents {
        init: include_str!("init"),
        probe: "tests/kernels/probe",
        programs,
        files: Vec::new(),
        memory: MEMORY,
    }
}

struct Boots {
    full: Vec<Transcript>,
    without_landlock: Transcript,
}

/// What the machines said. All boot at the same time, once.
static BOOTS: LazyLock<Result<Boots, String>> = LazyLock::new(|| {
    let fetched = machine::fetched()?;
    let workshop = Workshop::new(fetched, &contents());
    Ok(scope(|threads| {
        let full: Vec<_> = booted()
            .iter()
            .map(|kernel| {
                let workshop = &workshop;
                threads.spawn(|| workshop.boot(kernel.name, kernel.name, "full", "", Clocks::Time))
            })
            .collect();
        let refused = threads.spawn(|| {
            workshop.boot(
                "refused",
                KERNELS[0].name,
                "refused",
                WITHOUT_LANDLOCK,
                Clocks::Time,
            )
        });
        Boots {
            full: full
                .into_iter()
                .map(|boot| boot.join().unwrap_or_else(|panic| resume_unwind(panic)))
                .collect(),
            without_landlock: refused.join().unwrap_or_else(|panic| resume_unwind(panic)),
        }
    }))
});

/// What this machine can boot, or nothing, which is said.
fn boots(what: &str) -> Option<&'static Boots> {
    match &*BOOTS {
        Ok(boots) => Some(boots),
        Err(why) => {
            println!("not checked: kernels, {what}: {why}");
            None
        }
    }
}

/// Judges something on each kernel, and says on which it fails.
pub(crate) fn on_each_kernel(what: &str, judge: impl Fn(&Kernel, &Transcript) -> Vec<String>) {
    let Some(boots) = boots(what) else { return };
    let wrong: Vec<String> = booted()
        .iter()
        .zip(&boots.full)
        .flat_map(|(kernel, said)| {
            judge(kernel, said)
                .into_iter()
                .map(move |wrong| format!("Linux {}: {wrong}", kernel.name))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The complaint that a stage said anything.
pub(crate) fn silent(said: &Transcript, name: &str) -> Option<String> {
    let text = said.stage(name).text();
    unless(text.is_empty(), || format!("{name}:\n{text}"))
}

#[test]
fn the_kernels_are_those_that_are_meant() {
    println!(
        "not checked: AppArmor's restriction of user namespaces: only Ubuntu's kernels have it"
    );
    for kernel in KERNELS.iter().skip(booted().len()) {
        println!(
            "not checked: Linux {}: a short run does not boot it",
            kernel.name
        );
    }
    on_each_kernel("which they are", |kernel, said| {
        println!("Linux {}: {:.1} s", kernel.name, said.took.as_secs_f64());
        let version = format!("{}.", kernel.name);
        let stage = said.stage("facts");
        let good = stage.lines[0].starts_with(&version) && stage.text().contains("landlock,yama");
        unless(good, || stage.text()).into_iter().collect()
    });
}

#[test]
fn without_landlock_nothing_starts_and_it_is_said() {
    let Some(boots) = boots("one without Landlock") else {
        return;
    };
    for name in ["refused", "refused-named"] {
        let wrong = ended(&boots.without_landlock, name, 125, &["Landlock", "hint: "]);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        let ran = boots.without_landlock.stage(name).reports().next();
        assert!(ran.is_none(), "{name}: the command ran: {ran:?}");
    }
}
