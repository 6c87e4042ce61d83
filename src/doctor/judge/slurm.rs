//! Slurm, and the way to it. A session starts without it; what asks for it then fails.

use super::super::facts::{Facts, Slurm};
use super::super::line::Finding;
use super::{ask, without};
use crate::host::allocation::Detected;

pub(super) fn commands(facts: &Facts) -> Option<Finding> {
    let Some(slurm) = &facts.slurm else {
        if facts.policy.trouble.is_some() {
            return Some(Finding::degraded(
                "nobody looked: the policy that names its directories cannot be used",
                "see what is broken under Policy",
            ));
        }
        return Some(Finding::ok(
            "none in the directories that slurm.directories names: jails have no Slurm",
        ));
    };
    if let Some(conf) = &slurm.conf {
        return Some(Finding::new(
            without(facts),
            conf,
            "unset SLURM_CONF, or switch Slurm off inside with --set slurm.mode=off",
        ));
    }
    let distrusted = slurm.distrusted.first();
    let Some(directory) = &slurm.directory else {
        let why = distrusted.map_or(String::new(), |(path, why)| {
            format!(": {} {why}", path.display())
        });
        return Some(Finding::degraded(
            format!("found, and none can be trusted{why}"),
            ask(
                "Slurm's commands and the directories above them have to be root's, and not writable by others",
            ),
        ));
    };
    let version = slurm.version.as_deref().unwrap_or("of unknown version");
    let found = format!(
        "{} commands in {} ({version})",
        slurm.commands,
        directory.display()
    );
    Some(match distrusted {
        None => Finding::ok(found),
        Some((path, why)) => Finding::degraded(
            format!("{found}; {} {why}, and is not used", path.display()),
            ask(&format!(
                "{} has to be root's, and not writable by others",
                path.display()
            )),
        ),
    })
}

pub(super) fn programs(facts: &Facts) -> Option<Finding> {
    let slurm = facts.slurm.as_ref()?;
    let missing = [
        ("agent-sandbox-chaperon", &slurm.chaperon),
        ("agent-sandbox-shim", &slurm.shim),
    ]
    .into_iter()
    .filter(|(_, path)| path.is_none())
    .map(|(name, _)| name)
    .collect::<Vec<_>>();
    if let (Some(chaperon), true) = (&slurm.chaperon, missing.is_empty()) {
        let directory = chaperon.parent().unwrap_or(chaperon);
        return Some(Finding::ok(format!(
            "agent-sandbox-chaperon and -shim in {}",
            directory.display()
        )));
    }
    Some(Finding::new(
        without(facts),
        format!("not installed: {}", missing.join(", ")),
        "install agent-sandbox again with all of its programs, side by side",
    ))
}

pub(super) fn controller(facts: &Facts) -> Option<Finding> {
    let slurm = used(facts)?;
    Some(match slurm.controller.as_ref()? {
        Ok(said) => Finding::ok(said),
        Err(said) => Finding::degraded(
            format!("does not answer `scontrol ping`: {said}"),
            ask("is slurmctld up, and can this node reach it? See: scontrol ping"),
        ),
    })
}

pub(super) fn credentials(facts: &Facts) -> Option<Finding> {
    let slurm = used(facts)?;
    // Without a configuration that can be trusted nobody is asked; slurm-commands says so.
    if slurm.conf.is_some() {
        return None;
    }
    if let Some((path, _)) = slurm.credentials.iter().find(|(_, reached)| *reached) {
        return Some(Finding::ok(format!(
            "{} can be reached outside, and in no jail",
            path.display()
        )));
    }
    let answers = matches!(slurm.controller, Some(Ok(_)));
    if answers {
        return Some(Finding::ok(
            "no socket of its own; Slurm answers without it",
        ));
    }
    let places: Vec<String> = slurm
        .credentials
        .iter()
        .map(|(path, _)| path.display().to_string())
        .collect();
    Some(Finding::degraded(
        format!("no socket answers: {}", places.join(", ")),
        ask("is munged or sackd up on this node? See: systemctl status munge (or sackd)"),
    ))
}

pub(super) fn allocation(facts: &Facts) -> Option<Finding> {
    match &used(facts)?.allocation {
        Detected::Nothing => None,
        Detected::Ours(ours) => Some(Finding::ok(format!(
            "job {} ({}): steps of a session run in it; what else a session may do with it: slurm.allocation",
            ours.job,
            ours.size()
        ))),
        Detected::NotUsed { job, why } => Some(Finding::degraded(
            format!("job {job} is not used in a session: it {why}"),
            "unset SLURM_JOB_ID, or start where the job runs",
        )),
    }
}

pub(super) fn chaperon(facts: &Facts) -> Option<Finding> {
    let slurm = facts.slurm.as_ref()?;
    if !slurm.on? {
        return Some(off(slurm));
    }
    Some(match slurm.request.as_ref()? {
        Ok(took) => Finding::ok("a request from a jail to Slurm and back").took(*took),
        Err(said) => Finding::degraded(
            format!("a request from a jail failed: {said}"),
            "try `agent-sandbox -- squeue --version`; what goes wrong outside is then in ~/.local/state/agent-sandbox/slurm/chaperon.log",
        ),
    })
}

/// Slurm, unless jails do not use it.
fn used(facts: &Facts) -> Option<&Slurm> {
    let slurm = facts.slurm.as_ref()?;
    (slurm.on != Some(false)).then_some(slurm)
}

fn off(slurm: &Slurm) -> Finding {
    match slurm.directory {
        Some(_) => Finding::ok("not used: slurm.mode is `off`"),
        None => Finding::degraded(
            "not used: no command of Slurm's can be trusted",
            ask("see slurm-commands"),
        ),
    }
}
