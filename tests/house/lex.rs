//! Just enough of Rust's lexical structure to read source text without being fooled by comments and
//! strings, and to find the module paths that a file names.

/// A word or a sign of code. Comments, strings, character literals and lifetimes are no tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// An identifier, a number, `::`, or one sign.
    pub(crate) text: String,
    /// Line of its first character, counted from 1.
    pub(crate) line: usize,
}

/// A path below the crate's root that a file names, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    /// `crate::config::source::Layer` is `["config", "source", "Layer"]`.
    pub(crate) segments: Vec<String>,
    /// Line of the path's last segment.
    pub(crate) line: usize,
}

/// The tokens of a source text.
pub(crate) fn tokens(source: &str) -> Vec<Token> {
    let chars: Vec<char> = source.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut out, mut i, mut line) = (Vec::new(), 0, 1);
    while i < chars.len() {
        let c = at(i);
        let end = if c == '/' && at(i + 1) == '/' {
            (i..chars.len())
                .find(|&j| at(j) == '\n')
                .unwrap_or(chars.len())
        } else if c == '/' && at(i + 1) == '*' {
            end_of_block_comment(&chars, i)
        } else if let Some(end) = end_of_string(&chars, i) {
            end
        } else if c == '\'' {
            end_of_quote(&chars, i)
        } else if word(c) {
            let end = (i..chars.len())
                .find(|&j| !word(at(j)))
                .unwrap_or(chars.len());
            out.push(Token {
                text: chars[i..end].iter().collect(),
                line,
            });
            end
        } else if c == ':' && at(i + 1) == ':' {
            out.push(Token {
                text: "::".into(),
                line,
            });
            i + 2
        } else {
            if !c.is_whitespace() {
                out.push(Token {
                    text: c.into(),
                    line,
                });
            }
            i + 1
        };
        line += chars[i..end].iter().filter(|&&c| c == '\n').count();
        i = end;
    }
    out
}

fn end_of_block_comment(chars: &[char], start: usize) -> usize {
    let (mut depth, mut i) = (0, start);
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => (depth, i) = (depth + 1, i + 2),
            ('*', Some('/')) => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            return i;
        }
    }
    chars.len()
}

/// The end of a string literal of any kind (`"…"`, `b"…"`, `c"…"`, `r#"…"#`) that starts at `start`.
fn end_of_string(chars: &[char], start: usize) -> Option<usize> {
    let mut i = start;
    let mut raw = false;
    while let Some(c) = chars.get(i).filter(|c| matches!(c, 'b' | 'c' | 'r')) {
        raw = *c == 'r';
        i += 1;
        if i - start > 2 {
            return None;
        }
    }
    let hashes = chars[i..].iter().take_while(|&&c| c == '#').count();
    if chars.get(i + hashes) != Some(&'"') || (hashes > 0 && !raw) {
        return None;
    }
    i += hashes + 1;
    while i < chars.len() {
        match chars[i] {
            '\\' if !raw => i += 2,
            '"' if chars[i + 1..]
                .iter()
                .take(hashes)
                .filter(|&&c| c == '#')
                .count()
                == hashes =>
            {
                return Some(i + 1 + hashes);
            }
            _ => i += 1,
        }
    }
    Some(chars.len())
}

/// The end of a character literal, or of the tick of a lifetime.
fn end_of_quote(chars: &[char], start: usize) -> usize {
    match (chars.get(start + 1), chars.get(start + 2)) {
        (Some('\\'), _) => {
            // The escaped character itself may be a tick.
            let end = (start + 3..chars.len()).find(|&j| chars[j] == '\'');
            end.map_or(chars.len(), |j| j + 1)
        }
        (Some(_), Some('\'')) => start + 3,
        // A lifetime or a label: its name is no word of interest.
        _ => (start + 1..chars.len())
            .find(|&j| !(chars[j].is_alphanumeric() || chars[j] == '_'))
            .unwrap_or(chars.len()),
    }
}

/// The tokens that ship: without the items under `#[cfg(test)]`.
pub(crate) fn without_tests(tokens: &[Token]) -> Vec<Token> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut out, mut i) = (Vec::new(), 0);
    while i < tokens.len() {
        let here = &tokens[i..];
        if here.len() >= MARK.len() && here.iter().zip(MARK).all(|(t, m)| t.text == m) {
            i = end_of_item(tokens, i + MARK.len());
        } else {
            out.push(tokens[i].clone());
            i += 1;
        }
    }
    out
}

/// The end of the item at `start`: past its `;`, or past its block.
fn end_of_item(tokens: &[Token], start: usize) -> usize {
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate().skip(start) {
        match token.text.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth -= 1;
                if depth == 0 && token.text == "}" {
                    return i + 1;
                }
            }
            ";" if depth == 0 => return i + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// The paths below the crate's root that the tokens of the module `module` name: those that begin
/// with `crate`, with the library's name `krate`, with `self`, with a module that is declared there, or with
/// enough `super`s to get there.
pub(crate) fn paths(tokens: &[Token], module: &[String], krate: &str) -> Vec<Path> {
    let children: Vec<&str> = declared(tokens).collect();
    let mut out = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        // Who may see something is no use of it: `pub(in crate::plan)`.
        let seen_by = i > 1 && tokens[i - 1].text == "in" && tokens[i - 2].text == "(";
        let fresh = !seen_by && (i == 0 || tokens[i - 1].text != "::");
        let next = tokens.get(i + 1).is_some_and(|t| t.text == "::");
        let text = tokens[i].text.as_str();
        if fresh && next && (text == "crate" || text == krate) {
            i = tree(tokens, i + 2, &[], &mut out);
        } else if fresh && next && text == "self" {
            i = tree(tokens, i + 2, module, &mut out);
        } else if fresh && next && children.contains(&text) {
            i = tree(tokens, i, module, &mut out);
        } else if fresh && next && text == "super" {
            let mut base = module.to_vec();
            while tokens.get(i).is_some_and(|t| t.text == "super") {
                base.pop();
                i += 2;
            }
            i = tree(tokens, i, &base, &mut out);
        } else {
            i += 1;
        }
    }
    out
}

/// The modules that have files of their own below these tokens: `mod NAME;`.
fn declared(tokens: &[Token]) -> impl Iterator<Item = &str> {
    let of_three = tokens
        .windows(3)
        .filter(|three| three[0].text == "mod" && three[2].text == ";");
    of_three.map(|three| three[1].text.as_str())
}

/// Reads one path or use tree at `i`, writes out every path in it, and returns where it ends.
fn tree(tokens: &[Token], mut i: usize, prefix: &[String], out: &mut Vec<Path>) -> usize {
    let mut segments = prefix.to_vec();
    while let Some(token) = tokens.get(i) {
        if token.text == "{" {
            i += 1;
            while let Some(token) = tokens.get(i) {
                match token.text.as_str() {
                    "}" => return i + 1,
                    "," => i += 1,
                    _ => {
                        i = tree(tokens, i, &segments, out);
                        // `as NAME`
                        while tokens
                            .get(i)
                            .is_some_and(|t| t.text != "," && t.text != "}")
                        {
                            i += 1;
                        }
                    }
                }
            }
            return i;
        }
        if token.text != "self" {
            segments.push(token.text.clone());
        }
        let more = tokens.get(i + 1).is_some_and(|t| t.text == "::")
            && tokens.get(i + 2).is_some_and(|t| t.text != "<");
        if !more {
            out.push(Path {
                segments,
                line: token.line,
            });
            return i + 1;
        }
        i += 2;
    }
    i
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<String> {
        tokens(source).into_iter().map(|t| t.text).collect()
    }

    fn named(source: &str, module: &[&str]) -> Vec<String> {
        let module: Vec<String> = module.iter().map(|s| (*s).to_owned()).collect();
        let paths = paths(&tokens(source), &module, "agent_sandbox");
        paths.into_iter().map(|p| p.segments.join("::")).collect()
    }

    #[test]
    fn comments_strings_and_quotes_are_no_code() {
        assert_eq!(words("a // b\n/* c /* d */ e */ f"), ["a", "f"]);
        assert_eq!(
            words(r##"a "b \" c" r#"d " e"# b"f" br"g" 'h' '\'' '"' z"##),
            ["a", "z"]
        );
        assert_eq!(
            words("fn f<'a>(x: &'a str)"),
            "fn f < > ( x : & str )".split(' ').collect::<Vec<_>>()
        );
        assert_eq!(words("crate::r"), ["crate", "::", "r"]);
        assert_eq!(tokens("a\n\"x\ny\"\nb").last().map(|t| t.line), Some(4));
    }

    #[test]
    fn test_items_do_not_ship() {
        let source =
            "fn a() {} #[cfg(test)] mod tests { fn b() { c() } } #[cfg(test)] use d; fn e() {}";
        let left: Vec<_> = without_tests(&tokens(source))
            .into_iter()
            .map(|t| t.text)
            .collect();
        assert_eq!(left.join(" "), "fn a ( ) { } fn e ( ) { }");
    }

    #[test]
    fn paths_are_found_however_they_are_written() {
        assert_eq!(
            named("use crate::config::load;", &["plan"]),
            ["config::load"]
        );
        assert_eq!(
            named(
                "use crate::{config::{self, source::{Layer, Source as S}}, host};",
                &[]
            ),
            [
                "config",
                "config::source::Layer",
                "config::source::Source",
                "host"
            ]
        );
        assert_eq!(
            named("fn f() { agent_sandbox::plan::build::<T>(); }", &[]),
            ["plan::build"]
        );
        assert_eq!(
            named("super::super::host::probe()", &["plan", "env"]),
            ["host::probe"]
        );
        assert_eq!(named("super::check()", &["plan", "env"]), ["plan::check"]);
        assert_eq!(
            named("mod load; use self::site::S; load::read()", &["config"]),
            ["config::site::S", "config::load::read"]
        );
        assert_eq!(
            named("other::crate_like::x; \"crate::config\"", &[]),
            Vec::<String>::new()
        );
    }
}
