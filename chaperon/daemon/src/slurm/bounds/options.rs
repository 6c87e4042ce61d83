//! Which options a submission may use, wherever it has them from: the line, the script, a variable.

use agent_sandbox_events::pattern::glob;
use agent_sandbox_wire::bounds::{Bounds, DENIED, NameKey};
use agent_sandbox_wire::command::Command;

use super::{Breach, Rules, names};
use crate::slurm::options::{Opt, Table, table};
use crate::slurm::parse::Parsed;

/// Variables that stand for no option of the table and mean what an option does.
const MEANT: [(&str, &str); 9] = [
    ("SLURM_CPUS_PER_TASK", "cpus-per-task"),
    ("SLURM_STEP_GRES", "gres"),
    ("SLURM_ARBITRARY_NODELIST", "nodelist"),
    ("SLURM_DIST_PLANESIZE", "distribution"),
    ("SBATCH_REQ_SWITCH", "switches"),
    ("SBATCH_WAIT4SWITCH", "switches"),
    ("SALLOC_REQ_SWITCH", "switches"),
    ("SLURM_REQ_SWITCH", "switches"),
    ("SLURM_WAIT4SWITCH", "switches"),
];

const SUBMITTING: [Command; 3] = [Command::Sbatch, Command::Srun, Command::Salloc];

fn every() -> impl Iterator<Item = &'static Opt> {
    let tables = SUBMITTING.into_iter().filter_map(table);
    tables.flat_map(Table::options)
}

/// What of the options is not allowed.
pub(super) fn breaches(rules: &Rules<'_>, parsed: &Parsed) -> Vec<Breach> {
    let meant = parsed.kept.iter().filter_map(|(name, _)| {
        let (_, long) = MEANT.iter().find(|(variable, _)| name == variable)?;
        every().find(|option| option.long == *long)
    });
    let given = parsed.given.iter().map(|given| given.option).chain(meant);
    given
        .filter_map(|option| judged(rules, option.names(), &option.shown()))
        .collect()
}

/// Whether an option, or what means the same, is allowed.
pub(super) fn judged(
    rules: &Rules<'_>,
    names: impl Iterator<Item = &'static str> + Clone,
    shown: &str,
) -> Option<Breach> {
    let fits = |pattern: &String| {
        let mut names = names.clone();
        names.any(|name| glob(pattern.as_bytes(), name.as_bytes()))
    };
    if let Some((_, source)) = rules.denied().find(|(pattern, _)| fits(pattern)) {
        let what = format!("{shown}: the policy does not allow it");
        return Some(Breach::new(DENIED, source, what, "leave it out".to_owned()));
    }
    let mut lists = rules.names(NameKey::Options);
    let list = lists.find(|list| !list.allowed.iter().any(fits))?;
    let what = format!("{shown}: the policy does not allow it");
    let hint = format!("leave it out; allowed: {}", names::shown(&list.allowed));
    Some(Breach::new(list.key.name(), &list.source, what, hint))
}

/// An entry of the policy that names no option: what it was meant to forbid is not forbidden.
pub fn unknown(bounds: &Bounds) -> Option<Breach> {
    let lists = bounds.sets.iter().flat_map(|set| {
        let options = set.names.iter().filter(|list| list.key == NameKey::Options);
        let allowed = options.flat_map(|list| {
            let entries = list.allowed.iter();
            entries.map(|entry| (list.key.name(), entry, &list.source))
        });
        let denied = set.denied.iter();
        allowed.chain(denied.map(|(entry, source)| (DENIED, entry, source)))
    });
    let mut unknown = lists.filter(|(_, entry, _)| {
        !entry.contains('*') && !every().any(|option| option.names().any(|name| name == *entry))
    });
    let (key, entry, source) = unknown.next()?;
    Some(Breach::new(
        key,
        source,
        format!("the policy names an option that Slurm does not have: `{entry}`"),
        "whoever wrote it has to correct it: a long name, without dashes".to_owned(),
    ))
}
