//! Layers become one [`Policy`]. Two verbs, one per key and layer: *prefer* (the later layer
//! wins, lists grow) for every layer but the last, *narrow* (the result allows no more than either)
//! for the site's enforced layers. What they do with each key stands in the
//! table of keys.

use super::bounds::{self, Bounds, ConditionalBounds};
use super::clamp::Clamp;
use super::credentials;
use super::hosts;
use super::injected_files;
use super::merged::Policy;
use super::paths::PathSpec;
use super::state::{self, Wanted};
use super::stated::Stated;
use super::values::{HomeMode, Words};
use crate::config::agent::Agent;
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
    for layer in each.iter_mut().chain(&mut enforced) {
        let network = &mut layer.network;
        let lists = [
            network.allow.list(),
            network.deny.list(),
            network.private.list(),
        ];
        for list in lists {
            hosts::with_agents(list, &agents);
        }
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
    Ok(Policy {
        credentials,
        injected_files: injected_files::of_layers(layers),
        wanted,
        bounds: Bounds {
            layers: enforced,
            jobs: conditional,
        },
        clamped,
        ..Policy::of(stated)
    })
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
