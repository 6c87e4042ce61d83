//! The environment inside: what the caller has, less what is hidden, and what agent-sandbox sets.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{slurm, submitted};
use crate::config::source::{Layer, Sourced};
use crate::env_vars;
use crate::host::HostFacts;
use crate::plan::model::{GIT_SSH, HiddenVariable, Job, Variable, Why};
use crate::policy::bounds::Withheld;
use crate::policy::paths::glob;
use crate::policy::{Clamped, NetworkMode, Policy};
use bstr::ByteSlice;

/// A hidden value of at least this many bytes is looked for inside other values. Shorter ones
/// (a display number, a region) occur by chance.
const SHORTEST_SECRET: usize = 16;

/// Where ssh has its keys (`ssh(1)`), as the built-in policy hides it.
const KEYS: &str = "~/.ssh";

/// Why a variable passes that no rule names.
pub const NO_RULE: &str = "no rule hides it";

/// Variables that name the site's proxies, in small letters or large ones.
const PROXIES: [&[u8]; 4] = [b"http_proxy", b"https_proxy", b"all_proxy", b"no_proxy"];
/// Why they do not pass where the network is filtered.
const PROXY_OUTSIDE: &str =
    "the filter of the network uses the site's proxy outside; no program inside reaches it";

/// The two halves of the environment.
pub struct Environment {
    /// What exists inside, sorted by name.
    pub variables: Vec<Variable>,
    /// What does not.
    pub hidden: Vec<HiddenVariable>,
    /// What enforced layers keep out although another layer lets it pass.
    pub clamped: Vec<Clamped>,
}

/// What the rules say about one variable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// It passes.
    Passes(Why),
    /// It does not.
    Hidden(Why),
}

/// Judges a variable by its name and, where known, its value.
pub fn verdict(policy: &Policy, name: &OsStr, value: Option<&OsStr>) -> Verdict {
    let (rules, name) = (&policy.env, name.as_bytes());
    // What the site hides no other layer lets pass.
    if let Some(withheld) = policy.bounds.withheld(name, value.map(OsStr::as_bytes)) {
        return Verdict::Hidden(Why::rule(withheld.key, &withheld.rule));
    }
    let matching = |patterns: &[Sourced<String>], text: &[u8]| {
        patterns
            .iter()
            .rev()
            .find(|rule| glob(rule.value.as_bytes(), text))
            .cloned()
    };
    let pass = matching(&rules.pass, name).filter(|_| policy.bounds.unpassable(name).is_none());
    // A profile lets nothing pass that the user hides: an exception counts in its own layer and weaker ones.
    let outdone = |rule: &Sourced<String>| {
        // What the site enforces is judged above, with the site's own exceptions.
        let by_site = rule.source.layer == Layer::SiteEnforced;
        let pass = pass.as_ref();
        pass.is_some_and(|pass| by_site || rule.source.layer <= pass.source.layer)
    };
    if let Some(rule) = matching(&rules.hide, name).filter(|rule| !outdone(rule)) {
        return Verdict::Hidden(Why::rule("env.hide", &rule));
    }
    let by_value = value.and_then(|value| matching(&rules.hide_values, value.as_bytes()));
    if let Some(rule) = by_value.filter(|rule| !outdone(rule)) {
        return Verdict::Hidden(Why::rule("env.hide_values", &rule));
    }
    if let Some(rule) = pass {
        return Verdict::Passes(Why::rule("env.pass", &rule));
    }
    let filtered = policy.network.mode.value == NetworkMode::Filtered;
    if filtered && PROXIES.iter().any(|proxy| name.eq_ignore_ascii_case(proxy)) {
        return Verdict::Hidden(Why::Every(PROXY_OUTSIDE));
    }
    Verdict::Passes(Why::Every(NO_RULE))
}

/// The note that `env.pass` lets a variable pass and an enforced layer does not.
fn clamped_pass(policy: &Policy, name: &OsStr, value: &OsStr) -> Option<Clamped> {
    let bytes = name.as_bytes();
    let mut rules = policy.env.pass.iter().rev();
    let rule = rules.find(|rule| glob(rule.value.as_bytes(), bytes))?;
    let withheld = policy.bounds.withheld(bytes, Some(value.as_bytes()));
    let withheld = withheld.map(|it| it.rule.map(|rule| format!("{} `{rule}`", it.key)));
    Some(Clamped {
        key: "env.pass",
        asked: rule.clone(),
        allowed: withheld.or_else(|| policy.bounds.unpassable(bytes))?,
    })
}

/// What the environment tells of the jail.
#[derive(Clone, Copy, Debug)]
pub struct SessionNames<'a> {
    /// The project directory.
    pub project: Option<&'a Path>,
    /// The session's id.
    pub session: &'a str,
    /// The current directory.
    pub cwd: &'a Path,
}

/// Plans the environment.
pub fn build(policy: &Policy, host: &HostFacts, told: SessionNames<'_>) -> Environment {
    let SessionNames {
        project,
        session,
        cwd,
    } = told;
    let rules = &policy.env;
    let mut variables: Vec<Variable> = Vec::new();
    let mut hidden: Vec<HiddenVariable> = Vec::new();
    let mut clamped: Vec<Clamped> = Vec::new();
    // The values of hidden variables, and the site's rule that hides them.
    let mut secrets: Vec<(&[u8], Option<Withheld>)> = Vec::new();
    for (name, value) in &host.environment {
        clamped.extend(clamped_pass(policy, name, value));
        match verdict(policy, name, Some(value)) {
            Verdict::Passes(why) => variables.push(Variable {
                name: name.clone(),
                value: value.clone(),
                why,
            }),
            Verdict::Hidden(why) => {
                let text = value.as_bytes();
                if text.len() >= SHORTEST_SECRET && !text.starts_with(b"/") {
                    let bounds = &policy.bounds;
                    secrets.push((text, bounds.withheld(name.as_bytes(), Some(text))));
                }
                hidden.push(HiddenVariable {
                    name: name.clone(),
                    why,
                });
            }
        }
    }
    // A secret that another variable repeats is still the secret.
    variables.retain(|variable| {
        let asked_for = matches!(&variable.why, Why::Rule { .. });
        // One that the site hides stays one, whoever asks for the copy.
        let repeats = secrets
            .iter()
            .filter(|(_, by_site)| by_site.is_some() || !asked_for)
            .any(|(secret, _)| variable.value.as_bytes().contains_str(secret));
        if repeats {
            let why = Why::Every("its value holds the value of a hidden variable");
            hidden.push(HiddenVariable {
                name: variable.name.clone(),
                why,
            });
        }
        !repeats
    });
    let mut set = |name: &str, value: OsString, why: Why| {
        variables.retain(|variable| variable.name != name);
        hidden.retain(|variable| variable.name != name);
        variables.push(Variable {
            name: name.into(),
            value,
            why,
        });
    };
    let own = |reason| Why::Every(reason);
    set(
        env_vars::INSIDE,
        "1".into(),
        own("tells that this is the jail"),
    );
    if let Some(project) = project {
        set(
            env_vars::PROJECT,
            project.into(),
            own("the project directory"),
        );
    }
    set(env_vars::SESSION, session.into(), own("the session"));
    set(
        env_vars::HOME,
        host.home.clone().into(),
        own("the home directory"),
    );
    let runtime = format!("/run/user/{}", host.uid);
    set(
        env_vars::XDG_RUNTIME_DIR,
        runtime.into(),
        own("a private directory"),
    );
    if host.variable(env_vars::TMPDIR).is_some() {
        set(env_vars::TMPDIR, "/tmp".into(), own("the private /tmp"));
    }
    set(env_vars::PWD, cwd.into(), own("the current directory"));
    if !logs_in_by_ssh(policy, host) {
        set(
            env_vars::GIT_SSH,
            GIT_SSH.into(),
            own("no ssh key and no ssh-agent is here: git's user is told so"),
        );
    }
    for rule in &rules.set {
        let (name, value) = &rule.value;
        if let Some(withheld) = repeated(rule, &secrets) {
            clamped.push(Clamped {
                key: "env.set",
                // By name alone: the value is a secret.
                asked: Sourced::new(name.clone(), rule.source.clone()),
                allowed: (withheld.rule.clone())
                    .map(|rule| format!("no copy of what {} `{rule}` hides", withheld.key)),
            });
            continue;
        }
        let value = set_value(value, &host.home);
        set(name, value, Why::key("env.set", rule));
    }
    if let Some(path) = variables
        .iter_mut()
        .find(|variable| variable.name == env_vars::PATH)
        && let Some(longer) = slurm::search_path(&path.value)
    {
        path.value = longer;
    }
    variables.retain(|variable| variable.name != "OLDPWD" && valid(&variable.name));
    variables.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    hidden.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    clamped.dedup();
    Environment {
        variables,
        hidden,
        clamped,
    }
}

/// Whether something inside may be able to log in by ssh, or the user says by which program git does so.
fn logs_in_by_ssh(policy: &Policy, host: &HostFacts) -> bool {
    let keys = &policy.files.unhide;
    let names = [
        env_vars::GIT_SSH,
        env_vars::GIT_SSH_COMMAND,
        env_vars::SSH_AUTH_SOCK,
    ];
    let passes = |name: &str| {
        let value = host.variable(name);
        value.is_some() && matches!(verdict(policy, name.as_ref(), value), Verdict::Passes(_))
    };
    keys.iter().any(|rule| rule.value.to_string() == KEYS) || names.into_iter().any(passes)
}

/// A value as the policy sets it: one that begins with `~/` begins with the home directory.
pub fn set_value(written: &str, home: &Path) -> OsString {
    match written.strip_prefix("~/") {
        Some(below) => home.join(below).into(),
        None => written.into(),
    }
}

/// The site's rule that hides a value which `env.set` of another layer repeats.
fn repeated<'a>(
    rule: &Sourced<(String, String)>,
    secrets: &'a [(&[u8], Option<Withheld>)],
) -> Option<&'a Withheld> {
    if rule.source.layer == Layer::SiteEnforced {
        return None;
    }
    let (_, value) = &rule.value;
    let mut of_site = secrets
        .iter()
        .filter_map(|(secret, by_site)| Some((secret, by_site.as_ref()?)));
    let (_, withheld) = of_site.find(|(secret, _)| value.as_bytes().contains_str(secret))?;
    Some(withheld)
}

/// Plans the environment of a job: the one that it brings, judged by the same rules. Where the
/// agent had its home and its temporary files is known inside, and stays.
pub fn build_for_job(
    policy: &Policy,
    host: &HostFacts,
    job: &Job,
    told: SessionNames<'_>,
) -> Environment {
    let inside = HostFacts {
        environment: submitted::environment(host, &job.environment),
        ..host.clone()
    };
    let mut built = build(policy, &inside, told);
    for name in [env_vars::HOME, env_vars::TMPDIR, env_vars::PWD] {
        let planned = built
            .variables
            .iter_mut()
            .find(|variable| variable.name == name);
        if let (Some(planned), Some(given)) = (planned, inside.variable(name))
            && matches!(planned.why, Why::Every(_))
            && (policy.bounds)
                .withheld(name.as_bytes(), Some(given.as_bytes()))
                .is_none()
        {
            planned.value = given.to_owned();
        }
    }
    built
}

/// An entry of `environ(7)` without a name cannot be passed on by one.
fn valid(name: &OsStr) -> bool {
    !name.is_empty()
}
