//! What the probes are told, and why they may not be had.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::objects::Kind;

/// Which object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The best one that works here.
    #[default]
    Auto,
    /// fentry, fexit and LSM programs, or none.
    Trampolines,
    /// Tracepoints.
    Tracepoints,
}

impl Choice {
    /// The kinds to try, in this order.
    pub(crate) fn kinds(self) -> &'static [Kind] {
        match self {
            Choice::Auto => &Kind::ALL,
            Choice::Trampolines => &[Kind::Trampolines],
            Choice::Tracepoints => &[Kind::Tracepoints],
        }
    }
}

/// What the probes are told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the BPF file system is; it is mounted there if it is not.
    pub bpffs: PathBuf,
    /// Which object.
    pub object: Choice,
    /// A directory of objects instead of those in the program.
    pub objects: Option<PathBuf>,
    /// The program that loads and that the self-test is made with; none: this very one. Tests need it.
    pub program: Option<PathBuf>,
    /// The size of the ring buffer, in bytes: a power of two.
    pub ring: u32,
    /// A directory that is there and that only the tracer may write: the self-test makes one in it.
    pub state: PathBuf,
}

impl Settings {
    /// See [`Settings::program`]. `/proc/self/exe` is this very program, even if its file was replaced since
    /// (`proc_pid_exe(5)`).
    pub(crate) fn program(&self) -> &Path {
        let myself = Path::new("/proc/self/exe");
        self.program.as_deref().unwrap_or(myself)
    }
}

/// Why there are no probes.
#[derive(Debug, Error)]
pub enum Error {
    /// An old kernel.
    #[error("the kernel is too old ({release}): the probes need Linux 5.13")]
    TooOld {
        /// Its release.
        release: String,
    },
    /// No `/sys/kernel/btf/vmlinux`.
    #[error(
        "the kernel ({release}) does not describe its types: it is built without CONFIG_DEBUG_INFO_BTF"
    )]
    NoTypes {
        /// Its release.
        release: String,
    },
    /// In a container.
    #[error(
        "the tracer is in a {name} namespace of its own: it has to run on the node itself, in no container"
    )]
    Namespace {
        /// The namespace in question.
        name: &'static str,
    },
    /// Too little privilege.
    #[error("may not load probes: the tracer runs as root, or with CAP_BPF and CAP_PERFMON")]
    NotPermitted,
    /// lockdown.
    #[error("the kernel is locked down (`confidentiality`): no probe may read its memory")]
    Lockdown,
    /// No file system to pin to.
    #[error("there is no BPF file system at {path}, and none can be mounted there")]
    NoBpffs {
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        error: io::Error,
    },
    /// Somebody else's directory.
    #[error(
        "{path} is not the tracer's own: it must be its user's, and nobody else may write there"
    )]
    Foreign {
        /// The directory that is not the tracer's.
        path: PathBuf,
    },
    /// A second tracer.
    #[error("another tracer runs: it holds {path}")]
    Running {
        /// What it has locked.
        path: PathBuf,
    },
    /// What is pinned cannot be had.
    #[error("cannot use the pins at {path}")]
    Pins {
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        error: io::Error,
    },
    /// The kernel refuses.
    #[error("cannot load the probes of kind `{kind}`: {why}")]
    Load {
        /// `trampolines` or `tracepoints`.
        kind: &'static str,
        /// What the kernel said.
        why: String,
    },
    /// The test could not be made.
    #[error("the self-test of the probes of kind `{kind}` cannot be made")]
    SelfTest {
        /// `trampolines` or `tracepoints`.
        kind: &'static str,
        /// The cause.
        #[source]
        error: io::Error,
    },
    /// The test was made, and failed.
    #[error(
        "the probes of kind `{kind}` do not see what they should: exec, open and connect were tried; {seen}"
    )]
    Unproved {
        /// `trampolines` or `tracepoints`.
        kind: &'static str,
        /// What was seen.
        seen: String,
    },
}

impl Error {
    /// What to do.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::TooOld { .. } | Error::NoTypes { .. } | Error::Lockdown => Some(
                "sessions run without a tracer, unless the policy says `[trace] mode = \"required\"`",
            ),
            Error::Namespace { .. } => Some("start it as a service of the node's systemd"),
            Error::NotPermitted => {
                Some("start it as root, or give it AmbientCapabilities=CAP_BPF CAP_PERFMON")
            }
            Error::NoBpffs { .. } => {
                Some("mount it: mount -t bpf -o mode=0700 bpf DIR, or --bpffs DIR")
            }
            Error::Foreign { .. } => Some("remove it, or name another place with --bpffs DIR"),
            Error::Running { .. } => Some("`systemctl status agent-sandbox-tracer` shows it"),
            Error::Load { .. } | Error::Unproved { .. } => {
                Some("`agent-sandbox-tracer check` shows what each program meets")
            }
            Error::Pins { .. } | Error::SelfTest { .. } => None,
        }
    }
}
