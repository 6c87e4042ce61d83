//! Hosts that a filtered network leads to: lists of rules and of named sets of them, how layers join, and how an enforced list
//! bounds others.

use std::fmt;

use agent_sandbox_hosts::{HostPattern, HostRule, Name, Ports, WEB_PORTS};
use serde::{Serialize, Serializer};

use super::clamp::{Clamp, Clamped, Entry, Gives, List, Rule};
use crate::config::built_in::SETS;
use crate::config::source::{Source, Sourced};

/// The set of the hosts that the profiles in use name. As a bound it has what the site's profiles of these names say, or else
/// the built-in ones ([`Agent::bound_hosts`](crate::config::agent::Agent)): a file of the user's does not widen it.
const AGENT: &str = "@agent";

/// An entry of a list of hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostEntry {
    /// A rule, and the set that has it if it was not written by itself.
    Rule(HostRule, Option<&'static str>),
    /// `@agent`, until it is known which profiles are in use.
    Agent,
}

impl HostEntry {
    /// As it is written in a list.
    pub fn written(&self) -> String {
        match self {
            Self::Rule(rule, None) => rule.to_string(),
            Self::Rule(_, Some(set)) => (*set).to_owned(),
            Self::Agent => AGENT.to_owned(),
        }
    }

    /// The rule, but of a set that nothing was put in place of.
    pub fn rule(&self) -> Option<&HostRule> {
        match self {
            Self::Rule(rule, _) => Some(rule),
            Self::Agent => None,
        }
    }

    /// Whether it stands for every name.
    pub fn is_any(&self) -> bool {
        matches!(self, Self::Rule(rule, _) if rule.host == HostPattern::Any)
    }

    /// The set that has the rule, if it was not written by itself.
    pub fn set(&self) -> Option<&'static str> {
        match self {
            Self::Rule(_, set) => *set,
            Self::Agent => None,
        }
    }
}

impl fmt::Display for HostEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule, Some(set)) => write!(f, "{rule} ({set})"),
            other => f.write_str(&other.written()),
        }
    }
}

impl Serialize for HostEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Entry for HostEntry {}

/// Whether a text is a host as lists have it, by itself.
pub fn is_host(text: &str) -> bool {
    text.parse::<HostRule>().is_ok()
}

/// What an entry of a list stands for; an error says why it is none.
///
/// # Errors
/// The text completes "`ENTRY` is no host: …"; with it a hint, if there is one.
pub(super) fn entries(written: &str) -> Result<Vec<HostEntry>, (String, Option<String>)> {
    if written == AGENT {
        return Ok(vec![HostEntry::Agent]);
    }
    if written.starts_with('@') {
        let Some((set, rules)) = SETS.iter().find(|(name, _)| *name == written) else {
            let names: Vec<&str> = SETS.iter().map(|(name, _)| *name).collect();
            let hint = format!("valid: {AGENT}, {}", names.join(", "));
            return Err(("there is no set of this name".to_owned(), Some(hint)));
        };
        let rules = rules.iter().map(|rule| rule.parse());
        return rules
            .map(|rule| rule.map(|rule| HostEntry::Rule(rule, Some(*set))))
            .collect::<Result<_, _>>()
            .map_err(|error: agent_sandbox_hosts::RuleError| (error.to_string(), None));
    }
    match written.parse() {
        Ok(rule) => Ok(vec![HostEntry::Rule(rule, None)]),
        Err(error) => Err((agent_sandbox_hosts::RuleError::to_string(&error), None)),
    }
}

/// The entries of a list with these hosts in place of `@agent`.
pub(super) fn with_agents(list: &mut Vec<Sourced<HostEntry>>, hosts: &[&HostRule]) {
    let expanded = std::mem::take(list).into_iter().flat_map(|entry| {
        if entry.value != HostEntry::Agent {
            return vec![entry];
        }
        let of_agent = |host: &&HostRule| HostEntry::Rule((*host).clone(), Some(AGENT));
        hosts
            .iter()
            .map(|host| Sourced::new(of_agent(host), entry.source.clone()))
            .collect()
    });
    *list = expanded.collect();
}

/// Entries as they are judged.
pub fn rules(entries: &[Sourced<HostEntry>]) -> Vec<agent_sandbox_hosts::Rule> {
    let rules = entries.iter().filter_map(|entry| {
        Some(agent_sandbox_hosts::Rule {
            rule: entry.value.rule()?.clone(),
            set: entry.value.set().map(str::to_owned),
            origin: entry.source.to_string(),
        })
    });
    rules.collect()
}

/// Hosts that are given. In an enforced layer it is a bound: of what others give there holds what both allow.
#[derive(Clone, Debug, Default)]
pub struct Hosts(Gives<HostEntry>);

impl Hosts {
    pub(super) fn list(&mut self) -> &mut Vec<Sourced<HostEntry>> {
        self.0.list()
    }

    /// What holds.
    pub(super) fn settle(self) -> Vec<Sourced<HostEntry>> {
        self.0.settle()
    }

    /// Whether a rule opens nothing that the list does not, as a bound.
    pub fn covers(&self, rule: &HostRule) -> bool {
        let Some(bound) = self.0.bound() else {
            return true;
        };
        let mut rules = bound.iter().filter_map(|entry| entry.value.rule());
        rules.any(|bound| common(rule, bound).contains(rule))
    }

    /// As a bound; `None` if the layer says nothing, which bounds nothing.
    pub fn bound(&self) -> Option<&[Sourced<HostEntry>]> {
        self.0.bound()
    }
}

impl List<HostEntry> for Hosts {
    fn of(named: Option<Source>, entries: Vec<Sourced<HostEntry>>) -> Self {
        Self(Gives::of(named, entries))
    }
}

impl Clamp for Hosts {
    type Value = Vec<Sourced<HostEntry>>;

    const RULE: Rule = Rule::Within;

    fn prefer(&mut self, later: Self) {
        self.0.prefer(later.0);
    }

    fn clamp_to(&mut self, key: &'static str, enforced: &Self, clamped: &mut Vec<Clamped>) {
        let (Some(bound), Some(shown)) = (enforced.0.bound(), enforced.bounds()) else {
            return;
        };
        let mut held = Vec::new();
        for asked in std::mem::take(self.list()) {
            let HostEntry::Rule(rule, set) = &asked.value else {
                continue;
            };
            let rules = bound.iter().filter_map(|entry| entry.value.rule());
            let mut both: Vec<HostRule> = rules.flat_map(|bound| common(rule, bound)).collect();
            if both.contains(rule) {
                held.push(asked);
                continue;
            }
            let one = Clamped {
                key,
                asked: asked.clone().map(|entry| entry.written()),
                allowed: shown.clone(),
            };
            if !clamped.contains(&one) {
                clamped.push(one);
            }
            both.dedup();
            let narrower = both.into_iter().map(|rule| HostEntry::Rule(rule, *set));
            held.extend(narrower.map(|entry| Sourced::new(entry, asked.source.clone())));
        }
        *self.list() = held;
    }

    /// The entries as they are written, each set once.
    fn bounds(&self) -> Option<Sourced<String>> {
        let mut shown = self.0.shown()?;
        let mut written: Vec<String> = Vec::new();
        for entry in self.0.bound().unwrap_or_default() {
            let text = format!("`{}`", entry.value.written());
            if !written.contains(&text) {
                written.push(text);
            }
        }
        if !written.is_empty() {
            shown.value = written.join(", ");
        }
        Some(shown)
    }
}

/// What both rules allow; none where that is nothing, or no rule says just that.
fn common(asked: &HostRule, bound: &HostRule) -> Vec<HostRule> {
    let Some(host) = common_host(&asked.host, &bound.host) else {
        return Vec::new();
    };
    let ports = common_ports(&asked.ports, &bound.ports).into_iter();
    ports
        .map(|ports| HostRule {
            host: host.clone(),
            ports,
        })
        .collect()
}

fn common_host(asked: &HostPattern, bound: &HostPattern) -> Option<HostPattern> {
    use HostPattern::{Address, Any, Below, Name};
    let named = |name: &self::Name| !name.is_localhost();
    match (asked, bound) {
        (one, other) if one == other => Some(one.clone()),
        (Name(name), Below(apex)) | (Below(apex), Name(name)) => {
            name.is_below(apex).then(|| Name(name.clone()))
        }
        (Below(one), Below(other)) if one.is_below(other) => Some(Below(one.clone())),
        (Below(one), Below(other)) if other.is_below(one) => Some(Below(other.clone())),
        // It stands for every name but that of this host, and for no address.
        (Any, Name(name) | Below(name)) | (Name(name), Any) | (Below(name), Any) => {
            let pattern = if matches!(asked, Any) { bound } else { asked };
            named(name).then(|| pattern.clone())
        }
        (Name(_) | Below(_) | Address(_) | Any, _) => None,
    }
}

fn common_ports(asked: &Ports, bound: &Ports) -> Vec<Ports> {
    match (asked, bound) {
        (Ports::Unnamed, Ports::Unnamed) => vec![Ports::Unnamed],
        // Each by itself: in `private` a rule without a port would mean all ports.
        (Ports::Unnamed, Ports::Named(range)) => WEB_PORTS
            .into_iter()
            .filter(|port| range.contains(port))
            .map(|port| Ports::Named(port..=port))
            .collect(),
        // The bound lets HTTP and TLS alone through.
        (Ports::Named(range), Ports::Unnamed) => WEB_PORTS
            .into_iter()
            .filter(|port| range.contains(port))
            .map(Ports::Web)
            .collect(),
        // What one bound has left, within the next: no bound is of this kind.
        (Ports::Web(port), bound) | (bound, Ports::Web(port)) => match bound.opens(*port) {
            true => vec![Ports::Web(*port)],
            false => Vec::new(),
        },
        (Ports::Named(one), Ports::Named(other)) => {
            let first = *one.start().max(other.start());
            let last = *one.end().min(other.end());
            match first <= last {
                true => vec![Ports::Named(first..=last)],
                false => Vec::new(),
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn both(asked: &str, bound: &str) -> String {
        let common = common(&asked.parse().unwrap(), &bound.parse().unwrap());
        let texts: Vec<String> = common.iter().map(ToString::to_string).collect();
        match texts.is_empty() {
            true => "-".to_owned(),
            false => texts.join(" "),
        }
    }

    #[test]
    fn what_is_asked_and_what_is_allowed_have_in_common() {
        for (asked, bound, common) in [
            ("a.org", "a.org", "a.org"),
            ("a.org", "b.org", "-"),
            ("a.org", "*.a.org", "-"),
            ("x.a.org", "*.a.org", "x.a.org"),
            ("*.a.org", "x.a.org", "x.a.org"),
            ("*.a.org", "*.x.a.org", "*.x.a.org"),
            ("*.x.a.org", "*.a.org", "*.x.a.org"),
            ("*.xa.org", "*.a.org", "-"),
            ("*", "a.org:22", "-"),
            ("*:22", "a.org:22", "a.org:22"),
            ("a.org", "*", "a.org"),
            ("localhost", "*", "-"),
            ("10.0.0.1", "*", "-"),
            ("10.0.0.1:80", "10.0.0.1:80", "10.0.0.1:80"),
            ("a.org:22", "a.org", "-"),
            ("a.org:443", "a.org", "a.org:443 (HTTP and TLS alone)"),
            ("a.org:443", "*", "a.org:443 (HTTP and TLS alone)"),
            ("*:1-100", "a.org", "a.org:80 (HTTP and TLS alone)"),
            (
                "a.org:22-500",
                "a.org",
                "a.org:80 (HTTP and TLS alone) a.org:443 (HTTP and TLS alone)",
            ),
            ("a.org", "a.org:1-1024", "a.org:80 a.org:443"),
            ("a.org", "a.org:443", "a.org:443"),
            // In `private` the bound would open all ports if both were one rule without any.
            (
                "localhost",
                "localhost:80-443",
                "localhost:80 localhost:443",
            ),
            ("a.org:20-30", "a.org:25-40", "a.org:25-30"),
            ("a.org:20", "a.org:25-40", "-"),
        ] {
            assert_eq!(both(asked, bound), common, "{asked} within {bound}");
        }
    }

    #[test]
    fn every_set_has_rules_alone() {
        for (set, rules) in SETS {
            assert_eq!(entries(set).unwrap().len(), rules.len(), "{set}");
            assert!(!rules.is_empty(), "{set}");
        }
        assert!(entries("@nobody").is_err());
        assert!(entries("https://a.org").is_err());
    }
}
