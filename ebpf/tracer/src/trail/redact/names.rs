//! Whether a name (of an option, a variable, a header, a key in JSON) is that of a secret.

/// A word that contains one of these is about a secret, wherever it stands in a name.
const STEMS: [&str; 14] = [
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "secret",
    "credential",
    "apikey",
    "accesskey",
    "privatekey",
    "secretkey",
    "authkey",
    "authorization",
    "bearer",
    "cookie",
];

/// A word that is one of these is.
const WORDS: [&str; 13] = [
    "jwt",
    "otp",
    "totp",
    "psk",
    "pat",
    "sig",
    "signature",
    "creds",
    "cred",
    "passin",
    "passout",
    "storepass",
    "keypass",
];

/// `key` after one of these is a secret one. Alone it is what one sorts by, or a file.
const KEYS: [&str; 26] = [
    "access",
    "account",
    "admin",
    "anthropic",
    "api",
    "app",
    "application",
    "auth",
    "client",
    "deploy",
    "encrypt",
    "encryption",
    "gemini",
    "license",
    "master",
    "openai",
    "priv",
    "private",
    "root",
    "secret",
    "service",
    "session",
    "shared",
    "signing",
    "storage",
    "subscription",
];

/// A name that ends so is about where a secret is, or how it is dealt with, not the secret.
const NOT_AT_THE_END: [&str; 37] = [
    "algorithm",
    "authentication",
    "budget",
    "cmd",
    "column",
    "command",
    "count",
    "dir",
    "directory",
    "endpoint",
    "env",
    "expiration",
    "expires",
    "expiry",
    "fd",
    "field",
    "file",
    "files",
    "format",
    "helper",
    "id",
    "jar",
    "length",
    "limit",
    "manager",
    "mode",
    "name",
    "path",
    "policy",
    "prompt",
    "size",
    "stdin",
    "store",
    "ttl",
    "type",
    "uri",
    "url",
];

/// A name that begins so switches something off, or bounds it.
const NOT_AT_THE_BEGINNING: [&str; 6] = ["disable", "max", "min", "no", "skip", "without"];

/// Longer names are none. Bounds the work for a name.
pub(super) const LONGEST: usize = 128;

/// What a name consists of.
pub(super) fn letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Whether the name is that of a secret. Where it is not clear, it is.
pub(super) fn secret(name: &[u8]) -> bool {
    if name.len() > LONGEST {
        return false;
    }
    let words = words(name);
    let (Some(first), Some(last)) = (words.first(), words.last()) else {
        return false;
    };
    if NOT_AT_THE_END.contains(&last.as_str()) || NOT_AT_THE_BEGINNING.contains(&first.as_str()) {
        return false;
    }
    let single = words.iter().any(|word| {
        let word = word.as_str();
        STEMS.iter().any(|stem| word.contains(stem))
            || WORDS.contains(&word)
            || word.ends_with("token")
    });
    // `auth` and `pass` begin many harmless names; PWD is the directory.
    let at_the_end = match last.as_str() {
        "auth" | "pass" | "pw" => true,
        "pwd" => words.len() > 1,
        // What a model counts has small letters: `n_tok`.
        "tok" => words.len() > 1 && !name.iter().any(u8::is_ascii_lowercase),
        "key" | "keys" => match words.len().checked_sub(2).map(|at| words[at].as_str()) {
            Some(before) => KEYS.contains(&before) || !name.iter().any(u8::is_ascii_lowercase),
            None => false,
        },
        _ => false,
    };
    single || at_the_end
}

/// Whether it depends on the value: `--key`, `--pwd`.
pub(super) fn perhaps(name: &[u8]) -> bool {
    let plain = name.trim_ascii_start();
    let plain = plain
        .iter()
        .position(|byte| *byte != b'-')
        .map(|at| &plain[at..]);
    plain.is_some_and(|plain| {
        plain.eq_ignore_ascii_case(b"key")
            || name.starts_with(b"-") && plain.eq_ignore_ascii_case(b"pwd")
    })
}

/// A key is at least so long, in bytes.
const KEY: usize = 16;

/// Whether the value is a secret, of a name for which it depends on that. A directory is none, nor the name of a file, nor what is
/// sorted by.
pub(super) fn secret_with(name: &[u8], value: &[u8]) -> bool {
    let quote = value.iter().position(|byte| b"'\"`".contains(byte));
    let value = &value[..quote.unwrap_or(value.len())];
    let path = matches!(value.first(), None | Some(b'/' | b'.' | b'~' | b'$' | b'-'));
    let hidden = value == agent_sandbox_events::record::REDACTED.as_bytes();
    if path || hidden {
        return hidden;
    }
    if name.to_ascii_lowercase().ends_with(b"pwd") {
        return true;
    }
    let letters = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-+=".contains(byte);
    value.len() >= KEY
        && value.iter().all(letters)
        && value.iter().any(u8::is_ascii_digit)
        && value.iter().any(u8::is_ascii_alphabetic)
}

/// The words of a name, in small letters, without the digits behind them: `githubApiKey2` is github, api, key.
fn words(name: &[u8]) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut small = false;
    for byte in name.iter().copied().chain([b'-']) {
        if !byte.is_ascii_alphanumeric() || (small && byte.is_ascii_uppercase()) {
            let stem = word.trim_end_matches(|digit: char| digit.is_ascii_digit());
            if !stem.is_empty() {
                words.push(stem.to_string());
            }
            word.clear();
        }
        if byte.is_ascii_alphanumeric() {
            word.push(char::from(byte.to_ascii_lowercase()));
        }
        small = byte.is_ascii_lowercase();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets() {
        for name in [
            "--token",
            "token",
            "GITHUB_TOKEN",
            "authToken",
            "HF_TOKEN_READ",
            "token1",
            "--password",
            "DB_PASS",
            "PGPASSWORD",
            "DB_PWD",
            "--api-key",
            "apiKey",
            "X-Api-Key",
            "AWS_SECRET_ACCESS_KEY",
            "SSH_KEY",
            "Authorization",
            "Set-Cookie",
            "client_secret",
            "--passphrase",
            "-passin",
            "oauth2-bearer",
            "_auth",
            "http.proxy-pass",
            "OPENAI_KEY",
            "--credentials",
            "sig",
        ] {
            assert!(secret(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn names_of_other_things() {
        for name in [
            "",
            "-",
            "PWD",
            "OLDPWD",
            "--max-tokens",
            "--tokenizer",
            "--author",
            "--key",
            "-k",
            "KEY",
            "--sort-key",
            "--password-stdin",
            "--token-file",
            "--no-password",
            "AWS_ACCESS_KEY_ID",
            "credential.helper",
            "keyboard",
            "--passthrough",
            "--cookie-jar",
            "user",
            "path",
            "compat",
            "monkey",
        ] {
            assert!(!secret(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn a_name_has_words() {
        assert_eq!(words(b"githubApiKey2"), ["github", "api", "key"]);
        assert_eq!(words(b"--A_B.c"), ["a", "b", "c"]);
        assert_eq!(words(b"12-"), Vec::<String>::new());
    }
}
