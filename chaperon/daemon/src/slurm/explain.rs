//! The option table, told to people: `agent-sandbox explain --slurm "sbatch --uid=0"`, and the page
//! of the reference.

mod page;

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;

use agent_sandbox_wire::bounds::Bounds;
use agent_sandbox_wire::command::Command;
use agent_sandbox_wire::explain::{Question, Rule};
use agent_sandbox_wire::text;
use serde::Serialize;

use super::bounds::{self, Chosen, Defaults, Rules, unknown_options};
use super::limits;
use super::options::{self, Opt, Table, Verdict};
use super::parse::{self, Origin, Parsed, Word};
use crate::refusal::Refusal;

pub use page::reference;

/// What no policy changes.
const BY_TABLE: &str = "nothing changes it: the table of options is the same under every policy";

/// What becomes of a command line.
#[derive(Debug, Serialize)]
pub struct Answer {
    /// The command; none if the line names none of Slurm's.
    command: Option<String>,
    /// What becomes of the whole line.
    verdict: Outcome,
    /// Why, and what it does inside.
    reason: String,
    /// The options of the line, or every option of the command.
    options: Vec<OptionVerdict>,
    /// What stops the line.
    errors: Vec<Wrong>,
    /// Keys of the policy that are judged when it runs.
    judged: Vec<Judged>,
    /// How to change it.
    change: Option<String>,
    /// Every command and what becomes of it, where the line names none.
    commands: Vec<OptionVerdict>,
}

/// What becomes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    /// No such command of Slurm's.
    Unknown,
    /// A rule refuses it.
    Refused,
    /// It makes no sense.
    Mistaken,
    /// Nothing in the line is refused.
    Allowed,
    /// The command works; the line gives no option.
    Works,
}

/// An option or a command, and what becomes of it.
#[derive(Debug, Serialize)]
struct OptionVerdict {
    name: String,
    verdict: &'static str,
    why: Option<String>,
    variables: Vec<&'static str>,
    /// The line that people read.
    #[serde(skip)]
    line: String,
}

/// What is wrong with a line.
#[derive(Debug, Serialize)]
struct Wrong {
    message: String,
    hints: Vec<String>,
    /// The key of the policy that decided.
    rule: Option<Judged>,
}

/// A key of the policy.
#[derive(Clone, Debug, Serialize)]
struct Judged {
    key: String,
    value: String,
    source: String,
    change: String,
}

impl From<&Rule> for Judged {
    fn from(rule: &Rule) -> Self {
        Self {
            key: rule.key.clone(),
            value: rule.value.clone(),
            source: rule.source.clone(),
            change: rule.change.clone(),
        }
    }
}

/// The answer, as text or JSON. The line is split into words as a shell does, with quotes and
/// backslashes; nothing in it is expanded or run.
pub fn explain(question: &Question) -> String {
    let answer = Answer::to(question);
    if question.json {
        // Strings and lists of them: nothing that could not be written.
        let text = serde_json::to_string_pretty(&answer).unwrap_or_default() + "\n";
        return text::json(&text).into_owned();
    }
    answer.text()
}

impl Answer {
    fn to(question: &Question) -> Self {
        let words = split(&question.line);
        let Some((name, words)) = words.split_first() else {
            return Self::none(String::new());
        };
        let base = name.rsplit('/').next().unwrap_or_default();
        let Some(command) = Command::named(base.as_bytes()) else {
            return Self::none(format!("{name} is none of Slurm's commands"));
        };
        let mut answer = Self {
            command: Some(command.to_string()),
            verdict: Outcome::Works,
            reason: String::new(),
            options: Vec::new(),
            errors: Vec::new(),
            judged: Vec::new(),
            change: None,
            commands: Vec::new(),
        };
        let Some(table) = options::table(command) else {
            answer.verdict = Outcome::Refused;
            answer.reason = options::refused(command).unwrap_or_default().to_owned();
            answer.change = Some(BY_TABLE.to_owned());
            return answer;
        };
        let keys = keys(command);
        let judged = question
            .rules
            .iter()
            .filter(|rule| keys.iter().any(|key| names(key, &rule.key)));
        answer.judged = judged.map(Judged::from).collect();
        if words.is_empty() {
            answer.reason = inside(command).to_owned();
            answer.options = table.options().map(|option| row(table, option)).collect();
            let mode = question.rules.iter().find(|rule| rule.key == "slurm.mode");
            answer.change = mode.map(|rule| rule.change.clone());
        } else {
            answer.line(table, words, question);
        }
        answer
    }

    fn none(reason: String) -> Self {
        let told = |command: Command| {
            let why = options::refused(command).map(str::to_owned);
            let (verdict, line) = match &why {
                Some(reason) => ("refused", format!("{command}: refused: {reason}")),
                None => ("judged", format!("{command}: each option is judged")),
            };
            OptionVerdict {
                name: command.to_string(),
                verdict,
                why,
                variables: Vec::new(),
                line,
            }
        };
        Self {
            command: None,
            verdict: Outcome::Unknown,
            reason,
            options: Vec::new(),
            errors: Vec::new(),
            judged: Vec::new(),
            change: None,
            commands: Command::ALL.into_iter().map(told).collect(),
        }
    }

    /// Judges the words of a line, option by option.
    fn line(&mut self, table: &'static Table, words: &[String], question: &Question) {
        // An option alone, whose value is left out: the question is about the option.
        if let [only] = words
            && let Some(option) = alone(table, only)
        {
            let refused = matches!(option.verdict, Verdict::Refused(_));
            self.options.push(row(table, option));
            self.verdict = if refused {
                Outcome::Refused
            } else {
                Outcome::Allowed
            };
            self.change = refused.then(|| BY_TABLE.to_owned());
            return;
        }
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let mut refused = false;
        let scanned = {
            let words = words.iter().map(|text| Word {
                text,
                origin: Origin::Argument,
            });
            let words: Vec<Word<'_>> = words.collect();
            parse::scan(table, &words, |option, value, _| {
                refused |= matches!(option.verdict, Verdict::Refused(_));
                self.options.push(given(table, option, value));
                Ok(())
            })
            .map(drop)
        };
        // What is wrong with the words themselves; a refused option has been told already.
        let wrong = match scanned {
            Ok(()) if refused => None,
            Ok(()) => match parse::arguments(table, &words) {
                Ok(parsed) => {
                    self.too_large(table.command, &parsed, question);
                    None
                }
                Err(refusal) => Some(refusal),
            },
            Err(refusal) => Some(refusal),
        };
        let by_rule = refused || wrong.as_ref().is_some_and(|refusal| refusal.by_rule);
        self.verdict = match &wrong {
            _ if by_rule || !self.errors.is_empty() => Outcome::Refused,
            Some(_) => Outcome::Mistaken,
            None => Outcome::Allowed,
        };
        self.change = by_rule.then(|| BY_TABLE.to_owned());
        self.errors
            .extend(wrong.map(|refusal| Wrong::new(refusal, None)));
    }

    /// What of the line is more than `[slurm.bounds]` and `[slurm.limits]` allow. What Slurm would choose is judged when
    /// it runs.
    fn too_large(&mut self, command: Command, parsed: &Parsed, question: &Question) {
        if !matches!(command, Command::Sbatch | Command::Salloc | Command::Srun) {
            return;
        }
        let bounds = &question.bounds;
        let chosen = Chosen::of(bounds, parsed, &Defaults::default());
        // Nobody knows whether a rule is about a job whose place nobody knows.
        let known = Bounds {
            sets: Rules::surely_about(bounds, &chosen.place)
                .sets()
                .cloned()
                .collect(),
        };
        let chosen = Chosen::of(&known, parsed, &Defaults::default());
        let judgement = bounds::judge(&known, parsed, chosen, None, 0);
        let all = unknown_options(bounds).into_iter();
        for breach in all.chain(judgement.breaches) {
            let mut rules = self.judged.iter();
            let rule = rules.find(|rule| rule.key == breach.key && rule.source == breach.source);
            self.errors.push(Wrong::new(breach.refusal, rule.cloned()));
        }
        let added = judgement.added.iter().map(|word| OptionVerdict {
            name: word.to_string_lossy().into_owned(),
            verdict: "added",
            why: Some("the policy bounds it".to_owned()),
            variables: Vec::new(),
            line: format!(
                "{}: added, because the policy bounds it",
                word.to_string_lossy()
            ),
        });
        self.options.extend(added);
        let jobs = limits::check_array(&question.limits.jobs, parsed).err();
        let rule = self
            .judged
            .iter()
            .find(|rule| rule.key == "slurm.limits.jobs");
        let rule = rule.cloned();
        self.errors
            .extend(jobs.map(|refusal| Wrong::new(refusal, rule)));
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for line in self.lines() {
            // Each is one, whatever the words in it are.
            text.push_str(&text::one_line(&line));
            text.push('\n');
        }
        text
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let Some(command) = &self.command else {
            if !self.reason.is_empty() {
                lines.extend([self.reason.clone(), String::new()]);
            }
            lines.extend(self.commands.iter().map(|command| command.line.clone()));
            return lines;
        };
        match self.verdict {
            Outcome::Refused if !self.reason.is_empty() => {
                lines.push(format!("{command} is refused: {}", self.reason));
            }
            Outcome::Works => lines.push(format!("{command}: works inside: {}", self.reason)),
            _ => {}
        }
        lines.extend(self.options.iter().map(|option| option.line.clone()));
        for wrong in &self.errors {
            lines.push(format!("error: {}", wrong.message));
            lines.extend(wrong.hints.iter().map(|hint| format!("hint: {hint}")));
            if let Some(rule) = &wrong.rule {
                let (key, value, source) = (&rule.key, &rule.value, &rule.source);
                lines.push(format!("  rule: {key} = {value} ({source})"));
                lines.push(format!("  change: {}", rule.change));
            }
        }
        if self.verdict != Outcome::Works && self.reason.is_empty() {
            lines.push(format!("{command}: {}", self.verdict.sentence()));
        }
        let change = self.change.iter();
        lines.extend(change.map(|change| format!("  change: {change}")));
        lines.extend(self.judged.iter().map(|rule| {
            let (key, value, source) = (&rule.key, &rule.value, &rule.source);
            format!("  judged when it runs: {key} = {value} ({source})")
        }));
        lines
    }
}

impl Outcome {
    fn sentence(self) -> &'static str {
        match self {
            Self::Unknown => "none of Slurm's commands",
            Self::Refused => "this command line is refused",
            Self::Mistaken | Self::Allowed | Self::Works => {
                "no option here is refused; jobs, scope and limits are judged when it runs"
            }
        }
    }
}

impl Wrong {
    fn new(refusal: Refusal, rule: Option<Judged>) -> Self {
        Self {
            message: refusal.message,
            // The rule says more exactly how to change it.
            hints: if rule.is_some() {
                Vec::new()
            } else {
                refusal.hints
            },
            rule,
        }
    }
}

/// Whether `key` is this key of the policy, or one of this section, which ends with a dot.
fn names(named: &str, key: &str) -> bool {
    key == named || named.ends_with('.') && key.starts_with(named)
}

/// The keys of the policy by which a command is judged when it runs.
fn keys(command: Command) -> &'static [&'static str] {
    match command {
        Command::Sbatch | Command::Salloc | Command::Srun => &[
            "slurm.scope",
            "slurm.limits.jobs",
            "slurm.limits.submissions_per_minute",
            "slurm.limits.submissions_per_day",
            "slurm.budget.",
            "slurm.confirm.",
            "slurm.bounds.",
        ],
        Command::Scancel => &["slurm.scope", "slurm.allocation"],
        Command::Scontrol => &[
            "slurm.scope",
            "slurm.allocation",
            "slurm.queries",
            "slurm.limits.queries_per_minute",
        ],
        _ => &[
            "slurm.scope",
            "slurm.queries",
            "slurm.limits.queries_per_minute",
        ],
    }
}

/// What a command does inside, a clause.
fn inside(command: Command) -> &'static str {
    match command {
        Command::Sbatch | Command::Salloc | Command::Srun => {
            "a stand-in asks the chaperon outside; what it starts runs in a jail under the same policy"
        }
        Command::Scancel | Command::Scontrol => {
            "a stand-in asks the chaperon outside; it changes jobs of the scope alone"
        }
        _ => {
            "a stand-in asks the chaperon outside; of jobs outside the scope it shows what slurm.queries says"
        }
    }
}

/// The option that a word names without its value, if it takes one.
fn alone(table: &'static Table, word: &str) -> Option<&'static Opt> {
    let option = match word.strip_prefix("--") {
        Some(long) if !long.is_empty() && !long.contains('=') => {
            let meant = table.meant_by(long);
            let [only] = meant[..] else { return None };
            only
        }
        Some(_) => return None,
        None => {
            let mut letters = word.strip_prefix('-')?.chars();
            let (Some(letter), None) = (letters.next(), letters.next()) else {
                return None;
            };
            table.short(letter)?
        }
    };
    matches!(option.arity, options::Arity::Required).then_some(option)
}

fn name_of(verdict: Verdict) -> (&'static str, Option<String>) {
    match verdict {
        Verdict::Pass => ("passes", None),
        Verdict::Ours(how) => ("here", Some(how.to_owned())),
        Verdict::Refused(why) => ("refused", Some(why.to_owned())),
    }
}

/// What becomes of an option, for a terminal.
fn judged(option: &Opt) -> String {
    page::verdict(option).replace("**", "")
}

/// An option of the table.
fn row(table: &Table, option: &'static Opt) -> OptionVerdict {
    let name = page::spellings(option).replace('`', "");
    let takes = match page::value(option) {
        value if value.is_empty() => String::new(),
        value => format!(" ({value})"),
    };
    told(table, option, name, takes)
}

/// An option as a line gives it.
fn given(table: &Table, option: &'static Opt, value: Option<&OsStr>) -> OptionVerdict {
    let name = match value {
        Some(value) => format!("{}={}", option.shown(), value.to_string_lossy()),
        None => option.shown(),
    };
    told(table, option, name, String::new())
}

fn told(table: &Table, option: &'static Opt, name: String, takes: String) -> OptionVerdict {
    let (verdict, why) = name_of(option.verdict);
    let variables: Vec<&'static str> = table.variables(option).collect();
    let releases = option.releases().map(|releases| format!(" ({releases})"));
    let mut line = format!(
        "{name}{takes}{}: {}",
        releases.unwrap_or_default(),
        judged(option)
    );
    if !variables.is_empty() {
        let _ = write!(line, " (so is {})", variables.join(", "));
    }
    OptionVerdict {
        name,
        verdict,
        why,
        variables,
        line,
    }
}

/// A line as words: quotes and backslashes hold words together, as in a shell.
fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(letters.next()),
            (None, _) if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests;
