//! Layers become one [`Policy`]. Two verbs, one per key and layer: *prefer* (the later layer
//! wins, lists grow) for every layer but the last, *narrow* (the result allows no more than either)
//! for the site's enforced layers. What they do with each key stands in the
//! table of keys.

use agent_sandbox_hosts::HostRule;

use super::bounds::{self, Bounds, ConditionalBounds};
use super::clamp::Clamp;
use super::credentials;
use super::hosts;
use super::injected_files;
use super::merged::{Agents, Policy};
use super::paths::PathSpec;
use super::state::{self, Wanted};
use super::stated::{Network, Stated};
use super::values::{HomeMode, Words};
use crate::config::agent::{Agent, name_of};
use crate::config::diagnostic::ConfigError;
use crate::config::load::RawLayer;
use crate::config::source::{Layer, Sourced};

/// What options of the command line add to the layers, already typed.
#[derive(Clone, Debug, Default)]
pub struct Additions {
    /// `--read PATH`
    pub read: Vec<Sourced<PathSpec>>,
    /// `--write PATH`
    pub write: Vec<Sourced<PathSpec>>,
    /// `--hide PATH`
    pub hide: Vec<Sourced<PathSpec>>,
    /// `--env NAME`
    pub pass: Vec<Sourced<String>>,
    /// `--env NAME=VALUE`
    pub set: Vec<Sourced<(String, String)>>,
    /// `--home MODE`
    pub home: Option<Sourced<HomeMode>>,
}

/// The words of `[home] mode` and `--home`.
pub const HOME_MODES: &[(&str, HomeMode)] = HomeMode::WORDS;

/// Merges the layers, weakest first, and the options of the command line. Enforced layers come last,
/// wherever they stand; among themselves they keep their order.
///
/// # Errors
/// A value that does not mean anything, with its file, line and the nearest valid word.
pub fn merge(layers: &[RawLayer], additions: &Additions) -> Result<Policy, ConfigError> {
    let (of_jobs, always): (Vec<_>, Vec<_>) = layers.iter().partition(|layer| layer.jobs.is_some());
    let (enforced, open): (Vec<_>, Vec<_>) = always
        .into_iter()
        .partition(|layer| layer.layer == Layer::SiteEnforced);
    let conditional = of_jobs.into_iter().filter_map(|layer| {
        let when = layer.jobs.clone()?;
        Some(Stated::read(layer).map(|stated| ConditionalBounds {
            when,
            bounds: stated.slurm.bounds,
        }))
    });
    let conditional = conditional.collect::<Result<Vec<_>, _>>()?;
    let read = |layers: &[&RawLayer]| -> Result<Vec<Stated>, ConfigError> {
        layers.iter().map(|layer| Stated::read(layer)).collect()
    };
    let (mut each, mut enforced) = (read(&open)?, read(&enforced)?);
    let agents: Vec<&Agent> = layers
        .iter()
        .filter_map(|raw| raw.profile.as_deref())
        .collect();
    let hosts: Vec<_> = agents.iter().flat_map(|agent| &agent.hosts).collect();
    let bound: Vec<_> = agents.iter().flat_map(|agent| &agent.bound_hosts).collect();
    for layer in &mut each {
        layer.network.name_agents(&hosts, &hosts);
    }
    for layer in &mut enforced {
        layer
            .network
            .name_agents(&bound, &[&hosts[..], &bound].concat());
    }
    let whose = state::whose(each.iter(), enforced.iter());
    let mut wanted = Wanted::default();
    for (raw, layer) in open.iter().zip(&mut each) {
        if let Some(agent) = &raw.profile {
            wanted.expand(&agent.state, whose, layer);
        }
    }
    let mut stated = Stated::default();
    for layer in each {
        stated.prefer(layer);
    }
    stated.add(additions);
    let credentials = credentials::of_layers(layers)?;
    credentials::apply(&credentials, &mut stated);
    let mut clamped = Vec::new();
    // First, for a host that the site does not let sign is not allowed for it either.
    for layer in &enforced {
        let bound = &layer.ssh.hosts;
        stated.ssh.hosts.clamp_to("ssh.hosts", bound, &mut clamped);
    }
    let logins = stated.ssh.hosts.allowed();
    stated.network.allow.list().extend(logins);
    bounds::settle(&mut stated, &mut enforced, &mut clamped);
    for layer in &enforced {
        stated.clamp_to(layer, &mut clamped);
        // `private` allows as `allow` does.
        let (private, allow) = (&mut stated.network.private, &layer.network.allow);
        private.clamp_to("network.private", allow, &mut clamped);
    }
    let policy = Policy {
        credentials,
        injected_files: injected_files::of_layers(layers),
        wanted,
        bounds: Bounds {
            layers: enforced,
            jobs: conditional,
        },
        clamped,
        ..Policy::of(stated)
    };
    // Also those that say nothing of an agent.
    let mut profiles = layers.iter().filter(|raw| raw.layer == Layer::Profile);
    profiles.try_for_each(|raw| policy.agents.permit(&name_of(&raw.file)))?;
    Ok(policy)
}

impl Network {
    /// Puts hosts in place of `@agent`, in what is given and in what is taken away.
    fn name_agents(&mut self, given: &[&HostRule], denied: &[&HostRule]) {
        hosts::with_agents(self.allow.list(), given);
        hosts::with_agents(self.private.list(), given);
        hosts::with_agents(self.deny.list(), denied);
    }
}

impl Agents {
    /// Refuses a profile that one of the lists does not have.
    fn permit(&self, name: &str) -> Result<(), ConfigError> {
        let Some(list) = self.allowed.iter().find(|list| !list.value.allows(name)) else {
            return Ok(());
        };
        let message = format!(
            "the agent `{name}` may not be used: `agents.allowed` ({}) has {}",
            list.source, list.value
        );
        let hint = match list.source.layer {
            Layer::SiteEnforced => "use one of these, or ask your administrators",
            _ => "use one of these, or add it to the list",
        };
        Err(ConfigError::plain(&message, Some(hint.to_owned())))
    }
}

impl Stated {
    fn add(&mut self, additions: &Additions) {
        let Additions {
            read,
            write,
            hide,
            pass,
            set,
            home,
        } = additions;
        self.files.read.list().extend(read.iter().cloned());
        self.files.write.list().extend(write.iter().cloned());
        self.files.hide.list().extend(hide.iter().cloned());
        self.env.pass.list().extend(pass.iter().cloned());
        for pair in set {
            self.env.set.set(pair.clone());
        }
        if let Some(mode) = home {
            self.home.mode.set(mode.clone());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
