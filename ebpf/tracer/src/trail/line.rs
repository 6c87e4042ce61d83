//! A record as a line, put together so that what is the same in all lines of a trail is made once, and the
//! number comes last: it is given when the line is written.

use std::io::Write as _;

use agent_sandbox_events::record::{Trail, What};

/// The fields of a trail, as they stand in each of its lines: without the braces.
pub(super) fn prefix(trail: &Trail) -> Vec<u8> {
    // A struct of numbers and strings always becomes JSON.
    let mut fields = serde_json::to_vec(trail).unwrap_or_default();
    fields.pop();
    if !fields.is_empty() {
        fields.remove(0);
    }
    fields
}

/// Appends all of a line that stands behind its number.
pub(super) fn body(line: &mut Vec<u8>, time: f64, prefix: &[u8], lost: u64, what: &What) {
    // Writing into memory does not fail.
    line.extend_from_slice(b",\"time\":");
    let _ = serde_json::to_writer(&mut *line, &time);
    line.push(b',');
    line.extend_from_slice(prefix);
    if lost > 0 {
        let _ = write!(line, ",\"lost\":{lost}");
    }
    let at = line.len();
    let _ = serde_json::to_writer(&mut *line, what);
    // Its brace becomes the comma before its first field, `event`, which it always has.
    if let Some(brace) = line.get_mut(at) {
        *brace = b',';
    }
    line.push(b'\n');
}

/// Appends what stands before it.
pub(super) fn number(line: &mut Vec<u8>, seq: u64) {
    let _ = write!(line, "{{\"seq\":{seq}");
}

#[cfg(test)]
mod tests {
    use agent_sandbox_events::record::{Actor, End, Header, Lost, Open, Record, Verdict};
    use proptest::prelude::*;

    use super::*;

    fn same(record: &Record) {
        let mut line = Vec::new();
        number(&mut line, record.seq);
        body(
            &mut line,
            record.time,
            &prefix(&record.trail),
            record.lost,
            &record.what,
        );
        assert_eq!(line.pop(), Some(b'\n'));
        let text = String::from_utf8(line).unwrap();
        assert_eq!(text, serde_json::to_string(record).unwrap());
        let mut read = serde_json::from_str::<Record>(&text).unwrap();
        // Numbers with a point are read to about a quarter of a microsecond.
        assert!((read.time - record.time).abs() < 1e-5);
        read.time = record.time;
        assert_eq!(read, *record);
        assert!(!text.contains('\n'));
    }

    #[test]
    fn a_line_is_the_record() {
        let trail = Trail {
            node: "n1".into(),
            uid: 1000,
            trace: 3,
            ..Trail::default()
        };
        let of = |what| Record {
            seq: 7,
            time: 1_763_803_558.25,
            trail: trail.clone(),
            lost: 0,
            what,
        };
        same(&of(What::Header(Header {
            command: vec!["a\n".into()],
            ..Header::default()
        })));
        same(&Record {
            lost: 5,
            ..of(What::Lost(Lost {
                more: 5,
                why: "x".into(),
            }))
        });
        same(&of(What::End(End::default())));
        same(&of(What::Fork(Actor::default())));
    }

    proptest! {
        #[test]
        fn any_record_is_read_as_it_was_written(
            seq in any::<u64>(),
            time in 0_f64..4e9,
            lost in any::<u64>(),
            node in "\\PC{0,10}",
            session in prop::option::of("\\PC{0,10}"),
            job in any::<Option<u32>>(),
            path in ".{0,30}",
            access in prop::collection::vec("[a-z]{1,5}", 0..3),
            count in 1_u64..,
            inode in any::<u64>(),
        ) {
            let trail = Trail { node, uid: 1, session, job, step: None, trace: 9 };
            let verdict = Verdict { verdict: "allowed".into(), count, ..Verdict::default() };
            let actor = Actor { pid: 1, ppid: 2, comm: path.clone(), ..Actor::default() };
            let open = Open { actor, path, access, hidden: false, device: None, inode, verdict };
            same(&Record { seq, time, trail, lost, what: What::Open(open) });
        }
    }
}
