//! What an option is, and what a table of them.

use agent_sandbox_wire::command::Command;

use super::release::Release;

/// Whether an option takes a value, as `getopt_long(3)` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// It takes none.
    None,
    /// The value follows, after `=` or as the next word.
    Required,
    /// A value counts only after `=` (long) or in the same word (short).
    Optional,
}

/// What a value must look like. Every value is checked before it is written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No value.
    Flag,
    /// Printable text without control characters; goes through as it is, as one word.
    Text,
    /// Letters, digits and `_-.,:;+@%/*=[]()|&^#!~?` (no blanks, no control characters).
    Word,
    /// A [`Kind::Word`] without slashes: nothing that could be read as a path.
    Name,
    /// Node names in Slurm's syntax: letters, digits and `_-.,[]`. No slash: with one, Slurm reads
    /// a file of that name.
    Nodes,
    /// A whole number.
    Number,
    /// One of these words, in any case.
    OneOf(&'static [&'static str]),
    /// A path, any bytes but NUL. Never handed to Slurm.
    Path,
    /// Anything but NUL. Never handed to Slurm.
    Raw,
    /// Job ids in Slurm's syntax; checked against the scope.
    Jobs,
    /// Addresses for mail: the site's mail program gets them as an argument.
    Mail,
    /// A dependency in Slurm's syntax, without `expand`.
    Dependency,
    /// A duration in Slurm's syntax (`minutes`, `h:m:s`, `d-h`, …).
    Time,
    /// A format of times (`strftime(3)`) that stays on its line: no `%n`, no `%t`, no control
    /// characters. Slurm prints it between what users named.
    TimeFormat,
    /// A format of output columns: text, tabs and ends of lines; parsed by the command itself.
    Format,
}

/// What happens to an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Checked and written anew for the real command.
    Pass,
    /// Carried out on this side of Slurm; the reason says how. Never handed to Slurm as it is.
    Ours(&'static str),
    /// Refused, with the reason (a clause that ends a sentence: "it would …").
    Refused(&'static str),
}

/// One option of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opt {
    /// Its long name, without dashes. Options that have only a short name have it here too.
    pub long: &'static str,
    /// Other long names for the same.
    pub aliases: &'static [&'static str],
    /// Its short name.
    pub short: Option<char>,
    /// Whether it takes a value.
    pub arity: Arity,
    /// What the value must look like.
    pub kind: Kind,
    /// Which of the commands of its table have it: bits.
    pub(super) who: u8,
    /// The variables of the environment that stand for it, each with the commands that read it. Each loses to the ones
    /// behind it.
    pub(super) variables: &'static [(u8, &'static str)],
    /// Whether each time that it is given counts (`-vv`, `-j 1 -j 2`), not the last one alone.
    pub many: bool,
    /// What happens to it.
    pub verdict: Verdict,
    /// The first release that has it; none: all that the table covers do.
    pub since: Option<Release>,
    /// The first release that has it no more.
    pub until: Option<Release>,
}

/// The options of a command.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Whose.
    pub command: Command,
    /// The options by long name, also those of commands that share the table.
    pub(super) rows: &'static [Opt],
    /// Which of these commands it is: one bit.
    pub(super) who: u8,
    /// Variables of the environment that change what the command does and stand for no option.
    /// They are dropped; the reason says why.
    pub dropped: &'static [(&'static str, &'static str)],
    /// Variables of the environment that change how the command counts or prints and stand for no
    /// option. They are checked and go to the real command as variables.
    pub kept: &'static [(&'static str, Kind)],
    /// Whether options may stand behind operands (GNU permutation); srun, sbatch and salloc stop at
    /// the first operand.
    pub permutes: bool,
    /// The release of the Slurm that is there, if it is known.
    pub release: Option<Release>,
}

impl Table {
    /// The same for a Slurm of this release.
    #[must_use]
    pub const fn of(mut self, release: Option<Release>) -> Self {
        self.release = release;
        self
    }

    /// The options.
    pub fn options(&self) -> impl Iterator<Item = &'static Opt> + Clone + use<> {
        let who = self.who;
        self.rows.iter().filter(move |option| option.who & who != 0)
    }

    /// The variables that stand for an option, the weakest first.
    pub fn variables(&self, option: &Opt) -> impl Iterator<Item = &'static str> + use<> {
        let who = self.who;
        let all = option.variables.iter();
        all.filter(move |(read_by, _)| read_by & who != 0)
            .map(|(_, name)| *name)
    }

    /// The options that this Slurm has; all where its release is not known.
    pub fn present(&self) -> impl Iterator<Item = &'static Opt> + use<> {
        let release = self.release;
        self.options().filter(move |option| option.is_in(release))
    }

    /// The option of exactly this long name or alias.
    pub fn named(&self, long: &str) -> Option<&'static Opt> {
        self.options()
            .find(|option| option.names().any(|name| name == long))
    }

    /// The option of this short name.
    pub fn short(&self, short: char) -> Option<&'static Opt> {
        self.options().find(|option| option.short == Some(short))
    }

    /// The options that a long name, whole or abbreviated, can mean, as `getopt_long(3)` has it: a
    /// whole name means its option, whatever else begins with it. One that this Slurm has not is meant by its whole name
    /// where that begins no other, and Slurm says itself that it has none.
    pub fn meant_by(&self, name: &str) -> Vec<&'static Opt> {
        let whole = self.named(name);
        // Of a release that is not known nobody can say whether it has this, or has it as the beginning of an older name.
        let unsure = |option: &Opt| {
            let older = |other: &&Opt| other.since.is_none();
            let longer = |long: &str| long != name && long.starts_with(name);
            self.release.is_none()
                && option.since.is_some()
                && self
                    .present()
                    .filter(older)
                    .any(|other| other.names().any(longer))
        };
        if let Some(option) = whole.filter(|option| option.is_in(self.release) && !unsure(option)) {
            return vec![option];
        }
        let begun = |option: &&Opt| option.names().any(|long| long.starts_with(name));
        let abbreviated: Vec<_> = self.present().filter(begun).collect();
        match abbreviated.is_empty() {
            // Until 22.05, --extra was --extra-node-info.
            false => abbreviated,
            true => whole.into_iter().collect(),
        }
    }
}

impl Opt {
    /// Whether a release has it. What is not known is taken for one that has.
    pub fn is_in(&self, release: Option<Release>) -> bool {
        let Some(release) = release else { return true };
        self.since.is_none_or(|since| since <= release)
            && self.until.is_none_or(|until| release < until)
    }

    /// Whether it has no long name, so that `long` is its short one.
    pub fn is_short_only(&self) -> bool {
        self.long.len() == 1
    }

    /// Which releases have it, if not all do: `since 24.05`, `before 23.02`.
    pub fn releases(&self) -> Option<String> {
        let since = self.since.map(|release| format!("since {release}"));
        let until = self.until.map(|release| format!("before {release}"));
        let both = since.into_iter().chain(until).collect::<Vec<_>>();
        (!both.is_empty()).then(|| both.join(", "))
    }

    /// Its long names: the first one, then the aliases. None for what has only a short one.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + Clone + use<> {
        let first = (!self.is_short_only()).then_some(self.long);
        first.into_iter().chain(self.aliases.iter().copied())
    }

    /// How people write it: `--long`, or `-s` for what has only a short name.
    pub fn shown(&self) -> String {
        let dashes = if self.is_short_only() { "-" } else { "--" };
        format!("{dashes}{}", self.long)
    }
}
