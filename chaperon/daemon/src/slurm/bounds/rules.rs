//! The rules that are about one job.

use agent_sandbox_events::pattern::glob;
use agent_sandbox_wire::bounds::{
    BoundSet, Bounds, JobCondition, NameBound, NameKey, SizeBound, SizeKey,
};

/// What of a job conditions are about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Its account; `None`: nobody knows.
    pub account: Option<String>,
    /// Its partitions; none: nobody knows.
    pub partitions: Vec<String>,
}

/// The sets that are about one job.
#[derive(Clone, Debug)]
pub struct Rules<'a>(Vec<&'a BoundSet>);

impl<'a> Rules<'a> {
    /// Those that may be about a job there: what nobody knows may be anything.
    pub fn about(bounds: &'a Bounds, place: &Place) -> Self {
        Self::matching(bounds, place, true)
    }

    /// Those that are about it whatever is not known.
    pub fn surely_about(bounds: &'a Bounds, place: &Place) -> Self {
        Self::matching(bounds, place, false)
    }

    fn matching(bounds: &'a Bounds, place: &Place, unknown: bool) -> Self {
        let all = bounds.sets.iter();
        Self(all.filter(|set| holds(&set.when, place, unknown)).collect())
    }

    /// The sets.
    pub fn sets(&self) -> impl Iterator<Item = &'a BoundSet> {
        self.0.iter().copied()
    }

    /// The lists of names of one kind.
    pub fn names(&self, key: NameKey) -> impl Iterator<Item = &'a NameBound> {
        let all = self.0.iter().flat_map(|set| &set.names);
        all.filter(move |list| list.key == key)
    }

    /// The options that are denied, each with its place.
    pub fn denied(&self) -> impl Iterator<Item = &'a (String, String)> {
        self.0.iter().flat_map(|set| &set.denied)
    }

    /// Whether some options may not be used.
    pub fn about_options(&self) -> bool {
        self.denied().next().is_some() || self.names(NameKey::Options).next().is_some()
    }

    /// The smallest bound of a size.
    pub fn most(&self, key: SizeKey) -> Option<&'a SizeBound> {
        let all = self.0.iter().flat_map(|set| &set.sizes);
        all.filter(|size| size.key == key)
            .min_by_key(|size| size.most)
    }
}

fn holds(when: &JobCondition, place: &Place, unknown: bool) -> bool {
    let met = |patterns: &Option<Vec<String>>, names: &[String]| match patterns {
        None => true,
        Some(_) if names.is_empty() => unknown,
        Some(patterns) => names.iter().any(|name| {
            let mut patterns = patterns.iter();
            patterns.any(|pattern| glob(pattern.as_bytes(), name.as_bytes()))
        }),
    };
    // Slurm keeps names of accounts in lower case, and compares them so.
    let lower = |patterns: &Vec<String>| patterns.iter().map(|one| one.to_lowercase()).collect();
    let accounts: Option<Vec<String>> = when.accounts.as_ref().map(lower);
    let account: Vec<String> = place.account.iter().map(|one| one.to_lowercase()).collect();
    met(&when.partitions, &place.partitions) && met(&accounts, &account)
}
