//! `--export`: which variables of the shell's a job or a step gets (`sbatch(1)`, `srun(1)`).
//!
//! The environment of the real command is another one, written by the chaperon; what is chosen here
//! travels in the capsule, as data.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::variables::{Variables, set};

/// Prefixes of names that go with every list, as Slurm has it (`env_array_merge_slurm()` in
/// `src/common/env.c`).
const ALWAYS: [&[u8]; 2] = [b"SLURM_", b"SPANK_"];

/// Variables that a list without `ALL` brings along. Slurm has a login shell give them, outside
/// the jail (`--get-user-env`); here they are the shell's own.
const LOGIN: [&str; 6] = ["HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG"];

/// Which of two values a variable gets that the shell has and a list with `ALL` sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wins {
    /// The one that comes later in the list, where `ALL` stands for the shell's: sbatch.
    Later,
    /// The shell's: srun.
    Shell,
}

/// The variables of `environment` that `list` lets through; without a list all of them.
pub(super) fn exported(list: Option<&OsStr>, environment: &Variables, wins: Wins) -> Variables {
    let Some(list) = list else {
        return environment.clone();
    };
    let bytes = list.as_bytes();
    if bytes.eq_ignore_ascii_case(b"ALL") {
        return environment.clone();
    }
    let get = |name: &OsStr| {
        let mut found = environment.iter().filter(|(known, _)| known == name);
        found.next().map(|(_, value)| value.clone())
    };
    let mut chosen = Variables::new();
    for name in LOGIN {
        if let Some(value) = get(OsStr::new(name)) {
            set(&mut chosen, OsStr::new(name), value);
        }
    }
    for (name, value) in environment {
        if ALWAYS
            .iter()
            .any(|prefix| name.as_bytes().starts_with(prefix))
        {
            set(&mut chosen, name, value.clone());
        }
    }
    // Alone these two name no variables.
    if bytes.eq_ignore_ascii_case(b"NONE") || bytes.eq_ignore_ascii_case(b"NIL") {
        return chosen;
    }
    let mut all = false;
    for word in words(bytes) {
        if word.eq_ignore_ascii_case(b"ALL") {
            match wins {
                Wins::Later => merge(&mut chosen, environment),
                Wins::Shell => all = true,
            }
        } else if let Some(at) = word.iter().position(|&byte| byte == b'=') {
            // Quotes hold a value with commas together; they stay in it, as Slurm leaves them.
            if at > 0 {
                set(
                    &mut chosen,
                    OsStr::from_bytes(&word[..at]),
                    os(&word[at + 1..]),
                );
            }
        } else if let Some(value) = get(OsStr::from_bytes(word)) {
            set(&mut chosen, OsStr::from_bytes(word), value);
        }
    }
    if all {
        merge(&mut chosen, environment);
    }
    chosen
}

fn merge(chosen: &mut Variables, environment: &Variables) {
    for (name, value) in environment {
        set(chosen, name, value.clone());
    }
}

fn os(bytes: &[u8]) -> OsString {
    OsStr::from_bytes(bytes).to_owned()
}

/// The elements of a list: at commas outside quotes (`find_quote_token()` in `src/common/env.c`).
fn words(list: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    let mut quote = None;
    let mut from = 0;
    for (at, &byte) in list.iter().enumerate() {
        match (quote, byte) {
            (None, b'\'' | b'"') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            (None, b',') => {
                all.push(&list[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    all.push(&list[from..]);
    all.retain(|word| !word.is_empty());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment() -> Variables {
        [
            ("FOO", "1"),
            ("BAR", "a,b"),
            ("SLURM_X", "s"),
            ("HOME", "/h"),
            ("PATH", "/bin"),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .to_vec()
    }

    fn by(list: &str) -> Vec<String> {
        sorted(list, Wins::Later)
    }

    fn sorted(list: &str, wins: Wins) -> Vec<String> {
        let mut all: Vec<String> = exported(Some(OsStr::new(list)), &environment(), wins)
            .into_iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .filter(|entry| !["HOME=/h", "PATH=/bin", "SLURM_X=s"].contains(&entry.as_str()))
            .collect();
        all.sort();
        all
    }

    #[test]
    fn everything_by_default() {
        assert_eq!(exported(None, &environment(), Wins::Later), environment());
        assert_eq!(by("all"), ["BAR=a,b", "FOO=1"]);
    }

    #[test]
    fn nothing_but_what_belongs_to_slurm() {
        for list in ["NONE", "NIL", "none", ""] {
            assert!(by(list).is_empty(), "{list}");
            let names: Vec<OsString> =
                exported(Some(OsStr::new(list)), &environment(), Wins::Later)
                    .into_iter()
                    .map(|(name, _)| name)
                    .collect();
            assert_eq!(names, ["HOME", "PATH", "SLURM_X"]);
        }
    }

    /// As Slurm 22.05 does it.
    #[test]
    fn all_stands_for_the_shells_in_its_place() {
        assert_eq!(by("ALL,FOO=2"), ["BAR=a,b", "FOO=2"]);
        assert_eq!(by("FOO=2,ALL"), ["BAR=a,b", "FOO=1"]);
        for list in ["ALL,FOO=2", "FOO=2,ALL"] {
            assert_eq!(sorted(list, Wins::Shell), ["BAR=a,b", "FOO=1"], "{list}");
        }
    }

    /// As sbatch 22.05 does it.
    #[test]
    fn lists() {
        assert_eq!(by("FOO"), ["FOO=1"]);
        assert_eq!(by("NONE,FOO"), ["FOO=1"]);
        assert_eq!(
            by("FOO,NEW='x,y',Q=\"a b\",T=a\\,b,MISSING,Z=="),
            ["FOO=1", "NEW='x,y'", "Q=\"a b\"", "T=a\\", "Z=="]
        );
        assert_eq!(by("FOO=2,ALL"), ["BAR=a,b", "FOO=1"]);
        assert_eq!(by("FOO=2,X=1,X=2"), ["FOO=2", "X=2"]);
        assert_eq!(by("=2,,FOO"), ["FOO=1"]);
        assert_eq!(by("X='open,FOO"), ["X='open,FOO"]);
    }
}
