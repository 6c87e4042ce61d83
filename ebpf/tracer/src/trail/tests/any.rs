//! Whatever comes in.

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_raw_bytes_are_taken(
        events in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..400), 0_u8..9, any::<u32>()), 0..40),
    ) {
        let mut house = house(StoreLimits { file_bytes: 20_000, ..StoreLimits::default() });
        house.begin(1000, 1);
        let mut taken = 0;
        for (mut bytes, kind, number) in events {
            if bytes.len() > 100 {
                // As the kernel would frame them.
                let size = u32::try_from(bytes.len()).unwrap();
                bytes[..4].copy_from_slice(&size.to_ne_bytes());
                bytes[4] = kind;
                bytes[5] %= 5;
                bytes[24..28].copy_from_slice(&1_u32.to_ne_bytes());
                let length = number % 200;
                for at in [72, 76, 84, 92, 112] {
                    if number & 1 << (at % 31) != 0 && at + 4 <= bytes.len() {
                        bytes[at..at + 4].copy_from_slice(&(length / 3).to_ne_bytes());
                    }
                }
            }
            if let Ok(event) = parse(&bytes) {
                house.trails.event(&event);
                taken += u64::from(event.head.trace == 1 && !what::missing(&event));
            }
        }
        house.trails.end(1, "x", 0, now(START)).unwrap();
        let records = house.read(1000, &Which::All);
        gapless(&records, 1);
        let counted: u64 = records.iter().map(|record| match &record.what {
            What::Header(_) | What::End(_) => 0,
            What::Exec(exec) => exec.verdict.count,
            What::Open(open) => open.verdict.count,
            What::Connect(peer) | What::Listen(peer) => peer.verdict.count,
            What::Operation(operation) => operation.verdict.count,
            _ => 1,
        }).sum();
        prop_assert_eq!(counted, taken);
    }

    #[test]
    fn a_line_is_never_too_long(byte in any::<u8>(), reversed in any::<bool>(), other in any::<u8>()) {
        let mut house = house(StoreLimits::default());
        let mut mine = header();
        mine.command = vec![char::from(byte).to_string().repeat(20_000), "x".repeat(8000)];
        house.trails.begin(1, trail(1000, 1), mine, Redaction::default(), now(START)).unwrap();
        let (path, arguments) = (vec![byte; 4095], vec![other; 4000]);
        let flags = if reversed { flags::REVERSED } else { 0 };
        let exec = About::Exec { path: &path, arguments: &arguments, total: 4000 };
        let link = About::Operation { what: 14, numbers: [0; 3], path: &path, other: &arguments };
        house.trails.event(&Event { head: Head { kind: Kind::Exec, flags, ..head(1, START) }, about: exec });
        house.trails.event(&Event { head: Head { kind: Kind::Operation, flags, ..head(1, START) }, about: link });
        house.trails.end(1, "x", 0, now(START)).unwrap();
        // The reader leaves out what is longer.
        let records = house.read(1000, &Which::All);
        prop_assert_eq!(records.len(), 4);
        gapless(&records, 1);
    }
}
