//! One scenario: files, facts, a policy, a project; and its plan as text.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use agent_sandbox::config::load::{RawLayer, parse};
use agent_sandbox::config::parse::DEFAULT;
use agent_sandbox::config::source::Layer;
use agent_sandbox::host::HostFacts;
use agent_sandbox::plan::explain::inside::DOCUMENT;
use agent_sandbox::plan::{self, Access, Invocation, Job, Mount, Plan, PlanError};
use agent_sandbox::policy::Policy;
use agent_sandbox::policy::merge::{Additions, merge};

use crate::tree::Tree;
use crate::{host, judge};

/// What messages call the built-in policy; its line numbers are left out of snapshots.
const BUILT_IN: &str = "built-in default.toml";

pub(crate) struct Scenario {
    pub(crate) tree: Tree,
    pub(crate) host: HostFacts,
    layers: Vec<RawLayer>,
    additions: Additions,
    invocation: Invocation,
}

impl Scenario {
    /// Ada in `~/project`, under the built-in policy.
    pub(crate) fn new(tree: Tree) -> Self {
        let project = PathBuf::from("/home/ada/project");
        Self {
            tree,
            host: host::facts(),
            layers: vec![layer(Layer::BuiltIn, BUILT_IN, DEFAULT)],
            additions: Additions::default(),
            invocation: Invocation {
                project: Some(project.clone()),
                cwd: project,
                command: vec!["bash".into()],
                session: "s0000000".into(),
                random: "0123456789abcdef0123456789abcdef".into(),
                job: None,
            },
        }
    }

    /// The user's own policy.
    pub(crate) fn policy(mut self, text: &str) -> Self {
        self.layers.push(layer(Layer::User, "config.toml", text));
        self
    }

    /// Instead of the built-in policy, a short one.
    pub(crate) fn only_policy(mut self, text: &str) -> Self {
        self.layers = vec![layer(Layer::User, "config.toml", text)];
        self
    }

    /// A file of the site's that users can override.
    pub(crate) fn defaults(mut self, text: &str) -> Self {
        self.layers
            .push(layer(Layer::SiteDefaults, "defaults.toml", text));
        self
    }

    /// A file of the site's that users cannot override.
    pub(crate) fn enforced(mut self, text: &str) -> Self {
        self.layers
            .push(layer(Layer::SiteEnforced, "enforced.toml", text));
        self
    }

    /// Options of the command line.
    pub(crate) fn options(mut self, additions: Additions) -> Self {
        self.additions = additions;
        self
    }

    pub(crate) fn profile(mut self, name: &str, text: &str) -> Self {
        self.layers.push(layer(Layer::Profile, name, text));
        self
    }

    pub(crate) fn project(mut self, path: &str) -> Self {
        self.invocation.project = Some(path.into());
        self.invocation.cwd = path.into();
        self
    }

    pub(crate) fn cwd(mut self, path: &str) -> Self {
        self.invocation.cwd = path.into();
        self
    }

    pub(crate) fn command(mut self, words: &[&str]) -> Self {
        self.invocation.command = words.iter().map(Into::into).collect();
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.host.environment.push((name.into(), value.into()));
        self
    }

    /// In a job on a compute node, with the environment that the job brings.
    pub(crate) fn job(mut self, environment: &[(&str, &str)]) -> Self {
        let pairs = environment.iter();
        self.invocation.job = Some(Job {
            environment: pairs
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            ..Job::default()
        });
        self
    }

    /// In a job of a session that exchanges a credential.
    pub(crate) fn exchanges(mut self, name: &str, placeholder: &str) -> Self {
        let job = self.invocation.job.as_mut().unwrap();
        job.placeholders.push((name.into(), placeholder.into()));
        self
    }

    /// Bytes of memory that slurmstepd says the job has.
    pub(crate) fn memory(mut self, bytes: Option<u64>) -> Self {
        self.invocation.job.as_mut().unwrap().memory = bytes;
        self
    }

    /// The batch script, where Slurm put it.
    pub(crate) fn script(mut self, at: &str) -> Self {
        self.invocation.job.as_mut().unwrap().script = Some((at.into(), b"#!/bin/sh".to_vec()));
        self
    }

    pub(crate) fn facts(mut self, change: impl FnOnce(&mut HostFacts)) -> Self {
        change(&mut self.host);
        self
    }

    pub(crate) fn merged(&self) -> Policy {
        merge(&self.layers, &self.additions).unwrap()
    }

    pub(crate) fn plan(&self) -> Result<Plan, PlanError> {
        plan::build(&self.merged(), &self.host, &self.tree, &self.invocation)
    }

    /// For questions about the rules alone.
    pub(crate) fn without_project(mut self) -> Plan {
        self.invocation.project = None;
        self.plan().unwrap()
    }

    /// The plan as text, or the refusal; a plan is judged, too.
    pub(crate) fn text(&self) -> String {
        match self.plan() {
            Ok(plan) => {
                let complaints = judge::complaints(&plan, &self.merged(), &self.host, &self.tree);
                assert!(complaints.is_empty(), "\n  {}\n", complaints.join("\n  "));
                text(&plan)
            }
            Err(error) => {
                let hint = error.hint_text().map(|hint| format!("hint: {hint}\n"));
                without_lines(&format!("error: {error}\n{}", hint.unwrap_or_default()))
            }
        }
    }

    /// Compares with the snapshot of this name.
    #[track_caller]
    pub(crate) fn snapshot(&self, name: &str) {
        compare(name, &self.text());
    }
}

/// Compares a text with a snapshot, wherever this program runs.
#[track_caller]
pub(crate) fn compare(name: &str, text: &str) {
    let root = std::env::var_os("AGENT_SANDBOX_ROOT")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path(root.join("tests/plan/snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, without_lines(text)));
}

pub(crate) fn layer(layer: Layer, file: &str, text: &str) -> RawLayer {
    parse(layer, file, text)
        .unwrap_or_else(|error| panic!("{error}"))
        .raw
}

/// A plan, short: one line for each step, without what the built-in policy names and this host
/// lacks.
pub(crate) fn text(plan: &Plan) -> String {
    let mut all = String::new();
    let mut line = |text: String| writeln!(all, "{}", without_lines(&text)).unwrap();
    let shown = |path: Option<&Path>| path.map_or("none".into(), |path| path.display().to_string());
    line(format!("project   {}", shown(plan.project.as_deref())));
    line(format!("directory {}", plan.cwd.display()));
    line(format!("network   {:?}", plan.network.value));
    line(format!("nested    {}", plan.nested.value));
    line("\nfiles".into());
    for step in &plan.steps {
        let at = step.at.display();
        let what = match &step.mount {
            Mount::Bind { from, access, .. } => {
                let verb = match access {
                    Access::Read => "read ",
                    Access::Write => "write",
                };
                let elsewhere = format!(" <- {}", from.display());
                format!(
                    "{verb}   {at}{}",
                    if *from == step.at { "" } else { &elsewhere }
                )
            }
            Mount::Kept { from, .. } => format!("keep    {at} <- {}", from.display()),
            Mount::Device { from } => format!("device  {at} <- {}", from.display()),
            Mount::Tmpfs { size, mode } => format!("tmpfs   {at} ({mode:o}, {} MiB)", size >> 20),
            Mount::Directory { mode } => format!("mkdir   {at} ({mode:o})"),
            Mount::Link { target } => format!("link    {at} -> {}", target.display()),
            // Its length changes with every line of the built-in policy.
            Mount::File { .. } if step.at == Path::new(DOCUMENT) => format!("file    {at}"),
            Mount::File { content } => format!("file    {at} ({} bytes)", content.len()),
            Mount::Copy { content, mode, .. } => {
                format!("copy    {at} ({mode:o}, {} bytes)", content.len())
            }
            Mount::Program { content } => format!("program {at} ({} bytes)", content.len()),
            Mount::HideDirectory => format!("cover   {at}/"),
            Mount::HideFile => format!("cover   {at}"),
            Mount::Proc | Mount::Dev => format!("fresh   {at}"),
        };
        line(format!("  {what}  [{}]", step.why));
    }
    line("\nhidden".into());
    for hidden in plan.hidden.existing() {
        line(format!(
            "  {}  [{}]",
            hidden.path.display(),
            hidden.rule.value
        ));
    }
    line("\nleft out".into());
    for omitted in &plan.omitted {
        if omitted.loud || !without_lines(&omitted.why.to_string()).contains("(built-in)") {
            let loud = if omitted.loud { ", said aloud" } else { "" };
            line(format!(
                "  {}: {}{loud}  [{}]",
                omitted.path, omitted.reason, omitted.why
            ));
        }
    }
    line("\nvariables".into());
    for variable in &plan.variables {
        let (name, value) = (variable.name.display(), variable.value.display());
        line(format!("  {name}={value}  [{}]", variable.why));
    }
    for variable in &plan.hidden_variables {
        line(format!(
            "  no {}  [{}]",
            variable.name.display(),
            variable.why
        ));
    }
    for weakness in &plan.weaknesses {
        line(format!("\nweakness: {weakness}"));
    }
    all
}

/// Lines of the built-in policy move with every comment that is added there.
pub(crate) fn without_lines(text: &str) -> String {
    let before_number = format!("{BUILT_IN}:");
    let mut parts = text.split(&before_number);
    let mut all = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        all.push_str("built-in");
        all.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    all
}
