use agent_sandbox_events::raw::By;
use proptest::prelude::*;

use super::*;

fn head(time: u64, pid: u32) -> Head {
    Head {
        kind: Kind::Open,
        by: By::Nobody,
        flags: 0,
        time,
        cgroup: 1,
        trace: 1,
        pid,
        tid: pid,
        ppid: 1,
        uid: 1000,
        result: 0,
        comm: [0; 16],
        cpu: 0,
    }
}

fn open(path: &[u8]) -> About<'_> {
    About::Open {
        path,
        inode: 5,
        device: 1,
        open_flags: 0,
        mode: 0,
    }
}

/// What came out: trail, time, path, count.
type Out = Vec<(u32, u64, Vec<u8>, u64)>;

fn put(fold: &mut Fold, out: &mut Out, trail: u32, event: &Event<'_>) {
    let Err(hash) = fold.count(trail, event) else {
        return;
    };
    while !fold.room(event) {
        assert!(fold.oldest(u64::MAX, &mut |waited| note(out, &waited)));
    }
    assert!(fold.keep(trail, event, hash));
}

fn note(out: &mut Out, waited: &Waited<'_>) {
    let path = match waited.event.about {
        About::Open { path, .. } => path.to_vec(),
        _ => Vec::new(),
    };
    out.push((waited.trail, waited.event.head.time, path, waited.count));
}

fn rest(fold: &mut Fold, out: &mut Out, before: u64) {
    while fold.oldest(before, &mut |waited| note(out, &waited)) {}
}

#[test]
fn what_is_alike_is_counted() {
    let (mut fold, mut out) = (Fold::new(), Out::new());
    for time in 0..5 {
        put(
            &mut fold,
            &mut out,
            1,
            &Event {
                head: head(time, 7),
                about: open(b"/a"),
            },
        );
        put(
            &mut fold,
            &mut out,
            1,
            &Event {
                head: head(time, 7),
                about: open(b"/b"),
            },
        );
    }
    // Another process, another trail, another result: others.
    put(
        &mut fold,
        &mut out,
        1,
        &Event {
            head: head(5, 8),
            about: open(b"/a"),
        },
    );
    put(
        &mut fold,
        &mut out,
        2,
        &Event {
            head: head(5, 7),
            about: open(b"/a"),
        },
    );
    let denied = Head {
        result: -13,
        ..head(5, 7)
    };
    put(
        &mut fold,
        &mut out,
        1,
        &Event {
            head: denied,
            about: open(b"/a"),
        },
    );
    // Another thread on another processor: the same.
    let thread = Head {
        tid: 99,
        cpu: 3,
        ..head(6, 7)
    };
    put(
        &mut fold,
        &mut out,
        1,
        &Event {
            head: thread,
            about: open(b"/a"),
        },
    );
    assert_eq!(out, []);
    rest(&mut fold, &mut out, u64::MAX);
    let a = b"/a".to_vec();
    assert_eq!(
        out,
        [
            (1, 0, a.clone(), 6),
            (1, 0, b"/b".to_vec(), 5),
            (1, 5, a.clone(), 1),
            (2, 5, a.clone(), 1),
            (1, 5, a, 1),
        ]
    );
}

#[test]
fn a_second_later_it_is_another_record() {
    let (mut fold, mut out) = (Fold::new(), Out::new());
    for time in [0, SECOND - 1, SECOND, SECOND + 1] {
        put(
            &mut fold,
            &mut out,
            1,
            &Event {
                head: head(time, 7),
                about: open(b"/a"),
            },
        );
    }
    rest(&mut fold, &mut out, SECOND);
    assert_eq!(out, [(1, 0, b"/a".to_vec(), 2)]);
    rest(&mut fold, &mut out, u64::MAX);
    assert_eq!(out[1], (1, SECOND, b"/a".to_vec(), 2));
}

#[test]
fn forks_are_never_counted_together() {
    let (mut fold, mut out) = (Fold::new(), Out::new());
    let fork = Event {
        head: Head {
            kind: Kind::Fork,
            ..head(1, 7)
        },
        about: About::Life,
    };
    put(&mut fold, &mut out, 1, &fork);
    put(&mut fold, &mut out, 1, &fork);
    rest(&mut fold, &mut out, u64::MAX);
    assert_eq!(out.len(), 2);
}

#[test]
fn a_trail_that_ends_takes_its_own() {
    let (mut fold, mut out) = (Fold::new(), Out::new());
    for (trail, path) in [(1, b"/a"), (2, b"/b"), (1, b"/c")] {
        put(
            &mut fold,
            &mut out,
            trail,
            &Event {
                head: head(1, 7),
                about: open(path),
            },
        );
    }
    fold.all_of(1, &mut |waited| note(&mut out, &waited));
    assert_eq!(out.iter().map(|row| row.0).collect::<Vec<_>>(), [1, 1]);
    // What has gone counts nothing any more.
    put(
        &mut fold,
        &mut out,
        1,
        &Event {
            head: head(1, 7),
            about: open(b"/a"),
        },
    );
    rest(&mut fold, &mut out, u64::MAX);
    assert_eq!(out.len(), 4);
    assert_eq!(out[2].0, 2);
    assert_eq!(out[3], (1, 1, b"/a".to_vec(), 1));
}

#[test]
fn memory_is_bounded() {
    let (mut fold, mut out) = (Fold::new(), Out::new());
    let long = vec![b'x'; 4000];
    for number in 0..30_000_u32 {
        let mut path = if number % 3 == 0 {
            long.clone()
        } else {
            b"/short".to_vec()
        };
        path.extend(number.to_ne_bytes());
        put(
            &mut fold,
            &mut out,
            1,
            &Event {
                head: head(number.into(), 7),
                about: open(&path),
            },
        );
        assert!(fold.waiting.len() <= WAITING);
    }
    rest(&mut fold, &mut out, u64::MAX);
    assert_eq!(out.len(), 30_000);
    assert!(out.windows(2).all(|pair| pair[0].1 < pair[1].1), "in order");
    assert!(out.iter().all(|row| {
        row.2
            .ends_with(&u32::try_from(row.1).unwrap().to_ne_bytes())
    }));
    assert!(fold.by_hash.is_empty());
    assert_eq!(fold.text.len(), TEXT);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_is_lost_or_mixed_up(
        events in prop::collection::vec((1_u32..3, 0_u32..3, 0_usize..4, 0_usize..9000, 0_u64..4), 0..400),
        leave in 0_usize..50,
    ) {
        let (mut fold, mut out) = (Fold::new(), Out::new());
        let mut sent = HashMap::new();
        let mut time = 0;
        for (at, (trail, pid, letter, length, later)) in events.iter().enumerate() {
            time += later * SECOND / 3;
            let path = vec![b'a' + u8::try_from(*letter).unwrap(); *length % 5000];
            *sent.entry((*trail, path.clone())).or_insert(0_u64) += 1;
            put(&mut fold, &mut out, *trail, &Event { head: head(time, *pid), about: open(&path) });
            if at % 50 == leave {
                rest(&mut fold, &mut out, time);
            }
            if at % 97 == leave {
                fold.all_of(1, &mut |waited| note(&mut out, &waited));
            }
        }
        rest(&mut fold, &mut out, u64::MAX);
        let mut got = HashMap::new();
        for (trail, _, path, count) in out {
            *got.entry((trail, path)).or_insert(0) += count;
        }
        prop_assert_eq!(got, sent);
    }
}
