//! The machines that the tracer runs on under qemu: their kernels, what is on them, and the stages that each runs.

use std::path::{Path, PathBuf};

use crate::machine::{self, Clocks, Contents, Transcript, Workshop, beside_launcher};

/// In MiB. Ten thousand tasks want 30 KiB each of the kernel.
const MEMORY: u32 = 1024;
const KERNELS: [&str; 3] = ["6.1", "6.12", "7.2"];
/// The object of fentry, fexit and LSM programs.
pub(crate) const TRAMPOLINES: &str = "trampolines";
/// The one that works everywhere.
pub(crate) const TRACEPOINTS: &str = "tracepoints";
/// `lsm=` without `bpf`: programs at security hooks attach, and are never called.
const WITHOUT_BPF: &str = "lsm=landlock,lockdown,capability,yama";
/// Debian's kernels have it among them; here it does not depend on that.
const WITH_BPF: &str = "lsm=landlock,lockdown,capability,yama,bpf";

/// As the suites of jails need it.
const BUBBLEWRAP: &str = "/usr/bin/bwrap";

/// A machine that is booted.
pub(crate) struct Machine {
    pub(crate) name: &'static str,
    pub(crate) kernel: &'static str,
    pub(crate) object: &'static str,
    pub(crate) stages: &'static str,
    modules: &'static str,
    pub(crate) clocks: Clocks,
    /// Whether a short run boots it: one of each object.
    short: bool,
}

impl Machine {
    /// Boots it and waits until it is off.
    pub(crate) fn boot(&self, workshop: &Workshop) -> Transcript {
        let more = format!("object={} {}", self.object, self.modules);
        workshop.boot(self.name, self.kernel, self.stages, &more, self.clocks)
    }
}

/// Those that take longest come first.
pub(crate) const MACHINES: [Machine; 9] = [
    Machine {
        name: "6.12",
        kernel: "6.12",
        object: TRAMPOLINES,
        stages: "session,profile,bubblewrap,actions,scope,attempts,killed",
        modules: WITH_BPF,
        clocks: Clocks::Time,
        short: true,
    },
    Machine {
        name: "6.1",
        kernel: "6.1",
        object: TRAMPOLINES,
        stages: "bubblewrap,actions,scope,attempts,killed",
        modules: WITH_BPF,
        clocks: Clocks::Time,
        short: false,
    },
    Machine {
        name: "7.2",
        kernel: "7.2",
        object: TRAMPOLINES,
        stages: "bubblewrap,actions,scope,attempts,killed",
        modules: WITH_BPF,
        clocks: Clocks::Time,
        short: false,
    },
    Machine {
        name: "6.12, many",
        kernel: "6.12",
        object: TRAMPOLINES,
        stages: "many,loss",
        modules: WITH_BPF,
        clocks: Clocks::Time,
        short: false,
    },
    Machine {
        name: "6.12, counted",
        kernel: "6.12",
        object: TRAMPOLINES,
        stages: "speed",
        modules: WITH_BPF,
        clocks: Clocks::Instructions,
        short: false,
    },
    Machine {
        name: "6.1, counted",
        kernel: "6.1",
        object: TRAMPOLINES,
        stages: "speed",
        modules: WITH_BPF,
        clocks: Clocks::Instructions,
        short: false,
    },
    Machine {
        name: "6.1, tracepoints",
        kernel: "6.1",
        object: TRACEPOINTS,
        stages: "actions,scope,loss",
        modules: WITH_BPF,
        clocks: Clocks::Time,
        short: true,
    },
    Machine {
        name: "6.12, tracepoints",
        kernel: "6.12",
        object: TRACEPOINTS,
        stages: "actions,scope",
        modules: WITH_BPF,
        clocks: Clocks::Time,
        short: false,
    },
    Machine {
        name: "6.1 without bpf",
        kernel: "6.1",
        object: "auto",
        stages: "no-btf,nowhere,no-denial",
        modules: WITHOUT_BPF,
        clocks: Clocks::Time,
        short: false,
    },
];

/// Those that this run boots. A kernel that could not be had is said.
pub(crate) fn booted(fetched: &Path) -> Vec<&'static Machine> {
    let short = machine::short();
    let wanted = MACHINES.iter().filter(|machine| machine.short || !short);
    let (booted, lacking): (Vec<_>, Vec<_>) =
        wanted.partition(|machine| fetched.join(format!("linux-{}", machine.kernel)).exists());
    for machine in lacking {
        let why = std::fs::read_to_string(fetched.join("lacking")).unwrap_or_default();
        let why = why.trim().replace('\n', "; ");
        println!("not checked: the tracer on Linux {}: {why}", machine.name);
    }
    booted
}

/// Those that run a stage.
pub(crate) fn with(stage: &str) -> Vec<&'static Machine> {
    let runs = |machine: &&Machine| machine.stages.split(',').any(|one| one == stage);
    MACHINES.iter().filter(runs).collect()
}

/// What is on each of them.
pub(crate) fn contents(fetched: &Path) -> Contents<'static> {
    let ours = ["agent-sandbox", "agent-sandbox-tracer"];
    let mut programs: Vec<(PathBuf, String)> = ours
        .iter()
        .map(|name| (beside_launcher(name), format!("usr/bin/{name}")))
        .collect();
    programs.push((asking(), "usr/bin/ask".to_owned()));
    // Where the launcher does not look for it: `init` says when.
    programs.push((BUBBLEWRAP.into(), "usr/libexec/bwrap".to_owned()));
    Contents {
        init: include_str!("init"),
        probe: "tests/ebpf/probe",
        programs,
        files: KERNELS
            .map(|kernel| format!("overlay-{kernel}.ko"))
            .map(|module| (fetched.join(&module), format!("usr/lib/{module}")))
            .into_iter()
            .filter(|(module, _)| module.exists())
            .collect(),
        memory: MEMORY,
    }
}

/// The example of the client: `tests/run` puts it beside the launcher, cargo into a directory of examples.
fn asking() -> PathBuf {
    let staged = beside_launcher("ask");
    if staged.exists() {
        staged
    } else {
        beside_launcher("examples/ask")
    }
}

/// Tasks that are not traced open and close files this much slower at most, with the object of trampolines.
pub(crate) const UNTRACED: f64 = 1.10;
/// Traced ones.
pub(crate) const TRACED: f64 = 3.0;
/// System calls that no program of that object looks at: nothing, but for what the kernel does meanwhile.
pub(crate) const NO_TAX: f64 = 1.01;

/// What one call takes, in what the machine's clocks count, or as a ratio.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speed {
    pub(crate) open_close: f64,
    pub(crate) getppid: f64,
}

/// What calls take without a tracer, and how much longer with one.
#[derive(Debug)]
pub(crate) struct Speeds {
    pub(crate) nothing: Speed,
    /// As ratios.
    pub(crate) untraced: Speed,
    /// As ratios.
    pub(crate) traced: Speed,
}

impl Speeds {
    /// As the stages `speed-*` said.
    pub(crate) fn of(said: &Transcript) -> Self {
        let speed = |stage: &str| {
            let took = |name: &str| {
                let stage = said.stage(&format!("speed-{stage}"));
                let mut found = stage.reports().filter(|(reported, _)| *reported == name);
                let number = found.next().and_then(|(_, number)| number.parse().ok());
                number.unwrap_or_else(|| panic!("no `{name}` in {stage:?}"))
            };
            Speed {
                open_close: took("open-close"),
                getppid: took("getppid"),
            }
        };
        let nothing = speed("nothing");
        let ratio = |of: Speed| Speed {
            open_close: of.open_close / nothing.open_close,
            getppid: of.getppid / nothing.getppid,
        };
        Self {
            nothing,
            untraced: ratio(speed("untraced")),
            traced: ratio(speed("traced")),
        }
    }
}
