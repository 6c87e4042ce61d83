//! Sections of the reference as text for manual pages. Only what the reference uses: paragraphs, tables,
//! code in backticks and in fences, links.

use anyhow::{Context, Result, bail};
use clap_mangen::roff::{Inline, Roff, bold, roman};

/// The text below one heading, up to the next heading of any level, under a title of its own.
///
/// # Errors
/// There is no such heading.
pub(crate) fn section(document: &str, heading: &str, title: Option<&str>) -> Result<String> {
    let is_heading = |line: &str| line.starts_with('#');
    let mut lines = document
        .lines()
        .skip_while(|line| !(is_heading(line) && line.trim_start_matches('#').trim() == heading));
    lines
        .next()
        .with_context(|| format!("the reference has no section `{heading}`"))?;
    let lines: Vec<&str> = lines.take_while(|line| !is_heading(line)).collect();
    let mut roff = Roff::new();
    if let Some(title) = title {
        roff.control("SH", [title]);
    }
    let mut first = title.is_some();
    let blocks = lines.split(|line| line.trim().is_empty());
    for block in blocks.filter(|block| !block.is_empty()) {
        if block[0].starts_with("```") {
            // The usage, which the synopsis has.
            continue;
        } else if block[0].starts_with('|') {
            rows(&mut roff, block)?;
        } else {
            // A section begins a paragraph itself.
            if !first {
                roff.control("PP", []);
            }
            roff.text(inline(&block.join(" ")));
        }
        first = false;
    }
    Ok(roff.render())
}

/// Each row of a table: the first column is what the last explains. Between them may stand what is built in.
fn rows(roff: &mut Roff, block: &[&str]) -> Result<()> {
    for row in block.iter().skip(2) {
        // A bar inside of a cell is written `\|`.
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let (name, meaning) = match cells.as_slice() {
            [name, meaning] => (name, (*meaning).to_owned()),
            [name, built_in, meaning] => (name, format!("{meaning}. Built in: {built_in}.")),
            _ => bail!("not a row of two or three cells: {row}"),
        };
        roff.control("TP", []);
        roff.text(inline(name));
        roff.text(inline(&meaning));
    }
    Ok(())
}

/// One paragraph: code is bold, a link is its text.
pub(crate) fn inline(text: &str) -> Vec<Inline> {
    let mut plain = String::new();
    let mut rest = text;
    // `[text](place)`; brackets without a place stay.
    while let Some(at) = rest.find("](") {
        let (before, after) = rest.split_at(at);
        let end = after.find(')').map_or(after.len(), |end| end + 1);
        match before.rfind('[') {
            Some(open) => {
                plain.push_str(&before[..open]);
                plain.push_str(&before[open + 1..]);
            }
            None => plain.push_str(before),
        }
        rest = &after[end..];
    }
    plain.push_str(rest);
    let plain = plain.replace("\\|", "|");
    plain
        .split('`')
        .enumerate()
        .filter(|(_, part)| !part.is_empty())
        .map(|(i, part)| match i % 2 {
            0 => roman(part),
            _ => bold(part),
        })
        .collect()
}
