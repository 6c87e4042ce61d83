//! From the text of one layer to its sections: a policy file, or a `--set` option. Pure.

use std::borrow::Cow;
use std::ops::Range;
use std::path::{Component, Path};
use std::sync::Arc;

use agent_sandbox_wire::bounds::JobCondition;
use toml::Spanned;
use toml::de::DeTable;

use super::agent::Agent;
use super::built_in;
use super::diagnostic::ConfigError;
use super::index;
use super::schema::{self, CredentialSection, Document, Sections};
use super::source::{Layer, Source};
use super::text::{Text, Written, reject};
use super::when::When;

/// The built-in policy, which is also the reference of every key.
pub const DEFAULT: &str = built_in::DEFAULT.text;

/// What messages call [`DEFAULT`].
pub(super) const DEFAULT_NAME: &str = built_in::DEFAULT.file;

/// The sections of one layer, with the text that they came from.
#[derive(Debug)]
pub struct RawLayer {
    /// Where in the order of merging the layer stands.
    pub layer: Layer,
    /// The file, or the option, as a person would name it.
    pub file: Arc<str>,
    /// The whole text of the file: spans of `sections` are offsets in it.
    pub text: Arc<Text>,
    /// Of a `[projects]` section the path, as written.
    pub project: Option<Arc<str>>,
    /// Whether it is a `[[when]]` section, whose file is a layer of its own.
    pub when: bool,
    /// Which jobs it is about, where it bounds jobs that ask for some partitions or accounts. It then has
    /// `[slurm.bounds]` alone.
    pub jobs: Option<JobCondition>,
    /// What the text says.
    pub sections: Sections,
    /// `[profile]`, in a profile file.
    pub profile: Option<Box<Agent>>,
    /// `[[credential]]`
    pub credentials: Vec<Spanned<CredentialSection>>,
}

impl RawLayer {
    /// What its text is and is called.
    pub(super) fn written(&self) -> Written<'_> {
        Written {
            layer: self.layer,
            file: &self.file,
            text: &self.text,
        }
    }

    /// The place of a value, by its span.
    pub fn source(&self, span: Range<usize>) -> Source {
        self.written().source(span)
    }

    /// Refuses a value, by its span.
    pub fn reject(&self, span: Range<usize>, message: &str, hint: Option<String>) -> ConfigError {
        self.written().reject(span, message, hint)
    }
}

/// One policy file, parsed.
#[derive(Debug)]
pub struct Parsed {
    /// The sections that hold for every project.
    pub raw: RawLayer,
    /// The sections that hold for one project, in the user's file: the path as written, and what
    /// holds below it.
    pub projects: Vec<(schema::Text, Sections)>,
    /// The sections that hold under conditions, in the site's files.
    pub when: Vec<When>,
}

/// Parses one policy file. `file` is its name in messages.
pub fn parse(layer: Layer, file: &str, text: &str) -> Result<Parsed, ConfigError> {
    let built_in = built_in::with_text(text);
    let read = match built_in {
        Some(one) => index::read::<Document>(one.text, one.index),
        None => index::parse(text),
    };
    let mut document = read.map_err(|mistake| {
        let (message, hint) = mistake.explain(sections_with);
        reject(layer, file, text, mistake.span, &message, hint)
    })?;
    let sections = document.take_sections();
    let (profile, projects) = (document.profile, document.projects);
    if let Some(profile) = &profile
        && layer != Layer::Profile
    {
        let message = "`[profile]` has a meaning only in a profile file";
        let hint = "profiles are the files below `~/.config/agent-sandbox/profiles`".to_owned();
        let span = profile.span();
        return Err(reject(layer, file, text, span, message, Some(hint)));
    }
    if let Some(projects) = &projects {
        if layer != Layer::User {
            let message = "`[projects]` has a meaning only in the user's own configuration";
            let hint = "move it to `~/.config/agent-sandbox/config.toml`".to_owned();
            return Err(reject(
                layer,
                file,
                text,
                projects.span(),
                message,
                Some(hint),
            ));
        }
        for path in projects.get_ref().keys() {
            if let Some(message) = project_path_error(path.get_ref()) {
                let hint = "for example `[projects.\"~/work/simulation\"]`".to_owned();
                return Err(reject(layer, file, text, path.span(), message, Some(hint)));
            }
        }
    }
    // An enforced layer narrows, and this would give.
    if let (Layer::SiteEnforced, Some(first)) = (layer, document.credential.first()) {
        let message = "`[[credential]]` has no meaning in an enforced policy";
        let hint =
            "move it to `defaults.toml`; `network.credentials = \"off\"` forbids them".to_owned();
        return Err(reject(layer, file, text, first.span(), message, Some(hint)));
    }
    let mut when = Vec::new();
    for section in document.when {
        let span = section.span();
        if !matches!(layer, Layer::SiteDefaults | Layer::SiteEnforced) {
            let message = "`[[when]]` has a meaning only in the site's files";
            let hint = "write the sections without it".to_owned();
            return Err(reject(layer, file, text, span, message, Some(hint)));
        }
        let enforced = layer == Layer::SiteEnforced;
        when.push(
            When::read(section, enforced).map_err(|(span, message, hint)| {
                reject(layer, file, text, span, message, Some(hint.to_owned()))
            })?,
        );
    }
    let mut raw = RawLayer {
        layer,
        file: Arc::from(file),
        text: Arc::new(Text::new(match built_in {
            Some(one) => Cow::Borrowed(one.text),
            None => Cow::Owned(text.to_owned()),
        })),
        project: None,
        when: false,
        jobs: None,
        sections,
        profile: None,
        credentials: document.credential,
    };
    if let Some(profile) = profile {
        raw.profile = Some(Box::new(Agent::read(raw.written(), profile.get_ref())?));
    }
    let projects = projects.map(|table| table.into_inner().into_iter().collect());
    Ok(Parsed {
        raw,
        projects: projects.unwrap_or_default(),
        when,
    })
}

/// The sections that have a key of this name. The built-in policy holds every key, so it is the
/// table; parsing it once more costs nothing on the way to an error.
fn sections_with(key: &str) -> Vec<String> {
    let all = DeTable::parse(DEFAULT).map(Spanned::into_inner);
    let sections = all.iter().flatten();
    let having = sections.filter(|(_, section)| section.get_ref().get(key).is_some());
    having.map(|(name, _)| name.get_ref().to_string()).collect()
}

/// One `--set section.key=VALUE`. The value is TOML; what is no TOML, or is TOML of another type
/// than the key has, is taken as a string, so that `--set jail.tmp_size=8G` and
/// `--set env.set.OMP_NUM_THREADS=4` need no quotes.
pub(super) fn parse_set(option: &str) -> Result<RawLayer, ConfigError> {
    let malformed = || {
        let message = format!("--set {option}: expected section.key=VALUE");
        ConfigError::plain(
            &message,
            Some("for example `--set files.timeout_ms=5000`".to_owned()),
        )
    };
    let (key, value) = option.split_once('=').ok_or_else(malformed)?;
    let (key, value) = (key.trim(), value.trim());
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let words = key.split('.').collect::<Vec<_>>();
    if words.len() < 2
        || words
            .iter()
            .any(|word| word.is_empty() || !word.bytes().all(bare))
    {
        return Err(malformed());
    }
    let file = format!("--set {key}");
    let as_string = || {
        parse(
            Layer::CommandLine,
            &file,
            &format!("{key} = {}", quote(value)),
        )
    };
    if !is_toml_value(value) {
        return Ok(as_string()?.raw);
    }
    match parse(Layer::CommandLine, &file, &format!("{key} = {value}")) {
        Ok(parsed) => Ok(parsed.raw),
        Err(error) => as_string().map(|parsed| parsed.raw).map_err(|_| error),
    }
}

/// Whether `text` is one TOML value and nothing else: no second line, no comment.
fn is_toml_value(text: &str) -> bool {
    const KEY: &str = "v = ";
    let whole = KEY.len()..KEY.len() + text.len();
    DeTable::parse(&format!("{KEY}{text}")).is_ok_and(|table| {
        let mut values = table.get_ref().values();
        values.len() == 1 && values.all(|value| value.span() == whole)
    })
}

/// A TOML basic string.
pub fn quote(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            _ if letter.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(letter))),
            _ => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

fn project_path_error(path: &str) -> Option<&'static str> {
    if path != "~" && !path.starts_with("~/") && !path.starts_with('/') {
        Some("expected a path that begins with `~/` or `/`")
    } else if Path::new(path)
        .components()
        .any(|part| part == Component::ParentDir)
    {
        Some("expected a path without `..`")
    } else {
        None
    }
}
