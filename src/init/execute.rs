//! The last act: the process becomes the command.

use std::ffi::{CString, OsStr};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;

use crate::handoff::Run;
use crate::sys::process;

/// Executes the command as `execvp(3)` does: searched if it has no slash, and handed to `/bin/sh`
/// if the kernel does not know its format; slurmstepd does not do the latter. Returns only on
/// failure. `cwd` is where the process stands.
pub(super) fn execute(run: &Run, cwd: &[u8]) -> std::io::Error {
    let text = |bytes: &[u8]| CString::new(bytes).unwrap_or_default();
    let mut argv: Vec<CString> = run.argv.iter().map(|word| text(word)).collect();
    let environment = run.environment.iter().map(|entry| {
        // Another directory was entered than was planned.
        if cwd != run.cwd && entry.starts_with(b"PWD=") {
            text(&[b"PWD=", cwd].concat())
        } else {
            text(entry)
        }
    });
    let environment: Vec<CString> = environment.collect();
    let mut answer = std::io::Error::from_raw_os_error(libc::ENOENT);
    for path in candidates(run) {
        let error = process::exec(&path, &argv, &environment);
        match error.raw_os_error() {
            Some(libc::ENOEXEC) if !run.by_slurm => {
                argv.splice(0..1, [c"/bin/sh".to_owned(), path]);
                return process::exec(&c"/bin/sh".to_owned(), &argv, &environment);
            }
            Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::ENAMETOOLONG) => {}
            Some(libc::EACCES) => answer = error,
            _ => return error,
        }
    }
    answer
}

/// The paths at which the command may be, best first.
fn candidates(run: &Run) -> Vec<CString> {
    let text = |bytes: &[u8]| CString::new(bytes).unwrap_or_default();
    match run.argv.first() {
        None => Vec::new(),
        Some(command) if command.is_empty() => Vec::new(),
        Some(command) if command.contains(&b'/') => vec![text(command)],
        Some(command) => run
            .search
            .split(|&byte| byte == b':')
            // An empty entry means the current directory, which is the hostile project.
            .filter(|directory| directory.starts_with(b"/"))
            .map(|directory| text(&[directory, b"/", command].concat()))
            .collect(),
    }
}

/// Whether anything stands where the command may be. What cannot be looked at may be there: `execve(2)` says.
pub(super) fn is_there(run: &Run) -> bool {
    candidates(run).iter().any(|path| {
        !matches!(
            nix::unistd::access(path.as_c_str(), nix::unistd::AccessFlags::F_OK),
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::ENAMETOOLONG)
        )
    })
}

/// Says that the command starts in another directory, in the words of slurmstepd and where the
/// job's messages go.
pub(super) fn tell_directory(run: &Run, cwd: &[u8]) {
    let text = [
        &b"agent-sandbox: error: couldn't chdir to `"[..],
        run.cwd.as_slice(),
        b"': going to ",
        cwd,
        b" instead\n",
    ]
    .concat();
    // There is nowhere left to report a closed standard error to.
    let _ = std::io::stderr().write_all(&text);
}

/// Says why nothing was executed, in the words of slurmstepd and where the job's messages go; the
/// exit code is the `errno`, as slurmstepd has it.
pub(super) fn complain(run: &Run, error: &std::io::Error) -> i32 {
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    let command = run.argv.first().map_or(&b""[..], Vec::as_slice);
    let what = match interpreter(command).filter(|_| errno == libc::ENOENT) {
        Some(interpreter) => [&b" bad interpreter("[..], interpreter.as_slice(), b")"].concat(),
        None => [&b" "[..], command].concat(),
    };
    let why = nix::errno::Errno::from_raw(errno).desc();
    let text = [
        &b"agent-sandbox: error: execve():"[..],
        what.as_slice(),
        b": ",
        why.as_bytes(),
        b"\n",
    ]
    .concat();
    // There is nowhere left to report a closed standard error to.
    let _ = std::io::stderr().write_all(&text);
    errno
}

/// What a script's first line names.
fn interpreter(command: &[u8]) -> Option<Vec<u8>> {
    let mut head = [0; 256];
    let mut file = std::fs::File::open(OsStr::from_bytes(command)).ok()?;
    let length = file.read(&mut head).ok()?;
    let line = head[..length].strip_prefix(b"#!")?;
    let end = line.iter().position(|&byte| byte == b'\n');
    Some(line[..end.unwrap_or(line.len())].to_vec())
}
