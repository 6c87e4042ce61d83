#![allow(
    clippy::disallowed_methods,
    reason = "effects: starts processes, and looks whether they can do what they should not"
)]

use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use super::*;

/// A filtered program's output and end. The command around it only sets up its streams, as for `srun`.
fn run(program: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    command(program, arguments, environment).output().unwrap()
}

#[allow(unsafe_code)]
fn command(program: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Command {
    let own = environment
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()));
    let words = std::iter::once(program).chain(arguments.iter().copied());
    let filtered =
        FilteredProgram::new(OsStr::new(program), words.map(OsString::from), own).unwrap();
    let prepared = filtered.prepare();
    let mut command = Command::new("/nonexistent");
    // SAFETY: what is called is made for this.
    unsafe { command.pre_exec(move || Err(prepared.enter())) };
    command
}

/// Names the test that this executable is to run as a filtered program.
const INNER: &str = "AGENT_SANDBOX_SEAL_INNER";

/// Runs this test again, filtered; `false` in there.
fn sealed_test(name: &str) -> bool {
    if std::env::var_os(INNER).is_some() {
        return false;
    }
    let own = std::env::current_exe().unwrap();
    let name = format!("sys::exec_filter::tests::{name}");
    let words = ["--exact", &name, "--nocapture"];
    let output = run(own.to_str().unwrap(), &words, &[(INNER, "1")]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{output:?}"
    );
    true
}

/// The number of the error, if it is one.
fn errno(answer: i64) -> i32 {
    if answer >= 0 {
        return 0;
    }
    io::Error::last_os_error().raw_os_error().unwrap()
}

#[test]
fn the_program_gets_its_words_its_environment_and_its_streams() {
    let output = run(
        "/bin/bash",
        &["-c", "echo \"$0|$1|$X\"; exit 3", "a b", "c"],
        &[("X", "y z"), ("PATH", "/bin")],
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a b|c|y z\n");
    assert_eq!(output.status.code(), Some(3));
    let mut child = command("/bin/cat", &[], &[])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"input").unwrap();
    let mut all = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut all)
        .unwrap();
    assert_eq!(all, "input");
    assert!(child.wait().unwrap().success());
}

#[test]
fn it_executes_no_other_program() {
    // The control: without the filter the same script runs it.
    let script = "echo begun; /bin/true && echo executed; (exec /bin/true) && echo executed; \
                  exec /bin/echo executed";
    let open = Command::new("/bin/bash")
        .args(["-c", script])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&open.stdout),
        "begun\nexecuted\nexecuted\nexecuted\n"
    );
    let filtered = run("/bin/bash", &["-c", script], &[]);
    assert_eq!(String::from_utf8_lossy(&filtered.stdout), "begun\n");
    let said = String::from_utf8_lossy(&filtered.stderr);
    assert!(said.contains("Operation not permitted"), "{said}");
    assert_eq!(filtered.status.code(), Some(126));
}

#[test]
#[allow(unsafe_code)]
fn surplus_arguments_that_are_guessed_do_not_open_it() {
    if sealed_test("surplus_arguments_that_are_guessed_do_not_open_it") {
        return;
    }
    let path = c"/bin/true".as_ptr();
    let words = [path, ptr::null()];
    for mark in [0, 1, u64::MAX] {
        // SAFETY: path and list end as execve(2) wants them; the rest are numbers.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_execve,
                path,
                words.as_ptr(),
                ptr::null::<*const c_char>(),
                mark,
                mark,
            )
        };
        assert_eq!(errno(answer), libc::EPERM);
    }
}

#[test]
#[allow(unsafe_code)]
fn it_makes_threads_processes_and_sockets() {
    if sealed_test("it_makes_threads_processes_and_sockets") {
        return;
    }
    assert_eq!(std::thread::spawn(|| 5).join().unwrap(), 5);
    // SAFETY: the child does nothing but end.
    let child = unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::_exit(7);
        }
        pid
    };
    let mut status = 0;
    // SAFETY: the kernel writes a number.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(libc::WEXITSTATUS(status), 7);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    assert!(fs::read("/etc/passwd").is_ok());
}

#[test]
#[allow(unsafe_code)]
fn it_makes_no_temporary_files_and_traces_nobody() {
    if sealed_test("it_makes_no_temporary_files_and_traces_nobody") {
        return;
    }
    let open = |path: &std::ffi::CStr, flags: i32| {
        // SAFETY: the path ends with NUL.
        let answer = unsafe { libc::open(path.as_ptr(), flags | libc::O_RDWR, 0o600) };
        errno(answer.into())
    };
    let new = c"/tmp/agent-sandbox-seal-test";
    assert_eq!(open(new, libc::O_CREAT | libc::O_EXCL), libc::EPERM);
    assert_eq!(open(c"/tmp", libc::O_TMPFILE), libc::EPERM);
    assert_eq!(open(c"/dev/null", libc::O_CREAT | libc::O_TRUNC), 0);
    // SAFETY: the calls get no memory but null.
    let answers = unsafe {
        [
            libc::syscall(libc::SYS_ptrace, libc::PTRACE_TRACEME, 0, 0, 0),
            libc::syscall(libc::SYS_process_vm_readv, 1, 0, 0, 0, 0, 0),
            libc::syscall(libc::SYS_process_vm_writev, 1, 0, 0, 0, 0, 0),
            libc::syscall(libc::SYS_pidfd_getfd, 0, 0, 0),
            libc::syscall(libc::SYS_execveat, 0, 0, 0, 0, 0),
        ]
    };
    let last = answers.map(|answer| answer == -1);
    assert_eq!(last, [true; 5]);
    // SAFETY: as above.
    let answer = unsafe { libc::syscall(libc::SYS_ptrace, libc::PTRACE_TRACEME, 0, 0, 0) };
    assert_eq!(errno(answer), libc::EPERM);
    // SAFETY: as above.
    let answer = unsafe { libc::syscall(libc::SYS_openat2, -1, 0, 0, 0) };
    assert_eq!(errno(answer), libc::ENOSYS);
}

#[cfg(target_arch = "x86_64")]
#[test]
#[allow(unsafe_code)]
fn foreign_numbers_are_unknown() {
    if sealed_test("foreign_numbers_are_unknown") {
        return;
    }
    // x32: execve is 520, getpid 39.
    for number in [520, 39] {
        // SAFETY: no memory is named but null.
        let answer = unsafe { libc::syscall(0x4000_0000 | number, 0, 0, 0) };
        assert_eq!(errno(answer), libc::ENOSYS);
    }
}

#[test]
fn a_file_that_was_passed_is_opened_by_its_descriptor() {
    let (mut read, write) = std::io::pipe().unwrap();
    // SAFETY: fcntl(2) is a system call and no more.
    #[allow(unsafe_code)]
    let kept = unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETFD, 0) };
    assert_eq!(kept, 0);
    let script = format!("echo text >> /dev/fd/{}", write.as_raw_fd());
    let output = run("/bin/bash", &["-c", &script], &[]);
    assert!(output.status.success(), "{output:?}");
    let mut text = [0; 5];
    read.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"text\n");
}

#[test]
fn nothing_that_has_a_nul_in_it_is_started() {
    for words in [["a\0b", "c"], ["a", "c\0"]] {
        let own = words.map(OsString::from);
        assert!(FilteredProgram::new(OsStr::new("/bin/true"), own, []).is_err());
    }
    let own = [("A".into(), "b\0".into())];
    assert!(FilteredProgram::new(OsStr::new("/bin/true"), [], own).is_err());
}

#[test]
fn a_program_that_is_not_there_is_an_error() {
    let error = command("/nonexistent/srun", &[], &[]).spawn().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn no_two_seals_have_the_same_mark() {
    let make = || FilteredProgram::new(OsStr::new("/bin/true"), [], []).unwrap();
    let (one, other) = (make(), make());
    assert_ne!(one.mark, other.mark);
    assert!(one.mark != [0, 0]);
}
