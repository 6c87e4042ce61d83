//! Which rule of a list of device nodes names one.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::config::source::Sourced;
use crate::policy::PathSpec;
use crate::policy::paths::glob;

/// The rule of a list that names one of these paths.
pub fn rule<'a>(list: &'a [Sourced<PathSpec>], paths: &[&Path]) -> Option<&'a Sourced<PathSpec>> {
    list.iter().find(|rule| {
        let pattern = rule.value.to_string();
        let names = |path: &&Path| glob(pattern.as_bytes(), path.as_os_str().as_bytes());
        paths.iter().any(names)
    })
}
