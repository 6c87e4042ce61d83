//! How the shim was called.

#![allow(
    clippy::disallowed_methods,
    reason = "effects: reads environment, directory and umask"
)]

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use agent_sandbox_wire::message::Call;
use agent_sandbox_wire::{SOCKET, SOCKET_VARIABLE};
use nix::sys::stat::{Mode, umask};

/// Where the chaperon listens.
pub(crate) fn socket() -> PathBuf {
    env::var_os(SOCKET_VARIABLE).map_or_else(|| PathBuf::from(SOCKET), PathBuf::from)
}

/// Everything that the chaperon has to know.
pub(crate) fn gather(name: &str, arguments: impl Iterator<Item = OsString>) -> Call {
    Call {
        command: name.into(),
        arguments: arguments.map(OsString::into_vec).collect(),
        // A directory that was removed has no name, and a query works in it all the same.
        cwd: env::current_dir()
            .map(|path| path.into_os_string().into_vec())
            .unwrap_or_default(),
        environment: env::vars_os().map(entry).collect(),
        umask: current_umask(),
    }
}

fn entry((name, value): (OsString, OsString)) -> Vec<u8> {
    let mut entry = name.into_vec();
    entry.push(b'=');
    entry.extend(value.into_vec());
    entry
}

/// The mask can only be read by setting it; with one thread nobody sees the moment between.
fn current_umask() -> u32 {
    let mask = umask(Mode::empty());
    umask(mask);
    mask.bits()
}
