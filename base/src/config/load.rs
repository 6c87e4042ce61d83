//! The layers of one launch: which files hold them, and in which order. What the values mean and how layers
//! combine is not decided here.
#![allow(clippy::disallowed_methods)] // effects: looks where the directories of `[projects]` sections lead

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

pub use super::parse::{Parsed, RawLayer, parse};
pub use super::profiles::{Owner, ProfileEntry, built_in_profiles, place_of_new, profiles};
pub use super::request::{Locations, Request};

use super::diagnostic::ConfigError;
use super::files::{decode, read};
use super::parse::{DEFAULT, DEFAULT_NAME, parse_set};
use super::schema::{self, Sections};
use super::site::{Site, SiteFile};
use super::source::Layer;
use super::text::Text;
use super::when::Probe;

/// All layers of a launch, weakest first.
///
/// Files that the launch does not use are not parsed, so that a mistake in one of them stops
/// nothing; how that holds for profiles stands at [`super::profiles`].
pub fn load(request: &Request<'_>) -> Result<Vec<RawLayer>, ConfigError> {
    let (locations, circumstances) = (request.locations, request.circumstances);
    let mut layers = vec![parse(Layer::BuiltIn, DEFAULT_NAME, DEFAULT)?.raw];
    layers.extend(super::profiles::choose(request)?);
    layers.extend(of_site(&locations.site, SiteFile::Defaults, circumstances)?);
    let path = locations.config_dir.join("config.toml");
    let file = locations.shown(&path);
    if let Some(bytes) = read(&path, &file)? {
        let user = parse(Layer::User, &file, &decode(&file, bytes)?)?;
        let (file, text) = (Arc::clone(&user.raw.file), Arc::clone(&user.raw.text));
        layers.push(user.raw);
        for (written, sections) in for_project(request, user.projects) {
            let (file, text) = (Arc::clone(&file), Arc::clone(&text));
            layers.push(project_layer(file, text, &written, sections));
        }
    }
    for option in request.set {
        layers.push(parse_set(option)?);
    }
    layers.extend(of_site(&locations.site, SiteFile::Enforced, circumstances)?);
    super::profiles::bind(locations, &mut layers)?;
    Ok(layers)
}

/// The layers that one of the site's files holds.
fn of_site(
    site: &Site,
    file: SiteFile,
    circumstances: Probe<'_>,
) -> Result<Vec<RawLayer>, ConfigError> {
    let Some(text) = site.read(file)? else {
        return Ok(Vec::new());
    };
    let layer = match file {
        SiteFile::Defaults => Layer::SiteDefaults,
        SiteFile::Enforced => Layer::SiteEnforced,
    };
    let shown = site.path(file).display().to_string();
    with_conditions(parse(layer, &shown, &text)?, circumstances)
}

/// A file's layers: what always holds, and what does so now.
fn with_conditions(parsed: Parsed, circumstances: Probe<'_>) -> Result<Vec<RawLayer>, ConfigError> {
    let mut layers = vec![parsed.raw];
    if parsed.when.is_empty() {
        return Ok(layers);
    }
    let now = circumstances();
    for when in parsed.when {
        let whole = &layers[0];
        let (layer, file, text) = (
            whole.layer,
            Arc::clone(&whole.file),
            Arc::clone(&whole.text),
        );
        let span = when.span.clone();
        let held = when.held(&now).map_err(|why| {
            let message = format!("whether this holds cannot be told: {why}");
            let hint = "what it says of users and groups must have an answer on every node";
            whole.reject(span, &message, Some(hint.to_owned()))
        })?;
        layers.extend(held.into_iter().map(|(sections, jobs)| RawLayer {
            layer,
            file: Arc::clone(&file),
            text: Arc::clone(&text),
            project: None,
            when: true,
            jobs,
            sections,
            profile: None,
            credentials: Vec::new(),
        }));
    }
    Ok(layers)
}

/// A layer as text, as it travels with a job from the node on which the session was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarriedLayer<'a> {
    /// Which layer.
    pub layer: Layer,
    /// The file's name in messages.
    pub file: &'a str,
    /// The whole text; of a `[projects]` section the path, as written in the user's layer before it.
    pub text: &'a str,
}

/// All layers of a job, weakest first: those of this node, and those that came with it. What the
/// site enforces where the session was started holds besides what it enforces here.
///
/// # Errors
/// What is wrong with a file of this node's site; a text that this version does not understand.
pub fn load_carried(
    locations: &Locations,
    carried: &[CarriedLayer<'_>],
    circumstances: Probe<'_>,
) -> Result<Vec<RawLayer>, ConfigError> {
    let mut layers = vec![parse(Layer::BuiltIn, DEFAULT_NAME, DEFAULT)?.raw];
    let mut projects = Vec::new();
    let mut defaults = of_site(&locations.site, SiteFile::Defaults, circumstances)?;
    let enforced = of_site(&locations.site, SiteFile::Enforced, circumstances)?;
    for one in carried {
        // They stand behind the profiles.
        if one.layer > Layer::SiteDefaults {
            layers.append(&mut defaults);
        }
        if one.layer == Layer::SiteEnforced {
            // Mostly it is the same file on every node.
            if enforced.first().is_none_or(|here| **here.text != *one.text) {
                let parsed = parse(one.layer, one.file, one.text)?;
                layers.extend(with_conditions(parsed, circumstances)?);
            }
            continue;
        }
        if one.layer != Layer::Project {
            let parsed = parse(one.layer, one.file, one.text)?;
            projects.extend(parsed.projects);
            layers.push(parsed.raw);
            continue;
        }
        let user = layers.iter().find(|layer| layer.layer == Layer::User);
        let section = projects
            .iter()
            .position(|(written, _)| written.get_ref() == one.text);
        let (Some(user), Some(at)) = (user, section) else {
            let message = format!("the job's policy lacks its section for `{}`", one.text);
            return Err(ConfigError::plain(&message, None));
        };
        let (file, text) = (Arc::clone(&user.file), Arc::clone(&user.text));
        let (written, sections) = projects.swap_remove(at);
        layers.push(project_layer(file, text, written.get_ref(), sections));
    }
    layers.append(&mut defaults);
    layers.extend(enforced);
    super::profiles::bind(locations, &mut layers)?;
    Ok(layers)
}

fn project_layer(file: Arc<str>, text: Arc<Text>, written: &str, sections: Sections) -> RawLayer {
    RawLayer {
        layer: Layer::Project,
        file,
        text,
        project: Some(Arc::from(written)),
        when: false,
        jobs: None,
        sections,
        profile: None,
        credentials: Vec::new(),
    }
}

/// The `[projects]` sections for this project and their paths as written, the shortest first.
fn for_project(
    request: &Request<'_>,
    sections: Vec<(schema::Text, Sections)>,
) -> Vec<(String, Sections)> {
    let locations = request.locations;
    let Some(project) = request.project else {
        return Vec::new();
    };
    if sections.is_empty() {
        return Vec::new();
    }
    // The project under both of its names: as typed, and with every symbolic link resolved.
    let real = match request.settled {
        true => project.to_owned(),
        false => fs::canonicalize(project).unwrap_or_else(|_| project.to_owned()),
    };
    let mut matching = Vec::new();
    for (written, sections) in sections {
        let path = in_home(locations, written.get_ref());
        let covers = |path: &Path| project.starts_with(path) || real.starts_with(path);
        if covers(&path) || covers(&resolve_system_links(&path)) {
            let start = written.span().start;
            let written = written.into_inner().into_owned();
            matching.push((path.components().count(), start, written, sections));
        }
    }
    matching.sort_by_key(|(depth, start, ..)| (*depth, *start));
    matching
        .into_iter()
        .map(|(_, _, written, sections)| (written, sections))
        .collect()
}

/// The `[projects]` sections of the user's file whose directory does not exist, as written. Of one that does not
/// answer nobody says so.
///
/// # Errors
/// The file cannot be read, or is no policy.
pub fn projects_that_are_missing(locations: &Locations) -> Result<Vec<String>, ConfigError> {
    let path = locations.config_dir.join("config.toml");
    let file = locations.shown(&path);
    let Some(bytes) = read(&path, &file)? else {
        return Ok(Vec::new());
    };
    let user = parse(Layer::User, &file, &decode(&file, bytes)?)?;
    let written = user
        .projects
        .into_iter()
        .map(|(path, _)| path.into_inner().into_owned());
    Ok(written
        .filter(|written| {
            let found = fs::metadata(in_home(locations, written));
            found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        })
        .collect())
}

fn in_home(locations: &Locations, written: &str) -> PathBuf {
    match written.strip_prefix('~') {
        Some(below) => locations.home.join(below.trim_start_matches('/')),
        None => PathBuf::from(written),
    }
}

/// Follows the symbolic links that the system made: those owned by root in directories owned by
/// root (`/scratch` → `/lustre/scratch`, `/home` → `/nfs/home`). Others stay as written. A link
/// that the user owns may have been made by an agent of an earlier session, in a directory it
/// could write, to give its next project the sections of another one. It also means that no
/// directory of the user's, on a file system that may hang, is looked at.
fn resolve_system_links(path: &Path) -> PathBuf {
    const MOST_LINKS: usize = 40;
    let mut links = 0;
    let mut waiting: Vec<OsString> = reversed(path);
    let mut resolved = PathBuf::from("/");
    while let Some(part) = waiting.pop() {
        let next = resolved.join(&part);
        let Ok(status) = fs::symlink_metadata(&next) else {
            return rest(next, waiting);
        };
        if status.uid() != 0 {
            return rest(next, waiting);
        }
        if !status.is_symlink() {
            if status.mode() & 0o022 != 0 {
                return rest(next, waiting);
            }
            resolved = next;
            continue;
        }
        links += 1;
        let Ok(target) = fs::read_link(&next) else {
            return rest(next, waiting);
        };
        if links > MOST_LINKS || target.components().any(|part| part == Component::ParentDir) {
            return rest(next, waiting);
        }
        if target.is_absolute() {
            resolved = PathBuf::from("/");
        }
        waiting.extend(reversed(&target));
    }
    resolved
}

/// The names in a path, the last first.
fn reversed(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        _ => None,
    });
    names.rev().collect()
}

fn rest(mut path: PathBuf, waiting: Vec<OsString>) -> PathBuf {
    path.extend(waiting.into_iter().rev());
    path
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{fs, resolve_system_links};

    #[test]
    fn links_of_the_system_are_followed() {
        // Where /usr is merged, /bin is a link that root made in a directory of root's.
        let merged = fs::read_link("/bin").is_ok_and(|target| target.ends_with("usr/bin"));
        let expected = if merged { "/usr/bin/a/b" } else { "/bin/a/b" };
        assert_eq!(
            resolve_system_links(Path::new("/bin/a/b")),
            Path::new(expected)
        );
        assert_eq!(resolve_system_links(Path::new("/")), Path::new("/"));
    }
}
