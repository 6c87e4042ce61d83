//! The modes of files in the compiled program: no set-user-ID and no set-group-ID bit passes, and no
//! other mode is kept.

use super::*;

/// What the program says to the call, `None` on an architecture without it.
fn says(program: &Program, name: &'static str, given: &[(usize, u64)]) -> Option<u32> {
    let number = number(name).expect("a known name")?;
    let mut arguments = [0; 6];
    given.iter().for_each(|(at, value)| arguments[*at] = *value);
    Some(program.says(u32::try_from(number).expect("a small number"), &arguments))
}

/// High halves that the kernel ignores.
const HIGH: [u64; 4] = [0, 1 << 32, 1 << 63, 0xffff_ffff_0000_0000];

/// Every mode of 16 bits, the width of the kernel's `umode_t`.
fn every_mode() -> impl Iterator<Item = u64> {
    0..1 << 16
}

fn verdict(mode: u64) -> u32 {
    let set_id = u64::from(libc::S_ISUID | libc::S_ISGID);
    if mode & set_id == 0 {
        ALLOW
    } else {
        refused_with(Answer::Perm)
    }
}

#[test]
fn every_mode_is_judged_by_its_set_id_bits() {
    for switches in every_switch() {
        let program = Program::of(switches);
        for (name, at) in [
            ("chmod", 1),
            ("fchmod", 1),
            ("fchmodat", 2),
            ("fchmodat2", 2),
            ("creat", 1),
            ("mknod", 1),
            ("mknodat", 2),
        ] {
            for mode in every_mode().step_by(0o200) {
                for high in HIGH {
                    let said = says(&program, name, &[(at, mode | high)]);
                    // A mediator looks at what gets the one bit.
                    let mediated = switches.mediated && name.contains("chmod");
                    let expected = verdict(if mediated { mode & !0o2000 } else { mode });
                    assert!(said.is_none_or(|said| said == expected), "{name} {mode:o}");
                }
            }
        }
    }
}

#[test]
fn an_open_file_that_is_not_created_may_have_anything_for_a_mode() {
    let creat = u64::from(libc::O_CREAT.unsigned_abs());
    let unnamed = u64::from((libc::O_TMPFILE & !libc::O_DIRECTORY).unsigned_abs());
    assert!(creat.is_power_of_two() && unnamed.is_power_of_two());
    for program in every_switch().map(Program::of) {
        for (name, at) in [("open", 1), ("openat", 2)] {
            let says = |flags, mode| says(&program, name, &[(at, flags), (at + 1, mode)]);
            let all = !(creat | unnamed);
            for flags in [0, 1, 2, all, all & 0xffff_ffff, creat << 32, unnamed << 32] {
                for mode in [0o4755, 0o2000, 0o6000, 0xffff_ffff, u64::MAX] {
                    assert!(
                        says(flags, mode).is_none_or(|said| said == ALLOW),
                        "{name} {flags:#x} {mode:#x}"
                    );
                }
            }
            for creating in [creat, unnamed, creat | unnamed, creat | 2, unnamed | all] {
                for mode in every_mode().step_by(0o200) {
                    for high in HIGH {
                        assert!(
                            says(creating | high, mode | high)
                                .is_none_or(|said| said == verdict(mode)),
                            "{name} {creating:#x} {mode:o} {high:#x}"
                        );
                    }
                }
            }
        }
        let said = says(&program, "openat2", &[]);
        assert_eq!(said, Some(refused_with(Answer::NoSys)));
    }
}
