//! A refused system call: its condition, its answer and its reason.

use std::fmt;

use serde::Serialize;

/// What a refused call returns to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Answer {
    /// EOPNOTSUPP: the socket does not take this flag. The first of all, because rules stand in the
    /// program by their answers, and calls that send are the most frequent that have rules.
    #[serde(rename = "EOPNOTSUPP")]
    NoSupport,
    /// EPERM: the call exists and is not permitted.
    #[serde(rename = "EPERM")]
    Perm,
    /// ENOSYS: as on a kernel without the call. Chosen where libraries then take another way.
    #[serde(rename = "ENOSYS")]
    NoSys,
    /// EAFNOSUPPORT: as on a kernel without the socket family.
    #[serde(rename = "EAFNOSUPPORT")]
    NoFamily,
    /// EPROTONOSUPPORT: as on a kernel without this type of socket in this family.
    #[serde(rename = "EPROTONOSUPPORT")]
    NoProtocol,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Perm => "EPERM",
            Self::NoSys => "ENOSYS",
            Self::NoFamily => "EAFNOSUPPORT",
            Self::NoProtocol => "EPROTONOSUPPORT",
            Self::NoSupport => "EOPNOTSUPP",
        })
    }
}

/// The arguments under which a rule holds. Arguments are counted from 0.
///
/// `width32` compares the low half of the argument only. It is right wherever the kernel takes an
/// `int` and drops the high half: comparing all 64 bits there would let a caller pass by setting a
/// high bit that the kernel then ignores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum When {
    /// Whatever the arguments.
    Always,
    /// `argument & mask == equals`.
    ArgMasked {
        /// Which argument, from 0.
        index: u8,
        /// The bits that are compared.
        mask: u64,
        /// Their value; has no bit outside of `mask`.
        equals: u64,
        /// Whether the low 32 bits alone are looked at.
        width32: bool,
    },
    /// At least one of `bits` is set in the argument.
    ArgAnyBit {
        /// Which argument, from 0.
        index: u8,
        /// The bits, one rule each in the kernel's program.
        bits: u64,
        /// Whether the low 32 bits alone are looked at.
        width32: bool,
    },
    /// The argument is none of `values`.
    ArgNotIn {
        /// Which argument, from 0.
        index: u8,
        /// The permitted values.
        values: &'static [u64],
        /// Whether the low 32 bits alone are looked at.
        width32: bool,
    },
    /// All of the conditions hold.
    All(&'static [When]),
}

/// How a caller passes six arguments to the kernel.
pub type Arguments = [u64; 6];

impl When {
    /// Whether a call with `arguments` falls under the condition: the meaning of the table, against
    /// which the compiled program is tested. An argument index past the sixth never holds.
    #[must_use]
    pub fn holds(&self, arguments: &Arguments) -> bool {
        let argument = |index: u8, width32: bool| {
            let value = arguments.get(usize::from(index)).copied();
            if width32 { value.map(low_half) } else { value }
        };
        match *self {
            Self::Always => true,
            Self::ArgMasked {
                index,
                mask,
                equals,
                width32,
            } => argument(index, width32).is_some_and(|value| value & mask == equals),
            Self::ArgAnyBit {
                index,
                bits,
                width32,
            } => argument(index, width32).is_some_and(|value| value & bits != 0),
            Self::ArgNotIn {
                index,
                values,
                width32,
            } => argument(index, width32).is_some_and(|value| !values.contains(&value)),
            Self::All(conditions) => conditions
                .iter()
                .all(|condition| condition.holds(arguments)),
        }
    }
}

/// The low 32 bits of an argument.
const fn low_half(value: u64) -> u64 {
    value & LOW_HALF
}

/// Mask of the low 32 bits of an argument.
pub const LOW_HALF: u64 = 0xffff_ffff;

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Always => f.write_str("always"),
            Self::ArgMasked {
                index,
                mask: LOW_HALF | u64::MAX,
                equals,
                ..
            } => {
                write!(f, "argument {index} is {equals:#x}")
            }
            Self::ArgMasked {
                index,
                mask,
                equals,
                ..
            } => {
                write!(f, "argument {index} & {mask:#x} is {equals:#x}")
            }
            Self::ArgAnyBit { index, bits, .. } => {
                write!(f, "argument {index} has a bit of {bits:#x}")
            }
            Self::ArgNotIn { index, values, .. } => {
                write!(f, "argument {index} is not one of ")?;
                joined(f, values.iter().map(|value| format!("{value:#x}")), ", ")
            }
            Self::All(conditions) => joined(f, conditions.iter().map(When::to_string), " and "),
        }
    }
}

/// Writes `parts` with `between` between them.
fn joined(
    f: &mut fmt::Formatter<'_>,
    parts: impl Iterator<Item = String>,
    between: &str,
) -> fmt::Result {
    for (position, part) in parts.enumerate() {
        if position > 0 {
            f.write_str(between)?;
        }
        f.write_str(&part)?;
    }
    Ok(())
}

/// One refused call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SyscallRule {
    /// The kernel's name of the call, as in `syscalls(2)`.
    pub name: &'static str,
    /// The arguments under which it is refused.
    pub when: When,
    /// What the caller gets.
    pub answer: Answer,
    /// Why, for a person.
    pub reason: &'static str,
}

/// A rule that holds whatever the arguments.
#[must_use]
pub const fn always(name: &'static str, answer: Answer, reason: &'static str) -> SyscallRule {
    SyscallRule {
        name,
        when: When::Always,
        answer,
        reason,
    }
}

/// A rule that holds under a condition.
#[must_use]
pub const fn on(
    name: &'static str,
    when: When,
    answer: Answer,
    reason: &'static str,
) -> SyscallRule {
    SyscallRule {
        name,
        when,
        answer,
        reason,
    }
}

/// `argument == value`, for an argument that the kernel takes as `int`.
#[must_use]
pub const fn int_is(index: u8, value: u64) -> When {
    When::ArgMasked {
        index,
        mask: LOW_HALF,
        equals: value,
        width32: true,
    }
}

/// Why calls of a foreign ABI (i386 on x86-64, 32-bit Arm on aarch64, x32) get ENOSYS. The rules of
/// the table are numbers of one ABI; the same number means another call in the next.
pub const FOREIGN_ABI_REASON: &str = "32-bit and x32 programs use other call numbers, which would pass by every rule here; \
     what runs on a cluster is 64-bit";
