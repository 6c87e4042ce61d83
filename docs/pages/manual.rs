//! The manual pages: one for the program, one for each subcommand, one for the policy's format.

use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::{PROGRAM, markdown, policy};

/// The heading of all pages.
const MANUAL: &str = "User Commands";
/// Sections of the reference that the program's page repeats, with their titles there.
const SECTIONS: [(&str, &str); 4] = [
    ("Exit codes", "EXIT STATUS"),
    ("Signals and the terminal", "SIGNALS"),
    ("Environment variables", "ENVIRONMENT"),
    ("Files", "FILES"),
];
const REFERENCE: &str = include_str!("../reference/cli.md");

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
    page.push_str(&see_also(name, names));
    Ok(page)
}

/// A page's first line, man(7). There is no date: the version says which program it belongs to, and
/// the same source always gives the same page.
pub(crate) fn title(name: &str, section: &str, version: &str, manual: &str) -> String {
    format!(".TH {name} {section} \"\" \"{PROGRAM} {version}\" \"{manual}\"\n")
}

/// The other pages, the nearest first.
fn see_also(name: &str, names: &[String]) -> String {
    let mut others: Vec<String> = names
        .iter()
        .filter(|other| *other != name && (name == PROGRAM || *other == PROGRAM))
        .map(|other| format!("{other}(1)"))
        .collect();
    others.push(format!("{PROGRAM}.toml(5)"));
    others.push("bwrap(1)".to_owned());
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
