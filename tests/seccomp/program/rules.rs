//! What the compiler makes of rules that no table has: their meaning, or an error.

use super::*;

/// Mask of the low half of an argument.
const LOW_32: u64 = 0xffff_ffff;

fn rule(name: &'static str, when: When, answer: Answer) -> SyscallRule {
    SyscallRule {
        name,
        when,
        answer,
        reason: "a test",
    }
}

#[test]
fn rules_that_the_program_would_not_honour_are_refused() {
    let masked = |index, mask, equals| When::ArgMasked {
        index,
        mask,
        equals,
        width32: true,
    };
    let when = masked(1, 0xff, 1);
    for swallowed in [
        [
            rule("ioctl", when, Answer::Perm),
            rule("ioctl", When::Always, Answer::Perm),
        ],
        [
            rule("ioctl", When::Always, Answer::Perm),
            rule("ioctl", when, Answer::Perm),
        ],
        [
            rule("acct", When::Always, Answer::Perm),
            rule("acct", When::Always, Answer::Perm),
        ],
        [
            rule("acct", When::Always, Answer::Perm),
            rule("acct", When::Always, Answer::NoSys),
        ],
        [
            rule("ioctl", when, Answer::Perm),
            rule("ioctl", When::Always, Answer::NoSys),
        ],
    ] {
        assert!(matches!(
            compile(&swallowed),
            Err(SeccompError::NeverCounts(_))
        ));
    }
    for nonsense in [
        masked(6, 0xff, 1),
        masked(1, 0, 0),
        masked(1, 0xf, 0x10),
        masked(1, 1 << 32, 1 << 32),
        When::ArgAnyBit {
            index: 0,
            bits: 0,
            width32: true,
        },
        When::ArgAnyBit {
            index: 0,
            bits: 1 << 32,
            width32: true,
        },
        When::ArgNotIn {
            index: 0,
            values: &[],
            width32: true,
        },
        When::ArgNotIn {
            index: 0,
            values: &[1 << 32],
            width32: true,
        },
        When::All(&[]),
        When::All(&[When::Always]),
    ] {
        let rules = [rule("ioctl", nonsense, Answer::Perm)];
        assert!(
            matches!(compile(&rules), Err(SeccompError::Condition("ioctl", _))),
            "{nonsense:?}"
        );
    }
    assert!(matches!(
        compile(&[rule("no_such_call", When::Always, Answer::Perm)]),
        Err(SeccompError::UnknownSyscall(_))
    ));
}

#[test]
fn sixty_four_bit_conditions_and_combinations_compile_to_their_meaning() {
    let conditions = [
        When::ArgMasked {
            index: 2,
            mask: u64::MAX,
            equals: 0x1_0000_0002,
            width32: false,
        },
        When::ArgAnyBit {
            index: 2,
            bits: 1 << 40 | 1,
            width32: false,
        },
        When::ArgNotIn {
            index: 2,
            values: &[7, 0x7_0000_0000],
            width32: false,
        },
        When::All(&[
            When::ArgAnyBit {
                index: 2,
                bits: 0b110,
                width32: true,
            },
            When::ArgNotIn {
                index: 3,
                values: &[1, 2],
                width32: true,
            },
        ]),
    ];
    let number = u32::try_from(libc::SYS_ioctl).expect("a small number");
    for when in conditions {
        let rules = [rule("ioctl", when, Answer::Perm)];
        let program = Program::from_rules(&rules);
        for arguments in arguments_around(&rules, "ioctl") {
            let expected = if when.holds(&arguments) {
                refused_with(Answer::Perm)
            } else {
                ALLOW
            };
            assert_eq!(
                program.says(number, &arguments),
                expected,
                "{when} {arguments:x?}"
            );
        }
    }
}

#[test]
fn a_call_may_have_an_answer_for_each_condition() {
    let is = |value| When::ArgMasked {
        index: 1,
        mask: LOW_32,
        equals: value,
        width32: true,
    };
    let also = When::ArgMasked {
        index: 1,
        mask: 4,
        equals: 4,
        width32: true,
    };
    // In whatever order they are written; 5 falls under two, and the first answer is given.
    let mut rules = vec![
        rule("ioctl", is(1), Answer::NoProtocol),
        rule("ioctl", is(5), Answer::NoSys),
        rule("ioctl", also, Answer::NoProtocol),
        rule("ioctl", is(2), Answer::Perm),
        rule("acct", When::Always, Answer::NoSys),
        rule("fcntl", is(2), Answer::NoSys),
    ];
    for _ in 0..rules.len() {
        rules.rotate_left(1);
        let program = Program::from_rules(&rules);
        let says = |name, value| {
            let number = number(name).expect("known").expect("there");
            let number = u32::try_from(number).expect("a small number");
            program.says(number, &[0, value, 0, 0, 0, 0])
        };
        for (value, expected) in [
            (1, refused_with(Answer::NoProtocol)),
            (2, refused_with(Answer::Perm)),
            (4, refused_with(Answer::NoProtocol)),
            (5, refused_with(Answer::NoSys)),
            (3, ALLOW),
        ] {
            assert_eq!(says("ioctl", value), expected, "{value}");
        }
        assert_eq!(says("acct", 0), refused_with(Answer::NoSys));
        assert_eq!(says("fcntl", 2), refused_with(Answer::NoSys));
        assert_eq!(says("fcntl", 1), ALLOW);
        assert_eq!(says("socket", 1), ALLOW);
    }
}

#[test]
fn no_rules_still_keep_foreign_calls_out() {
    let program = Program::from_rules(&[]);
    assert_eq!(program.says(0, &[0; 6]), ALLOW);
    assert_eq!(
        program.run(0x4000_0003, 0, &[0; 6]),
        refused_with(Answer::NoSys)
    );
}
