//! What git starts inside in place of ssh (`GIT_SSH`), where the jail has neither the user's keys nor their
//! ssh-agent: it says so. ssh itself would ask for a password, or say “Permission denied (publickey)” alone.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use super::render::render;
use crate::failure::{self, Failure};

/// What ssh ends with where it has no connection (`ssh(1)`, EXIT STATUS).
const NO_CONNECTION: u8 = 255;

/// Options of ssh's that git gives with a word behind them: `-o SendEnv=GIT_PROTOCOL`, `-p PORT`
/// (git's `connect.c`, since 2.17).
const WITH_A_WORD: [&[u8]; 2] = [b"-o", b"-p"];

/// Answers git, which gives ssh's options, the host, and a command for it; the exit code.
pub fn call(arguments: &[OsString]) -> u8 {
    // By `-G` git asks whether this is OpenSSH, before it gives any other option (git(1), ssh.variant).
    if arguments.first().is_some_and(|first| first == "-G") {
        return 0;
    }
    failure::say(&render(&refusal(arguments).into()));
    NO_CONNECTION
}

fn refusal(arguments: &[OsString]) -> Failure {
    let host = destination(arguments).map_or_else(
        || "another host".to_owned(),
        |host| format!("`{}`", host.to_string_lossy()),
    );
    Failure::new(format!(
        "git cannot reach {host} over ssh from inside the jail: the user's ssh keys and ssh-agent stay outside"
    ))
    .hint(
        "commit here, and let the user push and fetch outside; or use an https address, with a token that \
         the user passes by --env NAME (guide: Git over ssh)",
    )
}

/// The first word that is no option.
fn destination(arguments: &[OsString]) -> Option<&OsString> {
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        if WITH_A_WORD.contains(&word.as_bytes()) {
            rest.next();
        } else if !word.as_bytes().starts_with(b"-") {
            return Some(word);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        refusal(&words).to_string()
    }

    #[test]
    fn the_host_is_found_behind_gits_options() {
        for line in [
            "git@example.org git-upload-pack",
            "-p 2222 git@example.org git-upload-pack",
            "-o SendEnv=GIT_PROTOCOL -4 -p 22 git@example.org git-upload-pack",
        ] {
            assert!(
                said(line).contains("reach `git@example.org` over ssh"),
                "{line}"
            );
        }
        assert!(said("-o").contains("another host"));
    }

    #[test]
    fn gits_question_is_answered_and_nothing_said() {
        assert_eq!(call(&["-G".into(), "example.org".into()]), 0);
    }
}
