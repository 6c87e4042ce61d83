//! Comparing what was said with what was expected, and reading sessions out of documents.

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

/// The steps of every ```console block.
pub(crate) fn sessions(markdown: &str) -> Vec<Vec<Step>> {
    let mut all = Vec::new();
    let mut block: Option<Vec<Step>> = None;
    for (number, line) in markdown.lines().enumerate() {
        match (&mut block, line.trim_end()) {
            (None, "```console") => block = Some(Vec::new()),
            (None, _) => {}
            (Some(_), "```") => all.extend(block.take()),
            (Some(steps), line) => match line.strip_prefix("$ ") {
                Some(command) => steps.push(Step {
                    line: number + 1,
                    command: command.to_owned(),
                    output: String::new(),
                }),
                None => {
                    let step = steps
                        .last_mut()
                        .unwrap_or_else(|| panic!("line {}: output without a command", number + 1));
                    step.output.push_str(line);
                    step.output.push('\n');
                }
            },
        }
    }
    all
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
    assert_eq!(
        sessions(text),
        [vec![step(3, "a b", "out\n\nmore\n"), step(7, "c", "")]]
    );
}
