//! `[[credential]]`: a value that stays outside. Data alone.

use toml::Spanned;

use super::{Pairs, Strings, Text};
use crate::config::index::indexed;

/// `[[credential]]`: what stands for the value inside, where the value comes from, and to whom it goes.
#[derive(Debug)]
pub struct CredentialSection {
    /// Its name: a later layer's credential of the same name takes its place.
    pub name: Text,
    /// The hosts to which the value goes: `NAME` or `NAME:PORT`.
    pub hosts: Spanned<Strings>,
    /// The variable that holds the placeholder inside.
    pub env: Text,
    /// Where the value is read outside: `env:NAME`, `file:PATH` or `command:LINE`.
    pub from: Text,
    /// What the placeholder begins with, for programs that look at it.
    pub prefix: Option<Text>,
    /// Variables that lead a program inside to the first of the hosts without TLS, with the path behind the host.
    pub base_url: Pairs,
    /// Variables that lead a program to another service: where one is set outside, the credential does not count.
    pub unless: Strings,
}

indexed! { CredentialSection { name, hosts, env, from, prefix, base_url, unless, } }
