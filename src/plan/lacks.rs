//! What a jail of Landlock's lacks of one of bubblewrap's: the one table behind what a launch says,
//! what it refuses, and `docs/reference/backends.md`.
