//! `[[when]]` sections of the site's files: under which circumstances they hold.

use std::ops::Range;

use toml::Spanned;

use super::pattern::glob;
use super::schema::{Patterns, Sections, WhenSection};

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
    /// What holds under the conditions.
    pub sections: Sections,
    group: Option<Vec<String>>,
    host: Option<Vec<String>>,
    partition: Option<Vec<String>>,
    user: Option<Vec<String>>,
}

/// What is wrong with a section as it is written: where, what, and what to do.
type Mistake = (Range<usize>, &'static str, &'static str);

impl When {
    /// Reads one section.
    pub(super) fn read(section: Spanned<WhenSection>) -> Result<Self, Mistake> {
        let span = section.span();
        let mut section = section.into_inner();
        let sections = section.take_sections();
        let when = Self {
            span: span.clone(),
            sections,
            group: patterns(section.group)?,
            host: patterns(section.host)?,
            partition: patterns(section.partition)?,
            user: patterns(section.user)?,
        };
        let conditions = [&when.group, &when.host, &when.partition, &when.user];
        if conditions.into_iter().all(Option::is_none) {
            let message = "`[[when]]` without a condition";
            let hint = "add `group`, `host`, `partition` or `user`; \
                        what always holds stands in sections without `[[when]]`";
            return Err((span, message, hint));
        }
        // A section behind it that is written without `when.` holds for everybody.
        if when.sections.is_empty() {
            let message = "nothing stands below this [[when]]; its sections are written [when.NAME], \
                           as [when.slurm.limits]";
            let hint = "a section without `when.` in its name holds for everybody; \
                        such sections stand above the first `[[when]]`";
            return Err((span, message, hint));
        }
        Ok(when)
    }

    /// The conditions as a person would say them.
    pub(super) fn conditions(&self) -> String {
        let all = [
            ("group", &self.group),
            ("host", &self.host),
            ("partition", &self.partition),
            ("user", &self.user),
        ];
        let there = all
            .iter()
            .filter_map(|(name, names)| Some((name, names.as_ref()?)));
        let words = there.map(|(name, names)| format!("{name} {}", names.join(" or ")));
        words.collect::<Vec<_>>().join(", ")
    }

    /// Whether every condition is met. The error is why that cannot be told.
    pub(super) fn holds(&self, now: &Circumstances) -> Result<bool, String> {
        let same = |pattern: &String, name: &str| glob(pattern.as_bytes(), name.as_bytes());
        // Host names are the same in capitals (RFC 4343).
        let host = |pattern: &String, name: &str| {
            same(&pattern.to_ascii_lowercase(), &name.to_ascii_lowercase())
        };
        let names = |name: &Option<String>| name.iter().cloned().collect::<Vec<_>>();
        let (user, partition) = (names(&now.user), names(&now.partition));
        if !met(&self.host, &now.hosts, host) || !met(&self.partition, &partition, same) {
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
