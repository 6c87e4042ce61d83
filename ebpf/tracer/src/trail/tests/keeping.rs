//! From events to files: what is kept, and for how long.

use super::*;

#[test]
fn a_trail_from_its_header_to_its_end() {
    let mut house = house(StoreLimits::default());
    house.begin(1000, 1);
    for _ in 0..3 {
        house.trails.event(&open(head(1, START), b"/a"));
    }
    house.trails.event(&open(head(9, START), b"/of no trace"));
    house.trails.tick(now(START + SECOND / 2));
    assert_eq!(
        house.read(1000, &Which::All).len(),
        1,
        "it waits for others that are alike"
    );
    house.trails.tick(now(START + 2 * SECOND));
    house
        .trails
        .end(1, "all tasks have ended", 5, now(START + 3 * SECOND))
        .unwrap();
    let records = house.read(1000, &Which::Session("abc".into()));
    gapless(&records, 1);
    let What::Header(header) = &records[0].what else {
        panic!("{records:?}")
    };
    assert!((header.began - 1_700_000_100.0).abs() < 1e-6);
    assert_eq!(header.version, agent_sandbox_events::record::VERSION);
    assert_eq!(paths(&records), [("/a".to_string(), 3)]);
    assert!((records[1].time - 1_700_000_100.0).abs() < 1e-6);
    let What::End(end) = &records[2].what else {
        panic!("{records:?}")
    };
    assert_eq!((end.why.as_str(), end.skipped), ("all tasks have ended", 5));
    assert_eq!(records.len(), 3);
    assert_eq!(
        house.trails.state(),
        State {
            events: 4,
            lost: 0,
            trouble: Vec::new()
        }
    );
}

#[test]
fn only_the_tracer_can_read_the_files() {
    let mut house = house(StoreLimits::default());
    house.begin(1000, 1);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&house.settings.records), 0o700);
    assert_eq!(mode(&house.settings.records.join("1000")), 0o700);
    let files = house.files(1000);
    assert_eq!(files.len(), 1);
    assert_eq!(mode(&files[0]), 0o600);
    assert_eq!(
        fs::metadata(&files[0]).unwrap().uid(),
        nix::unistd::geteuid().as_raw()
    );
    assert!(files[0].ends_with("abc@n1-1.jsonl"));
}

#[test]
fn files_are_changed_without_a_gap() {
    let mut house = house(StoreLimits {
        file_bytes: 4000,
        ..StoreLimits::default()
    });
    house.begin(1000, 1);
    for number in 0..100_u32 {
        house
            .trails
            .event(&open(head(1, START), format!("/{number}").as_bytes()));
        if number % 7 == 0 {
            house.trails.flush(now(START));
        }
    }
    house.trails.end(1, "x", 0, now(START)).unwrap();
    let files = house.files(1000);
    assert!(files.len() > 5);
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        assert!(text.len() <= 4000, "{}", text.len());
        let first: Record = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert!(matches!(first.what, What::Header(_)));
    }
    let records = house.read(1000, &Which::All);
    gapless(&records, 1);
    assert_eq!(paths(&records).len(), 100);
}

#[test]
fn a_flooded_trail_keeps_its_beginning_and_its_newest() {
    // The last removal can come at any time, also with the trail's end.
    for events in [700, 730, 760, 790, 3000] {
        flooded(events);
    }
}

fn flooded(events: u32) {
    let limits = StoreLimits {
        file_bytes: 8192,
        user_bytes: 100_000,
        ..StoreLimits::default()
    };
    let mut house = house(limits);
    house.begin(1001, 2);
    house.begin(1000, 1);
    for number in 0..events {
        house
            .trails
            .event(&open(head(1, START), format!("/{number}").as_bytes()));
        if number % 50 == 0 && number < 500 {
            house.trails.flush(now(START + u64::from(number) * SECOND));
        }
    }
    house
        .trails
        .end(1, "x", 0, now(START + 9000 * SECOND))
        .unwrap();
    let bytes: u64 = house
        .files(1000)
        .iter()
        .map(|file| fs::metadata(file).unwrap().len())
        .sum();
    assert!(bytes <= 100_000, "{bytes}");
    assert!(house.files(1000).len() > 2);
    let records = house.read(1000, &Which::All);
    let shown = paths(&records);
    assert_eq!(shown.first().unwrap().0, "/0");
    assert_eq!(shown.last().unwrap().0, format!("/{}", events - 1));
    // What was removed is missing in the numbers, at one place: behind the first file.
    let gaps = records
        .windows(2)
        .filter(|pair| pair[1].seq != pair[0].seq + 1);
    assert_eq!(gaps.count(), 1);
    assert_eq!(records[0].seq, 1);
    // Another user's trail is as it was.
    assert_eq!(house.read(1001, &Which::All).len(), 1);
    assert_eq!(house.trails.state().lost, 0);
}

#[test]
fn a_removed_file_is_empty_for_those_who_have_it_open() {
    let mut house = house(StoreLimits {
        days: 30,
        ..StoreLimits::default()
    });
    house.begin(1000, 1);
    house.trails.end(1, "x", 0, now(START)).unwrap();
    let held = fs::File::open(&house.files(1000)[0]).unwrap();
    assert!(held.metadata().unwrap().len() > 0);
    house.trails.tick(Now {
        boot: START + 7200 * SECOND,
        wall: Now::read().wall + 31.0 * 86_400.0,
    });
    assert!(!house.settings.records.join("1000").exists());
    assert_eq!(held.metadata().unwrap().len(), 0);
}

#[test]
fn who_has_most_gives_when_all_is_full() {
    let limits = StoreLimits {
        file_bytes: 8192,
        total_bytes: 120_000,
        ..StoreLimits::default()
    };
    let mut house = house(limits);
    house.begin(1001, 2);
    house.trails.event(&open(head(2, START), b"/mine"));
    house.trails.flush(now(START));
    house.begin(1000, 1);
    for number in 0..3000_u32 {
        house
            .trails
            .event(&open(head(1, START), format!("/{number}").as_bytes()));
    }
    house.trails.flush(now(START));
    let bytes: u64 = house
        .files(1000)
        .iter()
        .map(|file| fs::metadata(file).unwrap().len())
        .sum();
    assert!(bytes <= 120_000, "{bytes}");
    assert_eq!(
        paths(&house.read(1001, &Which::All)),
        [("/mine".to_string(), 1)]
    );
}

#[test]
fn secrets_are_nowhere_in_the_files() {
    let mut house = house(StoreLimits::default());
    let own = Redaction::new(&["--licence=*".to_string()]).unwrap();
    house
        .trails
        .begin(1, trail(1000, 1), header(), own, now(START))
        .unwrap();
    let about = About::Exec {
        path: b"/bin/x",
        arguments: b"x\0--password=Hunter2\0--licence\0Hunter2\0",
        total: 40,
    };
    house.trails.event(&Event {
        head: Head {
            kind: Kind::Exec,
            ..head(1, START)
        },
        about,
    });
    house.trails.end(1, "x", 0, now(START)).unwrap();
    for file in house.files(1000) {
        let text = fs::read_to_string(file).unwrap();
        assert!(!text.contains("Hunter2"), "{text}");
        assert_eq!(text.matches("[redacted]").count(), 2);
    }
}

#[test]
fn old_files_go() {
    let mut house = house(StoreLimits {
        days: 30,
        ..StoreLimits::default()
    });
    house.begin(1000, 1);
    house.begin(1001, 2);
    house.trails.end(1, "x", 0, now(START)).unwrap();
    // The files are of today; for them to be old, the clock goes on.
    let today = Now::read();
    let later = |days: f64| Now {
        boot: START + 7200 * SECOND,
        wall: today.wall + days * 86_400.0,
    };
    for _ in 0..3 {
        house.trails.tick(later(29.0));
    }
    assert_eq!(house.files(1000).len(), 1);
    for _ in 0..3 {
        house.trails.tick(Now {
            boot: START + 20_000 * SECOND,
            ..later(31.0)
        });
    }
    assert!(!house.settings.records.join("1000").exists());
    assert_eq!(house.files(1001).len(), 1, "it is being written");
}
