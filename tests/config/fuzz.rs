//! Whatever a file holds, `parse` answers, and an error points into the file.

use agent_sandbox::config::load::{RawLayer, parse};
use agent_sandbox::config::source::Layer;
use proptest::prelude::*;

const DEFAULT: &str = include_str!("../../profiles/default.toml");

const LAYERS: [Layer; 5] = [
    Layer::BuiltIn,
    Layer::Profile,
    Layer::User,
    Layer::SiteEnforced,
    Layer::CommandLine,
];

fn check(text: &str) {
    for layer in LAYERS {
        match parse(layer, "F", text) {
            Ok(parsed) => spans_are_inside(&parsed.raw),
            Err(error) => {
                let line = error.line().expect("an error without a line") as usize;
                let lines = text.split('\n').count();
                assert!(
                    (1..=lines).contains(&line),
                    "line {line} of {lines}: {error}"
                );
                let message = error.to_string();
                assert!(message.lines().count() >= 2, "no line is shown: {message}");
                assert!(
                    layer == Layer::CommandLine || message.contains(&format!("--> F:{line}:")),
                    "{message}"
                );
            }
        }
    }
}

fn spans_are_inside(raw: &RawLayer) {
    let lines = raw.text.split('\n').count();
    for path in raw
        .sections
        .files
        .iter()
        .flat_map(|files| files.hide.iter().flatten())
    {
        assert!(raw.text.get(path.span()).is_some(), "{path:?}");
        if let Some(line) = raw.source(path.span()).line {
            assert!((1..=lines).contains(&(line as usize)), "{line}");
        }
    }
}

/// A byte offset of `text` that does not split a letter.
fn boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text(text in any::<String>()) {
        check(&text);
    }

    #[test]
    fn text_that_looks_like_toml(text in r#"([\[\]{}=."',#\\ \n\r\t]|files|read|hide|projects|profile|when|group|"~/a"|set|-?[0-9]{1,25}|true|\PC){0,60}"#) {
        check(&text);
    }

    #[test]
    fn a_part_of_the_default(start in 0..DEFAULT.len(), length in 0usize..3000) {
        let start = boundary(DEFAULT, start);
        let end = boundary(DEFAULT, (start + length).min(DEFAULT.len()));
        check(&DEFAULT[start..end]);
    }

    #[test]
    fn the_default_with_a_hole(start in 0..DEFAULT.len(), length in 0usize..40, instead in r#"([\[\]{}="',#\\ \n]|\PC){0,6}"#) {
        let start = boundary(DEFAULT, start);
        let end = boundary(DEFAULT, (start + length).min(DEFAULT.len()));
        check(&format!("{}{instead}{}", &DEFAULT[..start], &DEFAULT[end..]));
    }
}

#[test]
fn deep_nesting_is_an_error() {
    for text in [
        "[".repeat(200_000),
        "a = ".to_owned() + &"[".repeat(200_000),
        "a = ".to_owned() + &"{a=".repeat(100_000),
        "a".to_owned() + &".a".repeat(200_000) + " = 1",
        "[".to_owned() + &"a.".repeat(200_000) + "a]",
        // The parser bounds each of them, not both at once.
        format!(
            "{}1{}",
            format!("{}a={{", "a.".repeat(70)).repeat(70),
            "}".repeat(70)
        ),
    ] {
        check(&text);
        assert!(parse(Layer::User, "F", &text).is_err());
    }
}
