//! Files that the shim reads and opens for the chaperon.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::Duration;

use agent_sandbox_wire::message::{End, FromShim, How, Source, ToShim};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::chaperon::{Shim, ShimDirectory, Talk, died_of};

fn fetch(talk: &mut Talk, source: Source, most: u64) -> (Vec<u8>, FromShim) {
    talk.send(&ToShim::Fetch { source, most });
    talk.content()
}

fn file(name: &str) -> Source {
    Source::File(name.into())
}

#[track_caller]
fn finish(shim: Shim, mut talk: Talk) {
    talk.end(End::SUCCESS);
    let output = shim.output();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn standard_input_is_read_to_its_end() {
    let place = ShimDirectory::new();
    let (mut shim, mut talk) = place.begin(&mut place.shim());
    let mut input = shim.0.stdin.take().unwrap();
    let writer = thread::spawn(move || {
        for _ in 0..50 {
            input.write_all(&[b'x'; 10_000]).unwrap();
            thread::sleep(Duration::from_millis(1));
        }
    });
    let (content, end) = fetch(&mut talk, Source::Input, 1 << 20);
    assert_eq!((content.len(), end), (500_000, FromShim::ContentEnds));
    writer.join().unwrap();
    finish(shim, talk);
}

#[test]
fn a_file_is_read_relative_to_the_directory() {
    let place = ShimDirectory::new();
    let text: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 253) as u8).collect();
    fs::write(place.path("job.sh"), &text).unwrap();
    let (shim, mut talk) = place.begin(&mut place.shim());
    let (content, end) = fetch(&mut talk, file("job.sh"), 4 << 20);
    assert!(content == text);
    assert_eq!(end, FromShim::ContentEnds);
    let absolute = Source::File(place.path("job.sh").as_os_str().as_bytes().to_vec());
    assert!(fetch(&mut talk, absolute, 4 << 20).0 == text);
    finish(shim, talk);
}

#[test]
fn one_byte_more_than_asked_for_shows_that_there_is_more() {
    let place = ShimDirectory::new();
    fs::write(place.path("f"), "12345678").unwrap();
    let (shim, mut talk) = place.begin(&mut place.shim());
    for (most, expected) in [(4, "12345"), (7, "12345678"), (8, "12345678"), (0, "1")] {
        let (content, end) = fetch(&mut talk, file("f"), most);
        assert_eq!(
            (content.as_slice(), end),
            (expected.as_bytes(), FromShim::ContentEnds)
        );
    }
    // Without an end of its own.
    let (content, end) = fetch(&mut talk, file("/dev/zero"), 1 << 20);
    assert_eq!((content.len(), end), ((1 << 20) + 1, FromShim::ContentEnds));
    let (content, end) = fetch(&mut talk, file("f"), u64::MAX);
    assert_eq!((content.len(), end), (8, FromShim::ContentEnds));
    finish(shim, talk);
}

#[test]
fn what_cannot_be_read_has_its_errno() {
    let place = ShimDirectory::new();
    let (shim, mut talk) = place.begin(&mut place.shim());
    let mut errno = |source| fetch(&mut talk, source, 100).1;
    assert_eq!(errno(file("missing")), FromShim::Failed(libc::ENOENT));
    assert_eq!(errno(file("")), FromShim::Failed(libc::ENOENT));
    assert_eq!(errno(file(".")), FromShim::Failed(libc::EISDIR));
    assert_eq!(errno(file("a\0b")), FromShim::Failed(libc::EINVAL));
    assert_eq!(errno(file("socket")), FromShim::Failed(libc::ENXIO));
    assert_eq!(
        errno(file(&"x".repeat(10_000))),
        FromShim::Failed(libc::ENAMETOOLONG)
    );
    finish(shim, talk);
}

#[test]
fn a_fifo_waits_for_its_writer_and_signals_pass() {
    let place = ShimDirectory::new();
    mkfifo(&place.path("fifo"), Mode::S_IRWXU).unwrap();
    let (shim, mut talk) = place.begin(&mut place.shim());
    talk.send(&ToShim::Fetch {
        source: file("fifo"),
        most: 100,
    });
    talk.hears_nothing();
    shim.signal(Signal::SIGUSR1);
    assert_eq!(talk.receive(), FromShim::Signal(libc::SIGUSR1));
    fs::write(place.path("fifo"), "late").unwrap();
    assert_eq!(talk.content(), (b"late".to_vec(), FromShim::ContentEnds));
    finish(shim, talk);
}

#[test]
fn a_process_substitution_is_read() {
    let place = ShimDirectory::new();
    let mut command = place.shim_after("exec \"$0\" <(echo \"#!/bin/sh\")");
    let (shim, mut talk) = place.begin(&mut command);
    let source = Source::File(talk.call.arguments[0].clone());
    let (content, end) = fetch(&mut talk, source, 100);
    assert_eq!(
        (content.as_slice(), end),
        (&b"#!/bin/sh\n"[..], FromShim::ContentEnds)
    );
    finish(shim, talk);
}

#[test]
fn two_files_at_once_are_an_error() {
    let place = ShimDirectory::new();
    let (shim, mut talk) = place.begin(&mut place.shim());
    for _ in 0..2 {
        talk.send(&ToShim::Fetch {
            source: Source::Input,
            most: 100,
        });
    }
    let mut shim = shim;
    assert_eq!(shim.status().code(), Some(1));
}

fn open(talk: &mut Talk, path: &str, how: How) -> Result<File, FromShim> {
    talk.send(&ToShim::Open {
        path: path.into(),
        how,
    });
    match talk.receive_with() {
        (FromShim::Opened, mut files) => {
            assert_eq!(files.len(), 1);
            Ok(files.remove(0).into())
        }
        (message, _) => Err(message),
    }
}

#[test]
fn files_are_opened_as_asked() {
    let place = ShimDirectory::new();
    fs::write(place.path("old"), "before ").unwrap();
    let mut command = place.shim_after("umask 027; exec \"$0\"");
    let (shim, mut talk) = place.begin(&mut command);
    open(&mut talk, "old", How::Append)
        .unwrap()
        .write_all(b"after")
        .unwrap();
    let mut text = String::new();
    open(&mut talk, "old", How::Read)
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "before after");
    open(&mut talk, "old", How::Truncate)
        .unwrap()
        .write_all(b"new")
        .unwrap();
    assert_eq!(fs::read_to_string(place.path("old")).unwrap(), "new");
    for (name, how) in [("one", How::Append), ("two", How::Truncate)] {
        open(&mut talk, name, how).unwrap().write_all(b"x").unwrap();
        let mode = fs::metadata(place.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o640);
    }
    finish(shim, talk);
}

#[test]
fn what_cannot_be_opened_has_its_errno() {
    let place = ShimDirectory::new();
    let (shim, mut talk) = place.begin(&mut place.shim());
    let mut errno = |path, how| open(&mut talk, path, how).unwrap_err();
    assert_eq!(errno("missing", How::Read), FromShim::Failed(libc::ENOENT));
    assert_eq!(errno("a/b", How::Read), FromShim::Failed(libc::ENOENT));
    let below_a_file = errno("/dev/null/a/b", How::Truncate);
    assert_eq!(below_a_file, FromShim::Failed(libc::ENOTDIR));
    assert_eq!(errno(".", How::Append), FromShim::Failed(libc::EISDIR));
    assert_eq!(errno("", How::Append), FromShim::Failed(libc::ENOENT));
    finish(shim, talk);
}

#[test]
fn directories_of_files_that_are_written_are_made() {
    let place = ShimDirectory::new();
    let (shim, mut talk) = place.begin(&mut place.shim());
    for (path, how) in [("a/b/one", How::Append), ("a/b/../c/two", How::Truncate)] {
        open(&mut talk, path, how).unwrap();
        assert!(place.path(path).is_file(), "{path}");
    }
    finish(shim, talk);
}

#[test]
fn opening_a_fifo_waits_and_can_be_interrupted() {
    let place = ShimDirectory::new();
    mkfifo(&place.path("fifo"), Mode::S_IRWXU).unwrap();
    let (shim, mut talk) = place.begin(&mut place.shim());
    let path = place.path("fifo");
    let reader = thread::spawn(move || fs::read_to_string(path).unwrap());
    open(&mut talk, "fifo", How::Truncate)
        .unwrap()
        .write_all(b"through")
        .unwrap();
    assert_eq!(reader.join().unwrap(), "through");
    talk.send(&ToShim::Open {
        path: b"fifo".to_vec(),
        how: How::Read,
    });
    talk.hears_nothing();
    shim.signal(Signal::SIGINT);
    died_of(shim.output().status, libc::SIGINT);
}
