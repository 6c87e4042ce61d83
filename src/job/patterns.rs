//! Slurm's file name patterns (`sbatch(1)`, "filename pattern"), resolved as slurmstepd does: what
//! is no pattern stays, in the odd ways of Slurm 22.05 that the tests record.

/// The widest padding; a larger number counts as this one.
const WIDEST: usize = 10;
/// What Slurm prints for a number that there is not (`NO_VAL`).
const NONE: u32 = 0xffff_fffe;

/// What the letters stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// `%j`: the job's id.
    pub job: u32,
    /// `%A`: the id that the tasks of an array have in common.
    pub array_job: Option<u32>,
    /// `%a`: the index in the array.
    pub array_task: Option<u32>,
    /// `%s`: the step's id; `None`: the batch script.
    pub step: Option<u32>,
    /// `%n`: the node's number within the job.
    pub node: u32,
    /// `%t`: the task's number.
    pub task: u32,
    /// `%N`: the node's short name.
    pub host: Vec<u8>,
    /// `%u`: the user's name.
    pub user: Vec<u8>,
    /// `%x`: the job's name.
    pub job_name: Vec<u8>,
}

impl Names {
    /// A pattern as the path that it stands for.
    pub fn resolve(&self, pattern: &[u8]) -> Vec<u8> {
        if pattern.contains(&b'\\') {
            return without_backslashes(pattern);
        }
        let mut path = Vec::with_capacity(pattern.len());
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
            let (number, after) = rest.split_at(digits);
            match after.split_first() {
                Some((&letter, behind)) if self.write(letter, width(number), &mut path) => {
                    rest = behind;
                }
                // No pattern. Of a width Slurm leaves the last digit alone.
                _ => {
                    match number.last() {
                        Some(&digit) => path.push(digit),
                        None => path.push(b'%'),
                    }
                    rest = after;
                }
            }
        }
        path.extend_from_slice(rest);
        path
    }

    /// Writes what a letter stands for; whether it stands for something.
    fn write(&self, letter: u8, width: usize, path: &mut Vec<u8>) -> bool {
        let padded = |number: u32| format!("{number:0width$}").into_bytes();
        path.extend(match letter {
            b'a' => padded(self.array_task.unwrap_or(NONE)),
            b'A' => padded(self.array_job.unwrap_or(self.job)),
            // Since Slurm 24.11; for older ones the chaperon leaves none.
            b'b' => padded(self.array_task.unwrap_or(NONE) % 10),
            b'j' => padded(self.job),
            b'J' => match self.step {
                Some(step) => [padded(self.job), format!(".{step}").into_bytes()].concat(),
                None => padded(self.job),
            },
            b'n' => padded(self.node),
            b'N' => self.host.clone(),
            b's' => self.step.map_or(b"batch".to_vec(), padded),
            b't' => padded(self.task),
            b'u' => self.user.clone(),
            b'x' => self.job_name.clone(),
            _ => return false,
        });
        true
    }
}

fn width(digits: &[u8]) -> usize {
    let text = std::str::from_utf8(digits).unwrap_or_default();
    match text.parse::<usize>() {
        Ok(width) => width.min(WIDEST),
        // None at all, or more than fits into a number.
        Err(_) if digits.is_empty() => 0,
        Err(_) => WIDEST,
    }
}

/// A backslash anywhere: the name is taken as it stands, less the backslashes; two stand for one.
fn without_backslashes(pattern: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(pattern.len());
    let mut rest = pattern.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            path.push(byte);
        } else if rest.next_if_eq(&b'\\').is_some() {
            path.push(b'\\');
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Job 3 of the cluster on which the expected names were seen (Slurm 22.05.8).
    fn names() -> Names {
        Names {
            job: 3,
            host: b"vm".to_vec(),
            user: b"alice".to_vec(),
            job_name: b"probe.sh".to_vec(),
            ..Names::default()
        }
    }

    fn resolved(names: &Names, pattern: &str) -> String {
        String::from_utf8_lossy(&names.resolve(pattern.as_bytes())).into_owned()
    }

    #[test]
    fn batch_scripts_get_the_names_that_slurm_gave() {
        for (pattern, seen) in [
            (
                "o.%5j.%N.%n.%t.%u.%x.%s.%J.%A.%a.%%j.%12j.%q.%3t",
                "o.00003.vm.0.0.alice.probe.sh.batch.3.3.4294967294.%j.0000000003.%q.000",
            ),
            ("%b-%3b", "4-004"),
            ("\\%j.out", "%j.out"),
            ("a\\bc%j", "abc%j"),
            ("a\\\\b", "a\\b"),
            ("%", "%"),
            ("x%5", "x5"),
            ("5", "5"),
        ] {
            assert_eq!(resolved(&names(), pattern), seen, "{pattern}");
        }
        let other = Names {
            job: 10,
            job_name: b"wrap".to_vec(),
            ..names()
        };
        assert_eq!(
            resolved(&other, "x%%%j-%03x-%2u-%2N-%2q"),
            "x%10-wrap-alice-vm-2q"
        );
    }

    #[test]
    fn arrays_and_steps_have_their_numbers() {
        let array = Names {
            job: 13,
            array_job: Some(12),
            array_task: Some(4),
            ..names()
        };
        assert_eq!(
            resolved(&array, "slurm-%A_%3a-%j.out"),
            "slurm-12_004-13.out"
        );
        let step = Names {
            step: Some(2),
            node: 1,
            task: 7,
            ..names()
        };
        assert_eq!(resolved(&step, "%J.%s.%2n.%4t"), "3.2.2.01.0007");
    }

    #[test]
    fn any_bytes_resolve_to_something() {
        let wide = "%99999999999999999999999j";
        assert_eq!(resolved(&names(), wide), "0000000003");
        assert_eq!(names().resolve(b"\xff%\xfe%%%"), b"\xff%\xfe%%");
        assert_eq!(resolved(&names(), ""), "");
    }
}
