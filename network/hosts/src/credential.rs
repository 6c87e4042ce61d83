//! Credentials that stay outside: inside stands a placeholder, and for these hosts the filter puts the value in its place.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};
use zeroize::Zeroizing;

use crate::name::Name;

/// A value that is never shown, and written over before its memory is given back.
#[derive(Clone, Deserialize)]
#[serde(from = "String")]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// The value.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Self(Zeroizing::new(value))
    }
}

// Only where it is handed to the filter: no policy, plan or capsule holds one.
impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A credential as the filter exchanges it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Credential {
    /// Its name in the policy.
    pub name: String,
    /// The hosts to which its value goes, by TLS at these ports.
    pub hosts: Vec<(Name, u16)>,
    /// What stands inside in its place.
    pub placeholder: String,
    /// The value.
    pub value: Secret,
    /// Whether a program inside may speak HTTP without TLS to these ports, from where it goes on by TLS.
    pub by_base_url: bool,
}

impl Credential {
    /// Whether its value goes to a host at a port.
    #[must_use]
    pub fn is_for(&self, host: &Name, port: u16) -> bool {
        self.hosts
            .iter()
            .any(|(name, at)| name == host && *at == port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::from("the value".to_owned());
        assert!(!format!("{secret:?}").contains("value"));
        assert_eq!(secret.reveal(), "the value");
    }
}
