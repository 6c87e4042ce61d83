//! `agent-sandbox profile list` and `profile show`.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::print::{print, print_json};
use crate::cli::Options;
use crate::config::agent::{Agent, Given, HomePath};
use crate::config::diagnostic::nearest;
use crate::config::load::{Owner, ProfileEntry, profiles};
use crate::config::parse::DEFAULT;
use crate::config::source::Sourced;
use crate::failure::{Failure, one_line};
use crate::launch;
use crate::launch::agents::AgentProbe;

/// What a line should not be longer than: the usual width of a terminal.
const WIDTH: usize = 80;

/// The most that a description takes of a line in the list.
const DESCRIPTION: usize = 30;

/// The name under which the built-in policy is shown.
const POLICY: &str = "default";

/// How an owner is called.
fn word(owner: Owner) -> &'static str {
    match owner {
        Owner::BuiltIn => "built in",
        Owner::Site => "site",
        Owner::User => "yours",
    }
}

/// Prints all profiles, and what of their agents is there.
///
/// # Errors
/// One of them is broken.
pub(super) fn list(options: &Options) -> Result<()> {
    let locations = launch::locations()?;
    let all = profiles(&locations)?;
    let probe = AgentProbe::new(&locations.home);
    if options.json {
        let each = all.iter().map(|entry| data(entry, &probe));
        return print_json(&each.collect());
    }
    let rows = all.iter().map(|entry| {
        let program = probe.program(&entry.agent);
        let login = match probe.login(&entry.agent) {
            _ if entry.agent.authentication.is_empty() => "-",
            Some(_) => "yes",
            None => "no",
        };
        Row {
            name: entry.name.clone(),
            login,
            from: word(entry.owner),
            description: shortened(&entry.agent.description, DESCRIPTION),
            installed: program.map_or("-".to_owned(), |program| shown(&program, &locations.home)),
        }
    });
    print(&table(&rows.collect::<Vec<_>>()))
}

/// Prints one profile: what it says, and its text. `default` is the built-in policy.
///
/// # Errors
/// There is none of this name, or one is broken.
pub(super) fn show(name: &str, text: bool, options: &Options) -> Result<()> {
    if name == POLICY {
        return print(DEFAULT);
    }
    let locations = launch::locations()?;
    let all = profiles(&locations)?;
    let Some(entry) = all.iter().find(|entry| entry.name == name) else {
        return Err(unknown(name, &all).into());
    };
    if text {
        return print(&entry.text);
    }
    let probe = AgentProbe::new(&locations.home);
    if options.json {
        return print_json(&data(entry, &probe));
    }
    let summary = summary(entry, &probe, &locations.home);
    print(&format!("{summary}\n{}", entry.text))
}

fn unknown(name: &str, all: &[ProfileEntry]) -> Failure {
    let names = || all.iter().map(|entry| entry.name.as_str()).chain([POLICY]);
    let failure = Failure::new(format!("there is no profile `{name}`"));
    let known: Vec<&str> = names().collect();
    let failure = match nearest(name, names()) {
        Some(near) => failure.hint(format!("did you mean `{near}`?")),
        None => failure,
    };
    failure.hint(format!("known: {}", known.join(", ")))
}

/// A line of the list.
struct Row {
    name: String,
    login: &'static str,
    from: &'static str,
    description: String,
    installed: String,
}

/// The list: a heading and a line each. The programs stand last and are cut at their beginning where
/// the line would be too long.
fn table(rows: &[Row]) -> String {
    let width = |of: fn(&Row) -> &str, heading: &str| {
        let all = rows.iter().map(|row| of(row).chars().count());
        all.chain([heading.len()]).max().unwrap_or(0)
    };
    let name = width(|row| &row.name, "NAME");
    let from = width(|row| row.from, "FROM");
    let description = width(|row| &row.description, "DESCRIPTION");
    let rest = WIDTH.saturating_sub(name + from + description + "LOGIN".len() + 4 * 2);
    let line = |cells: [&str; 5]| {
        let [a, b, c, d, e] = cells;
        let line = format!("{a:name$}  {b:5}  {c:from$}  {d:description$}  {e}");
        format!("{}\n", one_line(line.trim_end()))
    };
    let mut text = line(["NAME", "LOGIN", "FROM", "DESCRIPTION", "INSTALLED"]);
    for row in rows {
        let installed = shortened_at_its_beginning(&row.installed, rest);
        text.push_str(&line([
            &row.name,
            row.login,
            row.from,
            &row.description,
            &installed,
        ]));
    }
    text
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(most.saturating_sub(1)).collect();
    short.truncate(short.trim_end().len());
    short.push('…');
    short
}

fn shortened_at_its_beginning(text: &str, most: usize) -> String {
    let long = text.chars().count();
    if long <= most {
        return text.to_owned();
    }
    let kept = text.chars().skip(long + 1 - most.max(1));
    std::iter::once('…').chain(kept).collect()
}

/// A path as a person would write it.
fn shown(path: &Path, home: &Path) -> String {
    match path.strip_prefix(home) {
        Ok(below) => format!("~/{}", below.display()),
        Err(_) => path.display().to_string(),
    }
}

/// What a profile says, a paragraph for each of its parts.
fn summary(entry: &ProfileEntry, probe: &AgentProbe, home: &Path) -> String {
    let agent = &entry.agent;
    let mut page = Page::default();
    let title = match agent.description.is_empty() {
        true => entry.name.clone(),
        false => format!("{}: {}", entry.name, agent.description),
    };
    page.0.push_str(&format!("{}\n\n", one_line(&title)));
    page.part("file", &entry.file);
    if !agent.commands.is_empty() {
        page.part("commands", &list_of(values(&agent.commands)));
        let program = probe.program(agent);
        page.part(
            "installed",
            &program.map_or("not found in PATH".to_owned(), |program| {
                shown(&program, home)
            }),
        );
        page.part("tried with", agent.seen.as_deref().unwrap_or("no version"));
    }
    if !agent.authentication.is_empty() {
        page.part(
            "logged in",
            &match probe.login(agent) {
                Some(marker) => format!("yes: {marker}"),
                None => "no sign of it".to_owned(),
            },
        );
    }
    page.optional("to log in", agent.login.as_deref());
    page.part(
        "hosts",
        &agent
            .hosts
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", "),
    );
    let state = &agent.state;
    page.part("state", &paths(&state.directories));
    page.part("if shared, too", &paths(&state.files));
    page.part("login files", &paths(&state.login));
    page.part("read-only", &paths(&state.settings));
    if let Some(given) = &agent.instructions {
        page.part("told by", &leads(given));
    }
    page.optional("its own sandbox", agent.nested.as_deref());
    for (at, cannot) in agent.cannot.iter().enumerate() {
        page.part(if at == 0 { "it cannot" } else { "" }, cannot);
    }
    for (at, quirk) in agent.quirks.iter().enumerate() {
        let text = format!("{}: {}", quirk.version, quirk.text);
        page.part(if at == 0 { "quirks" } else { "" }, &text);
    }
    page.0
}

fn values(all: &[Sourced<String>]) -> impl Iterator<Item = &str> {
    all.iter().map(|one| one.value.as_str())
}

fn list_of<'a>(all: impl Iterator<Item = &'a str>) -> String {
    all.collect::<Vec<_>>().join(", ")
}

fn paths(all: &[Sourced<HomePath>]) -> String {
    list_of(all.iter().map(|path| path.value.written()))
}

/// What leads an agent to the text about its jail.
fn leads(given: &Given) -> String {
    match &given.at {
        Some(at) => at.to_string(),
        None if given.arguments.is_empty() => {
            let names = given.variables.iter().map(|(name, _)| name.value.as_str());
            list_of(names)
        }
        None => given.arguments.join(" "),
    }
}

/// Labels, with text beside them that is broken at spaces.
#[derive(Default)]
struct Page(String);

impl Page {
    /// The column in which the text begins: behind the longest label.
    const TEXT: usize = 17;

    fn optional(&mut self, label: &str, text: Option<&str>) {
        self.part(label, text.unwrap_or_default());
    }

    /// Nothing where there is no text.
    fn part(&mut self, label: &str, text: &str) {
        let mut line = format!("{label:width$}", width = Self::TEXT);
        let mut holds = false;
        for word in one_line(text).split(' ').filter(|word| !word.is_empty()) {
            if holds && line.chars().count() + 1 + word.chars().count() > WIDTH {
                self.0.push_str(line.trim_end());
                self.0.push('\n');
                line = " ".repeat(Self::TEXT);
                holds = false;
            }
            if holds {
                line.push(' ');
            }
            line.push_str(word);
            holds = true;
        }
        if holds {
            self.0.push_str(line.trim_end());
            self.0.push('\n');
        }
    }
}

/// A profile as data. Of logins it has the names of files and variables, never what they hold.
fn data(entry: &ProfileEntry, probe: &AgentProbe) -> Value {
    let Agent {
        name: _,
        description,
        commands,
        seen,
        login,
        authentication,
        hosts,
        nested,
        cannot,
        quirks,
        state,
        instructions,
        given,
        ..
    } = &entry.agent;
    let paths = |all: &[Sourced<HomePath>]| -> Vec<String> {
        all.iter().map(|path| path.value.to_string()).collect()
    };
    let names = |given: &Given| given.name.clone();
    json!({
        "name": entry.name,
        "from": word(entry.owner),
        "file": &*entry.file,
        "description": description,
        "commands": values(commands).collect::<Vec<_>>(),
        "installed": probe.program(&entry.agent),
        "seen": seen,
        "login": login,
        "authentication": authentication.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "logged_in": probe.login(&entry.agent).map(ToString::to_string),
        "hosts": hosts,
        "nested": nested,
        "cannot": cannot,
        "quirks": quirks.iter().map(|quirk| json!({ "version": quirk.version, "text": quirk.text }))
            .collect::<Vec<_>>(),
        "state": {
            "directories": paths(&state.directories),
            "files": paths(&state.files),
            "login": paths(&state.login),
            "settings": paths(&state.settings),
        },
        "instructions": instructions.as_ref().map(leads),
        "given": given.iter().map(names).collect::<Vec<_>>(),
        "text": &*entry.text,
    })
}
