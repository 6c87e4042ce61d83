//! What a secret looks like, as one table: the names that people give to secrets ([`names`]) and the keys that services
//! give out ([`keys`]).
//!
//! It is data, and comparisons with it: whoever needs no more than a name or a beginning needs no regular expressions.

#![forbid(unsafe_code)]

pub mod keys;
pub mod names;
