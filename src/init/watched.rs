//! A command that is watched: the filter that hands its calls over, and what it leaves in its home.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::control::Control;
use crate::handoff::{Report, Watch};
use crate::sys::privileges;

/// The most entries that are told of: a hostile command may have made any number.
const MOST: usize = 4096;
/// The deepest directory that is looked into; what a program keeps lies higher.
const DEEPEST: usize = 8;
/// The longest path that is told of, in bytes: a datagram has to hold it (`LONGEST_DATAGRAM`).
const LONGEST: usize = 4096;

/// Installs the filter, if there is one, and passes its listener to the launcher. From here on calls of
/// this process wait for the launcher. Where the kernel, or a container around the jail, has no such
/// filter, the run goes on without: it takes nothing from the command, and the launcher knows.
pub(super) fn begin(control: &Control, watch: &Watch) {
    let program = watch.program.as_deref();
    if let Some(Ok(listener)) = program.map(privileges::filter_with_listener) {
        // By a call that the filter lets through.
        control.send_with(&Report::Watched, Some(listener.as_fd()));
    }
}

/// Tells the launcher what stands in the private home. Processes of the jail may still run and change
/// it. This process sees no more than they do, so whatever they make of a path tells nobody anything.
pub(super) fn tell_what_is_left(control: &Control, watch: &Watch) {
    let home = Path::new(OsStr::from_bytes(&watch.home));
    let Ok(device) = std::fs::symlink_metadata(home).map(|found| found.dev()) else {
        return;
    };
    // Breadth first: of what is too much the deepest is left out.
    let mut waiting = VecDeque::from([home.to_path_buf()]);
    let mut told = 0;
    while let Some(directory) = waiting.pop_front() {
        let Ok(entries) = std::fs::read_dir(&directory) else {
            continue;
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            let Ok(found) = std::fs::symlink_metadata(&path) else {
                continue;
            };
            // What is mounted here is the host's, and so is what links lead to.
            if found.dev() != device || found.is_symlink() {
                continue;
            }
            let below = path.strip_prefix(home).unwrap_or(&path);
            if told == MOST || below.as_os_str().len() > LONGEST {
                control.send(&Report::LeftMore);
                return;
            }
            told += 1;
            control.send(&Report::Left {
                path: below.as_os_str().as_bytes().to_vec(),
                directory: found.is_dir(),
            });
            if found.is_dir() && below.components().count() < DEEPEST {
                waiting.push_back(path);
            }
        }
    }
    control.send(&Report::LeftAll);
}
