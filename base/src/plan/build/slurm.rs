//! Slurm inside: stand-ins (shims) under the names of its commands, and the place of the socket on
//! which they reach the chaperon.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::{SHIMS, SOCKET};

use super::tree::Tree;
use crate::config::source::{Layer, Sourced};
use crate::host::HostFacts;
use crate::host::files::{Files, Look, real_as_far_as_it_exists};
use crate::host::slurm::{CHAPERON, Conf, SHIM, Slurm};
use crate::plan::model::hides::Hides;
use crate::plan::model::slurm::{CHAPERON_INSIDE, PROGRAM, Use};
use crate::plan::model::{Access, Mount, OWN, Omitted, PlanError, Why};
use crate::policy::{Clamped, Policy, SlurmMode};

/// Bytes of the file system in which the socket alone stands.
pub const SOCKET_ROOM: u64 = 64 << 10;

/// What the jail has of Slurm, with the key that decided.
///
/// # Errors
/// The launcher's `SLURM_CONF` cannot be trusted.
pub fn availability(policy: &Policy, host: &HostFacts) -> Result<Sourced<Use>, PlanError> {
    let mode = &policy.slurm.mode;
    let decided = |what| Ok(Sourced::new(what, mode.source.clone()));
    let Some(slurm) = &host.slurm else {
        return decided(Use::Absent);
    };
    if mode.value == SlurmMode::Off || slurm.commands.is_empty() {
        return decided(Use::Off);
    }
    if let Conf::Distrusted { path, reason } = &slurm.conf {
        let message = format!(
            "SLURM_CONF is `{}`, which {reason}; it decides which libraries Slurm's commands load outside the jail",
            path.display()
        );
        return Err(PlanError::new(message).hint(format!("unset SLURM_CONF, or {OFF}")));
    }
    decided(Use::On)
}

const OFF: &str = "switch Slurm off inside with `--set slurm.mode=off`";

/// The directory of the socket.
pub fn socket_directory() -> &'static Path {
    Path::new(SOCKET).parent().unwrap_or(Path::new("/run"))
}

/// Puts the shims and the socket's directory into the jail.
///
/// # Errors
/// Slurm is to be used, and a program of ours that stands between it and the jail is missing, or a
/// file that Slurm's commands read outside can be changed inside.
pub fn place(
    tree: &mut Tree,
    omitted: &mut Vec<Omitted>,
    policy: &Policy,
    host: &HostFacts,
    files: &dyn Files,
    hides: &Hides,
) -> Result<(), PlanError> {
    let Some(slurm) = &host.slurm else {
        return Ok(());
    };
    let on = availability(policy, host)?.value == Use::On;
    let why = Why::key("slurm.mode", &policy.slurm.mode);
    if policy.slurm.mode.value == SlurmMode::Auto {
        tell_distrusted(omitted, slurm, policy);
    }
    let shim = slurm.shim.as_deref().map(|path| files.look(path));
    let Some(Look::Found(shim)) = shim else {
        // Without shims the real commands stay in sight, and reach nothing: what they would prove
        // the user's identity with is not there.
        return if on { Err(missing(SHIM, host)) } else { Ok(()) };
    };
    if on {
        if slurm.chaperon.is_none() {
            return Err(missing(CHAPERON, host));
        }
        unchangeable_inside(tree, slurm, files)?;
        tree.put(
            socket_directory(),
            Mount::Tmpfs {
                size: SOCKET_ROOM,
                mode: 0o700,
            },
            why.clone(),
        );
    }
    let bind = || Mount::Bind {
        from: shim.real.clone(),
        access: Access::Read,
        id: shim.id,
    };
    tree.put(PROGRAM, bind(), why.clone());
    let chaperon = slurm.chaperon.as_deref().map(|path| files.look(path));
    if let Some(Look::Found(chaperon)) = chaperon.filter(|_| on) {
        let mount = Mount::Bind {
            from: chaperon.real,
            access: Access::Read,
            id: chaperon.id,
        };
        tree.put(CHAPERON_INSIDE, mount, why.clone());
    }
    for command in Command::ALL {
        let link = Mount::Link {
            target: PathBuf::from(PROGRAM),
        };
        tree.put(Path::new(SHIMS).join(command.name()), link, why.clone());
    }
    for place in &slurm.covers {
        if tree.access(place).is_some() && hides.rule_for(place).is_none() {
            tree.put(place, bind(), why.clone());
        }
    }
    Ok(())
}

/// Puts an empty file system where Slurm's configuration says that tasks put temporary files, if the
/// jail of a job has nothing there: Slurm's PMIx server tells its clients to make their directories
/// there, and they end if they cannot. Gives the symbolic links by which the places are known.
pub fn place_temporary(
    tree: &mut Tree,
    policy: &Policy,
    host: &HostFacts,
    files: &dyn Files,
    hides: &Hides,
) -> Vec<(PathBuf, PathBuf)> {
    let mut all = Vec::new();
    let size = &policy.jail.tmp_size;
    for named in host.slurm.iter().flat_map(|slurm| &slurm.temporary) {
        if !is_for_temporary(&named.path) {
            continue;
        }
        let (at, links) = match files.look(&named.path) {
            Look::Found(found) => (found.real, found.links),
            _ => (real_as_far_as_it_exists(files, &named.path), Vec::new()),
        };
        let taken = tree.holds(&at) || hides.rule_for(&at).is_some();
        let over = tree.over(&at).map(|(_, mount)| mount);
        let free = matches!(
            over,
            None | Some(Mount::Directory { .. } | Mount::Tmpfs { .. })
        );
        if taken || !free || !is_for_temporary(&at) {
            continue;
        }
        let mount = Mount::Tmpfs {
            size: size.value,
            mode: 0o1777,
        };
        let why = Why::Rule {
            key: "Slurm's directory for temporary files".to_owned(),
            source: named.source(),
        };
        tree.put(at, mount, why);
        all.extend(links);
    }
    all
}

/// Whether a directory may be one for temporary files: named plainly, without the node's name in it,
/// and none that every jail has of its own.
fn is_for_temporary(directory: &Path) -> bool {
    let plain = |part: Component<'_>| match part {
        Component::RootDir => true,
        Component::Normal(name) => !name.as_bytes().contains(&b'%'),
        _ => false,
    };
    directory.is_absolute()
        && directory.components().all(plain)
        && directory.parent().is_some()
        && !["/proc", "/dev", OWN]
            .iter()
            .any(|own| directory.starts_with(own))
}

/// Says which commands are not used. Loud if none is.
fn tell_distrusted(omitted: &mut Vec<Omitted>, slurm: &Slurm, policy: &Policy) {
    for (path, reason) in &slurm.distrusted {
        let asked = policy.slurm.directories.iter().find(|directory| {
            let written = directory.value.to_string();
            path.parent()
                .is_some_and(|parent| parent == Path::new(&written))
        });
        let first = path.ends_with(Command::Squeue.name());
        let named = asked.is_some_and(|rule| rule.source.layer > Layer::Profile);
        // Whoever names a directory does not get another one's commands without a word.
        let loud = first && named || slurm.commands.is_empty() && (first || named);
        omitted.push(Omitted {
            path: path.display().to_string(),
            reason: format!("it {reason}, so it is not used outside the jail"),
            why: match asked {
                Some(rule) => Why::rule("slurm.directories", rule),
                None => Why::key("slurm.mode", &policy.slurm.mode),
            },
            loud,
        });
    }
}

/// Notes of directories whose commands enforced layers do not let be used.
pub fn clamped(policy: &Policy, host: &HostFacts) -> Vec<Clamped> {
    let refused = host.slurm.iter().flat_map(|slurm| &slurm.refused);
    let each = refused.filter_map(|directory| {
        let mut rules = policy.slurm.directories.iter();
        let rule = rules.find(|rule| rule.value.expand(host).as_ref() == Some(directory))?;
        let mut bounds = policy.bounds.layers.iter();
        Some(Clamped {
            key: "slurm.directories",
            asked: rule.clone().map(|path| path.to_string()),
            allowed: bounds.find_map(|layer| layer.slurm.directories.shown())?,
        })
    });
    each.collect()
}

fn missing(program: &str, host: &HostFacts) -> PlanError {
    let directory = host.executable.parent().unwrap_or(Path::new("/"));
    let above = directory.parent().unwrap_or(directory);
    PlanError::new(format!(
        "this host has Slurm, and `{program}` is installed neither in `{}` nor in `{}`",
        directory.display(),
        above.join("libexec/agent-sandbox").display()
    ))
    .hint(format!(
        "install agent-sandbox again with all of its programs, or {OFF}"
    ))
}

/// What runs or is read outside must not be writable inside, whatever the policy gives.
fn unchangeable_inside(tree: &Tree, slurm: &Slurm, files: &dyn Files) -> Result<(), PlanError> {
    let conf = match &slurm.conf {
        Conf::At(path) => Some(path),
        _ => None,
    };
    let commands = slurm.commands.iter().map(|(_, path)| path);
    for path in commands.chain(conf) {
        let Look::Found(found) = files.look(path) else {
            return Err(PlanError::new(format!("`{}` is gone", path.display())));
        };
        let links = found.links.iter().map(|(at, _)| at.as_path());
        let open = links
            .chain([found.real.as_path()])
            .flat_map(Path::ancestors)
            .find(|place| tree.access(place) == Some(Access::Write))
            .and_then(|place| tree.over(place));
        if let Some((open, _)) = open {
            let message = format!(
                "`{}` is used outside the jail, and `{}` is writable inside",
                path.display(),
                open.display()
            );
            return Err(
                PlanError::new(message).hint(format!("take it out of files.write, or {OFF}"))
            );
        }
    }
    Ok(())
}

/// The search path inside: what is ours comes last, so that every name means what it meant. `None` where
/// it stays as it is.
pub fn search_path(path: &std::ffi::OsStr) -> Option<std::ffi::OsString> {
    if path.is_empty() || std::env::split_paths(path).any(|entry| entry == Path::new(SHIMS)) {
        return None;
    }
    let mut longer = path.to_owned();
    longer.push(":");
    longer.push(SHIMS);
    Some(longer)
}
