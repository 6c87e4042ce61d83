//! Why something is there inside, or is not: a path, a variable, a host, a device, Slurm. And what of
//! that the inside is told ([`inside`]).

pub mod asked;
pub mod change;
mod devices;
pub mod hosts;
pub mod inside;
mod persistent;
pub mod slurm;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, Serializer};

use self::change::{Change, Request, Ways, set_list, shell_word};
use super::build::env;
use super::build::env::Verdict;
use super::model::hides::OfSlurm;
use super::model::injected_files::is_why;
use super::model::{Access, Mount, Plan, Why};
use crate::config::source::{Layer, Source, Sourced};
use crate::host::files::{Files, Kind, Look, real_as_far_as_it_exists};
use crate::policy::PathSpec;
use crate::policy::paths::Expansion;

/// What the jail makes of what was asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Visibility {
    /// Readable and writable, on the host.
    Writable,
    /// Readable.
    ReadOnly,
    /// Not there: opening it fails with ENOENT.
    Hidden,
    /// Something of the jail's own stands there.
    Private,
    /// A directory of the jail's own, which stays for later sessions of the project.
    Kept,
    /// Nothing gives it: opening it fails with ENOENT.
    Absent,
    /// A device node of the host's.
    Device,
    /// A variable that exists inside as outside.
    Passes,
    /// A host that can be connected to as from outside.
    Reachable,
    /// A host that cannot.
    Unreachable,
    /// Asked from inside: it does not exist, or the policy hides it.
    NotVisible,
}

/// The answer to `agent-sandbox explain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// What was asked about.
    pub subject: String,
    /// The path without symbolic links, if it is another.
    #[serde(serialize_with = "as_text")]
    pub real: Option<PathBuf>,
    /// Whether it exists outside.
    pub exists: bool,
    /// The verdict.
    pub verdict: Visibility,
    /// The rule.
    pub why: Why,
    /// What else there is to know, a sentence each.
    pub notes: Vec<String>,
    /// How to change it.
    #[serde(flatten)]
    pub change: Change,
}

/// A path for a program. JSON has no bytes: what is not UTF-8 is replaced, as in text.
pub(super) fn as_text<S: Serializer>(path: &Option<PathBuf>, into: S) -> Result<S::Ok, S::Error> {
    let path = path.as_ref();
    path.map(|path| path.to_string_lossy()).serialize(into)
}

/// A verdict with its rule and the way to another one.
type Judged = (Visibility, Why, Change);

/// Explains a path.
pub fn path(plan: &Plan, files: &dyn Files, asked: &Path, ways: &Ways<'_>) -> Explanation {
    let look = files.look(asked);
    let real = match &look {
        Look::Found(found) => found.real.clone(),
        _ => real_as_far_as_it_exists(files, asked),
    };
    let found = match &look {
        Look::Found(found) => Some(found),
        _ => None,
    };
    if let Some(explained) = persistent::judge(plan, files, asked, ways) {
        return explained;
    }
    let kind = found.map(|found| found.kind);
    let (mut notes, (verdict, why, change)) = match below_dev(asked, &real) {
        true => devices::judge(plan, asked, &real, found, ways),
        false => (Vec::new(), judge(plan, &real, ways)),
    };
    if plan.keeping.makes.iter().any(|make| make.path() == real) {
        notes.push("it does not exist yet; the launch makes it".to_owned());
    } else {
        let said = match look {
            Look::Found(_) => None,
            Look::Missing => Some("it does not exist outside either"),
            Look::Hung => Some(
                "it does not answer outside: its file system hangs, or is slow; jails are built without it",
            ),
            Look::Denied(_) | Look::Closed(_) => Some("you may not look at it outside either"),
        };
        if let Some(said) = said {
            notes.insert(0, said.to_owned());
        }
    }
    let visible = matches!(verdict, Visibility::ReadOnly | Visibility::Writable);
    if visible && kind == Some(Kind::Other) {
        notes.push("a socket there can be connected to from inside".to_owned());
    }
    if let Some(rule) = plan.unlisted(&real).filter(|_| visible) {
        notes.push(inside::unlisted(rule));
    }
    Explanation {
        subject: asked.display().to_string(),
        real: (real != asked).then_some(real),
        exists: kind.is_some(),
        verdict,
        why,
        notes,
        change,
    }
}

fn below_dev(asked: &Path, real: &Path) -> bool {
    let dev = Path::new("/dev");
    [asked, real]
        .iter()
        .any(|path| path.starts_with(dev) && *path != dev && !path.starts_with("/dev/shm"))
}

fn judge(plan: &Plan, real: &Path, ways: &Ways<'_>) -> Judged {
    if let Some(rule) = plan.hidden.rule_for(real) {
        return judge_hidden(plan, rule, real, ways);
    }
    let over = plan
        .steps
        .iter()
        .rev()
        .find(|step| real.starts_with(&step.at));
    let Some(step) = over else {
        return (
            Visibility::Absent,
            Why::Every("nothing gives it: the jail shows only what is named"),
            give(plan, real, ways),
        );
    };
    let why = step.why.clone();
    let shown = real.display();
    match &step.mount {
        _ if is_of_slurm(&why) => (
            Visibility::Private,
            why,
            Change::by(format!(
                "what stands there passes each call on to be checked outside; to switch Slurm off inside: \
                 slurm.mode = \"off\" in {}, or --set slurm.mode=off",
                ways.config
            )),
        ),
        Mount::Bind {
            access: Access::Write,
            ..
        } => (
            Visibility::Writable,
            why,
            Change::by(format!(
                "to hide it: add `{shown}` to files.hide in {}, or use --hide",
                ways.config
            )),
        ),
        Mount::Bind {
            access: Access::Read,
            ..
        } => {
            let change = write(plan, real, &why, ways);
            (Visibility::ReadOnly, why, change)
        }
        Mount::HideDirectory | Mount::HideFile => (Visibility::Hidden, why, give(plan, real, ways)),
        Mount::Tmpfs { .. } | Mount::Directory { .. } if step.at != real => (
            Visibility::Absent,
            Why::Every("nothing gives it: the directory around it is the jail's own"),
            give(plan, real, ways),
        ),
        _ => {
            let change = of_the_jail(plan, real, &why, ways);
            (Visibility::Private, why, change)
        }
    }
}

/// How something of the jail's own gives way to what the host has, as far as a key decides about it.
fn of_the_jail(plan: &Plan, real: &Path, why: &Why, ways: &Ways<'_>) -> Change {
    let Why::Rule { key, .. } = why else {
        return Change::never("this is the same in every jail");
    };
    // The value that decided stands behind the key.
    let key = key.split(' ').next().unwrap_or_default();
    let config = ways.config;
    let text = match key {
        "home.mode" => format!(
            "to show more of the home directory in it: home.mode in {config}, or --home MODE for one run"
        ),
        "jail.users" => format!(
            "to show the host's: jail.users = \"host\" in {config}, or --set jail.users=host for one run"
        ),
        "jail.tmp_size" | "jail.shm_size" => format!(
            "every jail has its own; its size is {key} in {config}, or --set {key}=SIZE for one run"
        ),
        "profile.instructions" => {
            let text = format!(
                "it is the text about the jail, with the user's own below, which stays as it is outside; for the user's \
                 alone: agents.instructions = \"off\" in {config}, or --set agents.instructions=off for one run"
            );
            return ways.unless_forbidden(text, &[Request::Key("agents.instructions")]);
        }
        "profile.given" => {
            return Change::by("the profile gives it; another profile may give another".to_owned());
        }
        "home.seed" => return give(plan, real, ways),
        _ => return write(plan, real, why, ways),
    };
    ways.unless_forbidden(text, &[Request::Set(why), Request::Key(key)])
}

fn judge_hidden(plan: &Plan, rule: &Sourced<PathSpec>, real: &Path, ways: &Ways<'_>) -> Judged {
    if plan.hidden.is_own(rule) && real.starts_with(&plan.keeping.stores) {
        let why = Why::Every("what jails keep from session to session");
        let change =
            "it cannot be given: each project's jails have their own there, at its usual place";
        return (Visibility::Hidden, why, Change::never(change));
    }
    if plan.hidden.is_own(rule) {
        let why = Why::Every("where tasks of your jobs meet");
        let change = "it cannot be given: whoever reaches it reaches the jails of your other jobs";
        return (Visibility::Hidden, why, Change::never(change));
    }
    if let Some(what) = plan.hidden.of_slurm(rule) {
        let (name, change) = match what {
            OfSlurm::Authority => (
                "the socket of Slurm's authority",
                "it cannot be given: whoever reaches it starts jobs outside of every jail",
            ),
            OfSlurm::Spool => (
                "the directory of Slurm's daemon",
                "it cannot be given: whoever reaches it signals and attaches to all of your jobs",
            ),
        };
        return (
            Visibility::Hidden,
            Why::rule(name, rule),
            Change::never(change),
        );
    }
    let rule = plan.hidden.enforced_for(real).unwrap_or(rule);
    let (value, shown) = (&rule.value, real.display());
    if let Some(forbidden) = ways.forbidden(&Request::Unhide(rule, real)) {
        return (Visibility::Hidden, Why::rule("files.hide", rule), forbidden);
    }
    let text = match rule.source.layer {
        Layer::CommandLine => format!("leave {} away", rule.source),
        Layer::User | Layer::Project => {
            format!("take `{value}` out of files.hide ({})", rule.source)
        }
        _ => format!(
            "if the jail must have it: add `{value}` to files.unhide in {}, and give it with files.read; \
             for one run: {} --read {}",
            ways.config,
            set_list("files.unhide", &value.to_string()),
            shell_word(&shown.to_string())
        ),
    };
    let change = ways.unless_forbidden(text, &[Request::Give(real, Access::Read)]);
    (Visibility::Hidden, Why::rule("files.hide", rule), change)
}

/// The list that gives a path, by its section.
fn section(plan: &Plan, real: &Path) -> &'static str {
    if real.starts_with(&plan.home) {
        "home"
    } else {
        "files"
    }
}

/// How a path that nothing gives is given.
fn give(plan: &Plan, real: &Path, ways: &Ways<'_>) -> Change {
    let (shown, list) = (real.display(), section(plan, real));
    let text = format!(
        "add `{shown}` to {list}.read or {list}.write in {}, or use --read / --write for one run",
        ways.config
    );
    ways.unless_forbidden(text, &[Request::Give(real, Access::Read)])
}

/// How a readable path is made writable, which some rules forbid whatever gives it.
fn write(plan: &Plan, real: &Path, why: &Why, ways: &Ways<'_>) -> Change {
    if let Why::Rule { key, source } = why {
        if key.starts_with("home.protect ") {
            return unprotected(source);
        }
        if key == "project.settings" {
            let text = format!(
                "to make settings that programs outside obey writable: project.settings = \"writable\" in {}, or \
                 --set project.settings=writable for one run",
                ways.config
            );
            return ways.unless_forbidden(text, &[Request::Key("project.settings")]);
        }
        if key == "project.git" {
            let text = format!(
                "to make git's hooks and configuration writable: project.git = \"writable\" in {}, or --set \
                 project.git=writable for one run",
                ways.config
            );
            return ways.unless_forbidden(text, &[Request::Key("project.git")]);
        }
    }
    // Readable by another rule, and protected from the one that would be proposed.
    if let Some(rule) = protecting(plan, real, ways) {
        return unprotected(&rule.source);
    }
    let (shown, list) = (real.display(), section(plan, real));
    let text = format!(
        "to make it writable: add `{shown}` to {list}.write in {}, or use --write for one run",
        ways.config
    );
    ways.unless_forbidden(text, &[Request::Give(real, Access::Write)])
}

/// How what `home.protect` names is made writable, if it can be.
fn unprotected(source: &Source) -> Change {
    match source.layer {
        Layer::User | Layer::Project | Layer::CommandLine => {
            Change::by(format!("take it out of home.protect ({source})"))
        }
        Layer::SiteEnforced => Change::forbidden("home.protect", source),
        _ => Change::never(
            "it cannot be made writable: home.protect wins over what makes it so, and the built-in list is \
             the same for all",
        ),
    }
}

/// The entry of `home.protect` that names a real path, or a directory around it.
fn protecting<'p>(plan: &Plan, real: &Path, ways: &Ways<'p>) -> Option<&'p Sourced<PathSpec>> {
    let (_, files) = ways.places?;
    ways.policy.home.protect.iter().find(|rule| {
        let place = rule.value.expand(&Home(&plan.home));
        place.is_some_and(|place| real.starts_with(real_as_far_as_it_exists(files, &place)))
    })
}

/// Expands entries that begin with `~`. Of others the plan says what they protect.
struct Home<'a>(&'a Path);

impl Expansion for Home<'_> {
    fn home(&self) -> &Path {
        self.0
    }

    fn variable(&self, _name: &str) -> Option<&OsStr> {
        None
    }
}

/// Whether something stands where it does because Slurm can be asked from inside.
fn is_of_slurm(why: &Why) -> bool {
    matches!(why, Why::Rule { key, .. } if key == "slurm.mode")
}

/// Explains a variable.
pub fn variable(plan: &Plan, name: &OsStr, ways: &Ways<'_>) -> Explanation {
    let shown = name.display();
    let inside = plan.variables.iter().find(|variable| variable.name == name);
    let hidden = plan
        .hidden_variables
        .iter()
        .find(|variable| variable.name == name);
    let (verdict, why) = match (inside, hidden) {
        (Some(variable), _) => (Visibility::Passes, variable.why.clone()),
        (None, Some(variable)) => (Visibility::Hidden, variable.why.clone()),
        (None, None) => match env::verdict(ways.policy, name, None) {
            Verdict::Passes(why) => (Visibility::Passes, why),
            Verdict::Hidden(why) => (Visibility::Hidden, why),
        },
    };
    let by_policy = is_why(&why) || matches!(&why, Why::Rule { key, .. } if key == "env.set");
    let own = inside.is_some() && matches!(&why, Why::Every(reason) if *reason != env::NO_RULE);
    let config = ways.config;
    let set = shell_word(&format!("{shown}=VALUE"));
    let change = match verdict {
        Visibility::Hidden => {
            let word = shell_word(&shown.to_string());
            let text =
                format!("to pass it: add `{shown}` to env.pass in {config}, or use --env {word}");
            ways.unless_forbidden(text, &[Request::Pass(name, &why)])
        }
        _ if by_policy => ways.unless_forbidden(
            format!("to set it otherwise: env.set in {config}, or --env {set} for one run"),
            &[Request::Set(&why)],
        ),
        _ if own => Change::by(format!(
            "the jail sets it; to set it otherwise: env.set in {config}, or --env {set} for one run"
        )),
        _ => Change::by(format!(
            "to hide it: add `{shown}` to env.hide in {config}, or use {} for one run",
            set_list("env.hide", &shown.to_string())
        )),
    };
    let exists = inside.is_some() || hidden.is_some();
    let notes = match exists {
        true => Vec::new(),
        false => vec!["it is not set outside either".to_owned()],
    };
    Explanation {
        subject: shown.to_string(),
        real: None,
        exists,
        verdict,
        why,
        notes,
        change,
    }
}
