//! Secrets in the text of programs, as Python, Ruby, Perl, PHP and JavaScript write them, and in settings.

use super::*;

/// What is left of an argument that is the text of a program.
fn text(text: &str) -> String {
    shown(&Redaction::default(), &["x", "-c", text])[2].clone()
}

fn all_hidden(texts: &[&str]) {
    for whole in texts {
        for around in ["@", "a = 1; @", "a\n@\nb"] {
            let whole = around.replace('@', whole);
            let left = text(&whole);
            assert!(!left.contains("LEAK"), "{whole}\n{left}");
            assert!(left.contains(REDACTED), "{whole}\n{left}");
        }
    }
}

#[test]
fn what_is_named_key_is_hidden_in_quotes_too() {
    all_hidden(&[
        "{\"key\": \"LEAK0123456789abcdef\"}",
        "{\\\"key\\\": \\\"LEAK0123456789abcdef\\\", \\\"a\\\": 1}",
        "{'key': b'LEAK0123456789abcdef'}",
        "KEY='LEAK0123456789abcdef'",
        "KEY='LEAK0123456789abcdef' make",
        "KEY=LEAK0123456789abcdef make",
        "key: \"LEAK0123456789abcdef\"",
        "key: LEAK0123456789abcdef",
    ]);
}

#[test]
fn elements_that_are_assigned_are_hidden() {
    all_hidden(&[
        "os.environ['API_KEY']='LEAK b'",
        "os.environ[\"API_KEY\"] = \"LEAK b\"",
        "os.environ[\\\"API_KEY\\\"] = \\\"LEAK b\\\"",
        "process.env['API_KEY']='LEAK'",
        "ENV[\"TOKEN\"]=\"LEAK b\"",
        "$ENV{API_KEY}=\"LEAK b\"",
        "$ENV{'API_KEY'} = 'LEAK b'",
        "$c[\"password\"] = \"LEAK b\";",
        "declare -A a=([token]=$(echo LEAK x) [b]=1)",
    ]);
}

#[test]
fn strings_with_a_letter_before_them_are_hidden() {
    all_hidden(&[
        "{'Authorization': f'Bearer LEAK'}",
        "{'Authorization': b'Bearer LEAK', 'a': 1}",
        "{\"Authorization\": rb\"Bearer LEAK\"}",
        "{\\\"Authorization\\\": f\\\"Bearer LEAK\\\"}",
        "os.environ['API_KEY'] = f'{a} LEAK'",
        "token = f'a LEAK'",
    ]);
    assert_eq!(
        text("h = {'Authorization': f'Bearer {t}', 'a': 1}"),
        "h = {'Authorization': [redacted], 'a': 1}"
    );
}

#[test]
fn other_text_of_programs_stays() {
    for whole in [
        "d['a']['b'] = 1; e{f} = 2; x[0] = 'abc'",
        "{'key': 'name', 'keys': f'{a} b'}",
        "sorted(x, key=lambda a: a['b'], reverse=True)",
        "key = 'learning_rate'; key='a' * 20",
        "[[ $a = b ]] && ${x} = y",
    ] {
        assert_eq!(text(whole), whole);
    }
}
