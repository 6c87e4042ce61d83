//! Where `--output`, `--error` and `--input` of srun lead (`srun(1)`, "IO Redirection" and
//! "filename pattern"). A name without a task in it is one file for all tasks, which srun itself
//! would open; here the shim does, in the jail. A name with a task in it is a file for each, which
//! slurmstepd would open; here init does, in the jail.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::slurm::options::{KNOWS_B, Release};
use crate::slurm::parse::Parsed;

/// What Slurm prints for a number that there is not (`NO_VAL`).
const NONE: u32 = 0xffff_fffe;

/// The widest padding; a larger number counts as this one.
const WIDEST: usize = 10;

/// Where a stream leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// To srun's own stream, of all tasks.
    Shared,
    /// Nowhere.
    Nowhere,
    /// To srun's own stream, of this task alone.
    Task(u32),
    /// To one file of all tasks.
    File(Vec<u8>),
    /// To files that the tasks open, by this pattern.
    PerTask {
        /// The pattern.
        pattern: Vec<u8>,
        /// Tasks may share one, so that none may empty it. Its name has a number that was never
        /// used before.
        shared: bool,
    },
}

/// What is known before the step exists.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// The number of tasks.
    pub tasks: Option<u32>,
    /// `%j`, in a job.
    pub job: Option<u32>,
    /// `%A`, in a task of an array.
    pub array_job: Option<u32>,
    /// `%a`, in a task of an array.
    pub array_task: Option<u32>,
    /// `%u`
    pub user: Vec<u8>,
    /// `%x`
    pub job_name: Vec<u8>,
}

impl Known {
    /// Where a stream leads that was given this name (`fname_create()` in
    /// `src/srun/libsrun/fname.c`).
    pub(super) fn target(&self, name: Option<&[u8]>) -> Target {
        let Some(name) = name else {
            return Target::Shared;
        };
        let begins = |with: &[u8]| {
            name.get(..with.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(with))
        };
        if begins(b"all") || begins(b"-") {
            return Target::Shared;
        }
        if name.eq_ignore_ascii_case(b"none") {
            return Target::Nowhere;
        }
        let digits = !name.is_empty() && name.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(name).ok().filter(|_| digits);
        if let Some(task) = number.and_then(|text| text.parse().ok())
            && task < self.tasks.unwrap_or(1)
        {
            return Target::Task(task);
        }
        if name.contains(&b'\\') {
            return Target::File(name.iter().copied().filter(|&byte| byte != b'\\').collect());
        }
        self.expand(name)
    }

    fn expand(&self, pattern: &[u8]) -> Target {
        let mut path = Vec::with_capacity(pattern.len());
        let mut unknown = false;
        let mut rest = pattern;
        while let Some(at) = rest.iter().position(|&byte| byte == b'%') {
            path.extend_from_slice(&rest[..at]);
            rest = &rest[at + 1..];
            if let [b'%', after @ ..] = rest {
                path.push(b'%');
                rest = after;
                continue;
            }
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let width = std::str::from_utf8(&rest[..digits]).unwrap_or_default();
            let width = match width.parse::<usize>() {
                Ok(width) => width.min(WIDEST),
                Err(_) if digits == 0 => 0,
                Err(_) => WIDEST,
            };
            let padded = |number: u32| format!("{number:0width$}").into_bytes();
            let Some((&letter, behind)) = rest[digits..].split_first() else {
                path.push(b'%');
                break;
            };
            match letter {
                b't' | b'n' | b'N' => {
                    return Target::PerTask {
                        pattern: pattern.to_vec(),
                        shared: false,
                    };
                }
                b'a' => path.extend(padded(self.array_task.unwrap_or(NONE))),
                b'b' => path.extend(padded(self.array_task.unwrap_or(NONE) % 10)),
                b'j' | b'A' => match self.array_job.filter(|_| letter == b'A').or(self.job) {
                    Some(job) => path.extend(padded(job)),
                    None => unknown = true,
                },
                // A step has no number before it begins.
                b'J' | b's' => unknown = true,
                b'u' => path.extend_from_slice(&self.user),
                b'x' => path.extend_from_slice(&self.job_name),
                // No pattern: it stays.
                _ => {
                    path.push(b'%');
                    continue;
                }
            }
            rest = behind;
        }
        if unknown {
            // More of the pattern may name a task.
            return Target::PerTask {
                pattern: pattern.to_vec(),
                shared: true,
            };
        }
        path.extend_from_slice(rest);
        Target::File(path)
    }
}

/// A file's name for this release of Slurm, none: the newest; where `%b` stands for nothing it becomes what stays as it is.
pub(super) fn for_release(pattern: &[u8], release: Option<Release>) -> Vec<u8> {
    match release {
        Some(release) if release < KNOWS_B => keep_b(pattern),
        _ => pattern.to_vec(),
    }
}

fn keep_b(pattern: &[u8]) -> Vec<u8> {
    if pattern.contains(&b'\\') {
        return pattern.to_vec();
    }
    let mut kept = Vec::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some(at) = rest.iter().position(|&byte| byte == b'%') {
        let (before, after) = rest.split_at(at);
        kept.extend_from_slice(before);
        let digits = after[1..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let (number, behind) = after.split_at(1 + digits);
        rest = match (number, behind) {
            // Of a width Slurm leaves the last digit alone.
            ([_, .., digit], [b'b', behind @ ..]) => {
                kept.extend([*digit, b'b']);
                behind
            }
            (_, [b'b', behind @ ..]) => {
                kept.extend(b"%%b");
                behind
            }
            ([_], [b'%', behind @ ..]) => {
                kept.extend(b"%%");
                behind
            }
            _ => {
                kept.extend_from_slice(number);
                behind
            }
        };
    }
    kept.extend_from_slice(rest);
    kept
}

/// `--open-mode`
pub(super) fn appends(parsed: &Parsed) -> bool {
    let mode = parsed.value("open-mode").map(OsStr::as_bytes);
    mode.and_then(<[u8]>::first)
        .is_some_and(|first| first.eq_ignore_ascii_case(&b'a'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(known: &Known, name: &str) -> Target {
        known.target(Some(name.as_bytes()))
    }

    fn file(path: &str) -> Target {
        Target::File(path.as_bytes().to_vec())
    }

    fn per_task(pattern: &str, shared: bool) -> Target {
        Target::PerTask {
            pattern: pattern.as_bytes().to_vec(),
            shared,
        }
    }

    #[test]
    fn what_is_no_pattern_yet_stays() {
        for (pattern, kept) in [
            ("x", "x"),
            ("b-%b-%j.%b", "b-%%b-%j.%%b"),
            ("%%b%12b%j", "%%b2b%j"),
            ("a%", "a%"),
            ("%5", "%5"),
            ("%5%b", "%5%%b"),
            ("%%%b", "%%%%b"),
            ("\\%b", "\\%b"),
        ] {
            assert_eq!(keep_b(pattern.as_bytes()), kept.as_bytes(), "{pattern}");
        }
    }

    /// Seen with srun 22.05.
    #[test]
    fn names_lead_where_srun_leads_them() {
        let known = Known {
            tasks: Some(2),
            user: b"alice".to_vec(),
            job_name: b"hostname".to_vec(),
            ..Known::default()
        };
        assert_eq!(known.target(None), Target::Shared);
        assert_eq!(target(&known, "all"), Target::Shared);
        assert_eq!(target(&known, "NONE"), Target::Nowhere);
        assert_eq!(target(&known, "1"), Target::Task(1));
        assert_eq!(target(&known, "7"), file("7"));
        assert_eq!(target(&known, "lit.txt"), file("lit.txt"));
        assert_eq!(target(&known, "bs\\%j.txt"), file("bs%j.txt"));
        assert_eq!(target(&known, "pc%%j.txt"), file("pc%j.txt"));
        assert_eq!(
            target(&known, "%u-%x-%3a"),
            file("alice-hostname-4294967294")
        );
        assert_eq!(target(&known, "%q%"), file("%q%"));
        assert_eq!(target(&known, "task-%t"), per_task("task-%t", false));
        assert_eq!(target(&known, "out-%j"), per_task("out-%j", true));
        assert_eq!(target(&known, "out-%j-%2t"), per_task("out-%j-%2t", false));
    }

    #[test]
    fn in_a_job_its_number_is_known() {
        let known = Known {
            job: Some(12),
            array_job: Some(10),
            array_task: Some(2),
            ..Known::default()
        };
        assert_eq!(target(&known, "%5j-%A_%a"), file("00012-10_2"));
        assert_eq!(target(&known, "%J"), per_task("%J", true));
        assert_eq!(target(&known, "1"), file("1"));
    }
}
