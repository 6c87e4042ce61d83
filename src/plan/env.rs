//! The environment inside: what the caller has, less what is hidden, and what agent-sandbox sets.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{HiddenVariable, Job, Variable, Why, slurm, submitted};
use crate::config::source::Sourced;
use crate::env_vars;
use crate::host::HostFacts;
use crate::policy::paths::glob;
use crate::policy::{Env, Policy};

/// A hidden value of at least this many bytes is looked for inside other values. Shorter ones
/// (a display number, a region) occur by chance.
const SHORTEST_SECRET: usize = 16;

/// The two halves of the environment.
pub struct Environment {
    /// What exists inside, sorted by name.
    pub variables: Vec<Variable>,
    /// What does not.
    pub hidden: Vec<HiddenVariable>,
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
pub fn verdict(rules: &Env, name: &OsStr, value: Option<&OsStr>) -> Verdict {
    let name = name.as_bytes();
    let matching = |patterns: &[Sourced<String>], text: &[u8]| {
        patterns
            .iter()
            .rev()
            .find(|rule| glob(rule.value.as_bytes(), text))
            .cloned()
    };
    if let Some(rule) = matching(&rules.pass, name) {
        return Verdict::Passes(Why::rule("env.pass", &rule));
    }
    if let Some(rule) = matching(&rules.hide, name) {
        return Verdict::Hidden(Why::rule("env.hide", &rule));
    }
    if let Some(rule) = value.and_then(|value| matching(&rules.hide_values, value.as_bytes())) {
        return Verdict::Hidden(Why::rule("env.hide_values", &rule));
    }
    Verdict::Passes(Why::Every("no rule hides it"))
}

/// What the environment tells of the jail.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// The project directory.
    pub project: Option<&'a Path>,
    /// The session's id.
    pub session: &'a str,
    /// The current directory.
    pub cwd: &'a Path,
    /// See [`slurm::covered_directory`].
    pub slurm: Option<&'a Path>,
}

/// Plans the environment.
pub fn build(policy: &Policy, host: &HostFacts, told: Told<'_>) -> Environment {
    let Told {
        project,
        session,
        cwd,
        ..
    } = told;
    let rules = &policy.env;
    let mut variables: Vec<Variable> = Vec::new();
    let mut hidden: Vec<HiddenVariable> = Vec::new();
    let mut secrets: Vec<(&OsStr, &[u8])> = Vec::new();
    for (name, value) in &host.environment {
        match verdict(rules, name, Some(value)) {
            Verdict::Passes(why) => variables.push(Variable {
                name: name.clone(),
                value: value.clone(),
                why,
            }),
            Verdict::Hidden(why) => {
                let text = value.as_bytes();
                if text.len() >= SHORTEST_SECRET && !text.starts_with(b"/") {
                    secrets.push((name, text));
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
        let repeats = secrets
            .iter()
            .any(|(_, secret)| contains(variable.value.as_bytes(), secret));
        if repeats && !asked_for {
            let why = Why::Every("its value holds the value of a hidden variable");
            hidden.push(HiddenVariable {
                name: variable.name.clone(),
                why,
            });
        }
        asked_for || !repeats
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
    for rule in &rules.set {
        let (name, value) = &rule.value;
        set(name, value.into(), Why::key("env.set", rule));
    }
    if host.slurm.is_some()
        && let Some(path) = variables
            .iter_mut()
            .find(|variable| variable.name == env_vars::PATH)
        && let Some(longer) = slurm::search_path(&path.value, told.slurm)
    {
        path.value = longer;
    }
    variables.retain(|variable| variable.name != "OLDPWD" && valid(&variable.name));
    variables.sort_by(|a, b| a.name.cmp(&b.name));
    hidden.sort_by(|a, b| a.name.cmp(&b.name));
    Environment { variables, hidden }
}

/// Plans the environment of a job: the one that it brings, judged by the same rules. Where the
/// agent had its home and its temporary files is known inside, and stays.
pub fn build_for_job(policy: &Policy, host: &HostFacts, job: &Job, told: Told<'_>) -> Environment {
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

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
