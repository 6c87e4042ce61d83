//! The two halves of the layout agree: `ebpf/probes/events.h`, which the probes are made of, and
//! `agent_sandbox_events::raw`, which reads what they write.

use std::collections::BTreeMap;

use agent_sandbox_events::raw::{self, About, By, Event, Kind, flags, trace_flags};

const HEADER: &str = include_str!("../../probes/events.h");

/// The constants whose names begin so, by what follows.
fn constants(prefix: &str) -> BTreeMap<&'static str, u64> {
    HEADER
        .lines()
        .filter_map(|line| {
            let (name, value) = line.strip_prefix("#define ")?.split_once(' ')?;
            Some((name.strip_prefix(prefix)?, value.parse().ok()?))
        })
        .collect()
}

fn constant(name: &str) -> u64 {
    *constants(name)
        .get("")
        .unwrap_or_else(|| panic!("{name} is not in events.h"))
}

/// Where each field of a structure is: offset and size, in bytes; and the size of the whole.
struct Layout {
    fields: BTreeMap<&'static str, (usize, usize)>,
    size: usize,
}

impl Layout {
    fn of(name: &str) -> Layout {
        let text = HEADER
            .split_once(&format!("struct {name} {{\n"))
            .unwrap_or_else(|| panic!("struct {name} is not in events.h"))
            .1;
        let text = text.split_once("\n};").expect("an end").0;
        let mut layout = Layout {
            fields: BTreeMap::new(),
            size: 0,
        };
        for line in text.lines() {
            let Some(declaration) = line.trim().split_once(';').map(|parts| parts.0) else {
                continue;
            };
            let (kind, field) = declaration.rsplit_once(' ').expect("a type and a name");
            let (size, alignment) = match kind {
                "u8" => (1, 1),
                "u16" => (2, 2),
                "u32" | "s32" => (4, 4),
                "u64" | "s64" => (8, 8),
                "char" => (16, 1),
                "struct head" => (Layout::of("head").size, 8),
                other => panic!("{name}: a field of type {other}"),
            };
            let field = field.split('[').next().unwrap_or(field);
            layout.size = layout.size.next_multiple_of(alignment);
            layout.fields.insert(field, (layout.size, size));
            layout.size += size;
        }
        layout
    }

    /// Writes a number into a field.
    fn put(&self, bytes: &mut [u8], field: &str, value: u64) {
        let (at, size) = self.fields[field];
        bytes[at..at + size].copy_from_slice(&value.to_ne_bytes()[..size]);
    }
}

/// An event of that kind as the probes make it: each field of the head holds a number of its own, and `rest`
/// those of the payload; `text` follows.
fn event(kind: Kind, name: &str, rest: &[(&str, u64)], text: &[u8]) -> Vec<u8> {
    let (head, layout) = (Layout::of("head"), Layout::of(name));
    let mut bytes = vec![0xa5; layout.size];
    let numbers = [
        ("size", (layout.size + text.len()) as u64),
        ("kind", kind as u64),
        ("by", constant("BY_SECCOMP")),
        (
            "flags",
            constant("FLAG_TRUNCATED") | constant("FLAG_WORKER"),
        ),
        ("time", 0x0102_0304_0506_0708),
        ("cgroup", 0x1112_1314_1516_1718),
        ("trace", 21),
        ("pid", 22),
        ("tid", 23),
        ("ppid", 24),
        ("uid", 25),
        ("result", u64::MAX - 12),
        ("cpu", 26),
    ];
    for (field, value) in numbers {
        head.put(&mut bytes, field, value);
    }
    let (at, size) = head.fields["comm"];
    bytes[at..at + size].copy_from_slice(b"a thread\0\0\0\0\0\0\0\0");
    for (field, value) in rest {
        layout.put(&mut bytes, field, *value);
    }
    bytes.extend_from_slice(text);
    bytes
}

fn parsed(bytes: &[u8]) -> Event<'_> {
    let event = raw::parse(bytes).expect("an event");
    let head = event.head;
    assert_eq!(
        (head.by, head.flags, head.time, head.cgroup),
        (
            By::Seccomp,
            flags::TRUNCATED | flags::WORKER,
            0x0102_0304_0506_0708,
            0x1112_1314_1516_1718
        )
    );
    assert_eq!(
        (head.trace, head.pid, head.tid, head.ppid, head.uid),
        (21, 22, 23, 24, 25)
    );
    assert_eq!((head.result, head.cpu), (-13, 26));
    assert_eq!(head.command(), b"a thread");
    event
}

#[test]
fn kinds_and_operations_have_the_same_numbers() {
    let named = |name: &str| name.to_uppercase();
    for kind in Kind::ALL {
        assert_eq!(
            constant(&format!("KIND_{}", named(kind.name()))),
            kind as u64
        );
    }
    assert_eq!(constant("KINDS"), Kind::ALL.len() as u64);
    assert_eq!(constants("KIND_").len(), Kind::ALL.len());
    for (number, name) in raw::OPERATIONS.iter().enumerate() {
        assert_eq!(constant(&format!("OP_{}", named(name))), number as u64);
    }
    assert_eq!(constant("OPERATIONS"), raw::OPERATIONS.len() as u64);
    assert_eq!(constants("OP_").len(), raw::OPERATIONS.len());
}

#[test]
fn flags_and_limits_have_the_same_numbers() {
    let of_events = [
        ("TRUNCATED", flags::TRUNCATED),
        ("UNRESOLVED", flags::UNRESOLVED),
        ("FROM_USER", flags::FROM_USER),
        ("WOULD_DENY", flags::WOULD_DENY),
        ("TAIL", flags::TAIL),
        ("SET_ID", flags::SET_ID),
        ("REVERSED", flags::REVERSED),
        ("WORKER", flags::WORKER),
        ("BEGUN_BEFORE", flags::BEGUN_BEFORE),
    ];
    let of_events: BTreeMap<_, _> = of_events.map(|(name, bit)| (name, u64::from(bit))).into();
    assert_eq!(constants("FLAG_"), of_events);
    let of_traces = [
        ("RECORD", trace_flags::RECORD),
        ("ENFORCE", trace_flags::ENFORCE),
        ("AUDIT", trace_flags::AUDIT),
        ("NO_INTERNET", trace_flags::NO_INTERNET),
        ("NO_USER_NAMESPACE", trace_flags::NO_USER_NAMESPACE),
        ("MISSING", trace_flags::MISSING),
    ];
    let of_traces: BTreeMap<_, _> = of_traces.map(|(name, bit)| (name, u64::from(bit))).into();
    assert_eq!(constants("TRACE_"), of_traces);
    assert_eq!(constant("EVENT_BYTES"), raw::EVENT_BYTES as u64);
    assert_eq!(constant("ARGUMENT_HEAD"), raw::ARGUMENT_HEAD as u64);
    assert_eq!(constants("BY_").len(), 5, "raw::By has five");
}

#[test]
fn heads_are_read_from_where_the_probes_write_them() {
    let fork = event(Kind::Fork, "head", &[], b"");
    assert_eq!(fork.len(), 72);
    assert_eq!(parsed(&fork).about, About::Life);
    for (by, number) in [
        (By::Nobody, constant("BY_NOBODY")),
        (By::Permissions, constant("BY_PERMISSIONS")),
        (By::SecurityModule, constant("BY_SECURITY_MODULE")),
        (By::Tracer, constant("BY_TRACER")),
        (By::Seccomp, constant("BY_SECCOMP")),
    ] {
        let mut exit = event(Kind::Exit, "head", &[], b"");
        Layout::of("head").put(&mut exit, "by", number);
        assert_eq!(raw::parse(&exit).map(|event| event.head.by), Ok(by));
    }
}

#[test]
fn payloads_are_read_from_where_the_probes_write_them() {
    let numbers = [
        ("path_bytes", 5),
        ("argument_bytes", 4),
        ("argument_total", 999),
    ];
    let exec = event(Kind::Exec, "exec", &numbers, b"/a/b\0c\0d\0");
    let about = About::Exec {
        path: b"/a/b",
        arguments: b"c\0d\0",
        total: 999,
    };
    assert_eq!(parsed(&exec).about, about);

    let numbers = [
        ("inode", 1 << 40),
        ("device", 31),
        ("open_flags", 32),
        ("mode", 33),
        ("path_bytes", 5),
    ];
    let open = event(Kind::Open, "opened", &numbers, b"/a/b\0");
    let about = About::Open {
        path: b"/a/b",
        inode: 1 << 40,
        device: 31,
        open_flags: 32,
        mode: 33,
    };
    assert_eq!(parsed(&open).about, about);

    let numbers = [
        ("family", 41),
        ("type", 42),
        ("protocol", 43),
        ("address_bytes", 3),
    ];
    for kind in [Kind::Connect, Kind::Listen] {
        let address = event(kind, "address", &numbers, b"xyz");
        let about = About::Address {
            family: 41,
            kind: 42,
            protocol: 43,
            address: b"xyz",
        };
        assert_eq!(parsed(&address).about, about);
    }

    let numbers = [
        ("what", 3),
        ("first", 1 << 50),
        ("second", 51),
        ("third", 52),
        ("path_bytes", 3),
        ("other_bytes", 2),
    ];
    let operation = event(Kind::Operation, "operation", &numbers, b"/p\0q\0");
    let about = About::Operation {
        what: 3,
        numbers: [1 << 50, 51, 52],
        path: b"/p",
        other: b"q",
    };
    assert_eq!(parsed(&operation).about, about);
}
