//! A summary, copied: to the terminal's clipboard, and into a file, since nobody says whether the terminal
//! took it.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: writes a file of the user's, and to the terminal"
)]

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ratatui::crossterm::clipboard::CopyToClipboard;
use ratatui::crossterm::execute;

/// Below the state directory.
const DIRECTORY: &str = "summaries";
/// The clipboard gets no more bytes: several terminals leave longer texts aside (OSC 52, 100,000 bytes of
/// base64 with xterm).
const LONGEST: usize = 64 * 1024;
/// So many names are tried: two copies may fall into one second.
const TRIES: u32 = 100;

/// Copies a text; what to say about it. `second` counts from 1970.
#[must_use]
pub fn copy(text: &str, state: Option<&Path>, second: u64) -> String {
    let begin = beginning(text, LONGEST);
    let asked = execute!(io::stdout(), CopyToClipboard::to_clipboard_from(begin));
    let kept = state.map(|state| keep(text, &state.join(DIRECTORY), second));
    let clipboard = match (asked, begin.len() == text.len()) {
        (Ok(()), true) => "the terminal was asked to take it into its clipboard",
        (Ok(()), false) => "the terminal was asked to take its beginning into its clipboard",
        (Err(_), _) => "the terminal takes nothing",
    };
    // The path first: on a narrow terminal the rest is cut off.
    match kept {
        Some(Ok(path)) => format!("{}: {clipboard}", path.display()),
        Some(Err(error)) => format!("{clipboard}; it cannot be kept in a file: {error}"),
        None => clipboard.to_owned(),
    }
}

/// Whole lines, at most so many bytes.
fn beginning(text: &str, longest: usize) -> &str {
    if text.len() <= longest {
        return text;
    }
    let bytes = &text.as_bytes()[..longest];
    let end = bytes.iter().rposition(|byte| *byte == b'\n');
    end.map_or("", |end| &text[..=end])
}

/// Writes it into a new file of the user's alone.
fn keep(text: &str, directory: &Path, second: u64) -> io::Result<PathBuf> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    for number in 0..TRIES {
        let path = match number {
            0 => directory.join(format!("{second}.md")),
            _ => directory.join(format!("{second}-{number}.md")),
        };
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        match file {
            Ok(mut file) => return file.write_all(text.as_bytes()).map(|()| path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_long_text_ends_with_a_line() {
        assert_eq!(beginning("ab\ncd\nef\n", 7), "ab\ncd\n");
        assert_eq!(beginning("äöü\n", 3), "");
        assert_eq!(beginning("ab\n", 3), "ab\n");
    }

    #[test]
    fn a_summary_is_kept_once_more_and_is_the_users_alone() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("state/summaries");
        let first = keep("one", &directory, 17).unwrap();
        let second = keep("two", &directory, 17).unwrap();
        assert_ne!(first, second);
        assert_eq!(std::fs::read_to_string(&first).unwrap(), "one");
        let mode = std::fs::metadata(&second).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
