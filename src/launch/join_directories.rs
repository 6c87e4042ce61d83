//! The places where tasks of jobs meet, as far as a launch has to do with them: where the jail would
//! show the directory around such a place, it is made before the jail is, and covered in it. A jail
//! in which it is missing could make it, and wait for tasks there.

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// Makes the directories that a plan covers, where they are missing, so that no jail can.
///
/// # Errors
/// One cannot be made.
pub fn make_places(places: &[PathBuf]) -> Result<()> {
    for place in places {
        match std::fs::DirBuilder::new().mode(0o700).create(place) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot make `{}`", place.display()));
            }
        }
    }
    Ok(())
}
