//! What `agent-sandbox explain` answers from inside the jail. The launch puts a small read-only document
//! there, of what the inside can see anyway: what is visible and by which rule, the names of the
//! variables that are inside, the network, Slurm's modes and limits. What is hidden is not in it, so
//! that what is hidden and what does not exist get the same answer, word for word. The document
//! decides nothing: what the jail may do is held by the jail.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use agent_sandbox_wire::bounds::Bounds;
use agent_sandbox_wire::explain::Rule;
use agent_sandbox_wire::order::Limits;
use serde::{Deserialize, Serialize};

use super::Visibility;
use super::change::{Ways, shell_word};
use super::hosts::{Peer, Reach};
use super::slurm;
use crate::config::source::Sourced;
use crate::plan::model::slurm::{CHAPERON_INSIDE, Use};
use crate::plan::model::{Access, Mount, Plan, Step, Why};
use crate::policy::Policy;

/// Where the document stands inside. Where Landlock makes the jail, a variable names its place.
pub const DOCUMENT: &str = "/run/agent-sandbox/explain";

/// No document is longer, in bytes; a plan of the most steps, each with long names, needs a fifth.
pub const LONGEST: u64 = 4 << 20;

/// The version of this form. Launcher and inside are one program, which an upgrade may replace while
/// a jail runs.
const VERSION: u16 = 6;

/// How the user's policy file is called inside.
const CONFIG: &str = "the user's config.toml";

/// What the inside is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    version: u16,
    /// Whether Landlock makes the jail: what is hidden may then be seen to exist, and not be opened.
    pub landlock: bool,
    /// Why bubblewrap does not make the jail, where nobody asked for Landlock.
    pub instead: Option<String>,
    /// What the jail lacks of one of bubblewrap's, by the ids of its table `missing`.
    pub missing: Vec<String>,
    /// Sorted by path.
    places: Vec<VisiblePath>,
    variables: Vec<(Vec<u8>, String)>,
    reach: Reach,
    network: String,
    slurm: Slurm,
    /// Directories that cannot be listed, nor those above them, and the rule of each.
    no_walk: Vec<(Vec<u8>, String)>,
    /// Whether a tracer stood by when the jail was planned.
    pub recorded: bool,
}

/// Puts the document into a plan. The steps stay in order.
pub fn put_into(plan: &mut Plan, policy: &Policy) {
    let at = Path::new(DOCUMENT);
    let step = Step {
        at: at.to_owned(),
        mount: Mount::File {
            content: Document::of_plan(plan, policy).text(),
        },
        why: Why::Every("what `agent-sandbox explain` answers from inside"),
    };
    let place = plan.steps.partition_point(|other| other.at.as_path() < at);
    plan.steps.insert(place, step);
}

/// A place that the jail shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct VisiblePath {
    at: Vec<u8>,
    gives: Gives,
    why: String,
    /// Why nothing makes it writable, if it is not.
    fixed: Option<String>,
}

/// What a place gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Gives {
    Read,
    Write,
    Own,
    Device,
    Kept,
}

/// What there is to know of Slurm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slurm {
    /// What the jail has of it.
    pub availability: Use,
    /// The rule.
    pub why: String,
    /// Whether the program that holds the table of options is inside.
    pub has_program: bool,
    /// `[slurm.limits]`.
    pub limits: Limits,
    /// `[slurm.bounds]`.
    pub bounds: Bounds,
    /// The keys of `[slurm]`.
    pub rules: Vec<Rule>,
}

/// What the process that asks sees of a path with its own eyes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing, or nothing that can be opened, or the empty cover of something hidden.
    Nothing,
    /// A file or directory.
    Something {
        /// Its path without symbolic links.
        real: PathBuf,
        /// Whether its own permissions let it be read.
        readable: bool,
        /// Whether its own permissions and its mount let it be written.
        writable: bool,
    },
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// What was asked about.
    pub subject: String,
    /// The path without symbolic links, if it is another and visible.
    #[serde(serialize_with = "super::as_text")]
    pub real: Option<PathBuf>,
    /// The verdict.
    pub verdict: Visibility,
    /// The rule; none about what is not visible.
    pub why: Option<String>,
    /// What else there is to know, a sentence each.
    pub notes: Vec<String>,
    /// Who can change it, and how to learn more.
    pub change: String,
}

impl Document {
    /// What the inside of a jail that mounts make is told.
    pub fn of_plan(plan: &Plan, policy: &Policy) -> Self {
        let ways = Ways {
            policy,
            config: CONFIG,
            places: None,
        };
        let rules = slurm::rules(&ways);
        let program = plan
            .steps
            .iter()
            .any(|step| step.at == Path::new(CHAPERON_INSIDE));
        Self {
            version: VERSION,
            landlock: false,
            instead: None,
            missing: Vec::new(),
            places: plan
                .steps
                .iter()
                .filter_map(|step| place(plan, step, &ways))
                .collect(),
            variables: plan
                .variables
                .iter()
                .map(|variable| (variable.name.as_bytes().to_vec(), variable.why.to_string()))
                .collect(),
            reach: Reach::of_plan(plan),
            network: Why::key("network.mode", &plan.network).to_string(),
            recorded: plan.trace.records(),
            no_walk: plan
                .no_walk
                .iter()
                .map(|root| (root.value.as_os_str().as_bytes().to_vec(), unlisted(root)))
                .collect(),
            slurm: Slurm {
                availability: plan.slurm.value,
                why: Why::key("slurm.mode", &plan.slurm).to_string(),
                has_program: program,
                limits: policy.slurm.limits.values(),
                bounds: policy.job_bounds(),
                rules,
            },
        }
    }

    /// The same for a jail that Landlock makes. `given` are the paths that the mediator gives, with what may be done
    /// there, and `program` tells whether what holds the table of Slurm's options is there.
    pub fn by_landlock<'a>(
        mut self,
        plan: &Plan,
        given: impl Iterator<Item = (&'a Path, Access)>,
        program: bool,
    ) -> Self {
        let shown = |step: &&Step| match &step.mount {
            Mount::Bind { from, .. } => *from == step.at,
            Mount::Device { .. } => true,
            _ => false,
        };
        self.landlock = true;
        let known: Vec<VisiblePath> = std::mem::take(&mut self.places);
        let steps = plan.steps.iter().filter(shown);
        let same = |step: &Step| known.iter().find(|place| place.path() == step.at).cloned();
        self.places = steps.filter_map(same).collect();
        for (at, access) in given {
            let gives = match access {
                Access::Read => Gives::Read,
                Access::Write => Gives::Own,
            };
            // A directory with something hidden in it is regions beside each other: they say nothing new.
            if self.around(at).is_none() {
                self.places.push(VisiblePath {
                    at: at.as_os_str().as_bytes().to_vec(),
                    gives,
                    why: "every jail of Landlock's has it".to_owned(),
                    fixed: None,
                });
            }
        }
        self.places.sort_by(|one, other| one.at.cmp(&other.at));
        let names = plan.variables.iter();
        self.variables = names
            .map(|variable| (variable.name.as_bytes().to_vec(), variable.why.to_string()))
            .collect();
        self.slurm.has_program = program;
        self
    }

    /// As the content of the file.
    pub fn text(&self) -> Vec<u8> {
        // Strings, numbers and lists of them: nothing that could not be written.
        postcard::to_allocvec(self).unwrap_or_default()
    }

    /// From the content of the file; `None` if it has another form.
    pub fn read(text: &[u8]) -> Option<Self> {
        let (version, _) = postcard::take_from_bytes::<u16>(text).ok()?;
        (version == VERSION).then(|| postcard::from_bytes(text).ok())?
    }

    /// What there is to know of Slurm.
    pub fn slurm(&self) -> &Slurm {
        &self.slurm
    }

    fn place(&self, at: &Path) -> Option<&VisiblePath> {
        self.places.iter().find(|place| place.path() == at)
    }

    /// Whether a path is above something that the jail shows: its name is known by that.
    pub fn leads_on(&self, path: &Path) -> bool {
        self.places
            .iter()
            .any(|place| place.path().starts_with(path))
    }

    /// The deepest place around a path.
    fn around(&self, path: &Path) -> Option<&VisiblePath> {
        path.ancestors().find_map(|at| self.place(at))
    }

    /// The path of the deepest place around a path.
    pub fn place_around(&self, path: &Path) -> Option<&Path> {
        self.around(path).map(VisiblePath::path)
    }

    /// Why a directory cannot be listed, if a rule says so.
    pub fn unlisted(&self, directory: &Path) -> Option<&str> {
        let under = |root: &[u8]| Path::new(OsStr::from_bytes(root)).starts_with(directory);
        let mut all = self.no_walk.iter();
        all.find(|(root, _)| under(root))
            .map(|(_, why)| why.as_str())
    }

    /// Answers about a path. `outside` is how it is asked about outside.
    pub fn path(&self, asked: &Path, outside: &Path, seen: &Seen) -> Answer {
        let (subject, outside) = (asked.display().to_string(), outside.display());
        let Seen::Something {
            real,
            readable,
            writable,
        } = seen
        else {
            return hidden_or_missing(&subject, &outside);
        };
        let (verdict, why, fixed) = match self.around(real) {
            Some(place) => (place.verdict(real), place.why.clone(), place.fixed.clone()),
            None if self.leads_on(real) => (
                Visibility::Private,
                "on the way to what the jail shows".to_owned(),
                None,
            ),
            // The document does not know it, and what it does not know is not told apart.
            None => return hidden_or_missing(&subject, &outside),
        };
        let mut notes = Vec::new();
        if !readable {
            notes.push("its own permissions refuse reading".to_owned());
        }
        if verdict == Visibility::Writable && !writable {
            notes.push("its own permissions refuse writing".to_owned());
        }
        notes.extend(self.unlisted(real).map(str::to_owned));
        Answer {
            change: match (verdict, fixed) {
                (Visibility::ReadOnly, Some(reason)) => reason,
                (Visibility::ReadOnly, None) => decides(
                    &format!("`--write {}` makes it writable for one run", word(&outside)),
                    &word(&outside),
                ),
                (Visibility::Writable, _) => decides(
                    &format!("`--hide {}` hides it for one run", word(&outside)),
                    &word(&outside),
                ),
                _ => format!(
                    "the user decides: outside, `agent-sandbox explain {}` says how",
                    word(&outside)
                ),
            },
            subject,
            real: (real != asked).then(|| real.clone()),
            verdict,
            why: Some(why),
            notes,
        }
    }

    /// Answers about a variable. `set` is whether the process that asks has it.
    pub fn variable(&self, name: &OsStr, set: bool) -> Answer {
        let subject = name.display().to_string();
        let known = self
            .variables
            .iter()
            .find(|(known, _)| known == name.as_bytes());
        let why = match known {
            Some((_, why)) => why.clone(),
            None if set => "it was set inside, after the launch".to_owned(),
            None => {
                let word = word(&subject);
                return not_visible(
                    &subject,
                    &format!("`--env {word}` passes it for one run, if it is set outside"),
                    &format!("--env {word}"),
                );
            }
        };
        Answer {
            change: format!(
                "the user decides: outside, `agent-sandbox explain --env {}` says how",
                word(&subject)
            ),
            subject,
            real: None,
            verdict: Visibility::Passes,
            why: Some(why),
            notes: Vec::new(),
        }
    }

    /// Answers about a host or an abstract socket.
    pub fn host(&self, asked: &str, peer: &Peer) -> Answer {
        let (verdict, notes) = self.reach.of(peer);
        Answer {
            subject: asked.to_owned(),
            real: None,
            verdict,
            why: Some(self.network.clone()),
            notes,
            change: format!(
                "the user decides: outside, `agent-sandbox explain --host {}` says how",
                word(&asked)
            ),
        }
    }
}

/// [`not_visible`] of a path.
/// That a directory, and those above it, cannot be listed.
pub(super) fn unlisted(root: &Sourced<PathBuf>) -> String {
    format!(
        "it cannot be listed (find, ls, du): files.no_walk `{}` ({}); what is in it is there by its name",
        root.value.display(),
        root.source
    )
}

fn hidden_or_missing(subject: &str, outside: &impl Display) -> Answer {
    let word = word(outside);
    let way = format!("`--read {word}` shows it for one run, if it exists and no rule hides it");
    not_visible(subject, &way, &word)
}

/// The one answer about what is hidden, what does not exist, and what nothing gives.
fn not_visible(subject: &str, way: &str, question: &str) -> Answer {
    Answer {
        subject: subject.to_owned(),
        real: None,
        verdict: Visibility::NotVisible,
        why: None,
        notes: Vec::new(),
        change: decides(way, question),
    }
}

/// What the agent tells the user, who can do it.
fn decides(way: &str, question: &str) -> String {
    format!("the user decides: {way}; outside, `agent-sandbox explain {question}` says more")
}

fn word(text: &impl Display) -> String {
    shell_word(&text.to_string())
}

impl VisiblePath {
    fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.at))
    }

    /// What it makes of a path in it that is there.
    fn verdict(&self, real: &Path) -> Visibility {
        match self.gives {
            Gives::Read => Visibility::ReadOnly,
            Gives::Write => Visibility::Writable,
            Gives::Own => Visibility::Private,
            Gives::Kept => Visibility::Kept,
            Gives::Device if self.path() == real => Visibility::Device,
            Gives::Device => Visibility::Private,
        }
    }
}

/// What a step shows. What covers something that is hidden, and links, whose targets are places of
/// their own, show nothing.
fn place(plan: &Plan, step: &Step, ways: &Ways<'_>) -> Option<VisiblePath> {
    let gives = match &step.mount {
        Mount::Bind {
            access: Access::Read,
            ..
        } => Gives::Read,
        Mount::Bind {
            access: Access::Write,
            ..
        } => Gives::Write,
        Mount::Kept { .. } => Gives::Kept,
        Mount::Device { .. } => Gives::Device,
        Mount::Tmpfs { .. }
        | Mount::Directory { .. }
        | Mount::File { .. }
        | Mount::Program { .. }
        | Mount::Copy { .. }
        | Mount::Proc
        | Mount::Dev => Gives::Own,
        Mount::Link { .. } | Mount::HideDirectory | Mount::HideFile => return None,
    };
    Some(VisiblePath {
        at: OsString::from(step.at.as_os_str()).into_vec(),
        gives,
        why: step.why.to_string(),
        fixed: (gives == Gives::Read)
            .then(|| super::write(plan, &step.at, &step.why, ways))
            .filter(|change| !change.possible)
            .map(|change| change.text),
    })
}
