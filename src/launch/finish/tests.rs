//! What is done in a jail from outside, in one that looks like bubblewrap's.

#![allow(clippy::disallowed_methods, reason = "tests")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use nix::sys::statvfs::{FsFlags, statvfs};
use nix::sys::wait::{WaitStatus, waitpid};

use super::*;
use crate::backend::bubblewrap::Uses;

type Done = std::result::Result<(), Box<dyn std::error::Error>>;

/// Mounts as bubblewrap makes them below `place`, in namespaces of a process of their own; has them
/// finished from outside, and lets that process look.
fn finished(
    place: &Path,
    rest: Rest,
    look: impl FnOnce(&Path) -> Done,
) -> std::result::Result<(), String> {
    let (ours, theirs) = passing::pair().unwrap();
    match process::fork().unwrap() {
        process::Side::Child => {
            drop(ours);
            let done = as_bubblewrap(place, &theirs, look);
            let said = done.map_or_else(|error| format!("1{error}"), |()| "0".to_owned());
            let _ = passing::send(&theirs, said.as_bytes(), None);
            process::exit_now(0)
        }
        process::Side::Parent(child) => {
            drop(theirs);
            let mut buffer = [0; LONGEST_REASON];
            let received = passing::receive(&ours, &mut buffer, MsgFlags::empty()).unwrap();
            let (1, Some(lent)) = received else {
                panic!("{}", String::from_utf8_lossy(&buffer[..received.0]))
            };
            let finish = Finish::begin(rest).map_err(|error| format!("{error:#}"));
            let done = finish.and_then(|finish| answer(Some(finish), Some(lent), &ours));
            if done.is_ok() {
                let (length, _) = passing::receive(&ours, &mut buffer, MsgFlags::empty()).unwrap();
                let said = String::from_utf8_lossy(&buffer[..length]).into_owned();
                assert_eq!(said, "0");
            }
            drop(ours);
            let ended = waitpid(child, None).unwrap();
            assert_eq!(ended, WaitStatus::Exited(child, 0));
            done
        }
    }
}

fn as_bubblewrap(place: &Path, control: &OwnedFd, look: impl FnOnce(&Path) -> Done) -> Done {
    let (uid, gid) = (getuid(), nix::unistd::getgid());
    let map = |inside: u32| -> io::Result<()> {
        let _ = fs::write("/proc/self/setgroups", "deny");
        let outside = if inside == 0 { uid.as_raw() } else { 0 };
        fs::write("/proc/self/uid_map", format!("{inside} {outside} 1"))?;
        let outside = if inside == 0 { gid.as_raw() } else { 0 };
        fs::write("/proc/self/gid_map", format!("{inside} {outside} 1"))
    };
    namespaces::leave(&[Kind::User, Kind::Mount])?;
    map(0)?;
    mounts::make_private()?;
    mounts::tmpfs_at(place, 1 << 20, 0o755)?;
    for name in ["sized", "made"] {
        fs::create_dir(place.join(name))?;
    }
    mounts::tmpfs_at(&place.join("sized"), 1 << 20, 0o755)?;
    fs::write(place.join("file"), "content")?;
    symlink("file", place.join("link"))?;
    let closed = place.join("closed");
    fs::create_dir(&closed)?;
    mounts::tmpfs_at(&closed, 1 << 20, 0o755)?;
    fs::write(closed.join("cover"), "cover")?;
    symlink("cover", closed.join("link"))?;
    remount(&closed, MsFlags::MS_BIND | MsFlags::MS_RDONLY, None)?;
    namespaces::leave(&[Kind::User])?;
    map(1)?;
    let own = namespaces::own(Kind::Mount)?;
    passing::send(control, b"x", Some(own.as_fd()))?;
    let mut buffer = [0; 64];
    match passing::receive(control, &mut buffer, MsgFlags::empty())? {
        (0, _) => Ok(()),
        _ => look(place),
    }
}

fn left(at: &Path, size: Option<u64>, mode: Option<u32>, read_only: bool) -> Act {
    Act::Change(Left {
        at: at.to_owned(),
        size,
        mode,
        read_only,
    })
}

fn expect(holds: bool, what: &str) -> Done {
    if holds { Ok(()) } else { Err(what.into()) }
}

#[test]
fn sizes_modes_and_what_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().canonicalize().unwrap();
    let rest = Rest {
        acts: vec![
            left(&place.join("file"), None, Some(0o444), false),
            left(&place.join("made"), None, Some(0o700), false),
            left(&place.join("sized"), Some(8192), Some(0o1777), false),
            left(&place, None, None, true),
        ],
        no_namespaces: true,
    };
    finished(&place, rest, |place| {
        let mode = |name: &str| -> io::Result<u32> {
            Ok(fs::metadata(place.join(name))?.permissions().mode() & 0o7777)
        };
        let modes = [mode("file")?, mode("made")?, mode("sized")?];
        expect(
            modes == [0o444, 0o700, 0o1777],
            &format!("other modes: {modes:?}"),
        )?;
        let flags = |name: &str| statvfs(&place.join(name)).map(|found| found.flags());
        let restricted = FsFlags::ST_NOSUID | FsFlags::ST_NODEV;
        expect(flags("")?.contains(restricted | FsFlags::ST_RDONLY), "open")?;
        expect(flags("sized")?.contains(restricted), "unrestricted")?;
        expect(!flags("sized")?.contains(FsFlags::ST_RDONLY), "closed")?;
        fs::write(place.join("sized/fits"), [0; 4096])?;
        let full = fs::write(place.join("sized/full"), [0; 8192]);
        expect(full.is_err(), "no limit")?;
        let made = namespaces::leave(&[Kind::User]);
        let refused = made.err().and_then(|error| error.raw_os_error());
        expect(
            refused == Some(libc::ENOSPC),
            &format!("a user namespace: {refused:?}"),
        )
    })
    .unwrap();
}

#[test]
fn what_bubblewrap_did_not_make_is_not_touched() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().canonicalize().unwrap();
    let refused = |left: Act| {
        let rest = Rest {
            acts: vec![left],
            ..Rest::default()
        };
        finished(&place, rest, |_| Ok(())).unwrap_err()
    };
    for (what, why) in [
        (left(&place.join("link"), None, Some(0o777), false), "ELOOP"),
        (
            left(&place.join("absent"), None, Some(0o777), false),
            "No such",
        ),
        // No mount, and no file system of the jail's.
        (
            left(&place.join("made"), Some(4096), None, false),
            "Invalid",
        ),
        (left(Path::new("/usr"), None, Some(0o777), false), "ESTALE"),
        (left(Path::new("/proc"), Some(4096), None, false), ""),
    ] {
        let said = refused(what);
        let why = match why {
            "ELOOP" => io::Error::from_raw_os_error(libc::ELOOP).to_string(),
            "ESTALE" => io::Error::from_raw_os_error(libc::ESTALE).to_string(),
            other => other.to_owned(),
        };
        assert!(
            said.contains("cannot finish") && said.contains(&why),
            "{said}"
        );
    }
}

#[test]
fn a_bind_is_as_read_only_as_what_it_shows() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().canonicalize().unwrap();
    let bind = |from: &str, at: &str| Rest {
        acts: vec![Act::Cover(Bind {
            from: place.join(from),
            at: place.join(at),
        })],
        ..Rest::default()
    };
    finished(&place, bind("closed/cover", "file"), |place| {
        let covered = place.join("file");
        expect(fs::read(&covered)? == b"cover", "not covered")?;
        let flags = statvfs(&covered)?.flags();
        let closed = FsFlags::ST_RDONLY | FsFlags::ST_NOSUID | FsFlags::ST_NODEV;
        expect(flags.contains(closed), &format!("open: {flags:?}"))?;
        expect(fs::write(&covered, "x").is_err(), "written")
    })
    .unwrap();
    // What could be changed inside covers nothing, and neither end is reached over a link.
    for (from, at, why) in [
        ("sized", "made", libc::ESTALE),
        ("closed/cover", "link", libc::ELOOP),
        ("closed/link", "file", libc::ELOOP),
        ("closed/cover", "absent", libc::ENOENT),
    ] {
        let said = finished(&place, bind(from, at), |_| Ok(())).unwrap_err();
        let why = io::Error::from_raw_os_error(why).to_string();
        assert!(
            said.contains("cannot mount over") && said.contains(&why),
            "{from} {at}: {said}"
        );
    }
}

fn show(from: &Path, at: &Path, uses: Uses) -> Act {
    Act::Show(Taken {
        from: from.to_owned(),
        at: at.to_owned(),
        uses,
        is_made: true,
    })
}

#[test]
fn what_is_shown_gives_no_more_than_it_lets() {
    let (directory, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let place = directory.path().canonicalize().unwrap();
    let source = source.path().canonicalize().unwrap();
    fs::write(source.join("file"), "of the host").unwrap();
    // More than one message has room for.
    let many = (0..2 * passing::MOST_DESCRIPTORS)
        .map(|number| show(&source, &place.join(format!("many/{number}")), Uses::Read));
    let rest = Rest {
        acts: [
            show(&source, &place.join("made"), Uses::Read),
            show(&source, &place.join("new/deep"), Uses::Write),
            show(&source.join("file"), &place.join("name"), Uses::Read),
            show(Path::new("/dev/null"), &place.join("null"), Uses::Device),
        ]
        .into_iter()
        .chain(many)
        .collect(),
        ..Rest::default()
    };
    finished(&place, rest, |place| {
        let flags = |name: &str| statvfs(&place.join(name)).map(|found| found.flags());
        let restricted = FsFlags::ST_NOSUID | FsFlags::ST_NODEV;
        for closed in ["made", "name", "many/0", "many/31"] {
            let flags = flags(closed)?;
            expect(flags.contains(restricted | FsFlags::ST_RDONLY), closed)?;
        }
        expect(fs::write(place.join("made/new"), "x").is_err(), "written")?;
        expect(fs::read(place.join("name"))? == b"of the host", "another")?;
        expect(flags("new/deep")?.contains(restricted), "unrestricted")?;
        expect(!flags("new/deep")?.contains(FsFlags::ST_RDONLY), "closed")?;
        expect(flags("null")?.contains(FsFlags::ST_NOSUID), "set-id bits")?;
        fs::write(place.join("null"), "x")?;
        fs::write(place.join("new/deep/written"), "x")?;
        Ok(())
    })
    .unwrap();
    assert!(source.join("written").exists());
}

#[test]
fn nothing_is_shown_over_a_link_or_made_on_the_host() {
    let (directory, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let place = directory.path().canonicalize().unwrap();
    let source = source.path().canonicalize().unwrap();
    let shown = source.join("shown");
    fs::create_dir(&shown).unwrap();
    symlink("shown", source.join("link")).unwrap();
    let read = |from: &Path, at: &Path| vec![show(from, at, Uses::Read)];
    let written = vec![
        show(&source, &place.join("made"), Uses::Write),
        Act::Show(Taken {
            from: shown.clone(),
            at: place.join("made/absent"),
            uses: Uses::Read,
            is_made: false,
        }),
    ];
    for (acts, why) in [
        (read(&shown, &place.join("link")), libc::ELOOP),
        (read(&shown, &place.join("link/below")), libc::ELOOP),
        (read(&shown, &place.join("file")), libc::EINVAL),
        (read(&source.join("link"), &place.join("made")), libc::ELOOP),
        (
            read(&source.join("link/x"), &place.join("made")),
            libc::ELOOP,
        ),
        (
            read(&source.join("absent"), &place.join("made")),
            libc::ENOENT,
        ),
        // The place would be made in the directory of the host.
        (written, libc::ENOENT),
    ] {
        let rest = Rest {
            acts,
            ..Rest::default()
        };
        let said = finished(&place, rest, |_| Ok(())).unwrap_err();
        let why = io::Error::from_raw_os_error(why).to_string();
        assert!(said.contains(&why), "{said}");
    }
    assert!(!source.join("absent").exists());
}

#[test]
fn others_mounts_are_not_entered() {
    let finish = Finish::begin(Rest::default()).unwrap();
    let own = namespaces::own(Kind::Mount).unwrap();
    assert!(finish.carry_out(&own).is_err());
    let network = namespaces::own(Kind::Network).unwrap();
    assert!(finish.carry_out(&network).is_err());
}
