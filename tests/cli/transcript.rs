//! Comparing what was said with what was expected, and reading sessions out of documents.

use std::fs;
use std::path::{Path, PathBuf};

/// Whether a text is as expected. In a line `[..]` stands for any text; a line `...` stands for any
/// number of lines. White space at the end of the text does not count.
pub(crate) fn like(expected: &str, text: &str) -> bool {
    let expected: Vec<&str> = expected.trim_end().lines().collect();
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines_like(&expected, &lines)
}

fn lines_like(expected: &[&str], lines: &[&str]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((&"...", rest)) => (0..=lines.len()).any(|skip| lines_like(rest, &lines[skip..])),
        Some((first, rest)) => lines
            .split_first()
            .is_some_and(|(line, others)| line_like(first, line) && lines_like(rest, others)),
    }
}

fn line_like(expected: &str, line: &str) -> bool {
    let Some((head, rest)) = expected.split_once("[..]") else {
        return expected.trim_end() == line.trim_end();
    };
    let Some(line) = line.strip_prefix(head) else {
        return false;
    };
    let mut ends = line.char_indices().map(|(at, _)| at).chain([line.len()]);
    ends.any(|at| line_like(rest, &line[at..]))
}

/// One command of a session in a document, and what it prints.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) line: usize,
    pub(crate) command: String,
    pub(crate) output: String,
}

/// A ```console block of a document.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Session {
    /// The files that the document shows before it, since the session before: path and content. They
    /// are ```toml blocks whose first line is a comment that holds a path and nothing else.
    pub(crate) files: Vec<(String, String)>,
    pub(crate) steps: Vec<Step>,
    /// What a comment right above the block says of it: `<!-- cluster -->`, `<!-- not checked: WHY -->`.
    pub(crate) mark: Option<String>,
}

/// The path in a comment such as `# ~/.config/agent-sandbox/config.toml`.
fn named_file(line: &str) -> Option<String> {
    let path = line.strip_prefix("# ")?;
    let path = (path.starts_with("~/") || path.starts_with('/')) && !path.contains(' ');
    path.then(|| line["# ".len()..].to_owned())
}

/// Every ```console block, with the steps in it.
pub(crate) fn sessions(markdown: &str) -> Vec<Session> {
    let mut all = Vec::new();
    let mut block: Option<Session> = None;
    let mut mark = None;
    let mut files: Vec<(String, String)> = Vec::new();
    let mut file = false;
    let lines: Vec<&str> = markdown.lines().collect();
    for (number, line) in lines.iter().enumerate() {
        match (&mut block, line.trim_end()) {
            (None, "```toml") => {
                let named = lines.get(number + 1).and_then(|line| named_file(line));
                file = named.is_some();
                files.extend(named.map(|path| (path, String::new())));
            }
            (None, "```") => file = false,
            (None, line) if file => {
                if let Some((_, content)) = files.last_mut() {
                    content.push_str(line);
                    content.push('\n');
                }
            }
            (None, "```console") => {
                block = Some(Session {
                    files: std::mem::take(&mut files),
                    steps: Vec::new(),
                    mark: mark.take(),
                });
            }
            (None, line) => {
                let comment = line
                    .strip_prefix("<!-- ")
                    .and_then(|line| line.strip_suffix(" -->"));
                mark = comment.map(str::to_owned);
            }
            (Some(_), "```") => all.extend(block.take()),
            (Some(session), line) => match line.strip_prefix("$ ") {
                Some(command) => session.steps.push(Step {
                    line: number + 1,
                    command: command.to_owned(),
                    output: String::new(),
                }),
                None => {
                    let step = session
                        .steps
                        .last_mut()
                        .unwrap_or_else(|| panic!("line {}: output without a command", number + 1));
                    step.output.push_str(line);
                    step.output.push('\n');
                }
            },
        }
    }
    assert!(block.is_none(), "a console block has no end");
    all
}

/// The pages of the book, by their paths from the root of the tree.
pub(crate) fn book(root: &Path) -> Vec<String> {
    fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|end| end == "md") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root.join("docs"), &mut found);
    found.sort();
    let below = |path: &PathBuf| path.strip_prefix(root).unwrap().display().to_string();
    found.iter().map(below).collect()
}

#[test]
fn texts_are_compared() {
    for (expected, text, fits) in [
        ("", "", true),
        ("", "\n", true),
        ("", "x", false),
        ("a [..] c", "a b b c", true),
        ("a [..] c", "a b d", false),
        ("[..]", "", false),
        ("[..]x[..]", "axb", true),
        ("...", "", true),
        ("a\n...\nb", "a\nx\ny\nb\n", true),
        ("a\n...\nb", "a\nx", false),
        ("...\nb\n...", "a\nb\nc", true),
    ] {
        assert_eq!(like(expected, text), fits, "{expected:?} {text:?}");
    }
}

#[test]
fn sessions_are_read() {
    let text = "x\n```console\n$ a b\nout\n\nmore\n$ c\n```\n```sh\n$ d\n```\n";
    let step = |line, command: &str, output: &str| Step {
        line,
        command: command.into(),
        output: output.into(),
    };
    let session = |mark: Option<&str>, steps| Session {
        files: Vec::new(),
        steps,
        mark: mark.map(str::to_owned),
    };
    assert_eq!(
        sessions(text),
        [session(
            None,
            vec![step(3, "a b", "out\n\nmore\n"), step(7, "c", "")]
        )]
    );
    let text = "<!-- cluster -->\n```console\n$ a\n```\n<!-- x -->\n\n```console\n$ b\n```\n";
    assert_eq!(
        sessions(text),
        [
            session(Some("cluster"), vec![step(3, "a", "")]),
            session(None, vec![step(8, "b", "")])
        ]
    );
    let text = "```toml\n# ~/a.toml\n[x]\n```\n```toml\ny = 1\n```\n```console\n$ a\n```\n";
    let mut shown = session(None, vec![step(9, "a", "")]);
    shown.files = vec![("~/a.toml".into(), "# ~/a.toml\n[x]\n".into())];
    assert_eq!(sessions(text), [shown]);
}
