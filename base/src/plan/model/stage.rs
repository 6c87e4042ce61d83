//! The names in the directory of a session that has Landlock as its jail, of what stands there for
//! directories that mounts would show.

/// Stands for the home directory.
pub const HOME: &str = "home";
/// Stands for `/tmp` and `/var/tmp`.
pub const TMP: &str = "tmp";
/// Stands for the directory of `XDG_RUNTIME_DIR`.
pub const RUN: &str = "run";
/// What is ours; read-only.
pub const OWN: &str = "own";
