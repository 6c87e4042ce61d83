//! Reading back.

use super::*;

#[test]
fn everybody_gets_their_own_and_root_gets_all() {
    let mut house = house(StoreLimits::default());
    house.begin(1000, 1, None);
    house.begin(1001, 2, None);
    assert_eq!(house.read(1000, &Which::All).len(), 1);
    assert_eq!(house.read(0, &Which::All).len(), 2);
    assert_eq!(house.read(1000, &Which::Trace(2)), []);
    assert_eq!(house.read(1002, &Which::All), []);
    let uids = |listed: Vec<Listed>| listed.iter().map(|row| row.uid).collect::<Vec<_>>();
    assert_eq!(uids(house.trails.list(1001).unwrap()), [1001]);
    assert_eq!(house.trails.list(0).unwrap().len(), 2);
    assert_eq!(house.trails.list(1002).unwrap(), []);
    assert_eq!(
        house.trails.newest(1000).unwrap(),
        Some(Which::Session("abc".into()))
    );
    assert_eq!(house.trails.newest(1002).unwrap(), None);
}

#[test]
fn trails_of_all_nodes_are_read_in_order() {
    let mut house = house(StoreLimits {
        file_bytes: 3000,
        ..StoreLimits::default()
    });
    let settings = Settings {
        node: "n-2".into(),
        ..house.settings.clone()
    };
    let mut other = Trails::open(&settings, now(START)).unwrap();
    let job = |node: &str, trace| Trail {
        node: node.into(),
        job: Some(42),
        step: Some("0".into()),
        ..trail(1000, trace)
    };
    house
        .trails
        .begin(
            1,
            job("n1", 1),
            header(),
            Redaction::default(),
            None,
            now(START),
        )
        .unwrap();
    other
        .begin(
            1,
            job("n-2", 1),
            header(),
            Redaction::default(),
            None,
            now(START + SECOND / 100),
        )
        .unwrap();
    for number in 0..40_u64 {
        let (trails, letter) = if number % 3 == 0 {
            (&mut other, 'o')
        } else {
            (&mut house.trails, 't')
        };
        trails.event(&open(
            head(1, START + number * SECOND / 10),
            format!("/{letter}{number}").as_bytes(),
        ));
    }
    house
        .trails
        .end(1, "x", 0, now(START + 9 * SECOND))
        .unwrap();
    other.flush(now(START + 9 * SECOND));
    let records = house.read(1000, &Which::Job(42));
    let numbers: Vec<String> = paths(&records)
        .into_iter()
        .map(|row| row.0[2..].to_string())
        .collect();
    assert_eq!(
        numbers,
        (0..40).map(|number| number.to_string()).collect::<Vec<_>>()
    );
    for node in ["n1", "n-2"] {
        let of: Vec<Record> = records
            .iter()
            .filter(|record| record.trail.node == node)
            .cloned()
            .collect();
        gapless(&of, 1);
    }
    // The other node's goes on as far as can be told from here.
    let live: Vec<(String, bool)> = house
        .trails
        .list(1000)
        .unwrap()
        .into_iter()
        .map(|row| (row.node, row.live))
        .collect();
    assert_eq!(live, [("n-2".to_string(), true), ("n1".to_string(), false)]);
    assert_eq!(house.read(1000, &Which::Job(4)), []);
    // A trace's number is this node's.
    assert!(
        house
            .read(1000, &Which::Trace(1))
            .iter()
            .all(|record| record.trail.node == "n1")
    );
}

#[test]
fn who_follows_gets_what_reading_back_does_not_hold() {
    let mut house = house(StoreLimits::default());
    house.begin(1000, 1, None);
    house.trails.event(&open(head(1, START), b"/before"));
    house.trails.flush(now(START));
    house.trails.watch(true);
    house.trails.live(&mut |_, _| panic!("nothing is new"));
    let mut reader = house.trails.reader(1000, &Which::Newest).unwrap();
    house.trails.event(&open(head(1, START), b"/after"));
    house.trails.flush(now(START));
    let mut all = Vec::new();
    while let Some(lines) = reader.next(LINE_BYTES).unwrap() {
        all.extend(lines);
    }
    house.trails.live(&mut |trail, line| {
        assert_eq!(trail.trace, 1);
        all.extend_from_slice(line);
    });
    let records: Vec<Record> = String::from_utf8(all)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    gapless(&records, 1);
    assert_eq!(paths(&records).len(), 2);
}

#[test]
fn what_is_no_trail_is_left_out() {
    let mut house = house(StoreLimits::default());
    house.begin(1000, 1, None);
    let directory = house.settings.records.join("1000");
    fs::write(directory.join("abc@n1-7.jsonl"), "no json\n").unwrap();
    fs::write(directory.join("abc@n1-8.jsonl"), "").unwrap();
    fs::write(directory.join("other"), "x").unwrap();
    let mine = fs::read(&house.files(1000)[0]).unwrap();
    // Another user's, in this directory: by whom it is counted is not what a file says.
    let foreign = String::from_utf8(mine)
        .unwrap()
        .replace("\"uid\":1000", "\"uid\":1001");
    fs::write(directory.join("abc@n1-9.jsonl"), foreign).unwrap();
    assert_eq!(house.read(1000, &Which::All).len(), 1);
    assert_eq!(house.trails.list(0).unwrap().len(), 1);
}
