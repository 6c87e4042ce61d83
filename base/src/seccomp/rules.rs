//! The table of refused calls as a filter: what no rule refuses is allowed.

use std::collections::BTreeMap;

use super::error::SeccompError;
use super::numbers::number;
use super::program::{
    Filter, INSTRUCTION_BYTES, MAX_INSTRUCTIONS, Test, Verdict, Width, fits, refused,
};
use crate::plan::model::syscalls::{Answer, SyscallRule, When};

/// Arguments of a system call.
const ARGUMENTS: u8 = 6;

/// Compiles `rules` to the bytes of a `struct sock_filter` array in this machine's layout. Where conditions of two
/// rules for a call hold, the answer that [`Answer`] names first is given.
///
/// # Errors
///
/// See [`SeccompError`]: a table that this module cannot honour in full is refused.
pub fn compile(rules: &[SyscallRule]) -> Result<Vec<u8>, SeccompError> {
    let mut calls: BTreeMap<&'static str, Vec<&SyscallRule>> = BTreeMap::new();
    for rule in rules {
        calls.entry(rule.name).or_default().push(rule);
    }
    let mut filter = Filter::default();
    for (name, mut rules) in calls {
        // A rule that always holds would swallow the others.
        if rules.len() > 1 && rules.iter().any(|rule| rule.when == When::Always) {
            return Err(SeccompError::NeverCounts(name));
        }
        rules.sort_by_key(|rule| rule.answer);
        let verdict = verdict(&rules)?;
        if let Some(number) = number(name)? {
            filter.set(number, verdict);
        }
    }
    let bytes = filter.compile();
    let length = bytes.len() / INSTRUCTION_BYTES;
    if length > MAX_INSTRUCTIONS {
        return Err(SeccompError::TooLong(length));
    }
    Ok(bytes)
}

/// What the rules of one call say.
fn verdict(rules: &[&SyscallRule]) -> Result<Verdict, SeccompError> {
    let mut verdict = Verdict::default();
    for rule in rules {
        let answer = refused(errno(rule.answer));
        if rule.when == When::Always {
            return Ok(Verdict::always(answer));
        }
        let mut tests = Vec::new();
        if !gather(rule.when, &mut tests) || !fits(&tests) {
            return Err(SeccompError::Condition(rule.name, rule.when));
        }
        verdict = verdict.case(&tests, answer);
    }
    Ok(verdict)
}

/// Adds what has to hold for a condition; `false` if it makes no sense.
fn gather(when: When, tests: &mut Vec<Test<'static>>) -> bool {
    let width = |width32| match width32 {
        true => Width::Low,
        false => Width::Full,
    };
    let visible = |width32: bool, value: u64| !width32 || u32::try_from(value).is_ok();
    match when {
        When::Always | When::All([]) => return false,
        When::ArgMasked {
            index,
            mask,
            equals,
            width32,
        } if index < ARGUMENTS && mask != 0 && equals & !mask == 0 && visible(width32, mask) => {
            tests.push(Test::Masked(index, width(width32), mask, equals));
        }
        When::ArgAnyBit {
            index,
            bits,
            width32,
        } if index < ARGUMENTS && bits != 0 && visible(width32, bits) => {
            tests.push(Test::AnyBit(index, width(width32), bits));
        }
        When::ArgNotIn {
            index,
            values,
            width32,
        } if index < ARGUMENTS
            && !values.is_empty()
            && values.iter().all(|value| visible(width32, *value)) =>
        {
            tests.push(Test::NotIn(index, width(width32), values));
        }
        When::All(conditions) => {
            return conditions.iter().all(|condition| gather(*condition, tests));
        }
        When::ArgMasked { .. } | When::ArgAnyBit { .. } | When::ArgNotIn { .. } => return false,
    }
    true
}

/// The errno of an answer.
fn errno(answer: Answer) -> i32 {
    match answer {
        Answer::Perm => libc::EPERM,
        Answer::NoSys => libc::ENOSYS,
        Answer::NoFamily => libc::EAFNOSUPPORT,
        Answer::NoProtocol => libc::EPROTONOSUPPORT,
        Answer::NoSupport => libc::EOPNOTSUPP,
    }
}
