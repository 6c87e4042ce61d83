//! What happens when nothing can be written, or the tracer was away.

use super::*;

#[test]
fn what_cannot_be_written_is_counted_and_said() {
    let mut house = house(StoreLimits::default());
    house.begin(1000, 1);
    house.trails.event(&open(head(1, START), b"/a"));
    house.trails.flush(now(START));
    // The directory is somebody else's for a while: nothing can be written.
    let directory = house.settings.records.join("1000");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
    for _ in 0..3 {
        house.trails.event(&open(head(1, START), b"/b"));
    }
    house.trails.event(&open(head(1, START), b"/c"));
    house.trails.flush(now(START));
    house.trails.flush(now(START));
    let state = house.trails.state();
    assert_eq!(state.lost, 4);
    assert!(
        state.trouble[0].contains("user 1000") && state.trouble[0].contains("0700"),
        "{state:?}"
    );
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
    house.trails.event(&open(head(1, START), b"/d"));
    house.trails.flush(now(START));
    assert_eq!(house.trails.state().trouble, Vec::<String>::new());
    let records = house.read(1000, &Which::All);
    gapless(&records, 1);
    let What::Lost(lost) = &records[2].what else {
        panic!("{records:?}")
    };
    assert_eq!(lost.more, 4);
    assert!(lost.why.contains("0700"), "{lost:?}");
    assert_eq!(
        paths(&records),
        [("/a".to_string(), 1), ("/d".to_string(), 1)]
    );
    assert_eq!(records.last().unwrap().lost, 4);
    assert_eq!(records.len(), 4, "it is said once");
}

#[test]
fn an_end_that_cannot_be_written_is_tried_again() {
    let mut house = house(StoreLimits::default());
    house.begin(1000, 1);
    let directory = house.settings.records.join("1000");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
    house.trails.event(&open(head(1, START), b"/a"));
    assert!(house.trails.end(1, "x", 0, now(START)).is_err());
    house.trails.tick(now(START + SECOND));
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
    house.trails.tick(now(START + 2 * SECOND));
    house.trails.tick(now(START + 3 * SECOND));
    let records = house.read(1000, &Which::All);
    gapless(&records, 1);
    assert!(matches!(&records[1].what, What::Lost(lost) if lost.more == 1));
    assert!(matches!(&records[2].what, What::End(end) if end.why == "x"));
    assert_eq!(records.len(), 3);
}

#[test]
fn a_file_that_somebody_removes_is_followed_by_another() {
    let mut house = house(StoreLimits::default());
    house.begin(1000, 1);
    fs::remove_file(&house.files(1000)[0]).unwrap();
    house.trails.event(&open(head(1, START), b"/a"));
    house.trails.flush(now(START));
    let records = house.read(1000, &Which::All);
    gapless(&records, 2);
    assert!(matches!(records[0].what, What::Header(_)));
    assert_eq!(paths(&records), [("/a".to_string(), 1)]);
    assert_eq!(house.trails.state().lost, 0);
}

#[test]
fn a_trail_goes_on_after_the_tracer_was_away() {
    let mut house = house(StoreLimits::default());
    house.begin(1000, 1);
    house.trails.event(&open(head(1, START), b"/a"));
    house.trails.lost(1, 2);
    house.trails.flush(now(START));
    // Killed in the middle of a line.
    let file = house.files(1000).remove(0);
    let mut text = fs::read(&file).unwrap();
    text.extend_from_slice(b"{\"seq\":4,\"time\":17");
    fs::write(&file, text).unwrap();
    house.trails = Trails::open(&house.settings, now(START)).unwrap();
    let later = now(START + 10 * SECOND);
    house
        .trails
        .resume(
            1,
            trail(1000, 1),
            header(),
            Redaction::default(),
            9.5,
            later,
        )
        .unwrap();
    house.trails.lost(1, 2);
    house.trails.event(&open(head(1, START), b"/b"));
    house.trails.lost(1, 3);
    house.trails.end(1, "x", 0, later).unwrap();
    let records = house.read(1000, &Which::All);
    gapless(&records, 1);
    let away = records
        .iter()
        .filter(|record| matches!(&record.what, What::Away(away) if away.seconds == 9.5));
    assert_eq!(away.count(), 1);
    let began: Vec<u64> = records
        .iter()
        .filter_map(|record| match &record.what {
            What::Header(header) => Some(header.began.to_bits()),
            _ => None,
        })
        .collect();
    assert_eq!(began.len(), 2);
    assert_eq!(began[0], began[1]);
    assert_eq!(paths(&records).len(), 2);
    assert_eq!(records.last().unwrap().lost, 3);
    assert_eq!(house.list(1000).len(), 1);
}

#[test]
fn a_directory_that_others_could_change_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let records = directory.path().join("trails");
    fs::create_dir(&records).unwrap();
    fs::set_permissions(&records, fs::Permissions::from_mode(0o777)).unwrap();
    let settings = Settings {
        records,
        node: "n".into(),
        ..Settings::default()
    };
    assert!(matches!(
        Trails::open(&settings, now(START)),
        Err(Error::Directory(..))
    ));
}

#[test]
fn a_link_in_the_place_of_a_directory_is_not_followed() {
    let mut house = house(StoreLimits::default());
    let elsewhere = house.directory.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, house.settings.records.join("1000")).unwrap();
    let begun = house.trails.begin(
        1,
        trail(1000, 1),
        header(),
        Redaction::default(),
        now(START),
    );
    assert!(begun.is_err());
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

/// Where the child of the test below works: its files are cut off after 4 KiB.
const CHILD: &str = "AGENT_SANDBOX_TEST_FULL";

#[test]
fn a_full_disk_leaves_whole_lines() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if std::env::var_os(CHILD).is_none() {
        // The limit is the process's, so the test has one of its own.
        let script = "trap '' XFSZ; ulimit -S -f 8; exec \"$0\" --exact trail::tests::failing::a_full_disk_leaves_whole_lines";
        let mut child = std::process::Command::new("/bin/sh");
        child
            .args(["-c", script])
            .arg(std::env::current_exe().unwrap())
            .env(CHILD, "1");
        let output = child.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("1 passed"), "{said}");
        return;
    }
    let mut house = house(StoreLimits::default());
    house.begin(1000, 1);
    for number in 0..100_u32 {
        house
            .trails
            .event(&open(head(1, START), format!("/{number}").as_bytes()));
    }
    house.trails.flush(now(START));
    let text = fs::read_to_string(&house.files(1000)[0]).unwrap();
    assert!(
        text.ends_with("}\n") && text.len() <= 4096,
        "{}",
        text.len()
    );
    let lost = house.trails.state().lost;
    assert!(lost > 50, "{lost}");
    let (_, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    setrlimit(Resource::RLIMIT_FSIZE, hard, hard).unwrap();
    house.trails.event(&open(head(1, START), b"/after"));
    house.trails.end(1, "x", 0, now(START)).unwrap();
    let records = house.read(1000, &Which::All);
    gapless(&records, 1);
    let shown = paths(&records);
    assert_eq!(shown.last().unwrap().0, "/after");
    assert_eq!(shown.len() as u64 + lost, 101);
    assert!(
        records
            .iter()
            .any(|record| matches!(&record.what, What::Lost(said) if said.more == lost))
    );
}
