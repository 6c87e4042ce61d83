//! The forms in which TOML writes texts, keys and numbers: what a policy holds is what `toml` reads by itself, and stands where
//! it is written.

use agent_sandbox::config::load::parse;
use agent_sandbox::config::schema::Sections;
use agent_sandbox::config::source::Layer;

/// Texts in all forms, each as it is written.
const TEXTS: [&str; 14] = [
    "''",
    r#""""#,
    "'x'",
    r#""x""#,
    r"'a\b'",
    r#""a\\b\tc\u00e9\U0001F600\"""#,
    r#""größe""#,
    "'größe'",
    "\"\"\"\n  a\r\n  b\"\"\"",
    "\"\"\"a \\\n   b\"\"\"",
    "'''\na\\n\r\nb'''",
    "''''a''''",
    "\"\"\"\"a\"\"\"\"",
    r#""\"""#,
];

const KEYS: [&str; 8] = [
    "A",
    r#""A""#,
    "'A'",
    r#""größe""#,
    "'größe'",
    r#""\u0041""#,
    "'a.b'",
    r#""""#,
];

/// What the loader and what `toml` make of a text.
#[track_caller]
fn both(text: &str) -> (Sections, toml::Table) {
    let parsed = parse(Layer::User, "F", text).unwrap_or_else(|error| panic!("{text}: {error}"));
    (parsed.raw.sections, toml::from_str(text).unwrap())
}

#[test]
fn texts() {
    for form in TEXTS {
        for (lead, end) in [
            ("[env]\nset.A = ", "\n"),
            ("\u{feff}env = { set = { A = ", " } }\r\n"),
        ] {
            let text = format!("{lead}{form}{end}");
            let (sections, table) = both(&text);
            let set = sections.env.unwrap().set.unwrap();
            let (_, value) = set.first_key_value().unwrap();
            let meant = table["env"]["set"]["A"].as_str();
            assert_eq!(Some(value.get_ref().as_ref()), meant, "{text}");
            assert_eq!(text.get(value.span()), Some(form), "{text}");
        }
    }
}

#[test]
fn keys() {
    for key in KEYS {
        for (lead, end) in [
            ("[env]\nset.", " = 'x'\n"),
            ("[env.set]\n", " = 'x'\n"),
            ("env.set = {", "='x'}\n"),
        ] {
            let text = format!("{lead}{key}{end}");
            let (sections, table) = both(&text);
            let set = sections.env.unwrap().set.unwrap();
            let (name, _) = set.first_key_value().unwrap();
            let mut meant = table["env"]["set"].as_table().unwrap().keys();
            let meant = meant.next().map(String::as_str);
            assert_eq!(Some(name.get_ref().as_ref()), meant, "{text}");
            assert_eq!(text.get(name.span()), Some(key), "{text}");
        }
    }
}

#[test]
fn numbers() {
    let (first, last) = (i64::MIN.to_string(), i64::MAX.to_string());
    for form in [
        "0", "0x1F", "0o17", "0b101", "1_000", "-1", "+7", &first, &last,
    ] {
        let text = format!("[files]\ntimeout_ms = {form} # {form}\n");
        let (sections, table) = both(&text);
        let value = sections.files.unwrap().timeout_ms.unwrap();
        let meant = table["files"]["timeout_ms"].as_integer();
        assert_eq!(Some(*value.get_ref()), meant, "{text}");
        assert_eq!(text.get(value.span()), Some(form), "{text}");
    }
    for form in [
        "9223372036854775808",
        "-9223372036854775809",
        "0x8000000000000000",
        "nan",
        "-inf",
        "1e3",
        "07:32:00",
        "2026-11-29",
    ] {
        let text = format!("[files]\ntimeout_ms = {form}\n");
        let error = parse(Layer::User, "F", &text).expect_err(form);
        assert_eq!(error.line(), Some(2), "{error}");
        assert!(error.to_string().contains("whole number"), "{error}");
    }
}
