//! The book in `docs/`: its summary lists every page once, links and the anchors in them lead
//! somewhere, and the page about installing names what the Makefile offers.

use std::collections::BTreeSet;

/// The targets of the links in a document, with their lines; code left out.
fn targets(markdown: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut code = false;
    for (i, line) in markdown.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            code = !code;
        }
        for rest in line.split("](").skip(1).filter(|_| !code) {
            found.push((i + 1, rest.split([')', ' ']).next().unwrap_or("")));
        }
    }
    found
}

/// A link's path from the root of the tree, where it stands in `file`; none for an address elsewhere.
fn resolve(file: &str, target: &str) -> Option<String> {
    if target.contains(':') {
        return None;
    }
    let target = target.split('#').next().unwrap_or("");
    if target.is_empty() {
        return Some(file.to_owned());
    }
    let mut path: Vec<&str> = file.split('/').collect();
    path.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            ".." => drop(path.pop()),
            "." => {}
            _ => path.push(part),
        }
    }
    Some(path.join("/"))
}

/// The names that headings get: lower case, without punctuation, hyphens for spaces.
pub(crate) fn anchors(markdown: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut code = false;
    for line in markdown.lines() {
        if line.trim_start().starts_with("```") {
            code = !code;
        }
        let text = line.trim_start_matches('#');
        if code || text.len() == line.len() || !text.starts_with(' ') {
            continue;
        }
        let name: String = text
            .trim()
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
            .map(|c| {
                if c == ' ' {
                    '-'
                } else {
                    c.to_ascii_lowercase()
                }
            })
            .collect();
        let mut unique = name.clone();
        let mut next = 1;
        while !found.insert(unique.clone()) {
            unique = format!("{name}-{next}");
            next += 1;
        }
    }
    found
}

/// Complaints about links to files or headings that are not there. `text` is asked for a file's
/// content, by its path from the root; a directory has none.
pub(crate) fn links<'a>(
    file: &str,
    markdown: &str,
    exists: impl Fn(&str) -> bool,
    text: impl Fn(&str) -> Option<&'a str>,
) -> Vec<String> {
    let mut complaints = Vec::new();
    for (line, target) in targets(markdown) {
        let Some(path) = resolve(file, target) else {
            continue;
        };
        if !exists(&path) {
            complaints.push(format!("{file}:{line}: link to nothing: {target}"));
        } else if let Some((_, anchor)) = target.split_once('#')
            && text(&path).is_some_and(|text| !anchors(text).contains(anchor))
        {
            complaints.push(format!("{file}:{line}: no such heading: {target}"));
        }
    }
    complaints
}

/// Complaints about links of a page that lead to nothing where the book is published: out of it, or to
/// a README, which is published as the index of its directory.
pub(crate) fn stays(file: &str, markdown: &str, below: &str) -> Vec<String> {
    let wrong = |target: &str| {
        let path = resolve(file, target)?;
        if !path.starts_with(below) {
            Some("leads out of the book")
        } else if path.ends_with("/README.md") && target.contains("README.md") {
            Some("is published under another name, link to the directory")
        } else {
            None
        }
    };
    targets(markdown)
        .into_iter()
        .filter_map(|(line, target)| Some((line, target, wrong(target)?)))
        .map(|(line, target, why)| format!("{file}:{line}: {why}: {target}"))
        .collect()
}

/// Complaints about files of the tree that a page names between backticks and that are not there. A word in capitals
/// stands for a name.
pub(crate) fn named_files(
    file: &str,
    markdown: &str,
    below: &[&str],
    there: impl Fn(&str) -> bool,
) -> Vec<String> {
    let is_path = |text: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "./-_".contains(c);
        below.iter().any(|dir| text.starts_with(dir)) && text.chars().all(plain)
    };
    let has_name = |text: &str| {
        let words = text.split(|c: char| !c.is_ascii_alphabetic());
        let stands_for = |word: &str| word.len() > 1 && word.chars().all(char::is_uppercase);
        !text.ends_with(".md") && words.clone().any(stands_for)
    };
    markdown
        .lines()
        .zip(1..)
        .flat_map(|(line, number)| {
            line.split('`')
                .skip(1)
                .step_by(2)
                .map(move |text| (number, text))
        })
        .filter(|(_, text)| is_path(text) && !has_name(text) && !there(text))
        .map(|(number, text)| format!("{file}:{number}: there is no {text}"))
        .collect()
}

/// Complaints about a summary that does not list each page once. `pages` are paths from the root.
pub(crate) fn summary<'a>(
    file: &str,
    markdown: &str,
    pages: impl Iterator<Item = &'a str>,
) -> Vec<String> {
    let listed: Vec<String> = targets(markdown)
        .into_iter()
        .filter_map(|(_, target)| resolve(file, target))
        .collect();
    let mut complaints = Vec::new();
    for page in pages.filter(|page| *page != file) {
        let times = listed.iter().filter(|path| *path == page).count();
        if times != 1 {
            complaints.push(format!("{file}: lists {page} {times} times"));
        }
    }
    complaints
}

/// What a Makefile offers: the targets with a `## ` text, and the variables that have a default.
pub(crate) fn offers(makefile: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let target = |line: &str| -> Option<String> {
        let (name, rest) = line.split_once(':')?;
        (rest.contains("## ") && name.chars().all(|c| c.is_ascii_lowercase() || c == '-'))
            .then(|| name.to_owned())
    };
    let variable = |line: &str| -> Option<String> {
        let (name, _) = line.split_once("?=")?;
        let name = name.trim_end();
        name.chars()
            .all(|c| c.is_ascii_alphabetic() || c == '_')
            .then(|| name.to_owned())
    };
    (
        makefile.lines().filter_map(target).collect(),
        makefile.lines().filter_map(variable).collect(),
    )
}

/// Complaints about what a Makefile offers and a page does not name, in backticks or as `make TARGET`.
pub(crate) fn make_reference(makefile: &str, file: &str, markdown: &str) -> Vec<String> {
    let (targets, variables) = offers(makefile);
    let targets = targets
        .iter()
        .filter(|name| !markdown.contains(&format!("`make {name}")))
        .map(|name| format!("{file}: says nothing about `make {name}`"));
    let variables = variables
        .iter()
        .filter(|name| !markdown.contains(&format!("`{name}")))
        .map(|name| format!("{file}: says nothing about `{name}`"));
    targets.chain(variables).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_nothing_is_refused() {
        let exists = |path: &str| path == "docs/a.md" || path == "README.md" || path == "docs/b.md";
        let text = |path: &str| (path != "README.md").then_some("# A `b` c: d\n## [x]\n");
        let check = |markdown| links("docs/b.md", markdown, exists, text);
        let good = "[a](a.md#a-b-c-d) [r](../README.md) [w](https://example.org/#q) [s](#x)\n\
            ```\n[z](z)\n```";
        assert_eq!(check(good), Vec::<String>::new());
        assert_eq!(
            check("x\n[c](c.md)"),
            ["docs/b.md:2: link to nothing: c.md"]
        );
        assert_eq!(
            check("[a](a.md#gone) [b](#y)"),
            [
                "docs/b.md:1: no such heading: a.md#gone",
                "docs/b.md:1: no such heading: #y"
            ]
        );
    }

    #[test]
    fn headings_have_names() {
        let found = anchors("# One, two\n```\n# three\n```\n## `[slurm.limits]`\n# One two\n#x\n");
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        assert_eq!(found, ["one-two", "one-two-1", "slurmlimits"]);
    }

    #[test]
    fn a_link_out_of_the_book_is_refused() {
        let check = |markdown| stays("docs/b.md", markdown, "docs/");
        assert_eq!(check("[a](a/c.md) [w](https://x/)"), Vec::<String>::new());
        assert_eq!(
            check("[r](../README.md)"),
            ["docs/b.md:1: leads out of the book: ../README.md"]
        );
        assert_eq!(check("[g](guide/)"), Vec::<String>::new());
        assert_eq!(check("[g](guide/README.md#x)").len(), 1);
    }

    #[test]
    fn a_file_that_is_named_and_not_there_is_refused() {
        let check = |markdown| named_files("d.md", markdown, &["src/"], |path| path == "src/a.rs");
        assert_eq!(
            check("`src/a.rs`, `b.rs`, `src/NAME.rs`, src/c.rs"),
            Vec::<String>::new()
        );
        assert_eq!(check("x\n`src/b.rs`"), ["d.md:2: there is no src/b.rs"]);
    }

    #[test]
    fn a_page_that_the_summary_lists_not_once_is_refused() {
        let pages = ["docs/SUMMARY.md", "docs/a.md", "docs/b/c.md"];
        let check = |markdown| summary("docs/SUMMARY.md", markdown, pages.into_iter());
        assert_eq!(check("[a](a.md)\n[c](b/c.md)"), Vec::<String>::new());
        assert_eq!(
            check("[a](a.md)\n[a](a.md)"),
            [
                "docs/SUMMARY.md: lists docs/a.md 2 times",
                "docs/SUMMARY.md: lists docs/b/c.md 0 times"
            ]
        );
    }

    #[test]
    fn what_a_makefile_offers_is_named() {
        let makefile = "PREFIX ?= /usr\nx := 1\nbuild: y ## the binaries\ny:\n\tz\n";
        let check = |markdown| make_reference(makefile, "i.md", markdown);
        assert_eq!(check("`make build`, `PREFIX=x`"), Vec::<String>::new());
        assert_eq!(
            check("make"),
            [
                "i.md: says nothing about `make build`",
                "i.md: says nothing about `PREFIX`"
            ]
        );
    }
}
