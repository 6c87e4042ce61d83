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

/// Variables as `NAME=VALUE` entries.
pub fn entries(variables: &[(OsString, OsString)]) -> Vec<Vec<u8>> {
    variables
        .iter()
        .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
        .collect()
}

/// Sets a variable: a name that is there gets the new value.
pub fn set(variables: &mut Variables, name: &OsStr, value: OsString) {
    match variables.iter_mut().find(|(known, _)| known == name) {
        Some((_, old)) => *old = value,
        None => variables.push((name.to_owned(), value)),
    }
}
