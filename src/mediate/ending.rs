//! The end of a jail: whatever is left of it is killed.
