//! A name of a host, in the one form in which names are compared.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Octets of a whole name without the root's dot, and of one label (RFC 1035, 2.3.4; 255 there counts lengths and root).
const MOST_OF_NAME: usize = 253;
const MOST_OF_LABEL: usize = 63;
/// The names of this machine in `hosts(5)` that do not end in `localhost`.
const LOCALHOSTS: [&str; 6] = [
    "localhost4",
    "localhost4.localdomain4",
    "localhost6",
    "localhost6.localdomain6",
    "ip6-localhost",
    "ip6-loopback",
];

/// A name of a host: lower case, A-labels, no dot at its end, and nothing that another parser takes for an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Box<str>);

/// Why text is no name of a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// Nothing, or nothing between two dots.
    #[error("a part between its dots is empty")]
    EmptyLabel,
    /// More than a name can hold.
    #[error("it is longer than {MOST_OF_NAME} characters, or a part of it than {MOST_OF_LABEL}")]
    TooLong,
    /// The root's dot. Some programs take such a name for another than the one without.
    #[error("it ends in a dot: leave the dot out")]
    TrailingDot,
    /// A character that no host has.
    #[error("it holds {0:?}, which no name of a host has")]
    Character(char),
    /// A label with a hyphen at either end (RFC 952).
    #[error("a part of it begins or ends with `-`")]
    Hyphen,
    /// The last label is a number: `inet_aton(3)` and the URL standard read such names as IPv4 addresses.
    #[error(
        "it ends in a number: write an IPv4 address as four decimal numbers without leading zeros"
    )]
    Number,
    /// No valid internationalised name (UTS 46).
    #[error("it is no valid internationalised name")]
    Idn,
}

impl Name {
    /// A name as a person writes it: letters beyond ASCII become A-labels.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, NameFault> {
        if text.ends_with('.') && text.len() > 1 && !text.ends_with("..") {
            return Err(NameFault::TrailingDot);
        }
        // The library drops some characters on its way: what shows nowhere is no part of a name.
        if let Some(odd) = text.chars().find(|c| c.is_control() || c.is_whitespace()) {
            return Err(NameFault::Character(odd));
        }
        let ascii = idna::domain_to_ascii(text).map_err(|_| NameFault::Idn)?;
        Self::from_ascii(&ascii)
    }

    /// A name as programs send it: ASCII. One dot at its end is the root's, and goes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_wire(text: &str) -> Result<Self, NameFault> {
        Self::from_ascii(text.strip_suffix('.').unwrap_or(text))
    }

    fn from_ascii(text: &str) -> Result<Self, NameFault> {
        if text.len() > MOST_OF_NAME {
            return Err(NameFault::TooLong);
        }
        let odd = |c: &char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        if let Some(odd) = text.chars().find(odd) {
            return Err(NameFault::Character(odd));
        }
        for label in text.split('.') {
            match label.len() {
                0 => return Err(NameFault::EmptyLabel),
                1..=MOST_OF_LABEL => {}
                _ => return Err(NameFault::TooLong),
            }
            if label.starts_with('-') || label.ends_with('-') {
                return Err(NameFault::Hyphen);
            }
        }
        let text = text.to_ascii_lowercase();
        let last = text.rsplit('.').next().unwrap_or_default();
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        let hexadecimal = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
        if digits(last) || last.strip_prefix("0x").is_some_and(hexadecimal) {
            return Err(NameFault::Number);
        }
        Ok(Self(text.into()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it has a label more than `apex`, or several, and ends in it.
    #[must_use]
    pub fn is_below(&self, apex: &Self) -> bool {
        self.0
            .strip_suffix(&*apex.0)
            .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
    }

    /// Whether it means the machine that asks, and never a host of the network (RFC 6761, 6.3; the names that Debian and Red Hat have in
    /// `hosts(5)`).
    #[must_use]
    pub fn is_localhost(&self) -> bool {
        let last = |apex: &str| {
            let rest = self.0.strip_suffix(apex);
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        LOCALHOSTS.contains(&&*self.0) || last("localhost") || last("localhost.localdomain")
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0.into()
    }
}

impl TryFrom<String> for Name {
    type Error = NameFault;

    fn try_from(text: String) -> Result<Self, NameFault> {
        Self::parse(&text)
    }
}
