//! Whether a name (of an option, a variable, a header, a key in JSON) is that of a secret.

/// A word that contains one of these is about a secret, wherever it stands in a name.
pub const STEMS: &str = "password passwd passphrase passcode secret credential apikey accesskey privatekey secretkey \
    authkey authorization bearer cookie";

/// A word that is one of these is.
pub const WORDS: &str =
    "jwt otp totp psk pat sig signature creds cred passin passout storepass keypass";

/// `key` after one of these is a secret one. Alone it is what one sorts by, or a file.
pub const KEYS: &str = "access account admin anthropic api app application auth client deploy encrypt encryption gemini \
    license master openai priv private root secret service session shared signing storage subscription";

/// A name that ends so is about where a secret is, or how it is dealt with, not the secret.
const NOT_AT_THE_END: &str = "algorithm authentication budget cmd column command count dir directory endpoint env \
    expiration expires expiry fd field file files format helper id jar length limit manager mode name path policy \
    prompt size stdin store ttl type uri url";

/// A name that begins so switches something off, or bounds it.
const NOT_AT_THE_BEGINNING: &str = "disable max min no skip without";

/// Longer names are none. Bounds the work for a name.
const LONGEST: usize = 128;

/// Whether the word is in the list.
fn listed(list: &str, word: &str) -> bool {
    list.split(' ').any(|one| one == word)
}

/// Whether the name is that of a secret. Where it is not clear, it is.
#[must_use]
pub fn secret(name: &[u8]) -> bool {
    if name.len() > LONGEST {
        return false;
    }
    let words = words(name);
    let (Some(first), Some(last)) = (words.first(), words.last()) else {
        return false;
    };
    if listed(NOT_AT_THE_END, last) || listed(NOT_AT_THE_BEGINNING, first) {
        return false;
    }
    let single = words.iter().any(|word| {
        STEMS.split(' ').any(|stem| word.contains(stem))
            || listed(WORDS, word)
            || word.ends_with("token")
    });
    // `auth` and `pass` begin many harmless names; PWD is the directory.
    let at_the_end = match last.as_str() {
        "auth" | "pass" | "pw" => true,
        "pwd" => words.len() > 1,
        // What a model counts has small letters: `n_tok`.
        "tok" => words.len() > 1 && !name.iter().any(u8::is_ascii_lowercase),
        "key" | "keys" => match words.len().checked_sub(2).map(|at| words[at].as_str()) {
            Some(before) => listed(KEYS, before) || !name.iter().any(u8::is_ascii_lowercase),
            None => false,
        },
        _ => false,
    };
    single || at_the_end
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
