//! The user's policy and the site's files.

use super::super::facts::{Facts, SiteFile};
use super::super::line::Finding;
use super::{ask, ways_out};

pub(super) fn policy(facts: &Facts) -> Option<Finding> {
    let policy = &facts.policy;
    if let Some(trouble) = &policy.trouble {
        // Said by the site's own line.
        if policy.site.iter().any(|file| file.trouble.is_some()) {
            return None;
        }
        return Some(Finding::broken(&trouble.message, ways_out(trouble)));
    }
    let file = match policy.exists {
        true => policy.file.clone(),
        false => format!("built-in; {} does not exist", policy.file),
    };
    let sum = policy.digest.as_deref().unwrap_or("none");
    let found = format!("{file}; digest {sum}");
    if policy.missing_projects.is_empty() {
        return Some(Finding::ok(found));
    }
    let sections = policy.missing_projects.iter();
    let sections: Vec<String> = sections
        .map(|path| format!("[projects.\"{path}\"]"))
        .collect();
    Some(Finding::degraded(
        format!("{found}; no such directory: {}", sections.join(", ")),
        "correct the path, or take the section out; one for another machine does no harm",
    ))
}

pub(super) fn defaults(facts: &Facts) -> Option<Finding> {
    facts
        .policy
        .site
        .iter()
        .find(|file| !file.enforced)
        .map(site)
}

pub(super) fn enforced(facts: &Facts) -> Option<Finding> {
    facts
        .policy
        .site
        .iter()
        .find(|file| file.enforced)
        .map(site)
}

fn site(file: &SiteFile) -> Finding {
    let path = file.path.display();
    if let Some(trouble) = &file.trouble {
        let ways = match trouble.hints.is_empty() {
            true => ask(&format!("repair {path}")),
            false => ways_out(trouble),
        };
        return Finding::broken(&trouble.message, ways);
    }
    if !file.exists {
        return Finding::ok(format!("{path} does not exist"));
    }
    let keys = match file.keys {
        1 => "1 key".to_owned(),
        keys => format!("{keys} keys"),
    };
    let sections = match file.sections {
        (_, 0) => String::new(),
        (apply, all) => format!("; of its [[when]] sections {apply} of {all} apply here"),
    };
    let sum = file.digest.as_deref().unwrap_or("none");
    Finding::ok(format!("{path}; {keys}{sections}; digest {sum}"))
}
