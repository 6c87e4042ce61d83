//! Invariants of every plan, checked before anything is started. They are written against the
//! finished steps and share no code with the planner, so that a mistake there ends here.

mod kept;
mod site;
mod trace;

use std::path::{Component, Path, PathBuf};

use agent_sandbox_wire::SOCKET;

use super::slurm::Use;
use super::{Access, Mount, Plan, PlanError};
use crate::host::HostFacts;
use crate::host::files::Files;
use crate::host::slurm::Slurm;
use crate::policy::Policy;

/// Checks a plan.
///
/// # Errors
/// Names the invariant and the step that breaks it. This is a defect of agent-sandbox or a race
/// with somebody who changes files, never a mistake of the user's.
pub fn check(
    plan: &Plan,
    policy: &Policy,
    host: &HostFacts,
    files: &dyn Files,
) -> Result<(), PlanError> {
    let fail =
        |what: String| Err(PlanError::new(format!("refusing an unsafe plan: {what}")).hint(DEFECT));
    for pair in plan.steps.windows(2) {
        if pair[0].at >= pair[1].at {
            return fail(format!(
                "`{}` is mounted after `{}`",
                pair[1].at.display(),
                pair[0].at.display()
            ));
        }
    }
    for step in &plan.steps {
        let at = step.at.display();
        if !plain(&step.at) {
            return fail(format!("`{at}` is not a plain absolute path"));
        }
        let (from, access) = match &step.mount {
            Mount::Bind { from, access, .. } => (from, *access),
            Mount::Device { from } => (from, Access::Write),
            // What may be kept where has checks of its own.
            _ => continue,
        };
        if !plain(from) || from == Path::new("/") {
            return fail(format!("`{}` is not a plain absolute path", from.display()));
        }
        let own_dev = |path: &Path| path.starts_with("/dev") || path.starts_with("/proc");
        if matches!(step.mount, Mount::Bind { .. }) && own_dev(from) {
            return fail(format!("`{at}` comes from the host's /dev or /proc"));
        }
        if ["/run", "/home"]
            .iter()
            .any(|whole| from == Path::new(whole))
            && access == Access::Write
        {
            return fail(format!("`{at}` is writable as a whole"));
        }
        if let Some(rule) = plan.hidden.rule_for(from) {
            return fail(format!(
                "`{at}` shows what files.hide `{}` ({}) hides",
                rule.value, rule.source
            ));
        }
        if access == Access::Write {
            let programs = host.slurm.iter().flat_map(Slurm::programs);
            let own = host.own_directories.iter().chain([&host.executable]);
            for own in own.chain(programs) {
                if reaches(plan, from, own) {
                    return fail(format!("`{at}` makes `{}` writable", own.display()));
                }
            }
            if from == &plan.home || plan.home.starts_with(from) {
                return fail(format!(
                    "`{at}` makes the home directory writable as a whole"
                ));
            }
        }
    }
    for hidden in plan.hidden.existing() {
        for step in &plan.steps {
            let Mount::Bind { from, access, .. } = &step.mount else {
                continue;
            };
            let Ok(below) = hidden.path.strip_prefix(from) else {
                continue;
            };
            // Unreadable for the caller: protected by its mode, unless the mode can be changed.
            if !hidden.readable && *access == Access::Read {
                continue;
            }
            let inside = step.at.join(below);
            if shows(plan, &inside, &hidden.path) && hidden.kind != crate::host::files::Kind::Link {
                let rule = &hidden.rule;
                return fail(format!(
                    "`{}` shows `{}`, which files.hide `{}` ({}) hides",
                    step.at.display(),
                    hidden.path.display(),
                    rule.value,
                    rule.source
                ));
            }
        }
    }
    for place in &host.meeting_places {
        let shown = plan
            .steps
            .iter()
            .any(|step| matches!(&step.mount, Mount::Bind { from, .. } if from.starts_with(place)));
        if shown || shows(plan, place, place) {
            return fail(format!("`{}` is where tasks meet", place.display()));
        }
    }
    check_slurm(plan, host).or_else(fail)?;
    kept::check(plan, host, files).or_else(fail)?;
    site::check(plan, policy, host, files).or_else(fail)?;
    for needed in ["/proc", "/dev", "/tmp", "/run"] {
        if !plan.steps.iter().any(|step| step.at == Path::new(needed)) {
            return fail(format!("`{needed}` is not private"));
        }
    }
    for name in ["ioctl", "io_uring_setup", "bpf", "chmod", "openat2"] {
        if !plan.syscalls.iter().any(|rule| rule.name == name) {
            return fail(format!("the system call filter lacks {name}"));
        }
    }
    for hidden in &plan.hidden_variables {
        if plan
            .variables
            .iter()
            .any(|variable| variable.name == hidden.name)
        {
            return fail(format!(
                "the hidden variable {} passes",
                hidden.name.display()
            ));
        }
    }
    Ok(())
}

/// Slurm's own commands are out of sight where shims stand for them, and the shims' socket has a
/// place of its own.
fn check_slurm(plan: &Plan, host: &HostFacts) -> Result<(), String> {
    if plan.slurm.value != Use::On {
        return Ok(());
    }
    for place in host.slurm.iter().flat_map(|slurm| &slurm.covers) {
        if shows(plan, place, place) {
            return Err(format!("`{}` is Slurm's own", place.display()));
        }
    }
    let socket = plan
        .steps
        .iter()
        .rev()
        .find(|step| Path::new(SOCKET).starts_with(&step.at));
    let private = |step: &super::Step| {
        matches!(step.mount, Mount::Tmpfs { mode: 0o700, .. })
            && Path::new(SOCKET).parent() == Some(&step.at)
    };
    if !socket.is_some_and(private) {
        return Err(format!("`{SOCKET}` has no place of its own"));
    }
    Ok(())
}

const DEFECT: &str =
    "please report this as a defect, with the output of the same command and --dry-run --json";

fn plain(path: &Path) -> bool {
    path.is_absolute()
        && path
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

/// Whether a path inside leads to `target` on the host.
fn shows(plan: &Plan, inside: &Path, target: &Path) -> bool {
    let over = plan
        .steps
        .iter()
        .rev()
        .find(|step| inside.starts_with(&step.at));
    match over.map(|step| (&step.at, &step.mount)) {
        Some((at, Mount::Bind { from, .. })) => {
            let below = inside
                .strip_prefix(at)
                .map(Path::to_path_buf)
                .unwrap_or_default();
            let source: PathBuf = if below.as_os_str().is_empty() {
                from.clone()
            } else {
                from.join(below)
            };
            source == target
        }
        _ => false,
    }
}

/// Whether a writable bind of `from` leads to `own`, or lies in it.
fn reaches(plan: &Plan, from: &Path, own: &Path) -> bool {
    from.starts_with(own) || (own.starts_with(from) && shows(plan, own, own))
}
