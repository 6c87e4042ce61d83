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
fn calls_that_set_a_variable_lose_its_value() {
    all_hidden(&[
        "os.environ.setdefault('API_KEY', 'LEAK b')",
        "os.putenv(\"API_KEY\",f\"LEAK b\")",
        "putenv(\\\"API_KEY\\\", \\\"LEAK b\\\")",
        "localStorage.setItem('token', 'LEAK b')",
    ]);
    assert_eq!(
        text("os.environ.setdefault('API_KEY', 'a b'); x('a', 'b')"),
        "os.environ.setdefault('API_KEY', [redacted]); x('a', 'b')"
    );
}

#[test]
fn settings_that_are_written_lose_their_secrets() {
    all_hidden(&[
        "echo machine h login me password LEAK > ~/.netrc",
        "echo 'machine h login me password LEAK' > ~/.netrc",
        "cat > ~/.netrc <<EOF\nmachine h\n  login me\n  password LEAK\nEOF",
        "printf 'machine h\\nlogin me\\npassword LEAK\\n' > ~/.netrc",
        "machine h password LEAK login me",
        "default login me password LEAK",
        "<server><password>LEAK b</password></server>",
        "<accessToken>LEAK</accessToken>",
    ]);
    assert_eq!(
        text("echo 'machine h login me password abc' > ~/.netrc"),
        "echo 'machine h login me password [redacted]' > ~/.netrc"
    );
    assert_eq!(
        text("<user>a</user><password>b</password>"),
        "<user>a</user><password>[redacted]</password>"
    );
}

#[test]
fn other_text_of_programs_stays() {
    for whole in [
        "d['a']['b'] = 1; e{f} = 2; x[0] = 'abc'",
        "{'key': 'name', 'keys': f'{a} b'}",
        "sorted(x, key=lambda a: a['b'], reverse=True)",
        "key = 'learning_rate'; key='a' * 20",
        "the default password is x",
        "the machine asks for a password at login; login me password x",
        "cat <token >out; x <password> <user>; <b>bold</b>",
        "d.setdefault('a', []).append('b'); os.putenv('PATH', '/a:/b')",
        "[[ $a = b ]] && ${x} = y",
    ] {
        assert_eq!(text(whole), whole);
    }
}
