//! Values that the site's files alone may say.

use std::path::{Component, Path, PathBuf};

use super::Reader;
use crate::config::diagnostic::ConfigError;
use crate::config::schema::Text;
use crate::config::source::Layer;
use crate::policy::clamp::Fixed;

/// No path of a socket is longer, in bytes (`unix(7)`, `sun_path` without its NUL).
const LONGEST_SOCKET: usize = 107;
/// What a site tells all agents is no longer, in bytes: a profile may hand it on in one variable, with what else it holds.
const LONGEST_PREAMBLE: usize = 16 << 10;

impl Reader<'_> {
    /// Where the tracer listens. Whoever could choose that could choose who records: the layer is one of the
    /// site's, the value a plain absolute path that is not too long for a socket (`unix(7)`).
    pub(in crate::policy) fn tracers_socket(
        &self,
        written: &Option<Text>,
    ) -> Result<Fixed<PathBuf>, ConfigError> {
        let Some(written) = written else {
            return Ok(Fixed::default());
        };
        self.of_the_site(written, "where the tracer listens")?;
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
        Ok(Fixed::new(Some(text.map(PathBuf::from))))
    }

    /// Refuses what a layer of the user's says and the site alone may.
    fn of_the_site(&self, written: &Text, what: &str) -> Result<(), ConfigError> {
        let site = [Layer::BuiltIn, Layer::SiteDefaults, Layer::SiteEnforced];
        if site.contains(&self.0.layer) {
            return Ok(());
        }
        let message = format!("{what} is the site's to say");
        let hint = "take the line out: it has a meaning in the site's files alone".to_owned();
        Err(self.reject(written.span(), &message, Some(hint)))
    }

    /// Text for agents, of several lines.
    pub(in crate::policy) fn preamble(
        &self,
        written: &Option<Text>,
    ) -> Result<Fixed<String>, ConfigError> {
        let Some(written) = written else {
            return Ok(Fixed::default());
        };
        self.of_the_site(written, "what all agents are told")?;
        let text = self.text(written)?;
        let odd = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
        if text.value.len() > LONGEST_PREAMBLE || text.value.contains(odd) {
            let message = format!(
                "a preamble has at most {LONGEST_PREAMBLE} bytes, and no control characters but ends of lines and tabs"
            );
            let hint = "let it name a file or a page for the rest".to_owned();
            return Err(self.reject(written.span(), &message, Some(hint)));
        }
        Ok(Fixed::new(Some(text)))
    }
}
