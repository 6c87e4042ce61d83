//! Documentation that cannot drift: the threat ledger names tests that exist, the reference names
//! every option and every policy key.

use std::collections::BTreeSet;

use crate::lex::{self, Token};

/// A key of the policy: its section and its name, as in `[section] name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// `project`
    pub(crate) section: String,
    /// `parents`
    pub(crate) name: String,
}

/// The names of the functions that a source text defines.
pub(crate) fn functions(text: &str) -> BTreeSet<String> {
    let tokens = lex::tokens(text);
    tokens
        .windows(2)
        .filter(|w| w[0].text == "fn")
        .map(|w| w[1].text.clone())
        .collect()
}

/// The rows of a document's tables, split into cells, with their lines; headings left out.
fn rows(markdown: &str) -> Vec<(usize, Vec<&str>)> {
    let lines: Vec<&str> = markdown.lines().map(str::trim).collect();
    let ruler = |line: &str| line.starts_with('|') && line.chars().all(|c| "|-: ".contains(c));
    let mut found = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let heading = lines.get(i + 1).is_some_and(|next| ruler(next));
        if line.starts_with('|') && !ruler(line) && !heading {
            let cells = line.trim_matches('|').split(" | ").map(str::trim).collect();
            found.push((i + 1, cells));
        }
    }
    found
}

/// The text between pairs of backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Where the tests of a suite stand: each crate below `chaperon/`, `ebpf/` and `network/` is one, the daemon under
/// the program's name. The tracer has tests of its crate, and those on a cluster.
pub(crate) fn places(suite: &str) -> Vec<String> {
    let krate = match suite {
        "wire" | "shim" => format!("chaperon/{suite}"),
        "chaperon" => "chaperon/daemon".to_owned(),
        "attest" | "events" | "tracer" | "trail" => format!("ebpf/{suite}"),
        "hosts" | "filter" | "ssh" => format!("network/{suite}"),
        // Unit tests.
        "lib" => return vec!["src/".to_owned(), "base/src/".to_owned()],
        "landlock" => return vec!["landlock/src/".to_owned()],
        _ => return vec![format!("tests/{suite}/")],
    };
    let mut places = ["tests", "src"]
        .map(|below| format!("{krate}/{below}/"))
        .to_vec();
    if suite == "tracer" {
        places.push("tests/tracer/".to_owned());
    }
    places
}

/// Complaints about the threat ledger: a row without a test, or with one that does not exist.
/// `exists` is asked for a suite and the name of a test function.
pub(crate) fn threats(
    file: &str,
    markdown: &str,
    exists: impl Fn(&str, &str) -> bool,
) -> Vec<String> {
    let rows = rows(markdown);
    if rows.is_empty() {
        return vec![format!("{file}: holds no table")];
    }
    let mut complaints = Vec::new();
    for (line, cells) in rows {
        let tests: Vec<&str> = quoted(cells.last().unwrap_or(&"")).collect();
        if tests.is_empty() {
            complaints.push(format!("{file}:{line}: names no test: {}", cells[0]));
        }
        for test in tests {
            let named = test
                .split_once("::")
                .map(|(suite, rest)| (suite, rest.rsplit("::").next().unwrap_or(rest)));
            match named {
                Some((suite, function)) if exists(suite, function) => {}
                Some(_) => complaints.push(format!("{file}:{line}: no such test: {test}")),
                None => {
                    complaints.push(format!("{file}:{line}: `{test}` is not `suite::test_name`"))
                }
            }
        }
    }
    complaints
}

/// The options that a `--help` text offers, long and short.
pub(crate) fn options(help: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in help
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with('-'))
    {
        // Only the option's own column: its description may speak of others.
        let column = line.split("  ").next().unwrap_or(line);
        for word in column.split([' ', ',', '=', '[', '<']) {
            // One that is counted is shown as `--verbose...`.
            let word = word.trim_end_matches("...");
            if word.len() > 1 && word.starts_with('-') {
                found.insert(word.to_owned());
            }
        }
    }
    found
}

/// The subcommands that a `--help` text offers, `help` itself left out.
pub(crate) fn subcommands(help: &str) -> BTreeSet<String> {
    let block = help
        .lines()
        .skip_while(|line| !matches!(line.trim(), "Commands:" | "Subcommands:"))
        .skip(1);
    block
        .take_while(|line| line.starts_with(' '))
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

/// Complaints about options that the reference leaves out.
pub(crate) fn option_reference(
    command: &str,
    help: &str,
    file: &str,
    markdown: &str,
) -> Vec<String> {
    let known: BTreeSet<&str> = markdown
        .split(|c: char| !(c.is_alphanumeric() || c == '-'))
        .filter(|word| word.starts_with('-'))
        .collect();
    options(help)
        .iter()
        .filter(|option| !known.contains(option.as_str()))
        .map(|option| format!("{file}: says nothing about `{option}` of `{command}`"))
        .collect()
}

/// Complaints about options of a subcommand alone that no line of the reference names together with
/// it: that another subcommand has an option of the same name says nothing.
pub(crate) fn own_options(
    subcommand: &str,
    own: &BTreeSet<String>,
    file: &str,
    markdown: &str,
) -> Vec<String> {
    let words = |line: &str| -> BTreeSet<String> {
        line.split(|c: char| !(c.is_alphanumeric() || c == '-'))
            .map(str::to_owned)
            .collect()
    };
    let lines: Vec<BTreeSet<String>> = markdown.lines().map(words).collect();
    own.iter()
        .filter(|option| {
            !lines
                .iter()
                .any(|line| line.contains(subcommand) && line.contains(*option))
        })
        .map(|option| format!("{file}: no line says what `{option}` of `{subcommand}` does"))
        .collect()
}

/// The keys of `[[when]]`, which stand in the schema itself: the names in front of a `:` in `WhenSection { … }`.
pub(crate) fn conditions(schema: &str) -> Vec<Key> {
    let tokens = lex::tokens(schema);
    let begins = |two: &[Token]| two[0].text == "WhenSection" && two[1].text == "{";
    let Some(start) = tokens.windows(2).position(begins) else {
        return Vec::new();
    };
    let inside = tokens[start + 2..].windows(2);
    inside
        .take_while(|two| two[0].text != "}")
        .filter(|two| two[1].text == ":")
        .map(|two| Key {
            section: "when".to_owned(),
            name: two[0].text.clone(),
        })
        .collect()
}

/// Every key of the table of keys: `NAME: FORM => …` in a `NAME: TYPE { … }`, which may hold another one.
pub(crate) fn keys(table: &str) -> Vec<Key> {
    let tokens = lex::tokens(table);
    let mut open: Vec<Option<&str>> = Vec::new();
    let mut found = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        let behind = |count: usize| tokens.get(i + count).map(|token| token.text.as_str());
        let sections: Vec<&str> = open.iter().copied().flatten().collect();
        let key = || Key {
            section: sections.join("."),
            name: token.text.clone(),
        };
        match (token.text.as_str(), behind(1), behind(3)) {
            ("{", ..) => {
                let name = i.checked_sub(3).filter(|at| tokens[at + 1].text == ":");
                let section = name.map(|at| tokens[at].text.as_str());
                open.push(section);
            }
            ("}", ..) => {
                open.pop();
            }
            (_, Some(":"), Some("=")) => found.push(key()),
            // A section within a section.
            (_, Some(":"), Some("{")) if !sections.is_empty() => found.push(key()),
            _ => {}
        }
    }
    found
}

/// Complaints about keys that the reference leaves out. A key is documented in backticks below a
/// heading that names its section (`## [project]`), or anywhere as `` `project.parents` ``.
pub(crate) fn key_reference(keys: &[Key], file: &str, markdown: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for Key { section, name } in keys {
        let mut here = false;
        let found = markdown.lines().any(|line| {
            if line.starts_with('#') && line.contains('[') {
                here = line.contains(&format!("[{section}]"));
            }
            line.contains(&format!("`{section}.{name}`"))
                || (here && quoted(line).any(|q| q.split([' ', '=']).next() == Some(name)))
        });
        if !found {
            complaints.push(format!("{file}: says nothing about `{section}.{name}`"));
        }
    }
    complaints
}

/// Complaints about keys that the commented default policy leaves out: each stands there with a
/// value, or as a comment (`# key = …`), below its section.
pub(crate) fn key_defaults(keys: &[Key], file: &str, toml: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for Key { section, name } in keys {
        let mut here = false;
        let found = toml.lines().any(|line| {
            let line = line.trim_start_matches(['#', ' ']);
            if line.starts_with('[') {
                here = line.starts_with(&format!("[{section}]"));
            }
            let value = line
                .strip_prefix(name.as_str())
                .is_some_and(|l| l.trim_start().starts_with('='));
            (here && value) || line.starts_with(&format!("[{section}.{name}]"))
        });
        if !found {
            complaints.push(format!("{file}: shows no `{name}` below [{section}]"));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threat_without_a_living_test_is_refused() {
        let exists = |suite: &str, test: &str| (suite, test) == ("confine", "no_key");
        let head = "| attack | defence | test |\n|---|---|---|\n";
        let check = |row: &str| threats("t.md", &format!("{head}{row}"), exists);
        assert_eq!(
            check("| a | `x` | `confine::no_key` |"),
            Vec::<String>::new()
        );
        assert_eq!(
            check("| a | b | `confine::home::no_key` |"),
            Vec::<String>::new()
        );
        assert_eq!(
            check("| a | `confine::no_key` | later |"),
            ["t.md:3: names no test: a"]
        );
        assert_eq!(
            check("| a | b | `confine::gone` |"),
            ["t.md:3: no such test: confine::gone"]
        );
        assert_eq!(
            check("| a | b | `confine::no_key`, `plan::no_key` |").len(),
            1
        );
        assert_eq!(check("| a | b | `no_key` |").len(), 1);
        assert_eq!(check("").len(), 1);
        assert_eq!(
            functions("// fn a()\nfn b() {}")
                .into_iter()
                .collect::<Vec<_>>(),
            ["b"]
        );
    }

    #[test]
    fn suites_are_found_where_they_stand() {
        assert_eq!(places("confine"), ["tests/confine/"]);
        assert_eq!(
            places("chaperon"),
            ["chaperon/daemon/tests/", "chaperon/daemon/src/"]
        );
        assert_eq!(
            places("shim"),
            ["chaperon/shim/tests/", "chaperon/shim/src/"]
        );
    }

    const HELP: &str =
        "Usage: x [OPTIONS]\n\nCommands:\n  policy   Show it\n           more\n  help     This\n
Options:\n  -C, --project <DIR>  Like --other\n      --hide=<PATH>\n  -q, --quiet\n";

    #[test]
    fn an_option_that_the_reference_lacks_is_refused() {
        let all = "`-C`, `--project DIR`, `-q`/`--quiet`, `--hide`";
        assert_eq!(
            option_reference("x", HELP, "cli.md", all),
            Vec::<String>::new()
        );
        let less = "`--projects`, `-C`, `-q`, `--quiet`, `--hide`";
        assert_eq!(
            option_reference("x", HELP, "cli.md", less),
            ["cli.md: says nothing about `--project` of `x`"]
        );
        let own = BTreeSet::from(["--job".to_owned()]);
        let check = |markdown| own_options("log", &own, "cli.md", markdown);
        assert_eq!(check("| `log --job ID` | x |"), Vec::<String>::new());
        assert_eq!(check("| `log` |\n| `top --job` |").len(), 1);
        assert_eq!(
            subcommands(HELP).into_iter().collect::<Vec<_>>(),
            ["policy"]
        );
    }

    const TABLE: &str = "macro_rules! keys { ($then:ident) => { $then! {
        /// x: y
        project: Project { /// z
            parents: Strings => Gives<PathSpec>, paths() \"list of paths\"; }
        env: Env { set: Pairs => Sets, variables(); pass: Strings => Gives<String>, patterns() = A::B;
            [ inner: Inner { most: Number => Single<Limit>, number(0, 1) = Limit::new(0); } ] }
        } } }";

    #[test]
    fn a_key_that_the_reference_lacks_is_refused() {
        let keys = keys(TABLE);
        let names: Vec<_> = keys
            .iter()
            .map(|k| format!("{}.{}", k.section, k.name))
            .collect();
        assert_eq!(
            names,
            [
                "project.parents",
                "env.set",
                "env.pass",
                "env.inner",
                "env.inner.most"
            ]
        );
        let all = "## `[project]`\n| `parents` |\n## `[env]`\n### `set`\n`env.pass` `inner` `env.inner.most`";
        assert_eq!(key_reference(&keys, "p.md", all), Vec::<String>::new());
        let less = "## `[project]`\n`pass`\n## `[env]`\n`parents` `set` `inner` `env.inner.most`";
        assert_eq!(key_reference(&keys, "p.md", less).len(), 2);
    }

    #[test]
    fn a_key_that_the_default_policy_lacks_is_refused() {
        let keys = keys(TABLE);
        let all = "[project]\n# parents = []\n[env]\npass=[]\n[env.set]\n[env.inner]\nmost = 1\n";
        assert_eq!(key_defaults(&keys, "d.toml", all), Vec::<String>::new());
        let less =
            "[project]\nparents_of = 1\n[env]\nparents = []\npass = []\n[env.inner]\nmost = 1\n";
        assert_eq!(key_defaults(&keys, "d.toml", less).len(), 2);
    }

    #[test]
    fn conditions_are_keys_too() {
        let schema = "when: Vec<Spanned<WhenSection>>, with! { /// `[[when]]`
            WhenSection { /// x: y
                group: Option<A<B>>, host: Option<A<B>>, } }";
        let names: Vec<_> = conditions(schema).into_iter().map(|k| k.name).collect();
        assert_eq!(names, ["group", "host"]);
    }
}
