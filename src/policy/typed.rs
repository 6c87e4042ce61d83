//! Types the values of one layer: words, numbers, sizes, paths, names; with errors that point at
//! what was written.

use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use toml::Spanned;

use super::narrowing::{Fixed, Gives, Single};
use super::trace::{Events, KINDS, Recorded};
use super::values::Words;
use super::{PathSpec, Paths, Patterns, ShmSize};
use crate::config::diagnostic::{ConfigError, nearest};
use crate::config::load::RawLayer;
use crate::config::schema::Strings;
use crate::config::source::{Layer, Source, Sourced};

/// No pattern of an argument is longer, in bytes: all of them travel to the tracer in one packet.
const LONGEST_REDACTION: usize = 200;
/// A pattern of an argument has no more `*`: the tracer looks for what stands between them in each argument, and takes no
/// more (`PATTERN_STARS`).
const MOST_STARS: usize = 8;
/// No path of a socket is longer, in bytes (`unix(7)`, `sun_path` without its NUL).
const LONGEST_SOCKET: usize = 107;

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

/// Types the values of one layer, with errors that point at them.
pub struct Reader<'a>(&'a RawLayer);

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

    /// One of the words that the value is written as; nothing where the layer says nothing.
    ///
    /// # Errors
    /// The value is something else.
    pub fn word<T: Words + Copy>(
        &self,
        written: &Option<Spanned<String>>,
    ) -> Result<Single<T>, ConfigError> {
        let mut single = Single::default();
        let Some(written) = written else {
            return Ok(single);
        };
        let given = written.get_ref();
        if let Some((_, value)) = T::WORDS.iter().find(|(word, _)| word == given) {
            single.set(Sourced::new(*value, self.0.source(written.span())));
            return Ok(single);
        }
        let known: Vec<&str> = T::WORDS.iter().map(|(word, _)| *word).collect();
        let hint = match nearest(given, known.iter().copied()) {
            Some(word) => format!("did you mean \"{word}\"? valid: {}", known.join(", ")),
            None => format!("valid: {}", known.join(", ")),
        };
        Err(self.reject(
            written.span(),
            &format!("unknown value `{given}`"),
            Some(hint),
        ))
    }

    /// A switch; nothing where the layer says nothing.
    pub fn switch(&self, written: &Option<Spanned<bool>>) -> Single<bool> {
        let mut single = Single::default();
        if let Some(written) = written {
            let source = self.0.source(written.span());
            single.set(Sourced::new(*written.get_ref(), source));
        }
        single
    }

    /// A whole number in a range.
    ///
    /// # Errors
    /// The value is something else.
    pub fn number(
        &self,
        written: &Spanned<i64>,
        least: i64,
        most: i64,
        unit: &str,
    ) -> Result<Sourced<u64>, ConfigError> {
        let given = *written.get_ref();
        if !(least..=most).contains(&given) {
            let hint = format!("a whole number of {unit} from {least} to {most}");
            return Err(self.reject(
                written.span(),
                &format!("`{given}` is out of range"),
                Some(hint),
            ));
        }
        Ok(Sourced::new(
            given.unsigned_abs(),
            self.0.source(written.span()),
        ))
    }

    /// A number of bytes.
    ///
    /// # Errors
    /// The value is something else.
    pub fn size(&self, written: &Spanned<String>) -> Result<Sourced<u64>, ConfigError> {
        let size = bytes(written.get_ref()).ok_or_else(|| self.no_size(written, SIZE_HINT))?;
        Ok(Sourced::new(size, self.0.source(written.span())))
    }

    /// A number of bytes, or `"auto"`.
    ///
    /// # Errors
    /// The value is something else.
    pub fn size_or_auto(&self, written: &Spanned<String>) -> Result<Sourced<ShmSize>, ConfigError> {
        let size = match (written.get_ref().as_str(), bytes(written.get_ref())) {
            ("auto", _) => ShmSize::Auto,
            (_, Some(size)) => ShmSize::Bytes(size),
            (_, None) => {
                return Err(self.no_size(written, &format!("{SIZE_HINT}, or \"auto\"")));
            }
        };
        Ok(Sourced::new(size, self.0.source(written.span())))
    }

    fn no_size(&self, written: &Spanned<String>, hint: &str) -> ConfigError {
        let message = format!("`{}` is not a size", written.get_ref());
        self.reject(written.span(), &message, Some(hint.to_owned()))
    }

    /// Any text without NUL.
    ///
    /// # Errors
    /// The value is something else.
    pub fn text(&self, written: &Spanned<String>) -> Result<Sourced<String>, ConfigError> {
        if written.get_ref().contains('\0') {
            return Err(self.reject(written.span(), "holds a NUL byte", None));
        }
        Ok(Sourced::new(
            written.get_ref().clone(),
            self.0.source(written.span()),
        ))
    }

    /// The name of a variable.
    ///
    /// # Errors
    /// The value is something else.
    pub fn name(&self, written: &Spanned<String>) -> Result<Sourced<String>, ConfigError> {
        let name = self.text(written)?;
        if name.value.is_empty() || name.value.contains('=') {
            let message = format!("`{}` cannot name a variable", name.value);
            return Err(self.reject(written.span(), &message, None));
        }
        Ok(name)
    }

    fn path(&self, written: &Spanned<String>) -> Result<Sourced<PathSpec>, ConfigError> {
        let spec = PathSpec::parse(written.get_ref()).map_err(|why| {
            self.reject(
                written.span(),
                &format!("path `{}` {why}", written.get_ref()),
                None,
            )
        })?;
        if let Some(name) = spec.variable().filter(|_| self.enforced()) {
            let message = format!("`${name}` may not stand in an enforced policy: users set it");
            let hint = "write the path itself, or `~/…`, the home of the user database".to_owned();
            return Err(self.reject(written.span(), &message, Some(hint)));
        }
        Ok(Sourced::new(spec, self.0.source(written.span())))
    }

    /// Appends paths.
    ///
    /// # Errors
    /// The value is something else.
    pub fn paths(&self, into: &mut Paths, written: &Option<Strings>) -> Result<(), ConfigError> {
        for entry in written.iter().flatten() {
            into.push(self.path(entry)?);
        }
        Ok(())
    }

    /// Appends paths below the home directory.
    ///
    /// # Errors
    /// The value is something else.
    pub fn home_paths(
        &self,
        into: &mut Paths,
        written: &Option<Strings>,
    ) -> Result<(), ConfigError> {
        for entry in written.iter().flatten() {
            let path = self.path(entry)?;
            if !path.value.is_in_home() {
                let message = format!(
                    "path `{}` does not lie below the home directory",
                    path.value
                );
                let hint = "write `~/NAME` here; other paths go into [files]".to_string();
                return Err(self.reject(entry.span(), &message, Some(hint)));
            }
            into.push(path);
        }
        Ok(())
    }

    /// A list that gives.
    ///
    /// # Errors
    /// A path that means nothing.
    pub fn grants(&self, written: &Option<Strings>) -> Result<Gives<PathSpec>, ConfigError> {
        self.gives(written, Self::paths)
    }

    /// As [`Reader::grants`], for paths below the home directory.
    ///
    /// # Errors
    /// The value is something else.
    pub fn home_grants(&self, written: &Option<Strings>) -> Result<Gives<PathSpec>, ConfigError> {
        self.gives(written, Self::home_paths)
    }

    /// As [`Reader::home_grants`], for directories that the jail has of its own: they need not exist, so
    /// that a pattern means something in a bound alone.
    ///
    /// # Errors
    /// The value is something else.
    pub fn kept_places(&self, written: &Option<Strings>) -> Result<Gives<PathSpec>, ConfigError> {
        if !self.enforced() {
            self.no_patterns(written)?;
        }
        self.home_grants(written)
    }

    fn gives<T>(
        &self,
        written: &Option<Strings>,
        read: impl Fn(&Self, &mut Vec<Sourced<T>>, &Option<Strings>) -> Result<(), ConfigError>,
    ) -> Result<Gives<T>, ConfigError> {
        let mut entries = Vec::new();
        read(self, &mut entries, written)?;
        let named = written.as_ref().map(|_| Source {
            layer: self.0.layer,
            file: Arc::clone(&self.0.file),
            line: None,
        });
        Ok(Gives::new(named, entries))
    }

    /// Appends paths below /dev.
    ///
    /// # Errors
    /// The value is something else.
    pub fn devices(&self, into: &mut Paths, written: &Option<Strings>) -> Result<(), ConfigError> {
        for entry in written.iter().flatten() {
            let path = self.path(entry)?;
            if !path.value.to_string().starts_with("/dev/") {
                let message = format!("`{}` is not a path below /dev", path.value);
                return Err(self.reject(entry.span(), &message, None));
            }
            into.push(path);
        }
        Ok(())
    }

    /// As [`Reader::grants`], for device nodes.
    ///
    /// # Errors
    /// The value is something else.
    pub fn device_grants(&self, written: &Option<Strings>) -> Result<Gives<PathSpec>, ConfigError> {
        self.gives(written, Self::devices)
    }

    /// As [`Reader::grants`], for paths that are no patterns.
    ///
    /// # Errors
    /// The value is something else.
    pub fn plain_grants(&self, written: &Option<Strings>) -> Result<Gives<PathSpec>, ConfigError> {
        self.no_patterns(written)?;
        self.grants(written)
    }

    /// As [`Reader::home_paths`], for paths that are no patterns.
    ///
    /// # Errors
    /// The value is something else.
    pub fn plain_home_paths(
        &self,
        into: &mut Paths,
        written: &Option<Strings>,
    ) -> Result<(), ConfigError> {
        self.no_patterns(written)?;
        self.home_paths(into, written)
    }

    fn no_patterns(&self, written: &Option<Strings>) -> Result<(), ConfigError> {
        for entry in written.iter().flatten() {
            if self.path(entry)?.value.is_pattern() {
                let message = format!(
                    "`{}` holds a `*`, which means nothing here",
                    entry.get_ref()
                );
                return Err(self.reject(entry.span(), &message, None));
            }
        }
        Ok(())
    }

    /// Appends patterns.
    ///
    /// # Errors
    /// The value is something else.
    pub fn patterns(
        &self,
        into: &mut Patterns,
        written: &Option<Strings>,
    ) -> Result<(), ConfigError> {
        for entry in written.iter().flatten() {
            let pattern = self.text(entry)?;
            if pattern.value.is_empty() {
                return Err(self.reject(entry.span(), "an empty pattern matches nothing", None));
            }
            into.push(pattern);
        }
        Ok(())
    }

    /// Kinds of events: one value, so that a later layer can name fewer than an earlier one.
    ///
    /// # Errors
    /// One is none.
    pub fn events(
        &self,
        written: &Option<Spanned<Strings>>,
    ) -> Result<Single<Events>, ConfigError> {
        let mut single = Single::default();
        let Some(written) = written else {
            return Ok(single);
        };
        let mut all = Events::none();
        for entry in written.get_ref() {
            let given = entry.get_ref();
            all = all.with(given).ok_or_else(|| {
                let known: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
                let hint = match nearest(given, known.iter().copied()) {
                    Some(word) => format!("did you mean \"{word}\"? valid: {}", known.join(", ")),
                    None => format!("valid: {}", known.join(", ")),
                };
                self.reject(
                    entry.span(),
                    &format!("`{given}` is no kind of event"),
                    Some(hint),
                )
            })?;
        }
        single.set(Sourced::new(all, self.0.source(written.span())));
        Ok(single)
    }

    /// As [`Reader::switch`], of what is narrower when it is on.
    pub fn recorded(&self, written: &Option<Spanned<bool>>) -> Single<Recorded> {
        let mut single = Single::default();
        if let Some(written) = written {
            let source = self.0.source(written.span());
            single.set(Sourced::new(Recorded(*written.get_ref()), source));
        }
        single
    }

    /// As [`Reader::patterns`], for arguments that are secrets.
    ///
    /// # Errors
    /// The value is something else, or too long to be told to the tracer.
    pub fn redactions(
        &self,
        into: &mut Patterns,
        written: &Option<Strings>,
    ) -> Result<(), ConfigError> {
        let all = written.iter().flatten();
        if let Some(long) = all
            .into_iter()
            .find(|one| one.get_ref().len() > LONGEST_REDACTION)
        {
            let message = format!("a pattern of more than {LONGEST_REDACTION} bytes");
            let hint = "name what the argument begins with, and put a `*` behind it".to_owned();
            return Err(self.reject(long.span(), &message, Some(hint)));
        }
        let stars = |text: &str| text.bytes().filter(|byte| *byte == b'*').count();
        if let Some(many) = written
            .iter()
            .flatten()
            .find(|one| stars(one.get_ref()) > MOST_STARS)
        {
            let message = format!("a pattern with more than {MOST_STARS} `*`");
            let hint = "name what the argument begins with, and put a `*` behind it".to_owned();
            return Err(self.reject(many.span(), &message, Some(hint)));
        }
        self.patterns(into, written)
    }

    /// Where the tracer listens. Whoever could choose that could choose who records.
    ///
    /// # Errors
    /// The layer is none of the site's; the value is no plain absolute path, or too long for a socket
    /// (`unix(7)`).
    pub fn tracers_socket(
        &self,
        written: &Option<Spanned<String>>,
    ) -> Result<Fixed<PathBuf>, ConfigError> {
        let mut fixed = Fixed::default();
        let Some(written) = written else {
            return Ok(fixed);
        };
        let site = [Layer::BuiltIn, Layer::SiteDefaults, Layer::SiteEnforced];
        if !site.contains(&self.0.layer) {
            let message = "where the tracer listens is the site's to say";
            let hint = "take the line out: it has a meaning in the site's files alone".to_owned();
            return Err(self.reject(written.span(), message, Some(hint)));
        }
        let text = self.text(written)?;
        let path = Path::new(&text.value);
        let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
        let named = path.parent().and_then(Path::parent).is_some();
        if !path.is_absolute() || !path.components().all(plain) || !named {
            let message = format!("`{}` is no plain absolute path", text.value);
            let hint = "write all of it, as in \"/run/agent-sandbox/tracer.sock\"".to_owned();
            return Err(self.reject(written.span(), &message, Some(hint)));
        }
        if text.value.len() > LONGEST_SOCKET {
            let message = format!("a socket's path has at most {LONGEST_SOCKET} bytes");
            return Err(self.reject(written.span(), &message, None));
        }
        fixed.set(text.map(PathBuf::from));
        Ok(fixed)
    }

    /// As [`Reader::grants`], for patterns of names.
    ///
    /// # Errors
    /// The value is something else.
    pub fn granted_names(&self, written: &Option<Strings>) -> Result<Gives<String>, ConfigError> {
        self.gives(written, Self::patterns)
    }

    /// Names of modules, in their order.
    ///
    /// # Errors
    /// The value is something else.
    pub fn modules(&self, written: &Option<Strings>) -> Result<Gives<String>, ConfigError> {
        self.gives(written, Self::module_names)
    }

    /// Appends names of modules.
    fn module_names(
        &self,
        into: &mut Patterns,
        written: &Option<Strings>,
    ) -> Result<(), ConfigError> {
        for entry in written.iter().flatten() {
            let name = self.text(entry)?;
            let plain = |c: char| c.is_ascii_alphanumeric() || "._+/-".contains(c);
            if name.value.is_empty()
                || name.value.starts_with('-')
                || !name.value.chars().all(plain)
            {
                let message = format!("`{}` is not a module name", name.value);
                let hint = "letters, digits and . _ + - /, not beginning with -: \"gcc/12.2.0\""
                    .to_string();
                return Err(self.reject(entry.span(), &message, Some(hint)));
            }
            into.push(name);
        }
        Ok(())
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
