//! What is kept: files that are root's, as long as they may be, and no more of them than there may be.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use agent_sandbox_events::record::What;

use crate::deeds::Trail;
use crate::site::Site;

/// Every file below the directory of the trails, with its length.
fn files(site: &Site) -> Vec<(PathBuf, u64)> {
    let mut all = Vec::new();
    let mut directories = vec![site.service.records().to_owned()];
    while let Some(directory) = directories.pop() {
        let meta = fs::metadata(&directory).unwrap();
        assert_eq!(
            (meta.uid(), meta.mode() & 0o7777),
            (0, 0o700),
            "{}",
            directory.display()
        );
        for entry in fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            let meta = entry.metadata().unwrap();
            if meta.is_dir() {
                directories.push(entry.path());
            } else {
                assert_eq!(
                    (meta.uid(), meta.mode() & 0o7777),
                    (0, 0o600),
                    "{}",
                    entry.path().display()
                );
                all.push((entry.path(), meta.len()));
            }
        }
    }
    all.sort();
    all
}

/// A session that opens so many files, all with names of their own.
fn busy(site: &Site, count: usize) -> Trail {
    let world = site.alice();
    world
        .inside(&format!(
            "mkdir many; for i in $(seq {count}); do : > many/file-of-a-long-name-$i.txt; done"
        ))
        .set("trace.mode=required")
        .run()
        .good();
    site.ended("session", |trail| {
        trail.records.iter().any(|record| match &record.what {
            What::Open(open) => open.path.ends_with(&format!("-{count}.txt")),
            _ => false,
        })
    })
}

#[test]
fn a_trail_goes_on_in_another_file() {
    let Some(site) = Site::new("[keep]\nfile_bytes = 65536\n") else {
        return;
    };
    let trail = busy(&site, 2000);
    trail.whole();
    let names: Vec<&str> = trail
        .records
        .iter()
        .filter_map(|record| match &record.what {
            What::Open(open) => open.path.rsplit('/').next(),
            _ => None,
        })
        .filter(|name| name.starts_with("file-of-a-long-name-"))
        .collect();
    assert_eq!(names.len(), 2000);
    let files = files(&site);
    assert!(files.len() > 3, "{files:?}");
    assert!(
        files.iter().all(|(_, length)| *length <= 65536),
        "{files:?}"
    );
    // Each can be read by itself: it begins with a header, and is of lines that are JSON.
    for (path, _) in files {
        let text = fs::read_to_string(&path).unwrap();
        for (at, line) in text.lines().enumerate() {
            let record: agent_sandbox_events::record::Record = serde_json::from_str(line).unwrap();
            assert_eq!(
                matches!(record.what, What::Header(_)),
                at == 0,
                "{}: {line}",
                path.display()
            );
        }
    }
}

#[test]
fn a_user_has_no_more_than_there_may_be() {
    let settings = "[keep]\nfile_bytes = 65536\nuser_bytes = 400000\n";
    let Some(site) = Site::new(settings) else {
        return;
    };
    let trail = busy(&site, 4000);
    let all: u64 = files(&site).iter().map(|(_, length)| length).sum();
    assert!(all <= 400_000, "{all} bytes: {:?}", files(&site));
    // What is gone is a gap in the numbers, behind the first file; and nothing else is gone.
    let gaps = trail
        .records
        .windows(2)
        .filter(|pair| pair[1].seq != pair[0].seq + 1);
    assert_eq!(gaps.count(), 1, "{}", trail.brief());
    assert_eq!(trail.records[0].seq, 1);
    assert_eq!(trail.records.iter().map(|one| one.lost).max(), Some(0));
    assert!(matches!(trail.records[0].what, What::Header(_)));
}
