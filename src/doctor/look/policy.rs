//! The policy as a launch would have it, and the site's files by themselves.

use std::hash::{DefaultHasher, Hash, Hasher};

use toml::Spanned;
use toml::de::DeTable;

use super::super::facts::{Policy, SiteFile, Trouble};
use crate::config::load::{Locations, projects_that_are_missing};
use crate::config::site;
use crate::launch::Prepared;

pub(super) fn look(
    locations: &Locations,
    prepared: std::result::Result<&Prepared, Trouble>,
) -> Policy {
    let path = locations.config_dir.join("config.toml");
    let file = match path.strip_prefix(&locations.home) {
        Ok(below) => format!("~/{}", below.display()),
        Err(_) => path.display().to_string(),
    };
    let exists = std::fs::symlink_metadata(&path).is_ok();
    let mut policy = Policy {
        file,
        exists,
        ..Policy::default()
    };
    match prepared {
        Err(trouble) => policy.trouble = Some(trouble),
        Ok(prepared) => {
            policy.missing_projects = projects_that_are_missing(locations).unwrap_or_default();
            policy.layers.clone_from(&prepared.layers);
            let text = serde_json::to_string(&prepared.policy);
            policy.digest = text.ok().map(|text| digest(&text));
        }
    }
    policy.site = [site::SiteFile::Defaults, site::SiteFile::Enforced]
        .into_iter()
        .map(|file| site_file(locations, file, &policy))
        .collect();
    policy
}

fn site_file(locations: &Locations, file: site::SiteFile, policy: &Policy) -> SiteFile {
    let path = locations.site.path(file);
    let mut found = SiteFile {
        enforced: file == site::SiteFile::Enforced,
        path: path.clone(),
        ..SiteFile::default()
    };
    match locations.site.read(file) {
        Ok(None) => {}
        Err(error) => {
            found.exists = true;
            found.trouble = Some(Trouble {
                message: error.to_string(),
                hints: error.hint().map(str::to_owned).into_iter().collect(),
            });
        }
        Ok(Some(text)) => {
            found.exists = true;
            found.digest = Some(digest(&text));
            // A launch that the file stops says so with the file's name.
            let shown = path.display().to_string();
            let stopped = policy.trouble.as_ref();
            found.trouble = stopped
                .filter(|trouble| trouble.message.contains(&shown))
                .cloned();
            let table = DeTable::parse(&text).map(Spanned::into_inner);
            let table = table.unwrap_or_default();
            let all = table.get("when").and_then(|all| all.get_ref().as_array());
            // Each section that holds is one more layer of its file.
            let layers = policy.layers.iter().filter(|layer| **layer == shown);
            let apply = layers.count().saturating_sub(1);
            found.sections = (apply, all.map_or(0, |all| all.len()));
            let others = table.iter().filter(|(name, _)| name.get_ref() != "when");
            let keys = others.map(|(_, value)| value.get_ref().as_table().map_or(1, DeTable::len));
            found.keys = keys.sum();
        }
    }
    found
}

/// A sum by which two nodes see whether they have the same text. Nobody gains by two texts of one sum:
/// who writes them is root, or asks about himself.
fn digest(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
