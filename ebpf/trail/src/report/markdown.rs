//! A report as Markdown, to be put into an issue or a page.

use std::fmt::Write;

use super::directories::grouped;
use super::text::{ROWS, about, all, by, heading, how_it_went, program_text, trail_text, unseen};
use super::{Denied, Endpoint, Named, Summary, Ways};
use crate::model::place;
use crate::text::{code, cut, shown};

/// Characters of a cell.
const WIDE: usize = 300;

/// The whole report.
#[must_use]
pub fn markdown(summary: &Summary) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "# Trail: {}\n", plain(&heading(summary)));
    list(&mut out, &about(summary));
    let _ = writeln!(out, "\n## Summary\n");
    list(&mut out, &how_it_went(summary));
    let _ = writeln!(out, "\n## What could not be seen\n");
    list(&mut out, &unseen(&summary.unseen));
    denied(&mut out, "Denied", &summary.denied);
    denied(&mut out, "Would be denied", &summary.would_be_denied);
    table(
        &mut out,
        "Programs",
        &["times", "program"],
        &summary.programs,
        |program| vec![all(&program.ways).to_string(), cell(&program_text(program))],
    );
    files(&mut out, "Files written", &summary.written);
    files(&mut out, "Files read", &summary.read);
    files(&mut out, "Directories listed", &summary.listed);
    endpoints(&mut out, "Connections", &summary.connections);
    endpoints(&mut out, "Listens", &summary.listens);
    let head = ["times", "operation", "on", "denied"];
    table(
        &mut out,
        "Operations",
        &head,
        &summary.operations,
        |operation| {
            vec![
                all(&operation.ways).to_string(),
                cell(&operation.operation),
                cell(&operation.about),
                denied_text(&operation.ways),
            ]
        },
    );
    if summary.trails.len() > 1 {
        let _ = writeln!(out, "\n## Jobs and nodes\n");
        let lines: Vec<String> = summary.trails.iter().map(trail_text).collect();
        list(&mut out, &lines);
    }
    out
}

/// What a page makes a link or a mention of, though nothing marks it: addresses (GitHub Flavored Markdown 0.29,
/// section 6.9), users, issues. No escape prevents all of them.
fn links(text: &str) -> bool {
    let small = text.to_ascii_lowercase();
    let signs = ["@", "#", "://", "www.", "mailto:", "xmpp:", "gh-"];
    signs.iter().any(|sign| small.contains(sign))
}

/// Text between others: what Markdown and HTML would read is escaped (CommonMark 0.31, section 2.4). Where that is not
/// enough, it is code.
fn plain(text: &str) -> String {
    if links(text) {
        // A bar is one here, for it is no cell.
        return code(text).replace("\\|", "|");
    }
    let mut escaped = String::with_capacity(text.len());
    for c in shown(text).chars() {
        if matches!(
            c,
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '|' | '&' | '!' | '~' | '$'
        ) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// How many were denied, and how many did not run.
fn denied_text(ways: &Ways) -> String {
    match ways.not_run {
        0 => ways.denied.to_string(),
        not_run => format!("{}, and {not_run} not run", ways.denied),
    }
}

fn cell(text: &str) -> String {
    code(&cut(text, WIDE))
}

fn list(out: &mut String, lines: &[String]) {
    for line in lines {
        let _ = writeln!(out, "- {}", plain(&cut(line, WIDE)));
    }
}

fn table<T>(
    out: &mut String,
    title: &str,
    head: &[&str],
    rows: &[T],
    cells: impl Fn(&T) -> Vec<String>,
) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n## {title} ({})\n", rows.len());
    let _ = writeln!(
        out,
        "| {} |\n|{}",
        head.join(" | "),
        "---|".repeat(head.len())
    );
    for row in rows.iter().take(ROWS) {
        let _ = writeln!(out, "| {} |", cells(row).join(" | "));
    }
    if rows.len() > ROWS {
        let _ = writeln!(out, "\nAnd {} more.", rows.len() - ROWS);
    }
}

fn denied(out: &mut String, title: &str, rows: &[Denied]) {
    let head = ["times", "what", "on", "holds", "by"];
    table(out, title, &head, rows, |denied| {
        vec![
            denied.count.to_string(),
            cell(&denied.what),
            cell(&denied.on),
            denied.sensitive.unwrap_or_default().to_owned(),
            plain(&by(denied)),
        ]
    });
}

fn files(out: &mut String, title: &str, files: &[Named]) {
    let rows = grouped(files);
    table(
        out,
        title,
        &["times", "path", "files", "holds"],
        &rows,
        |entry| {
            vec![
                entry.count.to_string(),
                cell(&entry.path),
                entry
                    .files
                    .map_or_else(String::new, |files| files.to_string()),
                entry.sensitive.unwrap_or_default().to_owned(),
            ]
        },
    );
}

fn endpoints(out: &mut String, title: &str, rows: &[Endpoint]) {
    let head = ["times", "address", "family", "denied"];
    table(out, title, &head, rows, |endpoint| {
        vec![
            all(&endpoint.ways).to_string(),
            cell(&place(&endpoint.address, endpoint.host.as_deref())),
            cell(&endpoint.family),
            denied_text(&endpoint.ways),
        ]
    });
}
