//! The manual pages: one for the program, one for each subcommand, one for the policy's format, one for the
//! tracer.

use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::{PROGRAM, markdown, policy};

/// The heading of the pages for users, and of the one for administrators.
const MANUAL: &str = "User Commands";
const ADMINISTRATION: &str = "System Administration";
/// Sections of the reference that the program's page repeats, with their titles there.
const SECTIONS: [(&str, &str); 5] = [
    ("Log", "LOG"),
    ("Exit codes", "EXIT STATUS"),
    ("Signals and the terminal", "SIGNALS"),
    ("Environment variables", "ENVIRONMENT"),
    ("Files", "FILES"),
];
const REFERENCE: &str = include_str!("../reference/cli.md");
/// Sections of the page about the tracer that its manual page repeats, with their titles there.
const TRACER_SECTIONS: [(&str, &str); 4] = [
    ("Privileges", "PRIVILEGES"),
    ("Settings", "FILES"),
    ("Signals and exit codes", "EXIT STATUS"),
    ("What is blind", "LIMITS"),
];
const TRACER: &str = include_str!("../admin/tracer.md");

/// Every page: its file's name and its text.
///
/// # Errors
/// The reference lacks a section that the program's page repeats.
pub(crate) fn pages(command: &Command) -> Result<Vec<(String, String)>> {
    let version = command.get_version().unwrap_or_default().to_owned();
    let mut built = command.clone().after_help("");
    built.build();
    let mut names = vec![PROGRAM.to_owned()];
    names.extend(
        built
            .get_subcommands()
            .map(|sub| format!("{PROGRAM}-{}", sub.get_name())),
    );
    let mut pages = Vec::new();
    for name in &names {
        let own = match name.strip_prefix(PROGRAM).and_then(|n| n.strip_prefix('-')) {
            None => built.clone(),
            // Its usage speaks of `agent-sandbox NAME`, its page is `agent-sandbox-NAME`.
            Some(short) => built
                .find_subcommand(short)
                .context("a subcommand is gone")?
                .clone()
                .display_name(name.clone()),
        };
        let page = page(own, name, &version, &names)?;
        pages.push((format!("{name}.1"), page));
    }
    pages.push((format!("{PROGRAM}.toml.5"), policy::page(&version)?));
    Ok(pages)
}

/// agent-sandbox-tracer(8): the name of its file and its text.
///
/// # Errors
/// The page about the tracer lacks a section that this one repeats.
pub(crate) fn service(mut command: Command, version: &str) -> Result<(String, String)> {
    let name = command.get_name().to_owned();
    command.build();
    // They have no pages of their own.
    let mut commands = Roff::new();
    commands.control("SH", ["COMMANDS"]);
    for own in command.get_subcommands().filter(|own| !own.is_hide_set()) {
        commands.control("TP", []);
        commands.text([bold(own.get_name())]);
        let about = own
            .get_about()
            .context("a command that says nothing of itself")?;
        commands.text([roman(about.to_string())]);
    }
    let man = Man::new(command);
    let mut text = Vec::new();
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    text.extend(commands.render().into_bytes());
    man.render_options_section(&mut text)?;
    let mut page = title(&name, "8", version, ADMINISTRATION);
    page.push_str(&String::from_utf8(text).context("a page that is not UTF-8")?);
    for (heading, title) in TRACER_SECTIONS {
        page.push_str(&markdown::section(TRACER, heading, Some(title))?);
    }
    let others = ["", "-watch", "-report", "-trace"].map(|name| format!("{PROGRAM}{name}(1)"));
    page.push_str(&see_also(&others));
    Ok((format!("{name}.8"), page))
}

fn page(command: Command, name: &str, version: &str, names: &[String]) -> Result<String> {
    let has_options = command
        .get_arguments()
        .any(|argument| !argument.is_hide_set());
    let whole = name == PROGRAM;
    let man = Man::new(command);
    let mut text = Vec::new();
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    let mut page = title(name, "1", version, MANUAL);
    page.push_str(&String::from_utf8(text).context("a page that is not UTF-8")?);
    if whole {
        page.push_str(&markdown::section(REFERENCE, "Command line", None)?);
    }
    let mut text = Vec::new();
    if has_options {
        man.render_options_section(&mut text)?;
    }
    if whole {
        man.render_subcommands_section(&mut text)?;
    }
    page.push_str(&String::from_utf8(text).context("a page that is not UTF-8")?);
    if whole {
        for (heading, title) in SECTIONS {
            page.push_str(&markdown::section(REFERENCE, heading, Some(title))?);
        }
    }
    page.push_str(&see_also_of(name, names));
    Ok(page)
}

/// A page's first line, man(7). There is no date: the version says which program it belongs to, and
/// the same source always gives the same page.
pub(crate) fn title(name: &str, section: &str, version: &str, manual: &str) -> String {
    format!(".TH {name} {section} \"\" \"{PROGRAM} {version}\" \"{manual}\"\n")
}

/// The section of a page about the program, the nearest pages first.
fn see_also_of(name: &str, names: &[String]) -> String {
    let mut others: Vec<String> = names
        .iter()
        .filter(|other| *other != name && (name == PROGRAM || *other == PROGRAM))
        .map(|other| format!("{other}(1)"))
        .collect();
    others.push("bwrap(1)".to_owned());
    see_also(&others)
}

/// The section that names other pages, and the policy's.
fn see_also(others: &[String]) -> String {
    let mut others = others.to_vec();
    others.push(format!("{PROGRAM}.toml(5)"));
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    let mut line = Vec::new();
    for (i, other) in others.iter().enumerate() {
        let (page, section) = other.split_at(other.len() - "(1)".len());
        line.push(bold(page));
        line.push(roman(section));
        if i + 1 < others.len() {
            line.push(roman(", "));
        }
    }
    roff.text(line);
    roff.render()
}
