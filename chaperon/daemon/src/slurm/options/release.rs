//! Releases of Slurm, and what the table knows of them.

use std::fmt;

/// A release of Slurm's: year and month, as `COMMAND --version` prints them. Its third number changes no option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    year: u16,
    month: u8,
}

/// Since this release `%b` in names of files stands for the last digit of a task's index (`fname.c` of srun and of slurmstepd).
pub const KNOWS_B: Release = Release::new(24, 11);

impl Release {
    /// The newest that the table knows.
    pub const NEWEST: Self = Self::new(26, 5);

    /// The release of a month.
    pub const fn new(year: u16, month: u8) -> Self {
        Self { year, month }
    }

    /// Reads what a command prints of its version: `slurm 26.05.3`, in Debian's packages `slurm-wlm 22.05.8`.
    pub fn printed(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.trim();
        let (name, version) = text.split_once(' ')?;
        let mut numbers = version.split('.');
        let (year, month) = (numbers.next()?, numbers.next()?);
        let two = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        if !name.starts_with("slurm") || !two(year) || !two(month) {
            return None;
        }
        Some(Self::new(year.parse().ok()?, month.parse().ok()?))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}.{:02}", self.year, self.month)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_as_it_is_printed() {
        let read =
            |text: &str| Release::printed(text.as_bytes()).map(|release| release.to_string());
        assert_eq!(read("slurm 26.05.3\n").as_deref(), Some("26.05"));
        assert_eq!(read("slurm-wlm 22.05.8\n").as_deref(), Some("22.05"));
        assert_eq!(read("slurm 25.11.0-0rc1\n").as_deref(), Some("25.11"));
        for text in [
            "",
            "slurm",
            "slurm 26",
            "slurm 2026.5",
            "bash 26.05",
            "slurm 26.05x",
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
        assert!(Release::new(23, 11) < Release::new(24, 5));
    }
}
