//! How a row of the table is written down.

use super::option::{Arity, Kind, Opt, Verdict};
use super::release::Release;
use super::shared::OWN;

/// Stands where an option has no short name.
pub(super) const NO: char = '\0';

/// A row. A flag takes no value; anything else takes one, unless [`Opt::optional`] says otherwise.
pub(super) const fn option(long: &'static str, short: char, kind: Kind, verdict: Verdict) -> Opt {
    Opt {
        long,
        aliases: &[],
        short: if short == NO { None } else { Some(short) },
        arity: if matches!(kind, Kind::Flag) {
            Arity::None
        } else {
            Arity::Required
        },
        kind,
        who: OWN,
        variables: &[],
        many: false,
        verdict,
        since: None,
        until: None,
    }
}

/// A row that passes.
pub(super) const fn pass(long: &'static str, short: char, kind: Kind) -> Opt {
    option(long, short, kind, Verdict::Pass)
}

/// A flag that passes.
pub(super) const fn flag(long: &'static str, short: char) -> Opt {
    pass(long, short, Kind::Flag)
}

/// A row that is carried out on this side.
pub(super) const fn ours(long: &'static str, short: char, kind: Kind, how: &'static str) -> Opt {
    option(long, short, kind, Verdict::Ours(how))
}

/// A row that is refused.
pub(super) const fn no(long: &'static str, short: char, kind: Kind, why: &'static str) -> Opt {
    option(long, short, kind, Verdict::Refused(why))
}

impl Opt {
    pub(super) const fn optional(mut self) -> Self {
        self.arity = Arity::Optional;
        self
    }

    pub(super) const fn many(mut self) -> Self {
        self.many = true;
        self
    }

    /// New in this release.
    pub(super) const fn since(mut self, year: u16, month: u8) -> Self {
        self.since = Some(Release::new(year, month));
        self
    }

    /// Gone with this release.
    pub(super) const fn until(mut self, year: u16, month: u8) -> Self {
        self.until = Some(Release::new(year, month));
        self
    }

    pub(super) const fn alias(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// The variables that stand for it, each with the commands that read it; the weakest first.
    pub(super) const fn reads(mut self, variables: &'static [(u8, &'static str)]) -> Self {
        self.variables = variables;
        self
    }
}
