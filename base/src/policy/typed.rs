//! Types the values of one layer: words, numbers, sizes, paths, names; with errors that point at
//! what was written.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use agent_sandbox_ssh::DestinationError;
use toml::Spanned;

use super::clamp::{List, Sets, Single};
use super::hosts::{self, HostEntry};
use super::names::{NameList, Names};
use super::paths::PathSpec;
use super::ssh::{SshHosts, SshKeys};
use super::trace::{Events, KINDS, Sampling};
use super::values::{AtLeast, Bytes, JobMemory, Limit, Memory, ShmSize, Words};
use crate::config::diagnostic::{ConfigError, nearest};
use crate::config::load::RawLayer;
use crate::config::schema::{Number, Numbers, Pairs, Strings, Switch, Text, Whole};
use crate::config::source::{Layer, Source, Sourced};

mod of_the_site;

/// No pattern of an argument is longer, in bytes: all of them travel to the tracer in one packet.
const LONGEST_REDACTION: usize = 200;
/// A pattern of an argument has no more `*`: the tracer looks for what stands between them in each argument, and takes no
/// more (`PATTERN_STARS`).
const MOST_STARS: usize = 8;

const SIZE_HINT: &str = "a whole number of bytes above 0, with K, M, G or T after it: \"512M\"";

/// Reads a size such as `"512M"`: a whole number of bytes with an optional binary suffix.
fn bytes(written: &str) -> Option<u64> {
    let (digits, shift) = match written.chars().last()? {
        'K' => (&written[..written.len() - 1], 10),
        'M' => (&written[..written.len() - 1], 20),
        'G' => (&written[..written.len() - 1], 30),
        'T' => (&written[..written.len() - 1], 40),
        _ => (written, 0),
    };
    let number: u64 = digits.parse().ok()?;
    number
        .checked_mul(1 << shift)
        .filter(|&size| size > 0 && size <= i64::MAX as u64)
}

/// Types the values of one layer, with errors that point at them. What a layer does not say is an empty list, or
/// no value. Each error says that the value is something else than the function reads.
pub struct Reader<'a>(&'a RawLayer);

/// What a whole number of a policy becomes.
pub trait Counted {
    /// Of the number.
    fn of(number: u64) -> Self;
}

impl Counted for Duration {
    fn of(milliseconds: u64) -> Self {
        Self::from_millis(milliseconds)
    }
}

impl Counted for Limit {
    fn of(number: u64) -> Self {
        Self::new(number)
    }
}

impl Counted for AtLeast {
    fn of(number: u64) -> Self {
        Self(number)
    }
}

impl Counted for Sampling {
    fn of(number: u64) -> Self {
        Self(number)
    }
}

impl<'a> Reader<'a> {
    /// A reader of one layer.
    pub fn new(layer: &'a RawLayer) -> Self {
        Self(layer)
    }

    fn enforced(&self) -> bool {
        self.0.layer == Layer::SiteEnforced
    }

    fn reject(&self, span: Range<usize>, message: &str, hint: Option<String>) -> ConfigError {
        self.0.reject(span, message, hint)
    }

    /// The layer's file as a whole.
    fn whole(&self) -> Source {
        Source {
            layer: self.0.layer,
            file: Arc::clone(&self.0.file),
            line: None,
        }
    }

    /// One value.
    fn single<W, T>(
        &self,
        written: &Option<Spanned<W>>,
        value: impl FnOnce(&Spanned<W>) -> Result<T, ConfigError>,
    ) -> Result<Single<T>, ConfigError> {
        let Some(written) = written else {
            return Ok(Single::default());
        };
        let source = self.0.source(written.span());
        Ok(Single::new(Some(Sourced::new(value(written)?, source))))
    }

    /// A list.
    fn list<T, L: List<T>>(
        &self,
        written: &Option<Strings>,
        entry: impl Fn(&Text) -> Result<Sourced<T>, ConfigError>,
    ) -> Result<L, ConfigError> {
        let named = written.as_ref().map(|_| self.whole());
        let mut entries = Vec::with_capacity(written.as_ref().map_or(0, Vec::len));
        for one in written.iter().flatten() {
            entries.push(entry(one)?);
        }
        Ok(L::of(named, entries))
    }

    /// One of the words that `known` lists.
    fn known<T: Copy>(
        &self,
        written: &Text,
        known: &[(&str, T)],
        message: impl Fn(&str) -> String,
    ) -> Result<T, ConfigError> {
        let given = written.get_ref();
        if let Some((_, value)) = known.iter().find(|(word, _)| word == given) {
            return Ok(*value);
        }
        let known: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
        let hint = match nearest(given, known.iter().copied()) {
            Some(word) => format!("did you mean \"{word}\"? valid: {}", known.join(", ")),
            None => format!("valid: {}", known.join(", ")),
        };
        Err(self.reject(written.span(), &message(given), Some(hint)))
    }

    /// One of the words that the value is written as.
    pub(super) fn word<T: Words>(&self, written: &Option<Text>) -> Result<Single<T>, ConfigError> {
        let unknown = |given: &str| format!("unknown value `{given}`");
        self.single(written, |written| self.known(written, T::WORDS, unknown))
    }

    /// A switch.
    pub(super) fn switch<T: From<bool>>(
        &self,
        written: &Option<Switch>,
    ) -> Result<Single<T>, ConfigError> {
        self.single(written, |written| Ok(T::from(*written.get_ref())))
    }

    /// A whole number in a range.
    pub(super) fn number<T: Counted>(
        &self,
        written: &Option<Number>,
        least: i64,
        most: i64,
        unit: &str,
    ) -> Result<Single<T>, ConfigError> {
        self.single(written, |written| {
            let given = *written.get_ref();
            if (least..=most).contains(&given) {
                return Ok(T::of(given.unsigned_abs()));
            }
            let hint = format!("a whole number of {unit} from {least} to {most}");
            let message = format!("`{given}` is out of range");
            Err(self.reject(written.span(), &message, Some(hint)))
        })
    }

    /// A number of bytes.
    pub(super) fn size(&self, written: &Option<Text>) -> Result<Single<Bytes>, ConfigError> {
        self.single(written, |written| match bytes(written.get_ref()) {
            Some(size) => Ok(Bytes(size)),
            None => Err(self.no_size(written, SIZE_HINT)),
        })
    }

    /// A number of bytes, or `"auto"`.
    pub(super) fn size_or_auto(
        &self,
        written: &Option<Text>,
    ) -> Result<Single<ShmSize>, ConfigError> {
        self.single(written, |written| {
            match (written.get_ref().as_ref(), bytes(written.get_ref())) {
                ("auto", _) => Ok(ShmSize::Auto),
                (_, Some(size)) => Ok(ShmSize::Bytes(size)),
                (_, None) => Err(self.no_size(written, &format!("{SIZE_HINT}, or \"auto\""))),
            }
        })
    }

    /// A number of bytes, or `"none"`.
    pub(super) fn size_or_none(
        &self,
        written: &Option<Text>,
    ) -> Result<Single<Memory>, ConfigError> {
        self.single(written, |written| {
            match (written.get_ref().as_ref(), bytes(written.get_ref())) {
                ("none", _) => Ok(Memory::NONE),
                (_, Some(size)) => Ok(Memory::bytes(size)),
                (_, None) => Err(self.no_size(written, &format!("{SIZE_HINT}, or \"none\""))),
            }
        })
    }

    /// A number of bytes, or `"unlimited"`.
    pub(super) fn memory(&self, written: &Option<Text>) -> Result<Single<JobMemory>, ConfigError> {
        self.single(written, |written| {
            match (written.get_ref().as_ref(), bytes(written.get_ref())) {
                ("unlimited", _) => Ok(JobMemory::Unlimited),
                (_, Some(size)) => Ok(JobMemory::Bytes(size)),
                (_, None) => Err(self.no_size(written, &format!("{SIZE_HINT}, or \"unlimited\""))),
            }
        })
    }

    fn no_size(&self, written: &Text, hint: &str) -> ConfigError {
        let message = format!("`{}` is not a size", written.get_ref());
        self.reject(written.span(), &message, Some(hint.to_owned()))
    }

    /// Any text without NUL.
    fn text(&self, written: &Text) -> Result<Sourced<String>, ConfigError> {
        if written.get_ref().contains('\0') {
            return Err(self.reject(written.span(), "holds a NUL byte", None));
        }
        Ok(Sourced::new(
            written.get_ref().to_string(),
            self.0.source(written.span()),
        ))
    }

    /// Variables and their values.
    pub(super) fn variables(&self, written: &Option<Pairs>) -> Result<Sets, ConfigError> {
        let mut all = Sets::default();
        for (name, value) in written.iter().flatten() {
            let text = self.text(name)?;
            if text.value.is_empty() || text.value.contains('=') {
                let message = format!("`{}` cannot name a variable", text.value);
                return Err(self.reject(name.span(), &message, None));
            }
            let value = self.text(value)?.value;
            all.set(text.map(|name| (name, value)));
        }
        Ok(all)
    }

    fn path(&self, written: &Text) -> Result<Sourced<PathSpec>, ConfigError> {
        if PathSpec::all_but_home(written.get_ref()).is_some() {
            let message = format!(
                "`{}` means something in files.hide alone",
                written.get_ref()
            );
            let hint =
                "exceptions from such an entry are names at its end: `/home/* but ~, shared`"
                    .to_owned();
            return Err(self.reject(written.span(), &message, Some(hint)));
        }
        let spec = PathSpec::of_text(written.get_ref().clone())
            .map_err(|why| self.no_path(written, &why))?;
        if let Some(name) = spec.variable().filter(|_| self.enforced()) {
            let message = format!("`${name}` may not stand in an enforced policy: users set it");
            let hint = "write the path itself, or `~/…`, the home of the user database".to_owned();
            return Err(self.reject(written.span(), &message, Some(hint)));
        }
        Ok(Sourced::new(spec, self.0.source(written.span())))
    }

    /// Paths.
    pub(super) fn paths<L: List<PathSpec>>(
        &self,
        written: &Option<Strings>,
    ) -> Result<L, ConfigError> {
        self.list(written, |entry| self.path(entry))
    }

    fn no_path(&self, written: &Text, why: &str) -> ConfigError {
        let message = format!("path `{}` {why}", written.get_ref());
        self.reject(written.span(), &message, None)
    }

    /// Paths, and all in a directory but the home.
    pub(super) fn hidden_paths<L: List<PathSpec>>(
        &self,
        written: &Option<Strings>,
    ) -> Result<L, ConfigError> {
        self.list(written, |entry| {
            match PathSpec::all_but_home(entry.get_ref()) {
                None => self.path(entry),
                Some(read) => {
                    let spec = read.map_err(|why| self.no_path(entry, &why))?;
                    Ok(Sourced::new(spec, self.0.source(entry.span())))
                }
            }
        })
    }

    /// As [`Reader::hidden_paths`], where a bound could not mean such an entry.
    pub(super) fn unhidden_paths<L: List<PathSpec>>(
        &self,
        written: &Option<Strings>,
    ) -> Result<L, ConfigError> {
        match self.enforced() {
            true => self.paths(written),
            false => self.hidden_paths(written),
        }
    }

    /// Paths that are no patterns.
    pub(super) fn plain_paths<L: List<PathSpec>>(
        &self,
        written: &Option<Strings>,
    ) -> Result<L, ConfigError> {
        self.list(written, |entry| self.plain(entry, self.path(entry)?))
    }

    /// Paths below the home directory.
    pub(super) fn home_paths<L: List<PathSpec>>(
        &self,
        written: &Option<Strings>,
    ) -> Result<L, ConfigError> {
        self.list(written, |entry| self.in_home(entry, self.path(entry)?))
    }

    /// Ports.
    pub(super) fn ports<L: List<u16>>(&self, written: &Option<Numbers>) -> Result<L, ConfigError> {
        let named = written.as_ref().map(|_| self.whole());
        let entries = written.iter().flatten().map(|entry| {
            let port = u16::try_from(*entry.get_ref())
                .ok()
                .filter(|port| *port > 0);
            let port = port.ok_or_else(|| {
                let message = format!("`{}` is no port", entry.get_ref());
                let hint = "a whole number from 1 to 65535".to_owned();
                self.reject(entry.span(), &message, Some(hint))
            })?;
            Ok(Sourced::new(port, self.0.source(entry.span())))
        });
        Ok(L::of(named, entries.collect::<Result<_, _>>()?))
    }

    /// The path, if it lies below the home directory.
    fn in_home(
        &self,
        written: &Text,
        path: Sourced<PathSpec>,
    ) -> Result<Sourced<PathSpec>, ConfigError> {
        if path.value.is_in_home() {
            return Ok(path);
        }
        let message = format!(
            "path `{}` does not lie below the home directory",
            path.value
        );
        let hint = "write `~/NAME` here; other paths go into [files]".to_string();
        Err(self.reject(written.span(), &message, Some(hint)))
    }

    /// As [`Reader::home_paths`], for paths that are no patterns.
    pub(super) fn plain_home_paths<L: List<PathSpec>>(
        &self,
        written: &Option<Strings>,
    ) -> Result<L, ConfigError> {
        self.list(written, |entry| {
            let path = self.plain(entry, self.path(entry)?)?;
            self.in_home(entry, path)
        })
    }

    /// As [`Reader::home_paths`], for directories that the jail has of its own: they need not exist, so
    /// that a pattern means something in a bound alone.
    pub(super) fn kept_places<L: List<PathSpec>>(
        &self,
        written: &Option<Strings>,
    ) -> Result<L, ConfigError> {
        match self.enforced() {
            true => self.home_paths(written),
            false => self.plain_home_paths(written),
        }
    }

    /// Paths below /dev.
    pub(super) fn devices<L: List<PathSpec>>(
        &self,
        written: &Option<Strings>,
    ) -> Result<L, ConfigError> {
        self.list(written, |entry| {
            let path = self.path(entry)?;
            if path.value.is_below("/dev/") {
                return Ok(path);
            }
            let message = format!("`{}` is not a path below /dev", path.value);
            Err(self.reject(entry.span(), &message, None))
        })
    }

    /// The path, unless it is a pattern.
    fn plain(
        &self,
        written: &Text,
        path: Sourced<PathSpec>,
    ) -> Result<Sourced<PathSpec>, ConfigError> {
        if !path.value.is_pattern() {
            return Ok(path);
        }
        let message = format!(
            "`{}` holds a `*`, which means nothing here",
            written.get_ref()
        );
        Err(self.reject(written.span(), &message, None))
    }

    /// Patterns.
    pub(super) fn patterns<L: List<String>>(
        &self,
        written: &Option<Strings>,
    ) -> Result<L, ConfigError> {
        self.list(written, |entry| {
            let pattern = self.text(entry)?;
            match pattern.value.is_empty() {
                true => Err(self.reject(entry.span(), "an empty pattern matches nothing", None)),
                false => Ok(pattern),
            }
        })
    }

    /// Names of Slurm's, and patterns of them: one value, so that a later layer can name fewer than an earlier one.
    pub(super) fn names(&self, written: &Option<Whole>) -> Result<Names, ConfigError> {
        let Some(written) = written else {
            return Ok(Names::default());
        };
        let mut entries = Vec::new();
        for entry in written.get_ref() {
            let name = self.text(entry)?.value;
            let plain = |c: char| c.is_ascii_alphanumeric() || "_.@:/+*-".contains(c);
            if name.is_empty() || name.starts_with('-') || !name.chars().all(plain) {
                let message = format!("`{}` is no name", name.escape_debug());
                let hint = "one name an entry: letters, digits and _ . @ : / + -, and `*` for any characters";
                return Err(self.reject(entry.span(), &message, Some(hint.to_owned())));
            }
            entries.push(name);
        }
        let source = self.0.source(written.span());
        Ok(Names::new(Some(Sourced::new(
            NameList::new(entries),
            source,
        ))))
    }

    /// Kinds of events: one value, so that a later layer can name fewer than an earlier one.
    pub(super) fn events(&self, written: &Option<Whole>) -> Result<Single<Events>, ConfigError> {
        let names = KINDS.map(|(name, _)| (name, name));
        let unknown = |given: &str| format!("`{given}` is no kind of event");
        self.single(written, |written| {
            let mut all = Events::none();
            for entry in written.get_ref() {
                let name = self.known(entry, &names, unknown)?;
                all = all.with(name).unwrap_or(all);
            }
            Ok(all)
        })
    }

    /// As [`Reader::patterns`], for arguments that are secrets: none is too long to be told to the tracer.
    pub(super) fn redactions<L: List<String>>(
        &self,
        written: &Option<Strings>,
    ) -> Result<L, ConfigError> {
        let stars = |text: &str| text.bytes().filter(|byte| *byte == b'*').count();
        let refuse = |refused: &dyn Fn(&str) -> bool, message: String| {
            let mut all = written.iter().flatten();
            let Some(found) = all.find(|one| refused(one.get_ref())) else {
                return Ok(());
            };
            let hint = "name what the argument begins with, and put a `*` behind it".to_owned();
            Err(self.reject(found.span(), &message, Some(hint)))
        };
        refuse(
            &|text| text.len() > LONGEST_REDACTION,
            format!("a pattern of more than {LONGEST_REDACTION} bytes"),
        )?;
        refuse(
            &|text| stars(text) > MOST_STARS,
            format!("a pattern with more than {MOST_STARS} `*`"),
        )?;
        self.patterns(written)
    }

    /// Hosts to which somebody logs in.
    pub(super) fn ssh_hosts(&self, written: &Option<Strings>) -> Result<SshHosts, ConfigError> {
        self.list(written, |entry| {
            let text = self.text(entry)?;
            let host = text.value.parse().map_err(|why: DestinationError| {
                let message = format!("`{}` is no host: {why}", text.value.escape_debug());
                let hint = "as in \"github.com\" or \"git@gitlab.example.org:2222\"".to_owned();
                self.reject(entry.span(), &message, Some(hint))
            })?;
            Ok(Sourced::new(host, text.source))
        })
    }

    /// Keys of the user's: one value, so that a later layer can name fewer than an earlier one.
    pub(super) fn ssh_keys(&self, written: &Option<Whole>) -> Result<Single<SshKeys>, ConfigError> {
        self.single(written, |written| {
            let keys = written.get_ref().iter().map(|entry| {
                SshKeys::entry(entry.get_ref()).map_err(|why| {
                    let message = format!("`{}` is no key: {why}", entry.get_ref().escape_debug());
                    let hint =
                        "\"SHA256:…\" as `ssh-add -l` shows it, \"~/.ssh/NAME.pub\", or \"*\"";
                    self.reject(entry.span(), &message, Some(hint.to_owned()))
                })
            });
            Ok(SshKeys::of(keys.collect::<Result<_, _>>()?))
        })
    }

    /// Hosts, by themselves and in named sets; with `any` also `*`, every one.
    pub(super) fn hosts<L: List<HostEntry>>(
        &self,
        written: &Option<Strings>,
        any: bool,
    ) -> Result<L, ConfigError> {
        let named = written.as_ref().map(|_| self.whole());
        let mut all = Vec::new();
        for entry in written.iter().flatten() {
            let text = self.text(entry)?;
            let found = hosts::entries(&text.value).map_err(|(why, hint)| {
                let message = format!("`{}` is no host: {why}", text.value.escape_debug());
                self.reject(entry.span(), &message, hint)
            })?;
            if !any && found.iter().any(HostEntry::is_any) {
                let hint = "name the hosts, or their addresses".to_owned();
                return Err(self.reject(entry.span(), "`*` means nothing here", Some(hint)));
            }
            all.extend(
                found
                    .into_iter()
                    .map(|one| Sourced::new(one, text.source.clone())),
            );
        }
        Ok(L::of(named, all))
    }

    /// Names of modules, in their order.
    pub(super) fn modules<L: List<String>>(
        &self,
        written: &Option<Strings>,
    ) -> Result<L, ConfigError> {
        self.list(written, |entry| {
            let name = self.text(entry)?;
            let plain = |c: char| c.is_ascii_alphanumeric() || "._+/-".contains(c);
            let begins = !name.value.is_empty() && !name.value.starts_with('-');
            if begins && name.value.chars().all(plain) {
                return Ok(name);
            }
            let message = format!("`{}` is not a module name", name.value);
            let hint =
                "letters, digits and . _ + - /, not beginning with -: \"gcc/12.2.0\"".to_string();
            Err(self.reject(entry.span(), &message, Some(hint)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (written, expected) in [
            ("4G", Some(4 << 30)),
            ("512M", Some(512 << 20)),
            ("7", Some(7)),
            ("0", None),
            ("", None),
            ("9T9", None),
        ] {
            assert_eq!(bytes(written), expected, "{written}");
        }
        assert_eq!(bytes("99999999999T"), None);
        assert_eq!(bytes("-1G"), None);
    }
}
