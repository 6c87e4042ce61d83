//! `[slurm.bounds]`: what one job may ask for. What a job asks for becomes a type ([`asked`]), by its options or by
//! what Slurm says of a job that is there, and is held against the rules that are about it ([`rules`]). What
//! cannot be understood where something is bounded is refused.

mod amounts;
mod asked;
mod defaults;
mod job_size;
mod names;
mod node;
mod options;
mod rules;
mod sizes;
mod standing;

use std::ffi::OsString;

use agent_sandbox_wire::bounds::{Bounds, NameKey, SizeKey};

use super::parse::{Origin, Parsed, option_word};
use crate::refusal::{Reason, Refusal};

pub use amounts::{array_tasks, count_nodes, total_gpus};
pub use asked::{Amount, Asked, Value};
pub use defaults::{Defaults, step, submission};
pub use job_size::JobSize;
pub use names::NameList;
pub use node::Node;
pub use options::unknown as unknown_options;
pub use rules::{Place, Rules};
pub use standing::StandingJob;

/// Sizes that depend on what nodes of the job's partitions have.
const OF_NODES: [SizeKey; 3] = [SizeKey::Gpus, SizeKey::Cpus, SizeKey::Memory];

/// More than the policy allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// The key that does not allow it.
    pub key: &'static str,
    /// The file and line, or the option, that say so.
    pub source: String,
    /// As whoever asked is told.
    pub refusal: Refusal,
}

impl Breach {
    fn new(key: &'static str, source: &str, what: String, hint: String) -> Self {
        Self {
            key,
            source: source.to_owned(),
            refusal: Refusal::rule(format!("{what} (`{key}`, {source})"), hint)
                .because(Reason::Key(key)),
        }
    }
}

/// The first of what is too much, if something is.
///
/// # Errors
/// Something is.
pub fn first(breaches: Vec<Breach>) -> Result<(), Refusal> {
    match breaches.into_iter().next() {
        Some(breach) => Err(breach.refusal),
        None => Ok(()),
    }
}

/// Where a job goes: what it names, or what it gets in place of what it does not name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Its account and partitions.
    pub place: Place,
    /// What is added to its options.
    added: Vec<OsString>,
    /// What is not named and has to be.
    breaches: Vec<Breach>,
}

impl Chosen {
    /// By its options, and by what Slurm would choose.
    pub fn of(bounds: &Bounds, parsed: &Parsed, defaults: &Defaults) -> Self {
        let mut chosen = Self::default();
        let named = |long| parsed.value(long).and_then(names::list).unwrap_or_default();
        let account = named("account").into_iter().next();
        let mut place = Place {
            account,
            partitions: named("partition"),
        };
        // A value that is not understood is judged, and replaced by nothing.
        let is_named = |long: &str| parsed.value(long).is_some_and(|value| !value.is_empty());
        if !is_named("account") {
            let rules = Rules::surely_about(bounds, &place);
            let own = chosen.first("--account", NameKey::Accounts, &rules);
            place.account = own.or_else(|| chosen.add("--account", defaults.account.as_deref()?));
        }
        if !is_named("partition") {
            let rules = Rules::surely_about(bounds, &place);
            let own = chosen.first("--partition", NameKey::Partitions, &rules);
            let default = defaults.partition.as_deref();
            let own = own.or_else(|| chosen.add("--partition", default?));
            place.partitions.extend(own);
        }
        if !is_named("qos") {
            chosen.first("--qos", NameKey::Qos, &Rules::about(bounds, &place));
        }
        chosen.place = place;
        chosen
    }

    /// What of Slurm's own choice has to be known, because conditions or sizes are about it: account, partition. Without
    /// a partition a job may be in another one than the default (of its reservation, for example). `counted`: hours are.
    pub fn lacks(&self, bounds: &Bounds, counted: bool) -> (bool, bool) {
        let mut conditions = bounds.sets.iter().map(|set| &set.when);
        let accounts = conditions.clone().any(|when| when.accounts.is_some());
        let partitions = conditions.any(|when| when.partitions.is_some());
        let mut sizes = bounds.sets.iter().flat_map(|set| &set.sizes);
        let of_nodes = sizes.any(|size| OF_NODES.contains(&size.key));
        (
            accounts && self.place.account.is_none(),
            (partitions || of_nodes || counted) && self.place.partitions.is_empty(),
        )
    }

    fn add(&mut self, option: &str, name: &str) -> Option<String> {
        self.added.push(option_word(option, name.as_ref()));
        Some(name.to_owned())
    }

    /// What a job gets that names none: the first name that all lists allow.
    fn first(&mut self, option: &str, key: NameKey, rules: &Rules<'_>) -> Option<String> {
        let lists: Vec<_> = rules.names(key).collect();
        let last = lists.last()?;
        let mut entries = lists.iter().flat_map(|list| &list.allowed);
        let all = |name: &&String| lists.iter().all(|list| names::allows(list, name));
        if let Some(name) = entries.find(|name| !name.contains('*') && all(name)) {
            return self.add(option, name);
        }
        let shown = names::shown(&last.allowed);
        self.breaches.push(Breach::new(
            key.name(),
            &last.source,
            format!("no {option} is given, and the policy allows {shown}"),
            format!("say which: {option}=NAME"),
        ));
        None
    }
}

/// What comes of a submission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// What of it is too much.
    pub breaches: Vec<Breach>,
    /// What has to be added to its options, so that Slurm's own choice is within the bounds as well.
    pub added: Vec<OsString>,
}

/// Judges a submission. `node` is what nodes of its partitions have, where that is known; `tasks` how many tasks it has,
/// where that is known in another way than by its options.
pub fn judge(
    bounds: &Bounds,
    parsed: &Parsed,
    chosen: Chosen,
    node: Option<&Node>,
    tasks: u32,
) -> Judgement {
    let rules = Rules::about(bounds, &chosen.place);
    let Chosen {
        mut added,
        mut breaches,
        ..
    } = chosen;
    breaches.extend(options::breaches(&rules, parsed));
    let sizes = sizes::Sizes::new(parsed, node, tasks);
    let mut large = asked::by_options(parsed, &sizes).breaches(&rules);
    let nodes = sizes.nodes();
    if let (Ok((_, most @ 2..)), false) = (nodes, parsed.has("nodes")) {
        let of_nodes = |breach: &&mut Breach| OF_NODES.iter().any(|key| key.name() == breach.key);
        for breach in large.iter_mut().filter(of_nodes) {
            let hint = format!("it may be on {most} nodes: say how many with --nodes");
            breach.refusal.hints.push(hint);
        }
    }
    breaches.extend(large);
    let bounded = |key| rules.most(key).map(|bound| bound.most);
    let of_nodes = OF_NODES.into_iter().chain([SizeKey::Nodes]);
    if let (true, Ok((least, most))) = (of_nodes.filter_map(bounded).next().is_some(), nodes) {
        // Otherwise the job may get more nodes than were counted, or grow later. A variable may count less than other
        // options for srun.
        added.extend(pinned_nodes(parsed, (least, most)));
    }
    if let (Some(most), false) = (bounded(SizeKey::Minutes), parsed.has("time")) {
        added.push(format!("--time={most}").into());
    }
    if let (Some(most), Ok(Some(mebibytes))) = (bounded(SizeKey::Memory), sizes.default_memory()) {
        let (_, nodes) = nodes.unwrap_or((1, 1));
        let within = (most >> 20) / nodes.max(1);
        added.push(format!("--mem={}M", mebibytes.min(within).max(1)).into());
    }
    Judgement { breaches, added }
}

/// The word that keeps a job on as many nodes as were counted, if its own do not.
fn pinned_nodes(parsed: &Parsed, (least, most): (u64, u64)) -> Option<OsString> {
    match parsed.last("nodes") {
        None if least == most => Some(format!("--nodes={most}").into()),
        None => Some(format!("--nodes={least}-{most}").into()),
        Some(given) if matches!(given.origin, Origin::Variable(_)) => {
            let value = given.value.as_deref();
            value.map(|value| option_word("--nodes", value))
        }
        Some(_) => None,
    }
}

/// What of an option is not allowed to a job that is there.
pub fn judge_option(rules: &Rules<'_>, long: &'static str) -> Option<Breach> {
    options::judged(rules, std::iter::once(long), &format!("--{long}"))
}

#[cfg(test)]
mod tests;
