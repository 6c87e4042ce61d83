//! Keys of a JSON file of the user's in a kept file: what an agent knows of its user, without what it
//! knows of other projects. The kept file was written by hostile commands; of it only the names of its
//! keys are read, and the rest goes back as it came.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};
use serde_json::Value;
use serde_json::value::RawValue;

use super::links;
use crate::launch::store::last;
use crate::launch::ways::{self, Missing, Regular};
use crate::session;

/// The largest file that is read, in bytes. Agents keep histories in such files.
const LARGEST: u64 = 4 << 20;

/// How much longer a value may be because of how it is written, in bytes.
const ROOM_FOR_SPACES: usize = 1024;

/// An object, its values as they are written.
pub(super) type Object = BTreeMap<String, Box<RawValue>>;

/// When a file was changed, in seconds and nanoseconds.
pub(super) type Changed = (i64, i64);

/// What became of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seeded {
    /// The kept file says it already, or there is nothing to say.
    Already,
    /// The kept file was written.
    Written,
    /// The kept file holds no JSON object, or too much, and was left alone.
    NoObject,
}

/// Puts the user's values of `keys` into a kept file. One that is missing is made.
///
/// # Errors
/// What reading or writing the kept file answers.
pub(super) fn write_seed(
    from: &Path,
    keys: &[String],
    kept: &OwnedFd,
    below: &Path,
) -> io::Result<Seeded> {
    let Users::Says(mut wanted, changed) = users(from) else {
        return Ok(Seeded::Already);
    };
    wanted.retain(|key, _| keys.contains(key));
    if wanted.is_empty() {
        return Ok(Seeded::Already);
    }
    let directory = links::way(kept, below)?;
    // What the agent noted after the user's file was changed is newer: a token that it renewed.
    let mut newer = false;
    let mut object = match readable(&directory, last(below)) {
        Ok(Some(file)) => {
            newer = file.modified() > changed;
            match file.content(LARGEST)?.as_deref().map(parse) {
                Some(Some(object)) => object,
                _ => return Ok(Seeded::NoObject),
            }
        }
        // A link, a FIFO: the file takes its place.
        Ok(None) | Err(Errno::ENOENT) => Object::new(),
        Err(errno) => return Err(errno.into()),
    };
    wanted.retain(|key, value| {
        let has = object.get(key);
        has.is_none_or(|has| !newer && !same(has, value))
    });
    if wanted.is_empty() {
        return Ok(Seeded::Already);
    }
    object.extend(wanted);
    let mut text = serde_json::to_vec(&object)?;
    text.push(b'\n');
    replace(&directory, below, &text)?;
    Ok(Seeded::Written)
}

/// Opens the kept file. A directory, and what is closed, is moved aside.
fn readable(directory: &OwnedFd, name: &OsStr) -> nix::Result<Option<Regular>> {
    let found = ways::regular(directory, name, OFlag::O_RDONLY);
    if matches!(found, Err(Errno::EACCES)) || ways::enter(directory, name).is_ok() {
        links::set_aside(directory, name)?;
        return Ok(None);
    }
    found
}

/// Takes keys out of a kept file.
///
/// # Errors
/// What reading or writing the kept file answers.
pub(super) fn remove(keys: &[String], kept: &OwnedFd, below: &Path) -> io::Result<()> {
    let directory = match ways::around(kept, below, Missing::Stays) {
        Err(Errno::ENOENT) => return Ok(()),
        directory => directory?,
    };
    let file = match ways::regular(&directory, last(below), OFlag::O_RDONLY) {
        Err(Errno::ENOENT) | Ok(None) => return Ok(()),
        file => file?,
    };
    let content = match file {
        Some(file) => file.content(LARGEST)?,
        None => None,
    };
    let Some(mut object) = content.as_deref().and_then(parse) else {
        return Ok(());
    };
    let before = object.len();
    object.retain(|key, _| !keys.contains(key));
    if object.len() == before {
        return Ok(());
    }
    let mut text = serde_json::to_vec(&object)?;
    text.push(b'\n');
    replace(&directory, below, &text)
}

/// What the user's file says.
pub(super) enum Users {
    /// There is none.
    Gone,
    /// It cannot be read, or holds no object.
    Unknown,
    /// This, and when it was changed.
    Says(Object, Changed),
}

/// Reads the user's file.
pub(super) fn users(from: &Path) -> Users {
    let Some(above) = from.parent() else {
        return Users::Unknown;
    };
    let above = match ways::directory(above, Missing::Stays, |_| false) {
        Ok(above) => above,
        Err(blocked) if blocked.errno == Some(Errno::ENOENT) => return Users::Gone,
        Err(_) => return Users::Unknown,
    };
    let file = match ways::regular(above, last(from), OFlag::O_RDONLY) {
        Ok(Some(file)) => file,
        Err(Errno::ENOENT) => return Users::Gone,
        Ok(None) | Err(_) => return Users::Unknown,
    };
    let changed = file.modified();
    match file.content(LARGEST).ok().flatten().as_deref().map(parse) {
        Some(Some(object)) => Users::Says(object, changed),
        _ => Users::Unknown,
    }
}

fn parse(text: &[u8]) -> Option<Object> {
    serde_json::from_slice(text).ok()
}

/// Whether two values are the same, however they are written.
fn same(one: &RawValue, other: &RawValue) -> bool {
    // The agent's may be made to take a thousand times its room once it is taken apart.
    if one.get().len() > 4 * other.get().len() + ROOM_FOR_SPACES {
        return false;
    }
    let value = |raw: &RawValue| serde_json::from_str::<Value>(raw.get()).ok();
    one.get() == other.get() || value(one).is_some_and(|one| Some(one) == value(other))
}

/// Writes a kept file anew, at once and as a whole.
fn replace(directory: &OwnedFd, below: &Path, text: &[u8]) -> io::Result<()> {
    let id = session::new_id().map_err(io::Error::other)?;
    let temporary = format!(".agent-sandbox-{id}");
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let mut file = std::fs::File::from(openat(directory, temporary.as_str(), flags, mode)?);
    let done = file.write_all(text).and_then(|()| {
        renameat(directory, temporary.as_str(), directory, last(below)).map_err(io::Error::from)
    });
    if done.is_err() {
        let _ = unlinkat(directory, temporary.as_str(), UnlinkatFlags::NoRemoveDir);
    }
    done
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::path::PathBuf;
    use std::time::{Duration, SystemTime};

    struct Fixture {
        _top: tempfile::TempDir,
        at: PathBuf,
        kept: OwnedFd,
    }

    fn fixture(users: &str) -> Fixture {
        let top = tempfile::tempdir().unwrap();
        let at = top.path().canonicalize().unwrap();
        std::fs::create_dir(at.join("store")).unwrap();
        std::fs::write(at.join("users.json"), users).unwrap();
        let kept = ways::directory(&at.join("store"), Missing::Stays, |_| false).unwrap();
        Fixture {
            _top: top,
            at,
            kept,
        }
    }

    impl Fixture {
        fn write_seed(&self, keys: &[&str]) -> Seeded {
            let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
            write_seed(
                &self.at.join("users.json"),
                &keys,
                &self.kept,
                Path::new("in/state.json"),
            )
            .unwrap()
        }

        fn file(&self) -> PathBuf {
            self.at.join("store/in/state.json")
        }

        fn text(&self) -> String {
            std::fs::read_to_string(self.file()).unwrap()
        }
    }

    #[test]
    fn keys_are_carried_over_and_the_rest_stays_as_it_was() {
        let fixture = fixture(
            r#"{"account": {"id": "me", "n": 1}, "theme": "dark", "projects": {"/secret": 1}}"#,
        );
        assert_eq!(
            fixture.write_seed(&["account", "theme", "absent"]),
            Seeded::Written
        );
        assert_eq!(
            fixture.text(),
            "{\"account\":{\"id\": \"me\", \"n\": 1},\"theme\":\"dark\"}\n"
        );
        let inode = std::fs::metadata(fixture.file()).unwrap().ino();
        assert_eq!(fixture.write_seed(&["account", "theme"]), Seeded::Already);
        assert_eq!(std::fs::metadata(fixture.file()).unwrap().ino(), inode);

        // As an agent would write it, with numbers that no float holds.
        let own = "{\n  \"account\": {\n \"n\": 1, \"id\": \"me\" },\n  \"big\": 123456789012345678901234567890,\n  \"theme\": \"light\"\n}";
        std::fs::write(fixture.file(), own).unwrap();
        assert_eq!(fixture.write_seed(&["account"]), Seeded::Already);
        // What the agent wrote last stays until the user's file is changed again.
        assert_eq!(fixture.write_seed(&["account", "theme"]), Seeded::Already);
        assert_eq!(fixture.text(), own);
        let users = std::fs::File::options()
            .append(true)
            .open(fixture.at.join("users.json"))
            .unwrap();
        users
            .set_modified(SystemTime::now() + Duration::from_secs(9))
            .unwrap();
        assert_eq!(fixture.write_seed(&["account"]), Seeded::Already);
        assert_eq!(fixture.text(), own);
        assert_eq!(fixture.write_seed(&["account", "theme"]), Seeded::Written);
        assert!(fixture.text().contains("123456789012345678901234567890"));
        assert!(fixture.text().contains("\"theme\":\"dark\""));
    }

    #[test]
    fn what_is_no_object_is_left_alone() {
        let fixture = fixture(r#"{"theme": "dark"}"#);
        std::fs::create_dir(fixture.at.join("store/in")).unwrap();
        let deep = format!("{{\"a\":{}", "[".repeat(1 << 20));
        for own in [
            "[1]",
            "{",
            "",
            "{\"a\":1} {}",
            "{\"a\":\"\u{1}\"}",
            deep.as_str(),
        ] {
            std::fs::write(fixture.file(), own).unwrap();
            assert_eq!(fixture.write_seed(&["theme"]), Seeded::NoObject);
            assert_eq!(fixture.text(), own);
        }
        std::fs::File::create(fixture.file())
            .unwrap()
            .set_len(LARGEST + 1)
            .unwrap();
        assert_eq!(fixture.write_seed(&["theme"]), Seeded::NoObject);
    }

    #[test]
    fn a_directory_and_a_closed_file_are_moved_aside() {
        let fixture = fixture(r#"{"theme": "dark"}"#);
        std::fs::create_dir_all(fixture.file().join("in")).unwrap();
        assert_eq!(fixture.write_seed(&["theme"]), Seeded::Written);
        std::fs::set_permissions(fixture.file(), std::fs::Permissions::from_mode(0o000)).unwrap();
        // Root reads what is closed.
        fixture.write_seed(&["theme"]);
        assert_eq!(fixture.text(), "{\"theme\":\"dark\"}\n");
    }

    #[test]
    fn a_long_value_of_the_agents_is_not_taken_apart() {
        let fixture = fixture(r#"{"theme": "dark"}"#);
        std::fs::create_dir(fixture.at.join("store/in")).unwrap();
        let many = format!("{{\"theme\":[{}0]}}", "{\"\":0},".repeat(10_000));
        std::fs::write(fixture.file(), many).unwrap();
        let users = std::fs::File::options()
            .append(true)
            .open(fixture.at.join("users.json"))
            .unwrap();
        users
            .set_modified(SystemTime::now() + Duration::from_secs(9))
            .unwrap();
        assert_eq!(fixture.write_seed(&["theme"]), Seeded::Written);
        assert_eq!(fixture.text(), "{\"theme\":\"dark\"}\n");
    }

    #[test]
    fn a_user_without_an_object_seeds_nothing() {
        for users in ["", "[]", "no"] {
            let fixture = fixture(users);
            assert_eq!(fixture.write_seed(&["theme"]), Seeded::Already);
            assert!(!fixture.file().exists());
        }
    }

    #[test]
    fn planted_links_are_replaced_and_never_followed() {
        let fixture = fixture(r#"{"theme": "dark"}"#);
        std::fs::create_dir(fixture.at.join("store/in")).unwrap();
        let precious = fixture.at.join("precious.json");
        std::fs::write(&precious, "{\"key\": 1}").unwrap();
        for target in [precious.clone(), fixture.at.join("missing")] {
            let _ = std::fs::remove_file(fixture.file());
            symlink(&target, fixture.file()).unwrap();
            assert_eq!(fixture.write_seed(&["theme"]), Seeded::Written);
            assert!(fixture.file().symlink_metadata().unwrap().is_file());
            assert_eq!(fixture.text(), "{\"theme\":\"dark\"}\n");
        }
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "{\"key\": 1}");
        assert!(!fixture.at.join("missing").exists());

        std::fs::remove_file(fixture.file()).unwrap();
        nix::unistd::mkfifo(&fixture.file(), Mode::S_IRWXU).unwrap();
        assert_eq!(fixture.write_seed(&["theme"]), Seeded::Written);

        std::fs::remove_dir_all(fixture.at.join("store/in")).unwrap();
        symlink(&fixture.at, fixture.at.join("store/in")).unwrap();
        // So is a link on the way.
        assert_eq!(fixture.write_seed(&["theme"]), Seeded::Written);
        assert!(!fixture.at.join("state.json").exists());
    }
}
