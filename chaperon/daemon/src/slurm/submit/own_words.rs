//! Words that the chaperon writes of its own for every kind of submission.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::session::Session;
use crate::slurm::parse::option_word;

/// Where Slurm itself starts the job: in the project, which is there. The directory that was asked
/// for is entered in the jail; Slurm would say in the job's output whether it exists outside.
pub(super) fn start_directory(session: &Session) -> OsString {
    option_word(
        "--chdir",
        OsStr::from_bytes(&session.order.snapshot.project),
    )
}

/// The name of a job that gets none, by its program. It becomes a word on the real command's line;
/// what could not stand there becomes `?`, as it is shown anyway.
pub(super) fn job_name(program: &OsStr) -> OsString {
    let name = Path::new(program).file_name().unwrap_or(program);
    let text = name.to_string_lossy();
    let plain = |c: char| if c.is_control() { '?' } else { c };
    text.chars().map(plain).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_named_in_one_line() {
        assert_eq!(job_name(OsStr::new("/x/a b.sh")), "a b.sh");
        assert_eq!(job_name(OsStr::from_bytes(b"a\nb\xff")), "a?b\u{fffd}");
    }
}
