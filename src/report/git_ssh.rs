//! What git starts inside in place of ssh (`GIT_SSH`). Where the user's ssh-agent logs in to the host (`ssh.hosts`), that is ssh,
//! with the keys by which the user knows the host. Elsewhere nothing inside can log in, and it says so: ssh itself would ask for
//! a password, or say “Permission denied (publickey)” alone.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: reads the file of known hosts, starts ssh"
)]

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use agent_sandbox_ssh::{Destination, KnownHosts};

use super::render::render;
use crate::env_vars;
use crate::failure::{self, Failure};

/// What ssh ends with where it has no connection (`ssh(1)`, EXIT STATUS).
const NO_CONNECTION: u8 = 255;

/// Options of ssh's that git gives with a word behind them: `-o SendEnv=GIT_PROTOCOL`, `-p PORT`
/// (git's `connect.c`, since 2.17).
const WITH_A_WORD: [&[u8]; 2] = [b"-o", PORT];
const PORT: &[u8] = b"-p";

/// Answers git, which gives ssh's options, the host, and a command for it; the exit code.
pub fn call(arguments: &[OsString]) -> u8 {
    // By `-G` git asks whether this is OpenSSH, before it gives any other option (git(1), ssh.variant).
    if arguments.first().is_some_and(|first| first == "-G") {
        return 0;
    }
    let known = std::env::var_os(env_vars::KNOWN_HOSTS);
    let failure = match known.as_deref().map(Path::new) {
        Some(known) if is_known(arguments, known) => cannot_start(&ssh(arguments, known)),
        known => refusal(arguments, known.is_some()),
    };
    failure::say(&render(&failure.into()));
    NO_CONNECTION
}

/// Becomes ssh. Without configuration: what is root's seems to be somebody else's inside, and ssh refuses such files.
fn ssh(arguments: &[OsString], known: &Path) -> io::Error {
    let mut keys = OsString::from("UserKnownHostsFile=\"");
    keys.push(known);
    keys.push("\"");
    Command::new("ssh")
        .args(["-F", "none", "-o"])
        .arg(keys)
        .args(arguments)
        .exec()
}

fn cannot_start(error: &io::Error) -> Failure {
    Failure::new(format!("git cannot start `ssh`: {error}"))
        .hint("install OpenSSH's client, 8.9 or newer")
}

/// Whether the file has keys of the host that git wants.
fn is_known(arguments: &[OsString], known: &Path) -> bool {
    let wanted = destination(arguments).and_then(|text| text.to_str());
    let Some(mut wanted) = wanted.and_then(|text| text.parse::<Destination>().ok()) else {
        return false;
    };
    let mut pairs = arguments.windows(2);
    if let Some(pair) = pairs.find(|pair| pair[0].as_bytes() == PORT) {
        let Some(port) = pair[1].to_str().and_then(|port| port.parse().ok()) else {
            return false;
        };
        wanted.port = port;
    }
    let mut hosts = KnownHosts::default();
    hosts.add(&std::fs::read(known).unwrap_or_default());
    !hosts.keys_of(&wanted.known_name()).is_empty()
}

fn refusal(arguments: &[OsString], has_agent: bool) -> Failure {
    let host = destination(arguments).map_or_else(
        || "another host".to_owned(),
        |host| format!("`{}`", host.to_string_lossy()),
    );
    if has_agent {
        return Failure::new(format!(
            "git cannot reach {host} over ssh from inside the jail: ssh.hosts of the policy does not name it"
        ))
        .hint(
            "write the host as ssh.hosts does; or commit here, and let the user push and fetch outside (guide: Git over ssh)",
        );
    }
    Failure::new(format!(
        "git cannot reach {host} over ssh from inside the jail: the user's ssh keys and ssh-agent stay outside"
    ))
    .hint(
        "commit here, and let the user push and fetch outside, or name the host in ssh.hosts; or use an https address, with a \
         token that the user passes by --env NAME (guide: Git over ssh)",
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
        refusal(&words, false).to_string()
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

    #[test]
    fn a_host_is_known_by_its_name_and_port() {
        let directory = tempfile::tempdir().unwrap();
        let known = directory.path().join("known_hosts");
        let key = "AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";
        let text = format!("a.org ssh-ed25519 {key}\n[b.org]:2222 ssh-ed25519 {key}\n");
        std::fs::write(&known, text).unwrap();
        let asked = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            is_known(&words, &known)
        };
        assert!(asked("git@a.org git-upload-pack"));
        assert!(asked(
            "-o SendEnv=GIT_PROTOCOL -p 2222 git@b.org git-upload-pack"
        ));
        for line in [
            "git@b.org git-upload-pack",
            "-p 22x git@a.org git-upload-pack",
            "-p 2222 git@a.org git-upload-pack",
            "git@c.org git-upload-pack a.org",
            "-oProxyCommand=a.org",
        ] {
            assert!(!asked(line), "{line}");
        }
        assert!(!is_known(&["a.org".into()], Path::new("/nowhere")));
    }
}
