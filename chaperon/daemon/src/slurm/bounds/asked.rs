//! What a job asks for, as far as it can be bounded, and what of it is too much.

use std::ffi::OsStr;

use agent_sandbox_wire::bounds::{NameBound, NameKey, SizeBound, SizeKey};

use super::sizes::Sizes;
use super::{Breach, Rules, names};
use crate::slurm::parse::Parsed;

/// What was asked for; or the name of what cannot be understood.
pub type Value<T> = Result<T, &'static str>;

/// How much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So much.
    Of(u64),
    /// Without end.
    Endless,
}

/// What a job asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Names, by their kind; one kind may be there several times.
    pub names: Vec<(NameKey, Value<Vec<String>>)>,
    /// Sizes; what is not there is not asked for.
    pub sizes: Vec<(SizeKey, Value<Amount>)>,
}

/// Which options hold names, of what, and how.
type Reading = fn(&OsStr) -> Option<Vec<String>>;
const NAMED: [(&str, NameKey, Reading, &str); 9] = [
    ("partition", NameKey::Partitions, names::list, "--partition"),
    ("account", NameKey::Accounts, names::list, "--account"),
    ("qos", NameKey::Qos, names::list, "--qos"),
    (
        "reservation",
        NameKey::Reservations,
        names::list,
        "--reservation",
    ),
    (
        "constraint",
        NameKey::Constraints,
        names::features,
        "--constraint",
    ),
    ("prefer", NameKey::Constraints, names::features, "--prefer"),
    ("batch", NameKey::Constraints, names::features, "--batch"),
    ("licenses", NameKey::Licenses, names::licenses, "--licenses"),
    (
        "tres-per-task",
        NameKey::Licenses,
        names::licenses_of_tasks,
        "--tres-per-task",
    ),
];

/// What options ask for.
pub(super) fn by_options(parsed: &Parsed, sizes: &Sizes<'_>) -> Asked {
    let names = NAMED.iter().filter_map(|(long, key, read, option)| {
        let value = parsed.value(long)?;
        Some((*key, read(value).ok_or(*option)))
    });
    // Another way to ask for licenses, of which nobody knows the form.
    let resources = parsed.has("resources").then_some("--resources");
    let resources = resources.map(|option| (NameKey::Licenses, Err(option)));
    let of = |size: Value<u64>| size.map(Amount::Of);
    let mut all = vec![
        (SizeKey::Nodes, of(sizes.nodes().map(|(_, most)| most))),
        (SizeKey::Gpus, of(sizes.gpus())),
        (SizeKey::Cpus, of(sizes.cpus())),
    ];
    let there = |key, size: Value<Option<Amount>>| match size {
        Ok(None) => None,
        Ok(Some(amount)) => Some((key, Ok(amount))),
        Err(option) => Some((key, Err(option))),
    };
    all.extend(there(
        SizeKey::Memory,
        sizes.memory().map(|size| size.map(Amount::Of)),
    ));
    all.extend(there(SizeKey::Minutes, sizes.minutes()));
    all.extend(there(SizeKey::Array, sizes.array()));
    Asked {
        names: names.chain(resources).collect(),
        sizes: all,
    }
}

impl Asked {
    /// A size, if it is a number.
    pub(super) fn size(&self, key: SizeKey) -> Option<u64> {
        self.sizes.iter().find_map(|(known, size)| match size {
            Ok(Amount::Of(size)) if *known == key => Some(*size),
            _ => None,
        })
    }

    /// What of it is too much.
    pub fn breaches(&self, rules: &Rules<'_>) -> Vec<Breach> {
        let names = self.names.iter().flat_map(|(key, asked)| {
            let lists = rules.names(*key);
            lists.filter_map(move |list| refused_name(list, asked))
        });
        let sizes = self.sizes.iter().filter_map(|(key, asked)| {
            let bound = rules.most(*key)?;
            refused_size(bound, asked)
        });
        names.chain(sizes).collect()
    }
}

fn unclear(key: &'static str, source: &str, option: &str) -> Breach {
    let what = format!("the value of {option} is not understood, and the policy bounds it");
    Breach::new(
        key,
        source,
        what,
        "write plain names and numbers".to_owned(),
    )
}

fn refused_name(list: &NameBound, asked: &Value<Vec<String>>) -> Option<Breach> {
    let key = list.key.name();
    let asked = match asked {
        Ok(names) => names,
        Err(option) => return Some(unclear(key, &list.source, option)),
    };
    let name = asked.iter().find(|name| !names::allows(list, name))?;
    let what = match list.key {
        NameKey::Partitions => "partition",
        NameKey::Accounts => "account",
        NameKey::Qos => "QOS",
        NameKey::Reservations => "reservation",
        NameKey::Constraints => "feature",
        NameKey::Licenses => "license",
        NameKey::Options => "option",
    };
    let shown = names::shown(&list.allowed);
    let hint = match (names::nearest(&list.allowed, name), &list.allowed[..]) {
        (Some(nearest), _) => format!("the nearest allowed {what}: {nearest}"),
        (None, []) => "leave it out".to_owned(),
        (None, _) => format!("ask for one that matches {shown}"),
    };
    let text = format!("{what} `{name}`: the policy allows {shown}");
    Some(Breach::new(key, &list.source, text, hint))
}

fn refused_size(bound: &SizeBound, asked: &Value<Amount>) -> Option<Breach> {
    let key = bound.key.name();
    let asked = match asked {
        Ok(Amount::Of(asked)) if *asked <= bound.most => return None,
        Ok(Amount::Of(asked)) => in_words(bound.key, *asked),
        Ok(Amount::Endless) => "a job without time limit".to_owned(),
        Err(option) => return Some(unclear(key, &bound.source, option)),
    };
    let most = in_words(bound.key, bound.most);
    let nearest = match bound.key {
        SizeKey::Nodes => format!("--nodes={}", bound.most),
        SizeKey::Minutes => format!("--time={}", bound.most),
        SizeKey::Gpus | SizeKey::Cpus | SizeKey::Memory | SizeKey::Array => most.clone(),
    };
    Some(Breach::new(
        key,
        &bound.source,
        format!("{asked}: the policy allows {most}"),
        format!("the nearest allowed value: {nearest}"),
    ))
}

fn in_words(key: SizeKey, number: u64) -> String {
    let unit = match key {
        SizeKey::Nodes => "nodes",
        SizeKey::Gpus => "GPUs",
        SizeKey::Cpus => "CPUs",
        SizeKey::Minutes => "minutes",
        SizeKey::Array => "tasks of an array",
        SizeKey::Memory => {
            let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
            let exact = |(shift, _): &&(u32, &str)| number > 0 && number.is_multiple_of(1 << shift);
            return match units.iter().find(exact) {
                Some((shift, unit)) => format!("{} {unit} of memory", number >> shift),
                None => format!("{number} bytes of memory"),
            };
        }
    };
    format!("{number} {unit}")
}
