//! Patterns of names.

/// Whether `text` matches `pattern`, in which `*` stands for any run of bytes, also an empty one.
#[must_use]
pub fn glob(pattern: &[u8], text: &[u8]) -> bool {
    // Most patterns are told from a text by their ends.
    let differs = |own: Option<&u8>, other| own.is_some_and(|own| *own != b'*') && own != other;
    if differs(pattern.last(), text.last()) || differs(pattern.first(), text.first()) {
        return false;
    }
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            p += 1;
            t += 1;
        } else if let Some((at, from)) = star {
            // Let the last star swallow one byte more; earlier stars never need to move.
            star = Some((at, from + 1));
            p = at + 1;
            t = from + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::glob;

    #[test]
    fn globs() {
        for (pattern, text, expected) in [
            ("*_TOKEN", "GITHUB_TOKEN", true),
            ("*_TOKEN", "GITHUB_TOKENS", false),
            ("*", "", true),
            ("a*b*c", "axxbyybzc", true),
            ("a*b*c", "axxbyybz", false),
            ("abc", "abc", true),
            ("abc", "abcd", false),
            ("*://*:*@*", "https://u:p@h/x", true),
        ] {
            assert_eq!(
                glob(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
    }
}
