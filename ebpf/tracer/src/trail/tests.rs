//! Trails as a whole: what goes in comes out, whatever fails.

#![allow(clippy::disallowed_methods, reason = "looks at files")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use agent_sandbox_events::client::Unanswered;
use agent_sandbox_events::raw::{About, By, Head, Kind, flags, parse};
use agent_sandbox_events::record::{Record, What};
use agent_sandbox_events::trails::{self, Listed, Reader, Source};
use proptest::prelude::*;

use super::*;

mod any;
mod back;
mod failing;
mod keeping;

const START: u64 = 100 * SECOND;

fn now(boot: u64) -> Now {
    Now {
        boot,
        wall: 1_700_000_000.0 + clock::seconds(boot),
    }
}

struct House {
    directory: tempfile::TempDir,
    settings: Settings,
    trails: Trails,
}

fn house(limits: StoreLimits) -> House {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings {
        records: directory.path().join("lib/trails"),
        node: "n1".into(),
        limits,
        ..Settings::default()
    };
    let trails = Trails::open(&settings, now(START)).unwrap();
    House {
        directory,
        settings,
        trails,
    }
}

fn trail(uid: u32, trace: u32) -> Trail {
    Trail {
        node: "n1".into(),
        uid,
        session: Some("abc".into()),
        trace,
        ..Trail::default()
    }
}

fn header() -> Header {
    Header {
        events: Kind::ALL
            .iter()
            .map(|kind| kind.name().to_string())
            .collect(),
        ..Header::default()
    }
}

fn head(trace: u32, time: u64) -> Head {
    Head {
        kind: Kind::Open,
        by: By::Nobody,
        flags: 0,
        time,
        cgroup: 0,
        trace,
        pid: 7,
        tid: 7,
        ppid: 1,
        uid: 1000,
        result: 0,
        comm: *b"cat\0\0\0\0\0\0\0\0\0\0\0\0\0",
        cpu: 0,
    }
}

fn open(head: Head, path: &[u8]) -> Event<'_> {
    Event {
        head,
        about: About::Open {
            path,
            inode: 1,
            device: 1,
            open_flags: 0,
            mode: 0,
        },
    }
}

impl House {
    fn begin(&mut self, uid: u32, trace: u32) {
        let begun = self.trails.begin(
            trace,
            trail(uid, trace),
            header(),
            Redaction::default(),
            now(START),
        );
        begun.unwrap();
    }

    fn seen_by(&self, viewer: u32) -> Viewer<'_> {
        Viewer {
            trails: &self.trails,
            viewer,
        }
    }

    fn read(&self, viewer: u32, which: &Which) -> Vec<Record> {
        let mut reader = Reader::new(self.seen_by(viewer), which.clone()).unwrap();
        let mut records = Vec::new();
        loop {
            let more = reader.read().unwrap();
            if more.is_empty() {
                return records;
            }
            records.extend(more.into_iter().map(|(record, _)| record));
        }
    }

    fn list(&self, viewer: u32) -> Vec<Listed> {
        trails::list(&self.seen_by(viewer)).unwrap().0
    }

    fn files(&self, uid: u32) -> Vec<PathBuf> {
        let directory = self.settings.records.join(uid.to_string());
        let mut files: Vec<PathBuf> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        files
    }
}

/// Somebody who reads, without a socket in between.
struct Viewer<'a> {
    trails: &'a Trails,
    viewer: u32,
}

impl Source for Viewer<'_> {
    fn files(
        &self,
        which: &Which,
        after: Option<(u32, String)>,
    ) -> Result<Vec<TrailFile>, Unanswered> {
        let files = self.trails.files(self.viewer, which, after.as_ref());
        files.map_err(Unanswered::Broken)
    }

    fn open(&self, files: Vec<(u32, String)>) -> Result<Vec<Option<fs::File>>, Unanswered> {
        let open =
            |(uid, name): &(u32, String)| self.trails.open_file(self.viewer, *uid, name).unwrap();
        Ok(files.iter().map(|one| open(one).map(From::from)).collect())
    }
}

fn gapless(records: &[Record], from: u64) {
    for (at, record) in records.iter().enumerate() {
        assert_eq!(record.seq, from + at as u64, "{record:?}");
    }
}

fn paths(records: &[Record]) -> Vec<(String, u64)> {
    let of = |record: &Record| match &record.what {
        What::Open(open) => Some((open.path.clone(), open.verdict.count)),
        _ => None,
    };
    records.iter().filter_map(of).collect()
}
