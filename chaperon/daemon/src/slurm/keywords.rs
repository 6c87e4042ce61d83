//! What the keywords of scontrol have in common: how one is named, and what stands around it.

use std::ffi::OsString;

use super::parse::Parsed;

/// Whether a word means a name, by its beginning; Slurm ignores case.
pub(super) fn means(word: &str, name: &str, least: usize) -> bool {
    word.len() >= least
        && name
            .get(..word.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(word))
}

/// A request, as far as all keywords have it in common.
pub(super) struct KeywordRequest {
    /// The command line.
    pub parsed: Parsed,
    /// The options, written anew.
    pub options: Vec<OsString>,
    /// The words behind the keyword.
    pub words: Vec<String>,
}
