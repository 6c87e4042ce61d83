//! The option table as the page of the reference.

use std::fmt::Write as _;

use agent_sandbox_wire::command::Command;

use crate::slurm::options::{self, Arity, Kind, Opt, Table, Verdict};

/// The page `docs/reference/slurm.md`.
pub fn reference() -> String {
    let mut page = String::from(INTRODUCTION);
    for command in Command::ALL {
        if let Some(table) = options::table(command) {
            section(&mut page, table);
        }
    }
    page.push_str(
        "\n## Commands that are refused\n\n| command | why, and what instead |\n|---|---|\n",
    );
    for command in Command::ALL {
        if let Some(reason) = options::refused(command) {
            row(&mut page, &[&format!("`{command}`"), reason]);
        }
    }
    page
}

const INTRODUCTION: &str = "\
# Slurm's options

<!-- Written by the program: UPDATE=1 cargo test -p agent-sandbox-chaperon --test options -->

Inside the jail, Slurm's commands are answered by the chaperon. It reads the command line as Slurm does,
judges each option by this table, and writes what passes anew for the real command. Options that are not
here, those of plug-ins among them, are refused by name.

- **passes**: the value is checked, and the real command gets the option.
- **here**: the chaperon does what the option asks for; the real command never sees it.
- **refused**: the command ends with an error that gives this reason.

An option that a variable of the environment stands for is judged in the same way when the variable is
set. `[value]` can be left out and counts only behind `=`, or in the same word behind a short name. The
table covers Slurm 20.11 to 26.05 and says which options not all of these have; `before` names the first release without.
An option that the Slurm on the node has not is refused by that; one that is newer than the table is refused here, and the refusal names
the release. Abbreviations and variables count as this Slurm has them.

`agent-sandbox explain --slurm \"sbatch --uid=0\"` answers from this table.
";

fn section(page: &mut String, table: &Table) {
    let _ = write!(
        page,
        "\n## {}\n\n| option | value | variable | what becomes of it |\n|---|---|---|---|\n",
        table.command
    );
    for option in table.options() {
        let variables = table
            .variables(option)
            .map(|name| format!("`{name}`"))
            .collect::<Vec<_>>()
            .join(", ");
        row(
            page,
            &[
                &match option.releases() {
                    Some(releases) => format!("{} ({releases})", spellings(option)),
                    None => spellings(option),
                },
                &value(option),
                &variables,
                &verdict(option),
            ],
        );
    }
    for (title, lines) in [
        (
            "Variables that reach the real command, checked",
            table
                .kept
                .iter()
                .map(|(name, kind)| format!("`{name}`: {}", noun(*kind)))
                .collect::<Vec<_>>(),
        ),
        (
            "Variables that are left out",
            table
                .dropped
                .iter()
                .map(|(name, reason)| format!("`{name}`: {reason}"))
                .collect(),
        ),
    ] {
        if !lines.is_empty() {
            let _ = write!(page, "\n{title}:\n\n");
            for line in lines {
                let _ = writeln!(page, "- {line}");
            }
        }
    }
}

/// A row of a Markdown table.
fn row(page: &mut String, cells: &[&str]) {
    for cell in cells {
        let _ = write!(page, "| {} ", cell.replace('|', "\\|"));
    }
    page.push_str("|\n");
}

/// All names of an option.
pub(super) fn spellings(option: &Opt) -> String {
    let short = option.short.map(|short| format!("`-{short}`"));
    let longs = option.names().map(|long| format!("`--{long}`"));
    longs.chain(short).collect::<Vec<_>>().join(", ")
}

pub(super) fn value(option: &Opt) -> String {
    match option.arity {
        Arity::None => String::new(),
        Arity::Required => noun(option.kind),
        Arity::Optional => format!("[{}]", noun(option.kind)),
    }
}

/// What a value is called.
fn noun(kind: Kind) -> String {
    match kind {
        Kind::Flag => "",
        Kind::Text => "text",
        Kind::Word => "word",
        Kind::Name => "name",
        Kind::Nodes => "nodes",
        Kind::Number => "number",
        Kind::OneOf(words) => return words.join(" or "),
        Kind::Path => "path",
        Kind::Raw => "anything",
        Kind::Jobs => "job ids",
        Kind::Mail => "addresses",
        Kind::Dependency => "dependency",
        Kind::TimeFormat => "format of times",
        Kind::Time => "time",
        Kind::Format => "format",
    }
    .to_owned()
}

pub(super) fn verdict(option: &Opt) -> String {
    match option.verdict {
        Verdict::Pass => "passes".to_owned(),
        Verdict::Ours(how) => format!("here: {how}"),
        Verdict::Refused(why) => format!("**refused**: {why}"),
    }
}
