//! agent-sandbox.toml(5): the built-in policy, whose comments are the reference of every key, as a
//! manual page.

use anyhow::{Result, ensure};
use clap_mangen::roff::{Roff, bold, italic, roman};

use crate::PROGRAM;
use crate::manual::title;
use crate::markdown::inline;

const DEFAULT: &str = include_str!("../../profiles/default.toml");
/// A default value longer than this is not repeated in the page.
const LONGEST_VALUE: usize = 60;

/// What stands between two keys of the file.
#[derive(Default)]
struct Page {
    roff: Roff,
    /// Comment lines that no key has taken yet.
    comments: Vec<&'static str>,
    keys: usize,
    /// Whether the section has text.
    begun: bool,
}

/// The page's text.
///
/// # Errors
/// The built-in policy has no keys that this could read.
pub(crate) fn page(version: &str) -> Result<String> {
    let mut page = Page::default();
    let name = format!("{PROGRAM}.toml");
    page.roff.control("SH", ["NAME"]);
    page.roff
        .text([roman(format!("{name} - the policy of {PROGRAM}(1)"))]);
    page.roff.control("SH", ["DESCRIPTION"]);
    let mut lines = DEFAULT.lines();
    while let Some(line) = lines.next() {
        if let Some(comment) = line.strip_prefix('#') {
            if comment.trim().chars().all(|c| c == '-') && comment.len() > 1 {
                page.paragraphs();
            } else {
                page.comments
                    .push(comment.strip_prefix(' ').unwrap_or(comment));
            }
        } else if line.starts_with('[') {
            page.section(line);
        } else if let Some((key, value)) = line.split_once(" = ") {
            if value == "[" {
                let entries = lines.by_ref().take_while(|line| *line != "]");
                let count = entries.filter(|line| line.trim().starts_with('"')).count();
                page.key(key, &format!("a list of {count} entries"), true);
            } else {
                page.key(key, value, value.len() > LONGEST_VALUE);
            }
        }
    }
    page.roff.control("SH", ["MORE SECTIONS"]);
    page.begun = false;
    page.paragraphs();
    ensure!(page.keys > 0, "no key found in profiles/default.toml");
    page.roff.control("SH", ["SEE ALSO"]);
    page.roff.text([
        bold(PROGRAM),
        roman("(1), "),
        bold(format!("{PROGRAM}-policy")),
        roman("(1)"),
    ]);
    let title = title(&name, "5", version, "File Formats");
    Ok(title + &page.roff.render())
}

impl Page {
    /// Writes the comments that are waiting as paragraphs. Indented lines keep their shape.
    fn paragraphs(&mut self) {
        let comments = std::mem::take(&mut self.comments);
        let blocks = comments.split(|line| line.trim().is_empty());
        for block in blocks.filter(|block| !block.is_empty()) {
            // A section begins a paragraph itself.
            let begin = if self.begun { "PP" } else { "" };
            self.block(block, begin);
            self.begun = true;
        }
    }

    fn block(&mut self, block: &[&str], begin: &str) {
        if block.is_empty() {
            return;
        }
        if !begin.is_empty() {
            self.roff.control(begin, []);
        }
        let mut flow: Vec<&str> = Vec::new();
        let mut literal = false;
        for line in block {
            let indented = line.starts_with("  ");
            if indented != literal {
                self.flow(&mut flow);
                self.roff.control(if indented { "nf" } else { "fi" }, []);
                literal = indented;
            }
            if indented {
                self.roff.text([roman(*line)]);
            } else if let Some(example) = line.strip_prefix("Example: ") {
                self.flow(&mut flow);
                self.roff.control("br", []);
                self.roff.text([italic("Example: "), roman(example)]);
            } else {
                flow.push(line);
            }
        }
        self.flow(&mut flow);
        if literal {
            self.roff.control("fi", []);
        }
    }

    fn flow(&mut self, lines: &mut Vec<&str>) {
        if !lines.is_empty() {
            self.roff.text(inline(&lines.join(" ")));
            lines.clear();
        }
    }

    fn section(&mut self, name: &str) {
        let comments = std::mem::take(&mut self.comments);
        self.roff.control("SH", [name]);
        self.begun = false;
        self.comments = comments;
        self.paragraphs();
    }

    fn key(&mut self, key: &str, value: &str, named_only: bool) {
        self.keys += 1;
        self.begun = true;
        self.roff.control("TP", []);
        self.roff.text([bold(key.trim())]);
        let comments = std::mem::take(&mut self.comments);
        for (i, block) in comments.split(|line| line.trim().is_empty()).enumerate() {
            self.block(block, if i == 0 { "" } else { "IP" });
        }
        self.roff.control("br", []);
        if named_only {
            self.roff.text([
                italic("Default: "),
                roman("see "),
                bold(format!("{PROGRAM} profile show default")),
                roman(if value.starts_with("a list") {
                    format!(" ({value})")
                } else {
                    String::new()
                }),
            ]);
        } else {
            self.roff.text([italic("Default: "), roman(value)]);
        }
    }
}
