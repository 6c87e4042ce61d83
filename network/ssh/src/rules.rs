//! For whom is signed, and with which keys.

use serde::{Deserialize, Serialize};

use crate::destination::Destination;
use crate::known_hosts::PublicKey;

/// The rules of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// The hosts.
    pub hosts: Vec<KnownHost>,
    /// The user's keys.
    pub keys: Keys,
}

/// A host, and the keys by which the user knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownHost {
    /// The host, as the policy names it.
    pub destination: Destination,
    /// Its keys.
    pub keys: Vec<PublicKey>,
}

/// Keys of the user's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Keys {
    /// All that the user's agent has.
    #[default]
    All,
    /// These.
    These(Vec<KeyName>),
}

/// One key of the user's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyName {
    /// By its fingerprint.
    Fingerprint(Fingerprint),
    /// By itself.
    Key(PublicKey),
}

/// The SHA-256 of a key, as ssh-keygen(1) shows it: `SHA256:` and base64 without padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// As it is shown; `None` if it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        use base64::Engine;
        let text = text.strip_prefix("SHA256:")?;
        let bytes = base64::engine::general_purpose::STANDARD_NO_PAD.decode(text);
        Some(Self(bytes.ok()?.try_into().ok()?))
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use base64::Engine;
        let text = base64::engine::general_purpose::STANDARD_NO_PAD.encode(self.0);
        write!(f, "SHA256:{text}")
    }
}
