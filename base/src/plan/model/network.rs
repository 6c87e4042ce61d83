//! What a filter outside needs of a filtered network.

use std::path::PathBuf;

use agent_sandbox_hosts::{HostRules, Name};
use serde::Serialize;

use super::java_store;
use super::step::{Mount, Step};
use crate::config::source::Source;
use crate::policy::ValueSource;

/// Where a filter is asked for names.
pub const NAMES: u16 = 53;

/// The network of a jail that is filtered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FilteredNetwork {
    /// To whom it leads.
    pub rules: HostRules,
    /// The ports at which the filter listens inside.
    pub ports: Vec<u16>,
    /// Values that stay outside.
    pub credentials: Vec<PlannedCredential>,
    /// Of a job: other credentials of its session, which stay placeholders in it, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<(PlannedCredential, String)>,
    /// Whom programs trust, inside and outside; `None` without credentials.
    pub trust: Option<Trust>,
}

impl FilteredNetwork {
    /// Whether the filter listens at a port inside.
    #[must_use]
    pub fn listens_at(&self, port: u16) -> bool {
        port == NAMES || self.ports.contains(&port)
    }
}

/// A credential: everything but its value, which no plan holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedCredential {
    /// Its name.
    pub name: String,
    /// To whom the value goes, by TLS at these ports.
    pub hosts: Vec<(Name, u16)>,
    /// The variable that holds the placeholder.
    pub env: String,
    /// What stands inside.
    #[serde(skip)]
    pub placeholder: String,
    /// Where the value is read.
    pub from: ValueSource,
    /// Whether programs may leave TLS to the filter.
    pub by_base_url: bool,
    /// Where it stands in the policy.
    pub source: Source,
}

/// Certificates that are trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Trust {
    /// Files inside that get the filter's certificate, the usual one first.
    pub bundles: Vec<PathBuf>,
    /// The same for Java, which has files of its own.
    pub java: Vec<PathBuf>,
    /// By which the filter knows servers outside, as PEM.
    #[serde(skip)]
    pub trusted: Vec<u8>,
}

impl Trust {
    /// Adds the filter's certificate, as PEM, to each of the files.
    pub fn add(&self, certificate: &[u8], steps: &mut [Step]) {
        for step in steps {
            let Mount::File { content } = &mut step.mount else {
                continue;
            };
            if self.bundles.contains(&step.at) {
                content.extend_from_slice(certificate);
            } else if self.java.contains(&step.at)
                && let Some(other) = java_store::with(content, &self.trusted, certificate)
            {
                *content = other;
            }
        }
    }
}
