//! Whether the job will be able to open the files of `--output` and `--error`, as far as it can be known now. They are
//! opened in the job's jail: what the session's jail does not show, or has for itself alone, is not there, and
//! the job would fail without a word to who submitted it.
//!
//! The shim looks, with the view of its caller. What it answers is the caller's own word, and decides nothing but
//! whether the caller is warned.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use agent_sandbox_wire::order::JailPath;
use nix::errno::Errno;

use crate::conn::Unanswered;
use crate::refusal::Refusal;
use crate::slurm::ask::Stop;
use crate::slurm::parse::Parsed;
use crate::slurm::request::Context;

/// A file's directory, as far as it is known before the job is, and its name, if that is.
#[derive(Debug, PartialEq, Eq)]
struct Known {
    directory: PathBuf,
    /// Whether a part of the directory is known to the job alone.
    cut: bool,
    file: Option<Vec<u8>>,
}

/// Checks the files that were asked for.
///
/// # Errors
/// One of them could not be opened in the job; or the shim ends.
pub(super) async fn check(
    context: &mut Context<'_>,
    parsed: &Parsed,
    cwd: &Path,
) -> Result<(), Stop> {
    for long in ["output", "error"] {
        let Some(path) = parsed.value(long).filter(|path| !path.is_empty()) else {
            continue;
        };
        let known = known(cwd, path);
        let directory = known.directory.as_os_str().as_bytes();
        let looked = context.conn.look_inside(directory, known.file.as_deref());
        let (directory, missing, refused) = match looked.await {
            Ok(looked) => looked,
            // A path that makes no sense is the job's to complain about, as it is Slurm's.
            Err(Unanswered::Failed(_)) => continue,
            Err(other) => return Err(Stop::Ended(other.end())),
        };
        let places = &context.session.order.places;
        let real = Path::new(OsStr::from_bytes(&directory));
        let next = match (missing.is_empty(), known.cut) {
            (false, _) => Next::Missing(real.join(OsStr::from_bytes(&missing))),
            (true, true) => Next::Later,
            (true, false) => Next::There,
        };
        let home = Path::new(OsStr::from_bytes(&context.session.order.home));
        if let Some(why) = in_the_way((places, home), real, &next, refused) {
            return Err(refusal(context, path, long, &why).into());
        }
    }
    Ok(())
}

fn refusal(context: &Context<'_>, path: &OsStr, long: &str, why: &str) -> Refusal {
    let project = OsStr::from_bytes(&context.session.order.snapshot.project);
    Refusal::mistake(format!(
        "the job could not write --{long} `{}`: {why}",
        path.display()
    ))
    .hint(format!(
        "write it below the project, {}; another directory has to be made writable in the user's policy (agent-sandbox explain)",
        project.display()
    ))
}

/// What of a path is known before the job is (`sbatch(1)`, "filename pattern").
fn known(cwd: &Path, path: &OsStr) -> Known {
    let path = path.as_bytes();
    // With a backslash in it nothing else is a pattern.
    let plain = path.contains(&b'\\');
    let path: Vec<u8> = path.iter().copied().filter(|byte| *byte != b'\\').collect();
    let varies = |part: &[u8]| !plain && part.contains(&b'%');
    let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..=at], &path[at + 1..]),
        None => (&b""[..], path.as_slice()),
    };
    let mut directory = cwd.to_owned();
    let mut cut = false;
    if above.starts_with(b"/") {
        directory = PathBuf::from("/");
    }
    for part in above.split(|byte| *byte == b'/') {
        if varies(part) {
            cut = true;
            break;
        }
        directory.push(OsStr::from_bytes(part));
    }
    let file = (!cut && !varies(name) && !name.is_empty()).then(|| name.to_vec());
    Known {
        directory,
        cut,
        file,
    }
}

/// What comes behind the part of a directory that exists.
enum Next {
    /// It is the whole directory.
    There,
    /// A directory that the job's number names.
    Later,
    /// This, which does not exist.
    Missing(PathBuf),
}

/// Why the job could not open a file there, or nobody see it, if that is certain. With the places of the jail
/// comes the home directory.
fn in_the_way(
    (places, home): (&[JailPath], &Path),
    real: &Path,
    next: &Next,
    refused: i32,
) -> Option<String> {
    let errno = Errno::from_raw(refused);
    let closed = matches!(errno, Errno::EROFS | Errno::EACCES | Errno::EPERM);
    let at = |place: &JailPath| PathBuf::from(OsStr::from_bytes(&place.at));
    let around = places
        .iter()
        .filter(|place| real.starts_with(at(place)))
        .max_by_key(|place| place.at.len());
    let own = around.is_some_and(|place| place.own);
    // A job's jail has such a place as well, with nothing in it.
    let in_both = around.is_some_and(|place| at(place) == real);
    let lost = own && (!in_both || real.starts_with(home));
    match next {
        Next::There if closed => Some(format!(
            "`{}` is not writable in the jail: {}",
            real.display(),
            errno.desc()
        )),
        Next::There if own && !in_both => Some(format!(
            "`{}` is the own of this session, and the job does not have it",
            real.display()
        )),
        Next::There if own && real.starts_with(home) => Some(format!(
            "`{}` is the job's own in its jail, and gone with it",
            real.display()
        )),
        Next::There => None,
        Next::Missing(path) if closed || lost => {
            Some(format!("`{}` does not exist in the jail", path.display()))
        }
        Next::Later if closed || lost => Some(format!(
            "no directory can be made in `{}` that the job would have",
            real.display()
        )),
        // The job makes it.
        Next::Missing(_) | Next::Later => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str) -> (String, bool, Option<String>) {
        let known = known(Path::new("/p"), OsStr::new(path));
        let file = known.file.map(|name| String::from_utf8(name).unwrap());
        let directory = known.directory.join("");
        (directory.display().to_string(), known.cut, file)
    }

    #[test]
    fn patterns_hide_what_they_stand_in() {
        let file = |name: &str| Some(name.to_owned());
        assert_eq!(of("a"), ("/p/".into(), false, file("a")));
        assert_eq!(of("/x/a"), ("/x/".into(), false, file("a")));
        assert_eq!(of("d/a-%j"), ("/p/d/".into(), false, None));
        assert_eq!(of("d/%j/a"), ("/p/d/".into(), true, None));
        assert_eq!(of("d\\/%j/a"), ("/p/d/%j/".into(), false, file("a")));
        assert_eq!(of("d/"), ("/p/d/".into(), false, None));
    }

    #[test]
    fn what_the_session_has_for_itself_the_job_has_not() {
        let place = |at: &str, own| JailPath { at: at.into(), own };
        let places = [
            place("/", true),
            place("/home/ada", true),
            place("/home/ada/p", false),
            place("/tmp", true),
        ];
        let judge = |real: &str, next, refused| {
            in_the_way(
                (&places, Path::new("/home/ada")),
                Path::new(real),
                &next,
                refused,
            )
        };
        assert_eq!(judge("/home/ada/p", Next::There, 0), None);
        assert_eq!(judge("/home/ada/p/x", Next::Later, 0), None);
        assert_eq!(judge("/tmp", Next::There, 0), None);
        let missing = || Next::Missing("/home/ada/logs".into());
        assert_eq!(judge("/home/ada/p", missing(), 0), None);
        assert_eq!(judge("/tmp", Next::Missing("/tmp/new".into()), 0), None);
        assert_eq!(judge("/tmp", Next::Later, 0), None);
        for (real, next, refused, words) in [
            ("/home/ada/logs", Next::There, 0, "own of this session"),
            ("/home/ada", missing(), 0, "does not exist"),
            ("/home/ada", Next::There, 0, "gone with it"),
            ("/home/ada/p", missing(), libc::EROFS, "does not exist"),
            ("/home/ada", Next::Later, 0, "no directory can be made"),
            ("/usr", Next::There, libc::EROFS, "Read-only file system"),
        ] {
            let why = judge(real, next, refused).unwrap_or_default();
            assert!(why.contains(words), "{real}: {why}");
        }
        // Nobody knows of a full disk what it will be then.
        assert_eq!(judge("/home/ada/p", Next::There, libc::ENOSPC), None);
    }
}
