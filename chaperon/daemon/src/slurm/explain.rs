//! The option table, told to people: `agent-sandbox explain --slurm "sbatch --uid=0"`, and the page
//! of the reference.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;

use agent_sandbox_wire::command::Command;

use super::options::{self, Arity, Kind, Opt, Table, Verdict};
use super::parse::{self, Origin, Word};

/// What becomes of a command line, option by option. The line is split into words as a shell does,
/// with quotes and backslashes; nothing in it is expanded or run.
pub fn explain(line: &str) -> String {
    let words = split(line);
    let Some((name, words)) = words.split_first() else {
        return commands();
    };
    let base = name.rsplit('/').next().unwrap_or_default();
    let Some(command) = Command::named(base.as_bytes()) else {
        return format!("{name} is none of Slurm's commands\n\n{}", commands());
    };
    match options::table(command) {
        Some(table) if words.is_empty() => whole(table),
        Some(table) => given(table, words),
        None => format!(
            "{command} is refused: {}\n",
            options::refused(command).unwrap_or_default()
        ),
    }
}

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
table covers Slurm 20.11 to 26.05; what the installed version does not know, it says itself.

`agent-sandbox explain --slurm \"sbatch --uid=0\"` answers from this table.
";

fn section(page: &mut String, table: &Table) {
    let _ = write!(
        page,
        "\n## {}\n\n| option | value | variable | what becomes of it |\n|---|---|---|---|\n",
        table.command
    );
    for option in table.options {
        let variables = option
            .variables()
            .map(|name| format!("`{name}`"))
            .collect::<Vec<_>>()
            .join(", ");
        row(
            page,
            &[
                &spellings(option),
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
fn spellings(option: &Opt) -> String {
    let short = option.short.map(|short| format!("`-{short}`"));
    let longs = option.names().map(|long| format!("`--{long}`"));
    longs.chain(short).collect::<Vec<_>>().join(", ")
}

fn value(option: &Opt) -> String {
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

fn verdict(option: &Opt) -> String {
    match option.verdict {
        Verdict::Pass => "passes".to_owned(),
        Verdict::Ours(how) => format!("here: {how}"),
        Verdict::Refused(why) => format!("**refused**: {why}"),
    }
}

/// As [`verdict`], for a terminal.
fn judged(option: &Opt) -> String {
    verdict(option).replace("**", "")
}

/// Every command, one a line.
fn commands() -> String {
    let mut text = String::new();
    for command in Command::ALL {
        let _ = match options::refused(command) {
            Some(reason) => writeln!(text, "{command}: refused: {reason}"),
            None => writeln!(text, "{command}: each option is judged"),
        };
    }
    text
}

/// Every option of a command, one a line.
fn whole(table: &Table) -> String {
    let mut text = String::new();
    for option in table.options {
        let _ = writeln!(
            text,
            "{}: {}",
            spellings(option).replace('`', ""),
            judged(option)
        );
    }
    text
}

/// Each option that a command line gives, one a line, and what stops it.
fn given(table: &'static Table, words: &[String]) -> String {
    let words = words.iter().map(OsString::from).collect::<Vec<_>>();
    let mut text = String::new();
    let mut refused = false;
    let scanned = {
        let words = words
            .iter()
            .map(|text| Word {
                text,
                origin: Origin::Argument,
            })
            .collect::<Vec<_>>();
        parse::scan(table, &words, |option, value, _| {
            refused |= matches!(option.verdict, Verdict::Refused(_));
            describe(&mut text, option, value);
            Ok(())
        })
        .map(drop)
    };
    // What is wrong with the words themselves; a refused option has been told already.
    let wrong = match scanned {
        Ok(()) if refused => None,
        Ok(()) => parse::arguments(table, &words).err(),
        Err(refusal) => Some(refusal),
    };
    if let Some(refusal) = &wrong {
        let _ = writeln!(text, "error: {refusal}");
        for hint in &refusal.hints {
            let _ = writeln!(text, "hint: {hint}");
        }
    }
    let _ = if refused || wrong.is_some_and(|refusal| refusal.by_rule) {
        writeln!(text, "{}: this command line is refused", table.command)
    } else {
        writeln!(
            text,
            "{}: no option here is refused; jobs, scope and limits are judged when it runs",
            table.command
        )
    };
    text
}

fn describe(text: &mut String, option: &Opt, value: Option<&OsStr>) {
    let shown = match value {
        Some(value) => format!("{}={}", option.shown(), value.to_string_lossy()),
        None => option.shown(),
    };
    let _ = write!(text, "{shown}: {}", judged(option));
    let variables = option.variables().collect::<Vec<_>>().join(", ");
    if !variables.is_empty() {
        let _ = write!(text, " (so is {variables})");
    }
    text.push('\n');
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
mod tests {
    use super::*;

    #[test]
    fn a_refused_option_is_told_with_its_reason_and_variable() {
        let told = explain("sbatch --uid=0 --get-user-env -N2 job.sh");
        assert!(
            told.contains("--uid=0: refused: jobs run as the user"),
            "{told}"
        );
        assert!(told.contains("(so is SBATCH_GET_USER_ENV)"), "{told}");
        assert!(told.contains("--nodes=2: passes"), "{told}");
        assert!(
            told.ends_with("sbatch: this command line is refused\n"),
            "{told}"
        );
    }

    #[test]
    fn words_that_make_no_sense_are_told() {
        let told = explain("/usr/bin/squeue --fromat=%i");
        assert!(told.contains("unrecognized option '--fromat'"), "{told}");
        assert!(told.contains("did you mean --format?"), "{told}");
        assert!(explain("squeue -u 'a b'").contains("invalid value 'a b'"));
    }

    #[test]
    fn commands_are_told_without_options() {
        assert!(explain("strigger --set").starts_with("strigger is refused: it would run"));
        assert!(explain("srun").contains("--bcast: refused"));
        assert!(explain("").contains("sbcast: refused"));
        assert!(explain("ls").starts_with("ls is none of Slurm's commands"));
    }

    #[test]
    fn a_line_is_split_as_a_shell_does() {
        assert_eq!(
            split(r#"sbatch --wrap 'a b' "c \"d" e\ f '' g"#),
            ["sbatch", "--wrap", "a b", "c \"d", "e f", "", "g"]
        );
    }
}
