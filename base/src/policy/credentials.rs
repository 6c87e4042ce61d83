//! Credentials: values that stay outside, exchanged for placeholders by the filter of the network. Which of them count in a session
//! is decided in the plan.

use std::fmt;

use agent_sandbox_hosts::{HostPattern, HostRule, Name, Ports};
use serde::{Serialize, Serializer};
use toml::Spanned;

use super::hosts::HostEntry;
use super::paths::PathSpec;
use super::stated::Stated;
use crate::config::diagnostic::ConfigError;
use crate::config::load::RawLayer;
use crate::config::schema::{CredentialSection, Text};
use crate::config::source::{Layer, Source, Sourced};

/// The port of HTTP over TLS.
const TLS: u16 = 443;
/// The forms of `from`.
const FORMS: &str = "\"env:NAME\", \"file:PATH\" or \"command:LINE\"";

/// Where a value is read outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueSource {
    /// A variable.
    Variable(String),
    /// A file, which is hidden inside.
    File(PathSpec),
    /// What a command of a shell prints.
    Command(String),
}

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{path}"),
            Self::Command(line) => write!(f, "command:{line}"),
        }
    }
}

impl Serialize for ValueSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// One credential, as a layer states it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Credential {
    /// Its name.
    pub name: String,
    /// To whom the value goes, by TLS.
    pub hosts: Vec<(Name, u16)>,
    /// The variable that holds the placeholder inside.
    pub env: String,
    /// Where the value is read.
    pub from: ValueSource,
    /// What the placeholder begins with.
    pub prefix: String,
    /// Variables with a base URL, and the path behind the host in it.
    pub base_url: Vec<(String, String)>,
    /// Variables outside with which it does not count.
    pub unless: Vec<String>,
    /// Where it stands.
    pub source: Source,
}

impl Credential {
    /// Whether somebody else than the user has it, a profile or the site: then it counts where its variable is set and the network
    /// filtered, and nobody is told where it does not.
    pub fn is_offered(&self) -> bool {
        self.source.layer != Layer::User
    }

    /// The URL that stands inside for a path at the first host.
    pub fn base_url(&self, path: &str) -> Option<String> {
        let (host, port) = self.hosts.first()?;
        Some(format!("http://{host}:{port}{path}"))
    }
}

/// All credentials of the layers, the weakest first. A later one takes the place of an earlier one of the same name, or for the same
/// variable.
pub(super) fn of_layers(layers: &[RawLayer]) -> Result<Vec<Credential>, ConfigError> {
    let mut all: Vec<Credential> = Vec::new();
    for layer in layers {
        for section in &layer.credentials {
            let new = read(layer, section)?;
            all.retain(|old| old.name != new.name && old.env != new.env);
            all.push(new);
        }
    }
    Ok(all)
}

/// Has the hosts of credentials allowed, and their files hidden.
pub(super) fn apply(credentials: &[Credential], stated: &mut Stated) {
    for one in credentials {
        for (name, port) in &one.hosts {
            let ports = match *port {
                TLS => Ports::Unnamed,
                port => Ports::Named(port..=port),
            };
            let host = HostPattern::Name(name.clone());
            let entry = HostEntry::Rule(HostRule { host, ports }, None);
            stated
                .network
                .allow
                .list()
                .push(Sourced::new(entry, one.source.clone()));
        }
        if let ValueSource::File(path) = &one.from {
            stated
                .files
                .hide
                .list()
                .push(Sourced::new(path.clone(), one.source.clone()));
        }
    }
}

fn read(layer: &RawLayer, section: &Spanned<CredentialSection>) -> Result<Credential, ConfigError> {
    let span = section.span();
    let section = section.get_ref();
    let reject = |text: &Text, message: String, hint: &str| {
        layer.reject(text.span(), &message, Some(hint.to_owned()))
    };
    let is_word = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(&c))
    };
    for text in [Some(&section.name), section.prefix.as_ref()]
        .into_iter()
        .flatten()
    {
        if !is_word(text.get_ref()) {
            let message = format!("`{}` is no plain word", text.get_ref().escape_debug());
            return Err(reject(text, message, "letters, digits and - _ ."));
        }
    }
    for text in section
        .base_url
        .keys()
        .chain([&section.env])
        .chain(&section.unless)
    {
        if !is_variable(text.get_ref()) {
            let message = format!("`{}` cannot name a variable", text.get_ref().escape_debug());
            return Err(reject(
                text,
                message,
                "letters, digits and _, as in \"GITHUB_TOKEN\"",
            ));
        }
    }
    for path in section.base_url.values() {
        let plain = |c: u8| c.is_ascii_alphanumeric() || b"/-_.".contains(&c);
        let text = path.get_ref();
        if !(text.is_empty() || text.starts_with('/') && text.bytes().all(plain)) {
            let message = format!("`{}` is no path of a URL", text.escape_debug());
            return Err(reject(
                path,
                message,
                "what stands behind the host, as in \"/v1\", or nothing",
            ));
        }
    }
    let mut hosts = Vec::new();
    for text in section.hosts.get_ref() {
        hosts.push(host(text.get_ref()).map_err(|why| {
            let message = format!(
                "`{}` is no host of a credential: {why}",
                text.get_ref().escape_debug()
            );
            reject(
                text,
                message,
                "one plain name each, with its port if that is not 443: \"api.github.com\"",
            )
        })?);
    }
    if hosts.is_empty() {
        let hint = "name the hosts to which the value goes".to_owned();
        return Err(layer.reject(section.hosts.span(), "a credential for nobody", Some(hint)));
    }
    let pairs = section.base_url.iter();
    let pairs = pairs.map(|(name, path)| (name.get_ref().to_string(), path.get_ref().to_string()));
    Ok(Credential {
        name: section.name.get_ref().to_string(),
        hosts,
        env: section.env.get_ref().to_string(),
        from: value_source(section.from.get_ref())
            .map_err(|why| reject(&section.from, why, &format!("one of {FORMS}")))?,
        prefix: section
            .prefix
            .as_ref()
            .map(|text| text.get_ref().to_string())
            .unwrap_or_default(),
        base_url: pairs.collect(),
        unless: section
            .unless
            .iter()
            .map(|name| name.get_ref().to_string())
            .collect(),
        source: layer.source(span),
    })
}

fn is_variable(name: &str) -> bool {
    let begins = |c: u8| c.is_ascii_alphabetic() || c == b'_';
    name.bytes().next().is_some_and(begins) && name.bytes().all(|c| begins(c) || c.is_ascii_digit())
}

fn host(text: &str) -> Result<(Name, u16), String> {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) => (
            name,
            port.parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or("its port is no number")?,
        ),
        None => (text, TLS),
    };
    let name = Name::parse(name).map_err(|fault| fault.to_string())?;
    match name.is_localhost() {
        true => Err("nothing exchanges on the way to this host itself".to_owned()),
        false => Ok((name, port)),
    }
}

fn value_source(text: &str) -> Result<ValueSource, String> {
    match text.split_once(':') {
        Some(("env", name)) if is_variable(name) => Ok(ValueSource::Variable(name.to_owned())),
        Some(("file", path)) => {
            let spec = PathSpec::parse(path).map_err(|why| format!("path `{path}` {why}"))?;
            match spec.is_pattern() || spec.variable().is_some() {
                true => Err(format!("path `{path}` is not one plain path")),
                false => Ok(ValueSource::File(spec)),
            }
        }
        Some(("command", line)) if !line.trim().is_empty() && !line.contains('\0') => {
            Ok(ValueSource::Command(line.to_owned()))
        }
        _ => Err(format!(
            "`{}` does not say where the value is read",
            text.escape_debug()
        )),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test: the panic is the failure
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_in_one_of_three_ways() {
        for text in [
            "env:A_B",
            "file:~/.a",
            "file:/run/a",
            "command:gh auth token",
        ] {
            assert_eq!(value_source(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "A",
            "env:",
            "env:A B",
            "env:1",
            "file:a",
            "file:~/*",
            "file:$A/b",
            "command: ",
            "url:x",
            "ENV:A",
        ] {
            assert!(value_source(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_host_is_one_plain_name() {
        for (text, means) in [
            ("API.github.com", "api.github.com 443"),
            ("a.example:8443", "a.example 8443"),
        ] {
            let (name, port) = host(text).unwrap();
            assert_eq!(format!("{name} {port}"), means);
        }
        for text in [
            "",
            "*",
            "*.a.example",
            "a.example:0",
            "a.example:1-2",
            "10.0.0.1",
            "[::1]:443",
            "localhost",
            "https://a.example",
            "@git",
        ] {
            assert!(host(text).is_err(), "{text}");
        }
    }
}
