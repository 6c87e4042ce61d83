//! What is known of the probes.

/// What is known of the probes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// `trampolines` or `tracepoints`.
    pub object: String,
    /// The kernel's release.
    pub kernel: String,
    /// What cannot be seen or denied here, a sentence each.
    pub blind: Vec<String>,
    /// Whether denials hold, which was tried.
    pub enforces: bool,
    /// What the self-test proved, a line each.
    pub proved: Vec<String>,
    /// Whether an earlier tracer has loaded them: its traces go on.
    pub taken_over: bool,
    /// Programs that the kernel does not run, and what it said; known to whoever loaded them.
    pub refused: Vec<String>,
}
