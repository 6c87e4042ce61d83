//! What is wrong in the text of a policy, and how it is said.

use std::ops::Range;

use super::format::Limit;
use crate::config::diagnostic::nearest;

/// What is wrong in a text, and where.
#[derive(Debug)]
pub(in crate::config) struct Mistake {
    pub(in crate::config) span: Range<usize>,
    pub(in crate::config) what: What,
}

/// What is wrong in a text.
#[derive(Debug)]
pub(in crate::config) enum What {
    /// It is no TOML, in the words of its parser.
    Syntax(String),
    /// An index does not hold it.
    Limit(Limit),
    /// A table has no such key, but these.
    Unknown {
        key: String,
        known: &'static [&'static str],
    },
    /// A table lacks a key that it must have.
    Missing(&'static str),
    /// The value of a key is of another kind.
    Kind {
        key: String,
        expected: &'static Kind,
        found: Found,
    },
    /// The index is not one of this text.
    Torn,
}

/// What a key takes.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::config) enum Kind {
    Text,
    Number,
    Switch,
    Table,
    List(&'static Self),
}

/// What stands there instead: numbers, switches and dates as they are written, a text as what it says.
#[derive(Debug)]
pub(in crate::config) enum Found {
    Text(String),
    Number(String),
    Float(String),
    Switch(String),
    Date(String),
    List,
    Table,
}

impl Mistake {
    /// A message in the words of this program, and a hint.
    ///
    /// `known` answers which sections have a key of this name; it is asked only about unknown keys.
    pub(in crate::config) fn explain(
        &self,
        known: impl Fn(&str) -> Vec<String>,
    ) -> (String, Option<String>) {
        match &self.what {
            What::Syntax(words) => (words.clone(), None),
            What::Limit(Limit::Number) => {
                let message = "64 bits are too few for this whole number";
                (message.to_owned(), None)
            }
            What::Limit(Limit::Depth) => {
                let message = "tables and lists stand in one another deeper than any key has them";
                (message.to_owned(), None)
            }
            What::Unknown { key, known: here } => unknown_key(key, here, &known(key)),
            What::Missing(key) => {
                let message = format!("the key `{key}` is missing");
                (message, Some(format!("write `{key} = …` here")))
            }
            What::Kind {
                key,
                expected,
                found,
            } => wrong_kind(key, expected, found),
            What::Torn => {
                let message =
                    "the index that was built into the program does not fit this text".to_owned();
                (message, Some("build agent-sandbox again".to_owned()))
            }
        }
    }
}

fn unknown_key(key: &str, known: &[&str], elsewhere: &[String]) -> (String, Option<String>) {
    // Only the top of a file, a `[projects."PATH"]` and a `[[when]]` section hold sections; they all
    // have these.
    let sections = known.contains(&"files") && known.contains(&"network");
    let when = if known.contains(&"partition") {
        "when."
    } else {
        ""
    };
    let what = if sections && elsewhere.is_empty() && when.is_empty() {
        "section"
    } else {
        "key"
    };
    let message = format!("unknown {what} `{key}`");
    let hint = if let Some(section) = elsewhere.first() {
        let all = elsewhere
            .iter()
            .map(|name| format!("`[{name}]`"))
            .collect::<Vec<_>>();
        if sections {
            format!(
                "`{key}` is a key of {}: write it below `[{when}{section}]`",
                all.join(" and ")
            )
        } else {
            format!("`{key}` is a key of {}", all.join(" and "))
        }
    } else if let Some(near) = nearest(key, known.iter().copied()) {
        format!("did you mean `{near}`?")
    } else {
        let all = known
            .iter()
            .map(|name| format!("`{name}`"))
            .collect::<Vec<_>>();
        format!("known here: {}", all.join(", "))
    };
    (message, Some(hint))
}

fn wrong_kind(key: &str, expected: &Kind, found: &Found) -> (String, Option<String>) {
    if *expected == Kind::List(&Kind::Table) {
        let hint = (key == "when").then(|| {
            "sections under conditions stand below `[[when]]` in one of the site's files".to_owned()
        });
        return (format!("expected a list of tables: `[[{key}]]`"), hint);
    }
    let found_words = match found {
        Found::Text(text) => format!("the string {text:?}"),
        Found::Number(number) | Found::Float(number) => format!("the number {number}"),
        Found::Switch(word) => word.clone(),
        Found::Date(date) => format!("the date {date}"),
        Found::List => "a list".to_owned(),
        Found::Table => "a table".to_owned(),
    };
    let hint = match (expected, found) {
        (Kind::List(Kind::Text), Found::Text(text)) => Some(format!("write a list: `[{text:?}]`")),
        (Kind::List(Kind::Number), Found::Number(number)) => {
            Some(format!("write a list: `[{number}]`"))
        }
        (Kind::Number | Kind::Switch, Found::Text(_)) => Some("write it without quotes".to_owned()),
        (
            Kind::Text,
            Found::Number(word) | Found::Float(word) | Found::Switch(word) | Found::Date(word),
        ) => Some(format!("put it in quotes: `\"{word}\"`")),
        _ => None,
    };
    let expected = match expected {
        Kind::Text => "a string",
        Kind::Number => "a whole number",
        Kind::Switch => "`true` or `false`",
        Kind::Table => "a table of keys",
        Kind::List(Kind::Number) => "a list of whole numbers",
        Kind::List(_) => "a list of strings",
    };
    (format!("expected {expected}, found {found_words}"), hint)
}
