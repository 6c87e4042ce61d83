//! The profiles that are compiled in.

/// A profile that is compiled in. `commands` repeats what the file says, so that choosing one
/// parses none; a test compares the two.
pub(super) struct BuiltIn {
    /// What `--profile` takes.
    pub(super) name: &'static str,
    /// What messages call its file.
    pub(super) file: &'static str,
    /// The file.
    pub(super) text: &'static str,
    /// The commands that choose it.
    pub(super) commands: &'static [&'static str],
}

macro_rules! built_in {
    ($($name:literal: $commands:expr,)*) => {
        /// All of them, by name.
        pub(super) const BUILT_IN: &[BuiltIn] = &[$(BuiltIn {
            name: $name,
            file: concat!("built-in agents/", $name, ".toml"),
            text: include_str!(concat!("../../../profiles/agents/", $name, ".toml")),
            commands: &$commands,
        },)*];
    };
}

built_in! {
    "aider": ["aider"],
    "claude": ["claude"],
    "cline": ["cline"],
    "codex": ["codex"],
    "continue": ["cn"],
    "copilot": ["copilot"],
    "gemini": ["gemini"],
    "generic": [],
    "goose": ["goose"],
    "opencode": ["opencode"],
    "openhands": ["openhands", "openhands-acp"],
    "pi": ["pi"],
    "qwen": ["qwen"],
    "tmux": ["tmux"],
}
