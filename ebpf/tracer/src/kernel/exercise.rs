//! The other half of the self-test: a process that does what the test wants to see, and tries what is to be
//! denied. It says after each part, in a line of JSON, how each thing went.

#![allow(clippy::disallowed_methods, reason = "effects: this is what it is for")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, Write as _};
use std::net::UdpSocket;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_no_new_privs;

/// Nothing is forbidden here: everything has to work.
pub(crate) const FREE: &str = "free";
/// All of this is forbidden in the second part.
pub(crate) const SHUT: &str = "shut";
/// The file that is opened in each of them, of which an event must tell.
pub(crate) const FILE: &str = "file";
/// The argument of the program that is started.
pub(crate) const NOTHING: &str = "nothing";

/// How it went, by what was done: 0 or the error's number.
pub(crate) type Results = BTreeMap<String, i32>;

/// What is done below a directory, and how it is called in what the test proves.
type Attempt = (&'static str, fn(&Path) -> io::Result<()>);

/// All of it. The first ones have to be denied where the tracer says that it denies at all.
const ATTEMPTS: &[Attempt] = &[
    ("open", |place| File::open(place.join(FILE)).map(drop)),
    ("create", |place| File::create(place.join("new")).map(drop)),
    ("link", |place| {
        fs::hard_link(place.join(FILE), format!("link-{}", place.display()))
    }),
    ("rename", |place| {
        fs::rename(place.join("old"), format!("moved-{}", place.display()))
    }),
    ("connect", |place| {
        UnixStream::connect(place.join("socket")).map(drop)
    }),
    ("internet", |_| internet()),
    ("truncate", |place| {
        nix::unistd::truncate(&place.join(FILE), 0).map_err(io::Error::from)
    }),
    ("mkdir", |place| fs::create_dir(place.join("directory"))),
    ("symlink", |place| {
        std::os::unix::fs::symlink("x", place.join("symlink"))
    }),
    ("rmdir", |place| fs::remove_dir(place.join("empty"))),
    ("unlink", |place| fs::remove_file(place.join("gone"))),
];

/// The names of all attempts below a directory.
pub(crate) fn attempts() -> impl Iterator<Item = &'static str> {
    ATTEMPTS.iter().map(|(name, _)| *name)
}

/// What the child does: waits for a line on its standard input before each part, and ends with it.
///
/// # Errors
/// The directory is not as it should be, or nobody listens any more.
pub fn child(directory: &Path) -> io::Result<()> {
    // Denials hold only for tasks that cannot gain privileges.
    set_no_new_privs()?;
    std::env::set_current_dir(directory)?;
    let listeners = [FREE, SHUT].map(|place| furnish(Path::new(place)));
    let mut lines = io::stdin().lock().lines();
    say(&Results::new())?;
    for place in [FREE, SHUT] {
        if lines.next().transpose()?.is_none() {
            break;
        }
        let mut results: Results = ATTEMPTS
            .iter()
            .map(|(name, attempt)| ((*name).to_owned(), number(attempt(Path::new(place)))))
            .collect();
        if place == FREE {
            let started = Command::new("/proc/self/exe")
                .arg(NOTHING)
                .status()
                .map(drop);
            results.insert("exec".to_owned(), number(started));
        } else {
            // Last, as it changes what this process may do.
            let left = unshare(CloneFlags::CLONE_NEWUSER).map_err(io::Error::from);
            results.insert("user namespace".to_owned(), number(left));
        }
        say(&results)?;
    }
    drop(listeners);
    Ok(())
}

/// Puts into a directory what the attempts need.
fn furnish(place: &Path) -> io::Result<UnixListener> {
    fs::create_dir(place)?;
    fs::create_dir(place.join("empty"))?;
    for file in [FILE, "old", "gone"] {
        fs::write(place.join(file), b"x")?;
    }
    UnixListener::bind(place.join("socket"))
}

/// A connection on which no packet is ever sent: port 9 discards.
fn internet() -> io::Result<()> {
    UdpSocket::bind("127.0.0.1:0")?.connect("127.0.0.1:9")
}

fn number(result: io::Result<()>) -> i32 {
    match result {
        Ok(()) => 0,
        Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
    }
}

fn say(results: &Results) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, results)?;
    out.write_all(b"\n")?;
    out.flush()
}
