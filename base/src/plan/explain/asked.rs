//! Questions that are read as paths, and were hardly meant so.

use std::ffi::OsStr;

use super::change::shell_word;

/// What to say of a word that names no file and looks like a host, a variable or somebody's home.
/// It is an answer about a path all the same: such names can be given to files.
pub fn taken_for_a_path(asked: &OsStr) -> Option<String> {
    let asked = asked.to_str()?;
    let host = |name: &str| {
        let name = name.split(['/', ':']).next().unwrap_or_default();
        let name = name.rsplit('@').next().unwrap_or_default();
        match name {
            "" => "it is taken for a path; --host NAME asks about a host".to_owned(),
            name => format!(
                "it is taken for a path; to ask about the host: agent-sandbox explain --host {}",
                shell_word(name)
            ),
        }
    };
    let variable = |name: &str| {
        format!(
            "it is taken for a path; to ask about the variable: agent-sandbox explain --env {}",
            shell_word(name)
        )
    };
    if let Some((_, behind)) = asked.split_once("://") {
        let authority = behind.split('/').next().unwrap_or_default();
        return Some(host(authority.rsplit('@').next().unwrap_or_default()));
    }
    if let Some(name) = asked.strip_prefix('$') {
        let name = name.trim_start_matches('{');
        let end = name.find(|c| !in_name(c)).unwrap_or(name.len());
        return (end > 0).then(|| variable(&name[..end]));
    }
    if asked.starts_with('~') && !asked.starts_with("~/") && asked != "~" {
        return Some(
            "it is taken for a path: only a shell knows the home of another user; give its path"
                .to_owned(),
        );
    }
    if let Some((name, _)) = asked.split_once('=')
        && is_variable(name)
    {
        return Some(variable(name));
    }
    if let Some((before, _)) = asked.split_once(':')
        && before.contains('@')
        && !before.contains('/')
    {
        return Some(host(before));
    }
    let shouted = asked.chars().all(|c| in_name(c) && !c.is_ascii_lowercase());
    (shouted && is_variable(asked)).then(|| variable(asked))
}

fn in_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.chars().all(in_name) && !name.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_variables_and_homes_are_no_paths() {
        for (asked, said) in [
            ("https://example.org/x", Some("--host example.org")),
            ("ssh://git@example.org:22/x", Some("--host example.org")),
            ("git@github.com:x/y.git", Some("--host github.com")),
            ("FOO=bar", Some("--env FOO")),
            ("$HOME", Some("--env HOME")),
            ("${HOME}/x", Some("--env HOME")),
            ("PATH", Some("--env PATH")),
            ("~root", Some("the home of another user")),
            ("https://", Some("--host NAME")),
            ("~", None),
            ("~/x", None),
            ("README.md", None),
            ("a/b@c:d", None),
            ("data", None),
            ("/x=y", None),
            ("", None),
        ] {
            let found = taken_for_a_path(OsStr::new(asked));
            match said {
                Some(said) => assert!(
                    found
                        .as_ref()
                        .is_some_and(|found| found.ends_with(said) || found.contains(said)),
                    "{asked}: {found:?}"
                ),
                None => assert_eq!(found, None, "{asked}"),
            }
        }
    }
}
