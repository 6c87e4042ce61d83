//! `[ssh]`: hosts to which the user's ssh-agent logs in for a session, and with which keys.

use std::fmt;

use agent_sandbox_ssh::{Destination, Fingerprint};
use serde::{Serialize, Serializer};

use super::clamp::{Clamp, Clamped, Entry, Gives, List, Rule};
use super::hosts::HostEntry;
use super::paths::PathSpec;
use super::values::Stricter;
use crate::config::source::{Source, Sourced};

/// Every key of the user's agent.
const EVERY: &str = "*";

impl Entry for Destination {}

/// Hosts. In an enforced layer it is a bound.
#[derive(Clone, Debug, Default)]
pub struct SshHosts(Gives<Destination>);

impl SshHosts {
    /// As entries of `network.allow`, for a filtered network: the hosts are allowed as those of credentials are, at the port of their sshd.
    pub(super) fn allowed(&mut self) -> Vec<Sourced<HostEntry>> {
        let entry = |host: Destination| HostEntry::Rule(host.rule(), None);
        let hosts = self.0.list().iter().cloned();
        hosts.map(|host| host.map(entry)).collect()
    }

    /// What holds.
    pub(super) fn settle(self) -> Vec<Sourced<Destination>> {
        self.0.settle()
    }
}

impl List<Destination> for SshHosts {
    fn of(named: Option<Source>, entries: Vec<Sourced<Destination>>) -> Self {
        Self(Gives::of(named, entries))
    }
}

impl Clamp for SshHosts {
    type Value = Vec<Sourced<Destination>>;

    const RULE: Rule = Rule::Within;

    fn prefer(&mut self, later: Self) {
        self.0.prefer(later.0);
    }

    fn clamp_to(&mut self, key: &'static str, enforced: &Self, clamped: &mut Vec<Clamped>) {
        let (Some(bound), Some(shown)) = (enforced.0.bound(), enforced.bounds()) else {
            return;
        };
        self.0.list().retain(|asked| {
            let allowed = bound.iter().any(|one| one.value.covers(&asked.value));
            if !allowed {
                clamped.push(Clamped {
                    key,
                    asked: asked.clone().map(|host| host.to_string()),
                    allowed: shown.clone(),
                });
            }
            allowed
        });
    }

    fn bounds(&self) -> Option<Sourced<String>> {
        self.0.shown()
    }
}

/// A key of the user's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SshKey {
    /// By its fingerprint.
    Fingerprint(Fingerprint),
    /// By the file with its public half.
    File(PathSpec),
}

impl SshKey {
    /// What an entry of the list stands for.
    ///
    /// # Errors
    /// It completes "`ENTRY` is no key: …".
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if let Some(fingerprint) = Fingerprint::parse(text) {
            return Ok(Self::Fingerprint(fingerprint));
        }
        if !text.ends_with(".pub") {
            return Err("it is neither a fingerprint nor a file `….pub`".to_owned());
        }
        let path = PathSpec::parse(text)?;
        match path.is_pattern() || path.variable().is_some() {
            true => Err("it is not one plain path".to_owned()),
            false => Ok(Self::File(path)),
        }
    }
}

impl fmt::Display for SshKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fingerprint(fingerprint) => fingerprint.fmt(f),
            Self::File(path) => path.fmt(f),
        }
    }
}

/// Keys of the user's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SshKeys {
    /// All that the user's agent has.
    All,
    /// These.
    These(Vec<SshKey>),
}

impl SshKeys {
    /// What a list stands for.
    pub(super) fn of(all: Vec<Option<SshKey>>) -> Self {
        match all.into_iter().collect::<Option<Vec<SshKey>>>() {
            Some(keys) => Self::These(keys),
            None => Self::All,
        }
    }

    /// An entry of the list; `None` stands for every key.
    ///
    /// # Errors
    /// As [`SshKey::parse`].
    pub(super) fn entry(text: &str) -> Result<Option<SshKey>, String> {
        match text {
            EVERY => Ok(None),
            text => SshKey::parse(text).map(Some),
        }
    }

    fn written(&self) -> Vec<String> {
        match self {
            Self::All => vec![EVERY.to_owned()],
            Self::These(keys) => keys.iter().map(ToString::to_string).collect(),
        }
    }
}

impl Serialize for SshKeys {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.written())
    }
}

impl fmt::Display for SshKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.written() {
            none if none.is_empty() => f.write_str("none"),
            some => f.write_str(&some.join(", ")),
        }
    }
}

impl Stricter for SshKeys {
    type Plain = Self;

    fn stricter(&self, other: &Self) -> Self {
        match (self, other) {
            (one, Self::All) | (Self::All, one) => one.clone(),
            (Self::These(one), Self::These(other)) => {
                let both = one.iter().filter(|key| other.contains(key));
                Self::These(both.cloned().collect())
            }
        }
    }

    fn shown(&self) -> String {
        self.to_string()
    }

    fn plain(self) -> Self {
        self
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use super::*;

    const ONE: &str = "SHA256:uNiVztksCsDhcc0u9e8BrrQXVUpKZIDTMczCvj3tD2s";

    fn keys(list: &[&str]) -> SshKeys {
        SshKeys::of(
            list.iter()
                .map(|text| SshKeys::entry(text).unwrap())
                .collect(),
        )
    }

    #[test]
    fn keys_are_fingerprints_or_public_files() {
        for text in [ONE, "~/.ssh/id_ed25519.pub", "/etc/keys/a.pub"] {
            assert_eq!(keys(&[text]).to_string(), text);
        }
        for text in [
            "",
            "~/.ssh/id_ed25519",
            "a.pub",
            "~/*.pub",
            "$HOME/a.pub",
            "MD5:00:11",
            "SHA256:short",
            "ada@laptop",
        ] {
            assert!(SshKey::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_stricter_keys_are_those_of_both() {
        let both = |one: &[&str], other: &[&str]| keys(one).stricter(&keys(other)).to_string();
        assert_eq!(both(&["*"], &["*"]), "*");
        assert_eq!(both(&["*"], &[ONE]), ONE);
        assert_eq!(both(&[ONE, "*"], &["~/a.pub"]), "~/a.pub");
        assert_eq!(both(&[ONE, "~/a.pub"], &[ONE]), ONE);
        // None in common is none, and not all.
        assert_eq!(both(&[ONE], &["~/a.pub"]), "none");
        assert_eq!(both(&[], &["*"]), "none");
    }
}
