//! The service: who may have what traced, which traces there are, and their tasks.
//!
//! Whoever asks is one of a node's users, who do not trust each other, and may write packets by hand. What
//! they say is parsed and judged; who they are the kernel says.

pub mod cgroups;
pub mod config;
pub mod core;
pub mod coverage;
pub mod files;
pub mod forbidden;
pub mod kernel;
pub mod limits;
pub mod mark_key;
pub mod mounts;
pub mod process;
pub mod refusal;
pub mod registry;
pub mod scope;
pub mod socket;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::gethostname;
use tracing::info;

use crate::kernel::{Choice, Probes};
use crate::logging::TARGET;
use crate::trail::{self, Now, Trails};
use config::{Config, Object};
use mark_key::MarkKey;
use socket::Service;

/// Descriptors that the service needs at most: three for each connection and each trace, and those that
/// are being looked at.
const DESCRIPTORS: u64 = 65536;

/// What wins over the configuration.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The configuration's file.
    pub config: PathBuf,
    /// The socket.
    pub socket: Option<PathBuf>,
    /// The directory of the trails.
    pub records: Option<PathBuf>,
    /// The directory of the audit record.
    pub audit: Option<PathBuf>,
    /// The BPF file system.
    pub bpffs: Option<PathBuf>,
    /// The directory of what must outlive the service.
    pub state: Option<PathBuf>,
    /// Which probes.
    pub object: Option<Choice>,
    /// Where objects are, instead of those in the program.
    pub objects: Option<PathBuf>,
}

/// The configuration as the options change it.
fn config(options: &Options) -> Result<Config> {
    let mut config = files::config(&options.config)?;
    let settings = [
        (&options.socket, &mut config.socket),
        (&options.records, &mut config.records),
        (&options.audit, &mut config.audit),
        (&options.bpffs, &mut config.bpffs),
        (&options.state, &mut config.state),
    ];
    for (option, value) in settings {
        if let Some(path) = option {
            *value = std::path::absolute(path)
                .with_context(|| format!("cannot make out `{}`", path.display()))?;
        }
    }
    Ok(config)
}

fn probes(config: &Config, options: &Options) -> crate::kernel::Settings {
    let object = match config.object {
        Object::Auto => Choice::Auto,
        Object::Trampolines => Choice::Trampolines,
        Object::Tracepoints => Choice::Tracepoints,
    };
    crate::kernel::Settings {
        bpffs: config.bpffs.clone(),
        object: options.object.unwrap_or(object),
        objects: options.objects.clone(),
        ring: config.ring_bytes,
        state: config.state.clone(),
        program: None,
    }
}

/// What the kernel's side is told.
///
/// # Errors
/// The configuration is refused.
pub fn settings(options: &Options) -> Result<crate::kernel::Settings> {
    Ok(probes(&config(options)?, options))
}

/// What the trails are told.
///
/// # Errors
/// A pattern of the site's makes no sense.
pub fn trail_settings(config: &Config, node: &str) -> Result<trail::Settings> {
    trail::Redaction::new(&config.redact.patterns).context("redact.patterns")?;
    Ok(trail::Settings {
        records: config.records.clone(),
        audit: config.audit.clone(),
        node: node.to_owned(),
        limits: trail::StoreLimits {
            file_bytes: config.keep.file_bytes,
            user_bytes: config.keep.user_bytes,
            total_bytes: config.keep.total_bytes,
            days: config.keep.days,
        },
        redact: config.redact.patterns.clone(),
        journald: config.sinks.journald,
        command_milliseconds: config.limits.command_milliseconds,
    })
}

/// Loads or takes over the probes, and serves until a signal ends it.
///
/// # Errors
/// It cannot begin: the configuration is refused, another tracer runs, the kernel does not take the probes.
pub fn run(options: &Options) -> Result<()> {
    ensure!(
        process::in_initial_namespace(),
        "the tracer must run in the initial pid namespace: the kernel numbers processes as that does"
    );
    let config = config(options)?;
    let node = node()?;
    let trail_settings = trail_settings(&config, &node)?;
    raise_limit()?;
    files::directory(&config.state)?;
    let lock = files::lock(&config.state)?;
    let kernel = Probes::open(&probes(&config, options)).context("cannot load the probes")?;
    let about = kernel.about().clone();
    let records = records(&config.records)?;
    let trails = Trails::open(&trail_settings, Now::read())
        .with_context(|| format!("cannot keep records in `{}`", records.display()))?;
    let socket = config.socket.display().to_string();
    let key = MarkKey::read(&config.mark_key)?;
    let marks = key.is_some();
    let mut service = Service::new(config, node, lock, kernel, trails)?;
    service.sign_with(key);
    info!(
        target: TARGET,
        "{} on Linux {}, {}{}; listens on {socket}",
        about.object,
        about.kernel,
        if about.enforces {
            "denies"
        } else {
            "denies nothing"
        },
        if marks { ", marks jobs" } else { "" }
    );
    for line in about.proved.iter().chain(&about.refused) {
        info!(target: TARGET, "{line}");
    }
    files::notify("READY=1");
    let served = service.run(|| {
        files::notify("RELOADING=1");
        let fresh = self::config(options);
        files::notify("READY=1");
        fresh
    });
    files::notify("STOPPING=1");
    served
}

/// The line that whoever verifies marks of this node needs: its name and the public key. The key is made if there
/// is none.
///
/// # Errors
/// It cannot be made or read, or others than root could have it.
pub fn mark_key(options: &Options) -> Result<String> {
    let config = config(options)?;
    let node = node()?;
    let key = match MarkKey::read(&config.mark_key)? {
        Some(key) => key,
        None => MarkKey::make(&config.mark_key)?,
    };
    Ok(format!("{node} ed25519 {}", key.public()))
}

/// The directory above the trails, which the trails make for themselves.
fn records(path: &Path) -> Result<&Path> {
    ensure!(
        path.is_absolute(),
        "`{}` must begin with a slash",
        path.display()
    );
    Ok(path)
}

/// The node's name, up to its first dot, as Slurm names it.
fn node() -> Result<String> {
    let name = gethostname().context("cannot find out the node's name")?;
    let name = name.to_string_lossy().into_owned();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let node: String = name
        .split('.')
        .next()
        .unwrap_or_default()
        .chars()
        .filter(|c| plain(*c))
        .collect();
    Ok(if node.is_empty() {
        "node".to_owned()
    } else {
        node
    })
}

/// As many descriptors as it may have.
fn raise_limit() -> Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("cannot ask for limits")?;
    let most = hard.min(DESCRIPTORS);
    setrlimit(Resource::RLIMIT_NOFILE, most, hard).context("cannot have more descriptors")
}
