//! Variables of an environment.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Variables, as name and value.
pub type Variables = Vec<(OsString, OsString)>;

/// Splits a `NAME=VALUE` entry; `None` without a name.
pub fn variable(entry: &[u8]) -> Option<(OsString, OsString)> {
    let at = entry.iter().position(|&byte| byte == b'=')?;
    let text = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    (at > 0).then(|| (text(&entry[..at]), text(&entry[at + 1..])))
}
