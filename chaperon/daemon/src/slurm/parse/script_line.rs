//! Lines of a batch script and the words on them, as sbatch finds them (`src/sbatch/opt.c`,
//! `get_argument()`).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use super::Origin;
use super::words::{mistake, quoted};
use crate::refusal::Refusal;
use crate::slurm::options::Release;

/// Since this release a backslash holds a word together over a blank (U+0020).
const ESCAPES_BLANKS: Release = Release::new(24, 5);

/// The lines of a script, each up to a NUL: Slurm copies them as C strings.
pub(super) fn lines(script: &[u8]) -> impl Iterator<Item = &[u8]> {
    script
        .split(|&byte| byte == b'\n')
        .map(|line| line.split(|&byte| byte == 0).next().unwrap_or_default())
}

/// `isspace(3)` in the C locale.
pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

/// The text without the blanks at its beginning.
pub(super) fn skip_spaces(text: &[u8]) -> &[u8] {
    let spaces = text.iter().take_while(|&&byte| is_space(byte)).count();
    &text[spaces..]
}

/// Whether the text begins with the word that begins a component of a heterogeneous job.
pub(super) fn begins_component(text: &[u8]) -> bool {
    [&b"packjob"[..], b"hetjob"].into_iter().any(|mark| {
        text.get(..mark.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(mark))
            && text.get(mark.len()).is_none_or(|&byte| is_space(byte))
    })
}

/// A word, and what is behind it on its line.
type Found<'a> = (Vec<u8>, &'a [u8]);

/// The next word of a line, and what is behind it; none at the end, before a comment, and where
/// Slurm stops too: at an empty word (`""`) and at `hetjob`. `release` is Slurm's; none: the newest.
pub(super) fn word(
    line: &[u8],
    origin: Origin,
    release: Option<Release>,
) -> Result<Option<Found<'_>>, Refusal> {
    let text = skip_spaces(line);
    if begins_component(text) {
        return Ok(None);
    }
    if text.first() == Some(&b':') {
        return Err(mistake(origin, "unexpected `:`"));
    }
    let mut word = Vec::new();
    let mut quote = None;
    let mut escaped = false;
    let mut at = 0;
    let escapes_blanks = release.is_none_or(|release| release >= ESCAPES_BLANKS);
    while let Some(&byte) = text.get(at) {
        let joins = escaped && escapes_blanks && byte == b' ';
        if quote.is_none() && is_space(byte) && !joins {
            break;
        }
        if escaped {
            escaped = false;
            word.push(byte);
        } else if byte == b'\\' {
            escaped = true;
        } else if quote.is_some() {
            if quote == Some(byte) {
                quote = None;
            } else {
                word.push(byte);
            }
        } else if byte == b'"' || byte == b'\'' {
            quote = Some(byte);
        } else if byte == b'#' {
            break;
        } else {
            word.push(byte);
        }
        at += 1;
    }
    if let Some(quote) = quote {
        return Err(mistake(
            origin,
            format!(
                "unmatched `{}` in {}",
                quote as char,
                quoted(OsStr::from_bytes(line))
            ),
        ));
    }
    Ok((!word.is_empty()).then(|| (word, &text[at..])))
}
