//! The policy and the profiles that are compiled in. `build.rs` makes the tables of the files below
//! `profiles`.

/// A file that is compiled in.
pub(super) struct BuiltIn {
    /// Of a profile, what `--profile` takes.
    pub(super) name: &'static str,
    /// What messages call the file.
    pub(super) file: &'static str,
    /// The file.
    pub(super) text: &'static str,
    /// What stands where in it ([`super::index`]).
    pub(super) index: &'static [u8],
    /// Of a profile, the commands that choose it.
    pub(super) commands: &'static [&'static str],
}

/// A named set of hosts: its name, and its rules.
pub(crate) type HostSet = (&'static str, &'static [&'static str]);

include!(concat!(env!("OUT_DIR"), "/built_in.rs"));

/// What is compiled in with just this text: a job gets the text of its profile from the node on which the
/// session was started.
pub(super) fn with_text(text: &str) -> Option<&'static BuiltIn> {
    let mut all = std::iter::once(&DEFAULT).chain(PROFILES);
    all.find(|one| one.text == text)
}
