//! The rules of a running session's network, from the policy as it is now.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use agent_sandbox_hosts::{Cause, Endpoint, Host, HostPattern, HostRules, Ports};
use anyhow::Result;

use crate::cli::Options;
use crate::config::load::{Request, load};
use crate::config::source::{Layer, Source, Sourced};
use crate::failure::Failure;
use crate::host;
use crate::launch::options::{additions, locations};
use crate::launch::prepared::Prepared;
use crate::plan::build::network::of_policy;
use crate::plan::model::network::FilteredNetwork;
use crate::plan::{Mount, Plan};
use crate::policy::Policy;
use crate::policy::hosts::HostEntry;
use crate::policy::merge::merge;

/// Where a rule stands that was given to a running session.
const GIVEN: &str = "agent-sandbox allow";
/// The port that is meant where none is named: that of HTTPS.
const USUAL_PORT: u16 = 443;
/// As many links as the kernel follows (`path_resolution(7)`).
const MOST_LINKS: usize = 40;

/// What the launch was asked for, as far as rules of hosts depend on it.
#[derive(Debug)]
pub(super) struct PolicyNow {
    options: Options,
    command: Option<OsString>,
    project: PathBuf,
    cwd: PathBuf,
    closed: Vec<Endpoint>,
    /// Ports that are forwarded.
    pub(super) forward: Vec<u16>,
    /// Directories and files of the host's that are in the jail, and whether it can write there.
    shared: Vec<(PathBuf, bool)>,
    /// The directory of the user's state.
    pub(super) state: PathBuf,
    /// The session's id.
    pub(super) session: String,
    /// The user.
    pub(super) uid: u32,
}

impl PolicyNow {
    pub(super) fn new(
        prepared: &Prepared,
        plan: &Plan,
        filter: &FilteredNetwork,
        options: &Options,
    ) -> Self {
        let invocation = &prepared.invocation;
        let project = plan.project.clone().or_else(|| invocation.project.clone());
        let command = invocation.command.first().map(Path::new);
        let shared = plan.steps.iter().filter_map(|step| match &step.mount {
            Mount::Bind { from, .. } | Mount::Kept { from, .. } => {
                Some((from.clone(), step.mount.is_writable()))
            }
            _ => None,
        });
        Self {
            options: options.clone(),
            command: command.and_then(|command| Some(command.file_name()?.to_owned())),
            // As the launch found it: what is inside may move it, or put a link there.
            project: project.unwrap_or_default(),
            cwd: invocation.cwd.clone(),
            closed: filter.rules.closed.clone(),
            forward: plan.forward.iter().map(|port| port.value).collect(),
            shared: shared.collect(),
            state: prepared.host.state_directory.clone(),
            session: plan.session.clone(),
            uid: prepared.host.uid,
        }
    }

    /// The directories in which files of the user's policy stand, or would.
    ///
    /// # Errors
    /// There is no home directory.
    pub(super) fn directories(&self) -> Result<[PathBuf; 2]> {
        let config = locations()?.config_dir;
        Ok([config.join("profiles"), config])
    }

    /// What a filter needs for the policy as it is now, with these hosts given besides.
    ///
    /// # Errors
    /// A file is no policy, or the session could change it; one of the hosts is none, is denied, or is not within what the
    /// site permits.
    pub(super) fn network(&self, given: &[String]) -> Result<FilteredNetwork> {
        let locations = locations()?;
        // Before it is read, for what the jail wrote may have no end; and once more when it was read, for a link may have come meanwhile.
        self.refuse_files_that_the_jail_can_change()?;
        let mut set = self.options.set.clone();
        if !given.is_empty() {
            let quoted: Vec<String> = given.iter().map(|host| format!("{host:?}")).collect();
            set.push(format!("network.allow=[{}]", quoted.join(", ")));
        }
        let mut layers = load(&Request {
            locations: &locations,
            profiles: &self.options.profile,
            command: self.command.as_deref(),
            project: Some(&self.project),
            settled: true,
            set: &set,
            circumstances: &host::circumstances::probe,
        })?;
        let mut options = layers.iter_mut().rev();
        if let Some(last) = options.find(|layer| layer.layer == Layer::CommandLine)
            && !given.is_empty()
        {
            last.file = GIVEN.into();
        }
        self.refuse_files_that_the_jail_can_change()?;
        let policy = merge(&layers, &additions(&self.options, &self.cwd)?)?;
        let network = of_policy(&policy, self.closed.clone())?;
        refuse_what_does_not_hold(&policy, &network.rules)?;
        Ok(network)
    }

    /// Files of the user's policy, and one that stands for the directory of profiles. Each profile may be a link of its own, and which
    /// of them holds is known when they are read.
    fn files(&self) -> Result<Vec<PathBuf>> {
        let directories = self.directories()?;
        // One that cannot be listed stops whoever reads the policy next.
        let profiles = std::fs::read_dir(&directories[0]).into_iter().flatten();
        let profiles = profiles.flatten().map(|entry| entry.path());
        let named = directories.iter().map(|at| at.join("config.toml"));
        Ok(named.chain(profiles).collect())
    }

    /// Refuses all of the user's policy if the jail can change one of its files.
    fn refuse_files_that_the_jail_can_change(&self) -> Result<()> {
        let mut files = self.files()?.into_iter();
        files.try_for_each(|file| self.refuse_what_the_jail_can_change(&file))
    }

    /// Refuses a file if the way to it, links included, leads through something that the jail can change.
    fn refuse_what_the_jail_can_change(&self, file: &Path) -> Result<()> {
        let Some(at) = self.jails_part_of(file) else {
            return Ok(());
        };
        let (file, at) = (file.display(), at.display());
        Err(Failure::new(format!(
            "`{file}` leads through `{at}`, which this session can change, so that its changes are for new sessions alone"
        ))
        .into())
    }

    fn jails_part_of(&self, path: &Path) -> Option<PathBuf> {
        let mut waiting = vec![path.to_owned()];
        let (mut at, mut links) = (PathBuf::from("/"), 0);
        while let Some(rest) = waiting.pop() {
            let mut parts = rest.components();
            let Some(part) = parts.next() else { continue };
            waiting.push(parts.as_path().to_owned());
            match part {
                Component::RootDir => at = PathBuf::from("/"),
                Component::ParentDir => drop(at.pop()),
                Component::CurDir | Component::Prefix(_) => {}
                Component::Normal(name) => {
                    let next = at.join(name);
                    if self.can_write(&next) {
                        return Some(next);
                    }
                    match std::fs::read_link(&next) {
                        // One with more links cannot be opened.
                        Ok(target) if links < MOST_LINKS => {
                            links += 1;
                            waiting.push(target);
                        }
                        _ => at = next,
                    }
                }
            }
        }
        None
    }

    /// Whether the jail has a path of the host's writable: the innermost of what it shares decides.
    pub(super) fn can_write(&self, path: &Path) -> bool {
        let around = self
            .shared
            .iter()
            .filter(|(from, _)| path.starts_with(from));
        let innermost = around.max_by_key(|(from, _)| from.components().count());
        innermost.is_some_and(|(_, writable)| *writable)
    }
}

/// Refuses hosts that were given and that the site or a rule of `deny` keeps from the session.
fn refuse_what_does_not_hold(policy: &Policy, rules: &HostRules) -> Result<()> {
    let is_given = |source: &Source| &*source.file == GIVEN;
    let mut clamped = policy.clamped.iter();
    if let Some(one) = clamped.find(|one| is_given(&one.asked.source)) {
        return Err(Failure::new(format!(
            "`{}` is not given: {} of {} permits {} alone",
            one.asked.value, one.key, one.allowed.source, one.allowed.value
        ))
        .into());
    }
    let given = policy.network.allow.iter();
    for Sourced { value, .. } in given.filter(|entry| is_given(&entry.source)) {
        let HostEntry::Rule(rule, None) = value else {
            continue;
        };
        let host = match &rule.host {
            HostPattern::Name(name) => Host::Name(name.clone()),
            HostPattern::Address(address) => Host::Address(*address),
            HostPattern::Below(_) | HostPattern::Any => continue,
        };
        let port = match &rule.ports {
            Ports::Unnamed => USUAL_PORT,
            Ports::Named(range) => *range.start(),
            Ports::Web(port) => *port,
        };
        if let Err(refusal) = rules.judge(&host, port) {
            let denied = matches!(refusal.cause, Cause::Denied(_));
            let hint = refusal.hint().filter(|_| denied);
            let failure = Failure::new(refusal.to_string());
            return Err(hint.into_iter().fold(failure, Failure::hint).into());
        }
    }
    Ok(())
}
