//! What a filter outside needs of a filtered network.

use agent_sandbox_hosts::HostRules;
use serde::Serialize;

/// The network of a jail that is filtered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FilteredNetwork {
    /// To whom it leads.
    pub rules: HostRules,
    /// The ports at which the filter listens inside.
    pub ports: Vec<u16>,
}
