//! What comes back of a kept login: a token that an agent renewed. A login of which the user has none
//! stays in the project: whose account it is decides what some agents obey. The kept file is an agent's
//! word, and what reads the user's file outside does much of what it says: it may name another service,
//! files to read, commands. So nothing of it is copied but values that the profile names one by one, if
//! each is a plain one.

use std::collections::BTreeMap;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::launch::store::last;
use crate::launch::ways::{self, Missing};

/// The largest file that is read, in bytes. Those of known agents have less than 20 kB.
const LARGEST: u64 = 1 << 20;
/// The longest text that comes back, in bytes: a signed token has some thousand.
const LONGEST: usize = 32 << 10;
/// The most entries of a list.
const MOST_ENTRIES: usize = 64;

/// An object, its values as they are written.
type Object = BTreeMap<String, Box<RawValue>>;
/// An object in it that values come from or go to.
type Inner = serde_json::Map<String, Value>;

/// What came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Returned {
    /// Nothing.
    Nothing,
    /// Values of the user's file are those of the kept one.
    Renewed,
}

/// Takes the values at `back` (`key`, or `key.key` for one in an object) from the kept file, where it is
/// newer than the user's. A value goes where there is one already.
///
/// # Errors
/// What reading or writing a file answers.
pub(super) fn take(
    host: &Path,
    back: &[String],
    (kept, below): (&OwnedFd, &Path),
) -> io::Result<Returned> {
    let uid = nix::unistd::getuid().as_raw();
    let Ok(directory) = ways::around(kept, below, Missing::Stays) else {
        return Ok(Returned::Nothing);
    };
    let Ok(Some(file)) = ways::regular(&directory, last(below), OFlag::O_RDONLY) else {
        return Ok(Returned::Nothing);
    };
    if file.is.st_uid != uid || file.is.st_nlink != 1 {
        return Ok(Returned::Nothing);
    }
    let Some(says) = file.content(LARGEST)?.as_deref().and_then(object) else {
        return Ok(Returned::Nothing);
    };
    let Some(above) = host.parent() else {
        return Ok(Returned::Nothing);
    };
    let above = ways::directory(above, Missing::Stays, |_| false).map_err(io::Error::other)?;
    match ways::regular(&above, last(host), OFlag::O_RDWR) {
        // The user logged out while the session ran, or keeps there what nobody takes for a login.
        Err(Errno::ENOENT) | Ok(None) => Ok(Returned::Nothing),
        Err(errno) => Err(errno.into()),
        Ok(Some(own)) if own.is.st_uid != uid || own.modified() >= file.modified() => {
            Ok(Returned::Nothing)
        }
        Ok(Some(own)) => {
            let Some(mut users) = own.content(LARGEST)?.as_deref().and_then(object) else {
                return Ok(Returned::Nothing);
            };
            if !merge(&mut users, &says, back) {
                return Ok(Returned::Nothing);
            }
            let text = text(&users)?;
            let mut file = own.file;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&text)?;
            file.set_len(text.len() as u64)?;
            Ok(Returned::Renewed)
        }
    }
}

fn object(text: &[u8]) -> Option<Object> {
    serde_json::from_slice(text).ok()
}

fn text(object: &Object) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(object)?;
    text.push(b'\n');
    Ok(text)
}

/// Puts the values at `back` into `users`; whether that changed anything.
fn merge(users: &mut Object, says: &Object, back: &[String]) -> bool {
    let mut changed = false;
    for name in back {
        let (outer, inner) = match name.split_once('.') {
            Some((outer, inner)) => (outer, Some(inner)),
            None => (name.as_str(), None),
        };
        let value = says.get(outer).and_then(|raw| plain(raw, inner));
        let (Some(value), Some(has)) = (value, users.get(outer)) else {
            continue;
        };
        let put = match inner {
            None => value,
            Some(inner) => {
                let Ok(mut object) = serde_json::from_str::<Inner>(has.get()) else {
                    continue;
                };
                object.insert(inner.to_owned(), value);
                Value::Object(object)
            }
        };
        let same = serde_json::from_str::<Value>(has.get()).ok().as_ref() == Some(&put);
        if let (false, Ok(raw)) = (same, serde_json::value::to_raw_value(&put)) {
            users.insert(outer.to_owned(), raw);
            changed = true;
        }
    }
    changed
}

/// The value, or the one of that name in it, if it is a text, a number, a truth value or a list of texts.
fn plain(raw: &RawValue, inner: Option<&str>) -> Option<Value> {
    let mut value: Value = serde_json::from_str(raw.get()).ok()?;
    if let Some(inner) = inner {
        value = value.as_object_mut()?.remove(inner)?;
    }
    let is_text = |value: &Value| {
        value
            .as_str()
            .is_some_and(|text| text.len() <= LONGEST && !text.contains(char::is_control))
    };
    let fits = match &value {
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::String(_) => is_text(&value),
        Value::Array(all) => all.len() <= MOST_ENTRIES && all.iter().all(is_text),
        Value::Object(_) => false,
    };
    fits.then_some(value)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;

    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use std::time::{Duration, SystemTime};

    use nix::sys::stat::Mode;

    struct Fixture {
        _top: tempfile::TempDir,
        at: PathBuf,
        kept: OwnedFd,
    }

    fn fixture(inside: &str) -> Fixture {
        let top = tempfile::tempdir().unwrap();
        let at = top.path().canonicalize().unwrap();
        std::fs::create_dir_all(at.join("store/in")).unwrap();
        std::fs::create_dir(at.join("home")).unwrap();
        std::fs::write(at.join("store/in/login"), inside).unwrap();
        let kept = ways::directory(&at.join("store"), Missing::Stays, |_| false).unwrap();
        Fixture {
            _top: top,
            at,
            kept,
        }
    }

    impl Fixture {
        fn take(&self) -> io::Result<Returned> {
            let back = ["oauth.access", "oauth.scopes", "mode"].map(str::to_owned);
            let host = self.at.join("home/.tool/login");
            take(&host, &back, (&self.kept, Path::new("in/login")))
        }

        fn host(&self, text: &str, seconds: u64) {
            let host = self.at.join("home/.tool/login");
            std::fs::create_dir_all(host.parent().unwrap()).unwrap();
            std::fs::write(&host, text).unwrap();
            let file = std::fs::File::options().write(true).open(&host).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
                .unwrap();
        }

        fn says(&self) -> String {
            std::fs::read_to_string(self.at.join("home/.tool/login")).unwrap()
        }
    }

    const EVIL: &str = r#"{"oauth":{"access":"new","url":"http://evil","scopes":["a","b"]},"mode":"chat","type":"external_account","gateway":{"url":"x"}}"#;

    #[test]
    fn nothing_comes_back_but_plain_values_that_are_named() {
        let fixture = fixture(EVIL);
        fixture.host(
            r#"{"oauth":{"access":"old","plan":"max"},"kept":12345678901234567890123}"#,
            1,
        );
        assert_eq!(fixture.take().unwrap(), Returned::Renewed);
        let expected = r#"{"kept":12345678901234567890123,"oauth":{"access":"new","plan":"max","scopes":["a","b"]}}"#;
        assert_eq!(fixture.says().trim_end(), expected);
        // Now the user's is newer.
        std::fs::write(fixture.at.join("home/.tool/login"), r#"{"oauth":{}}"#).unwrap();
        assert_eq!(fixture.take().unwrap(), Returned::Nothing);
    }

    #[test]
    fn a_login_of_which_the_user_has_none_stays_in_the_project() {
        let fixture = fixture(EVIL);
        assert!(fixture.take().is_err(), "there is no directory");
        std::fs::create_dir(fixture.at.join("home/.tool")).unwrap();
        assert_eq!(fixture.take().unwrap(), Returned::Nothing);
        assert!(!fixture.at.join("home/.tool/login").exists());
        // Nor does a part of one, where the user's holds another.
        fixture.host(r#"{"mode":"key"}"#, 1);
        assert_eq!(fixture.take().unwrap(), Returned::Renewed);
        assert_eq!(fixture.says().trim_end(), r#"{"mode":"chat"}"#);
    }

    #[test]
    fn values_that_are_not_plain_and_files_that_are_none_stay_where_they_are() {
        let long = "x".repeat(LONGEST + 1);
        for inside in [
            r#"{"oauth":{"access":{"url":"x"}}}"#,
            r#"{"oauth":{"access":"a\u001b[2J"}}"#,
            r#"{"oauth":{"scopes":[["x"]]}}"#,
            r#"{"oauth":"x"}"#,
            &format!(r#"{{"mode":"{long}"}}"#),
            "[]",
            "{",
            "",
        ] {
            let fixture = fixture(inside);
            fixture.host(r#"{"oauth":{"access":"old"},"mode":1}"#, 1);
            assert_eq!(fixture.take().unwrap(), Returned::Nothing, "{inside}");
            assert_eq!(fixture.says(), r#"{"oauth":{"access":"old"},"mode":1}"#);
        }
        let fixture = fixture(EVIL);
        let users = r#"{"oauth":{},"mode":1}"#;
        fixture.host(users, 1);
        let inside = fixture.at.join("store/in/login");
        std::fs::rename(&inside, fixture.at.join("secret")).unwrap();
        symlink(fixture.at.join("secret"), &inside).unwrap();
        assert_eq!(fixture.take().unwrap(), Returned::Nothing);
        std::fs::remove_file(&inside).unwrap();
        std::fs::hard_link(fixture.at.join("secret"), &inside).unwrap();
        assert_eq!(fixture.take().unwrap(), Returned::Nothing);
        std::fs::remove_file(&inside).unwrap();
        nix::unistd::mkfifo(&inside, Mode::S_IRWXU).unwrap();
        assert_eq!(fixture.take().unwrap(), Returned::Nothing);
        std::fs::remove_file(&inside).unwrap();
        std::fs::write(&inside, EVIL).unwrap();
        assert_eq!(fixture.says(), users);
        std::fs::rename(fixture.at.join("home/.tool"), fixture.at.join("elsewhere")).unwrap();
        symlink(fixture.at.join("elsewhere"), fixture.at.join("home/.tool")).unwrap();
        assert!(fixture.take().is_err());
        let other = std::fs::read_to_string(fixture.at.join("elsewhere/login")).unwrap();
        assert_eq!(other, users);
    }
}
