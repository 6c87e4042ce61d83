//! Reading back.

use super::*;

#[test]
fn everybody_gets_their_own_and_root_gets_all() {
    let mut house = house(StoreLimits::default());
    house.begin(1000, 1);
    house.begin(1001, 2);
    assert_eq!(house.read(1000, &Which::All).len(), 1);
    assert_eq!(house.read(0, &Which::All).len(), 2);
    assert_eq!(house.read(1000, &Which::Trace(2)), []);
    assert_eq!(house.read(1002, &Which::All), []);
    let uids = |viewer| {
        let listed = house.list(viewer);
        listed.iter().map(|row| row.trail.uid).collect::<Vec<_>>()
    };
    assert_eq!(uids(1001), [1001]);
    assert_eq!(uids(0).len(), 2);
    assert!(uids(1002).is_empty());
    // Whatever is asked for by its name, which can be guessed.
    let name = house.files(1001)[0].file_name().unwrap().to_owned();
    let open =
        |viewer, uid, name: &str| house.trails.open_file(viewer, uid, name).unwrap().is_some();
    let name = name.to_str().unwrap();
    assert!(open(1001, 1001, name) && open(0, 1001, name));
    assert!(!open(1000, 1001, name) && !open(1000, 1000, &format!("../1001/{name}")));
    assert!(!open(0, 1001, "..") && !open(0, 1001, ""));
}

#[test]
fn who_gets_a_file_can_only_read_it() {
    let mut house = house(StoreLimits::default());
    house.begin(1000, 1);
    let name = house.files(1000)[0].file_name().unwrap().to_owned();
    let file = house
        .trails
        .open_file(1000, 1000, name.to_str().unwrap())
        .unwrap();
    let file = fs::File::from(file.unwrap());
    assert!(nix::unistd::write(&file, b"x").is_err());
    assert!(file.set_len(0).is_err());
    let flags = nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_GETFL).unwrap();
    assert_eq!(flags & libc::O_ACCMODE, libc::O_RDONLY);
}

#[test]
fn files_are_listed_in_parts() {
    let mut house = house(StoreLimits::default());
    house.begin(1000, 1);
    house.begin(1001, 2);
    let mine = house.files(1000).remove(0);
    // As other nodes leave them in a directory that they share.
    for number in 0..4000 {
        fs::write(mine.with_file_name(format!("x{number}@n9-1.jsonl")), "").unwrap();
    }
    let (mut all, mut parts) = (Vec::new(), 0);
    loop {
        let after = all
            .last()
            .map(|last: &TrailFile| (last.uid, last.name.clone()));
        let more = house.trails.files(0, &Which::All, after.as_ref()).unwrap();
        if more.is_empty() {
            break;
        }
        let packet = agent_sandbox_events::protocol::Response::Files(more.clone());
        assert!(agent_sandbox_events::client::encode(&packet).is_ok());
        all.extend(more);
        parts += 1;
    }
    assert!(parts > 1);
    assert_eq!(all.len(), 4002);
    assert_eq!(all.last().unwrap().uid, 1001);
    assert_eq!(house.list(1001).len(), 1);
    assert_eq!(house.read(0, &Which::Session("abc".into())).len(), 2);
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
        .begin(1, job("n1", 1), header(), Redaction::default(), now(START))
        .unwrap();
    other
        .begin(
            1,
            job("n-2", 1),
            header(),
            Redaction::default(),
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
        .list(1000)
        .into_iter()
        .map(|row| (row.trail.node, row.live))
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
fn what_is_no_trail_is_left_out() {
    let mut house = house(StoreLimits::default());
    house.begin(1000, 1);
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
    assert_eq!(house.list(0).len(), 1);
}
