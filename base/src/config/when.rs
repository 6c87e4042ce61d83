//! `[[when]]` sections of the site's files: under which circumstances they hold.

use std::ops::Range;

use agent_sandbox_wire::bounds::JobCondition;
use toml::Spanned;

use super::pattern::glob;
use super::schema::{Patterns, Sections, Slurm, SlurmBounds, WhenSection};

/// What conditions are about: who is asking, where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Circumstances {
    /// The user's name; `None` if the user database knows none.
    pub user: Option<String>,
    /// The names of the user's groups: those of the process, and those that the user database says.
    pub groups: Vec<String>,
    /// A group of the process whose name cannot be found: it may be any.
    pub nameless: Option<u32>,
    /// The names of this host: the whole one, and the part before its first dot.
    pub hosts: Vec<String>,
    /// The partition of Slurm's in which this job runs; `None` outside of a job.
    pub partition: Option<String>,
}

/// Finds the circumstances out. Called only where a file has conditions, for it may ask the
/// network for names.
pub type Probe<'a> = &'a dyn Fn() -> Circumstances;

/// One `[[when]]` section.
#[derive(Debug)]
pub struct When {
    /// Where its header stands.
    pub span: Range<usize>,
    /// What holds under the conditions, apart from [`Self::bounds`].
    pub sections: Sections,
    /// What bounds jobs, where the conditions are about them.
    bounds: Option<SlurmBounds>,
    group: Option<Vec<String>>,
    host: Option<Vec<String>>,
    user: Option<Vec<String>>,
    jobs: JobCondition,
}

/// A part of a section, which holds or does not as a whole.
pub(super) struct Part {
    pub(super) sections: Sections,
    /// Which jobs it is about; none: it is about what runs here.
    pub(super) jobs: Option<JobCondition>,
    /// Whether it holds. The error is why that cannot be told.
    pub(super) holds: Result<bool, String>,
}

/// What is wrong with a section as it is written: where, what, and what to do.
type Mistake = (Range<usize>, &'static str, &'static str);

impl When {
    /// Reads one section, of an enforced file or of the defaults.
    pub(super) fn read(section: Spanned<WhenSection>, enforced: bool) -> Result<Self, Mistake> {
        let span = section.span();
        let mut section = section.into_inner();
        let mut sections = section.take_sections();
        // A section behind it that is written without `when.` holds for everybody.
        let empty = sections.is_empty();
        let jobs = JobCondition {
            partitions: patterns(section.partition)?,
            accounts: patterns(section.account)?,
        };
        let bounds = match jobs.is_always() {
            true => None,
            false => take_bounds(&mut sections),
        };
        let when = Self {
            span: span.clone(),
            sections,
            bounds,
            group: patterns(section.group)?,
            host: patterns(section.host)?,
            user: patterns(section.user)?,
            jobs,
        };
        let conditions = [&when.group, &when.host, &when.user];
        if when.jobs.is_always() && conditions.into_iter().all(Option::is_none) {
            let message = "`[[when]]` without a condition";
            let hint = "add `group`, `host`, `partition`, `account` or `user`; \
                        what always holds stands in sections without `[[when]]`";
            return Err((span, message, hint));
        }
        if empty {
            let message = "nothing stands below this [[when]]; its sections are written [when.NAME], \
                           as [when.slurm.limits]";
            let hint = "a section without `when.` in its name holds for everybody; \
                        such sections stand above the first `[[when]]`";
            return Err((span, message, hint));
        }
        if when.jobs.accounts.is_some() && !when.sections.is_empty() {
            let message = "under `account` only [when.slurm.bounds] has a meaning";
            let hint = "the account is known when a job is submitted, and not when a session starts; \
                        `group` and `user` are known then";
            return Err((span, message, hint));
        }
        if when.bounds.is_some() && !enforced {
            let message = "[when.slurm.bounds] under `partition` or `account` stands in an enforced file only";
            let hint = "move it to `enforced.toml`: it bounds jobs, and gives no values";
            return Err((span, message, hint));
        }
        Ok(when)
    }

    /// The conditions: what each is about, and its patterns.
    pub(super) fn conditions(&self) -> Vec<(&'static str, Vec<String>)> {
        let all = [
            ("account", &self.jobs.accounts),
            ("group", &self.group),
            ("host", &self.host),
            ("partition", &self.jobs.partitions),
            ("user", &self.user),
        ];
        let there = all.into_iter();
        there
            .filter_map(|(name, patterns)| Some((name, patterns.clone()?)))
            .collect()
    }

    /// What holds now: sections, and what bounds jobs, with the jobs that it is about. The error is why
    /// that cannot be told.
    pub(super) fn held(
        self,
        now: &Circumstances,
    ) -> Result<Vec<(Sections, Option<JobCondition>)>, String> {
        let mut held = Vec::new();
        for part in self.parts(now) {
            if part.holds? {
                held.push((part.sections, part.jobs));
            }
        }
        Ok(held)
    }

    /// What stands in it, each part with whether it holds now.
    pub(super) fn parts(mut self, now: &Circumstances) -> Vec<Part> {
        let mut parts = Vec::new();
        if let Some(bounds) = self.bounds.take() {
            let slurm = Some(Slurm {
                bounds: Some(bounds),
                ..Slurm::default()
            });
            parts.push(Part {
                sections: Sections {
                    slurm,
                    ..Sections::default()
                },
                jobs: Some(self.jobs.clone()),
                holds: self.holds_here(now),
            });
        }
        if !self.sections.is_empty() {
            parts.push(Part {
                holds: self.holds(now),
                sections: self.sections,
                jobs: None,
            });
        }
        parts
    }

    /// Whether every condition is met, of which that on the partition is about the job in which this runs.
    /// The error is why that cannot be told.
    fn holds(&self, now: &Circumstances) -> Result<bool, String> {
        let same = |pattern: &String, name: &str| glob(pattern.as_bytes(), name.as_bytes());
        let partition: Vec<String> = now.partition.iter().cloned().collect();
        Ok(met(&self.jobs.partitions, &partition, same) && self.holds_here(now)?)
    }

    /// Whether the conditions are met that are not about jobs.
    fn holds_here(&self, now: &Circumstances) -> Result<bool, String> {
        let same = |pattern: &String, name: &str| glob(pattern.as_bytes(), name.as_bytes());
        // Host names are the same in capitals (RFC 4343).
        let host = |pattern: &String, name: &str| {
            same(&pattern.to_ascii_lowercase(), &name.to_ascii_lowercase())
        };
        let user: Vec<String> = now.user.iter().cloned().collect();
        if !met(&self.host, &now.hosts, host) {
            return Ok(false);
        }
        let user_met = met(&self.user, &user, same);
        let group_met = met(&self.group, &now.groups, same);
        if user_met && group_met {
            return Ok(true);
        }
        let asks = |names: &Option<Vec<String>>| names.is_some();
        if now.user.is_none() && (asks(&self.user) || asks(&self.group)) {
            return Err("the user database has no name for you".to_owned());
        }
        match now.nameless {
            Some(gid) if user_met && !group_met => Err(format!(
                "the user database has no name for your group {gid}"
            )),
            _ => Ok(false),
        }
    }
}

/// Takes `[slurm.bounds]` out of sections; and `[slurm]` with it, if nothing else stands there.
fn take_bounds(sections: &mut Sections) -> Option<SlurmBounds> {
    let slurm = sections.slurm.as_mut()?;
    let bounds = slurm.bounds.take()?;
    if slurm.is_empty() {
        sections.slurm = None;
    }
    Some(bounds)
}

/// Whether one of the names matches one of the patterns; without patterns, nothing is asked.
fn met(
    patterns: &Option<Vec<String>>,
    names: &[String],
    matches: impl Fn(&String, &str) -> bool,
) -> bool {
    patterns.as_ref().is_none_or(|patterns| {
        let one_of = |name: &String| patterns.iter().any(|pattern| matches(pattern, name));
        names.iter().any(one_of)
    })
}

fn patterns(written: Option<Spanned<Patterns>>) -> Result<Option<Vec<String>>, Mistake> {
    let Some(written) = written else {
        return Ok(None);
    };
    let span = written.span();
    let Patterns(all) = written.into_inner();
    if all.is_empty() || all.iter().any(String::is_empty) {
        let message = "expected a name; nothing has an empty one";
        return Err((span, message, "`\"*\"` stands for any name"));
    }
    Ok(Some(all))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::config::parse::parse;
    use crate::config::source::Layer;

    fn ada() -> Circumstances {
        let words = |all: &[&str]| all.iter().map(|&one| one.to_owned()).collect();
        Circumstances {
            user: Some("ada".into()),
            groups: words(&["ada", "students"]),
            nameless: None,
            hosts: words(&["login1.example.org", "login1"]),
            partition: None,
        }
    }

    fn when(text: &str) -> When {
        let text = format!("[[when]]\n{text}\n[when.jail]\nnested = false\n");
        let mut parsed = parse(Layer::SiteEnforced, "enforced.toml", &text).unwrap();
        parsed.when.remove(0)
    }

    #[test]
    fn every_condition_has_to_be_met() {
        let job = Circumstances {
            partition: Some("gpu-long".into()),
            ..ada()
        };
        for (text, on_login, in_job) in [
            ("group = \"students\"", true, true),
            ("group = [\"staff\", \"stud*\"]", true, true),
            ("group = \"staff\"", false, false),
            ("host = \"login*\"", true, true),
            ("host = \"LOGIN1.example.org\"", true, true),
            ("host = \"login1.example\"", false, false),
            ("host = \"*.example.org\"", true, true),
            ("user = \"ada\"", true, true),
            ("user = \"Ada\"", false, false),
            ("user = \"root\"", false, false),
            ("partition = \"gpu*\"", false, true),
            ("partition = \"*\"", false, true),
            ("group = \"students\"\nhost = \"node*\"", false, false),
            ("group = \"students\"\npartition = \"gpu*\"", false, true),
            ("group = \"staff\"\nuser = \"ada\"", false, false),
        ] {
            assert_eq!(when(text).holds(&ada()), Ok(on_login), "{text}");
            assert_eq!(when(text).holds(&job), Ok(in_job), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_told_is_no_no() {
        let nobody = Circumstances {
            user: None,
            groups: vec![],
            ..ada()
        };
        let nameless = Circumstances {
            nameless: Some(64_999),
            ..ada()
        };
        assert!(when("group = \"x\"").holds(&nobody).is_err());
        assert!(when("user = \"x\"").holds(&nobody).is_err());
        assert_eq!(when("host = \"login1\"").holds(&nobody), Ok(true));
        assert_eq!(when("host = \"x\"\nuser = \"x\"").holds(&nobody), Ok(false));
        let error = when("group = \"x\"").holds(&nameless).unwrap_err();
        assert!(error.contains("64999"), "{error}");
        assert_eq!(when("group = \"students\"").holds(&nameless), Ok(true));
        assert_eq!(
            when("user = \"x\"\ngroup = \"x\"").holds(&nameless),
            Ok(false)
        );
        assert_eq!(when("user = \"ada\"").holds(&nameless), Ok(true));
    }
}
