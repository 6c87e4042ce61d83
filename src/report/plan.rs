//! A plan as text and as JSON, and the answer of `explain`.

use std::path::Path;

use agent_sandbox_events::protocol::Enforce;
use serde_json::{Value, json};

use crate::failure::one_line;
use crate::plan::explain::inside::Answer;
use crate::plan::explain::{Explanation, Visibility};
use crate::plan::model::limits::{Demand, Limits};
use crate::plan::model::persistent::{Keeping, Make};
use crate::plan::model::slurm::Use;
use crate::plan::model::trace::{RawPath, Trace};
use crate::plan::{Access, Mount, Plan, Step};
use crate::policy::values::{Bytes, Stricter};

fn lossy(text: &std::ffi::OsStr) -> String {
    text.to_string_lossy().into_owned()
}

/// For a program. `backend` makes the jail.
pub fn json(plan: &Plan, layers: &[String], backend: &str) -> Value {
    json!({
        "backend": backend,
        "project": plan.project,
        "home": plan.home,
        "session": plan.session,
        "cwd": plan.cwd,
        "command": plan.command.iter().map(|word| lossy(word)).collect::<Vec<_>>(),
        "layers": layers,
        "mounts": plan.steps,
        "keeping": plan.keeping,
        "environment": {
            // Values are the user's own business and may be secrets that no rule knows.
            "visible": plan.variables.iter()
                .map(|variable| json!({ "name": lossy(&variable.name), "why": variable.why }))
                .collect::<Vec<_>>(),
            "hidden": plan.hidden_variables.iter()
                .map(|variable| json!({ "name": lossy(&variable.name), "why": variable.why }))
                .collect::<Vec<_>>(),
        },
        "hidden_files": plan.hidden.existing()
            .map(|hidden| json!({ "path": hidden.path, "why": format!("files.hide `{}` ({})",
                hidden.rule.value, hidden.rule.source) }))
            .collect::<Vec<_>>(),
        "omitted": plan.omitted,
        "clamped": super::policy::clamped_json(&plan.clamped),
        "weaknesses": plan.weaknesses,
        "syscalls": plan.syscalls,
        "network": plan.network,
        "forward": plan.forward,
        "filter": plan.filter,
        "ssh": plan.ssh,
        "nested": plan.nested,
        "max_processes": plan.max_processes,
        "limits": plan.limits,
        "no_walk": plan.no_walk,
        "mediated": plan.mediated,
        "landlock_scope": plan.landlock_scope,
        "landlock_writes": plan.landlock_writes,
        "slurm": plan.slurm,
        "trace": trace_json(&plan.trace),
    })
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// A line for each limit of a session that there is.
fn limits(limits: &Limits) -> Vec<String> {
    let size = |demand: &Demand<u64>| demand.most.clone().map(|most| Bytes(most).shown());
    let number = |demand: &Demand<u32>| demand.most.clone().map(|most| most.to_string());
    let rows = [
        ("memory", limits.memory.as_ref().map(size)),
        ("processors", limits.cpus.as_ref().map(number)),
        ("I/O weight", limits.io_weight.as_ref().map(number)),
        (
            "sessions",
            limits
                .sessions
                .clone()
                .map(|most| most.map(|most| most.to_string())),
        ),
        (
            "idle",
            limits
                .idle
                .clone()
                .map(|most| most.map(|most| format!("{} min", most.as_secs() / 60))),
        ),
    ];
    let there = rows
        .into_iter()
        .filter_map(|(name, most)| Some((name, most?)));
    there
        .map(|(name, most)| format!("{name:<12} {}  ({})", most.value, most.source))
        .collect()
}

/// For a person.
pub fn text(plan: &Plan, layers: &[String], backend: &str) -> String {
    let mut all = String::new();
    let mut line = |text: String| {
        all.push_str(&one_line(&text));
        all.push('\n');
    };
    let command: Vec<String> = plan.command.iter().map(|word| lossy(word)).collect();
    line(format!("command      {}", command.join(" ")));
    if let Some(project) = &plan.project {
        line(format!("project      {}", project.display()));
    }
    line(format!("directory    {}", plan.cwd.display()));
    line(format!("policy       {}", layers.join(", ")));
    line(format!("jail         {backend}"));
    let network = format!("{:?}", plan.network.value).to_lowercase();
    line(format!("network      {network}  ({})", plan.network.source));
    for port in &plan.forward {
        line(format!("forward      {}  ({})", port.value, port.source));
    }
    for one in plan.filter.iter().flat_map(|filter| &filter.credentials) {
        let hosts: Vec<String> = one
            .hosts
            .iter()
            .map(|(name, port)| format!("{name}:{port}"))
            .collect();
        let (name, hosts) = (&one.name, hosts.join(", "));
        line(format!(
            "credential   {name}: a placeholder in ${}, for {hosts}  ({})",
            one.env, one.source
        ));
    }
    if let Some(agent) = &plan.ssh {
        for host in &agent.hosts {
            line(format!(
                "ssh          logins to {} by the user's ssh-agent, keys {}  ({})",
                host.value, agent.keys.value, host.source
            ));
        }
    }
    line(format!(
        "namespaces   {} inside  ({})",
        if plan.nested.value {
            "allowed"
        } else {
            "refused"
        },
        plan.nested.source
    ));
    let most = plan
        .max_processes
        .value
        .map_or_else(|| "no limit".to_owned(), |most| most.to_string());
    line(format!(
        "processes    {most}  ({})",
        plan.max_processes.source
    ));
    limits(&plan.limits).into_iter().for_each(&mut line);
    for root in &plan.no_walk {
        line(format!(
            "not listed   {}  ({})",
            root.value.display(),
            root.source
        ));
    }
    line(format!(
        "slurm        {}  ({})",
        match plan.slurm.value {
            Use::Absent => "not found on this host",
            Use::Off => "switched off inside",
            Use::On => "through the chaperon",
        },
        plan.slurm.source
    ));
    line(format!("trace        {}", traced(&plan.trace)));
    line(format!(
        "system calls {} rules refuse what leads out; see docs/reference/syscalls.md",
        plan.syscalls.len()
    ));
    line(String::new());
    line("files".into());
    for step in &plan.steps {
        line(format!(
            "  {:<9} {}  [{}]",
            verb(&step.mount),
            place(step),
            step.why
        ));
    }
    keeping(plan).into_iter().for_each(&mut line);
    line(String::new());
    line("hidden".into());
    for hidden in plan.hidden.existing() {
        line(format!(
            "  {}  [files.hide `{}` ({})]",
            hidden.path.display(),
            hidden.rule.value,
            hidden.rule.source
        ));
    }
    // What the built-in lists name for other machines than this one is no news.
    let (usual, told): (Vec<_>, Vec<_>) =
        plan.omitted.iter().partition(|omitted| omitted.is_usual());
    if !plan.omitted.is_empty() {
        line(String::new());
        line("left out".into());
    }
    for omitted in told {
        line(format!(
            "  {}: {}  [{}]",
            omitted.path, omitted.reason, omitted.why
        ));
    }
    if !usual.is_empty() {
        line(format!(
            "  {} paths of the built-in lists that this host does not have (--json names them)",
            usual.len()
        ));
    }
    if !plan.clamped.is_empty() {
        line(String::new());
        line("clamped by the site".into());
    }
    for one in &plan.clamped {
        line(format!("  {}", super::policy::clamped_line(one)));
    }
    line(String::new());
    line("variables that do not pass".into());
    for variable in &plan.hidden_variables {
        line(format!("  {}  [{}]", lossy(&variable.name), variable.why));
    }
    line(String::new());
    line("variables".into());
    for variable in &plan.variables {
        line(format!("  {}  [{}]", lossy(&variable.name), variable.why));
    }
    for weakness in &plan.weaknesses {
        line(String::new());
        line(format!("warning: {weakness}"));
    }
    all
}

/// What is asked of the node's tracer, for a program.
fn trace_json(trace: &Trace) -> Value {
    let request = trace.request.as_ref();
    let paths =
        |all: &[RawPath]| -> Vec<String> { all.iter().map(|one| shown(one.path())).collect() };
    json!({
        "mode": trace.mode,
        "tracer_stands_by": trace.stands_by,
        "events": request.map(|_| trace.events),
        "missing": request.map(|request| request.missing),
        "every": request.map(|request| request.every),
        "second_layer": request.map(|request| json!({
            "mode": layer(request.enforce),
            "forbidden": paths(&request.forbidden),
            "spared": trace.spared,
            "no_internet": request.no_internet,
            "no_user_namespace": request.no_user_namespace,
        })),
    })
}

fn layer(enforce: Enforce) -> &'static str {
    match enforce {
        Enforce::Off => "off",
        Enforce::Audit => "audit",
        Enforce::On => "on",
    }
}

/// The same for a person, in one line.
fn traced(trace: &Trace) -> String {
    let source = &trace.mode.source;
    let Some(request) = &trace.request else {
        return format!("off  ({source})");
    };
    let mode = match (request.required, trace.stands_by) {
        (true, true) => "required",
        (true, false) => "required, and no tracer can be used here: nothing starts",
        (false, true) => "on",
        (false, false) => "on, and no tracer can be used here",
    };
    let mut all = format!("{mode}: {}", trace.events);
    if request.every > 1 {
        all.push_str(&format!("; each {}. of the allowed opens", request.every));
    }
    let spared = match trace.spared.len() {
        0 => String::new(),
        some => format!(", {some} left alone (--json names them)"),
    };
    match request.enforce {
        Enforce::Off => {}
        Enforce::Audit => all.push_str(&format!(
            "; what a second layer would deny: {} paths{spared}",
            request.forbidden.len()
        )),
        Enforce::On => all.push_str(&format!(
            "; denies {} paths{spared}",
            request.forbidden.len()
        )),
    }
    format!("{all}  ({source})")
}

/// What is made at the launch, seeded and carried out; nothing where there is none of it.
fn keeping(plan: &Plan) -> Vec<String> {
    let Keeping {
        makes,
        seeds,
        logins,
        ..
    } = &plan.keeping;
    let makes = makes.iter().map(|make| {
        let what = match make {
            Make::Directory { .. } | Make::Kept { .. } => "directory",
            Make::File { .. } => "file",
        };
        format!("{what:<9} {}  [{}]", make.path().display(), make.why())
    });
    let seeds = seeds.iter().map(|seed| {
        let (from, to, keys) = (seed.from.display(), seed.to.display(), seed.keys.join(", "));
        format!("keys      {to} <- {from}: {keys}  [{}]", seed.why)
    });
    let logins = logins.iter().map(|login| {
        let (host, kept) = (login.host.display(), login.kept.display());
        format!("login     {host} <- {kept}  [{}]", login.why)
    });
    let mut all = Vec::new();
    for (title, lines) in [
        ("made at the launch", makes.collect::<Vec<_>>()),
        ("carried over at the launch", seeds.collect()),
        ("carried out when it is made inside", logins.collect()),
    ] {
        if !lines.is_empty() {
            all.extend([String::new(), title.to_owned()]);
        }
        all.extend(lines.iter().map(|line| format!("  {line}")));
    }
    all
}

fn verb(mount: &Mount) -> &'static str {
    match mount {
        Mount::Bind {
            access: Access::Read,
            ..
        } => "read",
        Mount::Bind {
            access: Access::Write,
            ..
        } => "write",
        Mount::Kept { .. } => "keep",
        Mount::Device { .. } => "device",
        Mount::Tmpfs { .. } => "private",
        Mount::Directory { .. } => "directory",
        Mount::Link { .. } => "link",
        Mount::File { .. } => "file",
        Mount::Program { .. } => "program",
        Mount::Copy { .. } => "copy",
        Mount::HideDirectory | Mount::HideFile => "hide",
        Mount::Proc | Mount::Dev => "fresh",
    }
}

fn place(step: &Step) -> String {
    let at = step.at.display();
    match &step.mount {
        Mount::Bind { from, .. } if *from != step.at => format!("{at} <- {}", from.display()),
        Mount::Kept { from, .. } => format!("{at} <- {}", from.display()),
        Mount::Link { target } => format!("{at} -> {}", target.display()),
        Mount::Tmpfs { size, .. } => format!("{at} ({} MiB)", size >> 20),
        _ => at.to_string(),
    }
}

/// The answer of `explain` for a person.
pub fn explanation(answer: &Explanation) -> String {
    let why = answer.why.to_string();
    lines(&Lines {
        subject: &answer.subject,
        verdict: answer.verdict,
        real: answer.real.as_deref(),
        notes: &answer.notes,
        why: Some(&why),
        change: &answer.change.text,
    })
}

/// The same from inside.
pub fn answer(answer: &Answer) -> String {
    lines(&Lines {
        subject: &answer.subject,
        verdict: answer.verdict,
        real: answer.real.as_deref(),
        notes: &answer.notes,
        why: answer.why.as_deref(),
        change: &answer.change,
    })
}

struct Lines<'a> {
    subject: &'a str,
    verdict: Visibility,
    real: Option<&'a Path>,
    notes: &'a [String],
    why: Option<&'a str>,
    change: &'a str,
}

fn lines(answer: &Lines<'_>) -> String {
    let verdict = match answer.verdict {
        Visibility::Writable => "writable inside",
        Visibility::ReadOnly => "readable inside, not writable",
        Visibility::Hidden => "hidden: it does not exist inside",
        Visibility::Private => "the jail has its own",
        Visibility::Kept => "the jail has its own, kept for later sessions of the project",
        Visibility::Absent => "not there inside",
        Visibility::Device => "a device node of the host's, there inside",
        Visibility::Passes => "passes into the jail",
        Visibility::Reachable => "can be connected to from inside",
        Visibility::Unreachable => "cannot be connected to from inside",
        Visibility::NotVisible => "not visible here: it does not exist, or the policy hides it",
    };
    let mut text = format!("{}: {verdict}\n", one_line(answer.subject));
    let mut line = |name: &str, said: &str| {
        text.push_str(&format!("  {name}: {}\n", one_line(said)));
    };
    if let Some(real) = answer.real {
        line("path", &shown(real));
    }
    for note in answer.notes {
        line("note", note);
    }
    if let Some(why) = answer.why {
        line("rule", why);
    }
    line("change", answer.change);
    text
}
